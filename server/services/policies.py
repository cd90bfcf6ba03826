"""What a write policy makes of a conversation, before any of it is stored."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scrubjay.errors import ModelNotConfigured, check
from scrubjay.memory import MemoryId, Micros, new_memory_id, violations
from server.index.columns import View
from server.ingest.adding import Draft
from server.ingest.conversations import Conversation, Learnt, WritePolicy, found_by_rules, kept
from server.ingest.correcting import CANDIDATES, corrected, corrected_within
from server.providers.chat import ChatModel
from server.providers.embedder import Embedder, TextKind
from server.recall.query import Query
from server.recall.recipes import RECIPES
from server.shard import Shard
from server.store.memory_store import StreamKey
from tenants.tenant import Caller, Tenant


@dataclass(frozen=True, slots=True)
class Made:
    """What a policy made: memories to be stored, and of each what it was learnt from."""

    drafts: tuple[Draft, ...]
    learnt: tuple[Learnt, ...]


class Policies:
    """Makes memories of conversations. Keeps nothing between calls; safe for many threads.

    ``chat`` is the chat model, where the server has one; it is closed by whoever made it.
    """

    def __init__(self, embedder: Embedder, chat: ChatModel | None) -> None:
        self._embedder = embedder
        self._chat = chat

    def check(self, conversation: Conversation) -> None:
        """Raises ModelNotConfigured where the policy needs a model and the server has none."""
        if conversation.policy.needs_model and self._chat is None:
            raise ModelNotConfigured(f"the policy {conversation.policy.name}")

    def make(
        self, conversation: Conversation, tenant: Tenant, caller: Caller, shard: Shard, now: Micros
    ) -> Made:
        """What the conversation's policy makes of it for this caller. Needs no call's context."""
        self.check(conversation)
        key = StreamKey(tenant.incarnation, conversation.template.subject.key)

        def new_id() -> MemoryId:
            return new_memory_id(now // 1000, os.urandom(10))

        by_policy = kept if conversation.policy is WritePolicy.RAW else found_by_rules
        learnt = by_policy(conversation, new_id)
        for one in learnt:
            check(*(violation.under(f"messages[{one.message}]") for violation in violations(one.memory)))
        vectors = self._embedder.embed([one.memory.content for one in learnt], TextKind.DOCUMENT)
        learnt = corrected_within(learnt, vectors)
        return Made(tuple(_drafts(learnt, vectors, key, shard, caller, now)), tuple(learnt))


def _drafts(
    learnt: Sequence[Learnt],
    vectors: NDArray[np.float32],
    key: StreamKey,
    shard: Shard,
    caller: Caller,
    now: Micros,
) -> list[Draft]:
    drafts = []
    for one, vector in zip(learnt, vectors, strict=True):
        hits = shard.search(key, _correction_query(one, vector, caller, now), {}) if one.replaces else ()
        supersedes = (*one.supersedes, *corrected(hits, one))
        drafts.append(Draft(one.memory, vector, reason=one.reason, supersedes=supersedes))
    return drafts


def _correction_query(one: Learnt, vector: NDArray[np.float32], caller: Caller, now: Micros) -> Query:
    """What finds the memories that a correction may replace: of its scope, agent and run."""
    memory = one.memory
    by_user = memory.subject.kind == "user"
    view = View(caller.client_id, now, (memory.scope,), memory.agent_id if by_user else "", memory.run_id)
    return Query(one.replaces, vector, RECIPES["default"], view, CANDIDATES)
