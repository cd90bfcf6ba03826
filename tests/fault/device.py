"""A device in a process of its own: ``python -m tests.fault.device <settings as JSON>``.

It enrols itself where it is new, then does what its standard input says, a word a line, and says on its
standard output when it is ready and when a word is done:

- ``work``: use the app and synchronize, until another word comes; this one has no end to be told of.
- ``write``: use the app a little, and send nothing; says what waits.
- ``try``: do one thing in the app; says what failed.
- ``sync``: synchronize once; says what came of it, or what failed, as a bad network, an unannounced
  restore and a full disk may let it.
- ``list``: says what the app shows.
- ``settle``: synchronize and compare everything with the server, until it answers and nothing waits.
- ``quit``: close the replica and end.

It may be killed and started again at any moment. It ends by itself, with exit code 1 and a traceback, where
the replica or the server breaks a promise.
"""

from __future__ import annotations

import json
import os
import random
import select
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from client_sync import Remote, Replica, SyncReport, TransferBroken, synchronize
from client_sync.background import BackgroundSync
from client_sync.credentials import DeviceCredentials
from client_sync.errors import ReplicaError
from client_sync.remote_sync import RemoteSync
from scrubjay.errors import CursorAhead, DeadlineExceeded, ScrubjayError, ServerBusy, Unavailable
from tests.fault.acknowledged import Log
from tests.fault.device_app import DeviceApp
from tests.fault.relay import Relay

EXPECTED = (Unavailable, DeadlineExceeded, ServerBusy, TransferBroken)
"""What a bad network and a server that dies may cause; everything else is a finding."""
SETTLE_SECONDS = 60.0
_WRITES_AT_ONCE = 25
_INPUT = 0
"""Standard input, read byte by byte: what was said is never in a buffer where ``select`` can't see it."""


@dataclass(frozen=True, slots=True)
class Settings:
    """``folder`` holds everything of the device. ``address`` is where it reaches the server. ``code`` lets
    it in once. ``background``: synchronize in threads of its own, with Watch. ``loads``: may be told to load
    everything anew, which no fault of the network causes."""

    folder: str
    address: str
    code: str
    number: int
    seed: int
    background: bool = False
    deadline_seconds: float = 3.0
    act_seconds: float = 0.05
    forks: bool = False
    loads: bool = False


class Device:
    """An open device, closed by ``stack``."""

    def __init__(self, settings: Settings, stack: ExitStack) -> None:
        self._settings = settings
        self._folder = Path(settings.folder)
        life = _count_lives(self._folder)
        self._chance = random.Random(f"{settings.seed} {settings.number} {life}")
        self._credentials = self._enrolled()
        self._replica = stack.enter_context(self._opened())
        log = stack.enter_context(Log(self._folder / "acknowledged.jsonl"))
        self._app = DeviceApp(self._replica, log, settings.number, self._chance)
        self._remote = stack.enter_context(self._connected())
        self._relay: RemoteSync = Relay(self._remote, self._chance)
        self._was_loaded = bool(self._replica.status().last_sync_at)
        self.broken: list[Exception] = []

    def _enrolled(self) -> DeviceCredentials:
        path = self._folder / "credentials.json"
        if path.exists():
            return DeviceCredentials.load(path)
        installation = self._folder / "installation"
        if not installation.exists():
            installation.write_bytes(os.urandom(16))
        while True:
            try:
                return Remote.register(
                    self._settings.address, self._settings.code, installation_id=installation.read_bytes()
                ).save(path)
            except EXPECTED as error:
                _note(error)

    def _opened(self) -> Replica:
        path = self._folder / "replica.db"
        return Replica.open(path) if path.exists() else Replica.create(path, self._credentials.identity)

    def _connected(self) -> Remote:
        return Remote(
            self._settings.address,
            self._credentials,
            deadline_seconds=self._settings.deadline_seconds,
            budget_seconds=self._settings.deadline_seconds,
        )

    # --- words ------------------------------------------------------------------------------------

    def work(self) -> None:
        """Use the app and synchronize until something comes in on standard input."""
        if not self._settings.background:
            self._work(self._sync_now_and_then)
            return
        with BackgroundSync(
            self._replica, self._remote, on_change=self._judge, on_error=self._heard
        ) as background:
            self._work(lambda: None)
            assert background.running or self.broken, "the background sync ended by itself"

    def _work(self, between: Callable[[], None]) -> None:
        while not self.broken and not select.select([_INPUT], [], [], self._settings.act_seconds)[0]:
            self._app.act()
            between()
        if self.broken:
            raise self.broken[0]

    def write(self) -> dict[str, Any]:
        """Use the app a little."""
        for _ in range(_WRITES_AT_ONCE):
            self._app.act()
        return {"unsent": self._replica.status().unsent}

    def attempt(self) -> dict[str, Any]:
        """Do one thing in the app."""
        try:
            self._app.act()
        except ReplicaError as error:
            return {"error": type(error).__name__, "message": str(error)}
        return {}

    def sync(self) -> dict[str, Any]:
        """Synchronize once."""
        try:
            return self._sync()
        except (*EXPECTED, CursorAhead, ReplicaError) as error:
            _note(error)
            return {"error": type(error).__name__}

    def _sync(self, verify: bool = False) -> dict[str, Any]:
        report = synchronize(self._replica, self._relay, verify=verify)
        self._judge(report)
        return {name: value for name, value in asdict(report).items() if name != "changed"}

    def settle(self) -> dict[str, Any]:
        """Synchronize until nothing waits, and compare everything."""
        ends_at = time.monotonic() + SETTLE_SECONDS
        while True:
            try:
                report = self._sync(verify=True)
            except EXPECTED as error:
                _note(error)
                if time.monotonic() > ends_at:
                    raise
            else:
                if not report["unsent"]:
                    return report
                assert time.monotonic() < ends_at, report

    def list(self) -> dict[str, Any]:
        """What the app shows."""
        return {"texts": [memory.content for memory in self._replica.list(limit=1000)]}

    def _sync_now_and_then(self) -> None:
        if self._chance.random() < 0.15:
            try:
                self._sync(verify=self._chance.random() < 0.3)
            except EXPECTED as error:
                _note(error)

    def _heard(self, error: Exception) -> None:
        if isinstance(error, EXPECTED):
            _note(error)
        else:
            self.broken.append(error)

    def _judge(self, report: SyncReport) -> None:
        """No fault of the network makes a device fork, or finds that its copies are not the server's."""
        if report.forked and not self._settings.forks:
            self.broken.append(AssertionError(f"told to fork: {report}"))
        if report.loaded and self._was_loaded and not self._settings.loads:
            self.broken.append(AssertionError(f"loaded anew: {report}"))
        self._was_loaded = True
        if self.broken:
            raise self.broken[0]


def _count_lives(folder: Path) -> int:
    """How often this device was started before; each life makes its own choices."""
    path = folder / "lives"
    lives = int(path.read_text()) if path.exists() and path.read_text() else 0
    path.write_text(str(lives + 1))
    return lives


def _note(error: Exception) -> None:
    told = error.message if isinstance(error, ScrubjayError) else str(error)
    print(f"{type(error).__name__}: {told}", file=sys.stderr, flush=True)


def _say(word: str, what: dict[str, Any]) -> None:
    print(json.dumps({"done": word} | what), flush=True)


def main() -> None:
    """Run until ``quit``, or the end of standard input."""
    given = json.loads(sys.argv[1])
    settings = Settings(**{each.name: given[each.name] for each in fields(Settings) if each.name in given})
    with ExitStack() as stack:
        words = stack.enter_context(open(_INPUT, "rb", buffering=0, closefd=False))
        device = Device(settings, stack)
        _say("ready", {"life": int((Path(settings.folder) / "lives").read_text())})
        deeds = {
            "write": device.write,
            "try": device.attempt,
            "sync": device.sync,
            "list": device.list,
            "settle": device.settle,
        }
        for line in iter(words.readline, b""):
            word = line.decode().strip()
            if word == "quit":
                return
            if word == "work":
                device.work()
            else:
                _say(word, deeds[word]())


if __name__ == "__main__":
    main()
