"""Add with messages where a chat model reads them, on a server of each test's own: what the database decides,
and what opens the model's circuit breaker."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator

import pytest
from google.protobuf.struct_pb2 import Value

from rpc.conftest import Tenant
from rpc.modelling import (
    BOTH,
    CASES,
    RECONCILE,
    deciding,
    learn,
    stored,
    with_chat,
)
from rpc.refusal import refused
from scrubjay import v1
from server.config import Settings
from server.operations import workers
from tests.chat_server import Asked, ChatServer, said_json
from tests.model_server import Answer


@pytest.fixture
def chat() -> Iterator[ChatServer]:
    with ChatServer() as server:
        yield server


@pytest.fixture
def settings(settings: Settings, chat: ChatServer) -> Settings:
    return with_chat(settings, chat)


@pytest.mark.parametrize("backend", ["sqlite"])
@pytest.mark.parametrize("what", [what for what, case in CASES.items() if case.error is not None])
def test_what_a_model_fails_with_and_what_the_caller_gets(dev: Tenant, chat: ChatServer, what: str) -> None:
    chat.script.extend(CASES[what].answers)
    with refused() as call:
        learn(dev, *BOTH)
    assert call.code == CASES[what].error
    assert "secret" not in str(call)
    assert stored(dev) == []


def test_the_last_messages_of_a_scope_help_to_understand_the_next(dev: Tenant, chat: ChatServer) -> None:
    for n in range(12):
        learn(dev, f"Message {n}.")
    assert [one["text"] for one in chat.asked[-1].data["before"]] == [f"Message {n}." for n in range(1, 11)]
    learn(dev, "Elsewhere.", template=v1.Memory(user_id="alice", scope="work"))
    assert chat.asked[-1].data["before"] == []
    learn(dev, "Somebody else.", template=v1.Memory(user_id="bob"))
    assert chat.asked[-1].data["before"] == []


@pytest.mark.parametrize("how", ["Delete", "DeleteAll", "DeleteByFilter"])
def test_what_was_said_last_is_forgotten_with_what_is_deleted(
    dev: Tenant, chat: ChatServer, how: str
) -> None:
    (result,) = learn(dev, "My code is 1234.").results
    if how == "Delete":
        dev.memories.Delete(v1.DeleteRequest(id=result.memory.id))
    elif how == "DeleteAll":
        dev.memories.DeleteAll(v1.DeleteAllRequest(user_id="alice"))
    else:
        of_alice = v1.Condition(field="category", operator=v1.OPERATOR_EQ, value=Value(string_value="FACT"))
        chosen = v1.DeleteByFilterRequest(user_id="alice", filter=v1.Filter(condition=of_alice))
        dev.memories.DeleteByFilter(chosen)
    learn(dev, "Hello again.")
    assert "1234" not in json.dumps(chat.requests[-1])


def test_a_repeat_gets_the_first_answer_without_a_call(dev: Tenant, chat: ChatServer) -> None:
    first = learn(dev, "I prefer green tea.", request_id="once")
    assert learn(dev, "I prefer green tea.", request_id="once") == first
    chat.mind = lambda _: []
    learn(dev, "Nothing in it.", request_id="twice")
    learn(dev, "Nothing in it.", request_id="twice")
    assert len(chat.requests) == 2


def test_an_update_replaces_and_one_call_brings_it_back(dev: Tenant, chat: ChatServer) -> None:
    (old,) = dev.add("I live in Berlin.")
    chat.mind = deciding({"fact": 0, "action": "UPDATE", "memory": 0, "text": "I live in Berlin, in Mitte."})
    (result,) = learn(dev, "I live in Mitte.", policy=RECONCILE).results
    assert (result.memory.content, result.superseded_ids) == ("I live in Berlin, in Mitte.", [old.id])
    asked = chat.asked[1].data
    assert asked["facts"][0]["near"] == [0]
    assert [one["text"] for one in asked["memories"]] == ["I live in Berlin."]
    reason = dev.memories.History(v1.HistoryRequest(memory_id=result.memory.id)).entries[0].reason
    assert reason == "model: reconcile UPDATE, prompts extract-user-2 and reconcile-1, talker"
    entry = dev.memories.History(v1.HistoryRequest(memory_id=old.id)).entries[0]
    dev.memories.Restore(v1.RestoreRequest(memory_id=old.id, operation_id=entry.operation_id))
    assert not dev.memories.Get(v1.GetRequest(id=old.id)).memory.superseded_by


@pytest.fixture
def prompt_workers(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> Settings:
    """Settings of a server whose workers tell at once how far they are."""
    monkeypatch.setattr(workers, "RENEW_SECONDS", 0.05)
    return settings


@pytest.mark.parametrize("backend", ["sqlite"])
def test_an_operation_says_how_many_messages_were_read(
    prompt_workers: Settings, dev: Tenant, chat: ChatServer
) -> None:
    long, go_on = "He said this and that. " * 300, threading.Event()

    def last_part(asked: Asked) -> Answer:
        assert go_on.wait(30)
        return said_json(chat.mind(asked))

    chat.script.extend([lambda asked: said_json(chat.mind(asked)), last_part])
    begun = learn(dev, long, long + "Nora agreed.", wait=False)
    operation = v1.GetOperationRequest(id=begun.operation_id)
    deadline = time.monotonic() + 20
    while (found := dev.memories.GetOperation(operation).operation).done_count == 0:
        assert time.monotonic() < deadline
    assert (found.done_count in (1, 2), found.total_count) == (True, 2)
    go_on.set()
    waited = dev.memories.WaitOperation(v1.WaitOperationRequest(id=begun.operation_id))
    assert waited.operation.done_count == 2
