"""Which rows are scored, and which of them come first.

A stream whose vectors are multiplied one and all is scored whole. Of a larger one each arm chooses its best,
over what the caller may see and asked for: so a hit of the keywords alone is never lost, and what is hidden,
expired or filtered out never takes a place.
"""

from __future__ import annotations

from collections.abc import Mapping
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
MOST_ASKED = 16
"""By how much more of the nearest are asked, one by one, before the filter is asked about every row."""
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
    chosen = [_nearest(stream, query, allowed, passing, size)]
    measures = [
        np.float32(query.recipe.weights[arm]) * measure
        for arm, measure in found.items()
        if measure is not None
    ]
    if len(measures) > 1:
        measures.append(np.sum(measures, axis=0))
    chosen += [_top(columns, measure, allowed, passing, size) for measure in measures]
    return np.unique(np.concatenate(chosen))


def _nearest(
    stream: ResidentStream, query: Query, allowed: Mask | None, passing: Passing, size: int
) -> Slots:
    """The dense arm's. Where the filter lets few of the nearest through, all rows are asked."""
    count = size
    while count <= MOST_ASKED * size:
        slots = stream.vectors.search(query.vector, count, allowed)[0]
        through = slots if passing.all else slots[passing.mask(slots)]
        if len(through) >= size or len(slots) < count:
            return through[:size]
        count *= _MORE
    among = np.arange(stream.columns.size) if allowed is None else np.flatnonzero(allowed)
    mask = np.zeros(stream.columns.size, np.bool_)
    mask[among[passing.mask(among)]] = True
    return stream.vectors.search(query.vector, size, mask)[0]


def _top(columns: Columns, measure: Measure, allowed: Mask | None, passing: Passing, size: int) -> Slots:
    """The slots that measure most, of those that measure anything."""
    values = measure if allowed is None else np.where(allowed, measure, np.float32(0))
    edge = np.float32(0)
    if passing.all and size < len(values):
        edge = _edge(values, size)
    slots = np.flatnonzero(values >= edge if edge > 0 else values)
    return slots[passing_first(columns, slots, measure[slots], size, passing)]


def first(columns: Columns, slots: Slots, scores: NDArray[np.floating[Any]], count: int) -> NDArray[np.int64]:
    """The positions of the ``count`` best, best first."""
    candidates = np.arange(len(slots))
    if count < len(slots):
        edge = _edge(scores, count)
        above, ties = np.flatnonzero(scores > edge), np.flatnonzero(scores == edge)
        wanted = count - len(above)
        if wanted < len(ties):
            times = columns.time("created_at")[slots[ties]]
            ties = ties[times >= _edge(times, wanted)]
        candidates = np.concatenate([above, ties])
    order = columns.newest_first(slots[candidates], scores[candidates])
    return candidates[order[:count]]


def _edge(values: NDArray[Any], count: int) -> Any:
    """The ``count``-th highest. Negated: numpy takes ten times as long where most of what comes before the
    place that it looks for is equal, as zeros are."""
    return -np.partition(-values, count - 1)[count - 1]


def passing_first(
    columns: Columns, slots: Slots, scores: NDArray[np.floating[Any]], wanted: int, passing: Passing
) -> NDArray[np.int64]:
    """The positions of the ``wanted`` best that the filter lets through, best first."""
    count = wanted
    while True:
        found = first(columns, slots, scores, count)
        through = found if passing.all else found[passing.mask(slots[found])]
        if passing.all or len(through) >= wanted or count >= len(slots):
            return through[:wanted]
        count *= _MORE
