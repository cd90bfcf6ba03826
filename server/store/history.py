"""History: what was done to a memory, by whom, and how it ended."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from scrubjay.memory import ClientId, JsonValue, MemoryId, Micros, canonical_json
from scrubjay.merge import Outcome
from scrubjay.operation import OperationKind
from scrubjay.stamp import CommitStamp, ReplicaId, Stamp


class HistoryChange(NamedTuple):
    """One register of an operation: the value before, the value written, and how it ended."""

    field: str
    old: JsonValue
    new: JsonValue
    stamp: Stamp
    base: Stamp | None
    outcome: Outcome


class HistoryRow(NamedTuple):
    """One operation. ``operation_id`` is a UUID; ``claimed_at`` is when its author says it was made.

    ``private_to`` is the only client that may see it, where the memory was private then; else empty.
    ``spell`` names the time offline that it was made in; empty where it was not made on a device.
    ``deleted`` is the encoded ``v1.Memory`` that a DELETE took away, empty where it took none.
    ``restores`` is what it brings back: of a CREATE the id of a deleted memory, of a SET the operation whose
    old values it wrote; empty where it is an edit like any other.
    ``reason`` says why it was done, such as ``feedback: WRONG``; empty where nobody said.
    """

    operation_id: str
    memory_id: MemoryId
    commit_stamp: CommitStamp
    kind: OperationKind
    changes: tuple[HistoryChange, ...]
    client_id: ClientId
    replica_id: ReplicaId
    actor: str
    role: str
    outcome: Outcome
    claimed_at: Micros
    private_to: ClientId
    spell: str = ""
    deleted: bytes = b""
    restores: str = ""
    reason: str = ""


STORED = (Outcome.APPLIED, Outcome.APPLIED_CONCURRENT)
"""How writes end that change what stands."""


def made(row: HistoryRow) -> bool:
    """Whether the operation made its memory: a create that came second is joined into the first."""
    return row.kind is OperationKind.CREATE and any(
        change.field == "content" and change.old is None for change in stored(row)
    )


def stored(row: HistoryRow) -> list[HistoryChange]:
    """The operation's writes that changed what stood."""
    return [change for change in row.changes if change.outcome in STORED]


def encode_changes(changes: Iterable[HistoryChange]) -> str:
    """Changes as JSON text. Neighbours that share stamp, base and outcome name them once."""
    groups: list[JsonValue] = [
        [
            stamp.pack().hex(),
            "" if base is None else base.pack().hex(),
            outcome,
            [change[:3] for change in group],
        ]
        for (stamp, base, outcome), group in groupby(changes, _SHARED)
    ]
    return canonical_json(groups)


_SHARED = itemgetter(*map(HistoryChange._fields.index, ("stamp", "base", "outcome")))


def decode_changes(text: str) -> tuple[HistoryChange, ...]:
    """The inverse of ``encode_changes``."""
    return tuple(
        HistoryChange(
            field,
            old,
            new,
            Stamp.unpack(bytes.fromhex(stamp)),
            Stamp.unpack(bytes.fromhex(base)) if base else None,
            Outcome(outcome),
        )
        for stamp, base, outcome, fields in json.loads(text)
        for field, old, new in fields
    )
