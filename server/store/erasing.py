"""The erasure of one subject in a shard: all rows of its stream go, what is kept of answers too.

Of a stream that was erased there stay its head, for cursors that were given out; the ids of its memories, so
that no replica brings one back; and a row here: when it was, and what was deleted, by place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any

from sqlalchemy import Delete, Insert, Table, Update, bindparam, delete, func, null, select, update
from sqlalchemy.dialects import postgresql, sqlite

from scrubjay.memory import MemoryId, Micros
from server.store.lookups import AMONG, as_one, ids_value
from server.store.rows import StreamKey
from server.store.tables import erasures, graveyard, memories, metadata, requests, streams
from server.store.transaction import Transaction
from tenants.receipt import PurgeReceipt
from tenants.tenant import Incarnation

_STAYING = {table.name for table in (streams, graveyard, erasures)}
_OF_STREAMS = {
    name: table
    for name, table in sorted(metadata.tables.items())
    if "stream" in table.c and name not in {*_STAYING, memories.name, requests.name}
}
ERASED_FIRST = ("jobs", "recent_messages")
"""What goes before the memories: work that would make more, and what it would read."""
ERASED_TABLES = (*ERASED_FIRST, *(name for name in _OF_STREAMS if name not in ERASED_FIRST))
"""What goes row by row. Memories are buried."""
_ANSWERS = "request answers"
_NOTHING = dict.fromkeys((memories.name, *ERASED_TABLES, _ANSWERS), 0)
_OF_MEMORIES = tuple(
    name for name, table in _OF_STREAMS.items() if "memory_id" in table.c and "commit_stamp" not in table.c
)
"""What belongs to a memory alone, and goes with it."""


class ErasureReading:
    """What can be read of erasures; a part of ``Reading``."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def erasure(self, key: StreamKey) -> PurgeReceipt | None:
        """The receipt of the stream's last one, if any."""
        row = self._transaction.first(_READ, _of(key))
        return None if row is None else PurgeReceipt(row[0], row[1], json.loads(row[2]))

    def erased_since(self, since: Micros) -> dict[StreamKey, Micros]:
        """The streams whose erasure was finished later than ``since``, and when."""
        rows = self._transaction.all(_ERASED_SINCE, {"since": since})
        return {StreamKey(Incarnation(row[0]), row[1]): row[2] for row in rows}


class ErasureWriting(ErasureReading):
    """What a unit may erase of a stream that it named; a part of ``Writing``. Rows are counted in the unit
    that deletes them."""

    def __init__(self, transaction: Transaction) -> None:
        ErasureReading.__init__(self, transaction)
        self._erasing = _STATEMENTS[transaction.dialect_name]

    def begin_erasure(self, key: StreamKey, now: Micros) -> None:
        """Begin one; where one was begun and not finished, it goes on."""
        row = {"incarnation": key.incarnation, "stream": key.stream, "began_at": now, "finished_at": None}
        self._transaction.run(self._erasing.begin, {**row, "swept": json.dumps(_NOTHING)})

    def erase_rows(self, key: StreamKey, table: str, limit: int) -> int:
        """Delete at most ``limit`` of the stream's rows in a table; how many there were."""
        count = self._transaction.run(self._erasing.rows[table], {**_of(key), "limit": limit})
        self.note_erased(key, {table: count})
        return count

    def erase_memories(self, key: StreamKey, ids: Collection[MemoryId]) -> None:
        """Delete what belongs to these memories alone, before they are buried, and count them."""
        values = {**_of(key), "ids": ids_value(self._transaction.dialect_name, ids)}
        counts = {name: self._transaction.run(one, values) for name, one in self._erasing.of_memories.items()}
        self.note_erased(key, {**counts, memories.name: len(ids)})

    def erase_answers(self, key: StreamKey, name: str, limit: int) -> int:
        """Forget at most ``limit`` kept answers about the stream, whose subject is called ``name``; how many
        there were. Their request ids stay taken for their 24 hours: nothing of them is done again."""
        values = {**_of(key), "name": name.encode(), "nothing": b"", "nowhere": 0, "limit": limit}
        count = sum(self._transaction.run(one, values) for one in self._erasing.answers)
        self.note_erased(key, {_ANSWERS: count})
        return count

    def note_erased(self, key: StreamKey, counts: Mapping[str, int]) -> None:
        """Count what was deleted."""
        swept = self._swept(key)
        self._save_swept(key, {place: swept.get(place, 0) + count for place, count in counts.items()})

    def note_seen(self, key: StreamKey, counts: Mapping[str, int]) -> None:
        """Note what lies outside of the database, before it is deleted: what is seen again counts once."""
        swept = self._swept(key)
        self._save_swept(key, {place: max(count, swept.get(place, 0)) for place, count in counts.items()})

    def _swept(self, key: StreamKey) -> Mapping[str, int]:
        receipt = self.erasure(key)
        return {} if receipt is None else receipt.swept

    def _save_swept(self, key: StreamKey, counts: Mapping[str, int]) -> None:
        swept = json.dumps({**self._swept(key), **counts})
        self._transaction.run(_COUNT, {**_of(key), "new_swept": swept})

    def finish_erasure(self, key: StreamKey, now: Micros) -> None:
        """Nothing is left."""
        self._transaction.run(_FINISH, {**_of(key), "now": now})


def _of(key: StreamKey) -> dict[str, Any]:
    return {"of_incarnation": key.incarnation, "of_stream": key.stream}


def _of_life(table: Table) -> Any:
    return table.c.incarnation == bindparam("of_incarnation")


def _of_stream(table: Table) -> Any:
    return table.c.stream == bindparam("of_stream")


def _some(table: Table, dialect_name: str, *which: Any) -> Any:
    """The condition that a row is one of at most ``limit`` such."""
    rest = [column for column in table.primary_key if column.name != "incarnation"]
    some = select(*rest).where(_of_life(table), *which).limit(bindparam("limit"))
    if dialect_name == "postgresql":
        some = select(*some.cte("chosen").c)  # chosen once, however the plan joins
    return as_one(rest).in_(some)


def _rows(table: Table, dialect_name: str) -> Delete:
    return delete(table).where(_of_life(table), _some(table, dialect_name, _of_stream(table)))


def _blanking(dialect_name: str, *which: Any) -> Update:
    kept = requests.c.digest != bindparam("nothing")
    return (
        update(requests)
        .where(_of_life(requests), _some(requests, dialect_name, kept, *which))
        .values(digest=bindparam("nothing"), response=bindparam("nothing"), stream=null())
    )


class _Statements:
    """The statements that each dialect says in its own way."""

    def __init__(self, dialect_name: str, insert: Callable[[Table], Any], holds_name: Any) -> None:
        among = AMONG[dialect_name]
        self.rows = {name: _rows(table, dialect_name) for name, table in _OF_STREAMS.items()}
        self.of_memories = {
            name: delete(table).where(_of_life(table), _of_stream(table), among(table.c.memory_id))
            for name, table in _OF_STREAMS.items()
            if name in _OF_MEMORIES
        }
        # Answers about several streams name none: whom they are about is in them.
        self.answers = (
            _blanking(dialect_name, _of_stream(requests)),
            _blanking(dialect_name, requests.c.stream.is_(None), holds_name > bindparam("nowhere")),
        )
        begin = insert(erasures)
        self.begin: Insert = begin.on_conflict_do_update(
            index_elements=list(erasures.primary_key),
            set_={
                "began_at": begin.excluded.began_at,
                "swept": begin.excluded.swept,
                "finished_at": null(),
            },
            where=erasures.c.finished_at.is_not(None),
        )


_STATEMENTS = {
    "postgresql": _Statements(
        "postgresql", postgresql.insert, func.position(bindparam("name").op("IN")(requests.c.response))
    ),
    "sqlite": _Statements("sqlite", sqlite.insert, func.instr(requests.c.response, bindparam("name"))),
}
_IS_ERASURE = _of_life(erasures), _of_stream(erasures)
_READ = select(erasures.c.began_at, erasures.c.finished_at, erasures.c.swept).where(*_IS_ERASURE)
_ERASED_SINCE = select(erasures.c.incarnation, erasures.c.stream, erasures.c.finished_at).where(
    erasures.c.finished_at > bindparam("since")
)
_COUNT = update(erasures).where(*_IS_ERASURE).values(swept=bindparam("new_swept"))
_FINISH = update(erasures).where(*_IS_ERASURE).values(finished_at=bindparam("now"))
