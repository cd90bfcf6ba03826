"""A stand-in for a slow model: what it makes of messages is held back until a test lets it go."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from server.ingest.conversations import Conversation, WritePolicy
from server.services.policies import Made, Policies

PATIENCE_SECONDS = 20


class SlowModel:
    """Makes a memory of each message that is not the system's, once ``release`` was called. Where ``error``
    is set, it fails with that then.

    ``asked`` are the texts of the first messages it was asked about, in order.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.error: Exception | None = None
        self.at_once = 0
        self.most_at_once = 0
        self._changed = threading.Condition()
        self._free = False

    def release(self) -> None:
        """Answer what was asked, and from now on at once."""
        with self._changed:
            self._free = True
            self._changed.notify_all()

    def hold(self) -> None:
        """Hold answers back again."""
        with self._changed:
            self._free = False

    def until_asked(self, times: int = 1) -> None:
        """Return once it was asked so often."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.asked) >= times, PATIENCE_SECONDS)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Ask it wherever a policy needs a model, in every server of this process."""
        make = Policies.make

        def made(policies: Policies, conversation: Conversation, *rest: Any) -> Made:
            if not conversation.policy.needs_model:
                return make(policies, conversation, *rest)
            self._answer(conversation)
            return make(policies, replace(conversation, policy=WritePolicy.RAW), *rest)

        monkeypatch.setattr(Policies, "make", made)
        monkeypatch.setattr(Policies, "check", lambda *_: None)
        monkeypatch.setattr(Policies, "asks_model", lambda _, conversation: conversation.policy.needs_model)

    def _answer(self, conversation: Conversation) -> None:
        with self._changed:
            self.asked.append(conversation.said[0].text)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._free, PATIENCE_SECONDS)
            self.at_once -= 1
        if self.error is not None:
            raise self.error
