"""Where the graphs of large streams are kept between residencies, so that a load need not build them.

A stream's slots are numbers of one residency, so beside the graph's snapshot lies which memory each slot
was, and up to which commit stamp: of the stream, or of each stream of a tenant that is searched as a whole. A
memory whose commit stamp is not later has not changed since and keeps its slot; everything else is applied
as on any load. Where either file is missing or damaged the stream is loaded without them, so a shelf can be
thrown away. Vectors of one space are of no use in another: of a stream that is searched in two of them, what
was put last is kept.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import struct
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from scrubjay.memory import MemoryId, Micros
from scrubjay.stamp import CommitStamp
from server.index.hnsw_index import HnswIndex
from server.index.snapshot import SnapshotDamaged, load_snapshot, save_snapshot, space_of
from server.store.memory_store import Extent, StreamKey
from tenants.tenant import Incarnation

log = logging.getLogger("scrubjay.shelf")

_HEADER = struct.Struct("<8sQQ")
_MAGIC = b"SCRJYSL2"
_ID_BYTES = 16
_NOBODY = bytes(_ID_BYTES)


@dataclass(frozen=True, slots=True)
class Shelved:
    """A graph as it was at the commit stamps ``applied``, by stream. ``slots`` says which memory was where,
    of ``size`` slots."""

    index: HnswIndex
    slots: dict[MemoryId, int]
    size: int
    applied: Mapping[str, CommitStamp]

    @property
    def latest(self) -> CommitStamp:
        """The latest of its commit stamps."""
        return max(self.applied.values(), default=CommitStamp(0))


class Shelf:
    """Snapshots of one shard's streams in ``folder``: each tenant has a folder, made when it is needed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for old in (*folder.glob("*.hnsw"), *folder.glob("*.slots")):  # where an earlier version kept them
            old.unlink()

    def put(self, extent: Extent, space: str, shelved: Shelved) -> None:
        """Keep a graph of vectors of a space. A disk that does not take it costs a longer load later, and a
        warning now."""
        path = self._path(extent)
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # First: slots must never lie beside a graph that is not theirs.
            path.with_suffix(".slots").unlink(missing_ok=True)
            save_snapshot(path, shelved.index, space_id=space, commit_stamp=shelved.latest)
            _write_slots(path.with_suffix(".slots"), shelved)
        except OSError as error:
            log.warning("an index snapshot was not written: %s", error.strerror)

    def take(self, extent: Extent, space: str, dimension: int) -> Shelved | None:
        """The graph that was kept for the stream; None where there is no whole one of the space. The caller
        closes it."""
        path = self._path(extent)
        if not path.exists():
            return None
        try:
            slots, size, applied = _read_slots(path.with_suffix(".slots"))
            index, saved_at = load_snapshot(path, space_id=space, dimension=dimension)
        except (SnapshotDamaged, OSError) as error:
            log.warning("an index snapshot is built anew: %s", error)
            return None
        shelved = Shelved(index, slots, size, applied)
        if saved_at != shelved.latest:
            index.close()
            return None
        return shelved

    def discard(self, extent: Extent, until: Micros | None = None) -> None:
        """Throw the snapshot away, if there is one, and it was written by then if a time is given."""
        written = [one.stat().st_mtime_ns // 1000 for one in self.files_of(extent)]
        if until is not None and all(time > until for time in written):
            return
        self._path(extent).unlink(missing_ok=True)
        self._path(extent).with_suffix(".slots").unlink(missing_ok=True)

    def files_of(self, extent: Extent) -> list[Path]:
        """The files that are kept of it."""
        path = self._path(extent)
        return [one for one in (path, path.with_suffix(".slots")) if one.exists()]

    def count_of(self, incarnation: Incarnation) -> int:
        """How many files are kept of a tenant."""
        return sum(1 for _ in (self._folder / incarnation).glob("*"))

    def discard_other(self, incarnation: Incarnation, space: str) -> None:
        """Throw all of a tenant's away that are not of the space."""
        for path in (self._folder / incarnation).glob("*.hnsw"):
            if space_of(path) != space:
                path.unlink(missing_ok=True)
                path.with_suffix(".slots").unlink(missing_ok=True)

    def discard_all(self, incarnation: Incarnation) -> None:
        """Throw all of a tenant's away."""
        shutil.rmtree(self._folder / incarnation, ignore_errors=True)

    def _path(self, extent: Extent) -> Path:
        incarnation, stream = (
            (extent.incarnation, extent.stream) if isinstance(extent, StreamKey) else (extent, "")
        )
        name = hashlib.sha256(f"{incarnation}\0{stream}".encode()).hexdigest()[:32]
        return self._folder / incarnation / f"{name}.hnsw"


def _write_slots(path: Path, shelved: Shelved) -> None:
    by_slot = [_NOBODY] * shelved.size
    for memory_id, slot in shelved.slots.items():
        by_slot[slot] = uuid.UUID(memory_id).bytes
    applied = json.dumps(dict(shelved.applied)).encode()
    body = _HEADER.pack(_MAGIC, len(applied), shelved.size) + applied + b"".join(by_slot)
    beside = path.with_suffix(".slots.new")
    with beside.open("wb") as file:
        file.write(body + hashlib.sha256(body).digest())
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def _read_slots(path: Path) -> tuple[dict[MemoryId, int], int, dict[str, CommitStamp]]:
    content = path.read_bytes()
    body, digest = content[:-32], content[-32:]
    if len(body) < _HEADER.size or hashlib.sha256(body).digest() != digest:
        raise SnapshotDamaged("the list of slots is cut short or changed")
    magic, length, size = _HEADER.unpack_from(body)
    begin = _HEADER.size + length
    if magic != _MAGIC or len(body) != begin + size * _ID_BYTES:
        raise SnapshotDamaged("not a list of slots")
    ids = (body[at : at + _ID_BYTES] for at in range(begin, len(body), _ID_BYTES))
    slots = {MemoryId(str(uuid.UUID(bytes=one))): slot for slot, one in enumerate(ids) if one != _NOBODY}
    return slots, size, _applied(body[_HEADER.size : begin])


def _applied(text: bytes) -> dict[str, CommitStamp]:
    try:
        return {str(stream): CommitStamp(int(stamp)) for stream, stamp in json.loads(text).items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise SnapshotDamaged(f"a list of slots of another build: {error}") from error
