"""What makes reading a text quick hides nothing: the same is found where every rule is asked everywhere."""

from __future__ import annotations

import re
import unicodedata
import zlib
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bench import entities as bench
from scrubjay.text import nfkc
from server.ingest import words
from server.ingest.entities import chinese, english
from server.ingest.entities.entity import Named
from server.ingest.entities.extraction import extract
from server.ingest.rules import sentences
from server.ingest.simplified import simplified, simplified_characters
from server.providers.embedder import TextKind
from server.providers.hashed import DIMENSION, HashEmbedder
from server.providers.text_rules import prepare
from server.store.vector_codec import encode_vectors

_ENGLISH = (
    "I|We|we|the user|The user|the User|users|my sister|our dog|My favourite food is|Anna|"
    "Tom Miller|O'Brien|iPhone|eBay|NASA|J. Smith|Bank of Oslo|New York|Dr. Chen|Uncle Bob|"
    "Project Falcon|project|VS Code|python|c++|ſlack|Kafka|work at|works for|no longer work at|"
    "lost my job at|joined|is a nurse at|study at|live in|lives in|moved to|am from|use|"
    "stopped using|write code in|switched from Vim to|switched to|lead the|am allergic to|like|"
    "loves|hate|can't stand|don't like|do not eat|am into|am fond of|am married to|engaged to|"
    "is my|'s|, my best friend|is called|as|tea|and|but|than|over|rather than|between|prefer|"
    "drinking|in the morning|1,000|1,00|n't|cannot|the|a|very|\"|(|)|.|!|?|,|;|: |Ann: |e.g|no.|"
    "etc.|…|😀|’|“|”"
)
_CHINESE = (
    "我|我们|咱|本人|用户|我的|小王|老李|张三|王老师|Anna|在|不再|一直|从|住在|搬到了|"
    "来自|老家在|是|用|改用|卸载了|喜欢|不喜欢|讨厌|爱吃|对|过敏|负责|项目|上班|工作|"
    "任职于|入职|离职|以前在|妈妈|姐姐|叫|是我|同事|了|的|吗|如果|他|生活|当老师|北京|"
    "上海|微信|Vim|腾讯公司|北京大学|香菜|《三体》|「星火」|星火计划|比起茶|胜过水|"
    "之间|臺北|後來|，|。|！|？|；|：|,"
)
_SAID, _ZH_SAID = _ENGLISH.split("|"), _CHINESE.split("|")
_spaced = st.lists(st.sampled_from(_SAID), max_size=12).map(" ".join)
_unspaced = st.lists(st.sampled_from(_ZH_SAID + _SAID), max_size=12).map("".join)
texts = _spaced | _unspaced | st.text(max_size=60)
roles = st.sampled_from(["", "user", "assistant", "Ann", "小红"])


def read_by_every_rule(text: str, role: str) -> Named:
    """``extract`` without what leaves rules and places out."""
    every_word = {"project", "switched", *english._TITLES, *english._TOOL_BEGINNINGS, *english._SPEAKERS}
    every_word |= {*english._MINE, *english._MARRYING, *english._FORMS._places}
    anything = re.compile("")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(english, "has_capital", lambda text: True)
        patch.setattr(english, "_said", lambda text: every_word)
        patch.setattr(english, "starts_of_names", lambda text: list(range(len(text))))
        patch.setattr(english, "_tools", english._TOOL.finditer)
        patch.setattr(chinese, "_NAMED", tuple((anything, *rest) for _, *rest in chinese._NAMED))
        patch.setattr(chinese, "_MENTIONS_KIN", anything)
        patch.setattr(chinese, "_STARTS", anything)
        return extract(text, role)


@pytest.mark.parametrize("split", bench.SPLITS)
def test_labelled_sentences_say_the_same_to_every_rule(split: str) -> None:
    for label in bench.labels():
        if label.split == split:
            assert extract(label.text) == read_by_every_rule(label.text, "")


@given(texts, roles)
@example("ſlack and İphone and \u212aafka", "")
@example("We sold it on eBay, iPhone and MyTunes included", "")
@example("俺住在北京，现在用微信。小王是我朋友", "")
@example("x" * 999 + "we like tea", "")
@example("a" * 998 + "cDef like tea", "")
def test_every_rule_finds_no_more(text: str, role: str) -> None:
    assert extract(text, role) == read_by_every_rule(text, role)


@given(texts)
def test_forms_are_those_that_the_text_has_a_word_of(text: str) -> None:
    forms = chinese._FORMS
    assert forms.within(text) == [one for one in forms._forms if any(word in text for word in one.words)]


_EMOJI = "[\u2600-\u27bf\U0001f300-\U0001faff]"
_ENDS = re.compile(rf"[。！？；…!?;]+|\.+|{_EMOJI}[\ufe0f\u200d]?(?=\s+[A-Z])")


@given(st.text("a.A !?。；…☀😀\ufe0f\u200d", max_size=30) | texts)
def test_marks_that_may_end_a_sentence_are_found(text: str) -> None:
    assert [one.span() for one in sentences._END.finditer(text)] == [
        one.span() for one in _ENDS.finditer(text)
    ]


@given(st.text('aegtcMr. (["“\u3000\x1c', max_size=12) | st.text(max_size=12))
def test_an_abbreviation_is_known_by_the_last_word(text: str) -> None:
    before = text.replace("\n", " ")  # of one line
    last = before.rsplit(None, 1)[-1] if before[-1:].strip() else ""
    assert sentences._abbreviates(last) == (
        sentences._ABBREVIATION.search(before) is not None,
        sentences._SOFT_ABBREVIATION.search(before) is not None,
    )


@given(st.text() | st.text("臺北後來我的\U00029d98\u3400a"))
def test_characters_are_changed_as_the_table_says(text: str) -> None:
    assert simplified(text) == text.translate(simplified_characters())
    assert nfkc(text) == unicodedata.normalize("NFKC", text)


@given(texts)
def test_words_are_the_same_read_at_once_or_apart(text: str) -> None:
    plain = words._plain(text)
    thousands = re.sub("(?<=[0-9]),(?=[0-9]{3}(?![0-9]))", "", plain)
    whole = [part for word in words._WORD.findall(thousands) for part in words._expanded(word)]
    assert [word for chunk in plain.split() for word in words._written(chunk)] == whole
    if words._LIKE.isdisjoint(whole):
        assert list(words._liked(whole)) == whole
    others = [word for word in whole if word[-1] not in words._FOLDED_ENDS]
    assert [words._folded(word) for word in others] == others


@given(st.lists(st.sampled_from(_SAID + _ZH_SAID), max_size=8).map(" ".join))
@example("i like tea than i like coffee")
@example("between tea and coffee i like tea")
@example("我 喜欢 茶 胜过 水")
def test_every_way_to_compare_says_no_more(text: str) -> None:
    said = [words._folded(word) for chunk in text.lower().split() for word in words._written(chunk)]
    assert words._compared(said) == compared_by_every_form(said)


def compared_by_every_form(said: list[str]) -> list[str]:
    if words._COMPARES.isdisjoint(said) and words._LIKED.isdisjoint(said):
        return said
    text = words._CONSUMED.sub(r"\1", " ".join(said))
    for _, form in words._COMPARING:
        if (found := form.match(text)) is not None:
            return f"i like {found['more']} than {found['less']}".split()
    if (found := words._FRONTED.fullmatch(text)) is not None:
        text = f"{found['rest']} {found['where']}"
    return text.split()


@given(st.lists(texts, max_size=5))
@example(["我喜欢喝茶"] * 40 + ["tea"] * 40)
def test_a_text_has_the_same_vector_alone_and_among_others(batch: list[str]) -> None:
    rows = HashEmbedder().embed(batch, TextKind.DOCUMENT)
    assert len(rows) == len(batch)
    for row, text in zip(rows, batch, strict=True):
        counts = signed_counts(prepare(text).casefold())
        np.testing.assert_array_equal(row, counts / max(np.linalg.norm(counts), np.float32(1e-9)))


def signed_counts(text: str) -> np.ndarray:
    """The features of a text, hashed one by one."""
    counts = np.zeros(DIMENSION, dtype=np.float32)
    han = "\u3400-\u4dbf\u4e00-\u9fff"
    for token in re.finditer(rf"([{han}]+)|([^\W_{han}]+)|\S", text):
        run, word, padded = token[1], token[2], f"<{token[2]}>"
        features = [*run, *map("".join, pairwise(run))] if run else [token[0]]
        features += [padded[n : n + 3] for n in range(len(padded) - 2)] if word else []
        for number in (zlib.crc32(feature.encode()) for feature in features):
            counts[number % DIMENSION] += -1 if number >> 31 else 1
    return counts


@given(st.integers(1, 70), st.sampled_from([1, 0, 1e-44, 1e-38, 1e30]), st.integers(0, 2**32 - 1))
def test_a_vector_is_encoded_alone_as_among_others(count: int, size: float, seed: int) -> None:
    vectors = (np.random.default_rng(seed).standard_normal((count, 5)) * size).astype(np.float32)
    assert encode_vectors(vectors) == [encoded(vector) for vector in vectors]


def encoded(vector: np.ndarray) -> bytes:
    scale = np.float32(np.abs(vector).max() / np.float32(127))
    codes = np.clip(np.rint(vector / (scale if scale > 0 else np.float32(1))), -127, 127)
    return scale.tobytes() + codes.astype(np.int8).tobytes()
