"""Reconciling: what becomes of facts beside the memories nearest to them, as the model judges.

Nothing is destroyed by it, and no fact is lost: a decision that can't be read, or that names a memory which
the model was not shown, is an ADD.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from scrubjay.memory import Memory, utc_day
from server.ingest.chat.extracting import Told
from server.ingest.chat.issues import Issue, IssueKind
from server.ingest.chat.prompts import Prompt
from server.ingest.chat.reading import number, read, texts_of
from server.ingest.chat.shown import MAX_CHARACTERS, Shown
from server.providers.chat import ChatModel

FACTS_AT_ONCE = 20
"""Of one call, each with its five nearest memories: what a model still keeps apart."""
_MEMORY_KEYS = ("memory", "memory_id", "memories", "id")


class Action(Enum):
    """What becomes of a fact."""

    ADD = "ADD"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    NONE = "NONE"


@dataclass(frozen=True, slots=True)
class Decision:
    """One fact, with the text and the memories that it supersedes now; ``known`` says it already."""

    told: Told
    action: Action
    known: Memory | None = None


@dataclass(frozen=True, slots=True)
class Reconciled:
    """A decision for each fact, in their order."""

    decisions: tuple[Decision, ...]
    issues: tuple[Issue, ...] = ()


def reconcile(
    chat: ChatModel, prompt: Prompt, facts: Sequence[Told], near: Sequence[Sequence[Memory]]
) -> Reconciled:
    """What the model decides of at most ``FACTS_AT_ONCE`` facts, each beside the memories near to it. It is
    not asked where there are none. ModelUnavailable and ModelMismatch as ``ChatModel.complete``."""
    shown = Shown(memory for memories in near for memory in memories)
    if not any(near):
        return Reconciled(tuple(Decision(told, Action.ADD) for told in facts))
    asked = {
        "facts": [
            {
                "fact": n,
                "text": told.text,
                "day": utc_day(told.at).isoformat(),
                "near": shown.numbers(memories),
            }
            for n, (told, memories) in enumerate(zip(facts, near, strict=True))
        ],
        "memories": shown.as_json(),
    }
    answer = read(chat.complete_json(prompt.text, json.dumps(asked, ensure_ascii=False)))
    said: dict[int, Decision] = {}
    for item in answer.items:
        n = number(item.get("fact"))
        if n is not None and 0 <= n < len(facts) and n not in said:
            decision = _decision(item, facts[n], shown)
            if decision is not None:
                said[n] = decision
    decisions = [said.get(n, Decision(told, Action.ADD)) for n, told in enumerate(facts)]
    undecided = [told for n, told in enumerate(facts) if n not in said]
    return Reconciled(tuple(decisions), tuple(_issues(undecided, shown.invented, answer.cut)))


def _decision(item: Mapping[str, object], told: Told, shown: Shown) -> Decision | None:
    action = _action(item)
    if action is None or action is Action.ADD:
        return None if action is None else Decision(told, action)
    named = shown.named(item, *_MEMORY_KEYS)
    if not named:
        return None
    if action is Action.NONE:
        return Decision(told, action, named[0])
    if action is Action.UPDATE and any(len(memory.content) > MAX_CHARACTERS for memory in named):
        return Decision(told, Action.ADD)  # it has not seen all that its text would stand for
    text = (texts_of(item, "text") or [told.text])[0] if action is Action.UPDATE else told.text
    return Decision(replace(told, text=text, supersedes=named), action)


def _action(item: Mapping[str, object]) -> Action | None:
    for key in ("action", "event", "decision"):
        try:
            return Action(str(item.get(key, "")).strip().upper())
        except ValueError:
            continue
    return None


def _issues(undecided: Sequence[Told], invented: int, cut: bool) -> list[Issue]:
    found = []
    if undecided:
        kind = IssueKind.CUT if cut else IssueKind.UNREADABLE
        what = f"the model decided nothing that can be used of {len(undecided)} facts; they are stored as new"
        found.append(Issue(kind, what, undecided[0].message))
    if invented:
        what = f"the model named {invented} memories that it was not shown; the names are dropped"
        found.append(Issue(IssueKind.INVENTED_ID, what))
    return found
