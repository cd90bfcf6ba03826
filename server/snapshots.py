"""The snapshot files of a server: made when one is asked for, and kept for a while.

A download that was cut goes on in the file that it began with: a view of one moment, whose reader learns
from Sync what was written and deleted since. But once a memory that may be in it was taken back from its
viewer, nobody gets another byte of it.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from scrubjay.errors import SnapshotGone, Unavailable
from scrubjay.memory import Viewer
from server.ending import Ending
from server.feed import BEGINNING, Position, at_head, hidden
from server.snapshot_file import write_file
from server.store.memory_store import Extent, MemoryStore, Reading, StreamKey
from server.store.rows import may_hear

KEPT_SECONDS = 15 * 60
"""How long a file that nobody reads is kept: a phone that lost its network for longer loads anew."""
MOST_BUILDS = 2
"""Files that are made at once: each holds a core, and on PostgreSQL a reading connection of its shard."""

BLOCK_BYTES = 1024 * 1024
"""What is checked at once when it is sent: a disk may give back other bytes than it took."""

_RETRACTIONS = 500
"""Read at a time."""
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A whole file. ``name`` is a secret of the server's; ``position`` is where its reader stands.

    ``digests`` are the SHA-256 of its blocks of BLOCK_BYTES as they were written.
    """

    name: str
    key: StreamKey
    viewer: Viewer
    position: Position
    row_count: int
    total_bytes: int
    digests: tuple[bytes, ...]


@dataclass(slots=True)
class _Kept:
    snapshot: Snapshot
    used_at: float


class Snapshots:
    """The snapshot files of a server in ``folder``, at most ``budget_bytes`` of them, until ``close``.

    What lies in the folder is deleted at the start. A file that is deleted while it is read stays
    readable to its end. Raises Unavailable where the disk takes no file.
    """

    def __init__(
        self,
        folder: Path,
        secret: bytes,
        *,
        budget_bytes: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._secret = secret
        self._budget_bytes = budget_bytes
        self._clock = clock
        self._changed = threading.Condition(threading.Lock())
        self._kept: dict[str, _Kept] = {}
        self._building: set[tuple[StreamKey, Viewer]] = set()
        self._closed = False
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._delete_all()
        self._thread = threading.Thread(target=self._sweep, name="scrubjay-snapshots", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Delete every file. May be called again."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()
        self._kept.clear()
        self._delete_all()

    @contextmanager
    def opened(
        self, store: MemoryStore, key: StreamKey, viewer: Viewer, ending: Ending
    ) -> Iterator[tuple[Snapshot, BinaryIO]]:
        """A file of this moment for the block, made where there is none.

        Waits for its turn, and raises Unavailable where the stream that asks is over meanwhile.
        """
        with self._read(self._current(store, key, viewer, ending)) as opened:
            yield opened

    @contextmanager
    def reopened(
        self, store: MemoryStore, name: str, key: StreamKey, viewer: Viewer
    ) -> Iterator[tuple[Snapshot, BinaryIO]]:
        """The file of this name for the block.

        Raises SnapshotGone where it is not kept, is another viewer's, or holds what was taken back since.
        """
        snapshot = self._find(name)
        if snapshot is None or (snapshot.key, snapshot.viewer) != (key, viewer):
            raise SnapshotGone
        self.check(store, snapshot)
        with self._read(snapshot) as opened:
            yield opened

    def check(self, store: MemoryStore, snapshot: Snapshot) -> None:
        """Raise SnapshotGone, and delete the file, where it may hold what was taken back since."""
        with store.read() as reading:
            gone = _taken_back(reading, snapshot)
        if gone:
            self._drop(snapshot.name)
            raise SnapshotGone

    def give_up(self, snapshot: Snapshot) -> None:
        """Delete a file whose bytes are not those that were written."""
        _logger.error("a snapshot changed on the disk; it is made anew")
        self._drop(snapshot.name)

    def count_of(self, extent: Extent) -> int:
        """How many files are kept of a stream, or of a tenant."""
        with self._changed:
            return len(self._names_of(extent))

    def discard_all(self, extent: Extent) -> None:
        """Delete all of a stream's, or of a tenant's."""
        with self._changed:
            for name in self._names_of(extent):
                self._delete(name)

    def _names_of(self, extent: Extent) -> list[str]:
        return [
            name
            for name, kept in self._kept.items()
            if extent in (kept.snapshot.key, kept.snapshot.key.incarnation)
        ]

    # --- what is kept -----------------------------------------------------------------------------

    def _path(self, name: str) -> Path:
        return self._folder / name

    def _name(self, key: StreamKey, viewer: Viewer, position: Position) -> str:
        parts = (
            key.incarnation,
            key.stream,
            viewer.client_id,
            *viewer.scopes,
            position.epoch,
            position.stamp,
        )
        described = "\0".join(("snapshot", *map(str, parts)))
        return hmac.digest(self._secret, described.encode(), "sha256").hex()

    def _find(self, name: str) -> Snapshot | None:
        with self._changed:
            kept = self._kept.get(name)
            if kept is None:
                return None
            kept.used_at = self._clock()
            return kept.snapshot

    @contextmanager
    def _read(self, snapshot: Snapshot) -> Iterator[tuple[Snapshot, BinaryIO]]:
        try:
            file = self._path(snapshot.name).open("rb")
        except FileNotFoundError:
            raise SnapshotGone from None
        with file:
            yield snapshot, file
        self._find(snapshot.name)

    def _keep(self, snapshot: Snapshot) -> None:
        """Keep a new file, and delete those least recently used that there is no room for beside it."""
        with self._changed:
            self._kept[snapshot.name] = _Kept(snapshot, self._clock())
            leaving = sorted(self._kept.values(), key=lambda kept: kept.used_at)[:-1]
            total = sum(kept.snapshot.total_bytes for kept in self._kept.values())
            for kept in leaving:
                if total <= self._budget_bytes:
                    break
                total -= kept.snapshot.total_bytes
                self._delete(kept.snapshot.name)
            self._changed.notify_all()

    def _drop(self, name: str) -> None:
        with self._changed:
            self._delete(name)

    def _delete(self, name: str) -> None:
        if self._kept.pop(name, None) is not None:
            self._path(name).unlink(missing_ok=True)

    def _delete_all(self) -> None:
        for path in self._folder.iterdir():
            path.unlink()

    def _sweep(self) -> None:
        with self._changed:
            while not self._closed:
                oldest = min((kept.used_at for kept in self._kept.values()), default=None)
                self._changed.wait(None if oldest is None else oldest + KEPT_SECONDS - self._clock())
                now = self._clock()
                for name in [n for n, kept in self._kept.items() if kept.used_at + KEPT_SECONDS <= now]:
                    self._delete(name)

    # --- making one -------------------------------------------------------------------------------

    def _current(self, store: MemoryStore, key: StreamKey, viewer: Viewer, ending: Ending) -> Snapshot:
        ending.on_end(self._wake)
        if (found := self._found(store, key, viewer)) is not None:
            return found
        with self._turn((key, viewer), ending):
            return self._found(store, key, viewer) or self._make(store, key, viewer, ending)

    def _found(self, store: MemoryStore, key: StreamKey, viewer: Viewer) -> Snapshot | None:
        with store.read() as reading:
            position = at_head(reading.head(key))
        return self._find(self._name(key, viewer, position))

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    @contextmanager
    def _turn(self, view: tuple[StreamKey, Viewer], ending: Ending) -> Iterator[None]:
        """Hold the right to make a file for the view: one at a time, and few over all views."""
        with self._changed:
            while not ending.over and (view in self._building or len(self._building) >= MOST_BUILDS):
                self._changed.wait()
            _go_on(ending)
            self._building.add(view)
        try:
            yield
        finally:
            with self._changed:
                self._building.remove(view)
                self._changed.notify_all()

    def _make(self, store: MemoryStore, key: StreamKey, viewer: Viewer, ending: Ending) -> Snapshot:
        beside = self._path(f"{os.urandom(16).hex()}.new")
        try:
            os.close(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            head, row_count = write_file(beside, store, key, viewer, lambda: ending.over)
            _go_on(ending)
            position = at_head(head)
            name, total_bytes = self._name(key, viewer, position), beside.stat().st_size
            digests = _digests(beside)
            beside.rename(self._path(name))
        except (sqlite3.Error, OSError) as error:
            _go_on(ending)
            _logger.exception("a snapshot could not be written")
            raise Unavailable("this server's disk takes no snapshot; retry later") from error
        finally:
            beside.unlink(missing_ok=True)
        snapshot = Snapshot(name, key, viewer, position, row_count, total_bytes, digests)
        self._keep(snapshot)
        return snapshot


def _digests(path: Path) -> tuple[bytes, ...]:
    with path.open("rb") as file:
        return tuple(hashlib.sha256(block).digest() for block in iter(lambda: file.read(BLOCK_BYTES), b""))


def _taken_back(reading: Reading, snapshot: Snapshot) -> bool:
    """Whether anything was taken back from the viewer since, or the stream began anew."""
    position, viewer = snapshot.position, snapshot.viewer
    head = reading.head(snapshot.key)
    if head is None or position == BEGINNING:
        return head is not None or position != BEGINNING
    if head.epoch != position.epoch or position.forgotten(head.horizon):
        return True
    after = position.stamp
    while rows := reading.retractions_after(snapshot.key, after, _RETRACTIONS):
        ours = {row.memory_id for row in rows if may_hear(viewer, row.private_to, row.scope)}
        if ours and hidden(reading, snapshot.key, viewer, ours):
            return True
        after = rows[-1].commit_stamp
    return False


def _go_on(ending: Ending) -> None:
    if ending.over:
        raise ending.error or Unavailable("the stream that asked is over")
