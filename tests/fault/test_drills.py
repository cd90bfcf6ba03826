"""The drills: a server that is restored gets back what devices hold, a device that is copied or put back
loses nothing. As a person does them by hand, and again with many writes under way and everything killed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from scrubjay import connect, v1
from scrubjay.memory import PrivacyLevel
from tests.fault.process import ROOT, launch, refused_start
from tests.fault.proxy import CLEAN, Fault, Kind, Way
from tests.fault.sync_place import Place
from tests.sync.held import Held, read_held

DEADLINE_SECONDS = 20


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A server without devices."""
    with ExitStack() as stack:
        yield Place(tmp_path, stack)


@pytest.mark.parametrize("name", ["restore", "clone"])
def test_a_person_can_do_the_drill(name: str) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "deploy" / "drills" / f"{name}.py")],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition."""
    ends_at = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < ends_at, what
        time.sleep(0.05)  # the next look


# --- a server that is restored --------------------------------------------------------------------

RESTORED = {"loads": True, "forks": True}
"""What devices of a restored server may be told to do."""


def heads(data_dir: Path) -> dict[str, int]:
    """How far each shard had come when the server last noted it."""
    found: dict[str, int] = json.loads((data_dir / "heads.json").read_text())
    return found


def begin(place: Place) -> None:
    """Devices with memories that everybody has."""
    for name in ("phone", "laptop", "tablet"):
        place.device(name, **RESTORED)
    for device in place.devices.values():
        device.ask("write")
        device.ask("write")
    place.settle()


def back_up(place: Place, backup: Path) -> None:
    """As deploy/README.md says."""
    assert place.server.stop() == 0
    shutil.copytree(place.data_dir, backup, ignore=shutil.ignore_patterns("heads.json", "lock"))
    place.start_server()


def go_on_and_lose_the_server(place: Place, *, noted: bool) -> dict[str, Held]:
    """Writes that reach the server and others, and some that do not; what each device then holds.

    ``noted``: the server's marks have seen some of it, as they do every few seconds.
    """
    phone, laptop, tablet = place.devices.values()
    before = max(heads(place.data_dir).values())
    for device in (phone, laptop):
        device.ask("write")
        assert "error" not in device.ask("sync")
    assert "error" not in phone.ask("sync")
    if noted:
        until(lambda: max(heads(place.data_dir).values()) > before, "heads.json does not move")
    for device in (phone, laptop):
        device.tell("work")
    tablet.ask("write")
    time.sleep(1)  # a second of work
    place.server.kill()
    for device in (phone, laptop):
        device.ask("write")  # ends the work; nothing of this is sent
    return {name: read_held(device.replica) for name, device in place.devices.items()}


def put_back(place: Place, backup: Path, *, marks: bool) -> None:
    """The backup in the place of the databases; with ``marks`` the file that notices it is still there."""
    for file in place.data_dir.iterdir():
        if file.name != "heads.json" or not marks:
            shutil.rmtree(file) if file.is_dir() else file.unlink()
    shutil.copytree(backup, place.data_dir, dirs_exist_ok=True)


def say_restored(place: Place) -> None:
    """``python -m server restored``."""
    with launch("restored", place.data_dir, place.folder / "restored.log", {}) as process:
        said, _ = process.communicate(timeout=30)
    assert process.returncode == 0, (place.folder / "restored.log").read_text()
    assert "epoch" in said


def check_all_is_back(place: Place, held: dict[str, Held]) -> None:
    """What any device held is there, at least as new, and what any knew dead is dead."""
    place.settle()
    place.quit()
    found = place.judge(history=False)
    dead = {memory_id for each in held.values() for memory_id in each.graves}
    assert not dead & found.rows.keys()
    for name, each in held.items():
        for memory_id, (_, state) in each.copies.items():
            if memory_id in found.graves:
                continue
            assert memory_id in found.rows, f"{memory_id} of {name} is lost"
            standing = found.rows[memory_id][1].stamps
            older = [field for field, stamp in state.stamps.items() if standing[field] < stamp]
            assert not older, f"{memory_id} {older} of {name} is lost"


def test_a_restored_server_gets_back_what_devices_hold(place: Place, tmp_path: Path) -> None:
    begin(place)
    back_up(place, tmp_path / "backup")
    held = go_on_and_lose_the_server(place, noted=True)
    put_back(place, tmp_path / "backup", marks=True)
    code, told = refused_start(place.data_dir)
    assert code == 1
    assert "python -m server restored" in told
    say_restored(place)
    place.start_server()
    check_all_is_back(place, held)


def test_a_restored_server_that_lost_its_marks_is_noticed_by_devices(place: Place, tmp_path: Path) -> None:
    begin(place)
    back_up(place, tmp_path / "backup")
    held = go_on_and_lose_the_server(place, noted=False)
    put_back(place, tmp_path / "backup", marks=False)
    place.start_server()
    before = {name: read_held(device.replica) for name, device in place.devices.items()}
    for name in ("phone", "laptop"):
        assert place.devices[name].ask("sync")["error"] == "CursorAhead"
        after = read_held(place.devices[name].replica)
        assert after.copies.keys() == before[name].copies.keys()
        assert after.unanswered == before[name].unanswered
    assert place.server.stop() == 0
    say_restored(place)
    place.start_server()
    check_all_is_back(place, held)


# --- a device that is copied ----------------------------------------------------------------------


def server_has(place: Place, text: str) -> bool:
    """Whether anybody could be told of this text."""
    with connect(place.server.address, place.service_key) as channel:
        request = v1.ListRequest(user_id="alice", page_size=1000)
        listed = v1.MemoryServiceStub(channel).List(request).memories
    return text in [memory.content for memory in listed]


def texts_never_sent(place: Place, name: str) -> list[str]:
    """Texts of shared memories that wait in the outbox of a device."""
    held = read_held(place.devices[name].replica)
    waiting = {queued.memory_id for queued in held.outbox}
    return [
        state.memory.content
        for memory_id, state in held.shown.items()
        if memory_id in waiting and state.memory.privacy_level is PrivacyLevel.SHARED
    ]


def send_and_hear_nothing(place: Place, name: str) -> None:
    """The device's next batch reaches the server; its answer does not come."""
    texts, line = texts_never_sent(place, name), place.lines[name]
    line.plan = lambda _: Fault(Kind.HALF_OPEN, Way.DOWN, after_bytes=150)
    line.cut()
    assert place.devices[name].ask("sync")["error"]
    assert any(server_has(place, text) for text in texts)
    assert read_held(place.devices[name].replica).unanswered
    line.plan = lambda _: CLEAN
    line.cut()


def test_a_copied_device_loses_nothing_in_either_file(place: Place) -> None:
    phone = place.device("phone", forks=True)
    place.device("laptop")
    phone.ask("write")
    place.settle()
    phone.ask("write")
    send_and_hear_nothing(place, "phone")
    phone.ask("write")
    phone.kill()
    shutil.copytree(place.folder / "phone", place.folder / "copy")
    place.put("phone", **without_folder(phone.settings))
    copy = place.put("copy", **without_folder(phone.settings) | {"seed": 99})
    for device in (place.devices["phone"], copy):
        assert device.ask("write")["unsent"]
    told = place.settle()
    assert [one["forked"] for one in told].count(True) == 1
    for device in place.devices.values():
        device.ask("write")
    assert not any(one["forked"] for one in place.settle())
    place.quit()
    place.judge()


def test_a_device_that_is_put_back_loses_nothing_the_server_has(place: Place) -> None:
    phone = place.device("phone", forks=True)
    place.device("laptop")
    phone.ask("write")
    place.settle()
    phone.ask("write")
    send_and_hear_nothing(place, "phone")
    phone.kill()
    shutil.copytree(phone.folder, place.folder / "yesterday")
    phone.start()
    phone.ask("write")
    place.settle()
    phone.quit()
    local: set[str] = set(read_held(phone.replica).local)
    for file in phone.folder.glob("replica.db*"):
        file.unlink()
    for file in (place.folder / "yesterday").glob("replica.db*"):
        shutil.copy(file, phone.folder)
    local -= read_held(phone.replica).local
    phone.start()
    phone.ask("write")
    told = place.settle()
    assert [one["forked"] for one in told].count(True) == 1
    place.quit()
    forget(phone.folder / "acknowledged.jsonl", local)
    place.judge()


def without_folder(settings: dict[str, object]) -> dict[str, object]:
    """A device's settings for another folder."""
    return {name: value for name, value in settings.items() if name != "folder"}


def forget(log: Path, memory_ids: set[str]) -> None:
    """Take out of a log what was in a file alone that is no more."""
    lines = [line for line in log.read_text().splitlines() if not any(each in line for each in memory_ids)]
    log.write_text("\n".join(lines) + "\n")
