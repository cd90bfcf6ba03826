"""Which embeddings are remembered, and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.typing import NDArray

from scrubjay.errors import ModelUnavailable
from server.providers.embedder import Space, TextKind
from server.providers.hashed import HashEmbedder
from server.providers.query_cache import QueryCache


class Counting:
    """The hash embedder, with a list of what it was asked."""

    def __init__(self) -> None:
        self._embedder = HashEmbedder()
        self.asked: list[tuple[list[str], TextKind]] = []
        self.fails = False
        self.closed = False

    @property
    def space(self) -> Space:
        return self._embedder.space

    def embed(self, texts: Sequence[str], kind: TextKind) -> NDArray[np.float32]:
        self.asked.append((list(texts), kind))
        if self.fails:
            raise ModelUnavailable("gone")
        return self._embedder.embed(texts, kind)

    def self_test(self) -> None:
        self._embedder.self_test()

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def model() -> Counting:
    return Counting()


def test_a_query_is_embedded_once(model: Counting) -> None:
    cache = QueryCache(model)
    first = cache.embed(["tea"], TextKind.QUERY)
    second = cache.embed(["tea"], TextKind.QUERY)
    assert model.asked == [(["tea"], TextKind.QUERY)]
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first, HashEmbedder().embed(["tea"], TextKind.QUERY))


def test_documents_and_several_queries_pass_through(model: Counting) -> None:
    cache = QueryCache(model)
    for _ in range(2):
        cache.embed(["tea"], TextKind.DOCUMENT)
        cache.embed(["tea", "milk"], TextKind.QUERY)
        cache.embed([], TextKind.QUERY)
    assert len(model.asked) == 6


def test_the_least_recently_used_query_leaves_first(model: Counting) -> None:
    cache = QueryCache(model, capacity=2)
    for text in ("tea", "milk", "tea", "honey", "tea", "milk"):
        cache.embed([text], TextKind.QUERY)
    assert [texts for texts, _ in model.asked] == [["tea"], ["milk"], ["honey"], ["milk"]]
    assert len(cache._rows) == 2


def test_a_caller_that_changes_its_row_changes_no_other(model: Counting) -> None:
    cache = QueryCache(model)
    for _ in range(3):
        row = cache.embed(["tea"], TextKind.QUERY)
        np.testing.assert_array_equal(row, HashEmbedder().embed(["tea"], TextKind.QUERY))
        row[:] = 7


def test_a_failure_is_not_remembered(model: Counting) -> None:
    cache = QueryCache(model)
    model.fails = True
    with pytest.raises(ModelUnavailable):
        cache.embed(["tea"], TextKind.QUERY)
    model.fails = False
    assert cache.embed(["tea"], TextKind.QUERY).shape == (1, 1024)


def test_lone_surrogates_are_keys_too(model: Counting) -> None:
    cache = QueryCache(model)
    cache.embed(["\ud800"], TextKind.QUERY)
    cache.embed(["\ud800"], TextKind.QUERY)
    assert len(model.asked) == 1


def test_many_threads_stay_within_the_capacity(model: Counting) -> None:
    cache = QueryCache(model, capacity=10)
    expected = HashEmbedder().embed([str(number) for number in range(20)], TextKind.QUERY)
    with ThreadPoolExecutor(8) as threads:
        rows = list(
            threads.map(lambda n: cache.embed([str(n % 20)], TextKind.QUERY)[0], range(2_000), chunksize=50)
        )
    for number, row in enumerate(rows):
        np.testing.assert_array_equal(row, expected[number % 20])
    assert len(cache._rows) <= 10


def test_closing_closes_the_model_and_forgets(model: Counting) -> None:
    cache = QueryCache(model)
    cache.embed(["tea"], TextKind.QUERY)
    cache.close()
    assert model.closed
    assert not cache._rows


def test_a_cache_of_nothing_is_refused(model: Counting) -> None:
    with pytest.raises(ValueError, match="capacity is 0"):
        QueryCache(model, capacity=0)
