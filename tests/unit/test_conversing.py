"""Conversations put before a server: each message once, wherever the import is cut off and goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from client_sync.importing import conversing
from client_sync.importing.chatgpt import Conversation, Message
from client_sync.importing.conversing import Conversations
from client_sync.importing.marks import Marks, marks_of
from client_sync.importing.skipping import Place
from client_sync.importing.tally import Tally
from scrubjay import v1
from scrubjay.errors import (
    DeadlineExceeded,
    FieldViolation,
    InvalidField,
    OperationCancelled,
    RequestIdReused,
    ScrubjayError,
    Unavailable,
)
from scrubjay.memory import Micros, new_memory_id

HOUR = 3_600_000_000
DAY = 24 * HOUR


class Killed(BaseException):
    """The process ends here."""


@dataclass
class Server:
    """A server that keeps each message as a memory, and knows a request for a day. The process that asks it
    ends at the steps ``ends_at``: before or after a message is marked, and before or after it arrives."""

    now: int = 1_800_000_000_000_000
    step: int = 0
    ends_at: set[int] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    stored: list[v1.Memory] = field(default_factory=list)
    requests: list[v1.AddRequest] = field(default_factory=list)
    answers: dict[str, tuple[int, v1.AddRequest, v1.AddResponse]] = field(default_factory=dict)
    fails: list[ScrubjayError] = field(default_factory=list)
    status: int = v1.ADD_STATUS_ADDED
    busy: int = 0
    """How many calls are told that a model is still at work."""
    issues: list[v1.AddIssue] = field(default_factory=list)

    @property
    def memories(self) -> Server:
        return self

    def call(self, method: Callable[..., object], request: object) -> object:
        return method(request)

    def pass_step(self) -> None:
        self.step += 1
        if self.step in self.ends_at:
            raise Killed

    def Add(self, request: v1.AddRequest, timeout: float = 0) -> v1.AddResponse:
        self.pass_step()
        self.asked.append(request.request_id)
        if self.fails:
            raise self.fails.pop(0)
        copy = v1.AddRequest()
        copy.CopyFrom(request)
        self.requests.append(copy)
        at, body, answer = self.answers.get(request.request_id, (-DAY, copy, v1.AddResponse()))
        if self.now - at < DAY:
            if body != copy:
                raise RequestIdReused(request.request_id)
            return answer
        if wrong := [n for n, message in enumerate(request.messages) if message.content == "bad"]:
            raise InvalidField(FieldViolation(f"messages[{n}].content", "is bad") for n in wrong)
        if self.busy:
            self.busy -= 1
            return v1.AddResponse(operation_id="op")
        answer = v1.AddResponse()
        for message in request.messages:
            memory = answer.results.add(status=self.status).memory
            memory.CopyFrom(request.template)
            memory.id = new_memory_id(self.now // 1000, len(self.stored).to_bytes(10, "big"))
            memory.content = message.content
            memory.source.message_ids.append(message.id)
            self.stored.append(memory)
        answer.issues.extend(self.issues)
        self.answers[request.request_id] = (self.now, copy, answer)
        self.pass_step()
        return answer

    def List(self, request: v1.ListRequest) -> v1.ListResponse:
        wanted = request.filter.condition.value.string_value
        found = [memory for memory in self.stored if memory.source.conversation_id == wanted]
        start = int(request.page_token or 0)
        more = str(start + 1) if start + 1 < len(found) else ""
        return v1.ListResponse(memories=found[start : start + 1], next_page_token=more)

    def keys(self) -> list[tuple[str, str]]:
        return [(memory.source.conversation_id, memory.source.message_ids[0]) for memory in self.stored]


class SteppedMarks:
    """Marks at whose every change the process may end, before and after it."""

    def __init__(self, marks: Marks, server: Server) -> None:
        self._marks, self._server = marks, server
        self.taken, self.sending, self.has_failed = marks.taken, marks.sending, marks.has_failed

    def __getattr__(self, name: str) -> Callable[..., None]:
        def change(*arguments: object) -> None:
            self._server.pass_step()
            getattr(self._marks, name)(*arguments)
            self._server.pass_step()

        return change


@contextmanager
def conversations(
    server: Server, home: Path, policy: v1.WritePolicy.ValueType = v1.WRITE_POLICY_RAW, scope: str = ""
) -> Iterator[Conversations]:
    with marks_of(home, "server", str(policy)) as marks:
        template = v1.Memory(user_id="alice", scope=scope)
        yield Conversations(server, SteppedMarks(marks, server), template, policy, lambda: Micros(server.now))


def conversation(name: str, count: int, **texts: str) -> Conversation:
    messages = tuple(
        Message(Place(item=1, message=f"m{n}"), f"m{n}", "user", texts.get(f"m{n}", f"{name} {n}"), Micros(n))
        for n in range(count)
    )
    return Conversation(name, messages, ())


def put(server: Server, home: Path, *found: Conversation, **options: object) -> Tally:
    tally = Tally("messages")
    with conversations(server, home, **options) as opened:
        for one in found:
            opened.put(one, tally)
    return tally


def test_a_conversation_is_cut_into_calls_that_a_server_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversing, "MAX_TEXT_BYTES", 1000)
    server = Server()
    tally = put(server, tmp_path, conversation("c", 205, m150="x" * 900, m151="y" * 2000))
    assert [len(request.messages) for request in server.requests] == [100, 50, 1, 1, 53]
    assert (tally.imported, tally.learnt) == (205, 205)
    first = server.requests[0]
    assert (first.policy, first.template.user_id) == (v1.WRITE_POLICY_RAW, "alice")
    assert first.template.source.conversation_id == "c"
    message = first.messages[7]
    assert (message.role, message.content, message.id) == ("user", "c 7", "m7")
    assert message.time.ToMicroseconds() == 7
    again = put(server, tmp_path, conversation("c", 205))
    assert (again.imported, again.already_there, len(server.requests)) == (0, 205, 5)


def test_a_conversation_that_went_on_sends_what_is_new(tmp_path: Path) -> None:
    server = Server()
    put(server, tmp_path, conversation("c", 3))
    tally = put(server, tmp_path, conversation("d", 1), conversation("c", 5))
    assert (tally.imported, tally.already_there) == (3, 3)
    assert [m.id for request in server.requests for m in request.messages] == [
        "m0",
        "m1",
        "m2",
        "m0",
        "m3",
        "m4",
    ]


def test_what_the_server_refuses_is_left_out_and_the_rest_arrives(tmp_path: Path) -> None:
    server = Server()
    tally = put(server, tmp_path, conversation("c", 5, m1="bad", m4="bad"))
    assert (tally.imported, dict(tally.skipped)) == (3, {"refused": 2})
    assert [one.place.message for one in tally.faults] == ["m1", "m4"]
    assert put(server, tmp_path, conversation("c", 1, m0="bad")).already_there == 1
    assert put(server, tmp_path, conversation("d", 1, m0="bad")).imported == 0


def test_raw_leaves_out_what_no_memory_can_hold(tmp_path: Path) -> None:
    server = Server()
    long = conversation("c", 2, m0="x" * 20_000)
    tally = put(server, tmp_path, long)
    assert (tally.imported, dict(tally.skipped)) == (1, {"too_long": 1})
    assert put(server, tmp_path, long, policy=v1.WRITE_POLICY_RULES).imported == 2


def test_what_a_model_could_not_use_and_what_was_known_is_counted(tmp_path: Path) -> None:
    issues = [
        v1.AddIssue(kind=v1.AddIssue.KIND_UNAVAILABLE, sentence="no answer", message_index=1),
        v1.AddIssue(kind=v1.AddIssue.KIND_TOO_MANY, sentence="too many"),
    ]
    tally = put(Server(issues=issues), tmp_path, conversation("c", 3))
    assert (tally.imported, tally.learnt, dict(tally.skipped)) == (3, 3, {"model": 2})
    assert [(one.place.message, one.why) for one in tally.faults] == [("m1", "no answer"), ("m0", "too many")]
    known = put(Server(status=v1.ADD_STATUS_DUPLICATE), tmp_path, conversation("d", 2))
    assert (known.imported, known.learnt, known.duplicates) == (2, 0, 2)
    assert known.line() == "imported 2, learnt 0, already there 0, duplicates 2, skipped 0"


def test_a_model_is_waited_for_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    server = Server(busy=3)
    assert put(server, tmp_path, conversation("c", 2)).learnt == 2
    assert len(server.requests) == 4
    assert {request.wait for request in server.requests} == {True}
    assert len({request.request_id for request in server.requests}) == 1
    monkeypatch.setattr(conversing, "MODEL_SECONDS", -1.0)
    server = Server(busy=1)
    with pytest.raises(DeadlineExceeded):
        put(server, tmp_path, conversation("d", 2))
    assert put(server, tmp_path, conversation("d", 2)).imported == 2
    assert server.requests[0].request_id == server.requests[1].request_id


def test_a_model_that_failed_for_good_is_asked_anew_by_the_next_import(tmp_path: Path) -> None:
    server = Server(fails=[OperationCancelled("op"), OperationCancelled("op")])
    for _ in range(2):
        with pytest.raises(OperationCancelled):
            put(server, tmp_path, conversation("c", 2))
    assert put(server, tmp_path, conversation("c", 2)).imported == 2
    assert len(set(server.asked)) == len(server.asked) == 3


def test_an_error_that_is_about_no_message_ends_it(tmp_path: Path) -> None:
    for error in (
        InvalidField.of("template.scope", "is wrong"),
        InvalidField.of("messages", "all are blank"),
    ):
        with pytest.raises(InvalidField):
            put(Server(fails=[error]), tmp_path, conversation("c", 2))
    server = Server()
    assert put(server, tmp_path, conversation("c", 2)).imported == 2


def test_a_server_that_is_away_for_a_moment_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    server = Server(fails=[Unavailable("starting")])
    assert put(server, tmp_path, conversation("c", 2)).imported == 2


def test_a_call_that_was_cut_is_not_made_anew_with_other_options(tmp_path: Path) -> None:
    server = Server(ends_at={4})
    with pytest.raises(Killed):
        put(server, tmp_path, conversation("c", 2))
    assert len(server.stored) == 2
    tally = put(server, tmp_path, conversation("c", 3), scope="work")
    assert (tally.already_there, tally.imported) == (2, 1)
    assert len(server.stored) == 3


# A repeat that is cut off too, and goes on when the first call is long forgotten.
@example([(4, 0), (1, HOUR), (6, HOUR), (2, 30 * HOUR)], [0, 1, 0, 0, 0, 0, 0])
@given(
    st.lists(st.tuples(st.integers(1, 14), st.sampled_from([0, HOUR, 30 * HOUR])), max_size=6),
    st.lists(st.integers(0, 6), min_size=7, max_size=7),
)
@settings(max_examples=200, deadline=None)
def test_every_message_arrives_once_wherever_it_is_cut_and_whenever_it_goes_on(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[tuple[int, int]], growth: list[int]
) -> None:
    home = tmp_path_factory.mktemp("home")
    server, length = Server(), 3
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conversing, "MAX_MESSAGES", 2)
        for (steps, pause), more in zip(cuts, growth, strict=False):
            server.ends_at = {server.step + steps}
            try:
                put(server, home, conversation("new", length // 4), conversation("c", length))
            except Killed:
                server.now += pause
                length += more
        server.ends_at = set()
        tally = put(server, home, conversation("new", length // 4), conversation("c", length))
    keys = server.keys()
    assert len(keys) == len(set(keys)) == length + length // 4
    assert tally.imported + tally.already_there == len(keys)
