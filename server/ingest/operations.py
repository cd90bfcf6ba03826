"""Merging what a replica sends into a stream, inside one unit.

Each operation ends with a result that is kept, so that a repeat is answered as the first time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scrubjay import v1
from scrubjay.memory import MemoryId, Subject, Viewer
from server.feed import Own
from server.ingest.author import Author
from server.ingest.batch import Sender
from server.ingest.merging import Merging
from server.ingest.results import duplicate
from server.ingest.uploads import Arrived
from server.store.rows import StreamKey
from server.store.writing import Writing


@dataclass(frozen=True, slots=True)
class Merged:
    """A result for each operation, in order; how many were taken; and what the batch itself wrote."""

    results: list[v1.OperationResult]
    taken: int
    own: Own


def merge_batch(
    writing: Writing,
    key: StreamKey,
    space: str,
    sender: Sender,
    arrived: Sequence[Arrived],
    now_millis: int,
) -> Merged:
    """Take the operations in order, up to the first that must come again later."""
    batch = Merging.of_operations(writing, key, space, sender, arrived, now_millis)
    hindrance = ""
    for one in arrived:
        hindrance = batch.hindrance(one)
        if hindrance:
            break
        batch.take(one)
    taken = len(batch.answers)
    batch.write()
    later = v1.OperationResult(status=v1.OPERATION_STATUS_RETRY_LATER, reason=hindrance)
    return Merged(batch.answers + [later] * (len(arrived) - taken), taken, batch.own())


def first_results(
    writing: Writing,
    key: StreamKey,
    space: str,
    sender: Sender,
    arrived: Sequence[Arrived],
    now_millis: int,
) -> list[v1.OperationResult]:
    """The first results of operations that were answered in an earlier call. Of those that are forgotten
    what can be told still: see ``Merging.forgotten``."""
    known = writing.operation_results(key.incarnation, [one.operation_id for one in arrived])
    first = {name: v1.OperationResult.FromString(encoded) for name, (_, encoded) in known.items()}
    forgotten = [one for one in arrived if one.operation_id not in known]
    if forgotten:
        batch = Merging.of_operations(writing, key, space, sender, forgotten, now_millis)
        first |= {one.operation_id: batch.forgotten(one) for one in forgotten}
    return [duplicate(first[one.operation_id]) for one in arrived]


def end_waits(
    writing: Writing,
    key: StreamKey,
    space: str,
    author: Author,
    subject: Subject,
    ids: Sequence[MemoryId],
    now_millis: int,
) -> bool:
    """Take the operations that waited for memories that a backend made just now; whether any did."""
    if not writing.waiting(key, ids):
        return False
    sender = Sender(Viewer(author.client_id), author, author.replica, subject)
    batch = Merging(writing, key, space, sender, ids, [], now_millis)
    batch.end_waits()
    batch.write()
    return True
