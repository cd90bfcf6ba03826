"""The newer arm: of two memories that say the same of the same thing, the newer one is what holds.

"I live in Lisbon now" and "I live in Berlin" answer where somebody lives about as well. Nothing says that one
replaced the other, so the newer one is only put a little ahead, and only as far as the two are alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from scrubjay.memory import DAY_MICROS

POOL = 10
"""Pairs are looked for among so many of the best."""
AHEAD = 0.1
"""How far above the older one the newer one is put at most."""
MOST_LIFT = 0.25
SAME_TIME = DAY_MICROS
"""What is less than a day older is of the same time."""
ALIKE, ALIKE_WIDTH, SAME_BEGINNING = 0.7, 0.5, 0.5
AS_GOOD, AS_GOOD_WIDTH = 0.55, 0.3


def lifts(
    scores: NDArray[np.float64],
    created_at: NDArray[np.int64],
    voices: NDArray[np.int64],
    is_turn: NDArray[np.bool_],
    vectors: NDArray[np.float32],
    terms: Callable[[int], Sequence[str]],
) -> NDArray[np.float64]:
    """What each of a few memories gains for being newer than one that says the same of the same thing.

    Arguments are by position; ``voices`` are equal where one speaker said both of one subject. A pair counts
    as far as the two are alike (cosine, shared words, and the same two words to begin with: "I live …" beside
    "My sister lives …") and answer the query about as well. Turns of a conversation gain nothing.
    """
    gain = np.zeros(len(scores))
    older, later = np.nonzero(created_at[:, np.newaxis] + SAME_TIME < created_at)
    good = scores[later] / np.maximum(scores[older], 1e-6)
    counts = (voices[older] == voices[later]) & ~is_turn[later] & (good > AS_GOOD)
    older, later, good = older[counts], later[counts], good[counts]
    if not len(older):
        return gain
    held = {position: terms(position) for position in {*older.tolist(), *later.tolist()}}
    sets = {position: frozenset(found) for position, found in held.items()}
    words = [
        _overlap(sets[i], sets[j]) + SAME_BEGINNING * _beginning(held[i], held[j])
        for i, j in zip(older.tolist(), later.tolist(), strict=True)
    ]
    alike = np.vecdot(vectors[older], vectors[later]) + np.array(words)
    share = np.clip((alike - ALIKE) / ALIKE_WIDTH, 0, 1) * np.clip((good - AS_GOOD) / AS_GOOD_WIDTH, 0, 1)
    np.maximum.at(gain, later, share * np.clip(scores[older] - scores[later] + AHEAD, 0, MOST_LIFT))
    return gain


def _overlap(one: frozenset[str], other: frozenset[str]) -> float:
    """Jaccard's."""
    both = len(one & other)
    return both / max(1, len(one) + len(other) - both)


def _beginning(one: Sequence[str], other: Sequence[str]) -> float:
    """1 where both begin with the same two words or characters, ½ with the same one, else 0."""
    if one[:1] != other[:1]:
        return 0.0
    return 1.0 if one[:2] == other[:2] else 0.5
