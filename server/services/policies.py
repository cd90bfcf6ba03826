"""What a write policy makes of a conversation, before any of it is stored."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scrubjay.errors import ModelMismatch, ModelNotConfigured, ModelUnavailable, check
from scrubjay.memory import ClientId, Memory, MemoryId, Micros, PrivacyLevel, new_memory_id
from scrubjay.validity import violations
from server.index.columns import View
from server.ingest.adding import Draft
from server.ingest.chat.issues import Issue, IssueKind
from server.ingest.chat.pieces import told
from server.ingest.conversations import Conversation, Learnt, WritePolicy, found_by_rules, kept
from server.ingest.correcting import CANDIDATES, corrected, corrected_within
from server.ingest.rules.extraction import undecided
from server.ingest.rules.fact import Said
from server.providers.chat import ChatModel
from server.providers.embedder import TextKind
from server.providers.embedders import Embedders
from server.recall.query import Hit, Query
from server.recall.recipes import RECIPES
from server.services.modelling import Modelled, Modelling, Surroundings
from server.shard import Shard
from server.store.memory_store import StreamKey, Writing
from server.store.recent_messages import KEPT, RecentMessage
from tenants.tenant import Caller, Tenant

NOTHING = Modelled((), ())
RECENT_CHARACTERS = 1_000
"""Of a message that is kept to understand the next ones."""


@dataclass(frozen=True, slots=True)
class Recent:
    """What a model was told, for the next one that reads the scope."""

    key: StreamKey
    scope: str
    client_id: ClientId
    messages: tuple[RecentMessage, ...]

    def keep(self, writing: Writing) -> None:
        """Write it, in the unit that stores the memories."""
        writing.keep_recent(self.key, self.scope, self.client_id, self.messages)


@dataclass(frozen=True, slots=True)
class Made:
    """What a policy made: memories to be stored, and of each what it was learnt from; what of a model's work
    could not be used; and what the next model that reads this scope is to know of it."""

    drafts: tuple[Draft, ...]
    learnt: tuple[Learnt, ...]
    issues: tuple[Issue, ...] = ()
    recent: Recent | None = None


NOTHING_MADE = Made((), ())


class Policies:
    """Makes memories of conversations. Keeps nothing between calls; safe for many threads.

    ``chat`` is the chat model, where the server has one; it is closed by whoever made it.
    """

    def __init__(self, embedders: Embedders, chat: ChatModel | None) -> None:
        self._embedders = embedders
        self._chat = chat

    def check(self, conversation: Conversation) -> None:
        """Raises ModelNotConfigured where the policy needs a model and the server has none."""
        if conversation.policy.needs_model and self._chat is None:
            raise ModelNotConfigured(f"the policy {conversation.policy.name}")

    def asks_model(self, conversation: Conversation) -> bool:
        """Whether making memories of it takes calls of the model, and so its time."""
        if self._chat is None or conversation.policy is WritePolicy.RAW:
            return False
        if conversation.policy is WritePolicy.RULES:
            return bool(undecided(conversation.said))
        return bool(told(conversation))

    def make(
        self,
        conversation: Conversation,
        tenant: Tenant,
        caller: Caller,
        shard: Shard,
        now: Micros,
        progress: Callable[[int], None],
    ) -> Made:
        """What the conversation's policy makes of it for this caller. Needs no call's context.

        ``tenant`` is as the catalogue has it now; ``progress`` hears how many messages a model has read.
        ModelNotConfigured as ``check``; ModelUnavailable or
        ModelMismatch where the policy needs a model and it answered nothing.
        """
        self.check(conversation)
        work = _Work(conversation, tenant, caller, shard, now, self._embedders, progress)
        modelled = _modelled(work, self._chat)
        learnt = [*work.by_rules(), *modelled.learnt]
        learnt.sort(key=lambda one: one.message)
        drafts = work.drafts(learnt)
        return Made(
            tuple(draft for draft, _ in drafts),
            tuple(one for _, one in drafts),
            modelled.issues,
            work.recent() if conversation.policy.needs_model and told(conversation) else None,
        )


def _modelled(work: _Work, chat: ChatModel | None) -> Modelled:
    """What the model adds to what needs none."""
    conversation = work.conversation
    if chat is None or conversation.policy is WritePolicy.RAW:
        return NOTHING
    if conversation.policy is WritePolicy.RULES:
        if not (places := undecided(conversation.said)):
            return NOTHING
        try:
            return Modelling(chat, conversation, work.around()).append(places, "no rule decides")
        except (ModelUnavailable, ModelMismatch) as error:
            sentence = f"{error.message}; what the rules found is stored"
            return Modelled((), (Issue(IssueKind.UNAVAILABLE, sentence, places[0]),))
    if not (places := told(conversation)):
        return NOTHING
    modelling = Modelling(chat, conversation, work.around())
    if conversation.policy is WritePolicy.APPEND:
        return modelling.append(places, "append")
    return modelling.reconcile(places)


class _Work:
    """One conversation, and all that is looked up for it."""

    def __init__(
        self,
        conversation: Conversation,
        tenant: Tenant,
        caller: Caller,
        shard: Shard,
        now: Micros,
        embedders: Embedders,
        progress: Callable[[int], None],
    ) -> None:
        self._progress = progress
        self.conversation = conversation
        self._settings = tenant.write_settings
        self._caller = caller
        self._shard = shard
        self._now = now
        self._embedder = embedders.of(tenant)
        self._space = tenant.space
        self._key = StreamKey(tenant.incarnation, conversation.template.subject.key)

    def by_rules(self) -> list[Learnt]:
        """What needs no model. InvalidField where a message gives what can't be a memory."""
        policy = self.conversation.policy
        if policy.needs_model:
            return []
        by_policy = kept if policy is WritePolicy.RAW else found_by_rules
        learnt = by_policy(self.conversation, self._new_id)
        for one in learnt:
            check(*(violation.under(f"messages[{one.message}]") for violation in violations(one.memory)))
        return learnt

    def drafts(self, learnt: Sequence[Learnt]) -> list[tuple[Draft, Learnt]]:
        """What is to be stored, each with what it comes from and the memories that it supersedes."""
        vectors = self._embed([one.memory.content for one in learnt])
        found = []
        for one, vector in zip(corrected_within(learnt, vectors), vectors, strict=True):
            hits = self._search(self._correction_query(one, vector)) if one.replaces else ()
            supersedes = (*one.supersedes, *corrected(hits, one))
            draft = Draft(one.memory, vector, reason=one.reason, supersedes=supersedes, told=one.told)
            found.append((draft, one))
        return found

    def recent(self) -> Recent:
        """What is kept of the messages, for the next model that reads this scope."""
        last = [self.conversation.said[place] for place in told(self.conversation)[-KEPT:]]
        messages = [
            RecentMessage(said.role, said.text[:RECENT_CHARACTERS], said.at, self._is_private)
            for said in last
        ]
        scope = self.conversation.template.scope
        return Recent(self._key, scope, self._caller.client_id, tuple(messages))

    def around(self) -> Surroundings:
        """What the model is told beside the conversation. What only its owner may see is told where what is
        learnt will be its owner's alone too: a model may repeat it."""
        scope = self.conversation.template.scope
        before = self._shard.recent_messages(self._key, scope, self._caller.client_id)
        return Surroundings(
            settings=self._settings,
            before=[
                Said(one.text, one.role, one.at) for one in before if self._is_private or not one.private
            ],
            embed=self._embed,
            nearest=self._nearest,
            known=lambda memory: self._shard.accesses.add(self._key.incarnation, [memory], self._now),
            new_id=self._new_id,
            progress=self._progress,
        )

    @property
    def _is_private(self) -> bool:
        return self.conversation.template.privacy_level is not PrivacyLevel.SHARED

    def _nearest(self, text: str, vector: NDArray[np.float32], count: int) -> list[Memory]:
        view = self._view(self.conversation.template)
        query = Query(text, vector, RECIPES["default"], view, count, self._may_be_told)
        return [hit.row.memory for hit in self._search(query)]

    def _may_be_told(self, memory: Memory, _committed: Micros) -> bool:
        told_openly = memory.privacy_level is PrivacyLevel.SHARED
        return memory.superseded_by is None and (self._is_private or told_openly)

    def _correction_query(self, one: Learnt, vector: NDArray[np.float32]) -> Query:
        """What finds the memories that a correction may replace."""
        return Query(one.replaces, vector, RECIPES["default"], self._view(one.memory), CANDIDATES)

    def _view(self, memory: Memory) -> View:
        """What the writer of a memory may see of its scope, agent and run."""
        agent_id = memory.agent_id if memory.subject.kind == "user" else ""
        return View(self._caller.client_id, self._now, (memory.scope,), agent_id, memory.run_id)

    def _search(self, query: Query) -> Sequence[Hit]:
        return self._shard.search(self._key, self._space, query, {})

    def _embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self._embedder.embed(texts, TextKind.DOCUMENT)

    def _new_id(self) -> MemoryId:
        return new_memory_id(self._now // 1000, os.urandom(10))
