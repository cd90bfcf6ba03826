"""How much of a query a memory's words cover."""

from __future__ import annotations

import numpy as np
import pytest

from scrubjay.text import tokens
from server.recall import lexical
from server.recall.lexical import FULL_TERMS, LexicalIndex


def covered(query: str, *contents: str) -> list[float]:
    """The coverage of each content."""
    index = LexicalIndex()
    for slot, content in enumerate(contents):
        index.add(slot, tokens(content))
    scores = index.coverage(dict.fromkeys(tokens(query), 1), len(contents))
    return [0.0] * len(contents) if scores is None else [float(score) for score in scores]


def test_all_words_are_one_and_no_word_is_nothing() -> None:
    assert covered("red bicycle", "a red bicycle", "green tea") == pytest.approx([1, 0])
    assert covered("red bicycle", "green tea") == [0]
    assert covered("", "green tea") == [0]


def test_a_word_that_no_memory_holds_lowers_every_coverage() -> None:
    fillers = [f"note {n}" for n in range(20)]
    known, unknown = (covered(query, "a red bicycle", *fillers)[0] for query in ("red", "red zeppelin"))
    assert known == pytest.approx(1)
    assert 0 < unknown < 0.5


@pytest.mark.parametrize(
    ("query", "about", "shares_small_words"),
    [
        ("what is the name of my dentist", "dentist: Dr Roy", "this is one of the things on my list"),
        ("我的牙医是谁", "牙医姓罗", "我的手机是新的"),
    ],
)
def test_one_rare_word_outweighs_several_that_are_everywhere(
    query: str, about: str, shares_small_words: str
) -> None:
    fillers = [f"{n} is the number of my room" for n in range(30)] + [f"我的房间是{n}号" for n in range(30)]
    first, second = covered(query, about, shares_small_words, *fillers)[:2]
    assert first > 2 * second > 0


def test_words_count_in_a_dialogue_as_they_do_in_a_question() -> None:
    fillers = [f"note {n}" for n in range(100)]
    question = " ".join(f"word{letter}" for letter in "abcdefgh")
    dialogue = question + " " + " ".join(f"chat{n // 26}x{chr(97 + n % 26)}" for n in range(400))
    memory = " ".join(question.split()[:4])
    (short, *_), (long, *_) = covered(question, memory, *fillers), covered(dialogue, memory, *fillers)
    assert 0.3 < short < 0.5
    assert long > short / 6


def test_coverage_is_never_more_than_one() -> None:
    text = " ".join(f"word{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(4 * FULL_TERMS))
    assert covered(text, text, "green tea") == pytest.approx([1, 0])


def test_only_what_is_seen_counts_in_the_weight_of_a_word() -> None:
    index = LexicalIndex()
    index.add(0, ["tea", "green"])
    for slot in range(1, 40):
        index.add(slot, ["tea"])
    before = index.coverage({"tea": 1, "green": 1}, 40)
    index.add(40, ["coffee"])
    seen = np.zeros(41, np.bool_)
    seen[[0, 40]] = True
    after = index.coverage({"tea": 1, "green": 1}, 41, seen)
    assert before is not None
    assert after is not None
    assert before[1] < 0.05
    assert after[1] == pytest.approx(0.5)


def test_bm25_prefers_the_short_text_the_rare_word_and_the_repeated_one() -> None:
    index = LexicalIndex()
    texts = ["tea", "tea and a very long list of other things", "tea tea", "milk", "milk", "milk"]
    for slot, text in enumerate(texts):
        index.add(slot, tokens(text))
    found = index.bm25(["tea"], len(texts))
    assert found is not None
    scores, whole = found
    assert scores[2] > scores[0] > scores[1] > 0 == scores[3]
    assert whole > 0
    assert index.bm25(["nobody"], len(texts)) is None


def test_common_terms_of_many_texts_cover_as_they_do_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    index = LexicalIndex()
    texts = [["tea"] * (n % 3 > 0) + ["milk"] * (n % 5 == 0) + [f"word{n}"] for n in range(300)]
    for slot, terms in enumerate(texts[:200]):
        index.add(slot, terms)
    seen = np.arange(300) % 7 > 0
    query = {"tea": 1, "milk": 2, "word7": 1, "nobody": 1}
    for size in (200, 300):
        for slot, terms in enumerate(texts[200:size], 200):
            index.add(slot, terms)
        for visible in (None, seen[:size]):
            monkeypatch.setattr(lexical, "COMMON_SIZE", 10)
            by_column = index.coverage(query, size, visible)
            monkeypatch.undo()
            one_by_one = index.coverage(query, size, visible)
            assert by_column is not None
            assert one_by_one is not None
            np.testing.assert_allclose(by_column, one_by_one, rtol=1e-6)
    assert index.nbytes > 0
