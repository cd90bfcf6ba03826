"""The ``scrubjay`` command on a device: offline, and against a server that takes what comes."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import Parse

from client_sync import Replica, progress
from client_sync.home import Home
from client_sync.sync import Progress
from scrubjay import v1
from scrubjay.errors import DeviceRevoked, StorageUnavailable
from scrubjay.operation import Operation
from tests.device_server import DeviceServer, device_server
from tests.running import Ran, runner

ID = "01939f2e-7a00-7000-8000-000000000001"
Run = Callable[..., Ran]


@pytest.fixture(scope="module")
def running() -> Iterator[DeviceServer]:
    with device_server() as server:
        yield server


@pytest.fixture
def server(running: DeviceServer) -> DeviceServer:
    fresh = DeviceServer(target=running.target)
    for name, value in vars(fresh).items():
        if name != "changed":  # a stream that is just ending may wait for it
            setattr(running, name, value)
    return running


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("SCRUBJAY_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SCRUBJAY_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def run(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(monkeypatch, capsys)


@pytest.fixture
def device(server: DeviceServer, run: Run) -> DeviceServer:
    """The server of a device that is enrolled and has loaded what there is: nothing."""
    assert enrol(server, run).code == 0
    return server


def enrol(server: DeviceServer, run: Run, code: str = "code-ann", *options: str) -> Ran:
    return run("init", "--server", server.target, "--enrol", code, *options)


def added(run: Run, text: str, *options: str) -> str:
    (row,) = run("add", text, "--json", *options).rows
    return str(row["id"])


def file_of(home: Path, user: str = "ann") -> Path:
    (path,) = [path for path in home.glob("*.db") if owner_of(path) == user]
    return path


def owner_of(path: Path) -> str:
    with Replica.open(path) as replica:
        return replica.identity.subject.name


def rejecting(reason: str) -> Callable[[Operation], v1.OperationResult]:
    return lambda _: v1.OperationResult(status=v1.OPERATION_STATUS_REJECTED, reason=reason)


# --- enrolling -----------------------------------------------------------------------------------


def test_init_registers_the_device_and_loads_what_there_is(
    server: DeviceServer, run: Run, home: Path
) -> None:
    server.put("likes tea")
    ran = enrol(server, run, "code-ann", "--name", "Ann's phone")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == (
        f"enrolled as phone, user ann, at {server.target}\n"
        "pushed 0, pulled 1, refused 0, conflicts 0, unsent 0\n"
    )
    (request,) = server.registered
    assert (request.display_name, len(request.installation_id)) == ("Ann's phone", 16)
    assert [row["content"] for row in run("list", "--json").rows] == ["likes tea"]


def test_the_home_is_its_users_alone(device: DeviceServer, home: Path) -> None:
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in home.glob("*") if path.suffix != ".lock"} == {0o600}


def test_enrolling_again_keeps_what_was_never_sent(device: DeviceServer, run: Run) -> None:
    added(run, "never sent")
    assert enrol(device, run).out.endswith("pushed 1, pulled 1, refused 0, conflicts 0, unsent 0\n")
    assert device.contents == {"never sent"}
    first, second = device.registered
    assert first.installation_id == second.installation_id


def test_another_account_gets_a_file_of_its_own(device: DeviceServer, run: Run, home: Path) -> None:
    added(run, "ann's secret")
    device.rows.clear()
    ran = enrol(device, run, "code-bob")
    assert ran.code == 0
    assert "what ann has here stays in" in ran.err
    assert "with 1 change unsent; enrol as phone again" in ran.err
    assert run("list", "--json").rows == []
    assert device.contents == set()
    assert run("status", "--json").rows[0]["other_files"] == [str(file_of(home))]
    assert enrol(device, run).code == 0
    assert device.contents == {"ann's secret"}


def test_other_scopes_are_loaded_anew(device: DeviceServer, run: Run, home: Path) -> None:
    with Replica.open(file_of(home)) as replica:
        identity = replica.identity
    narrower = type(identity)(identity.principal, identity.client_id, identity.subject, ("work",))
    with Home(home).open_replica(narrower) as replica:
        assert replica.identity.scopes == ("work",)
    assert "loaded anew" in run("sync").out


def test_a_wrong_code_is_a_line(server: DeviceServer, run: Run) -> None:
    ran = enrol(server, run, "code-eve")
    assert ran == Ran(
        1, "", "error: the enrolment code is unknown, was used, or has ended; ask for a new one\n"
    )
    assert run("status").code == 1


@pytest.mark.parametrize("command", ["sync", "status", "dead-letters", "restore", "sign-out"])
def test_without_a_device_a_command_says_how_to_make_one(run: Run, home: Path, command: str) -> None:
    ran = run(command, *(["--keep"] if command == "sign-out" else []))
    assert ran.code == 1
    assert ran.err == (
        f"error: there is no device in {home}; make one with"
        " 'scrubjay init --server HOST:PORT --enrol CODE'\n"
    )


def test_without_a_device_and_a_key_both_ways_are_told(run: Run) -> None:
    ran = run("list")
    told = " ".join(ran.err.replace("│", " ").split())
    assert ran.code == 2
    assert "SCRUBJAY_API_KEY" in told
    assert "scrubjay init" in told


# --- memories, with no server --------------------------------------------------------------------


def test_add_and_list_ask_no_server(device: DeviceServer, run: Run) -> None:
    asked = len(device.synced)
    ran = run(
        *("add", "喜欢绿茶", "likes coffee", "--scope", "home/kitchen", "--category", "PREFERENCE"),
        *("--tag", "x", "--meta", "age=5", "--private", "--agent", "a", "--at", "2026-11-30T08:00Z"),
    )
    assert (ran.code, ran.err) == (0, "")
    assert "喜欢绿茶" in ran.out
    first, second = run("list", "--json").rows
    assert {first["content"], second["content"]} == {"喜欢绿茶", "likes coffee"}
    assert first.keys() == {
        *("id", "user_id", "agent_id", "scope", "category", "content", "tags", "metadata", "source"),
        *("confidence", "privacy_level", "created_at", "updated_at", "owner_client_id"),
    }
    assert (first["user_id"], first["privacy_level"]) == ("ann", "PRIVACY_LEVEL_PRIVATE")
    assert first["created_at"] == "2026-11-30T08:00:00Z"
    assert len(device.synced) == asked


def test_add_tells_which_texts_were_refused(device: DeviceServer, run: Run) -> None:
    ran = run("add", "tea", "x" * 20_000, "--json")
    assert ran.code == 1
    assert [row["content"] for row in ran.rows] == ["tea"]
    assert ran.err.startswith("error: 'xxx")
    assert "was not stored: content: has 20000 bytes" in ran.err
    taken = added(run, "mine")
    assert "is taken or was deleted" in run("add", "again", "--id", taken).err


def test_add_says_of_every_text_that_a_file_can_not_be_written(
    device: DeviceServer, run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("client_sync.replica_file.BUSY_SECONDS", 0)
    holder = sqlite3.connect(file_of(home), isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    ran = run("add", "tea", "coffee")
    holder.close()
    assert ran.code == 1
    assert [line.count("can't be written now") for line in ran.err.splitlines()] == [1, 1]


def test_a_search_is_by_words_and_says_so(device: DeviceServer, run: Run) -> None:
    added(run, "likes green tea", "--scope", "home")
    added(run, "likes coffee", "--scope", "work")
    (hit,) = run("search", "green tea", "--json", "--explain").rows
    assert hit["local"] is True
    assert hit["memory"]["content"] == "likes green tea"
    assert (
        hit["explanation"]["sentence"] == "It shares green, tea with the query, 100% of its words by weight."
    )
    shown = " ".join(run("search", "likes", "--scope", "work", "--explain").out.split())
    assert "1.000" in shown
    assert "likes coffee" in shown
    assert "tea" not in shown
    past = run("search", "tea", "--as-of", "2026-11-30")
    assert past.code == 1
    assert "a device searches what it holds now" in past.err
    refused = run("search", "tea", "--recipe", "semantic")
    assert refused.code == 1
    assert "a device searches by words" in refused.err


def test_a_device_undoes_nothing(device: DeviceServer, run: Run) -> None:
    memory_id = added(run, "likes tea")
    refused = run("undo", memory_id)
    assert refused.code == 1
    assert "undo it on a server" in refused.err


def test_list_narrows_and_goes_through_the_pages(device: DeviceServer, run: Run) -> None:
    lines = "\n".join(f"fact {number}" for number in range(230))
    assert run("add", "-", "--agent", "a", stdin=lines).code == 0
    added(run, "a task", "--category", "TASK", "--tag", "urgent")
    assert len(run("list", "--json").rows) == 231
    assert len(run("list", "--json", "--limit", "120").rows) == 120
    assert len(run("list", "--json", "--agent", "a").rows) == 230
    found = run("list", "--json", "--where", "category = TASK", "--where", "tags contains urgent").rows
    assert [row["content"] for row in found] == ["a task"]
    shown = run("list").out.splitlines()
    assert [line.split() for line in shown if "when" in line] == [["when", "memory"]]


def test_update_changes_what_is_named(device: DeviceServer, run: Run) -> None:
    memory_id = added(run, "likes tea", "--tag", "a", "--tag", "b", "--meta", "x=1", "--meta", "y=2")
    ran = run(
        *("update", memory_id, "--content", "likes coffee", "--tag", "c", "--untag", "a"),
        *("--unset", "metadata", "--meta", "z=3"),
    )
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[0] == "content: stored"
    (row,) = run("get", memory_id, "--json").rows
    assert (row["content"], row["tags"], row["metadata"]) == ("likes coffee", ["b", "c"], {"z": 3.0})
    assert run("update", memory_id, "--unset", "created_at").err == (
        "error: created_at: is no field to write\n"
    )
    assert "is for a server" in run("update", memory_id, "--content", "x", "--etag", "e").err


def test_what_is_deleted_is_gone(device: DeviceServer, run: Run) -> None:
    memory_id = added(run, "tea")
    assert run("delete", memory_id).out == f"deleted {memory_id}\n"
    assert run("get", memory_id).err == f"error: memory {memory_id} was deleted; add a new one instead\n"
    assert run("get", ID).err == f"error: no memory {ID}\n"


def test_history_is_told_in_plain_words(device: DeviceServer, run: Run) -> None:
    memory_id = added(run, "likes tea", "--category", "TASK")
    run("update", memory_id, "--content", "likes coffee", "--meta", "age=6")
    run("sync")
    theirs = device.put("from the web")
    run("sync")
    device.edit(theirs, "from the tablet")
    run("sync")
    other = added(run, "another")
    run("delete", other)
    of_one = " ".join(run("history", memory_id).out.split())
    for told in ("phone", "added", "category: TASK", "content: likes tea → likes coffee", "metadata.age: 6"):
        assert told in of_one
    assert "privacy_level" not in of_one
    of_all = run("history", "--json", "--limit", "3").rows
    assert [(row["memory_id"], row["kind"]) for row in of_all] == [
        (other, "OPERATION_KIND_DELETE"),
        (other, "OPERATION_KIND_CREATE"),
        (theirs, "OPERATION_KIND_SET"),
    ]
    of_theirs = " ".join(run("history", theirs).out.split())
    assert "elsewhere" in of_theirs
    assert "content: from the web → from the tablet" in of_theirs
    assert run("history", ID).err == f"error: no memory {ID}\n"
    assert run("history", "no id").err == "error: no memory no id\n"
    assert "does not keep that one's history" in run("history", "--agent", "a").err


def test_another_users_memories_are_not_on_this_device(device: DeviceServer, run: Run) -> None:
    assert run("list", "--user", "ann").code == 0
    for command in (("list",), ("search", "tea"), ("add", "tea"), ("history",)):
        ran = run(*command, "--user", "bob")
        assert ran.code == 1
        assert "user_id: is 'bob'; this device holds memories of user 'ann' alone" in ran.err


def test_what_is_local_never_leaves(device: DeviceServer, run: Run) -> None:
    memory_id = added(run, "zq-secret", "--local")
    run("update", memory_id, "--meta", "more=zq-secret")
    added(run, "not secret")
    assert run("sync").out.startswith("pushed 1,")
    assert not any(b"zq-secret" in request.SerializeToString() for request in device.synced)
    assert device.contents == {"not secret"}
    assert "on this device only" in " ".join(run("list").out.split())
    (row,) = run("get", memory_id, "--json").rows
    assert row["privacy_level"] == "PRIVACY_LEVEL_LOCAL_ONLY"


def test_local_is_not_sent_to_a_server(device: DeviceServer, run: Run) -> None:
    ran = run("add", "secret", "--local", "--api-key", "k", "--server", device.target)
    assert ran.code == 2
    assert "--local" in ran.err
    assert run("add", "secret", "--local", "--private").code == 2


def test_with_an_api_key_the_server_is_asked(device: DeviceServer, run: Run) -> None:
    added(run, "on the device")
    ran = run("list", "--api-key", "k", "--server", device.target)
    assert ran.code == 1
    assert "MemoryService" in ran.err or "Method not found" in ran.err


# --- synchronizing -------------------------------------------------------------------------------


def test_sync_brings_both_together(device: DeviceServer, run: Run) -> None:
    mine = added(run, "mine")
    theirs = device.put("theirs")
    (report,) = run("sync", "--json").rows
    assert (report["pushed"], report["pulled"], report["unsent"], report["loaded"]) == (1, 2, 0, False)
    device.remove(theirs)
    assert run("sync").out == "pushed 0, pulled 1, refused 0, conflicts 0, unsent 0\n"
    assert [row["id"] for row in run("list", "--json").rows] == [mine]


def test_what_the_server_refuses_is_a_dead_letter_with_its_reason(device: DeviceServer, run: Run) -> None:
    device.judge = rejecting("content: too rude")
    memory_id = added(run, "rude")
    ran = run("sync")
    assert ran.code == 0
    assert ran.err == "1 change refused for good: 'scrubjay dead-letters' says why\n"
    (status,) = run("status", "--json").rows
    (letter,) = status["dead_letters"]
    assert (letter["kind"], letter["memory_id"], letter["reason"], letter["content"]) == (
        *("add", memory_id),
        *("content: too rude", "rude"),
    )
    for command in ("status", "dead-letters"):
        assert "content: too rude" in " ".join(run(command).out.split())
    assert run("dead-letters", "--discard", "77").code == 2
    assert run("dead-letters", "--discard", str(letter["number"])).out == "nothing is refused\n"
    assert run("dead-letters", "--json").rows == []


def test_a_refused_change_is_told_by_field(device: DeviceServer, run: Run) -> None:
    memory_id = added(run, "tea")
    run("sync")
    device.judge = rejecting("no")
    run("update", memory_id, "--content", "coffee")
    run("sync")
    assert 'content: "coffee"' in run("dead-letters").out


def test_with_the_server_away_all_is_kept(
    device: DeviceServer, run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("client_sync.device_session.BUDGET_SECONDS", 0.0)
    file = home / "device.json"
    text = file.read_text()
    file.write_text(text.replace(device.target, "127.0.0.1:1"))
    assert run("add", "tea").code == 0
    ran = run("sync")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("error: no server answers at 127.0.0.1:1 (")
    assert ran.err.endswith("; everything here is kept: 1 change unsent will go with the next sync\n")
    file.write_text(text)
    assert run("sync").out.startswith("pushed 1,")


def test_a_server_in_trouble_is_told_with_what_is_kept(
    device: DeviceServer, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("client_sync.device_session.BUDGET_SECONDS", 0.0)
    device.error = StorageUnavailable()
    ran = run("sync")
    assert ran.code == 1
    assert ran.err.startswith("error: the database does not answer")
    assert ran.err.endswith("kept: 0 changes unsent will go with the next sync\n")


def test_a_revoked_device_says_how_to_come_back(device: DeviceServer, run: Run) -> None:
    added(run, "tea")
    device.error = DeviceRevoked()
    ran = run("sync")
    assert ran.code == 1
    assert "nothing on it is lost" in ran.err
    assert "scrubjay init" in ran.err
    assert len(run("list", "--json").rows) == 1


def test_a_wiped_device_is_empty(device: DeviceServer, run: Run, home: Path) -> None:
    added(run, "tea")
    (home / f"{file_of(home).name}.damaged").write_text("tea")
    device.directive = v1.DIRECTIVE_WIPE
    ran = run("sync")
    assert (ran.code, ran.err) == (
        1,
        "error: this device was told to delete its memories, and did; enrol it again to go on\n",
    )
    assert [path.name for path in home.iterdir()] == []


def test_a_verified_sync_compares_everything(device: DeviceServer, run: Run) -> None:
    run("sync", "--verify")
    assert device.synced[-1].include_digest
    assert run("sync", "--verify", "--watch").code == 2


def test_status_tells_how_the_device_stands(device: DeviceServer, run: Run, home: Path) -> None:
    added(run, "tea")
    asked = len(device.synced)
    (row,) = run("status", "--json").rows
    assert {name: row[name] for name in ("server", "user_id", "client_id", "device_id", "file")} == {
        "server": device.target,
        "user_id": "ann",
        "client_id": "phone",
        "device_id": "device of ann",
        "file": str(file_of(home)),
    }
    assert (row["memories"], row["unsent"], row["conflicts"], row["dead_letters"]) == (1, 1, 0, [])
    assert 0 <= row["lag_seconds"] < 60
    shown = dict(line.split(maxsplit=1) for line in run("status").out.splitlines() if line[:1].strip())
    assert (shown["user"].strip(), shown["unsent"].strip()) == ("ann", "1")
    assert "just now" in shown["last"]
    assert len(device.synced) == asked


# --- watching ------------------------------------------------------------------------------------


def test_watch_tells_what_changes_and_ends_with_ctrl_c(device: DeviceServer, run: Run, home: Path) -> None:
    script = "import sys; from client_sync.cli import main; sys.argv = ['scrubjay', *sys.argv[1:]]; main()"
    watching = subprocess.Popen(
        [sys.executable, "-c", script, "sync", "--watch", "--json"],
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    too_long = threading.Timer(20, watching.kill)
    too_long.start()
    try:
        assert watching.stdout is not None
        lines = map(json.loads, watching.stdout)
        theirs = device.put("theirs")
        assert wait_for(lines, lambda row: row.get("content") == "theirs")["id"] == theirs
        device.remove(theirs)
        assert wait_for(lines, lambda row: "deleted" in row) == {"id": theirs, "deleted": True}
        added(run, "of another program")
        assert wait_for(lines, lambda row: row.get("pushed") == 1)
        assert device.contents == {"of another program"}
        watching.send_signal(signal.SIGINT)
        _, told = watching.communicate()
        assert (watching.returncode, told) == (0, f"watching {device.target}; ctrl-C ends it\nended\n")
    finally:
        too_long.cancel()
        watching.kill()
        watching.communicate()


def wait_for(rows: Iterator[Any], passes: Callable[[Any], bool]) -> Any:
    return next(row for row in rows if passes(row))


def test_watch_ends_where_no_waiting_helps(device: DeviceServer, run: Run, home: Path) -> None:
    device.directive = v1.DIRECTIVE_WIPE
    ran = run("sync", "--watch")
    assert ran.code == 1
    assert ran.err.splitlines()[-1].startswith("error: this device was told to delete its memories")
    assert list(home.iterdir()) == []


# --- making whole, export, leaving ---------------------------------------------------------------


def test_restore_says_that_nothing_is_wrong(device: DeviceServer, run: Run, home: Path) -> None:
    asked = len(device.synced)
    assert run("restore").out == f"{file_of(home)} is whole: nothing is wrong\n"
    assert run("restore", "--json").rows == [{"damaged": False}]
    assert len(device.synced) == asked


def test_restore_keeps_what_was_never_sent_and_loads_the_rest(
    device: DeviceServer, run: Run, home: Path
) -> None:
    for number in range(200):
        device.put(f"fact {number} " + "x" * 500)
    run("sync")
    added(run, "never sent")
    added(run, "here alone", "--local")
    path = file_of(home)
    damage(path)
    told = run("list").err
    assert told.count("\n") == 1
    assert "scrubjay restore" in told
    ran = run("restore")
    assert ran.code == 0, ran.err
    shown = " ".join(ran.out.split())
    assert "the file was damaged; kept: 1 unsent, 1 on this device only, 0 refused" in shown
    assert "loaded anew" in shown
    assert path.with_name(f"{path.name}.damaged").exists()
    contents = {row["content"] for row in run("list", "--json").rows}
    assert contents >= {"never sent", "here alone"}
    assert len(contents) == 202
    assert "never sent" in device.contents


def damage(path: Path) -> None:
    """Overwrite the pages of the rows' table in the middle of the file."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (page_size,) = connection.execute("PRAGMA page_size").fetchone()
    (root,) = connection.execute(
        "SELECT rootpage FROM sqlite_master WHERE name = 'rows_by_created_at'"
    ).fetchone()
    connection.close()
    with path.open("r+b") as file:
        file.seek((root - 1) * page_size)
        file.write(b"\xff" * page_size)


def test_restore_makes_a_replica_of_what_is_none(device: DeviceServer, run: Run, home: Path) -> None:
    theirs = device.put("theirs")
    path = file_of(home)
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM meta")
    connection.close()
    assert run("list").code == 1
    assert run("restore").code == 0
    assert [row["id"] for row in run("list", "--json").rows] == [theirs]
    path.unlink()
    assert "everything is loaded anew" in " ".join(run("restore").out.split())
    assert [row["id"] for row in run("list", "--json").rows] == [theirs]


def test_restore_anew_loads_a_whole_file_again(device: DeviceServer, run: Run) -> None:
    device.put("theirs")
    whole, report = run("restore", "--anew", "--json").rows
    assert (whole, report["loaded"]) == ({"damaged": False}, True)
    assert [row["content"] for row in run("list", "--json").rows] == ["theirs"]


def test_an_export_holds_every_memory_in_the_contracts_words(
    device: DeviceServer, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("client_sync.exporting._PAGE_SIZE", 20)
    run("add", "-", "--local", stdin="\n".join(f"fact {number}" for number in range(50)))
    full = added(run, "喜欢绿茶", "--tag", "x", "--meta", "k=[1]", "--private", "--at", "2026-11-30")
    exported = run("export")
    memories = [Parse(line, v1.Memory()) for line in exported.out.splitlines()]
    assert len(memories) == 51
    assert memories == sorted(memories, key=lambda each: each.created_at.ToNanoseconds(), reverse=True)
    (got,) = run("get", full, "--json").rows
    assert [row for row in exported.rows if row["id"] == full] == [got]
    file = tmp_path / "memories.jsonl"
    assert run("export", str(file)).out == ""
    assert file.read_text(encoding="utf-8") == exported.out
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_an_export_that_fails_leaves_what_was_there(device: DeviceServer, run: Run, tmp_path: Path) -> None:
    ran = run("export", str(tmp_path / "missing" / "file"))
    assert ran.code == 1
    assert "can't be written (No such file or directory)" in ran.err
    file = tmp_path / "file"
    file.write_text("before")
    assert run("export", str(file), "--user", "bob").code == 1
    assert file.read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "home"]


def test_signing_out_keeps_uploads_or_wipes(device: DeviceServer, run: Run, home: Path) -> None:
    added(run, "first")
    asked = run("sign-out", "--keep")
    assert asked.code == 2
    told = " ".join(asked.err.replace("│", " ").split())
    assert "Unsent: 1 change. Everything stays here until the same account is enrolled again." in told
    assert run("sign-out", "--keep", "--yes").out == f"signed out of {device.target}\n"
    assert [path.suffix for path in home.iterdir()] == [".db"]
    assert run("list").code == 2

    assert enrol(device, run).code == 0
    assert device.contents == {"first"}
    added(run, "second")
    assert run("sign-out", "--upload", "--yes").code == 0
    assert device.contents == {"first", "second"}
    assert list(home.iterdir()) == []

    enrol(device, run)
    added(run, "third")
    assert run("sign-out", "--wipe", "--yes").code == 0
    assert device.contents == {"first", "second"}
    assert list(home.iterdir()) == []


def test_signing_out_deletes_nothing_that_the_server_did_not_take(device: DeviceServer, run: Run) -> None:
    added(run, "tea")
    device.judge = lambda _: v1.OperationResult(status=v1.OPERATION_STATUS_RETRY_LATER)
    ran = run("sign-out", "--upload", "--yes")
    assert ran.code == 1
    assert "1 operation was never sent and would be lost" in ran.err
    assert len(run("list", "--json").rows) == 1


def test_a_damaged_device_can_be_wiped(device: DeviceServer, run: Run, home: Path) -> None:
    file_of(home).write_bytes(b"no database" * 1000)
    assert run("sign-out", "--upload", "--yes").code == 1
    assert run("sign-out", "--wipe", "--yes").code == 0
    assert list(home.iterdir()) == []


def test_on_a_terminal_signing_out_asks(device: DeviceServer, run: Run, home: Path) -> None:
    added(run, "tea")
    refused = run("sign-out", "--wipe", stdin="n\n", terminal=True)
    assert refused.code == 1
    assert "Unsent: 1 change. It is lost: everything here is deleted, sent or not." in refused.err
    assert len(run("list", "--json").rows) == 1
    assert run("sign-out", "--wipe", stdin="y\n", terminal=True).code == 0
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("modes", [(), ("--keep", "--wipe")])
def test_signing_out_is_one_of_three(device: DeviceServer, run: Run, modes: tuple[str, ...]) -> None:
    assert run("sign-out", *modes, "--yes").code == 2


# --- progress ------------------------------------------------------------------------------------


def test_progress_is_bytes_while_loading_and_changes_else() -> None:
    assert progress.words(Progress(True, 1_500_000, 12_000_000)) == "loading 1.5 MB of 12.0 MB"
    assert progress.words(Progress(False, 1204, None)) == "synchronizing, 1204 changes"


def test_a_terminal_gets_a_bar_and_a_pipe_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for forced, shown in (("1", True), ("", False)):
        monkeypatch.setenv("FORCE_COLOR", forced)
        with progress.bar() as show:
            show("loading 1 of 2", 1, 2)
        captured = capsys.readouterr()
        assert (captured.out, "loading 1 of 2" in captured.err) == ("", shown)
