"""Conversations for a chat model, and what its answers give."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.timestamp_pb2 import Timestamp

from rpc.conftest import Tenant
from scrubjay import v1
from server.config import Settings
from tests.chat_server import Asked, ChatServer, said
from tests.model_server import Answer, silence

APPEND, RECONCILE = v1.WRITE_POLICY_APPEND, v1.WRITE_POLICY_RECONCILE
ALICE = v1.Memory(user_id="alice", source=v1.Source(conversation_id="c1"))
KINDS = v1.AddIssue.Kind
TIMEOUT_SECONDS = 1.5


def with_chat(settings: Settings, chat: ChatServer) -> Settings:
    """The settings of a server that asks this chat model."""
    chosen = Settings(
        chat_base_url=chat.base_url,
        chat_model="talker",
        chat_api_key="chat-secret",
        chat_timeout_seconds=TIMEOUT_SECONDS,
    )
    return settings.model_copy(update=chosen.model_dump(include=chosen.model_fields_set))


def at(day: str) -> Timestamp:
    time = Timestamp()
    time.FromJsonString(f"{day}T08:00:00Z")
    return time


def told(*texts: str, role: str = "user", **fields: Any) -> list[v1.ConversationMessage]:
    return [v1.ConversationMessage(role=role, content=text, **fields) for text in texts]


def learn(tenant: Tenant, *texts: str, **fields: Any) -> v1.AddResponse:
    given = {"template": ALICE, "policy": APPEND, "messages": told(*texts), "wait": True, **fields}
    return tenant.memories.Add(v1.AddRequest(**given))


def stored(tenant: Tenant) -> list[v1.Memory]:
    return list(tenant.memories.List(v1.ListRequest(user_id="alice")).memories)


def contents(response: v1.AddResponse) -> list[str]:
    return [one.memory.content for one in response.results]


def kinds(response: v1.AddResponse) -> list[str]:
    return [KINDS.Name(issue.kind).removeprefix("KIND_") for issue in response.issues]


# --- what a model answers, and what the caller gets -------------------------------------------------

TEA = {"text": "I prefer green tea.", "category": "PREFERENCE", "tags": ["drinks"], "message": 0}
DOG = {"text": "我养了一只叫豆豆的狗。", "category": "FACT", "message": 1}
BOTH = [TEA["text"], DOG["text"]]
RIGHT = json.dumps({"memories": [TEA, DOG]}, ensure_ascii=False)


@dataclass(frozen=True)
class Case:
    """Answers, and what comes of them: memories, kinds of issues, or the code of an error. A channel repeats
    what is UNAVAILABLE."""

    answers: tuple[Callable[[Asked], Answer | None], ...]
    stored: tuple[str, ...] = ()
    issues: tuple[str, ...] = ()
    error: grpc.StatusCode | None = None


def case(*answers: Answer | str | None, **outcome: Any) -> Case:
    steps = [said(one) if isinstance(one, str) else one for one in answers]
    return Case(tuple((lambda _, step=step: step) for step in steps), **outcome)


ONE, TWO = (BOTH[0],), tuple(BOTH)
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
MANY = [{"text": f"Fact number {n} of this day."} for n in range(120)]
CASES: dict[str, Case] = {
    "JSON in a code fence": case(f"```json\n{RIGHT}\n```", stored=TWO),
    "prose around the JSON": case(f"Sure, here it is [1]:\n{RIGHT}\nAnything else?", stored=TWO),
    "thoughts before it": case(f"<think>Is [this] one?</think>{RIGHT}", stored=TWO),
    "a list of strings": case(json.dumps(BOTH), stored=TWO),
    "a `facts` key": case(json.dumps({"facts": BOTH}), stored=TWO),
    "a tool call": case(
        said("", tool_calls=[{"function": {"name": "remember", "arguments": RIGHT}}]), stored=TWO
    ),
    "keys are missing": case(json.dumps([{"text": TEA["text"]}, {"memory": DOG["text"]}]), stored=TWO),
    "an item that says nothing": case(
        json.dumps({"memories": [TEA, {"category": "FACT"}]}), stored=ONE, issues=("UNREADABLE",)
    ),
    "an id that it was not shown": case(
        json.dumps({"memories": [{**TEA, "supersedes": [7], "linked": ["x"]}]}),
        stored=ONE,
        issues=("INVENTED_ID",),
    ),
    "half an answer": case(RIGHT[: RIGHT.index("豆豆")], stored=ONE, issues=("CUT",)),
    "no list at all": case("I'm sorry, I can't do that.", issues=("UNREADABLE",)),
    "a memory that is too long": case(
        json.dumps([TEA, {"text": "long " * 5_000}]), stored=ONE, issues=("REFUSED",)
    ),
    "more than 100 memories": case(
        json.dumps(MANY), stored=tuple(str(one["text"]) for one in MANY[:100]), issues=("TOO_MANY",)
    ),
    "the connection breaks off, then an answer": case(
        Answer(body=b"x" * 200, hangs_up=True), RIGHT, stored=TWO
    ),
    "429 with Retry-After: 1, then an answer": case(
        Answer(429, headers={"retry-after": "1"}), RIGHT, stored=TWO
    ),
    "429 with Retry-After: 60": case(*[Answer(429, headers={"retry-after": "60"})] * 9, error=UNAVAILABLE),
    "500, then an answer": case(Answer(500), RIGHT, stored=TWO),
    "500 again and again": case(*[Answer(500, b"chat-secret")] * 40, error=UNAVAILABLE),
    "silence": case(*[silence()] * 20, error=UNAVAILABLE),
    "200 with HTML": case(*[Answer(body=b"<html>Sign in</html>")] * 9, error=UNAVAILABLE),
    "401": case(*[Answer(401, b"chat-secret")] * 9, error=UNAVAILABLE),
    "404": case(Answer(404), error=grpc.StatusCode.FAILED_PRECONDITION),
}


def deciding(*decisions: dict[str, Any]) -> Callable[[Asked], object]:
    """A mind that keeps what was said, and decides so of its first facts."""

    def mind(asked: Asked) -> object:
        if asked.compares:
            return {"decisions": list(decisions)}
        return {"memories": [{"text": text} for text in asked.texts]}

    return mind
