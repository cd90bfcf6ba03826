"""A chat model: any server that speaks OpenAI's ``POST /v1/chat/completions``."""

from __future__ import annotations

import json
from typing import Any

from scrubjay.errors import ModelUnavailable
from server.providers.endpoint import Endpoint, EndpointSettings, RequestRefused

_PATH = "/chat/completions"


class ChatModel:
    """One model, asked for one answer at a time. Construction makes no call. Safe for many threads.

    ``timeout_seconds`` bounds all attempts at one answer.
    """

    def __init__(self, base_url: str, model: str, api_key: str, timeout_seconds: float) -> None:
        self._model = model
        self._takes_json_mode = True
        self._endpoint = Endpoint(
            EndpointSettings(
                url=base_url.rstrip("/") + _PATH,
                model=model,
                kind="chat model server",
                api_key=api_key,
                timeout_seconds=timeout_seconds,
                budget_seconds=timeout_seconds,
            )
        )

    @property
    def name(self) -> str:
        """The model, for people."""
        return self._model

    def complete(self, instructions: str, message: str) -> str:
        """The model's answer to a message under instructions. ModelUnavailable, ModelMismatch."""
        return self._answer(self._request(instructions, message))

    def complete_json(self, instructions: str, message: str) -> str:
        """The same from a model that is told to answer with a JSON object, where its server knows how to.

        It may still answer with anything. The instructions must hold the word JSON.
        """
        request = self._request(instructions, message)
        if not self._takes_json_mode:
            return self._answer(request)
        try:
            return self._answer({**request, "response_format": {"type": "json_object"}})
        except RequestRefused:
            answer = self._answer(request)
            self._takes_json_mode = False
            return answer

    def _request(self, instructions: str, message: str) -> dict[str, Any]:
        return {
            "model": self._model,
            "temperature": 0,
            "messages": [
                {"role": "system", "content": instructions},
                {"role": "user", "content": message},
            ],
        }

    def _answer(self, request: dict[str, Any]) -> str:
        body = self._endpoint.post(request)
        try:
            message = json.loads(body)["choices"][0]["message"]
            text = _text(message)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
            raise self.unavailable("answers something that is no chat completion") from error
        if text is None:
            raise self.unavailable("answers without a text")
        return text

    def unavailable(self, what: str) -> ModelUnavailable:
        """The error that says this of the model's server."""
        return self._endpoint.unavailable(what)

    def close(self) -> None:
        """Close the connections."""
        self._endpoint.close()


def _text(message: dict[str, Any]) -> str | None:
    """What a message says: its content, whole or in parts, or else the arguments of its first tool call."""
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(part["text"] for part in content if part.get("type") == "text")
    if not content and message.get("tool_calls"):
        content = message["tool_calls"][0]["function"]["arguments"]
    return content if isinstance(content, str) else None
