"""Access counts: a lane of their own, so that a search never sends a memory to every device again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scrubjay.memory import MemoryId, Viewer
from scrubjay.stamp import CommitStamp, ReplicaId
from server.ingest.accesses import Accesses
from server.store.memory_store import Reading, StreamKey, Writing
from server.store.replicas import AccessCount, AccessTotal

MAX_COUNTS = 1000


def touch(
    writing: Writing,
    key: StreamKey,
    viewer: Viewer,
    replica_id: ReplicaId,
    touches: Sequence[AccessTotal],
    now_millis: int,
) -> None:
    """Join one replica's totals: the higher ones stand, of the memories that it sees."""
    ids = [one.memory_id for one in touches]
    living = writing.guarded(key, ids)
    known = writing.access_totals(key, replica_id, ids)
    grown: dict[MemoryId, AccessTotal] = {}
    for one in touches:
        row, old = living.get(one.memory_id), grown.get(one.memory_id) or known.get(one.memory_id)
        joined = one if old is None else _join(one, old)
        if row is not None and viewer.sees(row) and joined != old:
            grown[one.memory_id] = joined
    lane = writing.lane_stamps(key, len(grown), now_millis)
    writing.put_access_totals(key, replica_id, list(zip(grown.values(), lane, strict=True)))


def add_accesses(
    writing: Writing,
    key: StreamKey,
    replica_id: ReplicaId,
    counted: Mapping[MemoryId, Accesses],
    now_millis: int,
) -> None:
    """Add to one replica's totals what was counted since they were written, of the memories that live."""
    living = writing.guarded(key, counted)
    known = writing.access_totals(key, replica_id, living)
    grown = []
    for memory_id in living:
        old = known.get(memory_id)
        before = None if old is None else Accesses(old.total, old.last_access_at)
        accesses = counted[memory_id].joined(before)
        grown.append(AccessTotal(memory_id, accesses.count, accesses.last_access_at))
    lane = writing.lane_stamps(key, len(grown), now_millis)
    writing.put_access_totals(key, replica_id, list(zip(grown, lane, strict=True)))


def _join(one: AccessTotal, other: AccessTotal) -> AccessTotal:
    return AccessTotal(
        one.memory_id,
        max(one.total, other.total),
        max(one.last_access_at, other.last_access_at),
    )


def counts_after(
    reading: Reading, key: StreamKey, viewer: Viewer, after: CommitStamp
) -> tuple[list[AccessCount], CommitStamp]:
    """The next counts behind ``after`` that the viewer may see, and where they end."""
    counts = reading.access_counts(key, after, MAX_COUNTS)
    living = reading.guarded(key, [one.memory_id for one in counts]) if counts else {}
    seen = [one for one in counts if one.memory_id in living and viewer.sees(living[one.memory_id])]
    return seen, counts[-1].lane_stamp if counts else after
