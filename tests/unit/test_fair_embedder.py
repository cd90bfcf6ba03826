"""Embedding in turns: a tenant's one query does not wait for another's batches."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager

import numpy as np
import pytest
from numpy.typing import NDArray

from scrubjay.errors import ModelUnavailable
from server.app import _embedder
from server.config import Settings
from server.providers.embedder import TextKind
from server.providers.fair import FairEmbedder, Share
from server.providers.hashed import HashEmbedder
from server.turns import NOBODY, Turns
from tests.waiting import patiently

PATIENCE = 10
NOISY, QUIET = "noisy", "quiet"


class Slow(HashEmbedder):
    """Embeds when it is let, one call at a time, and notes what."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Sequence[str]] = []
        self.begun = threading.Semaphore(0)
        self.go = threading.Semaphore(0)

    def embed(self, texts: Sequence[str], kind: TextKind) -> NDArray[np.float32]:
        self.calls.append(texts)
        self.begun.release()
        assert self.go.acquire(timeout=PATIENCE)
        return super().embed(texts, kind)


@contextmanager
def turn(turns: Turns, tenant: str) -> Iterator[None]:
    turns.begin(tenant)
    try:
        yield
    finally:
        turns.end()


class Asked:
    """A fair embedder before a slow one, and calls of it under way."""

    def __init__(self, pool: ThreadPoolExecutor, share: Share) -> None:
        self._pool = pool
        self.slow, self.turns = Slow(), Turns()
        self.embedder = FairEmbedder(self.slow, self.turns, share)
        self.calls: list[Future[NDArray[np.float32]]] = []

    def embed(self, tenant: str, texts: str) -> Future[NDArray[np.float32]]:
        """Let it embed these texts, in a call of the tenant if it is one, and wait until it is about to."""
        before = len(self.embedder._slots._waiting) + len(self.slow.calls)
        self.calls.append(self._pool.submit(self._embed, tenant, [*texts]))
        until(lambda: len(self.embedder._slots._waiting) + len(self.slow.calls) > before)
        return self.calls[-1]

    def finish(self) -> None:
        """Let every call end."""
        while not all(call.done() for call in self.calls):
            if self.slow.begun.acquire(timeout=0.01):
                self.slow.go.release()

    def _embed(self, tenant: str, texts: list[str]) -> NDArray[np.float32]:
        if tenant == NOBODY:
            return self.embedder.embed(texts, TextKind.DOCUMENT)
        with turn(self.turns, tenant):
            return self.embedder.embed(texts, TextKind.DOCUMENT)


until = patiently(PATIENCE)


@pytest.mark.parametrize("noisy", [NOISY, NOBODY])
def test_a_query_waits_for_a_portion_of_others_batches_only(noisy: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        asked = Asked(pool, Share(texts=2))
        batches = [asked.embed(noisy, "abcdef") for _ in range(3)]
        query = asked.embed(QUIET, "q")
        asked.finish()
        assert asked.slow.calls.index(["q"]) <= 2
        assert len(asked.slow.calls) == 10
        assert len(query.result()) == 1
        alone = HashEmbedder().embed([*"abcdef"], TextKind.DOCUMENT)
        assert all(np.array_equal(batch.result(), alone) for batch in batches)


def test_the_turn_at_the_processor_is_anothers_while_a_model_is_asked() -> None:
    slow, turns = Slow(), Turns()
    embedder = FairEmbedder(slow, turns, Share())

    def ask() -> None:
        with turn(turns, NOISY):
            embedder.embed(["q"], TextKind.QUERY)

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask)
        assert slow.begun.acquire(timeout=PATIENCE)
        assert turns._short == []
        slow.go.release()
        asked.result(PATIENCE)


@pytest.mark.parametrize(
    ("share", "portions"),
    [
        (Share(texts=2), ["ab", "cd", "e"]),
        (Share(texts=9, characters=3), ["abc", "de"]),
        (Share(texts=9, characters=0), ["a", "b", "c", "d", "e"]),
        (Share(texts=9, characters=sys.maxsize), ["abcde"]),
    ],
)
def test_texts_are_embedded_in_portions_and_come_back_in_order(share: Share, portions: list[str]) -> None:
    slow = Slow()
    slow.go = threading.Semaphore(99)
    rows = FairEmbedder(slow, Turns(), share).embed([*"abcde"], TextKind.DOCUMENT)
    assert slow.calls == [[*portion] for portion in portions]
    assert np.array_equal(rows, HashEmbedder().embed([*"abcde"], TextKind.DOCUMENT))


def test_no_texts_give_no_rows() -> None:
    embedder = FairEmbedder(HashEmbedder(), Turns(), Share())
    assert embedder.embed([], TextKind.DOCUMENT).shape == (0, embedder.space.dimension)


def test_a_model_that_fails_leaves_its_turn() -> None:
    class Failing(HashEmbedder):
        def embed(self, texts: Sequence[str], kind: TextKind) -> NDArray[np.float32]:
            if texts[0] == "bad":
                raise ModelUnavailable("it sleeps")
            return super().embed(texts, kind)

    turns = Turns()
    embedder = FairEmbedder(Failing(), turns, Share())
    with turn(turns, QUIET):
        with pytest.raises(ModelUnavailable):
            embedder.embed(["bad"], TextKind.QUERY)
        assert turns.tenant == QUIET
        assert len(embedder.embed(["good"], TextKind.QUERY)) == 1


@pytest.mark.parametrize(("name", "fair"), [("openai", True), ("hash", False)])
def test_a_server_asks_models_in_turns_and_not_what_takes_no_time(name: str, fair: bool) -> None:
    with closing(_embedder(Settings(openai_base_url="http://127.0.0.1:9"), name, Turns())) as embedder:
        assert isinstance(embedder, FairEmbedder) is fair
