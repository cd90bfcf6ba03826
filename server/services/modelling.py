"""What a chat model makes of a conversation under APPEND and RECONCILE, and of what no rule decides."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from scrubjay.errors import ModelMismatch, ModelUnavailable
from scrubjay.memory import DEFAULT_CATEGORY, Memory, MemoryId
from scrubjay.validity import violations
from server.ingest.chat.extracting import Told, extract
from server.ingest.chat.issues import MAX_ISSUES, Issue, IssueKind
from server.ingest.chat.naming import named
from server.ingest.chat.pieces import MAX_PIECES, Piece, pieces
from server.ingest.chat.prompts import Prompt, extraction_prompt, reconcile_prompt
from server.ingest.chat.reconciling import FACTS_AT_ONCE, Action, Decision, reconcile
from server.ingest.chat.shown import Shown
from server.ingest.conversations import Conversation, Learnt, said_in
from server.ingest.rules.fact import Said
from server.providers.chat import ChatModel
from server.services.requests import MAX_BATCH
from tenants.write_settings import WriteSettings

NEAR_CONVERSATION = 10
"""Memories that the model is shown beside a piece, and as many that the pieces before it gave."""
NEAR_FACT = 5
BEFORE = 10
"""Messages from before a piece that the model is shown."""
ASKED_CHARACTERS = 2_000
"""Of a piece, by which the memories near to it are found."""

log = logging.getLogger(__name__)

_Failed = ModelUnavailable | ModelMismatch


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a model is told beside the conversation: the tenant's settings, what was said before, and what is
    remembered. ``nearest`` finds memories that the writer may see, by text and vector; ``known`` hears of
    those that were said again, ``progress`` how many messages were read."""

    settings: WriteSettings
    before: Sequence[Said]
    embed: Callable[[Sequence[str]], NDArray[np.float32]]
    nearest: Callable[[str, NDArray[np.float32], int], Sequence[Memory]]
    known: Callable[[Memory], None]
    new_id: Callable[[], MemoryId]
    progress: Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Modelled:
    """What the model made of a conversation."""

    learnt: tuple[Learnt, ...]
    issues: tuple[Issue, ...]


class Modelling:
    """One conversation as one chat model reads it."""

    def __init__(self, chat: ChatModel, conversation: Conversation, around: Surroundings) -> None:
        self._chat = chat
        self._conversation = conversation
        self._around = around
        template = conversation.template
        self._prompt = extraction_prompt(
            of_agent=bool(template.agent_id and not template.user_id),
            custom_instructions=around.settings.custom_instructions,
        )
        self._issues: list[Issue] = []
        self._failures: list[_Failed] = []
        self._answers = 0

    def append(self, places: Sequence[int], how: str) -> Modelled:
        """What the messages at these places say, added; ``how`` is for History.

        ModelUnavailable or ModelMismatch where no call was answered.
        """
        learnt: list[Learnt] = []
        reason = f"model: {how}, prompt {self._prompt.name}, {self._chat.name}"
        for piece, before in self._pieces(places):
            found = [one.memory for one in learnt[-NEAR_CONVERSATION:]]
            shown = Shown([*found, *self._near_piece(piece)])
            for told in self._told(piece, before, shown):
                learnt += self._checked(told, reason)
            if len(learnt) > MAX_BATCH:
                self._too_many()
                break
        self._check_answered()
        return self._modelled(learnt)

    def reconcile(self, places: Sequence[int]) -> Modelled:
        """What the messages at these places say, compared with what is remembered; raises as ``append``."""
        facts: list[Told] = []
        for piece, before in self._pieces(places):
            facts += self._told(piece, before, Shown(()))
            if len(facts) > MAX_BATCH:
                self._too_many()
                break
        self._check_answered()
        self._answers = 0
        prompt = reconcile_prompt(self._around.settings.custom_reconcile_prompt)
        learnt: list[Learnt] = []
        for at in range(0, len(facts[:MAX_BATCH]), FACTS_AT_ONCE):
            for decision in self._decided(prompt, facts[at : min(at + FACTS_AT_ONCE, MAX_BATCH)]):
                learnt += self._stored(decision, prompt)
        if facts:
            self._check_answered()
        return self._modelled(learnt)

    # --- the two calls ----------------------------------------------------------------------------

    def _told(self, piece: Piece, before: Iterable[Said], shown: Shown) -> Sequence[Told]:
        try:
            extracted = extract(self._chat, self._prompt, piece, before, shown)
        except (ModelUnavailable, ModelMismatch) as error:
            self._failed(error, "what this part says is not stored", piece[0].message)
            return ()
        self._answers += 1
        self._issues += extracted.issues
        return extracted.told

    def _decided(self, prompt: Prompt, facts: Sequence[Told]) -> Sequence[Decision]:
        vectors = self._around.embed([told.text for told in facts])
        near = [
            self._around.nearest(told.text, vector, NEAR_FACT)
            for told, vector in zip(facts, vectors, strict=True)
        ]
        try:
            reconciled = reconcile(self._chat, prompt, facts, near)
        except (ModelUnavailable, ModelMismatch) as error:
            self._failed(error, "the facts of this part are stored as new", facts[0].message)
            return [Decision(told, Action.ADD) for told in facts]
        self._answers += 1
        self._issues += reconciled.issues
        return reconciled.decisions

    def _failed(self, error: _Failed, outcome: str, place: int) -> None:
        self._failures.append(error)
        self._issues.append(Issue(IssueKind.UNAVAILABLE, f"{error.message}; {outcome}", place))

    # --- what surrounds them ----------------------------------------------------------------------

    def _pieces(self, places: Sequence[int]) -> Iterator[tuple[Piece, Sequence[Said]]]:
        """Each piece with what was said before it."""
        every = pieces(self._conversation, places)
        before = list(self._around.before)
        for piece in every[:MAX_PIECES]:
            yield piece, before[-BEFORE:]
            before += [part.said for part in piece]
            self._around.progress(piece[-1].message + 1)
        if len(every) > MAX_PIECES:
            place = every[MAX_PIECES][0].message
            what = f"the conversation has more than {MAX_PIECES} parts; from here on it was not read"
            self._issues.append(Issue(IssueKind.CUT, what, place))

    def _near_piece(self, piece: Piece) -> Sequence[Memory]:
        text = "\n".join(part.said.text for part in piece)[-ASKED_CHARACTERS:]
        (vector,) = self._around.embed([text])
        return self._around.nearest(text, vector, NEAR_CONVERSATION)

    # --- what becomes of it -----------------------------------------------------------------------

    def _stored(self, decision: Decision, prompt: Prompt) -> list[Learnt]:
        """The memory that a decision makes, if it makes one. What one agent or run says already, another one
        says anew."""
        template, known = self._conversation.template, decision.known
        action = decision.action
        if known is not None:
            if (known.agent_id, known.run_id) == (template.agent_id, template.run_id):
                self._around.known(known)
                return []
            action = Action.ADD
        names = f"prompts {self._prompt.name} and {prompt.name}"
        return self._checked(decision.told, f"model: reconcile {action.value}, {names}, {self._chat.name}")

    def _checked(self, told: Told, reason: str) -> list[Learnt]:
        memory = self._memory(told)
        if wrong := violations(memory):
            what = "; ".join(f"{violation.field} {violation.description}" for violation in wrong)
            sentence = f"a memory of the model's is not stored: its {what}"
            self._issues.append(Issue(IssueKind.REFUSED, sentence[:500], told.message))
            return []
        supersedes = tuple(old.id for old in told.supersedes)
        if told.linked:
            reason += f"; linked to {', '.join(one.id for one in told.linked)}"
        names = named(told.item, memory.content)
        return [Learnt(memory, told.message, supersedes=supersedes, reason=reason, told=names)]

    def _memory(self, told: Told) -> Memory:
        template = self._conversation.template
        return replace(
            said_in(self._conversation.messages[told.message], template),
            id=self._around.new_id(),
            content=told.text,
            category=template.category or told.category or DEFAULT_CATEGORY,
            tags=template.tags | told.tags,
            valid_from=told.valid_from,
            valid_to=told.valid_to,
        )

    def _check_answered(self) -> None:
        if self._failures and not self._answers:
            raise self._failures[-1]

    def _modelled(self, learnt: Sequence[Learnt]) -> Modelled:
        for issue in self._issues:
            log.info("an answer of %s: %s", self._chat.name, issue.kind.name)
        return Modelled(tuple(learnt[:MAX_BATCH]), tuple(self._issues[:MAX_ISSUES]))

    def _too_many(self) -> None:
        what = f"the conversation says more than {MAX_BATCH} things; the later ones are not stored"
        self._issues.append(Issue(IssueKind.TOO_MANY, what))
