"""Slow work: acknowledged at once, done once, told to who asked for it."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from rpc.conftest import Serving, Tenant
from rpc.refusal import refused
from rpc.slow_model import PATIENCE_SECONDS, SlowModel
from scrubjay import v1
from scrubjay.errors import ModelUnavailable
from server.config import Settings
from server.services import operations
from tests.databases import rows_of
from tests.waiting import patiently

APPEND = v1.WRITE_POLICY_APPEND
ALICE = v1.Memory(user_id="alice")
BOTH = pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
"""For what the databases could do differently; the others run on SQLite alone."""
PENDING, RUNNING, SUCCEEDED, FAILED, CANCELLED = (
    v1.OPERATION_STATE_PENDING,
    v1.OPERATION_STATE_RUNNING,
    v1.OPERATION_STATE_SUCCEEDED,
    v1.OPERATION_STATE_FAILED,
    v1.OPERATION_STATE_CANCELLED,
)


@pytest.fixture
def backend() -> str:
    return "sqlite"


@pytest.fixture(autouse=True)
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowModel]:
    """The model, which holds its answers back; before the server, so that it outlives it."""
    model = SlowModel()
    model.install(monkeypatch)
    yield model
    model.release()


@pytest.fixture
def dev(model: SlowModel, serving: Serving) -> Iterator[Tenant]:
    """The first tenant, whose work ends before its server does."""
    yield serving.dev
    model.release()


def said(*texts: str) -> list[v1.ConversationMessage]:
    return [v1.ConversationMessage(role="user", content=text) for text in texts]


def ask(tenant: Tenant, *texts: str, **fields: Any) -> v1.AddResponse:
    given = {"template": ALICE, "policy": APPEND, **fields}
    return tenant.memories.Add(v1.AddRequest(messages=said(*texts), **given), timeout=PATIENCE_SECONDS)


def stands(tenant: Tenant, operation_id: str) -> v1.GetOperationResponse:
    return tenant.memories.GetOperation(v1.GetOperationRequest(id=operation_id))


def wait(tenant: Tenant, operation_id: str, **fields: Any) -> v1.WaitOperationResponse:
    request = v1.WaitOperationRequest(id=operation_id, **fields)
    return tenant.memories.WaitOperation(request, timeout=PATIENCE_SECONDS)


def cancel(tenant: Tenant, operation_id: str) -> v1.LongRunningOperation:
    return tenant.memories.CancelOperation(v1.CancelOperationRequest(id=operation_id)).operation


def contents(tenant: Tenant, user_id: str = "alice") -> list[str]:
    listed = tenant.memories.List(v1.ListRequest(user_id=user_id)).memories
    return sorted(memory.content for memory in listed)


until = patiently(PATIENCE_SECONDS)


@BOTH
def test_an_add_that_asks_a_model_is_answered_before_the_model_is(dev: Tenant, model: SlowModel) -> None:
    answer = ask(dev, "tea", "coffee", request_id="r")
    assert not answer.results
    assert not answer.revision
    model.until_asked()
    operation = stands(dev, answer.operation_id).operation
    assert (operation.state, operation.kind, operation.user_id) == (RUNNING, "Add", "alice")
    assert (operation.request_id, operation.total_count, operation.HasField("ended_at")) == ("r", 2, False)
    assert contents(dev) == []
    model.release()
    ended = wait(dev, answer.operation_id)
    assert ended.operation.state == SUCCEEDED
    assert (ended.operation.done_count, ended.operation.HasField("ended_at")) == (2, True)
    assert [one.memory.content for one in ended.add_response.results] == ["tea", "coffee"]
    assert [one.message_index for one in ended.add_response.results] == [0, 1]
    assert ended.add_response == stands(dev, answer.operation_id).add_response
    read = v1.ListRequest(user_id="alice", min_revision=ended.add_response.revision)
    assert [memory.content for memory in dev.memories.List(read).memories] == ["coffee", "tea"]


def test_messages_without_a_time_were_said_when_they_were_sent(dev: Tenant, model: SlowModel) -> None:
    before = Timestamp()
    before.GetCurrentTime()
    answer = ask(dev, "tea")
    after = Timestamp()
    after.GetCurrentTime()
    model.until_asked()
    until(lambda: time.time() > after.ToNanoseconds() / 1e9 + 0.1)
    model.release()
    (result,) = wait(dev, answer.operation_id).add_response.results
    created = result.memory.created_at.ToNanoseconds()
    assert before.ToNanoseconds() - 10_000_000 <= created <= after.ToNanoseconds()
    assert result.memory.updated_at.ToNanoseconds() > after.ToNanoseconds()


def test_what_needs_no_model_is_answered_with_its_results(dev: Tenant) -> None:
    for fields in ({"policy": v1.WRITE_POLICY_RAW}, {"policy": v1.WRITE_POLICY_RAW, "wait": True}):
        answer = ask(dev, "tea", **fields)
        assert [one.memory.content for one in answer.results] == ["tea"]
        assert not answer.operation_id


@BOTH
def test_the_same_request_is_the_same_operation_however_long_it_waits(dev: Tenant, model: SlowModel) -> None:
    first = ask(dev, "tea", request_id="r")
    assert ask(dev, "tea", request_id="r") == first
    with refused() as answer:
        ask(dev, "coffee", request_id="r")
    assert answer.error.reason == v1.ERROR_REASON_REQUEST_ID_REUSED
    model.release()
    waited = ask(dev, "tea", request_id="r", wait=True)
    assert [one.memory.content for one in waited.results] == ["tea"]
    assert ask(dev, "tea", request_id="r", wait=True) == waited
    assert contents(dev) == ["tea"]
    assert len(model.asked) == 1


def test_who_waits_gets_the_results(dev: Tenant, model: SlowModel) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ask, dev, "tea", wait=True)
        model.until_asked()
        model.release()
        answer = waiting.result(PATIENCE_SECONDS)
    assert [one.memory.content for one in answer.results] == ["tea"]
    assert answer.revision
    assert not answer.operation_id


def test_who_waits_hears_of_the_operation_before_its_deadline(dev: Tenant, model: SlowModel) -> None:
    request = v1.AddRequest(messages=said("tea"), template=ALICE, policy=APPEND, wait=True)
    answer = dev.memories.Add(request, timeout=0.5)
    assert not answer.results
    assert stands(dev, answer.operation_id).operation.state == RUNNING
    model.release()
    assert wait(dev, answer.operation_id).operation.state == SUCCEEDED
    assert contents(dev) == ["tea"]


def test_a_wait_ends_with_its_timeout(dev: Tenant, model: SlowModel) -> None:
    answer = ask(dev, "tea")
    model.until_asked()
    began = time.monotonic()
    response = wait(dev, answer.operation_id, timeout=Duration(nanos=50_000_000))
    assert 0.05 <= time.monotonic() - began < PATIENCE_SECONDS / 2
    assert response.operation.state == RUNNING
    assert not response.HasField("add_response")
    with refused() as answered:
        wait(dev, answer.operation_id, timeout=Duration(seconds=-1))
    assert answered.fields == ["timeout"]


def test_waits_keep_no_handler_busy(
    settings: Settings, model: SlowModel, request: pytest.FixtureRequest
) -> None:
    settings.__dict__["handler_threads"] = 2  # before the server is made of them
    dev = request.getfixturevalue("serving").dev
    answer = ask(dev, "tea")
    with ThreadPoolExecutor(8) as pool:
        waits = [pool.submit(wait, dev, answer.operation_id) for _ in range(8)]
        model.until_asked()
        for _ in range(10):
            assert contents(dev) == []
        model.release()
        assert {one.result(PATIENCE_SECONDS).operation.state for one in waits} == {SUCCEEDED}


def test_a_server_that_stops_keeps_nobody_waiting(serving: Serving, dev: Tenant, model: SlowModel) -> None:
    answer = ask(dev, "tea", request_id="r")
    model.until_asked()
    with ThreadPoolExecutor(3) as pool:
        waits = [
            pool.submit(wait, dev, answer.operation_id),
            pool.submit(ask, dev, "tea", request_id="r", wait=True),
        ]
        stopping = pool.submit(serving.app.close)
        for one in waits:
            told = one.exception(PATIENCE_SECONDS)
            assert isinstance(told, grpc.RpcError)
            assert told.code() is grpc.StatusCode.UNAVAILABLE
        model.release()
        stopping.result(PATIENCE_SECONDS)


def test_what_is_wrong_is_refused_at_once(dev: Tenant, model: SlowModel) -> None:
    for fields, field in (
        ({"template": v1.Memory()}, "template.user_id"),
        ({"template": v1.Memory(user_id="alice", content="x")}, "template.content"),
        ({"memories": [v1.Memory(user_id="alice", content="x")]}, "messages"),
    ):
        with refused() as answer:
            ask(dev, "tea", **fields)
        assert answer.code is grpc.StatusCode.INVALID_ARGUMENT
        assert answer.fields == [field]
    with refused() as answer:
        ask(dev, "  ")
    assert answer.fields == ["messages"]
    assert not model.asked
    assert not dev.memories.ListOperations(v1.ListOperationsRequest()).operations


@BOTH
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ModelUnavailable("the chat model does not answer"), v1.ERROR_REASON_MODEL_UNAVAILABLE),
        (RuntimeError("secret words of a driver"), v1.ERROR_REASON_INTERNAL),
    ],
)
def test_what_fails_stores_nothing_and_says_why(
    dev: Tenant, model: SlowModel, error: Exception, reason: v1.ErrorReason.ValueType
) -> None:
    model.error = error
    model.release()
    answer = ask(dev, "tea", request_id="r")
    operation = wait(dev, answer.operation_id).operation
    assert (operation.state, operation.error.reason) == (FAILED, reason)
    assert operation.error.message
    assert "secret" not in str(operation)
    with refused() as told:
        ask(dev, "tea", request_id="r", wait=True)
    assert told.error.reason == reason
    assert told.error.metadata["operation_id"] == answer.operation_id
    assert contents(dev) == []
    with refused() as told:
        cancel(dev, answer.operation_id)
    assert told.error.reason == v1.ERROR_REASON_OPERATION_ENDED


@BOTH
def test_results_say_what_memories_mention_as_without_waiting(dev: Tenant, model: SlowModel) -> None:
    model.release()
    text = "My sister Anna works at Acme."
    waited = ask(dev, text, wait=True)
    assert [one.name for one in waited.results[0].entities]
    template = v1.Memory(user_id="bob")
    direct = ask(dev, text, template=template, policy=v1.WRITE_POLICY_RAW).results[0]
    named = [{(one.kind, one.name) for one in each.entities} for each in (waited.results[0], direct)]
    assert {name for _, name in named[0]} - {"alice"} == {name for _, name in named[1]} - {"bob"}
    assert [one.relation for one in waited.results[0].relations] == [one.relation for one in direct.relations]


def test_work_that_finds_nothing_succeeds(dev: Tenant, model: SlowModel) -> None:
    model.release()
    message = v1.ConversationMessage(role="system", content="You are helpful.")
    answer = dev.memories.Add(v1.AddRequest(messages=[message], template=ALICE, policy=APPEND))
    ended = wait(dev, answer.operation_id)
    assert ended.operation.state == SUCCEEDED
    assert ended.HasField("add_response")
    assert not ended.add_response.results


# --- cancelling -----------------------------------------------------------------------------------


@BOTH
def test_what_waits_for_its_turn_is_cancelled_for_good(dev: Tenant, model: SlowModel) -> None:
    mine = [ask(dev, f"note {n}").operation_id for n in range(10)]
    model.until_asked(4)
    waiting = mine[-1]
    assert stands(dev, waiting).operation.state == PENDING
    cancelled = cancel(dev, waiting)
    assert (cancelled.state, cancelled.HasField("ended_at")) == (CANCELLED, True)
    assert cancel(dev, waiting) == cancelled
    model.release()
    states = {wait(dev, one).operation.state for one in mine[:-1]}
    assert states == {SUCCEEDED}
    assert contents(dev) == [f"note {n}" for n in range(9)]
    assert "note 9" not in model.asked


@BOTH
def test_what_runs_is_cancelled_before_it_writes(dev: Tenant, model: SlowModel) -> None:
    answer = ask(dev, "tea", request_id="r")
    model.until_asked()
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(wait, dev, answer.operation_id)
        adding = pool.submit(ask, dev, "tea", request_id="r", wait=True)
        assert cancel(dev, answer.operation_id).state == CANCELLED
        assert waiting.result(PATIENCE_SECONDS).operation.state == CANCELLED
        told = adding.exception(PATIENCE_SECONDS)
    assert isinstance(told, grpc.RpcError)
    assert told.code() is grpc.StatusCode.ABORTED
    model.release()
    other = ask(dev, "coffee", wait=True)
    assert [one.memory.content for one in other.results] == ["coffee"]
    until(lambda: model.at_once == 0)
    assert contents(dev) == ["coffee"]
    assert stands(dev, answer.operation_id).operation.state == CANCELLED


def test_what_was_written_can_t_be_cancelled(dev: Tenant, model: SlowModel) -> None:
    model.release()
    answer = ask(dev, "tea")
    wait(dev, answer.operation_id)
    with refused() as told:
        cancel(dev, answer.operation_id)
    assert told.code is grpc.StatusCode.FAILED_PRECONDITION
    assert told.error.reason == v1.ERROR_REASON_OPERATION_ENDED
    assert contents(dev) == ["tea"]


# --- what is forgotten ----------------------------------------------------------------------------


def test_a_deleted_memory_does_not_live_on_in_an_answer(dev: Tenant, model: SlowModel) -> None:
    model.release()
    answer = ask(dev, "quokka one", "quokka two")
    one, two = wait(dev, answer.operation_id).add_response.results
    dev.memories.Delete(v1.DeleteRequest(id=one.memory.id))
    gone, there = stands(dev, answer.operation_id).add_response.results
    assert gone.error.reason == v1.ERROR_REASON_MEMORY_DELETED
    assert there == two


@BOTH
def test_delete_all_cancels_what_is_under_way_and_forgets_what_has_ended(
    serving: Serving, dev: Tenant, model: SlowModel
) -> None:
    model.release()
    ended = ask(dev, "quokka ended").operation_id
    wait(dev, ended)
    model.hold()
    running = [ask(dev, f"quokka {n}").operation_id for n in range(6)]
    bob = ask(dev, "bob's", template=v1.Memory(user_id="bob")).operation_id
    model.until_asked(5)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait, dev, running[0])
        assert dev.memories.DeleteAll(v1.DeleteAllRequest(user_id="alice")).deleted_count == 1
        assert waiting.result(PATIENCE_SECONDS).operation.state == CANCELLED
    assert {stands(dev, one).operation.state for one in running} == {CANCELLED}
    with refused() as told:
        stands(dev, ended)
    assert told.error.reason == v1.ERROR_REASON_OPERATION_NOT_FOUND
    rows = rows_of(serving.settings, "SELECT request, answer FROM jobs")
    assert not any(b"quokka" in bytes(value) for row in rows for value in row)
    model.release()
    assert wait(dev, bob).operation.state == SUCCEEDED
    until(lambda: model.at_once == 0)
    assert contents(dev) == []


def test_what_was_asked_is_forgotten_when_it_is_done(serving: Serving, dev: Tenant, model: SlowModel) -> None:
    answer = ask(dev, "quokka")
    rows = rows_of(serving.settings, "SELECT request FROM jobs")
    assert [b"quokka" in bytes(row[0]) for row in rows] == [True]
    model.release()
    wait(dev, answer.operation_id)
    rows = rows_of(serving.settings, "SELECT request, answer, error FROM jobs")
    assert not any(b"quokka" in bytes(value) for row in rows for value in row)


# --- who sees it, and lists -----------------------------------------------------------------------


@BOTH
def test_lists_have_what_the_client_asked_for_in_pages(
    serving: Serving, dev: Tenant, model: SlowModel
) -> None:
    model.release()
    mine = [ask(dev, f"{n}", template=v1.Memory(user_id=f"u{n % 2}")).operation_id for n in range(5)]
    for one in mine:
        wait(dev, one)
    model.hold()
    open_one = ask(dev, "open").operation_id
    desk = serving.named("dev", dev.key, client_id="desk")
    theirs = ask(desk, "theirs").operation_id

    def listed(tenant: Tenant, **fields: Any) -> list[str]:
        found: list[str] = []
        request = v1.ListOperationsRequest(page_size=2, **fields)
        while True:
            page = tenant.memories.ListOperations(request)
            assert len(page.operations) <= 2
            found += [one.id for one in page.operations]
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    assert listed(dev) == [open_one, *mine[::-1]]
    assert listed(dev, user_id="u0") == [mine[4], mine[2], mine[0]]
    assert listed(dev, states=[SUCCEEDED]) == mine[::-1]
    assert listed(dev, states=[PENDING, RUNNING]) == [open_one]
    assert listed(desk) == [theirs]
    token = dev.memories.ListOperations(v1.ListOperationsRequest(page_size=2)).next_page_token
    with refused() as told:
        desk.memories.ListOperations(v1.ListOperationsRequest(page_size=2, page_token=token))
    assert told.fields == ["page_token"]
    with refused() as told:
        dev.memories.ListOperations(v1.ListOperationsRequest(states=[9]))
    assert told.fields == ["states[0]"]


def acting(serving: Serving, client_id: str, role: v1.Role.ValueType, tenant_id: str = "dev") -> Tenant:
    """A new key of this role, for a client."""
    made = serving.admin.CreateApiKey(v1.CreateApiKeyRequest(tenant_id=tenant_id, role=role))
    return serving.named(tenant_id, made.secret, client_id=client_id)


@pytest.mark.parametrize("level", [v1.PRIVACY_LEVEL_SHARED, v1.PRIVACY_LEVEL_PRIVATE])
@pytest.mark.parametrize("ended", [False, True])
def test_an_operation_is_known_to_who_asked_for_it_alone(
    serving: Serving, dev: Tenant, model: SlowModel, level: v1.PrivacyLevel.ValueType, ended: bool
) -> None:
    phone = acting(serving, "phone", v1.ROLE_SERVICE)
    template = v1.Memory(user_id="alice", privacy_level=level)
    operation_id, nobody = ask(phone, "quokka", template=template).operation_id, str(uuid.uuid4())
    if ended:
        model.release()
        wait(phone, operation_id)
    serving.tenant("stranger")
    admins = [acting(serving, "phone", v1.ROLE_TENANT_ADMIN)]
    readers = [acting(serving, "phone", v1.ROLE_READER)]
    others = [
        acting(serving, "desk", v1.ROLE_SERVICE),
        acting(serving, "desk", v1.ROLE_READER),
        acting(serving, "phone", v1.ROLE_SERVICE, "stranger"),
    ]
    brief = Duration(nanos=1)
    calls: list[Callable[[Tenant, str], Any]] = [stands, lambda *to: wait(*to, timeout=brief), cancel]
    for other, call in itertools.product([*others, *admins], calls):
        told, told_of_none = refusal(call, other, operation_id), refusal(call, other, nobody)
        assert told == (told_of_none[0], told_of_none[1].replace(nobody, operation_id))
        assert told[0] is not grpc.StatusCode.OK
    assert refusal(cancel, readers[0], operation_id)[0] is grpc.StatusCode.PERMISSION_DENIED
    for other in others:
        assert not other.memories.ListOperations(v1.ListOperationsRequest()).operations
    for mine in (phone, *readers):
        assert stands(mine, operation_id).operation.state == (SUCCEEDED if ended else RUNNING)
        (listed,) = mine.memories.ListOperations(v1.ListOperationsRequest()).operations
        assert listed.id == operation_id
    with refused() as answer:
        stands(dev, "no id")
    assert answer.fields == ["id"]


def refusal(
    call: Callable[[Tenant, str], Any], tenant: Tenant, operation_id: str
) -> tuple[grpc.StatusCode, str]:
    """What the call is refused with, but for the id that it names itself."""
    with refused() as answer:
        call(tenant, operation_id)
    return answer.code, answer.details.decode(errors="replace")


@BOTH
def test_a_tenant_may_leave_so_much_open_and_no_more(
    serving: Serving, dev: Tenant, model: SlowModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "MAX_OPEN", 3)
    mine = [ask(dev, f"note {n}", request_id=f"{n}").operation_id for n in range(3)]
    with refused() as told:
        ask(dev, "one more")
    assert told.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert told.error.retry_after_seconds
    assert ask(dev, "note 0", request_id="0").operation_id == mine[0]
    other = ask(serving.tenant("other"), "of another tenant")
    assert other.operation_id
    cancel(dev, mine[0])
    assert ask(dev, "one more").operation_id
    monkeypatch.setattr(operations, "MAX_OPEN", 1000)
    monkeypatch.setattr(operations, "MAX_OPEN_BYTES", 1000)
    with refused() as told:
        ask(dev, "x" * 900)
    assert told.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert ask(dev, "short").operation_id


# --- fairness -------------------------------------------------------------------------------------


@BOTH
def test_one_tenant_s_queue_does_not_keep_another_one_waiting(
    serving: Serving, dev: Tenant, model: SlowModel
) -> None:
    other = serving.tenant("other")
    queued = [ask(dev, f"note {n}").operation_id for n in range(200)]
    model.until_asked(4)
    mine = ask(other, "mine").operation_id
    model.until_asked(5)
    assert model.asked[4] == "mine"
    assert model.at_once == 5
    model.release()
    assert wait(other, mine).operation.state == SUCCEEDED
    assert wait(dev, queued[-1]).operation.state == SUCCEEDED
