"""Twins of a tenant: rows of other lives under the same ids, stamps and streams, with other values.

Ids never collide by themselves, so a statement that forgot whose rows it is about would find nothing foreign
by an id. With twins it does: whatever a tenant reads is as if they were not there, and whatever it writes
leaves them as they were, or the statement is wrong. Of each row there are four: a twin before it and one
behind it, in the order of lives and of the file, that differ in what they hold alone, and such that differ
in all but their keys. Each twin has rows beside, under ids that the tenant does not have.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Boolean, Column, Double, Integer, LargeBinary, create_engine, select
from sqlalchemy.dialects import postgresql

from server.store.rows import StreamKey
from server.store.tables import metadata, touched
from server.store.transaction import Transaction, Transactions
from tenants.database import open_engine
from tenants.tenant import Incarnation

Rows = dict[str, list[dict[str, Any]]]
"""Whole rows by table."""
BEFORE = ("00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002")
BEHIND = ("ffffffff-ffff-ffff-ffff-fffffffffff1", "ffffffff-ffff-ffff-ffff-fffffffffff2")
FULL, BARE = "user:alice", "user:bare"
"""The stream that everything is asked about, and one in which only the twins have anything."""
SHIFT = 1 << 30
"""How far the stamps of what a twin has beside lie back or ahead: by 16 seconds."""
_HELD = ("content", "tags", "metadata", "source", "changes", "messages", "name", "relation", "swept", "actor")
"""Texts that nothing is looked up by."""

_OPEN = {"lease_until": 1, "ended_at": 1, "finished_at": 1, "place": 1, "expires_at": 1 << 60}
"""What is NULL where something has ended, or has not: a twin has it the other way."""


def _is_uuid(column: Column[Any]) -> bool:
    return isinstance(column.type.dialect_impl(postgresql.dialect()), postgresql.UUID)


def other_id(value: str) -> str:
    """The id that twins have beside this one."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, value))


def alike(column: Column[Any], value: Any) -> Any:
    """What the twin holds that is found in every way in which the tenant's own row is."""
    if column.primary_key or value is None or column.name == "content_stamp":
        return value
    if isinstance(column.type, LargeBinary):
        return value + b"~"
    return f"{value}~" if column.name in _HELD else value


def apart(column: Column[Any], value: Any) -> Any:
    """What the twin holds whose row differs in all but its key: of another stream, ended, seen by others."""
    if column.primary_key:
        return value
    if column.name in _OPEN:
        return _OPEN[column.name] if value is None else None
    if value is None:
        return None
    if column.name == "privacy_level":
        return 5 - value  # shared where the other is private
    if _is_uuid(column):
        return other_id(value)
    if isinstance(column.type, LargeBinary):
        return value + b"~"
    if isinstance(column.type, Boolean):
        return not value
    if isinstance(column.type, Double):
        return value / 2
    return value + 1 if isinstance(column.type, Integer) else f"{value}~"


def beside(column: Column[Any], value: Any, shift: int = -SHIFT) -> Any:
    """What a twin has under an id that the tenant does not have, in the same stream."""
    if value is None or column.name in ("incarnation", "space", "stream"):
        return value
    if _is_uuid(column):
        return other_id(value)
    if column.name in ("commit_stamp", "lane_stamp"):
        return value + shift
    if column.name == "mark":
        return value + 1
    if not column.primary_key:
        return alike(column, value)
    if isinstance(column.type, LargeBinary):
        return bytes(byte ^ 255 for byte in value)
    return value + 100 if isinstance(column.type, Integer) else f"{value}~"


def _changed(rows: Rows, change: Callable[[Column[Any], Any], Any], life: str) -> Rows:
    return {
        name: [
            {**{c.name: change(c, row[c.name]) for c in metadata.tables[name].c}, "incarnation": life}
            for row in some
        ]
        for name, some in rows.items()
    }


def _beside(rows: Rows, shift: int) -> Rows:
    """The rows under other ids, and some in a stream in which the tenant has nothing; of a table with one row
    for each life there are none."""
    found: Rows = {}
    for name, some in rows.items():
        table = metadata.tables[name]
        keys = [column.name for column in table.primary_key if column.name != "incarnation"]
        found[name] = [{c.name: beside(c, row[c.name], shift) for c in table.c} for row in some if keys]
        if keys == ["stream"]:
            for row in found[name]:
                row["stream"] += "~"
        elif "stream" in table.c:
            again = [{c.name: beside(c, row[c.name], shift) for c in table.c} for row in found[name]]
            found[name] += [{**row, "stream": BARE} for row in again if row["stream"] == FULL]
    return found


def _fuller(rows: Rows) -> Rows:
    """The rows, with what lives dead and what is dead living, and all vectors that there may be."""
    (dead, *_), (living, *_) = rows["graveyard"], rows["memories"]
    graves = [{**dead, "memory_id": one["id"], "stream": one["stream"]} for one in rows["memories"]]
    lives = {**living, "id": dead["memory_id"], "commit_stamp": living["commit_stamp"] + SHIFT // 2}
    known = {row["memory_id"] for row in rows["vectors"]}
    vector = rows["vectors"][0]
    made = [
        {**vector, "memory_id": one["id"], "stream": one["stream"], "content_stamp": one["content_stamp"]}
        for one in rows["memories"]
        if one["id"] not in known
    ]
    more = {"graveyard": graves, "memories": [lives], "vectors": made}
    return {name: [*some, *more.get(name, ())] for name, some in rows.items()}


def twins(rows: Rows) -> tuple[Rows, Rows]:
    """All rows of the twins before a tenant with these rows, and of those behind it. What is apart is the
    first and the last of all: what reads a single row reads that."""
    full = _fuller(rows)
    (first, second), (third, last) = BEFORE, BEHIND
    earlier, later = _beside(full, -SHIFT), _beside(full, SHIFT)
    return (
        _together(_changed(full, apart, first), _as(earlier, first), _changed(full, alike, second)),
        _together(_changed(full, alike, third), _as(later, third), _changed(full, apart, last)),
    )


def _as(rows: Rows, life: str) -> Rows:
    return _changed(rows, lambda _, value: value, life)


def _together(*some: Rows) -> Rows:
    return {name: [row for rows in some for row in rows[name]] for name in some[0]}


def read_rows(url: str, life: str) -> Rows:
    """All rows of a life in a shard."""
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            return {
                name: [
                    dict(row._mapping)
                    for row in connection.execute(select(table).where(table.c.incarnation == life))
                ]
                for name, table in metadata.tables.items()
            }
    finally:
        engine.dispose()


def plant(url: str, *planted: Rows) -> None:
    """Write whole rows, in this order."""
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1))
    try:
        with engine.begin() as connection:
            for rows in planted:
                for name, some in rows.items():
                    if some:
                        connection.execute(metadata.tables[name].insert(), some)
    finally:
        engine.dispose()


# --- what comes of a step -------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """The tenant that everything is asked about: its ``life``, its rows, and its stream ``key``."""

    key: StreamKey
    rows: Rows

    @property
    def life(self) -> Incarnation:
        """Its incarnation."""
        return self.key.incarnation

    def own(self, table: str, column: str) -> list[Any]:
        """What its rows have in a column."""
        return list(dict.fromkeys(row[column] for row in self.rows[table] if row[column] is not None))

    def every(self, table: str, column: str) -> list[Any]:
        """The same, and what only its twins have."""
        of = metadata.tables[table].c[column]
        own = self.own(table, column)
        return list(
            dict.fromkeys((*own, *(beside(of, one) for one in own), *(apart(of, one) for one in own)))
        )


_EVERYTHING = {
    name: select(*(column for column in table.c if column is not touched.c.entry))  # which is random
    for name, table in metadata.tables.items()
}
Step = Callable[[Transaction, Asked], object]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step answered, and what the tenant and its twins had behind it."""

    answer: object
    own: frozenset[tuple[object, ...]]
    foreign: frozenset[tuple[object, ...]]


class _Undone(Exception):
    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome


@contextmanager
def opened(url: str) -> Iterator[Transactions]:
    """Transactions on a shard, for the block."""
    transactions = Transactions(open_engine(url, connections=1), read_only=False)
    try:
        yield transactions
    finally:
        transactions.close()


def outcome(transactions: Transactions, step: Step, asked: Asked) -> Outcome:
    """What comes of a step, which is undone."""
    try:
        with transactions.begin() as transaction:
            raise _Undone(_outcome(transaction, step, asked))
    except _Undone as undone:
        return undone.outcome


def _outcome(transaction: Transaction, step: Step, asked: Asked) -> Outcome:
    try:
        answer = shape(step(transaction, asked))
    except Exception as error:  # that a step can't read a foreign row is an answer too
        return Outcome(repr(error), frozenset(), frozenset())
    found = [row for name in metadata.tables for row in _rows(transaction, name)]
    own = frozenset(row for row in found if row[1] == asked.life)
    return Outcome(answer, own, frozenset(found) - own)


def _rows(transaction: Transaction, name: str) -> list[tuple[object, ...]]:
    return [(name, *row) for row in transaction.all(_EVERYTHING[name], {})]


def shape(answer: object) -> object:
    """An answer to be compared: what a database tells in any order is sorted."""
    if isinstance(answer, Mapping):
        return sorted(repr((key, shape(value))) for key, value in answer.items())
    if isinstance(answer, list | set | frozenset):
        return sorted(repr(shape(one)) for one in answer)
    return tuple(shape(one) for one in answer) if type(answer) is tuple else repr(answer)
