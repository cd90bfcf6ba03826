"""What the memories of a stream were at an earlier commit stamp.

Nothing is kept for it but History. The present is taken back, newest operation first: an edit's old values
are put back, what was created since was not there, and what was deleted since lives again as the deletion
kept it. So the past costs what has happened since, and a memory that nobody touched is what it was.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter

from scrubjay import v1
from scrubjay.errors import HistoryForgotten
from scrubjay.memory import ClientId, JsonValue, Memory, MemoryId, Subject
from scrubjay.merge import put
from scrubjay.operation import OperationKind
from scrubjay.stamp import CommitStamp
from scrubjay.wire import from_stored, to_message
from server.ingest.entities.linking import names_in
from server.store.history import STORED, HistoryRow, made, stored
from server.store.memory_store import Change, Reading, StreamKey
from server.store.rows import private_to
from tenants.tenant import Incarnation

_PAGE = 1000


def rewound(
    living: Mapping[MemoryId, Memory],
    operations: Iterable[HistoryRow],
    taken: Callable[[HistoryRow], Memory | None],
) -> dict[MemoryId, Memory | None]:
    """Those memories that the operations changed, as they were before them; None where none lived.

    ``operations`` are all of a stream since, newest first; ``living`` has at least the living ones that
    they touched; ``taken`` says what a DELETE took away.
    """
    memories: dict[MemoryId, Memory | None] = {}
    values: dict[MemoryId, dict[str, JsonValue]] = {}
    for row in operations:
        if row.outcome not in STORED:
            continue
        if row.kind is OperationKind.DELETE:
            memories[row.memory_id] = taken(row)
        elif made(row):
            memories[row.memory_id] = None
        else:
            memories.setdefault(row.memory_id, living.get(row.memory_id))
            # An older operation's old values are those that stood before.
            values.setdefault(row.memory_id, {}).update((one.field, one.old) for one in stored(row))
    return {i: memory and put(memory, values.get(i, {})) for i, memory in memories.items()}


def retold(operations: Iterable[HistoryRow], subject: Subject) -> Memory | None:
    """A memory as its own operations made it, oldest first, for deletions that did not keep it.

    What History does not tell is guessed: it was created when its author says so, by its owner, and belongs
    to no agent or run beside the subject.
    """
    memory: Memory | None = None
    for row in operations:
        if made(row):
            about = {f"{subject.kind}_id": subject.name}
            memory = Memory(row.memory_id, "", row.claimed_at, owner_client_id=row.client_id, **about)  # type: ignore[arg-type]  # by name
        if memory is not None and row.kind is not OperationKind.DELETE:
            memory = put(memory, {change.field: change.new for change in stored(row)})
    return memory


# --- a stream's ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Past:
    """The memories of a stream at an earlier commit stamp, in the order of their own ones.

    A ``vector`` is None where the one of that text is kept no longer. ``confined`` names the only client
    that may be shown a memory today, where privacy says so today; empty where it does not any more.
    """

    changes: list[Change]
    confined: dict[MemoryId, ClientId]


def read_past(reading: Reading, key: StreamKey, until: CommitStamp, space: str) -> Past:
    """What lived in the stream once its operations up to ``until`` were done. HistoryForgotten where some
    behind that are not known any more."""
    horizon = reading.history_horizon(key)
    if until < horizon:
        raise HistoryForgotten
    present = {change.memory_id: change for change in _living(reading, key, space)}
    memories = {i: change.memory for i, change in present.items() if change.memory is not None}
    died: dict[MemoryId, ClientId] = {}

    def taken(row: HistoryRow) -> Memory | None:
        died[row.memory_id] = row.private_to
        return taken_away(reading, key, row)

    before = rewound(memories, _operations(reading, key.incarnation, key, until), taken)
    lived = {i: memory for i, memory in before.items() if memory is not None}
    stamps = reading.changed_at(key.incarnation, list(lived), until)
    changes = [change for i, change in present.items() if i not in before]
    if horizon:
        others = {change.commit_stamp for change in changes} | set(stamps.values())
        stamps |= _stamps_until(horizon, others, lived.keys() - stamps.keys())
    changes += [
        _as_it_was(memory, key, stamps[i], present.get(i)) for i, memory in lived.items() if i in stamps
    ]
    now = {i: private_to(memories[i]) for i in lived if i in memories}
    return Past(sorted(changes, key=attrgetter("commit_stamp")), died | now)


def _stamps_until(
    horizon: CommitStamp, others: Container[CommitStamp], ids: Collection[MemoryId]
) -> dict[MemoryId, CommitStamp]:
    """Commit stamps for memories whose last operation of then was forgotten: no later than the newest that
    was, and none of the others'."""
    free = (stamp for stamp in map(CommitStamp, range(horizon, 0, -1)) if stamp not in others)
    return dict(zip(sorted(ids, reverse=True), free, strict=False))


def confined_since(
    reading: Reading, key: StreamKey, after: CommitStamp, ids: Container[MemoryId]
) -> dict[MemoryId, ClientId]:
    """Of those memories that changed behind ``after``, the only client that may be shown them today."""
    rows = [row for row in _operations(reading, key.incarnation, key, after) if row.memory_id in ids]
    died = {row.memory_id: row.private_to for row in rows if row.kind is OperationKind.DELETE}
    living = reading.get_many(key.incarnation, [row.memory_id for row in rows])
    return died | {i: private_to(one.memory) for i, one in living.items()}


def _living(reading: Reading, key: StreamKey, space: str) -> Iterator[Change]:
    stamp = CommitStamp(0)
    while page := reading.changes(key, stamp, space, _PAGE):
        yield from (change for change in page if change.memory is not None)
        stamp = page[-1].commit_stamp


def _operations(
    reading: Reading, incarnation: Incarnation, of: MemoryId | StreamKey, after: CommitStamp
) -> Iterator[HistoryRow]:
    """All operations behind ``after``, newest first."""
    before: CommitStamp | None = None
    while page := reading.history(incarnation, of, before, _PAGE, after):
        yield from page
        before = page[-1].commit_stamp


def taken_away(reading: Reading, key: StreamKey, row: HistoryRow) -> Memory | None:
    """The memory that a DELETE took away; None where a device deleted what never came."""
    if row.deleted:
        return from_stored(v1.Memory.FromString(row.deleted))
    if not row.changes:
        return None
    kind, _, name = key.stream.partition(":")
    operations = list(_operations(reading, key.incarnation, row.memory_id, CommitStamp(0)))
    return retold(reversed(operations), Subject(kind, name))


def _as_it_was(memory: Memory, key: StreamKey, commit_stamp: CommitStamp, present: Change | None) -> Change:
    """A memory that changed since. Its vector is there still where its text is the one that stands."""
    same = present is not None and present.memory is not None and present.memory.content == memory.content
    message = to_message(memory, commit_stamp).SerializeToString()
    vector = present.vector if present is not None and same else None
    return Change(key.stream, memory.id, commit_stamp, message, memory, vector, names_in(memory))
