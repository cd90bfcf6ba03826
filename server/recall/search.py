"""Search: the union of the arms' candidates, fused by a recipe, filtered, best first.

Absolute fusion: a memory's score is the sum of what each arm measured times the recipe's weight for the
arm. The weights add up to 1 and both measures lie in 0 to 1, so scores do too, and mean the same from
query to query. As measured, it finds more than rank fusion of BM25 and the same model, most of all where
question and memory share no words (see docs/evaluation.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from scrubjay.filters import Matcher
from scrubjay.text import tokens
from scrubjay.wire import commit_micros
from server.index.exact import ExactIndex
from server.index.resident import ResidentStream, Row, View
from server.recall.recipes import Recipe

POOL = 10
"""Each arm's candidates per hit asked for, where a stream is too large to score whole."""
LEAST_POOL = 100


@dataclass(frozen=True, slots=True)
class Query:
    """What is looked for. ``vector`` is of the stream's space, normalised."""

    text: str
    vector: NDArray[np.float32]
    recipe: Recipe
    view: View
    top_k: int
    matches: Matcher | None = None


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one arm gave to a score: ``measure`` is what it saw, 0 to 1, ``value`` what that is worth."""

    measure: float
    value: float


@dataclass(frozen=True, slots=True)
class Hit:
    """One memory found. ``contributions`` says what each arm gave; their values add up to ``score``."""

    row: Row
    score: float
    contributions: Mapping[str, Contribution]


def search(stream: ResidentStream, query: Query) -> list[Hit]:
    """The best ``top_k`` memories of the stream, best first and newer first among equals.

    Every memory that the view and the filter let through can be found: where fewer than ``top_k``
    come back, there are no more.
    """
    size = len(stream.rows)
    if not size:
        return []
    allowed = stream.allowed(query.view)
    lexical = None
    if "lexical" in query.recipe.weights:
        lexical = stream.words.coverage(tokens(query.text), size)
    if isinstance(stream.vectors, ExactIndex):
        dense = stream.vectors.scores(query.vector, size)
        return _best(stream, query, _Scored(np.arange(size), dense, lexical, allowed))
    return _search_large(stream, query, lexical, allowed)


@dataclass(frozen=True, slots=True)
class _Scored:
    """Slots with what the arms measured of each; ``lexical`` and ``allowed`` are by position too."""

    slots: NDArray[np.int64]
    dense: NDArray[np.float32]
    lexical: NDArray[np.float32] | None
    allowed: NDArray[np.bool_] | None


def _best(stream: ResidentStream, query: Query, scored: _Scored) -> list[Hit]:
    weights = query.recipe.weights
    dense = np.maximum(scored.dense, 0)
    total = dense * np.float32(weights["dense"])
    if scored.lexical is not None:
        total += scored.lexical * np.float32(weights["lexical"])
    if scored.allowed is not None:
        total[~scored.allowed] = -1
    hits = []
    for position in _descending(total, query.top_k if query.matches is None else len(total)):
        row = stream.rows[scored.slots[position]]
        if row is None or total[position] < 0:
            break
        if query.matches is None or query.matches(row.memory, commit_micros(row.commit_stamp)):
            measures = {"dense": float(dense[position])}
            if "lexical" in weights:
                measures["lexical"] = float(scored.lexical[position]) if scored.lexical is not None else 0.0
            parts = {arm: Contribution(found, weights[arm] * found) for arm, found in measures.items()}
            hits.append(Hit(row, sum(part.value for part in parts.values()), parts))
            if len(hits) == query.top_k:
                break
    return hits


def _descending(total: NDArray[np.float32], k: int) -> Iterator[int]:
    """Positions of the k highest values, highest first, later positions first among equals."""
    positions: Sequence[int] | NDArray[np.int64]
    if k < len(total):
        edge = np.partition(total, len(total) - k)[len(total) - k]
        candidates = np.flatnonzero(total >= edge)
    else:
        candidates = np.arange(len(total))
    positions = candidates[np.lexsort((-candidates, -total[candidates]))]
    return iter(positions.tolist())


def _search_large(
    stream: ResidentStream,
    query: Query,
    lexical: NDArray[np.float32] | None,
    allowed: NDArray[np.bool_] | None,
) -> list[Hit]:
    """The same over pools of candidates from each arm, where scoring every row would cost too much."""
    size = len(stream.rows)
    if query.matches is not None:
        allowed = _matching(stream, query.matches, allowed)
    pool = max(LEAST_POOL, POOL * query.top_k)
    slots, dense = stream.vectors.search(query.vector, pool, allowed)
    if lexical is not None:
        eligible = lexical if allowed is None else np.where(allowed, lexical, 0)
        words = np.flatnonzero(eligible)
        if len(words) > pool:
            words = words[np.argpartition(-eligible[words], pool)[:pool]]
        extra = np.setdiff1d(words, slots)
        mask = np.zeros(size, dtype=np.bool_)
        mask[extra] = True
        more_slots, more_dense = stream.vectors.search(query.vector, len(extra), mask)
        slots, dense = np.concatenate([slots, more_slots]), np.concatenate([dense, more_dense])
    order = np.argsort(slots)
    slots, dense = slots[order], dense[order]
    unfiltered = replace(query, matches=None)
    return _best(stream, unfiltered, _Scored(slots, dense, None if lexical is None else lexical[slots], None))


def _matching(
    stream: ResidentStream, matches: Matcher, allowed: NDArray[np.bool_] | None
) -> NDArray[np.bool_]:
    mask = np.zeros(len(stream.rows), dtype=np.bool_)
    for slot, row in enumerate(stream.rows):
        if row is not None and (allowed is None or allowed[slot]):
            mask[slot] = matches(row.memory, commit_micros(row.commit_stamp))
    return mask
