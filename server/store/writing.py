"""Writes of one shard, inside a transaction that holds the heads of the streams they touch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Insert, Table, and_, bindparam, delete, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.dml import ReturningInsert

from scrubjay.errors import MemoryExists, MemoryNotFound, RequestIdReused
from scrubjay.memory import MemoryId, Micros
from scrubjay.stamp import CommitStamp, Stamp, next_commit_stamp
from server.ingest.words import mark
from server.store.entities import EntityWriting
from server.store.erasing import ErasureWriting
from server.store.history import HistoryRow, made
from server.store.history_writing import HistoryWriting
from server.store.jobs import JobWriting
from server.store.listener import tell
from server.store.reading import REQUEST_KEPT_MICROS, Reading
from server.store.recent_messages import RecentWriting
from server.store.replica_writing import ReplicaWriting
from server.store.rows import (
    HEAD_COLUMNS,
    Grave,
    StoredMemory,
    StreamHead,
    StreamKey,
    history_row,
    memory_row,
    new_memory_row,
    private_to,
)
from server.store.stocks import NOTHING, Stock
from server.store.tables import graveyard, history, memories, requests, retractions, streams, vectors
from server.store.transaction import LostRace, Transaction
from tenants.tenant import Incarnation

LOCK_TIMEOUT_SECONDS = 10
"""How long a write waits for a stream that another server process holds, before it is UNAVAILABLE."""
PURGED_AT_ONCE = 16
"""How many expired request ids a commit purges: more than most commits add, few enough to be cheap."""


class Writing(
    Reading, ReplicaWriting, JobWriting, EntityWriting, RecentWriting, HistoryWriting, ErasureWriting
):
    """What one unit may do to the streams it named; undone together where the unit raises.

    ``made`` counts the memories that it made, by tenant and by the key that vouched for them.
    """

    def __init__(self, transaction: Transaction, heads: Mapping[StreamKey, StreamHead]) -> None:
        Reading.__init__(self, transaction)
        ReplicaWriting.__init__(self, transaction)
        JobWriting.__init__(self, transaction)
        EntityWriting.__init__(self, transaction)
        RecentWriting.__init__(self, transaction)
        HistoryWriting.__init__(self, transaction)
        ErasureWriting.__init__(self, transaction)
        self._heads = heads
        self._statements = _STATEMENTS[transaction.dialect_name]
        self.advanced: dict[StreamKey, StreamHead] = {}
        self.requested: dict[Incarnation, Micros] = {}
        self.stock: dict[Incarnation, Stock] = {}
        self.made = Counter[tuple[Incarnation, str]]()
        self.hooks: list[Callable[[], object]] = []

    def head(self, key: StreamKey) -> StreamHead | None:
        """Where the stream stands, with the stamps that this unit and the ones before it took."""
        head = self.advanced.get(key) or self._heads.get(key)
        if head is None:
            return super().head(key)
        return head if head.head else None

    def stamps(self, key: StreamKey, count: int, now_millis: int) -> list[CommitStamp]:
        """The next ``count`` commit stamps of a stream, which the unit must have named.

        The first ones of a stream give it its epoch: a stream that was lost and made again has another.
        """
        head = self._advancing(key)
        run = _run(head.head, count, now_millis)
        if run:
            self.advanced[key] = StreamHead(run[-1], head.epoch or now_millis, head.horizon, head.counts_head)
        return run

    def lane_stamps(self, key: StreamKey, count: int, now_millis: int) -> list[CommitStamp]:
        """The next ``count`` stamps in a stream's lane of access counts."""
        head = self._advancing(key)
        run = _run(head.counts_head, count, now_millis)
        if run:
            self.advanced[key] = replace(head, counts_head=run[-1])
        return run

    def raise_horizon(self, key: StreamKey, horizon: CommitStamp) -> None:
        """Refuse pulls from before ``horizon``: what they need is about to be forgotten."""
        head = self._advancing(key)
        self.advanced[key] = replace(head, horizon=max(head.horizon, horizon))

    def begin_epoch(self, key: StreamKey, now_millis: int) -> None:
        """Begin another life of the stream: every replica of it loads anew."""
        head = self._advancing(key)
        self.advanced[key] = replace(head, epoch=max(head.epoch + 1, now_millis))

    def _advancing(self, key: StreamKey) -> StreamHead:
        return self.advanced.get(key) or self._named(key)

    def insert(self, key: StreamKey, stored: Sequence[StoredMemory]) -> None:
        """Store memories of new ids. MemoryExists where one is taken or was deleted."""
        self._named(key)
        if not stored:
            return
        rows = [new_memory_row(key, one) for one in stored]
        if self._transaction.run_many(self._statements.insert_memories, rows) != len(rows):
            raise LostRace(MemoryExists(self._taken_before(key, stored)))
        # Only now: a delete that was under way let the insert wait, and has buried the id since.
        dead = self.buried(key.incarnation, [one.memory.id for one in stored])
        if dead:
            raise LostRace(MemoryExists(next(iter(dead))))
        self._count(key, Stock(len(stored), sum(len(one.message) for one in stored)))

    def _taken_before(self, key: StreamKey, stored: Sequence[StoredMemory]) -> MemoryId:
        found = self.get_many(key.incarnation, [one.memory.id for one in stored])
        mine = {one.memory.id: one.message for one in stored}
        return next((i for i, one in found.items() if one.message != mine[i]), stored[0].memory.id)

    def replace(self, key: StreamKey, before: StoredMemory, stored: StoredMemory) -> None:
        """Store the next state of a living memory of the stream. MemoryNotFound where there is none."""
        self.replace_many(key, [(before, stored)])

    def replace_many(self, key: StreamKey, pairs: Sequence[tuple[StoredMemory, StoredMemory]]) -> None:
        """Store the next states of living memories, each beside the state that is stored.

        Where that was seen by some who will not see the next one, they are told to take it back.
        """
        self._named(key)
        if not pairs:
            return
        rows = [memory_row(key, stored) for _, stored in pairs]
        if self._transaction.run_many(_REPLACE, rows) != len(rows):
            raise MemoryNotFound(pairs[0][1].memory.id)
        if said := [_marking(key, after) for before, after in pairs if _reworded(before, after)]:
            self._transaction.run_many(_MARK, said)
        if back := [_retraction(key, before, stored) for before, stored in pairs if _lost(before, stored)]:
            self._transaction.run_many(self._statements.retract, back)

    def bury(self, key: StreamKey, graves: Sequence[Grave]) -> None:
        """Delete memories for ever, all that is known of them at once; of each only the grave stays. What was
        said last in the stream goes too: it may have said them."""
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
                "private_to": grave.private_to,
                "scope": grave.scope,
            }
            for grave in graves
        ]
        dead = [{**_of_row(key), "dead": grave.memory_id} for grave in graves]
        self._transaction.run_many(self._statements.insert_graves, dug)
        gone = self._transaction.run_many(_DELETE_MEMORY, dead)
        self._count(key, Stock(memories=-gone))
        self._transaction.run_many(_DELETE_VECTORS, dead)
        ids = [grave.memory_id for grave in graves]
        self.forget_memories(key, ids)
        self.unlink(key, ids)
        self.forget_recent(key)

    def add_history(self, key: StreamKey, rows: Iterable[HistoryRow]) -> None:
        """Record operations, each under a commit stamp of its own."""
        self._named(key)
        recorded = list(rows)
        if values := [history_row(key, row) for row in recorded]:
            self._transaction.run_many(_INSERT_HISTORY, values)
            self.made.update((key.incarnation, row.actor) for row in recorded if made(row))
            self._count(key, Stock(bytes=sum(len(row["changes"].encode()) for row in values)))

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

    def drop_vectors(
        self, incarnation: Incarnation, space: str, keys: Iterable[tuple[str, MemoryId]]
    ) -> None:
        """Delete vectors of a space, by stream and memory. Nothing reads them any more: no head is needed."""
        rows = [
            {"of_incarnation": incarnation, "of_stream": stream, "dead": memory_id, "of_space": space}
            for stream, memory_id in keys
        ]
        self._transaction.run_many(_DROP_VECTORS, rows)

    def save_request(
        self,
        incarnation: Incarnation,
        request_id: str,
        digest: bytes,
        response: bytes,
        now: Micros,
        stream: str | None = None,
    ) -> None:
        """Remember the response under the request id for 24 hours. ``stream``: the only one it is about."""
        row = {
            "incarnation": incarnation,
            "request_id": request_id,
            "digest": digest,
            "response": response,
            "created_at": now,
            "stream": stream,
            "expired": now - REQUEST_KEPT_MICROS,
        }
        if self._transaction.run(self._statements.save_request, row) != 1:
            raise LostRace(RequestIdReused(request_id))
        self.requested[incarnation] = now

    def on_commit(self, hook: Callable[[], object]) -> None:
        """Call ``hook`` after the commit, before the caller is answered; never where it did not happen."""
        self.hooks.append(hook)

    def _count(self, key: StreamKey, change: Stock) -> None:
        self.stock[key.incarnation] = self.stock.get(key.incarnation, NOTHING).plus(change)

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
    if not ordered:
        return {}
    first = {"head": 0, "epoch": 0, "horizon": 0, "counts_head": 0, "history_horizon": 0}
    rows = [{"incarnation": key.incarnation, "stream": key.stream, **first} for key in ordered]
    found = transaction.first_of_each(_STATEMENTS[transaction.dialect_name].lock_head, rows)
    return {key: StreamHead(*head) for key, head in zip(ordered, found, strict=True)}


def save_heads(
    transaction: Transaction, locked: Mapping[StreamKey, StreamHead], heads: Mapping[StreamKey, StreamHead]
) -> None:
    """Write the heads that advanced, and leave none behind that was made for nothing."""
    advanced = [
        {
            **_of_row(key),
            "new_head": head.head,
            "new_epoch": head.epoch,
            "new_horizon": head.horizon,
            "new_counts_head": head.counts_head,
        }
        for key, head in heads.items()
        if head != locked[key]
    ]
    if advanced:
        transaction.run_many(_ADVANCE, advanced)
    moved = {key: head for key, head in heads.items() if head.head != locked[key].head}
    if moved and transaction.dialect_name == "postgresql":
        tell(transaction, moved)
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


def _run(before: CommitStamp, count: int, now_millis: int) -> list[CommitStamp]:
    run = []
    for _ in range(count):
        before = next_commit_stamp(before, now_millis)
        run.append(before)
    return run


def _reworded(before: StoredMemory, after: StoredMemory) -> bool:
    return before.memory.content != after.memory.content


def _marking(key: StreamKey, stored: StoredMemory) -> dict[str, Any]:
    return {**_of_row(key), "of_id": stored.memory.id, "new_mark": mark(stored.memory.content)}


def _lost(before: StoredMemory, after: StoredMemory) -> bool:
    """Whether some may have seen the state before who do not see the one after."""
    moved = before.memory.scope != after.memory.scope
    return moved or (not private_to(before.memory) and bool(private_to(after.memory)))


def _retraction(key: StreamKey, before: StoredMemory, after: StoredMemory) -> dict[str, Any]:
    return {
        "incarnation": key.incarnation,
        "stream": key.stream,
        "memory_id": before.memory.id,
        "scope": before.memory.scope,
        "private_to": private_to(before.memory),
        "commit_stamp": after.commit_stamp,
    }


def _of_row(key: StreamKey) -> dict[str, Any]:
    return {"of_incarnation": key.incarnation, "of_stream": key.stream}


def _is_stream(table: Table) -> Any:
    return and_(table.c.incarnation == bindparam("of_incarnation"), table.c.stream == bindparam("of_stream"))


_FIXED = (
    "incarnation",
    "id",
    "stream",
    "user_id",
    "agent_id",
    "run_id",
    "owner_client_id",
    "created_at",
    "mark",
)
"""What no edit changes, or only one of the text: naming it would write the indexes on it again."""
_REPLACE = (
    update(memories)
    .where(
        memories.c.incarnation == bindparam("new_incarnation"),
        memories.c.id == bindparam("new_id"),
        memories.c.stream == bindparam("new_stream"),
    )
    .values(
        {column.name: bindparam(f"new_{column.name}") for column in memories.c if column.name not in _FIXED}
    )
)
_MARK = (
    update(memories)
    .where(_is_stream(memories), memories.c.id == bindparam("of_id"))
    .values(mark=bindparam("new_mark"))
)
_DELETE_MEMORY = delete(memories).where(_is_stream(memories), memories.c.id == bindparam("dead"))
_DELETE_VECTORS = delete(vectors).where(_is_stream(vectors), vectors.c.memory_id == bindparam("dead"))
_DROP_VECTORS = _DELETE_VECTORS.where(vectors.c.space == bindparam("of_space"))
_INSERT_HISTORY = history.insert()
_ADVANCE = (
    update(streams)
    .where(_is_stream(streams))
    .values({column.name: bindparam(f"new_{column.name}") for column in HEAD_COLUMNS})
)
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
        self.insert_memories: Insert = (
            insert(memories)
            .values({column.name: bindparam(f"new_{column.name}") for column in memories.c})
            .on_conflict_do_nothing(index_elements=list(memories.primary_key))
        )
        self.insert_graves: Insert = insert(graveyard).on_conflict_do_nothing()
        put = insert(vectors)
        self.put_vectors: Insert = put.on_conflict_do_update(
            index_elements=list(vectors.primary_key),
            set_={"content_stamp": put.excluded.content_stamp, "vector": put.excluded.vector},
        )
        back = insert(retractions)
        self.retract: Insert = back.on_conflict_do_update(
            index_elements=list(retractions.primary_key), set_={"commit_stamp": back.excluded.commit_stamp}
        )
        save = insert(requests)
        self.save_request: Insert = save.on_conflict_do_update(
            index_elements=list(requests.primary_key),
            set_={name: save.excluded[name] for name in ("digest", "response", "created_at", "stream")},
            where=requests.c.created_at <= bindparam("expired"),
        )
        lock = insert(streams)
        # Writing what is there locks the row, or makes it, in one statement.
        self.lock_head: ReturningInsert[Any] = lock.on_conflict_do_update(
            index_elements=list(streams.primary_key), set_={"head": streams.c.head}
        ).returning(*HEAD_COLUMNS)


_STATEMENTS = {"postgresql": _Statements(postgresql.insert), "sqlite": _Statements(sqlite.insert)}
