"""Tokens: what each rule gives, and what holds for every text."""

from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scrubjay.text import MAX_TOKEN_LENGTH, fold, stem, tokens

any_text = st.text(st.characters(exclude_categories=()))
"""Any str that Python can hold, lone surrogates included."""
_pieces = ["Running", "C++", "-3.50", "user_id", "O'Brien's", "3.11.7", "1,000", "北京", "👩🏽‍💻", "ｶﾞ"]
_glue = " \n.-'@，。\u200b\u0301\u3099\ufe0f\u202eＡßé"
chatter = st.lists(st.sampled_from(_pieces) | st.sampled_from(_glue)).map("".join)
texts = any_text | chatter
words = st.from_regex(
    r"[A-Za-z]{1,12}|[a-z]{1,5}[_-][a-z]{1,5}|[0-9]{1,4}(\.[0-9]{1,3}){0,2}", fullmatch=True
)
han = st.characters(min_codepoint=0x4E00, max_codepoint=0x9FA5)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" \t\n!?…—“”()", []),
        ("The cats were running home", ["the", "cat", "were", "run", "home"]),
        ("user_id", ["user_id", "user", "id"]),
        ("__init__", ["init"]),
        ("state-of-the-art", ["state-of-the-art", "state", "of", "the", "art"]),
        ("a.b.c", ["a.b.c", "abc", "a", "b", "c"]),
        ("camelCase", ["camelcas", "camel", "case"]),
        ("HTTPServer", ["httpserver", "http", "server"]),
        ("iPhone15", ["iphone15", "phone", "15"]),
        ("GPUs", ["gpus"]),
        ("ABC-1234", ["abc-1234", "abc", "1234"]),
        ("3.11", ["3.11", "3"]),
        ("3.11.7", ["3.11.7", "3.11", "3"]),
        ("v3.11", ["v3.11", "3.11", "3"]),
        ("-3.50", ["-3.50", "3.50", "3"]),
        ("−7°C", ["-7", "7", "c"]),
        ("+5", ["+5", "5"]),
        ("3-5", ["3-5", "3", "5"]),
        ("1,000 and 1,234,567.5", ["1000", "and", "1234567.5", "1234567"]),
        ("10:30", ["10:30", "10", "30"]),
        ("2024-05-02", ["2024-05-02", "2024", "5", "2"]),
        ("2nd", ["2nd"]),
        ("5+ years", ["5", "year"]),
        ("50% of $5", ["50", "of", "5"]),
        ("C++, C# or C; g++", ["c++", "c#", "or", "c", "g++"]),
        ("Notepad++", ["notepad++", "notepad"]),
        ("an A+", ["an", "a+"]),
        ("me.x+tag@example.org", ["me.x+tag@example.org", "me", "x", "tag", "exampl", "org"]),
        ("AT&T", ["at&t", "at", "t"]),
        ("U.S.A.", ["u.s.a", "usa", "u", "s", "a"]),
        ("Ann's don't I'm", ["ann", "dont", "i"]),
        ("O’Brien’s", ["obrien", "brien"]),
        ("l'homme", ["lhomm", "homm"]),
        ("北京大学", ["北", "京", "大", "学", "北京", "京大", "大学"]),
        ("我用Python写", ["我", "用", "我用", "python", "写"]),
        ("好，是", ["好", "是"]),
        ("がく ガク", ["が", "く", "がく", "ガ", "ク", "ガク"]),
        ("한국 말", ["한", "국", "한국", "말"]),
        ("ไทย", ["ไ", "ท", "ย", "ไท", "ทย"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("مُحَمَّد سلام", ["مُحَمَّد", "محمد", "سلام"]),
        ("שָׁלוֹם עולם", ["שָׁלוֹם", "שלום", "עולם"]),
        ("café Straße", ["café", "cafe", "strass"]),
        ("Привет мир", ["привет", "мир"]),
        ("👍🏽 ❤️ 🇨🇳", ["👍", "❤", "🇨🇳"]),
        ("👩🏽‍💻", ["👩‍💻", "👩", "💻"]),
        ("１２３ Ａｂｃ ℃", ["123", "abc", "c"]),
        ("soft\u00adhyphen zero\u200bwidth", ["softhyphen", "zerowidth"]),
        ("\ud800x\udfff", ["x"]),
        ("550e8400-e29b", ["550e8400-e29b", "550e8400", "e29b"]),
    ],
)
def test_a_text_gives(text: str, expected: list[str]) -> None:
    assert tokens(text) == expected


@pytest.mark.parametrize(
    ("one", "other"),
    [
        *(("cats", "cat"), ("boxes", "box"), ("classes", "class"), ("parties", "party"), ("movies", "movie")),
        *(("houses", "house"), ("heroes", "hero"), ("running", "run"), ("making", "make"), ("makes", "make")),
        *(("changed", "change"), ("changing", "change"), ("loved", "love"), ("visited", "visiting")),
        *(("using", "use"), ("used", "use"), ("tried", "try"), ("studies", "studied"), ("added", "adding")),
        *(
            ("goes", "going"),
            ("bought", "buying"),
            ("children", "child"),
            ("met", "meeting"),
            ("died", "dies"),
        ),
        *(("playing", "played"), ("falling", "falls"), ("coming", "come"), ("arrived", "arriving")),
    ],
)
def test_forms_of_one_word_have_one_stem(one: str, other: str) -> None:
    assert stem(one) == stem(other)


@pytest.mark.parametrize(
    "words",
    [
        *(("care", "car"), ("here", "her"), ("plane", "plan"), ("note", "not"), ("wine", "win")),
        *(("news", "new"), ("evening", "even"), ("string", "str"), ("thing", "th"), ("need", "ne")),
        *(("bus", "bu"), ("this", "thi"), ("glass", "glas"), ("red", "r"), ("hoping", "hopping")),
    ],
)
def test_different_words_keep_different_stems(words: tuple[str, str]) -> None:
    assert stem(words[0]) != stem(words[1])


@given(texts)
@example("_" * 5)
@example("+-+-'")
@example("a" * 1000)
@example("a-" * 100)
@example("👩\u200d" * 100)
@example("1." * 100)
@example("\u0301")
@example("ᾳ\u0345")
def test_every_text_gives_tokens_within_bounds(text: str) -> None:
    found = tokens(text)
    assert all(isinstance(token, str) and 1 <= len(token) <= MAX_TOKEN_LENGTH for token in found)
    assert not any(character.isspace() for token in found for character in token)
    assert tokens(text) == found


@given(texts)
@example("，？！：；（）")
@example("ｶﾞ１２ＡＢ㍿ﷺ①")
def test_compatibility_forms_give_the_tokens_of_their_normal_form(text: str) -> None:
    assert tokens(unicodedata.normalize("NFKC", text)) == tokens(text)


@given(st.text(st.characters(max_codepoint=0x17F)) | chatter)
def test_a_text_shares_its_words_with_itself_in_another_case(text: str) -> None:
    for other in (text.lower(), text.title()):
        if fold(other) == fold(text):
            assert bool(set(tokens(text)) & set(tokens(other))) is bool(tokens(text))


@given(st.lists(words, max_size=5), words, st.lists(words, max_size=5))
def test_a_word_of_a_text_finds_it(before: list[str], word: str, after: list[str]) -> None:
    for written in (word, word.upper(), f"({word})", f"{word},", f'"{word}"', f"「{word}」", f"我{word}了"):
        text = " ".join([*before, written, *after])
        assert set(tokens(word)) & set(tokens(text)), text


@given(st.text(han, max_size=10), st.text(han, min_size=2, max_size=2), st.text(han, max_size=10))
def test_a_chinese_word_of_two_characters_is_a_token_of_its_sentence(
    before: str, word: str, after: str
) -> None:
    for sentence in (before + word + after, f"OK {before}{word}，{after}。"):
        assert word in tokens(sentence)
        assert set(word) <= set(tokens(sentence))


@given(
    st.sampled_from(
        ["c++", "c#", "-3.50", "user_id", "3.11.7", "abc-1234", "北京", "👩‍💻", "me@x.org", "cat"]
    )
)
def test_a_token_that_is_no_stem_gives_itself(token: str) -> None:
    assert token in tokens(token)


@given(texts)
def test_folding_is_for_good(text: str) -> None:
    assert fold(fold(text)) == fold(text)
    assert fold(unicodedata.normalize("NFKC", text)) == fold(text)


def test_c_and_its_relatives_are_apart() -> None:
    names = [set(tokens(name)) for name in ("C", "C++", "C#")]
    assert [a & b for n, a in enumerate(names) for b in names[:n]] == [set(), set(), set()]


@pytest.mark.parametrize(
    "unit",
    [
        *("a.", "a..a", "a'", "a@", "a+", "-1", "1,111", "1.1", "1:", "A1", "f0", "_", "a_", "+", "0"),
        *("é", "\u0301", "👩\u200d", "我", "a" * 70 + " "),
    ],
)
def test_the_largest_text_of_any_pattern_takes_linear_time(unit: str) -> None:
    tokens(unit)
    began = time.process_time()
    tokens(unit * (16_384 // len(unit)))
    assert time.process_time() - began < 1  # quadratic ones take a minute
