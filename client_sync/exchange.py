"""One round trip with a server: what is sent, and what its answer does, in one local transaction each."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from client_sync import journal
from client_sync.confirming import confirm
from client_sync.copies import Copies, copy_rows
from client_sync.dead_letters import refuse
from client_sync.errors import TransferBroken
from client_sync.outbox import Entry, Outbox, Sent
from client_sync.replica import Replica
from client_sync.replica_file import get_meta, set_meta
from scrubjay import v1
from scrubjay.errors import InvalidField
from scrubjay.feed import (
    MAX_CHANGES,
    PACKED_FROM_BYTES,
    bucket_digests,
    digest,
    open_page,
    pack,
    unpack,
)
from scrubjay.memory import JsonValue, MemoryId, Micros, id_text
from scrubjay.merge import Outcome, get
from scrubjay.stamp import CommitStamp
from scrubjay.wire import from_timestamp, to_timestamp

PROTOCOL = 1
CLOCK_REASON = "clock"
"""Why a server takes an operation later: its stamp lies ahead of the server's time."""

_Change = tuple[MemoryId, CommitStamp, v1.Change]

# Of memories that the server has: it knows nothing of others, and would count nothing.
_GROWN_TOUCHES = """
SELECT id, total, last_access_at FROM touches
WHERE total > sent AND EXISTS (SELECT 1 FROM rows WHERE rows.id = touches.id AND rows.commit_stamp > 0)
LIMIT ?
"""


@dataclass
class Exchanged:
    """What one answer did."""

    pushed: int = 0
    pulled: int = 0
    refused: int = 0
    conflicts: int = 0
    retry: bool = False
    """Whether the server took some operations not yet."""
    stale: bool = False
    """Whether another process was faster, so that nothing was taken."""
    digest_differs: bool = False
    shown: set[MemoryId] = field(default_factory=set)


def next_request(replica: Replica, *, verify: bool = False) -> v1.SyncRequest:
    """What to send: the batch that waits, and where this replica stands.

    The first request of all sends nothing new: its answer says whether a snapshot is the faster way.
    """
    with replica.file.transaction(durable=True) as sql:
        outbox = Outbox(sql, replica.identity)
        batch = outbox.next_batch(new=get_meta(sql, "cursor") is not None)
        request = v1.SyncRequest(
            last_sync_at=get_meta(sql, "cursor", ""),
            protocol=PROTOCOL,
            replica_id=outbox.replica,
            principal=replica.identity.principal,
            first_number=batch.first_number,
            chain=batch.chain,
            spell=int(get_meta(sql, "spell", 1)),
            include_digest=verify,
            include_counts=True,
            counts_after=int(get_meta(sql, "counts_after", 0)),
            touches=[
                v1.Touch(memory_id=key, total=total, last_access_at=to_timestamp(Micros(at)))
                for key, total, at in sql.execute(_GROWN_TOUCHES, (MAX_CHANGES,))
            ],
        )
    operations = v1.Batch(operations=batch.bodies)
    if operations.ByteSize() >= PACKED_FROM_BYTES:
        request.packed_batch = pack(operations, tightly=True)  # a device's way up is its slowest
    elif batch.bodies:
        request.batch.CopyFrom(operations)
    return request


def bodies_of(request: v1.SyncRequest) -> list[bytes]:
    """The operations of a request."""
    if request.packed_batch:
        return list(unpack(v1.Batch, "packed_batch", request.packed_batch).operations)
    return list(request.batch.operations)


def page_of(response: v1.SyncResponse) -> list[_Change]:
    """The changes of a response."""
    if response.packed_page:
        return open_page(unpack(v1.Page, "packed_page", response.packed_page))
    return open_page(response.page)


def apply_response(replica: Replica, request: v1.SyncRequest, response: v1.SyncResponse) -> Exchanged:
    """Take an answer: results, changes, cursor and counts, all or nothing. TransferBroken for one that can't
    be right."""
    done = Exchanged()
    bodies = bodies_of(request)
    try:
        changes = page_of(response)
    except (InvalidField, ValueError) as error:
        raise TransferBroken(f"the server's page can't be read ({error}); it is asked for again") from error
    if len(response.results) != len(bodies):
        raise TransferBroken(
            f"{len(bodies)} operations were sent and {len(response.results)} answered; they are sent again"
        )
    server_time = from_timestamp(response.server_time)
    with replica.file.transaction(durable=False) as sql:
        outbox = Outbox(sql, replica.identity)
        sent = outbox.sent()
        if not _is_current(sql, sent, request, bodies):
            done.stale = True
            return done
        copies = Copies(sql, replica.identity, outbox)
        told = {change.memory_id for _, _, change in changes}
        _take_results(sql, outbox, copies, sent, response, told, done)
        copies.apply_page(changes)
        copies.take_applied(response.commit_stamp, server_time, more=response.more)
        copies.settle(server_time)
        done.refused += copies.refused
        _take_counts(sql, request, response)
        set_meta(
            sql,
            cursor=response.last_sync_at,
            position=response.commit_stamp,
            clock_offset=replica.clock.offset,
        )
        finished = not response.more and not outbox.waits()
        if finished:
            set_meta(sql, synced_at=server_time)
            if bodies:
                set_meta(sql, spell=request.spell + 1)
        if response.digest and not response.more:
            done.digest_differs = digest(bucket_digests(copy_rows(sql))) != response.digest
            set_meta(sql, verified_at=server_time)
        done.pulled, done.shown = len(changes), copies.shown
    return done


def standing(sql: sqlite3.Connection) -> str:
    """Where this replica stands: its cursor, else where the newest memories are from that it shows while it
    is first loaded, else the beginning."""
    return str(get_meta(sql, "cursor") or get_meta(sql, "shown_from", ""))


def stands(sql: sqlite3.Connection, request: v1.SyncRequest) -> bool:
    """Whether the file stands where it stood when the request was made: another process may be further."""
    same = standing(sql) == request.last_sync_at
    return same and request.replica_id in (b"", get_meta(sql, "replica_id"))


def nothing_waits(replica: Replica) -> bool:
    """Whether every operation was answered."""
    with replica.file.reading() as sql:
        return not Outbox(sql, replica.identity).waits()


def is_current(replica: Replica, request: v1.SyncRequest) -> bool:
    """Whether the file still stands where it stood when the request was made."""
    with replica.file.reading() as sql:
        return _is_current(sql, Outbox(sql, replica.identity).sent(), request, bodies_of(request))


def _is_current(
    sql: sqlite3.Connection, sent: Sequence[Sent], request: v1.SyncRequest, bodies: list[bytes]
) -> bool:
    """Whether the request can be answered here. Another process may have sent a batch since, under the
    numbers that this request left free."""
    return (
        stands(sql, request)
        and int(get_meta(sql, "answered", 0)) + 1 == request.first_number
        and [each.body for each in sent] == bodies
    )


def _take_results(
    sql: sqlite3.Connection,
    outbox: Outbox,
    copies: Copies,
    sent: Sequence[Sent],
    response: v1.SyncResponse,
    told: Collection[bytes],
    done: Exchanged,
) -> None:
    now = from_timestamp(response.server_time)
    pairs = list(zip(sent, response.results, strict=True))
    later = (n for n, (_, r) in enumerate(pairs) if r.status == v1.OPERATION_STATUS_RETRY_LATER)
    taken = next(later, len(pairs))
    outbox.answer(sent[:taken])
    answered = confirm(sql, outbox, pairs[:taken], response.commit_stamp, told)
    done.pushed += taken - len(answered)
    outbox.keep_answers(answered)
    for each, result in answered:
        take_result(sql, outbox, copies, outbox.entry(each), result, now, done)
    if taken < len(pairs):
        done.retry = True
        outbox.unnumber()
        if pairs[taken][1].reason == CLOCK_REASON:
            for memory_id in outbox.restamp(now // 1000):
                copies.touch(memory_id)


def take_result(
    sql: sqlite3.Connection,
    outbox: Outbox,
    copies: Copies,
    entry: Entry,
    result: v1.OperationResult,
    now: Micros,
    done: Exchanged,
) -> None:
    """What the answer to one operation means here, beside the copy that comes with the feed."""
    status = result.first_status or result.status
    memory_id = entry.operation.memory_id
    done.pushed += 1
    copies.touch(memory_id)
    if status == v1.OPERATION_STATUS_REJECTED:
        done.refused += refuse(sql, outbox, entry, result.reason, now)
    elif status == v1.OPERATION_STATUS_MERGED_INTO:
        other = MemoryId(id_text(result.merged_into))
        outbox.redirect(memory_id, other)
        copies.touch(other)
    elif status in _MET:
        done.conflicts += 1
        if status == v1.OPERATION_STATUS_GONE or copies.get(memory_id) is not None:  # else it was taken back
            _note(sql, entry, _MET[status], now)


_MET: dict[int, Outcome] = {
    v1.OPERATION_STATUS_APPLIED_CONCURRENT: Outcome.APPLIED_CONCURRENT,
    v1.OPERATION_STATUS_SUPERSEDED: Outcome.SUPERSEDED,
    v1.OPERATION_STATUS_GONE: Outcome.GONE,
}


def _note(sql: sqlite3.Connection, entry: Entry, outcome: Outcome, now: Micros) -> None:
    operation = entry.operation
    changes: list[JsonValue] = [[write.field, None, write.value] for write in operation.writes]
    if operation.memory is not None:
        changes = [["content", None, get(operation.memory, "content")]]
    journal.note_outcome(sql, operation.memory_id, now, operation.kind, outcome, changes)


def _take_counts(sql: sqlite3.Connection, request: v1.SyncRequest, response: v1.SyncResponse) -> None:
    sql.executemany(
        "UPDATE touches SET sent = max(sent, ?) WHERE id = ?",
        [(touch.total, touch.memory_id) for touch in request.touches],
    )
    sql.executemany(
        "INSERT OR REPLACE INTO counts VALUES (?, ?, ?)",
        [(each.memory_id, each.count, from_timestamp(each.last_access_at)) for each in response.counts],
    )
    if response.counts_after:
        set_meta(sql, counts_after=response.counts_after)


def exchange(
    replica: Replica, call: Callable[[v1.SyncRequest], v1.SyncResponse], request: v1.SyncRequest
) -> v1.SyncResponse:
    """Send a request and learn the server's time from the answer."""
    sent = replica.clock.reading()
    response = call(request)
    if response.HasField("server_time"):
        replica.clock.exchanged(from_timestamp(response.server_time), sent)
    return response
