"""Who may not write in a shard any more, or not yet: tenants that left it, or are about to, or arrive."""

from __future__ import annotations

from collections.abc import Collection
from enum import IntEnum

from sqlalchemy import select

from scrubjay.errors import Unavailable
from server.store.lookups import AMONG, ids_value
from server.store.tables import moves
from server.store.transaction import Transaction
from tenants.tenant import Incarnation


class MoveState(IntEnum):
    """How a tenant stands in a shard that it moves from or to; of all others a shard has no row."""

    LEAVING = 1
    """It is copied; what is written meanwhile is noted."""
    CLOSED = 2
    """Nobody writes; reads go on."""
    GONE = 3
    """It is elsewhere, and so is the truth."""
    ARRIVING = 4
    """It is being copied to here; nobody but the move reads or writes."""


ELSEWHERE = frozenset({MoveState.GONE, MoveState.ARRIVING})
"""Where nobody reads either."""


class TenantMoving(Unavailable):
    """The tenant is not to be read or written in this shard now; what met this has stored nothing.

    The door waits until the catalogue names a shard where it is, and calls again.
    """

    def __init__(self, incarnation: Incarnation) -> None:
        super().__init__("this tenant is moving to another shard; nothing was stored; retry")
        self.incarnation = incarnation


def closed_among(transaction: Transaction, incarnations: Collection[Incarnation]) -> frozenset[Incarnation]:
    """Those of the tenants that nobody may write now.

    None of the others is closed before the transaction ends, if it has a row: who closes it waits.
    """
    if not incarnations:
        return frozenset()
    dialect = transaction.dialect_name
    rows = transaction.all(_STATES[dialect], {"ids": ids_value(dialect, sorted(incarnations))})
    return frozenset(Incarnation(row[0]) for row in rows if row[1] != MoveState.LEAVING)


_STATES = {
    dialect: select(moves.c.incarnation, moves.c.state)
    .where(among(moves.c.incarnation))
    .with_for_update(read=True)
    for dialect, among in AMONG.items()
}
