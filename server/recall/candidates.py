"""Which rows are scored, and which of them come first.

A stream whose vectors are multiplied one and all is scored whole. Of a larger one each arm chooses its best,
over what the caller may see and asked for: so a hit of the keywords alone is never lost, and what is hidden,
expired or filtered out never takes a place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from server.index.columns import Columns, Mask, Slots
from server.index.exact import ExactIndex
from server.index.resident import ResidentStream
from server.recall.arms import Measure
from server.recall.query import Passing, Query
from server.recall.turns import beside

POOL = 10
"""Each arm's candidates per hit asked for, where a stream is too large to score whole."""
LEAST_POOL = 100
_MORE = 4
"""By how much more rows are looked at where a filter let too few through."""


def candidates(
    stream: ResidentStream,
    query: Query,
    found: Mapping[str, Measure | None],
    allowed: Mask | None,
    passing: Passing,
    turns: tuple[Slots, Slots] | None,
) -> Slots:
    """All that the view lets through, or of a large stream what the arms choose, with what is said beside it
    and what replaced any of it."""
    columns = stream.columns
    if "dense" not in query.recipe.weights or isinstance(stream.vectors, ExactIndex):
        return np.arange(columns.size) if allowed is None else np.flatnonzero(allowed)
    slots = _pool(stream, query, found, allowed, passing)
    if turns is not None:
        slots = np.unique(np.concatenate([slots, *beside(slots, *turns)]))
        slots = slots[slots >= 0]
    successors = columns.successors()
    fresh = slots
    while successors is not None and len(fresh):
        following = successors[fresh]
        following = following[following >= 0]
        fresh = np.setdiff1d(following if allowed is None else following[allowed[following]], slots)
        slots = np.union1d(slots, fresh)
    return slots


def _pool(
    stream: ResidentStream,
    query: Query,
    found: Mapping[str, Measure | None],
    allowed: Mask | None,
    passing: Passing,
) -> Slots:
    """The best of each arm, and of all but the dense one together."""
    columns, size = stream.columns, max(LEAST_POOL, POOL * query.top_k)
    if not passing.all:
        among = np.arange(columns.size) if allowed is None else np.flatnonzero(allowed)
        allowed = np.zeros(columns.size, np.bool_)
        allowed[among[passing.mask(among)]] = True
    chosen = [stream.vectors.search(query.vector, size, allowed)[0]]
    measures = {arm: measure for arm, measure in found.items() if measure is not None}
    chosen += [_top(columns, measure, allowed, size) for measure in measures.values()]
    if len(measures) > 1:
        weighed = [np.float32(query.recipe.weights[arm]) * measure for arm, measure in measures.items()]
        chosen.append(_top(columns, np.sum(weighed, axis=0), allowed, size))
    return np.unique(np.concatenate(chosen))


def _top(columns: Columns, measure: Measure, allowed: Mask | None, count: int) -> Slots:
    """The ``count`` slots that measure most, of those that measure anything."""
    slots = np.flatnonzero(measure if allowed is None else allowed & (measure > 0))
    return slots[first(columns, slots, measure[slots], count)]


def first(columns: Columns, slots: Slots, scores: NDArray[np.floating[Any]], count: int) -> NDArray[np.int64]:
    """The positions of the ``count`` best, best first."""
    candidates = np.arange(len(slots))
    if count < len(slots):
        edge = np.partition(scores, len(slots) - count)[len(slots) - count]
        above, ties = np.flatnonzero(scores > edge), np.flatnonzero(scores == edge)
        wanted = count - len(above)
        if wanted < len(ties):
            times = columns.time("created_at")[slots[ties]]
            ties = ties[times >= np.partition(times, len(ties) - wanted)[len(ties) - wanted]]
        candidates = np.concatenate([above, ties])
    order = columns.newest_first(slots[candidates], scores[candidates])
    return candidates[order[:count]]


def passing_first(
    columns: Columns, slots: Slots, scores: NDArray[np.float64], wanted: int, passing: Passing
) -> Sequence[int]:
    """The positions of the ``wanted`` best that the filter lets through, best first."""
    count = wanted
    while True:
        found = first(columns, slots, scores, count).tolist()
        through = [position for position in found if passing(int(slots[position]))]
        if passing.all or len(through) >= wanted or count >= len(slots):
            return through[:wanted]
        count *= _MORE
