"""A device's file under what a machine does to it: two processes at once, a full disk, no right to write,
an end in the middle. The app hears what is wrong in clear words, and what it was told is saved is saved."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from client_sync import Replica, ReplicaClosed
from client_sync.identity import Identity
from scrubjay.memory import ClientId, Subject
from tests.fault import served, verdict
from tests.fault.device_process import DeviceProcess
from tests.fault.process import ROOT
from tests.fault.sync_place import Place
from tests.sync.held import read_held

PHONE = Identity(b"principa", ClientId("phone"), Subject("user", "alice"))
WORK_SECONDS = 1.5


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A server without devices."""
    with ExitStack() as stack:
        yield Place(tmp_path, stack)


# --- two processes --------------------------------------------------------------------------------


def another_process(app: DeviceProcess) -> DeviceProcess:
    """A process on the same file that synchronizes between its writes, as a command does."""
    settings = {name: value for name, value in app.settings.items() if name != "folder"}
    return DeviceProcess(app.folder, **{**settings, "seed": 5, "background": False})


def test_two_processes_on_one_file_both_write_and_one_keeps_it_in_step(place: Place) -> None:
    app = place.device("phone", background=True)
    place.device("laptop", background=True)
    command = another_process(app)
    with ExitStack() as stack:
        stack.callback(command.close)
        command.start()
        command.wait("ready")
        for device in place.devices.values():
            device.tell("work")
        command.tell("work")
        time.sleep(WORK_SECONDS)  # both write meanwhile
        app.kill()
        time.sleep(WORK_SECONDS)  # both write meanwhile
        command.check()
        app.start()
        app.tell("work")
        command.kill()
        time.sleep(WORK_SECONDS)  # both write meanwhile
        command.start()
        assert command.ask("write")
        command.quit()
    place.settle()
    place.quit()
    found = served.of_files(place.data_dir)
    devices = place.judged()
    verdict.convergence(found, devices)
    verdict.nothing_told_is_lost(found, devices)
    verdict.no_resurrection(found, devices)
    verdict.counters_exact(found, devices)
    assert len(found.rows) > 10


def test_what_another_process_wrote_is_sent_by_the_one_that_syncs(place: Place) -> None:
    app = place.device("phone", background=True)
    app.tell("work")
    command = another_process(app)
    with ExitStack() as stack:
        stack.callback(command.close)
        command.start()
        command.wait("ready")
        command.ask("write")
        command.quit()
    ends_at = time.monotonic() + 20
    while read_held(app.replica).unanswered > 3:  # its own newest writes
        assert time.monotonic() < ends_at
        time.sleep(0.1)  # the next look
    app.ask("settle")
    place.quit()
    place.judge()


# --- a disk that is full --------------------------------------------------------------------------


@contextmanager
def full_disk(device: DeviceProcess) -> Iterator[None]:
    """No file of the device's process may grow for the block."""
    soft, hard = resource.prlimit(device.pid, resource.RLIMIT_FSIZE)
    largest = max(file.stat().st_size for file in device.folder.iterdir())
    resource.prlimit(device.pid, resource.RLIMIT_FSIZE, (largest, hard))
    try:
        yield
    finally:
        resource.prlimit(device.pid, resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_refuses_writes_in_clear_words_and_loses_nothing(place: Place) -> None:
    phone = place.device("phone")
    place.device("laptop")
    phone.ask("write")
    place.settle()
    phone.ask("write")
    with full_disk(phone):
        told: dict[str, str] = {}
        for _ in range(2000):
            told = phone.ask("try")
            if told:
                break
        assert told["error"] == "ReplicaUnwritable"
        assert str(phone.replica) in told["message"]
        assert "nothing was saved" in told["message"]
        assert phone.ask("list")["texts"]
        assert phone.ask("sync")["error"] == "ReplicaUnwritable"
    phone.ask("write")
    place.settle()
    place.quit()
    place.judge()


# --- a file that may not be written ---------------------------------------------------------------

_AS_NOBODY = """
import os, sys
from client_sync import Replica, ReplicaError
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    with Replica.open(sys.argv[1]) as replica:
        print([memory.content for memory in replica.list()])
        replica.add("too much")
except ReplicaError as error:
    print(type(error).__name__, error)
"""


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that every user gets to; those of pytest are one user's own."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_a_file_that_may_only_be_read_is_said_to_be_so_and_stays_as_it_is(reachable: Path) -> None:
    path = reachable / "alice.db"
    with Replica.create(path, PHONE) as replica:
        replica.add("tea")
    before = path.read_bytes()
    path.chmod(0o444)
    told = subprocess.run(
        [sys.executable, "-c", _AS_NOBODY, str(path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "proto")])},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert told.stderr == ""
    assert "ReplicaUnwritable" in told.stdout
    assert str(path) in told.stdout
    assert path.read_bytes() == before
    path.chmod(0o600)
    with Replica.open(path) as replica:
        assert [memory.content for memory in replica.list()] == ["tea"]


# --- an end in the middle -------------------------------------------------------------------------


def test_a_replica_that_is_closed_in_the_middle_keeps_what_it_said_is_saved(tmp_path: Path) -> None:
    path = tmp_path / "alice.db"
    told: list[str] = []
    errors: list[Exception] = []
    replica = Replica.create(path, PHONE)

    def write() -> None:
        try:
            while True:
                told.append(replica.add(f"memory of {threading.get_ident()}").id)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    while len(told) < 20:
        time.sleep(0.001)  # the next look
    replica.close()
    for thread in threads:
        thread.join()
    assert len(errors) == 4
    assert {type(error) for error in errors} == {ReplicaClosed}
    with Replica.open(path) as again:
        assert {memory.id for memory in again.list(limit=1000)} == set(told)


def test_a_file_that_is_taken_away_and_put_back_under_an_app_loses_nothing(place: Place) -> None:
    phone = place.device("phone")
    phone.ask("write")
    phone.kill()
    shutil.copytree(phone.folder, place.folder / "moved")
    shutil.rmtree(phone.folder)
    shutil.copytree(place.folder / "moved", phone.folder)
    phone.start()
    phone.ask("write")
    place.settle()
    place.quit()
    place.judge()
