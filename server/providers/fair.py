"""An embedder that tenants take turns at, portion by portion.

Whoever embeds much waits between its portions while another tenant's texts are embedded, so that one query
is never behind a whole batch of somebody else's. What is embedded in no tenant's call, such as long work on
tenants, has turns like one tenant, all of it together.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from server.providers.embedder import Embedder, Space, TextKind
from server.slots import HandlerSlots
from server.turns import Turns


@dataclass(frozen=True, slots=True)
class Share:
    """What an embedder takes: so many calls at once, and in each so many texts and, but for the first text,
    so many characters."""

    at_once: int = 1
    texts: int = 8
    characters: int = 2_000


SHARES: Mapping[str, Share] = MappingProxyType(
    {
        "lite": Share(),
        "e5": Share(texts=4, characters=1_000),
        "openai": Share(at_once=8, texts=128, characters=sys.maxsize),
    }
)
"""By embedder. In ``lite`` 8 sentences take 9 ms, and larger batches are a tenth faster; two at once are not.
The worker of ``e5`` takes four texts at a time, in 0.13 s. Over HTTP as many as the endpoint takes at once,
and a request holds."""


class FairEmbedder:
    """An Embedder before another one. ``turns`` knows whose call a thread is at, and another call has its
    turn at the processor meanwhile."""

    def __init__(self, embedder: Embedder, turns: Turns, share: Share) -> None:
        self._embedder, self._turns, self._share = embedder, turns, share
        self._slots = HandlerSlots(share.at_once, max(1, share.at_once - 1), sys.maxsize)

    @property
    def space(self) -> Space:
        return self._embedder.space

    def embed(self, texts: Sequence[str], kind: TextKind) -> NDArray[np.float32]:
        """See Embedder."""
        tenant = self._turns.tenant
        with self._turns.aside():
            rows = [self._embed(tenant, portion, kind) for portion in _portions(texts, self._share)]
        return rows[0] if len(rows) == 1 else np.concatenate(rows)

    def self_test(self) -> None:
        self._embedder.self_test()

    def close(self) -> None:
        self._embedder.close()

    def _embed(self, tenant: str, texts: Sequence[str], kind: TextKind) -> NDArray[np.float32]:
        self._slots.take(tenant)
        try:
            return self._embedder.embed(texts, kind)
        finally:
            self._slots.give_back(tenant)


def _portions(texts: Sequence[str], share: Share) -> Iterator[Sequence[str]]:
    """The texts in order; one portion without any where there are none."""
    start, characters = 0, 0
    for end, text in enumerate(texts):
        if end > start and (end - start >= share.texts or characters + len(text) > share.characters):
            yield texts[start:end]
            start, characters = end, 0
        characters += len(text)
    yield texts[start:]
