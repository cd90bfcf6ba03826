"""Devices and a server in processes of their own, on a bad network, killed and paused at any moment.

``python -m tests.fault.sync_storm --seconds 120 --clients 8 --seed 7`` runs one storm and says what it saw.
The seed makes every choice again; which of them meet in time is up to the machine.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scrubjay import connect, v1
from tests.fault import served, verdict
from tests.fault.device_process import DeviceProcess
from tests.fault.process import ServerProcess
from tests.fault.proxy import Line, Proxy, Way, seeded
from tests.fault.served import Served
from tests.fault.verdict import Judged

USER = "alice"
BEGIN_SECONDS = 90.0
"""Until every device has come in and written something, on a machine that does much else."""
ROUNDS = 3
"""Until everybody has everything: push, pull what others pushed, and once to see that nothing moves."""


@dataclass
class Seen:
    """What a storm did, for people."""

    faults: Counter[str] = field(default_factory=Counter)
    connections: int = 0
    wire_bytes: int = 0
    writes: int = 0
    memories: int = 0
    graves: int = 0
    dead_letters: int = 0

    def __str__(self) -> str:
        faults = ", ".join(f"{count} {name}" for name, count in sorted(self.faults.items()))
        return (
            f"{faults}; {self.connections} connections, {self.wire_bytes / 1e6:.1f} MB; {self.writes} writes,"
            f" {self.memories} memories and {self.graves} graves at the end, {self.dead_letters} refused"
        )


def enrolment(server: ServerProcess, admin_key: str, **who: object) -> str:
    """A code that lets one device in."""
    with connect(server.address, admin_key) as channel:
        request = v1.CreateEnrolmentRequest(tenant_id="dev", user_id=USER, **who)  # type: ignore[arg-type]  # by name
        return v1.TenantAdminServiceStub(channel).CreateEnrolment(request).enrolment_code


class Storm:
    """Devices at work on one user's memories through faulty lines. The last device sees the scope work alone.

    ``settings`` are the server's.
    """

    def __init__(self, folder: Path, clients: int, seed: int, stack: ExitStack, **settings: str) -> None:
        self._data_dir = folder / "data"
        self._settings = settings
        self._chance = random.Random(seed)
        self._stack = stack
        self.seen = Seen()
        self._server = self._started()
        self._service_key, admin_key = self._server.service_key, self._server.admin_key
        self._proxy = stack.enter_context(Proxy(self._server.address, folder / "wire"))
        self._lines: list[Line] = []
        self._devices: list[DeviceProcess] = []
        for number in range(clients):
            scopes = ["work"] if number == clients - 1 else []
            line = self._proxy.line(f"device-{number}", seeded(seed, f"device-{number}"))
            device = DeviceProcess(
                folder / line.name,
                address=line.address,
                code=enrolment(self._server, admin_key, scopes=scopes),
                number=number,
                seed=seed,
                background=number % 2 == 1,
            )
            stack.callback(device.close)
            self._lines.append(line)
            self._devices.append(device)

    def _started(self) -> ServerProcess:
        server = ServerProcess(self._data_dir, **self._settings)
        self._stack.callback(server.close)
        return server

    def rage(self, seconds: float) -> None:
        """Faults of every kind, until all devices have been at work for these seconds."""
        for device in self._devices:
            self._launch(device)
        begun_by = time.monotonic() + BEGIN_SECONDS
        while not all(device.wrote for device in self._devices):
            assert time.monotonic() < begun_by, "a device never came to write anything"
            self._do_harm()
        ends_at = time.monotonic() + seconds
        while time.monotonic() < ends_at:
            self._do_harm()

    def _do_harm(self) -> None:
        deeds: list[tuple[Callable[[], None], int]] = [
            (self._kill_server, 3),
            (self._pause_server, 3),
            (self._kill_device, 5),
            (self._pause_device, 4),
            (self._cut_everybody, 2),
        ]
        choices, weights = zip(*deeds, strict=True)
        time.sleep(self._chance.uniform(0.3, 1.5))  # the time between two faults
        for device in self._devices:
            device.check()
        self._chance.choices(choices, weights)[0]()

    def _launch(self, device: DeviceProcess) -> None:
        device.start()
        device.tell("work")

    def _kill_server(self) -> None:
        self.seen.faults["server killed"] += 1
        self._server.kill()
        time.sleep(self._chance.choice([0, 0, 0.5, 2]))  # how long the fault lasts
        self._server = self._started()
        self._proxy.target = self._server.address

    def _pause_server(self) -> None:
        self.seen.faults["server paused"] += 1
        self._server.pause()
        time.sleep(self._chance.uniform(0.1, 1.5))  # how long the fault lasts
        self._server.resume()

    def _kill_device(self) -> None:
        self.seen.faults["device killed"] += 1
        device = self._chance.choice(self._devices)
        device.kill()
        self._launch(device)

    def _pause_device(self) -> None:
        self.seen.faults["device paused"] += 1
        device = self._chance.choice(self._devices)
        device.signal(signal.SIGSTOP)
        time.sleep(self._chance.uniform(0.1, 1.5))  # how long the fault lasts
        device.signal(signal.SIGCONT)

    def _cut_everybody(self) -> None:
        self.seen.faults["all cut"] += 1
        for line in self._lines:
            line.cut()

    def calm(self) -> None:
        """Faults end, everybody synchronizes, and some devices are killed while others close properly."""
        self._proxy.heal()
        for _ in range(ROUNDS):
            for device in self._devices:
                device.tell("settle")
            for device in self._devices:
                device.wait("settle")
        for number, device in enumerate(self._devices):
            device.kill() if number % 3 == 0 else device.quit()

    def judge(self, read: Callable[[], Served]) -> None:
        """AssertionError where a promise was broken."""
        devices = [
            Judged(device.folder, device.log, number, line.passed(Way.DOWN), line.passed(Way.UP))
            for number, (device, line) in enumerate(zip(self._devices, self._lines, strict=True))
        ]
        for device in devices:
            self._check_answers(device)
        assert self._server.stop() == 0
        found = read()
        self._count(found, devices)
        verdict.convergence(found, devices)
        verdict.nothing_told_is_lost(found, devices)
        verdict.no_resurrection(found, devices)
        verdict.counters_exact(found, devices)
        logs = [self._server.log, *(device.log for device in devices)]
        verdict.no_canary_where_it_must_not_be(devices, logs)
        verdict.retraction_complete(found, devices)

    def _check_answers(self, device: Judged) -> None:
        """What the server tells this client of everything, by List, Search and History."""
        client_id = str(device.credentials.client_id)
        with connect(self._server.address, self._service_key, client_id=client_id) as channel:
            for data in _told(v1.MemoryServiceStub(channel)):
                leaked = verdict.marks_others_may_not_see(data, device.number)
                assert not leaked, f"an answer to {device.folder.name}: {leaked}"

    def _count(self, found: Served, devices: list[Judged]) -> None:
        self.seen.connections = sum(line.connections for line in self._lines)
        self.seen.wire_bytes = sum(line.bytes_passed(way) for line in self._lines for way in Way)
        self.seen.writes = sum(len(writes) for device in devices for writes in device.told.values())
        self.seen.memories, self.seen.graves = len(found.rows), len(found.graves)
        self.seen.dead_letters = sum(len(device.held.dead_letters) for device in devices)


def _told(memories: v1.MemoryServiceStub) -> Iterator[bytes]:
    searching = v1.SearchRequest(user_id=USER, query="tea violin harbour", top_k=200)
    yield memories.Search(searching).SerializeToString()
    yield from _pages(memories.List, v1.ListRequest(user_id=USER, page_size=500))
    yield from _pages(memories.History, v1.HistoryRequest(user_id=USER, page_size=500))


def _pages(method: Callable[[Any], Any], request: Any) -> Iterator[bytes]:
    more = True
    while more:
        page = method(request)
        yield page.SerializeToString()
        request.page_token = page.next_page_token
        more = bool(request.page_token)


def run(
    folder: Path,
    seconds: float,
    clients: int,
    seed: int,
    read: Callable[[], Served] | None = None,
    **settings: str,
) -> Seen:
    """One storm and its verdict. ``read`` says what the server's database holds; the files, without it."""
    with ExitStack() as stack:
        storm = Storm(folder, clients, seed, stack, **settings)
        storm.rage(seconds)
        storm.calm()
        storm.judge(read or (lambda: served.of_files(folder / "data")))
        return storm.seen


def main() -> None:
    """Run one storm; exit code 1 and everything kept where a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="scrubjay-storm-"))
    print(f"seed {given.seed}; everything is kept in {folder} where a promise is broken", flush=True)
    try:
        print(run(folder, given.seconds, given.clients, given.seed))
    except AssertionError as error:
        sys.exit(f"broken: {error}")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
