"""What becomes of a text before a model sees it."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.providers import text_rules


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("User likes tea", "I likes tea"),
        ("The user's dog is called Rex.", "my dog is called Rex."),
        ("the user’s mother", "my mother"),
        ("It rained; user stayed at home, user slept.", "It rained; I stayed at home, I slept."),
        ("When User sleeps, User's cat sits on User.", "When I sleeps, my cat sits on I."),
        ("user prefers dark mode", "I prefers dark mode"),
        ("The user needs a visa", "I needs a visa"),
        ("User: hello", "I: hello"),
        ("User喜欢喝茶", "我喜欢喝茶"),
        ("User 的猫叫豆豆", "我 的猫叫豆豆"),
        ("用户的猫叫豆豆。用户喜欢猫", "我的猫叫豆豆。我喜欢猫"),
        ("今天用户去了公园", "今天我去了公园"),
        ("该用户不吃肉", "我不吃肉"),
        ("妈妈给用户打了电话", "妈妈给我打了电话"),
        ("如果用户饿了", "如果我饿了"),
        ("因此用户搬家了", "因此我搬家了"),
        ("用戶喜歡喝茶", "我喜歡喝茶"),
        ("用户数学很好", "我数学很好"),
    ],
)
def test_the_user_becomes_the_first_person(text: str, seen: str) -> None:
    assert text_rules.prepare(text) == seen


@pytest.mark.parametrize(
    "text",
    [
        "Users like it",
        "the user interface is slow",
        "User Guide, page 3",
        "the username and the user_id of a user-friendly app",
        "every user and a user and the end user",
        "An email to user@example.com from /srv/User",
        "user.name = 3",
        "User 42 asked",
        "User B answered",
        "I interviewed the user",
        "My job: the user comes first",
        "新用户和苹果用户很多",
        "日本用户、App用户和2000用户",
        "用户体验和用户名",
        "我给用户打了电话",
    ],
)
def test_any_other_user_stays_as_it_is(text: str) -> None:
    assert text_rules.prepare(text) == text


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("a\x00b", "ab"),
        ("Ａｌｉｃｅ　２", "Alice 2"),
        ("\ud83d\ude00", "😀"),
        ("a\ud800b\udfffc", "a\ufffdb\ufffdc"),
    ],
)
def test_what_breaks_tokenizers_is_gone(text: str, seen: str) -> None:
    assert text_rules.prepare(text) == seen


@pytest.mark.parametrize("text", ["", "   \n\t", "\x00", "\u3000"])
def test_a_blank_text_is_a_full_stop(text: str) -> None:
    assert text_rules.prepare(text) == "."


def test_a_text_that_nfkc_makes_longer_is_capped() -> None:
    assert len(text_rules.prepare("\ufdfa" * 5_461)) == text_rules.MAX_CHARACTERS


@given(st.text(st.characters(exclude_categories=())))
def test_every_text_is_prepared_for_every_model(text: str) -> None:
    prepared = text_rules.prepare(text)
    assert prepared.encode()
    assert "\x00" not in prepared
    assert unicodedata.is_normalized("NFKC", prepared)
    assert text_rules.prepare(prepared) == prepared


@given(
    st.lists(
        st.sampled_from(["The tea was hot. ", "茶很热。", "3.5", "word ", "，", "\n", "x" * 50, "!?", "..."])
    )
)
def test_pieces_are_short_few_and_lose_nothing(parts: list[str]) -> None:
    text = "".join(parts)
    pieces = text_rules.split(text)
    assert "".join(pieces) == text
    assert max(map(len, pieces)) <= text_rules.PIECE_CHARACTERS
    assert len(pieces) <= 1 + 3 * len(text) / text_rules.PIECE_CHARACTERS


def test_pieces_end_where_sentences_end_and_are_of_about_one_length() -> None:
    english = "We paid 3.5 euros for the tea. It was still too hot to drink! " * 6
    chinese = "我们花了三块五买茶。茶太烫，还不能喝！" * 20
    for text, ends in ((english, (". ", "! ")), (chinese, ("。", "!"))):
        pieces = text_rules.split(text_rules.prepare(text))
        assert len(pieces) == 2
        assert all(piece.endswith(ends) for piece in pieces)
        assert max(map(len, pieces)) < 1.3 * min(map(len, pieces))


def test_a_text_without_sentences_is_cut_between_words_or_anywhere() -> None:
    assert all(piece.endswith(" ") for piece in text_rules.split("word " * 1_000))
    assert text_rules.split("x" * 700) == ["x" * 234, "x" * 233, "x" * 233]
