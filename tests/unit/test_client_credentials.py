"""A device's credentials on disk: whole, private, and changed by one process at a time."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from client_sync.credentials import CredentialsDamaged, CredentialsMissing, DeviceCredentials
from client_sync.errors import ReplicaUnwritable
from client_sync.file_lock import locked
from client_sync.identity import Identity
from scrubjay.memory import ClientId, Micros, Subject

MINE = DeviceCredentials(
    target="memory.example.com:443",
    device_id="d-1",
    client_id=ClientId("phone-电话"),
    token="sj_device_secret",
    expires_at=Micros(1_795_996_800_000_000),
    principal=b"\x00principal"[:8],
    subject=Subject("user", "ann"),
    scopes=("work/alpha", "home"),
)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "device.json"
    saved = MINE.save(path)
    assert DeviceCredentials.load(path) == saved == MINE
    assert DeviceCredentials.load(str(path)).path == saved.path == path
    assert MINE.path is None


def test_they_say_whose_replica_this_is() -> None:
    assert MINE.identity == Identity(MINE.principal, MINE.client_id, MINE.subject, MINE.scopes)


def test_the_next_token_leaves_the_rest_and_its_place_as_they_are(tmp_path: Path) -> None:
    saved = MINE.save(tmp_path / "device.json")
    fresh = saved.refreshed("sj_device_next", Micros(1))
    assert fresh == replace(MINE, token="sj_device_next", expires_at=Micros(1))
    assert fresh.path == saved.path


def test_the_token_is_in_no_text_of_them() -> None:
    assert MINE.token not in f"{MINE} {MINE!r}"


@pytest.mark.parametrize("before", [0o644, 0o660, 0o400, 0o604])
def test_only_its_user_can_read_the_file(tmp_path: Path, before: int) -> None:
    path = tmp_path / "device.json"
    old = os.umask(0)
    try:
        MINE.save(path)
        assert mode(path) == 0o600
        path.chmod(before)
        assert DeviceCredentials.load(path) == MINE
        assert not mode(path) & 0o077
        MINE.save(path)
        assert mode(path) == 0o600
    finally:
        os.umask(old)


def test_a_save_that_fails_leaves_the_old_ones_and_nothing_beside_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "device.json"
    MINE.save(path)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ReplicaUnwritable, match="No space left") as raised:
        MINE.refreshed("sj_device_next", Micros(1)).save(path)
    assert "sj_device" not in str(raised.value)
    assert DeviceCredentials.load(path) == MINE
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_is_on_disk_before_it_takes_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, rename = os.fsync, Path.replace

    def noted_fsync(number: int) -> None:
        steps.append("folder" if stat.S_ISDIR(os.fstat(number).st_mode) else "file")
        fsync(number)

    def noted_replace(source: Path, target: Path) -> Path:
        steps.append("rename")
        return rename(source, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    MINE.save(tmp_path / "device.json")
    assert steps == ["file", "rename", "folder"]


def test_a_device_that_was_not_enrolled_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(CredentialsMissing, match="enrol this device"):
        DeviceCredentials.load(tmp_path / "device.json")


def whole() -> dict[str, object]:
    return {
        "format": 1,
        "target": "t:1",
        "device_id": "d",
        "client_id": "c",
        "token": "sj_device_secret",
        "expires_at": 1,
        "principal": "00" * 8,
        "subject": {"kind": "user", "name": "ann"},
        "scopes": [],
    }


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        *(json.dumps({k: v for k, v in whole().items() if k != missing}).encode() for missing in whole()),
        json.dumps(whole() | {"format": 2}).encode(),
        json.dumps(whole() | {"token": 5}).encode(),
        json.dumps(whole() | {"scopes": [1]}).encode(),
        json.dumps(whole() | {"subject": {"kind": "user"}}).encode(),
        json.dumps(whole() | {"principal": "xyz"}).encode(),
        json.dumps(whole() | {"expires_at": "soon"}).encode(),
    ],
)
def test_a_damaged_file_is_an_error_without_its_secret(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "device.json"
    path.write_bytes(content)
    with pytest.raises(CredentialsDamaged, match="enrol this device again") as raised:
        DeviceCredentials.load(path)
    assert "sj_device" not in str(raised.value)


def test_a_folder_in_its_place_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CredentialsDamaged, match="can't be read"):
        DeviceCredentials.load(tmp_path)
    with pytest.raises(ReplicaUnwritable):
        MINE.save(tmp_path)


# --- the lock ------------------------------------------------------------------------------------


def test_another_process_waits_for_the_lock_and_gives_up_in_time(tmp_path: Path) -> None:
    path = tmp_path / "device.json"
    script = (
        "import sys; from pathlib import Path; from client_sync.file_lock import locked\n"
        "with locked(Path(sys.argv[1]), 20.0): print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(ReplicaUnwritable, match="another program"), locked(path, 0.05):
            pass
        holder.kill()
    with locked(path, 20.0):
        pass


ADD_TEN = """
import sys
from pathlib import Path
from client_sync.credentials import DeviceCredentials; from client_sync.file_lock import locked

def add_ten(path):
    for _ in range(10):
        with locked(path):
            loaded = DeviceCredentials.load(path)
            loaded.refreshed(str(int(loaded.token) + 1), loaded.expires_at).save(path)
"""


def test_no_change_of_several_threads_and_processes_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "device.json"
    MINE.refreshed("0", Micros(1)).save(path)
    script = f"{ADD_TEN}\nadd_ten(Path(sys.argv[1]))"
    processes = [subprocess.Popen([sys.executable, "-c", script, str(path)]) for _ in range(2)]
    names: dict[str, Callable[[Path], None]] = {}
    exec(ADD_TEN, names)
    threads = [threading.Thread(target=names["add_ten"], args=(path,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [process.wait(30) for process in processes] == [0, 0]
    assert DeviceCredentials.load(path).token == "50"
