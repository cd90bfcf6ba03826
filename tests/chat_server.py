"""A chat model for tests: says what its script says, and what a mind of a few rules makes of the rest."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.model_server import Answer, ModelServer


@dataclass(frozen=True)
class Asked:
    """What the model was asked: the instructions, and the data that the message holds."""

    instructions: str
    data: dict[str, Any]

    @property
    def compares(self) -> bool:
        """Whether facts are to be compared with memories, and not messages to be read."""
        return "facts" in self.data

    @property
    def texts(self) -> list[str]:
        """The texts of the messages, or of the facts."""
        return [one["text"] for one in self.data["facts" if self.compares else "messages"]]


Mind = Callable[[Asked], object]
"""What a model that behaves answers, before it is JSON."""


def said(text: str, **message: object) -> Answer:
    """An answer of this text."""
    body = {"choices": [{"message": {"role": "assistant", "content": text, **message}}]}
    return Answer(body=json.dumps(body).encode())


def said_json(value: object) -> Answer:
    """An answer of this value as JSON."""
    return said(json.dumps(value, ensure_ascii=False))


def every_message(asked: Asked) -> object:
    """A mind that keeps every message as it is, and takes every fact for new."""
    if asked.compares:
        return {"decisions": [{"fact": n, "action": "ADD"} for n in range(len(asked.texts))]}
    people = [one for one in asked.data["messages"] if one["role"] != "assistant"]
    return {"memories": [{"text": one["text"], "message": one["n"]} for one in people]}


class ChatServer(ModelServer[Asked]):
    """``POST /v1/chat/completions``; its script's steps are functions of what was asked."""

    def __init__(self, mind: Mind = every_message) -> None:
        self.mind = mind
        super().__init__("/v1/chat/completions", _asked, lambda asked: said_json(self.mind(asked)))

    @property
    def asked(self) -> list[Asked]:
        """What it was asked, in order."""
        return [_asked(request) for request in self.requests]


def _asked(request: dict[str, Any]) -> Asked:
    system, user = request["messages"]
    return Asked(system["content"], json.loads(user["content"]))
