"""A chat model: any server that speaks OpenAI's ``POST /v1/chat/completions``."""

from __future__ import annotations

import json

from scrubjay.errors import ModelUnavailable
from server.providers.endpoint import Endpoint, EndpointSettings


class ChatModel:
    """One model, asked for one answer at a time. Construction makes no call. Safe for many threads.

    ``timeout_seconds`` bounds all attempts at one answer.
    """

    def __init__(self, base_url: str, model: str, api_key: str, timeout_seconds: float) -> None:
        self._model = model
        self._endpoint = Endpoint(
            EndpointSettings(
                url=base_url.rstrip("/") + "/chat/completions",
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
        body = self._endpoint.post(
            {
                "model": self._model,
                "temperature": 0,
                "messages": [
                    {"role": "system", "content": instructions},
                    {"role": "user", "content": message},
                ],
            }
        )
        try:
            content = json.loads(body)["choices"][0]["message"]["content"]
        except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
            raise self.unavailable("answers something that is no chat completion") from error
        if not isinstance(content, str):
            raise self.unavailable("answers without a text")
        return content

    def unavailable(self, what: str) -> ModelUnavailable:
        """The error that says this of the model's server."""
        return self._endpoint.unavailable(what)

    def close(self) -> None:
        """Close the connections."""
        self._endpoint.close()
