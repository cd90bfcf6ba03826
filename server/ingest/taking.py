"""Taking what a replica sends up, inside one unit: its operations, then its access counts."""

from __future__ import annotations

from collections.abc import Sequence

from scrubjay.memory import Micros
from server.ingest.batch import Sender
from server.ingest.counts import touch
from server.ingest.operations import Merged, first_results, merge_batch
from server.ingest.uploads import Arrived, Upload, answered_before, chained
from server.store.memory_store import StreamKey, Writing
from server.store.replicas import ReplicaMark


def take_upload(
    writing: Writing,
    key: StreamKey,
    space: str,
    sender: Sender,
    upload: Upload,
    arrived: Sequence[Arrived],
    now: Micros,
) -> Merged | None:
    """Take an upload, whose decoded operations are ``arrived``; None, and nothing taken, for a fork."""
    client_id = sender.viewer.client_id
    count = answered_before(upload, writing.replica(key, upload.replica_id), client_id)
    if count is None:
        return None
    first = first_results(writing, key, space, sender, arrived[:count], now // 1000)
    merged = merge_batch(writing, key, space, sender, arrived[count:], now // 1000)
    taken = count + merged.taken
    if merged.taken:
        chain = chained(upload.chain, upload.encoded[:taken])
        mark = ReplicaMark(client_id, upload.first_number - 1 + taken, chain)
        writing.save_replica(key, upload.replica_id, mark, now)
    if upload.touches:
        touch(writing, key, sender.viewer, upload.replica_id, upload.touches, now // 1000)
    return Merged(first + merged.results, taken, merged.own)
