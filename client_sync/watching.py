"""``sync --watch``: staying with the server, and telling what changes, until somebody ends it."""

from __future__ import annotations

import sqlite3
import threading
from functools import partial
from typing import NoReturn

from client_sync import standing
from client_sync.background import BackgroundSync
from client_sync.device_session import Device
from client_sync.failures import complain, is_silence, note, silence, told
from client_sync.local_memories import LocalMemories
from client_sync.rendering import Tables
from client_sync.replica import Replica
from client_sync.sync import SyncReport
from scrubjay.errors import NotFound, ScrubjayError

MOST_SHOWN = 100
"""Memories of one change that are shown; of more only the numbers are told."""
LOOK_SECONDS = 1.0
"""How often to look for what other programs wrote into the file."""


def watch_replica(device: Device, replica: Replica) -> None:
    """Stay with the server until ctrl-C, or until an error that no waiting heals: that ends the command."""
    teller = _Teller(device, replica)
    with device.remote(budget_seconds=0.0) as remote:
        background = BackgroundSync(replica, remote, on_change=teller.changed, on_error=teller.failed)
        note(f"watching {device.credentials.target}; ctrl-C ends it")
        background.start()
        try:
            _wake_after_other_programs(background, replica)
        except KeyboardInterrupt:
            note("ended")
            return
        finally:
            teller.over = True
            remote.close()  # cuts short what is going on, and what stop would wait for
            background.stop()
    device.asking(replica, teller.raise_last)


def _wake_after_other_programs(background: BackgroundSync, replica: Replica) -> None:
    version, pause = 0, threading.Event()
    while background.running:
        try:
            with replica.file.reading() as sql:
                (now,) = sql.execute("PRAGMA data_version").fetchone()
            if now != version and replica.status().unsent:
                background.wake()
        except sqlite3.ProgrammingError:
            return  # the file was closed and deleted: the device was told to wipe it
        version = now
        pause.wait(LOOK_SECONDS)


class _Teller:
    """Tells what BackgroundSync reports, from its threads."""

    def __init__(self, device: Device, replica: Replica) -> None:
        self.over = False
        self._device = device
        self._replica = replica
        self._memories = LocalMemories(replica)
        self._last: Exception | None = None
        self._said = ""

    def changed(self, report: SyncReport) -> None:
        """Tell what a synchronization did, and show the memories that changed, where they are not many."""
        self._said = ""
        output = self._device.output
        output.tell(standing.report_json(report), standing.summary(report))
        if len(report.changed) > MOST_SHOWN:
            return
        for memory_id in sorted(report.changed):
            try:
                found = self._memories.peek(memory_id)
            except NotFound:
                output.tell({"id": memory_id, "deleted": True}, f"deleted {memory_id}")
            else:
                output.show([found], partial(Tables.memories, rows=[found], header=False))

    def failed(self, error: Exception) -> None:
        """Tell an error, once while it stays the same."""
        self._last = error
        line = self._line(error)
        if line != self._said and not self.over:
            complain(line)
        self._said = line

    def _line(self, error: Exception) -> str:
        target = self._device.credentials.target
        if not isinstance(error, ScrubjayError):
            return str(error)
        if is_silence(error):
            return f"{silence(error, target)}; it is tried again and again"
        return told(error, target)

    def raise_last(self) -> NoReturn:
        """Raise the error that ended it."""
        assert self._last is not None
        raise self._last
