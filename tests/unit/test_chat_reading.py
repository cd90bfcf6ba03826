"""Reading what a model answers, whatever that is."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.ingest.chat.lenient_json import parse
from server.ingest.chat.reading import MAX_ANSWER, read, text_of

TEA, DOGS = {"text": "I prefer tea.", "category": "PREFERENCE"}, {"text": "我养了两只狗。"}
RIGHT = json.dumps({"memories": [TEA, DOGS]}, ensure_ascii=False)

READ: dict[str, str] = {
    "as asked": RIGHT,
    "a list": json.dumps([TEA, DOGS]),
    "a fence": f"```json\n{RIGHT}\n```",
    "a fence without its end": f"```\n{RIGHT}",
    "prose around": f"Sure! Here are 2 facts [as asked]:\n{RIGHT}\nAnything else? [yes/no]",
    "thoughts": f'<think>maybe [{{"text": "no"}}]</think>{RIGHT}',
    "thoughts whose beginning the server left out": f'maybe {{"memories": [1]}}</think>\n{RIGHT}',
    "facts": json.dumps({"facts": [TEA, DOGS]}),
    "memory": json.dumps({"memory": [TEA, DOGS]}),
    "a name of its own": json.dumps({"my_findings": [TEA, DOGS]}),
    "by number": json.dumps({"memories": {"0": TEA, "1": DOGS}}),
    "other names for the text": json.dumps([{"fact": TEA["text"]}, {"memory": DOGS["text"]}]),
    "texts": json.dumps([TEA["text"], DOGS["text"]]),
    "facts of texts": json.dumps({"facts": [TEA["text"], DOGS["text"]]}),
    "trailing commas": RIGHT.replace("}]}", "},],}"),
    "no comma between": RIGHT.replace("}, {", "} {"),
    "objects without a list": f"{json.dumps(TEA)}\n{json.dumps(DOGS)}",
    "a line break in a text": RIGHT.replace("I prefer tea.", "I prefer\ntea."),
    "Python's constants": RIGHT.replace('"PREFERENCE"', "None"),
    "an answer and a better one": f"{json.dumps([DOGS])} Wait. {RIGHT}",
}


def texts(answer: str) -> list[str]:
    return [text_of(item).replace("\n", " ") for item in read(answer).items]


@pytest.mark.parametrize("what", READ)
def test_an_answer_is_read(what: str) -> None:
    answer = read(READ[what])
    assert texts(READ[what]) == [TEA["text"], DOGS["text"]]
    assert (answer.found, answer.cut, answer.unreadable) == (True, False, 0)


@pytest.mark.parametrize("end", range(RIGHT.index('"I prefer'), len(RIGHT)))
def test_of_an_answer_that_is_cut_what_is_whole_counts(end: int) -> None:
    answer = read(RIGHT[:end])
    whole = [one for one in (TEA, DOGS) if RIGHT.index(one["text"]) + len(one["text"]) < end]
    items = [dict(item) for item in answer.items]
    assert items in ([TEA, DOGS][: len(whole)], [TEA, DOGS][: max(0, len(whole) - 1)])
    assert answer.cut


def test_one_broken_item_does_not_take_the_others_along() -> None:
    answer = read('{"memories": [{"text": "one"}, {text: two}, {"text": "three"}]}')
    assert [text_of(item) for item in answer.items] == ["one", "three"]
    assert answer.cut


@pytest.mark.parametrize(
    "nothing", ['{"memories": []}', "[]", "{}", '{"facts": {}}', 'None: {"memories": []} [1]', "```\n[]\n```"]
)
def test_nothing_is_an_answer(nothing: str) -> None:
    answer = read(nothing)
    assert (answer.items, answer.found, answer.cut) == ((), True, False)


@pytest.mark.parametrize(
    "noise",
    ["", "   ", "I can't help with that.", "<html><body>Sign in</body></html>", "<think>hm", '{"a": 1}'],
)
def test_what_is_no_answer_is_said_to_be_none(noise: str) -> None:
    answer = read(noise)
    assert (answer.items, answer.found) == ((), False)


def test_what_in_a_list_is_no_item_is_counted() -> None:
    answer = read(json.dumps([TEA, 5, None, {}, "", {"category": "FACT"}, [TEA]]))
    assert [dict(item) for item in answer.items] == [TEA]
    assert answer.unreadable == 6


def test_a_text_that_no_database_holds_is_made_one() -> None:
    (item,) = read('["a\\u0000b\\ud800c"]').items
    assert text_of(item) == "a b c"


@given(st.text(alphabet='[]{}",:\\ntext0-1. ', max_size=60) | st.text(max_size=60))
def test_nothing_makes_it_raise(answer: str) -> None:
    read(answer)
    parse(answer)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False)
    | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(JSON) | st.dictionaries(st.text(), JSON))
def test_json_is_read_as_json(value: Any) -> None:
    (parsed,) = parse(f"so: {json.dumps(value)} .").values
    assert (parsed.value, parsed.whole) == (value, True)


@pytest.mark.parametrize(
    "flood", ["[", '{"a":', '[{"a":1},', '{"a" ', '"[', "<think>", '{"text":"x"}', "[{b}", "[[[[b]]]]"]
)
def test_a_flood_is_read_in_time(flood: str) -> None:
    began = time.perf_counter()
    read((flood * MAX_ANSWER)[: 2 * MAX_ANSWER])
    assert time.perf_counter() - began < 10
