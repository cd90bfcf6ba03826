"""What a directive asks for: a new replica id, giving back what a server lost, loading anew.

Each step is noted in the file before it begins and can be begun again, so that a crash in the middle goes
on where it was.
"""

from __future__ import annotations

import hashlib
import sqlite3
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

from client_sync import journal
from client_sync.copies import Copies, is_burial, is_forgotten, keep_apart
from client_sync.errors import ReplicaDamaged, TransferBroken
from client_sync.exchange import Exchanged, standing, stands, take_result
from client_sync.file_lock import locked
from client_sync.outbox import Outbox
from client_sync.remote_sync import RemoteSync
from client_sync.replica import Replica
from client_sync.replica_file import get_meta, is_whole, must_forget, set_meta
from scrubjay import v1
from scrubjay.errors import SnapshotGone
from scrubjay.feed import MAX_CHANGES, MAX_OPERATIONS, open_page, pack, seal_page, unpack, whole
from scrubjay.memory import MemoryId, id_bytes, id_text
from scrubjay.stamp import CommitStamp, ReplicaId

NEWEST_FIRST = 1000
"""Memories that can be read while the rest of a first load is still to come."""
LOADED_SECONDS = 600.0
"""How long to wait for another process that loads: some GB over a home line."""
_SNAPSHOT_VERSION = 1
_PIECE_BYTES = 1 << 20
_NOTED_MICROS = 1_000_000
"""How much of a download, in time, a kill may cost: to note each part would take as long as to check it."""
_HELD = """
SELECT id FROM rows WHERE commit_stamp > 0 UNION SELECT id FROM beneath WHERE message IS NOT NULL
"""
_REVIVE = """
DELETE FROM graves WHERE EXISTS (SELECT 1 FROM rows WHERE rows.id = graves.id AND rows.commit_stamp > 0)
"""
"""A server that was restored may have what was known as dead here."""
_ATTEMPTS = 3
"""Snapshots begun anew before giving up: each was dropped by the server in the middle."""

Report = Callable[[int, int], None]
"""Called with the bytes that are here and the bytes in all."""


def begin_fork(replica: Replica, answered: v1.SyncRequest | None = None) -> None:
    """Go on as a new replica: this file's numbers were used elsewhere too.

    Here and below nothing happens where the file does not stand any more where it did when the request was
    made that was ``answered`` with this: another process has done it.
    """
    with replica.file.transaction(durable=True) as sql:
        if answered is not None and not stands(sql, answered):
            return
        outbox = Outbox(sql, replica.identity)
        outbox.take_replica(ReplicaId(replica.entropy(16)), keep_ids=False)
        set_meta(sql, forked=1)


def reconcile(replica: Replica, remote: RemoteSync) -> Exchanged:
    """Ask which of the operations without an answer the server knows; the others are edits of the new
    replica."""
    done = Exchanged()
    with replica.file.reading() as sql:
        waiting = [e for e in Outbox(sql, replica.identity).unanswered() if e.operation.operation_id]
    known: dict[bytes, v1.OperationResult] = {}
    for at in range(0, len(waiting), MAX_OPERATIONS):
        ids = [id_bytes(entry.operation.operation_id) for entry in waiting[at : at + MAX_OPERATIONS]]
        answer = remote.reconcile(v1.ReconcileRequest(operation_ids=ids))
        known |= {key: result for key, result in zip(ids, answer.results, strict=True) if result.status}
    with replica.file.transaction(durable=True) as sql:
        outbox = Outbox(sql, replica.identity)
        copies = Copies(sql, replica.identity, outbox)
        now = replica.clock.now()
        for entry in outbox.unanswered():
            name = entry.operation.operation_id
            if name and (result := known.get(id_bytes(name))) is not None:
                result.first_status = result.first_status or result.status
                result.status = v1.OPERATION_STATUS_DUPLICATE
                outbox.keep_answers([(entry, result)])
                take_result(sql, outbox, copies, entry, result, now, done)
        for memory_id in outbox.restamp(now // 1000):
            copies.touch(memory_id)
        copies.settle()
        set_meta(sql, forked=None)
    return done


def begin_epoch(replica: Replica, answered: v1.SyncRequest) -> None:
    """Note that the server went back to a backup: what is here is to be given back under the old cursor."""
    with replica.file.transaction(durable=True) as sql:
        if not stands(sql, answered):
            return
        set_meta(sql, reoffer_from=standing(sql))


def reoffer(replica: Replica, remote: RemoteSync, cursor: str) -> int:
    """Give back every copy and every dead id, then go on as a new replica that loads anew. How many of
    them the server did not have."""
    taken = 0
    with replica.file.reading() as sql:
        changes = list(_held(sql, replica))
    for at in range(0, len(changes), MAX_CHANGES):
        page = seal_page(changes[at : at + MAX_CHANGES])
        taken += remote.reoffer(v1.ReofferRequest(last_sync_at=cursor, packed_page=pack(page))).taken_count
    with replica.file.transaction(durable=True) as sql:
        outbox = Outbox(sql, replica.identity)
        outbox.take_replica(ReplicaId(replica.entropy(16)), keep_ids=True)
        set_meta(sql, reoffer_from=None, shown_from=None, reload=1)
    return taken


def _held(sql: sqlite3.Connection, replica: Replica) -> Iterable[tuple[MemoryId, CommitStamp, v1.Change]]:
    subject = replica.identity.subject
    rows = sql.execute(
        "SELECT id, commit_stamp, message, field_stamps FROM rows"
        " WHERE commit_stamp > 0 AND id NOT IN (SELECT id FROM beneath)"
        " UNION ALL SELECT id, commit_stamp, message, field_stamps FROM beneath WHERE message IS NOT NULL"
    )
    for key, commit_stamp, message, field_stamps in rows:
        yield MemoryId(id_text(key)), CommitStamp(commit_stamp), whole(message, field_stamps, subject)
    for (key,) in sql.execute("SELECT id FROM graves"):
        change = v1.Change(kind=v1.CHANGE_KIND_DELETED)
        yield MemoryId(id_text(key)), CommitStamp(0), change


def begin_reload(replica: Replica, answered: v1.SyncRequest | None = None) -> None:
    """Note that everything is to be loaded anew; what is here stays until then."""
    with replica.file.transaction(durable=True) as sql:
        if answered is not None and not stands(sql, answered):
            return
        set_meta(sql, reload=1)


def load(replica: Replica, remote: RemoteSync, report: Report | None = None) -> int:
    """Load everything from a snapshot beside the file, then take it over at once. How many memories; 0 where
    another process did it meanwhile."""
    with locked(_download_path(replica), LOADED_SECONDS):
        with replica.file.reading() as sql:
            if get_meta(sql, "reload") is None:
                return 0
        return _load(replica, remote, report)


def _load(replica: Replica, remote: RemoteSync, report: Report | None) -> int:
    for attempt in range(_ATTEMPTS):
        try:
            last = _download(replica, remote, report)
            break
        except SnapshotGone:
            _forget_download(replica)
            if attempt == _ATTEMPTS - 1:
                raise
    path = _download_path(replica)
    try:
        count = _take_over(replica, path, last)
    except ReplicaDamaged as error:
        if is_whole(path):
            raise
        raise TransferBroken("the snapshot came damaged; it is loaded again next time") from error
    finally:
        path.unlink(missing_ok=True)
        _forget_download(replica)
    return count


def _download_path(replica: Replica) -> Path:
    return replica.file.path.with_name(replica.file.path.name + ".loading")


def _forget_download(replica: Replica) -> None:
    with replica.file.transaction(durable=False) as sql:
        set_meta(sql, resume_token=None, received_bytes=None, received_sum=None)
    _download_path(replica).unlink(missing_ok=True)


def _download(replica: Replica, remote: RemoteSync, report: Report | None) -> v1.SnapshotResponse:
    """Fetch the file, going on behind what an earlier attempt got; the last response."""
    path = _download_path(replica)
    with replica.file.reading() as sql:
        token = get_meta(sql, "resume_token", "")
        first_load = not get_meta(sql, "cursor", "")
    offset, checksum = _received(replica, path) if token else (0, 0)
    request = v1.SnapshotRequest(resume_token=token if offset else "", offset=offset)
    if first_load and not offset:
        request.newest = NEWEST_FIRST
    with path.open("r+b" if offset else "wb") as file:
        file.truncate(offset)
        file.seek(offset)
        received = _Received(replica, file, checksum)
        try:
            for response in remote.snapshot(request):
                if response.newest_page:
                    _show_newest(replica, response)
                if response.total_bytes:
                    received.take(response)
                    if report is not None:
                        report(received.size, response.total_bytes)
        except Exception:
            received.note()  # the next attempt goes on from here
            raise
    last, size = received.last, received.size
    if last is None or size != last.total_bytes:
        received.note()
        raise TransferBroken(f"the snapshot ended behind {size} bytes; it goes on from there next time")
    return last


def _received(replica: Replica, path: Path) -> tuple[int, int]:
    """How many bytes of an earlier attempt are here as they came, and their CRC-32: all that were noted, or
    none. A machine that stops may leave zeros in place of what it wrote last."""
    with replica.file.reading() as sql:
        size, noted = get_meta(sql, "received_bytes", 0), get_meta(sql, "received_sum")
    checksum = 0
    if size and path.exists():
        with path.open("rb") as file:
            left = size
            while left and (piece := file.read(min(left, _PIECE_BYTES))):
                checksum = zlib.crc32(piece, checksum)
                left -= len(piece)
        if checksum == noted:
            return size, checksum
    return 0, 0


class _Received:
    """What came of a snapshot, in ``file``, and how much of it the replica knows to be there."""

    def __init__(self, replica: Replica, file: BinaryIO, checksum: int) -> None:
        self._replica = replica
        self._file = file
        self._checksum = checksum
        self._noted_at = replica.clock.reading()
        self.size = file.tell()
        self.last: v1.SnapshotResponse | None = None
        """The last response that carried a part."""

    def take(self, response: v1.SnapshotResponse) -> None:
        """Take a part, which is noted now and then."""
        if response.chunk and not self._fits(response):
            raise TransferBroken("a part of the snapshot came damaged; it goes on from there next time")
        self._file.write(response.chunk)
        self._checksum = zlib.crc32(response.chunk, self._checksum)
        self.size += len(response.chunk)
        self.last = response
        if self._replica.clock.reading() - self._noted_at >= _NOTED_MICROS:
            self.note()

    def _fits(self, response: v1.SnapshotResponse) -> bool:
        digest = hashlib.sha256(response.chunk).digest()
        return response.offset == self.size and digest == response.chunk_digest

    def note(self) -> None:
        """Note what is here, so that a later attempt goes on behind it."""
        if self.last is None:
            return
        self._file.flush()
        with self._replica.file.transaction(durable=False) as sql:
            token = self.last.resume_token
            set_meta(sql, resume_token=token, received_bytes=self.size, received_sum=self._checksum)
        self._noted_at = self._replica.clock.reading()


def _show_newest(replica: Replica, response: v1.SnapshotResponse) -> None:
    """Show the newest memories of a first load at once; the cursor does not move."""
    changes = open_page(unpack(v1.Page, "newest_page", response.newest_page))
    with replica.file.transaction(durable=False) as sql:
        copies = Copies(sql, replica.identity, Outbox(sql, replica.identity))
        copies.apply_page(changes)
        copies.settle()
        set_meta(sql, shown_from=response.last_sync_at)


def _take_over(replica: Replica, path: Path, last: v1.SnapshotResponse) -> int:
    """Put the loaded rows in place of the copies, with own operations on top, in one transaction."""
    with replica.file.loaded(path), replica.file.transaction(durable=True) as sql:
        outbox = Outbox(sql, replica.identity)
        passed = outbox.passed(last.commit_stamp)
        forgotten = [each for each in passed if each.result is not None and is_forgotten(each.result)]
        outbox.drop(each for each in passed if each not in forgotten)
        buried = [(id_bytes(each.operation.memory_id),) for each in passed if is_burial(each)]
        sql.executemany("INSERT OR IGNORE INTO graves VALUES (?)", buried)
        held = sql.execute(_HELD).fetchall()
        _make_room(sql)
        # A row that is local here was shared by this file once, which then went back in time.
        count = sql.execute(
            "INSERT OR REPLACE INTO rows SELECT id, commit_stamp, created_at, message, field_stamps, NULL"
            " FROM loaded.rows ORDER BY commit_stamp"
        ).rowcount
        (version,) = sql.execute("PRAGMA loaded.user_version").fetchone()
        if version != _SNAPSHOT_VERSION or count != last.row_count:
            raise TransferBroken("the snapshot does not hold what the server said; it is loaded again")
        _forget_vanished(sql, held)
        sql.execute(_REVIVE)
        copies = Copies(sql, replica.identity, outbox)
        for entry in forgotten:
            copies.end_forgotten(entry, replica.clock.now())
        for memory_id in outbox.memory_ids():
            copies.touch(memory_id)
        copies.settle()
        set_meta(sql, cursor=last.last_sync_at, position=last.commit_stamp, shown_from=None, reload=None)
    return count


def _make_room(sql: sqlite3.Connection) -> None:
    """Take out what the loaded rows replace. Their table has no index by id: they are looked through only
    where there are vectors, or memories that never left this device."""
    sql.execute(
        "DELETE FROM vectors WHERE id NOT IN (SELECT old.id FROM rows AS old JOIN loaded.rows AS new"
        " ON old.id = new.id WHERE old.field_stamps = new.field_stamps)"
    )
    shared = "SELECT id FROM rows WHERE commit_stamp < 0 AND +id IN (SELECT id FROM loaded.rows)"
    for (key,) in sql.execute(shared).fetchall():
        keep_apart(sql, key)
    sql.execute("DELETE FROM beneath")
    sql.execute("DELETE FROM rows WHERE commit_stamp >= 0")


def _forget_vanished(sql: sqlite3.Connection, held: Iterable[tuple[bytes]]) -> None:
    """Everything goes about memories that this client held and has no more: deleted, or taken back."""
    here = "SELECT 1 FROM rows WHERE id = ? AND commit_stamp > 0"
    vanished = [row for row in held if sql.execute(here, row).fetchone() is None]
    if vanished:
        must_forget(sql)
    journal.forget(sql, [key for (key,) in vanished])
    for table in ("touches", "counts"):
        sql.executemany(f"DELETE FROM {table} WHERE id = ?", vanished)  # noqa: S608 - fixed names
