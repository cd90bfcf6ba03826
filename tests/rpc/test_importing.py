"""``scrubjay import`` through a real server and on a real device, killed in the middle too."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rpc.conftest import Serving, Tenant
from rpc.slow_model import SlowModel
from scrubjay import v1
from scrubjay.errors import ModelMismatch
from tests.running import Ran, runner

Run = Callable[..., Ran]
DEADLINE_SECONDS = 60
BETWEEN_LOOKS_SECONDS = 0.05
"""So that who looks does not keep the server from its work."""


@pytest.fixture
def backend() -> str:
    """The command speaks to the door: what lies behind it has tests of its own."""
    return "sqlite"


@pytest.fixture
def run(serving: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Run:
    """The command with the service key of the first tenant."""
    for name in [name for name in os.environ if name.startswith("SCRUBJAY_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SCRUBJAY_SERVER", serving.app.address)
    monkeypatch.setenv("SCRUBJAY_API_KEY", serving.dev.key)
    monkeypatch.setenv("SCRUBJAY_HOME", str(tmp_path / "home"))
    return runner(monkeypatch, capsys)


@pytest.fixture
def device(serving: Serving, run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command on a device of alice."""
    monkeypatch.delenv("SCRUBJAY_API_KEY")
    monkeypatch.setattr("client_sync.device_session.BUDGET_SECONDS", 0.0)
    code = serving.admin.CreateEnrolment(v1.CreateEnrolmentRequest(tenant_id="dev", user_id="alice"))
    assert run("init", "--enrol", code.enrolment_code).code == 0
    return run


def stored(tenant: Tenant, user_id: str = "alice") -> list[v1.Memory]:
    """All memories of a user, newest first."""
    found: list[v1.Memory] = []
    request = v1.ListRequest(user_id=user_id, page_size=1000)
    while True:
        page = tenant.memories.List(request)
        found += page.memories
        request.page_token = page.next_page_token
        if not request.page_token:
            return found


def lines(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows), encoding="utf-8")
    return path


def facts(count: int) -> list[dict[str, Any]]:
    return [
        {"content": f"fact {n}", "created_at": f"2026-01-01T{n // 3600:02}:{n // 60 % 60:02}:{n % 60:02}Z"}
        for n in range(count)
    ]


def words(err: str) -> str:
    """A usage error as one line, without its frame."""
    return " ".join(err.replace("│", " ").split())


def unlike_others(*numbers: int) -> str:
    """Words that no other text shares."""
    return " ".join(hashlib.sha256(repr(numbers).encode()).hexdigest()[at : at + 8] for at in range(0, 48, 8))


def conversation(name: str, *messages: tuple[str, str]) -> dict[str, Any]:
    """A conversation as ChatGPT exports it, without branches."""
    mapping: dict[str, Any] = {"root": {"id": "root", "message": None, "parent": None, "children": []}}
    last = "root"
    for number, (role, text) in enumerate(messages):
        node = f"{name}-{number}"
        mapping[node] = {
            "id": node,
            "parent": last,
            "children": [],
            "message": {
                "id": node,
                "author": {"role": role, "name": None, "metadata": {}},
                "create_time": 1_704_096_000.25 + number,
                "content": {"content_type": "text", "parts": [text]},
                "metadata": {},
                "recipient": "all",
                "weight": 1.0,
            },
        }
        last = node
    return {
        "title": name,
        "create_time": 1_704_096_000.0,
        "mapping": mapping,
        "current_node": last,
        "conversation_id": name,
        "id": name,
    }


# --- memories ------------------------------------------------------------------------------------


def test_what_was_exported_comes_back_to_another_tenant_and_once(
    serving: Serving, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving.dev.add("likes tea", tags=["x"], scope="work/alpha", confidence=0.5, pinned=True)
    run(
        "add",
        "喜欢绿茶",
        "--user",
        "alice",
        "--meta",
        'k=[1, {"a": null}]',
        "--at",
        "2001-02-03T04:05:06.789Z",
    )
    serving.dev.add(*(unlike_others(n) for n in range(230)))
    for text in ("I write code with Vim.", "I no longer use Vim, I write code with Emacs now."):
        said = v1.ConversationMessage(role="user", content=text, id="m1")
        serving.dev.memories.Add(v1.AddRequest(messages=[said], template=v1.Memory(user_id="alice")))
    assert sum(bool(memory.superseded_by) for memory in stored(serving.dev)) == 1
    file = tmp_path / "memories.jsonl"
    assert run("export", str(file), "--user", "alice").code == 0

    other = serving.tenant("other")
    monkeypatch.setenv("SCRUBJAY_API_KEY", other.key)
    first = run("import", str(file), "--json")
    assert (first.code, first.rows) == (
        0,
        [{"imported": 234, "already_there": 0, "duplicates": 0, "skipped": {}}],
    )
    again = run("import", str(file))
    assert again.out == "imported 0, already there 234, skipped 0\n"

    def told(memories: list[v1.Memory]) -> list[v1.Memory]:
        for memory in memories:
            for name in ("etag", "updated_at", "owner_client_id"):
                memory.ClearField(name)  # type: ignore[arg-type]  # by name
            memory.source.ClearField("client_id")
        return memories

    assert told(stored(other)) == told(stored(serving.dev))


def test_bad_lines_are_told_and_reported_and_the_rest_is_there(run: Run, dev: Tenant, tmp_path: Path) -> None:
    rows = [
        {"content": "good"},
        {"content": ""},
        {"content": "x" * 20_000},
        {"content": "when", "created_at": "yesterday"},
        {"content": "mine alone", "privacy_level": "PRIVACY_LEVEL_LOCAL_ONLY"},
        {"content": "good too"},
    ]
    file = lines(tmp_path / "m.jsonl", rows)
    file.write_text(file.read_text() + "{no json\n", encoding="utf-8")
    report = tmp_path / "report.jsonl"
    ran = run("import", str(file), "--user", "alice", "--report", str(report))
    assert ran.code == 1
    assert ran.out.splitlines()[0].startswith("imported 2, already there 0, skipped 5 (bad_date 1, ")
    assert ran.err.splitlines()[1].startswith("error: line 3: content: has 20000 bytes")
    found = [json.loads(line) for line in report.read_text(encoding="utf-8").splitlines()]
    assert sorted((one["line"], one["reason"]) for one in found) == [
        (2, "no_text"),
        (3, "too_long"),
        (4, "bad_date"),
        (5, "refused"),
        (7, "not_json"),
    ]
    assert "mine alone" not in report.read_text(encoding="utf-8")
    assert {memory.content for memory in stored(dev)} == {"good", "good too"}
    assert run("import", str(file), "--user", "alice").out.startswith("imported 0, already there 2,")


def test_what_was_deleted_stays_deleted_and_is_told(run: Run, dev: Tenant, tmp_path: Path) -> None:
    file = lines(tmp_path / "m.jsonl", facts(5))
    run("import", str(file), "--user", "alice")
    gone = stored(dev)[1]
    dev.memories.Delete(v1.DeleteRequest(id=gone.id))
    ran = run("import", str(file), "--user", "alice")
    assert (ran.code, ran.out) == (1, "imported 0, already there 4, skipped 1 (id_taken 1)\n")
    assert len(stored(dev)) == 4


def test_an_export_of_mem0_goes_to_its_users(run: Run, dev: Tenant, tmp_path: Path) -> None:
    rows = [
        {"id": "3c90c3cc-0d44-4b50-8888-8dd25736052a", "memory": "Likes hiking", "user_id": "ann"},
        {"id": "3c90c3cc-0d44-4b50-8888-8dd25736052b", "memory": "Likes tea", "user_id": "bob"},
        {"id": "3c90c3cc-0d44-4b50-8888-8dd25736052c", "memory": "Plans trips", "agent_id": "planner"},
    ]
    for row in rows:
        row |= {"hash": "x", "metadata": None, "created_at": "2026-01-01T00:00:00+00:00", "updated_at": None}
    file = tmp_path / "mem0.json"
    file.write_text(json.dumps({"results": rows}), encoding="utf-8")
    assert run("import", str(file)).out == "imported 3, already there 0, skipped 0\n"
    assert [memory.content for memory in stored(dev, "ann")] == ["Likes hiking"]
    assert [memory.content for memory in stored(dev, "bob")] == ["Likes tea"]
    others = run("import", str(file), "--user", "alice")
    assert (others.code, "--from-user ann takes it" in others.err) == (1, True)
    taken = run("import", str(file), "--user", "alice", "--from-user", "ann")
    assert (taken.code, taken.out) == (0, "imported 1, already there 0, skipped 2 (not_chosen 2)\n")
    bare = tmp_path / "bare.json"
    bare.write_text(json.dumps(rows), encoding="utf-8")
    assert run("import", str(bare)).out == "imported 0, already there 3, skipped 0\n"


def test_what_two_memories_say_comes_back_twice_and_mem0s_is_stored_once(
    run: Run, dev: Tenant, tmp_path: Path
) -> None:
    said = [{"content": "I like tea"}, {"content": "I like tea!"}]
    twice = lines(tmp_path / "m.jsonl", said)
    assert run("import", str(twice), "--user", "alice").out.startswith("imported 2,")
    mem0 = lines(tmp_path / "mem0.jsonl", [{"memory": "i like tea"}, {"memory": "I like coffee"}])
    ran = run("import", str(mem0), "--user", "alice")
    assert (ran.code, ran.out) == (0, "imported 1, already there 0, duplicates 1, skipped 0\n")
    assert len(stored(dev)) == 3
    again = run("import", str(mem0), "--user", "alice")
    assert again.out == "imported 0, already there 1, duplicates 1, skipped 0\n"


def test_a_device_takes_memories_offline_and_sends_them(
    serving: Serving, device: Run, tmp_path: Path
) -> None:
    file = lines(
        tmp_path / "m.jsonl", [*facts(3), {"content": "for me", "privacy_level": 1}, {"content": " "}]
    )
    ran = device("import", str(file), "--server", "localhost:1")
    assert ran.code == 1
    assert ran.out == "imported 4, already there 0, skipped 1 (no_text 1)\n"
    assert device("import", str(file)).out.startswith("imported 0, already there 4,")
    assert "pushed 3," in device("sync").out
    assert {memory.content for memory in stored(serving.dev)} == {"fact 0", "fact 1", "fact 2"}
    # The same file through the server is there already: an id follows from what a row says.
    through = device("import", str(file), "--api-key", serving.dev.key, "--user", "alice")
    assert through.out == "imported 0, already there 3, skipped 2 (no_text 1, refused 1)\n"
    assert "error: line 4: privacy_level: LOCAL_ONLY never leaves its device" in through.err


def test_a_device_tells_what_it_can_not_take(device: Run, tmp_path: Path) -> None:
    file = tmp_path / "conversations.json"
    file.write_text(json.dumps([conversation("c", ("user", "I like tea."))]), encoding="utf-8")
    ran = device("import", str(file))
    assert ran.code == 2
    said = words(ran.err)
    assert "learnt from by a server" in said
    assert "--server" in said
    assert "SCRUBJAY_API_KEY" in said
    memories = lines(tmp_path / "m.jsonl", facts(1))
    wrong = device("import", str(memories), "--user", "bob")
    assert wrong.code == 2
    assert "this device holds memories of user 'alice' alone" in words(wrong.err)
    assert device("import", str(memories), "--policy", "raw").code == 2
    assert device("import", str(memories), "--policy", "magic").code == 2
    nothing = lines(tmp_path / "n.jsonl", [{"colour": "green"}])
    assert "say what it is with --format" in device("import", str(nothing)).err
    assert device("import", str(tmp_path / "missing")).code == 1
    assert device("import", str(lines(tmp_path / "empty", []))).out == (
        "imported 0, already there 0, skipped 0\n"
    )


# --- conversations -------------------------------------------------------------------------------


def test_conversations_are_learnt_from_once(run: Run, dev: Tenant, tmp_path: Path) -> None:
    talks = [
        conversation(
            "talk-1",
            ("system", ""),
            ("user", "I prefer dark mode in every editor."),
            ("assistant", "Noted!"),
            ("tool", "{}"),
            ("user", "明天提醒我给妈妈打电话。"),
        ),
        conversation("talk-2", ("user", "My sister lives in Paris.")),
    ]
    file = tmp_path / "conversations.json"
    file.write_text(json.dumps(talks), encoding="utf-8")
    ran = run("import", str(file), "--user", "alice", "--scope", "chats", "--tag", "old")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "imported 4, learnt 3, already there 0, skipped 2 (system 1, tool 1)\n"
    found = {memory.content: memory for memory in stored(dev)}
    assert set(found) == {
        "I prefer dark mode in every editor.",
        "明天提醒我给妈妈打电话。",
        "My sister lives in Paris.",
    }
    task = found["明天提醒我给妈妈打电话。"]
    assert (task.source.conversation_id, task.source.role) == ("talk-1", "user")
    assert list(task.source.message_ids) == ["talk-1-4"]
    assert (task.scope, list(task.tags), task.category) == ("chats", ["old"], "TASK")
    # Tomorrow is the day after the message, not after the import.
    assert task.created_at.ToJsonString() == "2024-01-01T08:00:04.250Z"
    assert task.valid_from.ToJsonString().startswith("2024-01-02")
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
        longer = conversation("talk-2", ("user", "My sister lives in Paris."), ("user", "I love hiking."))
        archive.writestr("conversations-000.json", json.dumps([talks[0]]))
        archive.writestr("conversations-001.json", json.dumps([longer]))
    again = run("import", str(tmp_path / "export.zip"), "--user", "alice", "--json")
    (counts,) = again.rows
    assert (counts["imported"], counts["already_there"], counts["learnt"]) == (1, 4, 1)
    assert len(stored(dev)) == 4


def test_without_a_user_conversations_are_of_nobody(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "conversations.json"
    file.write_text(json.dumps([conversation("c", ("user", "I like tea."))]), encoding="utf-8")
    assert run("import", str(file)).code == 2
    assert run("import", str(file), "--user", "alice", "--from-user", "bob").code == 2


def test_an_import_that_the_server_leaves_says_how_far_it_came(
    serving: Serving, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("client_sync.importing.patience.PATIENCE_SECONDS", 0.0)
    file = lines(tmp_path / "m.jsonl", facts(3))
    ran = run("import", str(file), "--user", "alice", "--api-key", "sj_live_wrong")
    assert ran.code == 1
    assert "imported 0, already there 0, skipped 0; run it again to go on" in " ".join(ran.err.split())
    serving.app.close()
    ran = run("import", str(file), "--user", "alice", "--report", str(tmp_path / "report"))
    assert ran.code == 1
    assert "no server answers at" in ran.err
    assert not (tmp_path / "report").exists()


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowModel]:
    """What asks a model; named before the server, so that it outlives it."""
    model = SlowModel()
    model.install(monkeypatch)
    yield model
    model.release()


def test_a_model_that_is_still_at_work_when_the_import_is_killed_is_not_asked_twice(
    model: SlowModel, run: Run, dev: Tenant, tmp_path: Path
) -> None:
    file = tmp_path / "conversations.json"
    talk = conversation("talk", *[("user", unlike_others(n)) for n in range(3)])
    file.write_text(json.dumps([talk]), encoding="utf-8")
    arguments = ["import", str(file), "--user", "alice", "--policy", "append"]
    try:
        assert kill_in_the_middle(arguments, reaches(lambda: len(model.asked), 1))
    finally:
        model.release()
    assert run(*arguments).out == "imported 3, learnt 3, already there 0, skipped 0\n"
    assert run(*arguments).out == "imported 0, learnt 0, already there 3, skipped 0\n"
    assert len(stored(dev)) == 3
    assert len(model.asked) == 1


def test_a_model_that_fails_is_asked_again_by_the_next_import(
    model: SlowModel, run: Run, dev: Tenant, tmp_path: Path
) -> None:
    file = tmp_path / "conversations.json"
    file.write_text(json.dumps([conversation("talk", ("user", "I like tea."))]), encoding="utf-8")
    arguments = ["import", str(file), "--user", "alice", "--policy", "append"]
    model.error = ModelMismatch("the model is of another kind")
    model.release()
    failed = run(*arguments)
    assert failed.code == 1
    assert "the model is of another kind; imported 0," in failed.err
    assert "run it again to go on" in failed.err
    model.error = None
    assert run(*arguments).out == "imported 1, learnt 1, already there 0, skipped 0\n"
    assert len(stored(dev)) == 1


# --- killed --------------------------------------------------------------------------------------


def kill_in_the_middle(arguments: list[str], reached: Iterator[bool]) -> bool:
    """Run the command in a process of its own, and kill -9 it once ``reached`` is true; whether it was still
    at work."""
    process = subprocess.Popen(
        [sys.executable, "-c", "from client_sync.cli import main; main()", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        end = time.monotonic() + DEADLINE_SECONDS
        while not next(reached) and process.poll() is None:
            assert time.monotonic() < end
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(BETWEEN_LOOKS_SECONDS)
    finally:
        process.kill()
    return process.wait() != 0


def reaches(count: Callable[[], int], wanted: int) -> Iterator[bool]:
    while True:
        yield count() >= wanted


def test_memories_through_a_server_survive_being_killed(run: Run, dev: Tenant, tmp_path: Path) -> None:
    file = lines(tmp_path / "m.jsonl", facts(1500))
    for wanted in (1, 300):
        count = reaches(lambda: len(stored(dev)), wanted)
        assert kill_in_the_middle(["import", str(file), "--user", "alice"], count)
    there = len(stored(dev))
    assert 300 <= there < 1500
    (counts,) = run("import", str(file), "--user", "alice", "--json").rows
    assert counts["imported"] + counts["already_there"] == 1500
    assert counts["already_there"] >= there
    contents = [memory.content for memory in stored(dev)]
    assert sorted(contents) == sorted(f"fact {n}" for n in range(1500))


def test_conversations_survive_being_killed(run: Run, dev: Tenant, tmp_path: Path) -> None:
    talks = [
        conversation(f"talk-{n}", *[("user", unlike_others(n, m)) for m in range(1 + 37 * n % 230)])
        for n in range(14)
    ]
    file = tmp_path / "conversations.json"
    file.write_text(json.dumps(talks), encoding="utf-8")
    arguments = ["import", str(file), "--user", "alice", "--policy", "raw"]
    total = sum(len(talk["mapping"]) - 1 for talk in talks)
    for wanted in (1, 300, 600):
        assert kill_in_the_middle(arguments, reaches(lambda: len(stored(dev)), wanted))
    assert len(stored(dev)) < total
    (counts,) = run(*arguments, "--json").rows
    assert counts["imported"] + counts["already_there"] == total
    contents = [memory.content for memory in stored(dev)]
    assert len(contents) == len(set(contents)) == total


def test_memories_on_a_device_survive_being_killed(device: Run, tmp_path: Path) -> None:
    file = lines(tmp_path / "m.jsonl", facts(700))

    def count() -> int:
        return int(device("status", "--json").rows[0]["memories"])

    for wanted in (1, 150):
        assert kill_in_the_middle(["import", str(file)], reaches(count, wanted))
    assert count() < 700
    (counts,) = device("import", str(file), "--json").rows
    assert counts["imported"] + counts["already_there"] == 700
    contents = [row["content"] for row in device("list", "--json").rows]
    assert sorted(contents) == sorted(f"fact {n}" for n in range(700))
