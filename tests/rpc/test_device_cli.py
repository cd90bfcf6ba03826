"""The ``scrubjay`` command on two devices of one user, and a real server that is not always there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rpc.conftest import Serving
from scrubjay import v1
from server.app import App
from server.config import Settings
from tests.running import Ran, runner

Run = Callable[..., Ran]


@pytest.fixture
def backend() -> str:
    """The command speaks to the door: what lies behind it has tests of its own."""
    return "sqlite"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    for name in [name for name in os.environ if name.startswith("SCRUBJAY_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr("client_sync.device_session.BUDGET_SECONDS", 0.0)
    return runner(monkeypatch, capsys)


def enrol(serving: Serving, run: Run, home: Path, client_id: str = "") -> Ran:
    request = v1.CreateEnrolmentRequest(tenant_id="dev", user_id="alice", client_id=client_id)
    code = serving.admin.CreateEnrolment(request).enrolment_code
    return run("--home", str(home), "init", "--server", serving.app.address, "--enrol", code)


def contents(run: Run, home: Path) -> list[str]:
    return sorted(row["content"] for row in run("--home", str(home), "list", "--json").rows)


def test_what_was_written_with_the_server_away_reaches_the_other_device(
    serving: Serving, settings: Settings, run: Run, tmp_path: Path
) -> None:
    serving.dev.add("from the backend")
    phone, laptop = tmp_path / "phone", tmp_path / "laptop"
    for home in (phone, laptop):
        enrolled = enrol(serving, run, home)
        assert (enrolled.code, enrolled.err) == (0, "")
        assert contents(run, home) == ["from the backend"]
    address = serving.app.address
    serving.app.close()

    assert run("--home", str(phone), "add", "written offline", "--tag", "x").code == 0
    assert run("--home", str(phone), "add", "stays here", "--local").code == 0
    away = run("--home", str(phone), "sync")
    assert away.code == 1
    assert "1 change unsent will go with the next sync" in away.err
    (status,) = run("--home", str(phone), "status", "--json").rows
    assert (status["memories"], status["unsent"], status["dead_letters"]) == (3, 1, [])

    with App(settings.model_copy(update={"listen": address})):
        assert run("--home", str(phone), "sync").out.startswith("pushed 1,")
        assert run("--home", str(laptop), "sync").out.startswith("pushed 0, pulled 1,")
    assert contents(run, laptop) == ["from the backend", "written offline"]
    (found,) = run("--home", str(laptop), "search", "written", "--json").rows
    assert (found["local"], found["memory"]["tags"]) == (True, ["x"])


def test_edits_of_two_devices_both_stay_and_a_refused_one_is_told(
    serving: Serving, run: Run, tmp_path: Path
) -> None:
    phone, laptop = tmp_path / "phone", tmp_path / "laptop"
    enrol(serving, run, phone)
    (memory,) = run("--home", str(phone), "add", "tea", "--json").rows
    assert run("--home", str(phone), "sync", "--verify").code == 0
    enrol(serving, run, laptop)
    assert run("--home", str(phone), "update", memory["id"], "--content", "green tea").code == 0
    assert (
        run("--home", str(laptop), "update", memory["id"], "--tag", "drink", "--content", "oolong").code == 0
    )
    assert "conflicts 0" in run("--home", str(phone), "sync").out
    assert "conflicts 1" in run("--home", str(laptop), "sync").out
    assert "pulled 1" in run("--home", str(phone), "sync").out
    rows = [run("--home", str(home), "get", memory["id"], "--json").rows for home in (phone, laptop)]
    assert rows[0] == rows[1]
    assert (rows[0][0]["content"], rows[0][0]["tags"]) == ("oolong", ["drink"])
    told = " ".join(run("--home", str(laptop), "history", memory["id"]).out.split())
    assert "stored over an edit that its author had not seen" in told


def test_a_device_is_restored_from_the_server(serving: Serving, run: Run, tmp_path: Path) -> None:
    phone = tmp_path / "phone"
    enrol(serving, run, phone)
    run("--home", str(phone), "add", "sent")
    run("--home", str(phone), "sync")
    (file,) = phone.glob("*.db")
    file.write_bytes(b"\xff" * file.stat().st_size)
    file.with_name(f"{file.name}-wal").unlink(missing_ok=True)
    ran = run("--home", str(phone), "restore")
    assert ran.code == 0, ran.err
    assert "the file was damaged; kept: 0 unsent" in ran.out
    assert contents(run, phone) == ["sent"]


def test_a_wiped_device_holds_nothing(serving: Serving, run: Run, tmp_path: Path) -> None:
    phone = tmp_path / "phone"
    enrol(serving, run, phone)
    run("--home", str(phone), "add", "secret")
    (status,) = run("--home", str(phone), "status", "--json").rows
    serving.admin.RevokeDevice(
        v1.RevokeDeviceRequest(tenant_id="dev", device_id=status["device_id"], wipe=True)
    )
    assert "told to delete its memories, and did" in run("--home", str(phone), "sync").err
    assert list(phone.iterdir()) == []


def test_a_client_that_is_enrolled_again_has_its_private_memories(
    serving: Serving, run: Run, tmp_path: Path
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    enrol(serving, run, old, "alice-phone")
    run("--home", str(old), "add", "secret", "--private")
    assert run("--home", str(old), "sign-out", "--upload", "--yes").code == 0
    assert list(old.iterdir()) == []
    enrol(serving, run, new, "alice-phone")
    assert contents(run, new) == ["secret"]
