"""The ``scrubjay`` command, against a server that notes what it is asked and answers what a test says."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import struct_pb2, timestamp_pb2

from client_sync.arguments import parse_condition, parse_filter, parse_metadata, parse_time
from client_sync.rendering import local_time, relative_time
from scrubjay import errors, v1
from scrubjay.memory import MAX_MICROS, MIN_MICROS, Micros
from scrubjay.status import to_status
from scrubjay.v1.memory_service_pb2_grpc import MemoryServiceServicer, add_MemoryServiceServicer_to_server
from tests.running import Ran, runner

ID = "01939f2e-7a00-7000-8000-000000000001"
OTHER_ID = "01939f2e-7a00-7000-8000-000000000002"


@dataclass
class Server(MemoryServiceServicer):
    """Answers each RPC by name with what its entry in ``answers`` returns or raises."""

    requests: list[Any] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    answers: dict[str, Callable[[Any], Any]] = field(default_factory=dict)
    target: str = ""

    def answer(self, rpc: str, request: Any, context: grpc.ServicerContext) -> Any:
        self.requests.append(request)
        self.keys.add(str(dict(context.invocation_metadata())["authorization"]))
        try:
            return self.answers[rpc](request)
        except errors.ScrubjayError as error:
            status = to_status(error)
            context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
            code = next(each for each in grpc.StatusCode if each.value[0] == status.code)
            context.abort(code, status.message)


def _answering(rpc: str) -> Callable[[Server, Any, grpc.ServicerContext], Any]:
    return lambda server, request, context: server.answer(rpc, request, context)


for _rpc in ("Add", "Search", "Get", "List", "Update", "Delete", "History", "Restore"):
    setattr(Server, _rpc, _answering(_rpc))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    servicer = Server()
    running = grpc.server(futures.ThreadPoolExecutor(2))
    add_MemoryServiceServicer_to_server(servicer, running)
    servicer.target = f"127.0.0.1:{running.add_insecure_port('127.0.0.1:0')}"
    running.start()
    monkeypatch.setenv("SCRUBJAY_SERVER", servicer.target)
    monkeypatch.setenv("SCRUBJAY_API_KEY", "sj_live_key")
    monkeypatch.setenv("SCRUBJAY_HOME", str(tmp_path / "no device"))
    monkeypatch.delenv("SCRUBJAY_USER", raising=False)
    yield servicer
    running.stop(0).wait()


@pytest.fixture
def shanghai(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as context:
        context.setenv("TZ", "CST-8")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    return runner(monkeypatch, capsys)


def memory(content: str, **fields: Any) -> v1.Memory:
    at = timestamp_pb2.Timestamp(seconds=int(time.time()) - 3 * 86_400 - 60)
    return v1.Memory(
        **{"id": ID, "user_id": "ann", "scope": "general", "category": "FACT", "content": content}
        | {"created_at": at, "updated_at": at}
        | fields
    )


def stored(request: v1.AddRequest) -> v1.AddResponse:
    return v1.AddResponse(results=[v1.AddResult(memory=memory(each.content)) for each in request.memories])


# --- add -----------------------------------------------------------------------------------------


def test_add_sends_every_option(server: Server, run: Callable[..., Ran], shanghai: None) -> None:
    server.answers["Add"] = stored
    ran = run(
        *("--user", "ann", "add", "likes tea", "--agent", "a", "--run", "r", "--scope", "home/kitchen"),
        *("--category", "PREFERENCE", "--tag", "x", "--tag", "y", "--meta", "city=Paris", "--meta", "age=5"),
        *("--private", "--at", "2026-11-30 08:00", "--id", ID),
    )
    assert ran.code == 0, ran.err
    (request,) = server.requests
    metadata = struct_pb2.Struct()
    metadata.update({"city": "Paris", "age": 5})
    assert request.memories == [
        v1.Memory(
            id=ID,
            user_id="ann",
            agent_id="a",
            run_id="r",
            scope="home/kitchen",
            category="PREFERENCE",
            content="likes tea",
            tags=["x", "y"],
            metadata=metadata,
            privacy_level=v1.PRIVACY_LEVEL_PRIVATE,
            created_at=timestamp_pb2.Timestamp(seconds=1_795_996_800),
        )
    ]
    assert server.keys == {"Bearer sj_live_key"}
    assert "likes tea" in ran.out
    assert ID in ran.out


def test_add_reads_a_memory_from_each_line(server: Server, run: Callable[..., Ran]) -> None:
    server.answers["Add"] = stored
    lines = [f"fact {number}" for number in range(150)]
    ran = run("add", "first", "-", "--user", "ann", "--json", stdin="\n\n".join(lines) + "\n")
    assert ran.code == 0
    assert [len(request.memories) for request in server.requests] == [100, 51]
    assert [row["content"] for row in ran.rows] == ["first", *lines]


def test_add_tells_which_memories_of_a_batch_were_refused(server: Server, run: Callable[..., Ran]) -> None:
    refused = v1.AddResult(error=v1.ItemError(code=3, message="content: has 20000 bytes"))
    server.answers["Add"] = lambda _: v1.AddResponse(results=[v1.AddResult(memory=memory("tea")), refused])
    ran = run("add", "tea", "a long one", "--json")
    assert ran.code == 1
    assert [row["content"] for row in ran.rows] == ["tea"]
    assert ran.err == "error: 'a long one' was not stored: content: has 20000 bytes\n"


# --- search, get, list ---------------------------------------------------------------------------


def test_search_sends_every_option(server: Server, run: Callable[..., Ran]) -> None:
    server.answers["Search"] = lambda _: v1.SearchResponse()
    ran = run(
        *("search", "hot drinks", "-k", "3", "--user", "ann", "--agent", "a", "--run", "r"),
        *("--scope", "home", "--scope", "work", "--recipe", "semantic", "--explain"),
        *("--where", "category = TASK", "--where", "metadata.age >= 5"),
    )
    assert (ran.code, ran.out) == (0, "nothing found\n")
    (request,) = server.requests
    task = v1.Condition(
        field="category", operator=v1.OPERATOR_EQ, value=struct_pb2.Value(string_value="TASK")
    )
    age = v1.Condition(field="metadata.age", operator=v1.OPERATOR_GTE, value=struct_pb2.Value(number_value=5))
    both = v1.FilterList(filters=[v1.Filter(condition=task), v1.Filter(condition=age)])
    assert request == v1.SearchRequest(
        user_id="ann",
        agent_id="a",
        run_id="r",
        query="hot drinks",
        top_k=3,
        scopes=["home", "work"],
        filter=v1.Filter(all_of=both),
        recipe="semantic",
        explain=True,
    )


def hits(_: v1.SearchRequest) -> v1.SearchResponse:
    why = v1.Explanation(
        sentence="it means about the same",
        contributions=[v1.Contribution(arm="dense", measure=0.9, value=0.6)],
    )
    content = "likes [bold]tea[/bold]\x1b[31m and 抹茶\n" + "very " * 100
    return v1.SearchResponse(
        hits=[v1.SearchHit(memory=memory(content, tags=["x"]), score=0.8125, explanation=why)]
    )


def test_search_shows_score_date_content_and_reasons(server: Server, run: Callable[..., Ran]) -> None:
    server.answers["Search"] = hits
    ran = run("search", "tea", "--user", "ann")
    shown = " ".join(ran.out.split())
    assert "0.812" in shown
    assert "3 d ago" in shown
    assert "likes [bold]tea[/bold]" in shown
    assert "抹茶 very" in shown
    assert "it means about the same (dense 0.600)" in shown
    assert ID in shown
    assert "#x" in shown
    assert "\x1b" not in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80


def test_json_rows_have_the_contracts_names(server: Server, run: Callable[..., Ran]) -> None:
    server.answers["Search"] = hits
    (row,) = run("--json", "search", "tea").rows
    assert row["memory"]["user_id"] == "ann"
    assert row["memory"]["content"].startswith("likes [bold]tea[/bold]\x1b[31m and 抹茶\n")
    assert row["score"] == 0.8125


def test_get_shows_every_field_that_is_set(server: Server, run: Callable[..., Ran], shanghai: None) -> None:
    at = timestamp_pb2.Timestamp(seconds=1_795_996_800)
    found = memory("likes tea\nand coffee", tags=["x", "y"], privacy_level=2, created_at=at, confidence=0.5)
    found.metadata.update({"city": "Paris"})
    server.answers["Get"] = lambda _: v1.GetResponse(memory=found)
    shown = {
        line.split(maxsplit=1)[0]: line.split(maxsplit=1)[1].strip()
        for line in run("get", ID).out.splitlines()
    }
    assert server.requests == [v1.GetRequest(id=ID)]
    assert shown["content"] == "likes tea"
    assert shown["and"] == "coffee"
    assert shown["tags"] == "x, y"
    assert shown["metadata"] == '{"city": "Paris"}'
    assert shown["privacy_level"] == "PRIVATE"
    assert shown["confidence"] == "0.5"
    assert shown["created_at"].startswith("2026-11-30 08:00 (")


def pages(request: v1.ListRequest) -> v1.ListResponse:
    first = int(request.page_token or 0)
    rows = [memory(f"fact {number}") for number in range(first, min(first + request.page_size, 250))]
    token = str(first + len(rows)) if first + len(rows) < 250 else ""
    return v1.ListResponse(memories=rows, next_page_token=token)


@pytest.mark.parametrize(("limit", "sizes"), [((), [100, 100, 100]), (("--limit", "120"), [100, 20])])
def test_list_goes_through_the_pages(
    server: Server, run: Callable[..., Ran], limit: tuple[str, ...], sizes: list[int]
) -> None:
    server.answers["List"] = pages
    ran = run("list", "--user", "ann", "--scope", "home", "--where", "pinned = true", "--json", *limit)
    assert [request.page_size for request in server.requests] == sizes
    assert [row["content"] for row in ran.rows] == [
        f"fact {number}" for number in range(min(sum(sizes), 250))
    ]
    assert {(each.user_id, *each.scopes, each.filter.condition.field) for each in server.requests} == {
        ("ann", "home", "pinned")
    }


def test_list_has_one_header_for_all_pages(server: Server, run: Callable[..., Ran]) -> None:
    server.answers["List"] = pages
    shown = run("list", "--user", "ann").out.splitlines()
    assert [line.split() for line in shown if "when" in line] == [["when", "memory"]]
    assert len({line.index("fact") for line in shown if "fact" in line}) == 1


# --- update, delete, history ---------------------------------------------------------------------


def test_update_names_in_its_mask_what_it_changes(server: Server, run: Callable[..., Ran]) -> None:
    results = [
        v1.FieldResult(field="content", outcome=v1.OUTCOME_APPLIED),
        v1.FieldResult(field="scope", outcome=v1.OUTCOME_SUPERSEDED),
    ]
    server.answers["Update"] = lambda _: v1.UpdateResponse(memory=memory("likes coffee"), results=results)
    ran = run(
        *("update", ID, "--content", "likes coffee", "--scope", "home", "--category", "TASK"),
        *(
            "--confidence",
            "0.5",
            "--tag",
            "x",
            "--untag",
            "y",
            "--meta",
            "city=Rome",
            "--unset",
            "expires_at",
        ),
        *("--unset", "metadata.age", "--etag", "e"),
    )
    assert ran.code == 0, ran.err
    (request,) = server.requests
    expected = v1.Memory(
        id=ID, content="likes coffee", scope="home", category="TASK", confidence=0.5, tags=["x"]
    )
    expected.metadata.update({"city": "Rome"})
    assert request.memory == expected
    assert list(request.update_mask.paths) == [
        *("content", "scope", "category", "confidence", "tags.x", "tags.y", "metadata.city"),
        *("expires_at", "metadata.age"),
    ]
    assert request.etag == "e"
    assert "content: stored\n" in ran.out
    assert "scope: not stored: a later edit stands\n" in ran.out
    assert "likes coffee" in ran.out


def test_delete_takes_several_ids(server: Server, run: Callable[..., Ran]) -> None:
    server.answers["Delete"] = lambda _: v1.DeleteResponse(revision="r")
    ran = run("delete", ID, OTHER_ID)
    assert [request.id for request in server.requests] == [ID, OTHER_ID]
    assert ran.out == f"deleted {ID}\ndeleted {OTHER_ID}\n"


def change(
    field: str, old: Any, new: Any, outcome: v1.Outcome.ValueType = v1.OUTCOME_APPLIED
) -> v1.FieldChange:
    made = v1.FieldChange(field=field, outcome=outcome)
    for name, value in (("old_value", old), ("new_value", new)):
        if value is not None:
            holder = struct_pb2.ListValue()
            holder.append(value)
            getattr(made, name).CopyFrom(holder.values[0])
    return made


def test_history_says_what_happened_in_plain_words(
    server: Server, run: Callable[..., Ran], shanghai: None
) -> None:
    at = timestamp_pb2.Timestamp(seconds=1_795_996_800)
    changes = [
        change("valid_to", None, "9999-12-31T23:59:59.999999Z"),
        change("content", "likes tea", "likes coffee", v1.OUTCOME_APPLIED_CONCURRENT),
        change("tags.work", None, True),
        change("tags.home", True, None),
        change("metadata.age", 5, 6),
        change("expires_at", None, "2026-11-30T00:00:00Z"),
        change("privacy_level", "SHARED", "PRIVATE"),
        change("scope", "home", None),
    ]
    entries = [
        v1.HistoryEntry(memory_id=ID, kind=v1.OPERATION_KIND_DELETE, client_id="phone", commit_time=at),
        v1.HistoryEntry(
            memory_id=ID, kind=v1.OPERATION_KIND_SET, changes=changes, client_id="phone", commit_time=at
        ),
    ]
    server.answers["History"] = lambda _: v1.HistoryResponse(entries=entries)
    shown = " ".join(run("history", ID).out.split())
    assert server.requests == [v1.HistoryRequest(memory_id=ID, page_size=100)]
    for told in (
        "2026-11-30 08:00",
        "phone",
        "deleted",
        "changed",
        "content: likes tea → likes coffee (stored over an edit",
        "tag work added",
        "tag home removed",
        "metadata.age: 5 → 6",
        "expires_at: 2026-11-30 08:00",
        "valid_to: 9999-12-31 23:59",
        "privacy_level: SHARED → PRIVATE",
        "scope: home → nothing",
    ):
        assert told in shown


def test_the_history_of_a_new_memory_leaves_defaults_out(server: Server, run: Callable[..., Ran]) -> None:
    changes = [
        change("content", None, "likes tea"),
        change("scope", None, "general"),
        change("category", None, "TASK"),
        change("confidence", None, 1),
        change("pinned", None, False),
        change("privacy_level", None, "SHARED"),
        change("source", None, {"client_id": "phone"}),
    ]
    entry = v1.HistoryEntry(memory_id=ID, kind=v1.OPERATION_KIND_CREATE, changes=changes)
    server.answers["History"] = lambda _: v1.HistoryResponse(entries=[entry])
    shown = run("history", ID).out
    assert "added" in shown
    assert "content: likes tea" in shown
    assert "category: TASK" in shown
    assert not any(
        f"{field}:" in shown for field in ("scope", "confidence", "pinned", "privacy_level", "source")
    )


@pytest.mark.parametrize("command", ["list", "history"])
def test_an_empty_page_is_said(server: Server, run: Callable[..., Ran], command: str) -> None:
    server.answers["List"] = lambda _: v1.ListResponse()
    server.answers["History"] = lambda _: v1.HistoryResponse()
    assert run(command, "--user", "ann").out == "nothing found\n"
    assert run(command, "--user", "ann", "--json").out == ""


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (("--user", "ann"), {"user_id": "ann"}),
        (("--user", "ann", "--agent", "a"), {"agent_id": "a"}),
        ((ID, "--user", "ann"), {"memory_id": ID}),
    ],
)
def test_history_asks_for_one_memory_or_one_subject(
    server: Server, run: Callable[..., Ran], arguments: tuple[str, ...], asked: dict[str, str]
) -> None:
    server.answers["History"] = lambda _: v1.HistoryResponse()
    assert run("history", *arguments).code == 0
    assert server.requests == [v1.HistoryRequest(**asked, page_size=100)]


def test_undo_takes_the_last_operation_that_changed_anything(server: Server, run: Callable[..., Ran]) -> None:
    entries = [
        v1.HistoryEntry(operation_id="late", outcome=v1.OUTCOME_GONE),
        v1.HistoryEntry(operation_id="lost", outcome=v1.OUTCOME_SUPERSEDED),
        v1.HistoryEntry(operation_id="last", outcome=v1.OUTCOME_APPLIED_CONCURRENT),
        v1.HistoryEntry(operation_id="first", outcome=v1.OUTCOME_APPLIED),
    ]
    results = [v1.FieldResult(field="content", outcome=v1.OUTCOME_APPLIED)]
    server.answers["History"] = lambda _: v1.HistoryResponse(entries=entries)
    server.answers["Restore"] = lambda _: v1.RestoreResponse(memory=memory("likes tea"), results=results)
    ran = run("undo", ID)
    assert ran.code == 0, ran.err
    assert server.requests == [
        v1.HistoryRequest(memory_id=ID),
        v1.RestoreRequest(memory_id=ID, operation_id="last", request_id=server.requests[-1].request_id),
    ]
    assert "content: stored" in ran.out
    assert "likes tea" in ran.out


def test_undo_sends_every_option(server: Server, run: Callable[..., Ran]) -> None:
    server.answers["Restore"] = lambda _: v1.RestoreResponse(memory=memory("likes tea"))
    ran = run(
        *("undo", ID, "--operation", OTHER_ID, "--field", "content", "--field", "tags.a", "--etag", "e"),
        "--json",
    )
    assert [row["memory"]["content"] for row in ran.rows] == ["likes tea"]
    (request,) = server.requests
    request.ClearField("request_id")
    assert request == v1.RestoreRequest(
        memory_id=ID, operation_id=OTHER_ID, fields=["content", "tags.a"], etag="e"
    )


def test_a_search_of_the_past_sends_its_time(server: Server, run: Callable[..., Ran], shanghai: None) -> None:
    server.answers["Search"] = lambda _: v1.SearchResponse()
    assert run("--user", "ann", "search", "tea", "--as-of", "2026-11-30 08:00").code == 0
    (request,) = server.requests
    assert request.as_of.seconds == 1_795_996_800
    assert run("--user", "ann", "search", "tea", "--as-of", "yesterday").code == 2
    assert run("--user", "ann", "search", "tea").code == 0
    assert not server.requests[-1].HasField("as_of")


# --- settings and failures -----------------------------------------------------------------------


def test_an_option_after_the_command_wins_over_one_before_and_the_environment(
    server: Server, run: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answers["Search"] = lambda _: v1.SearchResponse()
    monkeypatch.setenv("SCRUBJAY_USER", "environment")
    run("search", "tea")
    run("--user", "before", "search", "tea")
    run("--user", "before", "search", "tea", "--user", "after")
    run("search", "tea", "--user", "", "--agent", "a")
    assert [request.user_id for request in server.requests] == ["environment", "before", "after", ""]


def test_who_names_nobody_is_told_how_to_name_somebody(server: Server, run: Callable[..., Ran]) -> None:
    def refuse(request: v1.AddRequest) -> v1.AddResponse:
        raise errors.InvalidField.of("memories[0].user_id", "is needed")

    server.answers["Add"] = refuse
    said = "error: memories[0].user_id: is needed; give --user, or set SCRUBJAY_USER\n"
    assert run("add", "tea") == Ran(1, "", said)


def test_an_error_is_one_line_with_each_wrong_field(server: Server, run: Callable[..., Ran]) -> None:
    violations = [errors.FieldViolation("query", "is blank"), errors.FieldViolation("top_k", "is 900")]
    said = "error: query: is blank; top_k: is 900\n"

    def refuse(_: v1.SearchRequest) -> v1.SearchResponse:
        raise errors.InvalidField(violations)

    server.answers["Search"] = refuse
    ran = run("search", " ")
    assert (ran.code, ran.out, ran.err) == (1, "", said)


def test_an_unknown_id_is_a_line_and_exit_code_1(server: Server, run: Callable[..., Ran]) -> None:
    def refuse(request: v1.GetRequest) -> v1.GetResponse:
        raise errors.MemoryNotFound(request.id)

    server.answers["Get"] = refuse
    assert (run("get", "x").code, run("get", "x").err) == (1, "error: no memory x\n")


def test_a_fault_of_the_server_is_told_with_what_finds_it_in_the_log(
    server: Server, run: Callable[..., Ran]
) -> None:
    def fail(_: v1.SearchRequest) -> v1.SearchResponse:
        raise errors.InternalError(
            "the server failed; its log has this request_id", metadata={"request_id": "r-1"}
        )

    server.answers["Search"] = fail
    said = "error: the server failed; its log has this request_id: r-1\n"
    assert run("search", "tea") == Ran(1, "", said)


def test_no_server_is_named_with_the_way_to_start_one(
    run: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        target = f"127.0.0.1:{listener.getsockname()[1]}"
    ran = run("--server", target, "--api-key", "k", "search", "tea")
    assert ran.code == 1
    assert ran.err.startswith(f"error: no server answers at {target} (")
    assert "make run" in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("search", "tea", "--api-key", ""), "SCRUBJAY_API_KEY"),
        (("search", "tea", "--api-key", "a b"), "white space"),
        (("search", "tea", "--server", "http://localhost"), "without a scheme"),
        (("search", "tea", "--where", "category"), "no condition"),
        (("search", "tea", "--where", "created_at > soon"), "no time"),
        (("add", "tea", "--meta", "x"), "key=value"),
        (("add", "tea", "--at", "soon"), "no time"),
        (("add", "tea", "coffee", "--id", ID), "one TEXT"),
        (("add", "tea\udcff"), "UTF-8"),
        (("update", ID), "name a field"),
        (("update", ID, "--scope", "a", "--unset", "scope"), "named twice"),
        (("update", ID, "--meta", "=x"), "key=value"),
        (("list", "--limit", "0"), "--limit"),
        (("search",), "QUERY"),
        (("remember", "tea"), "remember"),
    ],
)
def test_a_wrong_call_is_explained_with_exit_code_2(
    server: Server, run: Callable[..., Ran], arguments: tuple[str, ...], said: str
) -> None:
    ran = run(*arguments)
    assert ran.code == 2
    assert said in " ".join(ran.err.replace("│", " ").split())
    assert server.requests == []


COMMANDS = ("add", "search", "get", "list", "update", "delete", "history", "export", "import")
DEVICE_COMMANDS = ("init", "sync", "status", "dead-letters", "restore", "sign-out")


@pytest.mark.parametrize("command", [(), *((each,) for each in COMMANDS + DEVICE_COMMANDS)])
def test_help_does_not_load_grpc(command: tuple[str, ...]) -> None:
    script = (
        "import sys; from client_sync.cli import main; sys.argv = ['scrubjay', *sys.argv[1:]]\n"
        "try: main()\n"
        "finally: print([name for name in sys.modules if name.split('.')[0] == 'grpc'])"
    )
    arguments = [sys.executable, "-c", script, *command, "--help"]
    ran = subprocess.run(arguments, capture_output=True, text=True, timeout=30)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == "[]"
    assert all(f" {each} " in ran.stdout for each in command or COMMANDS + DEVICE_COMMANDS)


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_extra_it_says_how_to_install_it(missing: str) -> None:
    script = (
        "import sys\n"
        "class Without:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.split('.')[0] == {missing!r}:\n"
        "            raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, Without())\n"
        "from client_sync.cli import main; main()"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "pip install 'scrubjay[cli]'" in ran.stderr
    assert "Traceback" not in ran.stderr


# --- what is typed and what is shown -------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "field", "operator", "value"),
    [
        ("category = TASK", "category", "EQ", "TASK"),
        ("category=TASK", "category", "EQ", "TASK"),
        ("category == 5", "category", "EQ", "5"),
        ('category = ""', "category", "EQ", ""),
        ("content != a = b", "content", "NE", "a = b"),
        ("confidence>=0.5", "confidence", "GTE", 0.5),
        ("confidence <= 1", "confidence", "LTE", 1),
        ("metadata.age < 5", "metadata.age", "LT", 5),
        ("metadata.age > 5", "metadata.age", "GT", 5),
        ('metadata.zip = "07"', "metadata.zip", "EQ", "07"),
        ("metadata.zip = 07", "metadata.zip", "EQ", "07"),
        ("metadata.x = NaN", "metadata.x", "EQ", "NaN"),
        ("pinned = true", "pinned", "EQ", True),
        ("created_at > 2026-11-30T08:00+08:00", "created_at", "GT", "2026-11-30T00:00:00Z"),
        ("category in TASK, FACT", "category", "IN", ["TASK", "FACT"]),
        ('category nin ["TASK","A,B"]', "category", "NIN", ["TASK", "A,B"]),
        ("metadata.age in 1,2", "metadata.age", "IN", [1, 2]),
        ("tags contains work", "tags", "CONTAINS", "work"),
        ("content icontains hot  tea ", "content", "ICONTAINS", "hot  tea"),
        ("metadata.age exists", "metadata.age", "EXISTS", True),
        ("expires_at exists false", "expires_at", "EXISTS", False),
    ],
)
def test_a_condition_is_read(text: str, field: str, operator: str, value: Any) -> None:
    holder = struct_pb2.ListValue()
    holder.append(value)
    assert parse_condition(text) == v1.Condition(
        field=field, operator=v1.Operator.Value(f"OPERATOR_{operator}"), value=holder.values[0]
    )


@pytest.mark.parametrize(
    "text", ["", "category", "= x", "category =", "category is x", "tags containsx y", "a exists 5"]
)
def test_a_wrong_condition_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"field op value|true or false"):
        parse_condition(text)


def test_no_condition_is_no_filter() -> None:
    assert parse_filter([]) is None


def test_metadata_values_are_json_or_text() -> None:
    pairs = ["a=1", "b=true", "c=[1]", 'd="1"', "e=Paris", "f=x=y", "g=Infinity", "h="]
    assert parse_metadata(pairs) == {
        "a": 1,
        "b": True,
        "c": [1],
        "d": "1",
        "e": "Paris",
        "f": "x=y",
        "g": "Infinity",
        "h": "",
    }


@pytest.mark.parametrize(
    ("text", "iso"),
    [
        ("2026-11-30", "2026-11-29T16:00:00Z"),
        ("2026-11-30 08:00", "2026-11-30T00:00:00Z"),
        ("2026-11-30T08:00:00.5Z", "2026-11-30T08:00:00.500Z"),
        ("1969-12-31T23:59:59.999999Z", "1969-12-31T23:59:59.999999Z"),
    ],
)
def test_a_time_without_a_zone_is_local(text: str, iso: str, shanghai: None) -> None:
    assert parse_time(text).ToJsonString() == iso


@pytest.mark.parametrize("text", ["", "soon", "2026-13-01", "0001-01-01"])
def test_a_wrong_time_is_refused(text: str, shanghai: None) -> None:
    with pytest.raises(ValueError, match="is no time"):
        parse_time(text)


@pytest.mark.parametrize(
    ("seconds_ago", "told"),
    [
        (0, "just now"),
        (59, "just now"),
        (60, "1 min ago"),
        (7_200, "2 h ago"),
        (86_400 * 40, "1 mo ago"),
        (86_400 * 800, "2 y ago"),
        (-60, "in 1 min"),
        (-86_400 * 2, "in 2 d"),
    ],
)
def test_a_relative_time_has_one_unit(seconds_ago: int, told: str) -> None:
    now = 1_795_996_800_000_000
    assert relative_time(Micros(now - seconds_ago * 1_000_000), Micros(now)) == told


def test_a_time_at_either_end_of_the_calendar_is_shown(shanghai: None) -> None:
    assert local_time(Micros(0)) == "1970-01-01 08:00"
    assert local_time(MIN_MICROS) == "0001-01-01 08:00"
    assert local_time(MAX_MICROS) == "9999-12-31 23:59"
