"""Every read of a shard that is about one tenant: asked for its own ids, and for those of its twins alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from scrubjay.memory import DEFAULT_SCOPE, ClientId, MemoryId, Micros, Viewer
from scrubjay.stamp import CommitStamp
from server.store.entities import Asking
from server.store.fence import closed_among
from server.store.importing import ImportReading, importing_among
from server.store.moved_rows import MOVED_TABLES, key_of
from server.store.moving import MoveReading
from server.store.purging import PurgeReading, ended_among
from server.store.reading import Reading
from server.store.rows import Change, StreamKey
from server.store.stocks import stock_of
from server.store.tables import metadata
from server.store.use_reading import FIRST, Unused
from tenants.operation import OperationState
from tests.isolation.twins import Asked, Step

MANY = 9999
LATE = Micros(1 << 52)
ALL = CommitStamp((1 << 63) - 1)
FIRST_ID = "00000000-0000-0000-0000-000000000000"
LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"
WEB = ClientId("web")
NO_SPACE = "none/1"
"""A space that no memory has a vector of."""
_EVER = CommitStamp(0)
_ASKING = Asking(WEB, Micros(1 << 50))
_UNUSED = Unused(LATE, LATE, 2.0, None)


def space(asked: Asked) -> str:
    """The space of the tenant's vectors."""
    return str(asked.own("vectors", "space")[0])


def ids(asked: Asked) -> list[MemoryId]:
    """Memories that live or died: its own, and its twins'."""
    return [*asked.every("memories", "id"), *asked.every("graveyard", "memory_id")]


def keys(asked: Asked, table: str) -> list[StreamKey]:
    """The streams of a table: its own, and those that only its twins have."""
    return [StreamKey(asked.life, stream) for stream in asked.every(table, "stream")]


def _in_order(changes: list[Change]) -> list[Change]:
    """With the names in one order: a database joins them in any."""
    return [replace(one, names=tuple(sorted(one.names))) for one in changes]


_READS: dict[str, Callable[[Reading, Asked], object]] = {
    "head": lambda r, a: tuple(r.head(key) for key in keys(a, "streams")),
    "heads": lambda r, a: r.heads(a.life),
    "heads together": lambda r, a: r.heads_together(a.life),
    "collectable": lambda r, a: r.collectable(ALL, a.life),
    "collectable of all": lambda r, a: {one for one in r.collectable(ALL) if one.incarnation == a.life},
    "get": lambda r, a: tuple(r.get(a.life, one) for one in ids(a)),
    "get many": lambda r, a: r.get_many(a.life, ids(a)),
    "buried": lambda r, a: r.buried(a.life, ids(a)),
    "stream of": lambda r, a: tuple(r.stream_of(a.life, one) for one in ids(a)),
    "first page": lambda r, a: r.page(a.key, None, MANY),
    "page": lambda r, a: r.page(a.key, (LATE, MemoryId(LAST_ID)), MANY),
    "ids": lambda r, a: r.ids(a.key, MANY),
    "count": lambda r, a: r.count(a.key),
    "changes": lambda r, a: _in_order(r.changes(a.key, _EVER, space(a), MANY)),
    "later changes": lambda r, a: _in_order(r.changes(a.key, CommitStamp(1), space(a), MANY)),
    "living": lambda r, a: _in_order(r.living(a.life, ("", _EVER), space(a), MANY)),
    "request": lambda r, a: tuple(
        r.request(a.life, one, Micros(1)) for one in a.every("requests", "request_id")
    ),
    # entities
    "mentions": lambda r, a: r.mentions(a.life, ids(a)),
    "said by": lambda r, a: r.said_by(a.life, ids(a)),
    "entities": lambda r, a: r.entities(a.key, _ASKING, 0, ("", FIRST_ID), MANY),
    "names": lambda r, a: r.names(a.key, _ASKING, a.every("mentions", "entity_id")),
    "relations": lambda r, a: r.relations(a.key, _ASKING, None, (MemoryId(LAST_ID), MANY), MANY),
    "relations of one": lambda r, a: tuple(
        r.relations(a.key, _ASKING, one, (MemoryId(LAST_ID), MANY), MANY)
        for one in a.every("mentions", "entity_id")
    ),
    "told of": lambda r, a: r.told_of(a.key, _ASKING, a.every("mentions", "entity_id")),
    # erasures, exports
    "erasure": lambda r, a: tuple(r.erasure(key) for key in keys(a, "erasures")),
    "held streams": lambda r, a: r.held_streams(a.life, "", MANY),
    "living count": lambda r, a: r.living_count(a.life),
    "accesses of": lambda r, a: r.accesses_of(a.key, ids(a)),
    "relations of": lambda r, a: r.relations_of(a.life, ids(a)),
    "recent messages after": lambda r, a: r.recent_messages_after(a.key, ("", ""), MANY),
    "waiting after": lambda r, a: r.waiting_after(a.key, (FIRST_ID, FIRST_ID), MANY),
    "unread after": lambda r, a: r.unread_after(a.key, FIRST_ID, MANY),
    # the feed
    "living after": lambda r, a: r.living_after(a.key, _EVER, MANY),
    "snapshot after": lambda r, a: r.snapshot_after(a.key, _EVER, MANY),
    "newest": lambda r, a: r.newest(a.key, None, MANY),
    "next newest": lambda r, a: r.newest(a.key, (LATE, MemoryId(LAST_ID)), MANY),
    "guarded after": lambda r, a: r.guarded_after(a.key, _EVER, MANY),
    "graves after": lambda r, a: r.graves_after(a.key, _EVER, MANY),
    "retractions after": lambda r, a: r.retractions_after(a.key, _EVER, MANY),
    "guarded": lambda r, a: r.guarded(a.key, ids(a)),
    "retractions of": lambda r, a: r.retractions_of(a.key, ids(a)),
    "graves": lambda r, a: r.graves(a.life, ids(a)),
    # history
    "history": lambda r, a: r.history(a.life, a.key, None, MANY),
    "history of one": lambda r, a: tuple(r.history(a.life, one, None, MANY) for one in ids(a)),
    "operation": lambda r, a: tuple(
        r.operation(a.life, one, operation)
        for one in a.every("history", "memory_id")
        for operation in a.every("history", "operation_id")
    ),
    "deletion": lambda r, a: tuple(r.deletion(a.life, one) for one in ids(a)),
    "deleted for all": lambda r, a: tuple(r.deleted_for(a.life, one, Viewer(WEB)) for one in ids(a)),
    "deleted within": lambda r, a: tuple(
        r.deleted_for(a.life, one, Viewer(WEB, (DEFAULT_SCOPE,))) for one in ids(a)
    ),
    "owner of the dead": lambda r, a: tuple(r.owner_of_dead(a.life, one) for one in ids(a)),
    "history horizon": lambda r, a: tuple(r.history_horizon(key) for key in keys(a, "streams")),
    "with history": lambda r, a: r.with_history_until(a.life, ALL),
    "newest operation": lambda r, a: tuple(r.newest_operation(key) for key in keys(a, "history")),
    "changed at": lambda r, a: r.changed_at(a.life, ids(a), ALL),
    # jobs
    "job": lambda r, a: tuple(r.job(a.life, one) for one in a.every("jobs", "id")),
    "jobs": lambda r, a: r.jobs(a.life, None, WEB, [*OperationState], LAST_ID, MANY),
    "jobs of a stream": lambda r, a: r.jobs(a.life, a.key.stream, WEB, [*OperationState], LAST_ID, MANY),
    "open jobs": lambda r, a: r.open_jobs(a.life),
    # what is alike, what was said
    "marked": lambda r, a: r.marked(a.key, a.every("memories", "mark")),
    "alike": lambda r, a: tuple(
        r.alike(a.key, row["mark"], memory.memory)
        for row in a.rows["memories"]
        if (memory := r.get(a.life, row["id"]))
    ),
    "recent messages": lambda r, a: tuple(
        r.recent_messages(key, scope, WEB)
        for key in keys(a, "recent_messages")
        for scope in a.every("recent_messages", "scope")
    ),
    # replicas
    "replica": lambda r, a: tuple(r.replica(a.key, one) for one in a.every("replicas", "replica_id")),
    "results": lambda r, a: r.operation_results(a.life, a.every("operations", "operation_id")),
    "waiting": lambda r, a: r.waiting(a.key, a.every("waiting", "memory_id")),
    "access totals": lambda r, a: tuple(
        r.access_totals(a.key, one, ids(a)) for one in a.every("access_counts", "replica_id")
    ),
    "counts heads": lambda r, a: r.counts_heads(a.life),
    "counts head": lambda r, a: r.counts_heads(a.life, a.key.stream),
    "access counts": lambda r, a: r.access_counts(a.key, _EVER, MANY),
    "accesses": lambda r, a: r.accesses(a.key, ids(a)),
    "forgettable": lambda r, a: r.forgettable(a.life, None, _UNUSED, FIRST, MANY),
    "forgettable of a stream": lambda r, a: r.forgettable(a.life, a.key.stream, _UNUSED, FIRST, MANY),
    # vectors
    "vectors": lambda r, a: r.vectors(a.key, space(a), ids(a)),
    "standing vectors": lambda r, a: r.standing_vectors(a.life, space(a), ids(a)),
    "content stamps": lambda r, a: r.content_stamps(a.life, ids(a)),
    "unembedded": lambda r, a: r.unembedded(a.life, NO_SPACE, ("", _EVER), MANY),
    "unembedded of a stream": lambda r, a: r.unembedded_of(a.key, NO_SPACE, _EVER, MANY),
    "not yet embedded": lambda r, a: r.unembedded(a.life, space(a), ("", _EVER), MANY),
    "not yet embedded of a stream": lambda r, a: r.unembedded_of(a.key, space(a), _EVER, MANY),
    "count embedded": lambda r, a: r.count_embedded(a.life, space(a)),
    "first vector keys": lambda r, a: r.vector_keys(a.life, space(a), None, MANY),
    "vector keys": lambda r, a: r.vector_keys(a.life, space(a), ("", MemoryId(FIRST_ID)), MANY),
}


def _count(reading: MoveReading, asked: Asked, table: str) -> object:
    return reading.count(asked.life, table)


def _first_key(table: str) -> tuple[object, ...]:
    """Before every key."""
    firsts = {"id": FIRST_ID, "replica_id": b"", "commit_stamp": -1, "number": -1}
    keys = [column.name for column in metadata.tables[table].primary_key if column.name != "incarnation"]
    return tuple(firsts.get(name, FIRST_ID if name.endswith("_id") else "") for name in keys)


def _page(reading: MoveReading, asked: Asked, table: str) -> object:
    own = reading.page(asked.life, table, None, MANY)
    behind = reading.page(asked.life, table, _first_key(table), MANY)
    return own, behind, reading.rows(asked.life, table, [key_of(table, row) for row in own])


_MOVE_READS: dict[str, Callable[[MoveReading, Asked], object]] = {
    "state of a move": lambda r, a: r.state(a.life),
    "touched": lambda r, a: r.touched(a.life, MANY),
    **{f"count {name}": partial(_count, table=name) for name in MOVED_TABLES},
    **{f"pages of {name}": partial(_page, table=name) for name in MOVED_TABLES},
}
_OTHERS: dict[str, Step] = {
    "stock": lambda t, a: stock_of(t, a.life),
    "place of an import": lambda t, a: tuple(
        ImportReading(t).place(a.life, one) for one in a.every("imports", "operation_id")
    ),
    "texts without vector": lambda t, a: tuple(
        ImportReading(t).texts_without_vector(a.life, one, MemoryId(FIRST_ID), MANY)
        for one in (NO_SPACE, space(a))
    ),
    "swept": lambda t, a: PurgeReading(t).swept(a.life),
    "how it stands": lambda t, a: (
        closed_among(t, [a.life]),
        ended_among(t, [a.life]),
        importing_among(t, [a.life]),
    ),
}


def _reading(step: Callable[[Reading, Asked], object]) -> Step:
    return lambda transaction, asked: step(Reading(transaction), asked)


def _moving(step: Callable[[MoveReading, Asked], object]) -> Step:
    return lambda transaction, asked: step(MoveReading(transaction), asked)


STEPS: dict[str, Step] = {
    **{name: _reading(step) for name, step in _READS.items()},
    **{name: _moving(step) for name, step in _MOVE_READS.items()},
    **_OTHERS,
}
