"""Synchronizing by itself: at the start, after local writes, and whenever the server has news.

Two threads. One synchronizes and backs off from errors; the other reads the Watch stream, takes small
changes in as they come, and wakes the first one for the rest. A stream that is cut loses nothing.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Protocol, Self

from client_sync.backoff import full_jitter
from client_sync.credentials import CredentialsDamaged, CredentialsMissing
from client_sync.errors import ReplicaClosed, ReplicaDamaged, UpgradeNeeded, Wiped
from client_sync.exchange import nothing_waits
from client_sync.remote_sync import RemoteSync
from client_sync.replica import Replica
from client_sync.sync import Progress, SyncReport, apply_watch, synchronize
from scrubjay import v1
from scrubjay.errors import DeviceRevoked, PrincipalMismatch

FIRST_SECONDS = 0.5
LONGEST_SECONDS = 300.0
STEADY_SECONDS = 60.0
"""A stream that lasted this long was a good one: when it is cut, the waits begin anew from the shortest."""

_CANCELLED_EVERY_SECONDS = 0.1
"""While stopping: a call may begin just behind the last look."""

_FINAL = (
    Wiped,
    UpgradeNeeded,
    ReplicaClosed,
    ReplicaDamaged,
    CredentialsMissing,
    CredentialsDamaged,
    DeviceRevoked,
    PrincipalMismatch,
)
"""Errors that no waiting heals: somebody must act first."""

log = logging.getLogger("client_sync")


class WatchStream(Iterator[v1.WatchResponse], Protocol):
    """A Watch stream. ``close`` ends it, also while another thread waits for its next response."""

    def close(self) -> None: ...


class WatchedRemote(RemoteSync, Protocol):
    """A remote whose calls can be ended from another thread."""

    def watch(self, request: v1.WatchRequest) -> WatchStream: ...

    def cancel(self) -> None:
        """End the calls that go on now, but for streams: they raise ScrubjayError."""


class BackgroundSync:
    """Keeps a replica and a server together from ``start`` until ``stop``; a context manager does both.

    ``on_change`` is called where the replica changed or was heard, ``on_error`` with every error, each in
    one of the threads; what they raise is logged. After an error that no waiting heals both threads end.
    Neither the replica nor the remote is closed.
    ``jitter`` gives 0 to 1; ``wait`` waits for the event that many seconds, and says whether it came.
    """

    def __init__(
        self,
        replica: Replica,
        remote: WatchedRemote,
        *,
        on_change: Callable[[SyncReport], None],
        on_error: Callable[[Exception], None] | None = None,
        jitter: Callable[[], float] = random.random,
        wait: Callable[[threading.Event, float], bool] = threading.Event.wait,
    ) -> None:
        self._replica = replica
        self._remote = remote
        self._on_change = on_change
        self._on_error = on_error or _log
        self._jitter = jitter
        self._wait = wait
        self._wake = threading.Event()
        """There may be something to synchronize."""
        self._asked = threading.Event()
        """There is something for sure: not only a write, which may be on its way already."""
        self._synchronized = threading.Event()
        self._stopping = threading.Event()
        self._reachable = threading.Event()
        """A stream began: the thread that synchronizes need not wait any longer."""
        self._recovered = threading.Event()
        """Synchronizing went well again: the thread that watches need not wait any longer."""
        self._lock = threading.Lock()
        self._stream: WatchStream | None = None
        self._threads = [
            threading.Thread(target=self._keep_synchronized, name="scrubjay-sync", daemon=True),
            threading.Thread(target=self._keep_watching, name="scrubjay-watch", daemon=True),
        ]

    def start(self) -> None:
        """Begin; once."""
        self._replica.on_write(self.wake)
        self._ask()
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """Synchronize soon, as after a write: another program wrote into the replica."""
        self._wake.set()

    def _ask(self) -> None:
        self._asked.set()
        self._wake.set()

    def stop(self) -> None:
        """End stream, calls and both threads. May be called again, and from ``on_change``."""
        self._end()
        for thread in self._threads:
            while thread.is_alive() and thread is not threading.current_thread():
                self._remote.cancel()
                thread.join(_CANCELLED_EVERY_SECONDS)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        """Whether it goes on: started, not stopped, and met no error that ended it."""
        return not self._stopping.is_set() and all(thread.is_alive() for thread in self._threads)

    def _end(self) -> None:
        self._stopping.set()
        for event in (self._wake, self._synchronized, self._reachable, self._recovered):
            event.set()
        with self._lock:
            if self._stream is not None:
                self._stream.close()

    # --- the thread that synchronizes -------------------------------------------------------------

    def _keep_synchronized(self) -> None:
        failures = 0
        while True:
            self._wake.wait()
            self._wake.clear()
            self._reachable.clear()
            if self._stopping.is_set():  # looked at behind the clearing, which may undo what _end set
                return
            if self._synchronize_once():
                if failures:
                    self._recovered.set()
                failures = 0
                continue
            self._ask()
            self._wait(self._reachable, self._delay(failures))
            failures += 1

    def _synchronize_once(self) -> bool:
        """Whether everything was exchanged. A write alone that was taken along meanwhile asks for nothing."""
        asked = self._asked.is_set()
        if asked:
            self._asked.clear()
        try:
            if not asked and nothing_waits(self._replica):
                return True
            report = synchronize(self._replica, self._remote, progress=self._unless_stopping)
        except _Stopped:
            return False
        except Exception as error:
            self._fail(error)
            return False
        self._synchronized.set()
        self._tell(report)
        return report.unsent == 0 and not report.to_forget

    def _unless_stopping(self, _: Progress) -> None:
        if self._stopping.is_set():
            raise _Stopped

    # --- the thread that watches ------------------------------------------------------------------

    def _keep_watching(self) -> None:
        failures = 0
        self._synchronized.wait()  # before, there is no place to watch from
        while True:
            self._recovered.clear()
            if self._stopping.is_set():
                return
            began = time.monotonic()
            try:
                self._watch()
            except Exception as error:
                self._fail(error)
            self._ask()  # in place of the news that nobody brings now
            if time.monotonic() - began >= STEADY_SECONDS:
                failures = 0
            self._wait(self._recovered, self._delay(failures))
            failures += 1

    def _watch(self) -> None:
        request = v1.WatchRequest(last_sync_at=self._replica.status().last_sync_at)
        with self._lock:
            if self._stopping.is_set():
                return
            stream = self._stream = self._remote.watch(request)
        try:
            for number, response in enumerate(stream):
                if number == 0:
                    self._reachable.set()
                self._take(response)
        finally:
            with self._lock:
                self._stream = None
            stream.close()

    def _take(self, response: v1.WatchResponse) -> None:
        report = apply_watch(self._replica, response)
        if report is not None:
            self._tell(report)
        if report is None or report.to_forget or report.unsent:  # maybe of another process
            self._ask()

    # --- both -------------------------------------------------------------------------------------

    def _delay(self, failures: int) -> float:
        return full_jitter(failures, FIRST_SECONDS, LONGEST_SECONDS, self._jitter)

    def _tell(self, report: SyncReport) -> None:
        if not (report.changed or report.pushed or report.refused or report.loaded or report.reoffered):
            return
        try:
            self._on_change(report)
        except Exception as error:
            self._tell_error(error)

    def _fail(self, error: Exception) -> None:
        if self._stopping.is_set():
            return  # what was cut short by stopping
        if isinstance(error, _FINAL):
            self._end()
        self._tell_error(error)

    def _tell_error(self, error: Exception) -> None:
        try:
            self._on_error(error)
        except Exception:
            log.exception("on_error failed")


class _Stopped(Exception):
    """It was told to stop."""


def _log(error: Exception) -> None:
    log.warning("synchronizing failed: %s", error, exc_info=error)
