"""Wordings: what is the same, what is the same in other words, and what only looks alike."""

from __future__ import annotations

import unicodedata
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.ingest.wording import Likeness, Wording, normal_form
from server.ingest.words import mark, misspelt, words

SAME = [
    ("I like tea.", "  i  LIKE tea!!"),
    ("我喜歡喝綠茶。", "我喜欢喝绿茶"),
    ("我 喜欢 绿茶", "我喜欢绿茶！"),
    ("Ｃ＋＋ rocks", "c++ rocks"),
    ("It costs 1,000 euros", "it costs 1000 euros"),
    ("I use node.js", "I use Node JS"),
    ("an e-mail", "An email"),
    ("It weighs 5 kg", "it weighs 5kg"),
    ("I like it a lot", "I like it, a lot!"),
    ("I don't mind", "I don’t mind."),
    ("It is −3.5 °C", "it is -3.5°C"),
    ("I love it ❤️", "I love it ❤"),
    ("straße", "STRASSE"),
    ("...", "..."),
]
NEAR = [
    ("I really like tea.", "I like tea"),
    ("I don't like the coffee", "I do not like coffee"),
    ("I'm a big fan of jazz", "I love jazz."),
    ("I love drinking green tea in the mornings", "I like to drink green tea in the morning"),
    ("I prefer tea over coffee", "I prefer tea to coffee"),
    ("I'd rather drink tea than coffee", "I prefer to drink tea over coffee"),
    ("I like tea more than coffee", "I prefer tea rather than coffee"),
    ("I can't stand olives", "I hate olives"),
    ("My sister loves cats", "My sister likes cats very much"),
    ("I like it a lot", "I like it"),
    (
        "I live in a small appartment near the river with my old dog",
        "I live in a small apartment near the river with my old dog",
    ),
    (
        "I always recieve my parcels at the office on the second floor",
        "I always receive my parcels at the office on the second floor",
    ),
    ("我非常喜欢喝绿茶", "我很喜欢喝绿茶"),
    ("其实我不喜欢咖啡", "我讨厌咖啡"),
    ("我更喜歡深色模式", "我偏好深色模式。"),
    ("我爱吃辣的", "我喜欢吃辣"),
    ("用户喜欢在周末的早上去公园跑步", "用户喜欢在周末早上去公园跑步"),
    ("Between tea and coffee, I prefer tea", "I like tea more than coffee"),
    ("My choice is tea, not coffee", "I'm more of a tea person than a coffee person"),
    ("比起咖啡，我更喜欢茶", "我喜欢茶胜过咖啡"),
    ("茶和咖啡之间，我更喜欢茶", "和咖啡相比，我更喜欢喝茶"),
    ("In my editor, I prefer dark mode", "I like dark mode in my editor"),
]
OTHER = [
    ("I write C++", "I write C#"),
    ("I write C", "I write C++"),
    ("It is -3.5 degrees", "It is 35 degrees"),
    ("It is -3.5 degrees", "It is 3.5 degrees"),
    ("Room 10-12", "Room 1012"),
    ("At 3:30", "At 330"),
    ("5% of it", "5 of it"),
    ("It costs $5", "It costs €5"),
    ("Put it in .env", "Put it in env"),
    ("Use Python 3.11", "Use Python 3.12"),
    ("My flat is 12a", "My flat is 12"),
    ("My ticket is A7", "My ticket is 7"),
    ("I take vitamin A", "I take vitamin"),
    ("Commit 7f3a is bad", "Commit 7f3 is bad"),
    ("👍", "👎"),
    ("!!!", "???"),
    ("I like tea", "I don't like tea"),
    ("I like tea", "I liked tea"),
    ("I would like tea", "I like tea"),
    ("I live in Berlin", "I lived in Berlin"),
    ("I decided to take the job", "I decide to take the job"),
    ("I prefer tea to coffee", "I prefer coffee to tea"),
    ("I like going to the sea", "I like going over the sea"),
    ("Anna is my sister and works at the bakery", "Anne is my sister and works at the bakery"),
    (
        "My colleague Johnson takes the train to work every day",
        "My colleague Jonson takes the train to work every day",
    ),
    (
        "I moved from Berlin to Paris with all my friends and books",
        "I moved from Paris to Berlin with all my friends and books",
    ),
    (
        "The meeting of our group is every week on Monday at 10",
        "The meeting of our group is every week on Monday at 11",
    ),
    (
        "I have a red bike in the garage at home for my kid",
        "I have a tan bike in the garage at home for my kid",
    ),
    (
        "I am happy with the new office that we moved to in spring",
        "I am unhappy with the new office that we moved to in spring",
    ),
    ("Between tea and coffee, I prefer tea", "Between tea and coffee, I prefer coffee"),
    ("My choice is tea, not coffee", "My choice is coffee, not tea"),
    ("I don't like tea more than coffee", "I like tea more than coffee"),
    ("比起咖啡，我更喜欢茶", "比起茶，我更喜欢咖啡"),
    ("我爱你", "我不爱你"),
    ("我吃辣", "我不吃辣"),
    ("我想学法语", "我想学俄语"),
    ("我去北京", "我去了北京"),
    (
        "我们的会议在每周一上午十点开始请大家准时参加",
        "我们的会议在每周一下午十点开始请大家准时参加",
    ),
    ("十分钟以后开会", "五分钟以后开会"),
]


def likeness(one: str, other: str) -> Likeness:
    found = Wording.of(one).likeness(Wording.of(other))
    assert Wording.of(other).likeness(Wording.of(one)) is found
    return found


def test_a_contraction_of_nothing_is_a_word() -> None:
    assert words("n't") == ("n't",)
    assert mark("n't") != mark("not")


@pytest.mark.parametrize(("one", "other"), SAME)
def test_case_width_punctuation_and_script_make_no_other_text(one: str, other: str) -> None:
    assert likeness(one, other) is Likeness.SAME


@pytest.mark.parametrize(("one", "other"), NEAR)
def test_other_words_may_say_the_same(one: str, other: str) -> None:
    assert likeness(one, other) is Likeness.NEAR


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_a_number_a_name_a_negation_or_any_other_thing_makes_another_text(one: str, other: str) -> None:
    assert likeness(one, other) is Likeness.OTHER


def test_two_long_notes_with_one_beginning_are_two() -> None:
    beginning = "Minutes of the weekly meeting of the platform team in the big room upstairs: "
    tails = (
        "we ship on Friday, Anna writes the notes. " * 8,
        "nothing ships, the tests are red again now. " * 8,
    )
    assert likeness(beginning + tails[0], beginning + tails[1]) is Likeness.OTHER


@pytest.mark.parametrize(("one", "other"), SAME + NEAR)
def test_texts_that_say_the_same_share_a_mark(one: str, other: str) -> None:
    assert mark(one) == mark(other)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("apartment", "appartment", True),
        ("receive", "recieve", True),
        ("tomorrow", "tomorow", True),
        ("government", "goverment", True),
        ("planned", "planner", False),
        ("happy", "snappy", False),
        ("adopt", "adapt", False),
        ("decide", "decided", False),
    ],
)
def test_a_misspelt_word_differs_by_one_letter_inside(one: str, other: str, expected: bool) -> None:
    assert misspelt(one, other) is misspelt(other, one) is expected


_texts = st.text(st.sampled_from("aAbéß 不喜歡欢.,-+#3５1'’!？\n\u200b\ufe0f❤"), max_size=12) | st.text(
    max_size=12
)


@given(_texts)
def test_the_normal_form_is_one_of_its_own(text: str) -> None:
    normal = normal_form(text)
    assert normal_form(text.upper().lower()) == normal_form(text.lower())
    assert normal == normal.casefold()
    assert not any(character.isspace() for character in normal) or any(
        character.isdigit() for character in normal
    )
    assert unicodedata.is_normalized("NFKC", normal)


@given(_texts, _texts)
def test_likeness_is_the_same_both_ways_and_of_a_text_with_itself(one: str, other: str) -> None:
    assert likeness(one, one) is Likeness.SAME
    likeness(one, other)


@given(st.lists(_texts, max_size=4))
def test_what_is_near_by_its_words_shares_a_mark(texts: list[str]) -> None:
    for one, other in combinations(texts, 2):
        if likeness(one, other) is Likeness.NEAR:
            assert mark(one) == mark(other)


@given(st.text(max_size=20))
def test_a_mark_is_a_signed_number_of_64_bits(text: str) -> None:
    assert -(2**63) <= mark(text) < 2**63
    assert words(text)
