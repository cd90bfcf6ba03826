"""Slow work and servers that die: what was acknowledged is done, once, by the same server or another one."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fault.conftest import Start
from fault.process import ServerProcess
from scrubjay import connect, v1
from tests.chat_server import Asked, ChatServer, every_message
from tests.waiting import patiently

BOUND_SECONDS = 40
"""A dead server's lease runs out after ten."""


@pytest.fixture
def shards(backend: str, request: pytest.FixtureRequest) -> str:
    """The setting of a server on each database."""
    return str(request.getfixturevalue("postgres_url")) if backend == "postgresql" else ""


@pytest.fixture
def let_go() -> threading.Event:
    """Set where the model is to answer."""
    return threading.Event()


@pytest.fixture
def chat(let_go: threading.Event) -> Iterator[ChatServer]:
    """A model that takes its time. A test names it before ``start``: servers keep connections to it."""

    def mind(asked: Asked) -> object:
        assert let_go.wait(BOUND_SECONDS)
        return every_message(asked)

    with ChatServer(mind) as chat:
        yield chat
        let_go.set()


def settings(chat: ChatServer, **more: str) -> dict[str, str]:
    return {"chat_base_url": chat.base_url, "chat_model": "slow-1", **more}


@contextmanager
def memories(server: ServerProcess, key: str) -> Iterator[v1.MemoryServiceStub]:
    with connect(server.address, key) as channel:
        yield v1.MemoryServiceStub(channel)


def ask(stub: v1.MemoryServiceStub, text: str) -> str:
    messages = [v1.ConversationMessage(role="user", content=text)]
    template, policy = v1.Memory(user_id="alice"), v1.WRITE_POLICY_APPEND
    request = v1.AddRequest(request_id=text, messages=messages, template=template, policy=policy)
    return stub.Add(request).operation_id


until = patiently(BOUND_SECONDS)


def done(stub: v1.MemoryServiceStub, operation_id: str) -> v1.WaitOperationResponse:
    """The operation's end."""
    response = stub.WaitOperation(v1.WaitOperationRequest(id=operation_id), timeout=BOUND_SECONDS)
    assert response.operation.state == v1.OPERATION_STATE_SUCCEEDED, response
    return response


def check_once(stub: v1.MemoryServiceStub, *texts: str) -> None:
    """Each text is one memory, written once."""
    listed = stub.List(v1.ListRequest(user_id="alice")).memories
    assert sorted(memory.content for memory in listed) == sorted(texts)
    assert len(stub.History(v1.HistoryRequest(user_id="alice")).entries) == len(texts)


def test_a_server_that_is_killed_at_work_does_it_once_when_it_is_back(
    shards: str, chat: ChatServer, let_go: threading.Event, start: Start
) -> None:
    texts = [f"I keep {n} bees" for n in range(6)]
    server = start(**settings(chat, shards=shards))
    key = server.service_key
    with memories(server, key) as stub:
        operations = [ask(stub, text) for text in texts]
        until(lambda: len(chat.requests) == 4)
    server.kill()
    server = start(**settings(chat, shards=shards))
    with memories(server, key) as stub:
        assert [ask(stub, text) for text in texts] == operations
        until(lambda: len(chat.requests) == 8)
        let_go.set()
        for operation_id, text in zip(operations, texts, strict=True):
            (result,) = done(stub, operation_id).add_response.results
            assert result.memory.content == text
        check_once(stub, *texts)


def test_a_server_that_is_killed_at_any_moment_has_done_it_once_or_does_it(
    chat: ChatServer, let_go: threading.Event, start: Start
) -> None:
    let_go.set()
    texts: list[str] = []
    operations: list[str] = []
    server = start(**settings(chat))
    key = server.service_key
    for killed in range(2):
        with memories(server, key) as stub:
            for n in range(8):
                texts.append(f"I saw bird {killed}{n} in the garden")
                operations.append(ask(stub, texts[-1]))
            until(lambda: stub.GetOperation(v1.GetOperationRequest(id=operations[-8])).operation.state > 2)
        server.kill()
        server = start(**settings(chat))
    with memories(server, key) as stub:
        for operation_id in operations:
            done(stub, operation_id)
        check_once(stub, *texts)


def test_what_a_killed_server_left_another_one_does(
    postgres_url: str, chat: ChatServer, let_go: threading.Event, start: Start, tmp_path: Path
) -> None:
    own = settings(chat, shards=postgres_url, pepper="one of both servers")
    one, other = (start(tmp_path / name, **own) for name in ("one", "other"))
    one.pause()
    with memories(other, one.service_key) as stub:
        mine = ask(stub, "I keep two cats")
        until(lambda: len(chat.requests) == 1)
        other.pause()
        one.resume()
        with memories(one, one.service_key) as there:
            until(lambda: len(chat.requests) == 2)  # the lease of the paused one ran out
            let_go.set()
            done(there, mine)
            other.resume()
            check_once(there, "I keep two cats")
        done(stub, mine)
        check_once(stub, "I keep two cats")
    first, second = (json.dumps(request["messages"]) for request in chat.requests)
    assert first == second
