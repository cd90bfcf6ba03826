"""The chat model: what its server is asked, and how its answers are read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from scrubjay.errors import ModelUnavailable
from server.providers.chat import ChatModel
from tests.model_server import Answer, ModelServer


def body(message: Any) -> Answer:
    return Answer(body=json.dumps({"choices": [{"message": message}]}).encode())


@pytest.fixture
def server() -> Iterator[ModelServer[dict[str, Any]]]:
    right = body({"role": "assistant", "content": "right"})
    with ModelServer("/v1/chat/completions", lambda request: request, lambda _: right) as server:
        yield server


@pytest.fixture
def chat(server: ModelServer[dict[str, Any]]) -> Iterator[ChatModel]:
    with closing(ChatModel(server.base_url, "talker", "key", 5)) as chat:
        yield chat


def test_json_mode_is_asked_for_where_it_is_wanted(
    server: ModelServer[dict[str, Any]], chat: ChatModel
) -> None:
    assert chat.complete_json("answer as JSON", "hello") == "right"
    assert chat.complete("answer", "hello") == "right"
    asked, plain = server.requests
    assert asked["response_format"] == {"type": "json_object"}
    assert "response_format" not in plain
    assert asked["messages"] == [
        {"role": "system", "content": "answer as JSON"},
        {"role": "user", "content": "hello"},
    ]


def test_a_server_without_json_mode_is_asked_without_and_that_is_remembered(
    server: ModelServer[dict[str, Any]], chat: ChatModel
) -> None:
    server.script.append(lambda _: Answer(400))
    assert [chat.complete_json("JSON", "hello") for _ in range(2)] == ["right", "right"]
    assert ["response_format" in request for request in server.requests] == [True, False, False]


def test_a_request_that_is_refused_either_way_forgets_nothing(
    server: ModelServer[dict[str, Any]], chat: ChatModel
) -> None:
    server.script.extend([lambda _: Answer(400)] * 2)
    with pytest.raises(ModelUnavailable, match="answers 400"):
        chat.complete_json("JSON", "hello")
    chat.complete_json("JSON", "hello")
    assert "response_format" in server.requests[-1]


READ = {
    "content": ({"content": "said"}, "said"),
    "an empty one": ({"content": ""}, ""),
    "parts": ({"content": [{"type": "text", "text": "sa"}, {"type": "text", "text": "id"}]}, "said"),
    "a tool call": (
        {"content": None, "tool_calls": [{"function": {"name": "f", "arguments": '{"a": 1}'}}]},
        '{"a": 1}',
    ),
    "content beside a tool call": (
        {"content": "said", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
        "said",
    ),
}


@pytest.mark.parametrize("what", READ)
def test_an_answer_is_read(server: ModelServer[dict[str, Any]], chat: ChatModel, what: str) -> None:
    message, text = READ[what]
    server.script.append(lambda _: body(message))
    assert chat.complete("answer", "hello") == text


@pytest.mark.parametrize(
    "answer",
    [
        Answer(body=b"<html>Sign in</html>"),
        Answer(body=b"[]"),
        Answer(body=b'{"choices": []}'),
        Answer(body=b'{"choices": [{"message": null}]}'),
        Answer(body=b"[" * 100_000),
        body({}),
        body({"content": 5}),
        body({"content": [1]}),
        body({"content": None, "tool_calls": [{}]}),
        body({"content": None, "tool_calls": 3}),
    ],
)
def test_what_is_no_answer_is_unavailable(
    server: ModelServer[dict[str, Any]], chat: ChatModel, answer: Answer
) -> None:
    server.script.append(lambda _: answer)
    with pytest.raises(ModelUnavailable):
        chat.complete("answer", "hello")
