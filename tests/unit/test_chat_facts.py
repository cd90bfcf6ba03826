"""What is made of a model's answers, whatever they hold: facts, and decisions about them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrubjay.memory import Memory, Micros
from scrubjay.validity import violations
from server.ingest.chat.extracting import CATEGORIES, MAX_TAGS, Told, extract
from server.ingest.chat.pieces import MAX_PIECES, PIECE_CHARACTERS, Part, pieces, told
from server.ingest.chat.prompts import Prompt, extraction_prompt, reconcile_prompt
from server.ingest.chat.reconciling import Action, reconcile
from server.ingest.chat.shown import MAX_CHARACTERS, Shown
from server.ingest.conversations import Conversation, Message, WritePolicy
from server.ingest.rules.cleaning import without_context
from server.ingest.rules.fact import Said
from server.providers.chat import ChatModel
from server.recall.context import CLOSING, NOTE, OPENING
from tests.stored import memory as memory_of

AT = Micros(int(datetime(2024, 5, 15, 12, tzinfo=UTC).timestamp()) * 1_000_000)
PIECE = [Part(3, Said("I prefer tea.", "user", AT)), Part(4, Said("Noted.", "assistant", AT))]
PROMPT = Prompt("a-prompt-1", "Answer as JSON.")


class Answering:
    """A chat model that has one answer."""

    name = "talker"

    def __init__(self, answer: str) -> None:
        self._answer = answer

    def complete_json(self, instructions: str, message: str) -> str:
        json.loads(message)
        return self._answer


def answering(value: Any) -> ChatModel:
    return cast("ChatModel", Answering(value if isinstance(value, str) else json.dumps(value)))


KEYS = (
    *("text", "memory", "memories", "facts", "fact", "category", "tags", "message", "supersedes", "linked"),
    *("valid_from", "valid_to", "decisions", "action", "event", "id"),
)
WORDS = st.sampled_from(
    [
        *KEYS,
        *("TASK", "EVENT", "NONE", "UPDATE", "DELETE", "ADD", "0", "1", "-1"),
        *("2024-02-30", "9999-12-31", "0001-01-01", "tomorrow", "yesterday", "昨天"),
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 5) | st.floats() | WORDS | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(WORDS | st.text(max_size=4), inner, max_size=6)
    ),
    max_leaves=25,
)


@given(VALUES)
def test_whatever_it_answers_facts_are_sound(value: Any) -> None:
    shown = Shown([memory_of("I drink coffee.")])
    extracted = extract(answering(value), PROMPT, PIECE, (), shown)
    for fact in extracted.told:
        assert fact.text.strip()
        assert fact.category in ("", *CATEGORIES)
        assert len(fact.tags) <= MAX_TAGS
        assert fact.message in (3, 4)
        assert [one.content for one in fact.supersedes] in ([], ["I drink coffee."])
        memory = replace(
            memory_of(fact.text), tags=fact.tags, valid_from=fact.valid_from, valid_to=fact.valid_to
        )
        assert violations(memory) == []


@given(VALUES)
def test_whatever_it_answers_every_fact_has_one_decision(value: Any) -> None:
    facts = [fact("I drink tea."), fact("I drink coffee.")]
    near = [[memory_of("I drink coffee.")], []]
    decisions = reconcile(answering(value), PROMPT, facts, near).decisions
    assert [one.told.at for one in decisions] == [AT, AT]
    for one in decisions:
        assert one.told.text.strip()
        assert (one.known is not None) == (one.action is Action.NONE)
        assert bool(one.told.supersedes) == (one.action in (Action.UPDATE, Action.DELETE))


def test_a_memory_that_was_shown_in_part_is_not_replaced_by_a_text_for_all_of_it() -> None:
    answer = {"decisions": [{"fact": 0, "action": "UPDATE", "memory": 0, "text": "Both."}]}
    for length, action in ((MAX_CHARACTERS, Action.UPDATE), (MAX_CHARACTERS + 1, Action.ADD)):
        near = [[memory_of("x" * length)]]
        (decision,) = reconcile(answering(answer), PROMPT, [fact("One.")], near).decisions
        assert decision.action is action
        assert decision.told.text == ("Both." if action is Action.UPDATE else "One.")


def fact(text: str) -> Told:
    return Told(text, "", frozenset(), 0, AT, None, None)


@pytest.mark.parametrize(
    ("item", "days"),
    [
        ({"valid_from": "2024-05-01", "valid_to": "2024-05-02"}, ("2024-05-01", "2024-05-03")),
        ({"valid_from": "2024-05-01T09:00:00Z"}, ("2024-05-01", None)),
        ({"valid_to": "2024-05-01"}, (None, "2024-05-02")),
        ({"valid_from": "2024-05-03", "valid_to": "2024-05-02"}, (None, None)),
        ({"valid_from": "soon", "valid_to": 7}, (None, None)),
        ({"category": "TASK", "text": "Call mum tomorrow."}, ("2024-05-16", "2024-05-17")),
        ({"category": "event", "text": "昨天我跑了马拉松。"}, ("2024-05-14", "2024-05-15")),
        ({"category": "FACT", "text": "Yesterday's paper is what I read."}, (None, None)),
    ],
)
def test_days_are_the_model_s_or_else_the_text_s(item: dict[str, Any], days: tuple[str | None, ...]) -> None:
    answer = {"memories": [{"text": "I ran a marathon.", **item}]}
    (found,) = extract(answering(answer), PROMPT, PIECE, (), Shown(())).told

    def day(at: Micros | None) -> str | None:
        return None if at is None else datetime.fromtimestamp(at / 1e6, UTC).date().isoformat()

    # A deadline has no first day.
    assert (day(found.valid_from), day(found.valid_to)) in (days, (None, days[1]))


# --- pieces -----------------------------------------------------------------------------------------


def conversation(*texts: str, role: str = "user") -> Conversation:
    messages = tuple(Message(Said(text, role, AT)) for text in texts)
    return Conversation(messages, WritePolicy.APPEND, memory_of("FACT"))


@given(st.lists(st.text("ab. 。\n", max_size=300).map(lambda text: text * 60), max_size=6))
def test_pieces_hold_every_character_once_in_order(texts: list[str]) -> None:
    every = conversation(*texts)
    found = pieces(every, told(every))
    assert all(sum(len(part.said.text) for part in piece) <= PIECE_CHARACTERS for piece in found)
    for place in told(every):
        parts = [part.said.text for piece in found for part in piece if part.message == place]
        assert "".join(parts) == texts[place]


def test_the_longest_conversation_has_more_pieces_than_are_read() -> None:
    every = conversation(*["word " * 13_000] * 100)
    assert len(pieces(every, told(every))) > MAX_PIECES


def test_nobody_speaks_in_system_and_tool_messages() -> None:
    for role in ("system", "developer", "tool", "Function"):
        assert told(conversation("text", role=role)) == []
    assert told(conversation("text", " ", "text")) == [0, 2]


# --- prompts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("of_agent", [True, False])
def test_a_prompt_has_nothing_left_to_fill_in(of_agent: bool) -> None:
    for words in ("", "Remember {allergies}."):
        prompt = extraction_prompt(of_agent=of_agent, custom_instructions=words)
        assert "{instructions}" not in prompt.text
        assert words in prompt.text
        assert "JSON" in prompt.text
        judged = reconcile_prompt(words)
        assert "{judgement}" not in judged.text
        assert words in judged.text
        assert "JSON" in judged.text


# --- what came from the store -----------------------------------------------------------------------

LINE = '- 2024-05-15 "I prefer tea." #0123456789ab'


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("I prefer tea.\r\n\r\n  > quoted\n```\ncode\n```\n", None),
        (f"{OPENING}\n{NOTE}\n{LINE}\n{CLOSING}", ""),
        (f"Hello.\n{OPENING}\n{LINE}\n{CLOSING}\nBye.", "Hello.Bye."),
        (f"Hello.\n{LINE}\n{NOTE}\nBye.", "Hello.Bye."),
        (f"Hello.\n{OPENING}\n{LINE}", "Hello."),
    ],
)
def test_of_a_text_what_came_from_the_store_is_left_out(text: str, left: str | None) -> None:
    outside = without_context(text)
    assert outside == text if left is None else "".join(outside.split()) == left


def test_memories_are_shown_by_short_numbers_that_are_mapped_back() -> None:
    tea, coffee = memory_of("I drink tea."), memory_of("I drink coffee.")
    shown = Shown([tea, coffee, tea])
    assert [one["id"] for one in shown.as_json()] == [0, 1]
    assert shown.numbers([coffee, tea]) == [1, 0]
    named = shown.named({"supersedes": [1, "0", "#1", 2, -1, True, coffee.id, None]}, "supersedes")
    assert [memory.content for memory in named] == ["I drink coffee.", "I drink tea."]
    assert shown.invented == 4
    assert isinstance(named[0], Memory)
