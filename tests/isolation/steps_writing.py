"""Every write of a shard that is about one tenant: of its own rows, and of what its twins alone have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from scrubjay.errors import Unavailable
from scrubjay.stamp import CommitStamp
from server.store.erasing import ERASED_TABLES
from server.store.fence import MoveState
from server.store.importing import IMPORTED_TABLES, ImportWriting, OpenedStream
from server.store.jobs import Job, Lease, LeaseLost, Outcome, Progress
from server.store.moved_rows import MOVED_TABLES, key_of
from server.store.moving import Hold, MoveTaken, MoveWriting
from server.store.purging import PURGED_TABLES, PurgeWriting
from server.store.replicas import SavedOperation
from server.store.rows import Grave, StoredMemory, StreamHead
from server.store.transaction import Transaction
from server.store.writing import Writing, lock_heads, purge_requests, save_heads
from tenants.operation import OperationState
from tenants.quotas import Allowance
from tenants.tenant import Incarnation
from tests.isolation.steps_reading import ALL, LATE, MANY, WEB, ids, keys, space
from tests.isolation.twins import Asked, Step

_EVER = CommitStamp(0)
_UNTOLD = StreamHead(_EVER, 0, _EVER, _EVER)
_NOW = LATE
_STRANGER = Incarnation("88888888-8888-4888-8888-888888888888")


def _attempt(write: Callable[..., object], *values: object) -> object:
    """What a write answers, or that it is refused."""
    try:
        return write(*values)
    except (LeaseLost, MoveTaken, Unavailable) as refused:
        return repr(refused)


# --- memories -------------------------------------------------------------------------------------


def _living(writing: Writing, asked: Asked) -> list[StoredMemory]:
    return writing.page(asked.key, None, MANY)


def _edit(writing: Writing, asked: Asked) -> object:
    pairs = []
    for before in _living(writing, asked):
        memory = replace(before.memory, content=f"{before.memory.content} So it is.", scope="moved")
        pairs.append((before, replace(before, state=replace(before.state, memory=memory))))
    return writing.replace_many(asked.key, pairs)


def _bury(writing: Writing, asked: Asked) -> object:
    graves = [
        Grave.of(one.memory, one.commit_stamp, one.state.stamps["content"]) for one in _living(writing, asked)
    ]
    return writing.bury(asked.key, graves)


def _put_vectors(writing: Writing, asked: Asked) -> object:
    made = [(one.memory.id, one.state.stamps["content"], b"new") for one in _living(writing, asked)]
    return writing.put_vectors(asked.key, space(asked), made)


def _drop_vectors(writing: Writing, asked: Asked) -> object:
    dropped = [(asked.key.stream, one) for one in ids(asked)]
    return writing.drop_vectors(asked.life, space(asked), dropped)


def _resolve(writing: Writing, asked: Asked) -> object:
    resolved = [
        SavedOperation(one, CommitStamp(7), 9, b"done") for one in asked.every("operations", "operation_id")
    ]
    return writing.resolve_operations(asked.key, resolved)


# --- jobs -----------------------------------------------------------------------------------------


def _take_jobs(writing: Writing, asked: Asked) -> object:
    return tuple(writing.take_job(asked.life, one, _NOW, LATE) for one in asked.every("jobs", "id"))


def _leases(asked: Asked) -> list[Lease]:
    fences = asked.every("jobs", "fence")
    return [Lease(asked.life, one, fence) for one in asked.every("jobs", "id") for fence in fences]


def _renew(writing: Writing, asked: Asked) -> object:
    return tuple(writing.renew_job(one, Progress("new", 1, 2), _NOW, LATE) for one in _leases(asked))


def _end(writing: Writing, asked: Asked) -> object:
    done = Outcome(OperationState.SUCCEEDED, b"answer")
    return tuple(_attempt(writing.end_job, one, done, _NOW) for one in _leases(asked))


def _cancel(writing: Writing, asked: Asked) -> object:
    return tuple(writing.cancel_job(asked.life, one, _NOW) for one in asked.every("jobs", "id"))


# --- erasing --------------------------------------------------------------------------------------


def _erase_rows(writing: Writing, asked: Asked, table: str) -> object:
    return writing.erase_rows(asked.key, table, MANY)


def _erase_answers(writing: Writing, asked: Asked) -> object:
    return tuple(writing.erase_answers(key, "alice", MANY) for key in (asked.key, *keys(asked, "requests")))


def _note_erased(writing: Writing, asked: Asked) -> object:
    for key in keys(asked, "erasures"):
        writing.note_erased(key, {"jobs": 3})
        writing.note_seen(key, {"snapshots": 2})
    return tuple(writing.erasure(key) for key in keys(asked, "erasures"))


def _erase_memories(writing: Writing, asked: Asked) -> object:
    writing.begin_erasure(asked.key, _NOW)
    writing.erase_memories(asked.key, ids(asked))
    return writing.erasure(asked.key)


_WRITES: dict[str, Callable[[Writing, Asked], object]] = {
    "edit": _edit,
    "bury": _bury,
    "put vectors": _put_vectors,
    "drop vectors": _drop_vectors,
    "resolve": _resolve,
    "unlink": lambda w, a: w.unlink(a.key, ids(a)),
    "end unlinked": lambda w, a: tuple(w.end_unlinked(key) for key in keys(a, "unlinked")),
    "forget history": lambda w, a: w.forget_history(a.key, ALL, 3),
    "forget recent": lambda w, a: w.forget_recent(a.key),
    "end waiting": lambda w, a: w.end_waiting(a.key, a.every("waiting", "memory_id")),
    "forget memories": lambda w, a: w.forget_memories(a.key, ids(a)),
    "newest forgettable": lambda w, a: w.newest_forgettable(a.key, ALL),
    "forget before": lambda w, a: w.forget_before(a.key, ALL),
    "take jobs": _take_jobs,
    "renew jobs": _renew,
    "end jobs": _end,
    "release jobs": lambda w, a: tuple(w.release_job(one) for one in _leases(a)),
    "cancel jobs": _cancel,
    "forget jobs": lambda w, a: w.forget_jobs(a.key, WEB, _NOW),
    **{f"erase {name}": partial(_erase_rows, table=name) for name in ERASED_TABLES},
    "erase memories": _erase_memories,
    "erase answers": _erase_answers,
    "note erased": _note_erased,
    "finish erasures": lambda w, a: tuple(w.finish_erasure(key, _NOW) for key in keys(a, "erasures")),
}


def _writing(step: Callable[[Writing, Asked], object]) -> Step:
    def run(transaction: Transaction, asked: Asked) -> object:
        heads = {key: Writing(transaction, {}).head(key) or _UNTOLD for key in keys(asked, "streams")}
        return step(Writing(transaction, heads), asked)

    return run


# --- heads, requests ------------------------------------------------------------------------------


def _advance(transaction: Transaction, asked: Asked) -> object:
    locked = lock_heads(transaction, [asked.key])
    higher = {key: replace(head, head=CommitStamp(head.head + 9)) for key, head in locked.items()}
    return save_heads(transaction, locked, higher)


def _drop_heads(transaction: Transaction, asked: Asked) -> object:
    locked = lock_heads(transaction, keys(asked, "streams"))
    return save_heads(transaction, locked, dict.fromkeys(locked, _UNTOLD))


# --- imports --------------------------------------------------------------------------------------


def _importing(write: Callable[[ImportWriting, Asked], object]) -> Step:
    return lambda transaction, asked: write(ImportWriting(transaction, lambda _: Allowance()), asked)


def _imports(asked: Asked) -> list[str]:
    return [str(one) for one in asked.every("imports", "operation_id")]


def _take_back(writing: ImportWriting, asked: Asked, table: str) -> object:
    return writing.take_back(asked.life, table, MANY)


def _open_streams(transaction: Transaction, asked: Asked) -> object:
    """Of streams that are not open, though rows lie there, with jobs that are there and such that are not."""
    _drop_heads(transaction, asked)
    job = next(one for one in map(partial(Writing(transaction, {}).job, asked.life), asked.own("jobs", "id")))
    assert job is not None
    jobs = tuple(_job_of(job, one) for one in asked.every("jobs", "id"))
    opened = [OpenedStream(key, CommitStamp(9), _EVER, _EVER, jobs) for key in keys(asked, "access_counts")]
    return ImportWriting(transaction, lambda _: Allowance()).open_streams(opened, 1)


def _job_of(job: Job, job_id: str) -> Job:
    return replace(job, id=job_id)


_IMPORTS: dict[str, Callable[[ImportWriting, Asked], object]] = {
    "move an import on": lambda w, a: tuple(_attempt(w.move, a.life, one, 0, 5) for one in _imports(a)),
    "begin to take back": lambda w, a: tuple(w.begin_taking_back(a.life, one) for one in _imports(a)),
    "end an import": lambda w, a: tuple(w.end(a.life, one) for one in _imports(a)),
    **{f"take back {name}": partial(_take_back, table=name) for name in IMPORTED_TABLES},
}


# --- moves and purges -----------------------------------------------------------------------------


def _holds(asked: Asked) -> list[Hold]:
    operations, fences = asked.every("moves", "operation_id"), asked.every("moves", "fence")
    return [Hold(asked.life, one, fence) for one in operations for fence in fences]


def _each_hold(name: str, *values: object) -> Callable[[MoveWriting, Asked], object]:
    return lambda w, a: tuple(_attempt(getattr(w, name), one, *values) for one in _holds(a))


def _takes(writing: MoveWriting, asked: Asked) -> object:
    other = Hold(asked.life, "another's", 9)
    return tuple(_attempt(writing.take, one, MoveState.LEAVING, _NOW) for one in (*_holds(asked), other))


def _delete_keys(writing: MoveWriting, asked: Asked, table: str) -> object:
    own = writing.page(asked.life, table, None, MANY)
    writing.delete(asked.life, table, [key_of(table, row) for row in own])
    return writing.count(asked.life, table)


def _delete_some(writing: MoveWriting, asked: Asked, table: str) -> object:
    return writing.delete_some(asked.life, table, MANY)


def _follow(transaction: Transaction, asked: Asked) -> object:
    """Every row is written again while it is followed, by a stranger first, of whom nothing is noted."""
    writing = MoveWriting(transaction)
    for table in MOVED_TABLES:
        own = writing.page(asked.life, table, None, MANY)
        writing.follow(asked.life, table, 1000)
        before = len(writing.touched(asked.life, MANY))
        transaction.command("SAVEPOINT strange")
        writing.put(table, [(_STRANGER, *row[1:]) for row in own])
        assert len(writing.touched(asked.life, MANY)) == before
        transaction.command("ROLLBACK TO SAVEPOINT strange")
        writing.put(table, own)
    return [*writing.touched(asked.life, MANY).values()]


_MOVES: dict[str, Callable[[MoveWriting, Asked], object]] = {
    "take a move": _takes,
    "take a move again": _each_hold("take_again"),
    "hold a move": _each_hold("hold"),
    "check a move": _each_hold("check"),
    "stand": _each_hold("stand", MoveState.CLOSED, _NOW),
    "settle": _each_hold("settle"),
    "forget touched": lambda w, a: w.forget_touched(a.life, a.every("touched", "entry")),
    **{f"delete keys of {name}": partial(_delete_keys, table=name) for name in MOVED_TABLES},
    **{f"delete some {name}": partial(_delete_some, table=name) for name in MOVED_TABLES},
}


def _moving(step: Callable[[MoveWriting, Asked], object]) -> Step:
    return lambda transaction, asked: step(MoveWriting(transaction), asked)


def _purge(transaction: Transaction, asked: Asked, table: str) -> object:
    purging = PurgeWriting(transaction)
    before = purging.holds(asked.life, table)
    count = purging.purge_rows(asked.life, table, MANY)
    return before, count, purging.holds(asked.life, table), purging.swept(asked.life)


def _end_life(transaction: Transaction, asked: Asked) -> object:
    purging = PurgeWriting(transaction)
    purging.end_life(asked.life, _NOW)
    purging.note_swept(asked.life, {"snapshots": 2})
    return purging.swept(asked.life)


def _empty(transaction: Transaction, asked: Asked) -> object:
    """What is there of a tenant of which nothing is there."""
    purging = PurgeWriting(transaction)
    for table in PURGED_TABLES:
        purging.purge_rows(asked.life, table, MANY)
    writing = Writing(transaction, {})
    return writing.is_written(asked.life), writing.heads_together(asked.life), writing.open_jobs(asked.life)


STEPS: dict[str, Step] = {
    **{name: _writing(step) for name, step in _WRITES.items()},
    "advance heads": _advance,
    "drop heads": _drop_heads,
    "forget old requests": lambda t, a: purge_requests(t, {a.life: LATE}),
    **{name: _importing(step) for name, step in _IMPORTS.items()},
    "open streams": _open_streams,
    **{name: _moving(step) for name, step in _MOVES.items()},
    "follow": _follow,
    **{f"purge {name}": partial(_purge, table=name) for name in PURGED_TABLES},
    "end a life": _end_life,
    "empty": _empty,
}
