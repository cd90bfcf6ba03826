"""Writes of one shard, inside a transaction that holds the heads of the streams they touch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Insert, Table, and_, bindparam, delete, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.dml import ReturningInsert

from scrubjay.errors import MemoryExists, MemoryNotFound, RequestIdReused, ScrubjayError
from scrubjay.memory import MemoryId, Micros
from scrubjay.stamp import CommitStamp, Stamp, next_commit_stamp
from server.store.history import HistoryRow
from server.store.reading import REQUEST_KEPT_MICROS, Reading
from server.store.rows import Grave, StoredMemory, StreamHead, StreamKey, history_row, memory_row
from server.store.tables import graveyard, history, memories, requests, streams, vectors
from server.store.transaction import Transaction
from tenants.tenant import Incarnation

FIRST_EPOCH = 1
LOCK_TIMEOUT_SECONDS = 10
"""How long a write waits for a stream that another server process holds, before it is UNAVAILABLE."""
PURGED_AT_ONCE = 16
"""How many expired request ids a commit purges: more than most commits add, few enough to be cheap."""


class LostRace(Exception):
    """Another process wrote first what this unit was about to write; run again, the unit sees it.

    ``error`` is what its caller gets where the unit does not look.
    """

    def __init__(self, error: ScrubjayError) -> None:
        super().__init__(str(error))
        self.error = error


class Writing(Reading):
    """What one unit may do to the streams it named; undone together where the unit raises."""

    def __init__(self, transaction: Transaction, heads: Mapping[StreamKey, StreamHead]) -> None:
        super().__init__(transaction)
        self._heads = heads
        self._statements = _STATEMENTS[transaction.dialect_name]
        self.advanced: dict[StreamKey, StreamHead] = {}
        self.requested: dict[Incarnation, Micros] = {}
        self.hooks: list[Callable[[], object]] = []

    def head(self, key: StreamKey) -> StreamHead | None:
        """Where the stream stands, with the stamps that this unit and the ones before it took."""
        head = self.advanced.get(key) or self._heads.get(key)
        if head is None:
            return super().head(key)
        return head if head.head else None

    def stamps(self, key: StreamKey, count: int, now_millis: int) -> list[CommitStamp]:
        """The next ``count`` commit stamps of a stream, which the unit must have named."""
        head = self.advanced.get(key) or self._named(key)
        run = []
        stamp = head.head
        for _ in range(count):
            stamp = next_commit_stamp(stamp, now_millis)
            run.append(stamp)
        self.advanced[key] = StreamHead(stamp, head.epoch, head.horizon)
        return run

    def insert(self, key: StreamKey, stored: Sequence[StoredMemory]) -> None:
        """Store memories of new ids. MemoryExists where one is taken or was deleted."""
        self._named(key)
        if not stored:
            return
        rows = [memory_row(key, one) for one in stored]
        if self._transaction.run_many(self._statements.insert_memories, rows) != len(rows):
            raise LostRace(MemoryExists(self._taken_before(key, stored)))
        # Only now: a delete that was under way let the insert wait, and has buried the id since.
        dead = self.buried(key.incarnation, [one.memory.id for one in stored])
        if dead:
            raise LostRace(MemoryExists(next(iter(dead))))

    def _taken_before(self, key: StreamKey, stored: Sequence[StoredMemory]) -> MemoryId:
        found = self.get_many(key.incarnation, [one.memory.id for one in stored])
        mine = {one.memory.id: one.message for one in stored}
        return next((i for i, one in found.items() if one.message != mine[i]), stored[0].memory.id)

    def replace(self, key: StreamKey, stored: StoredMemory) -> None:
        """Store a new state of a living memory of the stream. MemoryNotFound where there is none."""
        self._named(key)
        row = memory_row(key, stored)
        if self._transaction.run(_REPLACE, {f"new_{name}": value for name, value in row.items()}) != 1:
            raise MemoryNotFound(stored.memory.id)

    def bury(self, key: StreamKey, graves: Sequence[Grave]) -> None:
        """Delete memories for ever, body and vectors at once; of each only the grave stays."""
        self._named(key)
        if not graves:
            return
        dug = [
            {
                "incarnation": key.incarnation,
                "memory_id": grave.memory_id,
                "stream": key.stream,
                "commit_stamp": grave.commit_stamp,
                "stamp": grave.stamp.pack(),
            }
            for grave in graves
        ]
        dead = [{**_of_row(key), "dead": grave.memory_id} for grave in graves]
        self._transaction.run_many(self._statements.insert_graves, dug)
        self._transaction.run_many(_DELETE_MEMORY, dead)
        self._transaction.run_many(_DELETE_VECTORS, dead)

    def add_history(self, key: StreamKey, rows: Iterable[HistoryRow]) -> None:
        """Record operations, each under a commit stamp of its own."""
        self._named(key)
        if values := [history_row(key, row) for row in rows]:
            self._transaction.run_many(_INSERT_HISTORY, values)

    def put_vectors(self, key: StreamKey, space: str, made: Iterable[tuple[MemoryId, Stamp, bytes]]) -> None:
        """Store vectors as (memory, stamp of the content it was made from, encoded vector)."""
        self._named(key)
        rows = [
            {
                "incarnation": key.incarnation,
                "stream": key.stream,
                "memory_id": memory_id,
                "space": space,
                "content_stamp": content_stamp.pack(),
                "vector": vector,
            }
            for memory_id, content_stamp, vector in made
        ]
        if rows:
            self._transaction.run_many(self._statements.put_vectors, rows)

    def save_request(
        self, incarnation: Incarnation, request_id: str, digest: bytes, response: bytes, now: Micros
    ) -> None:
        """Remember the response under the request id for 24 hours."""
        row = {
            "incarnation": incarnation,
            "request_id": request_id,
            "digest": digest,
            "response": response,
            "created_at": now,
            "expired": now - REQUEST_KEPT_MICROS,
        }
        if self._transaction.run(self._statements.save_request, row) != 1:
            raise LostRace(RequestIdReused(request_id))
        self.requested[incarnation] = now

    def on_commit(self, hook: Callable[[], object]) -> None:
        """Call ``hook`` after the commit, before the caller is answered; never where it did not happen."""
        self.hooks.append(hook)

    def _named(self, key: StreamKey) -> StreamHead:
        head = self._heads.get(key)
        if head is None:
            raise ValueError(f"{key} is not among the streams that this write named")
        return head


# --- what the committer does around the units -----------------------------------------------------


def lock_heads(transaction: Transaction, keys: Iterable[StreamKey]) -> dict[StreamKey, StreamHead]:
    """Lock the streams' heads, made where they are missing, in one order for every process."""
    if transaction.dialect_name == "postgresql":
        transaction.command(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_SECONDS}s'")
    ordered = sorted(set(keys))
    first = {"head": 0, "epoch": FIRST_EPOCH, "horizon": 0}
    rows = [{"incarnation": key.incarnation, "stream": key.stream, **first} for key in ordered]
    found = transaction.first_of_each(_STATEMENTS[transaction.dialect_name].lock_head, rows)
    return {key: StreamHead(*head) for key, head in zip(ordered, found, strict=True)}


def save_heads(
    transaction: Transaction, locked: Mapping[StreamKey, StreamHead], heads: Mapping[StreamKey, StreamHead]
) -> None:
    """Write the heads that advanced, and leave none behind that was made for nothing."""
    advanced = [{**_of_row(key), "new": head.head} for key, head in heads.items() if head != locked[key]]
    if advanced:
        transaction.run_many(_ADVANCE, advanced)
    unused = [_of_row(key) for key, head in heads.items() if head.head == 0]
    if unused:
        transaction.run_many(_DELETE_HEAD, unused)


def purge_requests(transaction: Transaction, requested: Mapping[Incarnation, Micros]) -> None:
    """Forget a few request ids whose 24 hours have passed, of the tenants that sent new ones."""
    purges = [
        {"incarnation": incarnation, "expired": now - REQUEST_KEPT_MICROS, "limit": PURGED_AT_ONCE}
        for incarnation, now in sorted(requested.items())
    ]
    if purges:
        transaction.run_many(_PURGE_REQUESTS, purges)


def _of_row(key: StreamKey) -> dict[str, Any]:
    return {"of_incarnation": key.incarnation, "of_stream": key.stream}


def _is_stream(table: Table) -> Any:
    return and_(table.c.incarnation == bindparam("of_incarnation"), table.c.stream == bindparam("of_stream"))


_REPLACE = (
    update(memories)
    .where(
        memories.c.incarnation == bindparam("new_incarnation"),
        memories.c.id == bindparam("new_id"),
        memories.c.stream == bindparam("new_stream"),
    )
    .values(
        {
            column.name: bindparam(f"new_{column.name}")
            for column in memories.c
            if column.name not in ("incarnation", "id", "stream")
        }
    )
)
_DELETE_MEMORY = delete(memories).where(_is_stream(memories), memories.c.id == bindparam("dead"))
_DELETE_VECTORS = delete(vectors).where(_is_stream(vectors), vectors.c.memory_id == bindparam("dead"))
_INSERT_HISTORY = history.insert()
_ADVANCE = update(streams).where(_is_stream(streams)).values(head=bindparam("new"))
_DELETE_HEAD = delete(streams).where(_is_stream(streams))

_EXPIRED = (
    select(requests.c.request_id)
    .where(requests.c.incarnation == bindparam("incarnation"), requests.c.created_at <= bindparam("expired"))
    .order_by(requests.c.created_at)
    .limit(bindparam("limit"))
    .with_for_update(skip_locked=True)
)
_PURGE_REQUESTS = delete(requests).where(
    requests.c.incarnation == bindparam("incarnation"), requests.c.request_id.in_(_EXPIRED)
)


class _Statements:
    """The statements whose ON CONFLICT each dialect has a construct of its own for."""

    def __init__(self, insert: Callable[[Table], Any]) -> None:
        self.insert_memories: Insert = insert(memories).on_conflict_do_nothing(
            index_elements=list(memories.primary_key)
        )
        self.insert_graves: Insert = insert(graveyard).on_conflict_do_nothing()
        put = insert(vectors)
        self.put_vectors: Insert = put.on_conflict_do_update(
            index_elements=list(vectors.primary_key),
            set_={"content_stamp": put.excluded.content_stamp, "vector": put.excluded.vector},
        )
        save = insert(requests)
        self.save_request: Insert = save.on_conflict_do_update(
            index_elements=list(requests.primary_key),
            set_={name: save.excluded[name] for name in ("digest", "response", "created_at")},
            where=requests.c.created_at <= bindparam("expired"),
        )
        lock = insert(streams)
        # Writing what is there locks the row, or makes it, in one statement.
        self.lock_head: ReturningInsert[Any] = lock.on_conflict_do_update(
            index_elements=list(streams.primary_key), set_={"head": streams.c.head}
        ).returning(streams.c.head, streams.c.epoch, streams.c.horizon)


_STATEMENTS = {"postgresql": _Statements(postgresql.insert), "sqlite": _Statements(sqlite.insert)}
