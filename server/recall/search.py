"""Search: the union of the arms' candidates, fused by a recipe, filtered, best first.

Absolute fusion: a memory's score is the sum of what each arm measured times the recipe's weight for the
arm, see ``server.recall.recipes``. As measured, it finds more than rank fusion of BM25 and the same model,
most of all where question and memory share no words (see docs/evaluation.md).

The order depends on memories and query alone, never on where rows lie: of equal scores the newer memory
comes first, then the lower id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scrubjay.filters import Matcher
from scrubjay.text import tokens
from scrubjay.wire import commit_micros
from server.index.columns import Columns, Mask, Slots, View
from server.index.exact import ExactIndex
from server.index.resident import ResidentStream, Row
from server.recall.arms import ARMS, Asked, Measure, decay
from server.recall.recipes import Recipe
from server.recall.succession import UNDER, Scores, succeed

POOL = 10
"""Each arm's candidates per hit asked for, where a stream is too large to score whole."""
LEAST_POOL = 100
_MORE = 4
"""By how much more rows are looked at where a filter let too few through."""


@dataclass(frozen=True, slots=True)
class Query:
    """What is looked for. ``vector`` is of the stream's space, normalised. Each hit brings ``neighbours``
    memories from before and after it."""

    text: str
    vector: NDArray[np.float32]
    recipe: Recipe
    view: View
    top_k: int
    matches: Matcher | None = None
    neighbours: int = 0


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one arm gave to a score: ``measure`` is what it saw, 0 to 1, ``value`` what that is worth."""

    measure: float
    value: float


@dataclass(frozen=True, slots=True)
class Hit:
    """One memory found. ``contributions`` says what each arm gave; their values add up to ``score``.

    ``before`` and ``after`` are what comes before and after it in its conversation, oldest first.
    """

    row: Row
    score: float
    contributions: Mapping[str, Contribution]
    before: Sequence[Row] = ()
    after: Sequence[Row] = ()


def search(stream: ResidentStream, query: Query) -> list[Hit]:
    """The best ``top_k`` memories of the stream.

    Every memory that the view and the filter let through can be found: where fewer than ``top_k``
    come back, there are no more that reach the recipe's threshold.
    """
    if not len(stream):
        return []
    passing = Passing(stream, query)
    scored = score(stream, query, passing)
    positions = best(stream, query, scored, passing)
    hits = [to_hit(stream, query, scored, position) for position in positions]
    return _with_neighbours(stream, query, hits) if query.neighbours else hits


class Passing:
    """Which slots the query's filter lets through, each asked once."""

    def __init__(self, stream: ResidentStream, query: Query) -> None:
        self._rows = stream.rows
        self._matches = query.matches
        self._known: dict[int, bool] = {}

    @property
    def all(self) -> bool:
        """Whether there is no filter."""
        return self._matches is None

    def __call__(self, slot: int) -> bool:
        if self._matches is None:
            return True
        known = self._known.get(slot)
        if known is None:
            row = self._rows[slot]
            known = row is not None and self._matches(row.memory, commit_micros(row.commit_stamp))
            self._known[slot] = known
        return known

    def mask(self, slots: Slots) -> Mask:
        """Which of ``slots`` pass."""
        return np.fromiter(map(self, slots.tolist()), np.bool_, len(slots))


@dataclass(frozen=True, slots=True)
class Scored:
    """Candidates: their slots, ascending, and by position what each arm measured, what age left of it, the
    score of that, and the score as it ranks with what replaced what."""

    slots: Slots
    measures: Mapping[str, Measure]
    decay: Scores | None
    plain: Scores
    total: Scores


def score(stream: ResidentStream, query: Query, passing: Passing) -> Scored:
    """Everything that the view lets through with its score, or what the arms choose of it where that is
    too much. The filter is not applied, but what it holds back replaces nothing."""
    columns, recipe = stream.columns, query.recipe
    allowed = columns.allowed(query.view)
    asked = Asked(stream, tokens(query.text), query.view.now, columns.seen(query.view))
    measures = {arm: measure(asked) for arm, measure in ARMS.items() if arm in recipe.weights}
    left = None
    if recipe.decay_per_day < 1:
        left = decay(stream, query.view.now, recipe.decay_per_day)
    if "dense" not in recipe.weights or isinstance(stream.vectors, ExactIndex):
        slots = np.arange(len(stream.rows)) if allowed is None else np.flatnonzero(allowed)
    else:
        slots = _pool(stream, query, measures, allowed, passing)
    taken: dict[str, Measure] = {}
    for arm in recipe.weights:
        if arm == "dense":
            taken[arm] = np.minimum(np.maximum(stream.vectors.score(query.vector, slots), 0), 1)
        else:
            found = measures[arm]
            taken[arm] = np.zeros(len(slots), np.float32) if found is None else found[slots]
    plain = np.zeros(len(slots))
    for arm, weight in recipe.weights.items():
        plain += weight * taken[arm].astype(np.float64)
    if left is not None:
        left = left[slots]
        plain *= left
    return Scored(slots, taken, left, plain, _succeeded(columns, slots, plain, passing))


def _succeeded(columns: Columns, slots: Slots, plain: Scores, passing: Passing) -> Scores:
    """The scores with what replaced what, among candidates that the filter lets through."""
    successors = columns.successors()
    if successors is None or not len(slots):
        return plain
    positions = np.full(columns.size, -1, np.int64)
    positions[slots] = np.arange(len(slots))
    following = successors[slots]
    newer = np.where(following >= 0, positions[following], -1)
    if not passing.all:
        older = np.flatnonzero(newer >= 0)
        both = passing.mask(slots[older]) & passing.mask(slots[newer[older]])
        newer[older[~both]] = -1
    return succeed(plain, newer)


def _pool(
    stream: ResidentStream,
    query: Query,
    measures: Mapping[str, Measure | None],
    allowed: Mask | None,
    passing: Passing,
) -> Slots:
    """The candidates of each arm, of all but the dense one together, and what replaced any of them."""
    columns, size = stream.columns, max(LEAST_POOL, POOL * query.top_k)
    if not passing.all:
        living = columns.seen(query.view) if allowed is None else allowed
        among = np.arange(columns.size) if living is None else np.flatnonzero(living)
        allowed = np.zeros(columns.size, np.bool_)
        allowed[among[passing.mask(among)]] = True
    chosen = [stream.vectors.search(query.vector, size, allowed)[0]]
    found = {arm: measure for arm, measure in measures.items() if measure is not None}
    chosen += [_top(columns, measure, allowed, size) for measure in found.values()]
    if len(found) > 1:
        weighed = [np.float32(query.recipe.weights[arm]) * measure for arm, measure in found.items()]
        chosen.append(_top(columns, np.sum(weighed, axis=0), allowed, size))
    slots = np.unique(np.concatenate(chosen))
    successors = columns.successors()
    fresh = slots
    while successors is not None and len(fresh):
        following = successors[fresh]
        following = following[following >= 0]
        fresh = np.setdiff1d(following if allowed is None else following[allowed[following]], slots)
        slots = np.union1d(slots, fresh)
    return slots


def _top(columns: Columns, measure: Measure, allowed: Mask | None, count: int) -> Slots:
    """The ``count`` slots that measure most, of those that measure anything."""
    slots = np.flatnonzero(measure if allowed is None else allowed & (measure > 0))
    return slots[_first(columns, slots, measure[slots], count)]


def _first(
    columns: Columns, slots: Slots, scores: NDArray[np.floating[Any]], count: int
) -> NDArray[np.int64]:
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


def best(stream: ResidentStream, query: Query, scored: Scored, passing: Passing) -> Sequence[int]:
    """The positions of the hits, best first."""
    count = query.top_k
    while True:
        first = _first(stream.columns, scored.slots, scored.total, count)
        reaching = first[scored.total[first] >= query.recipe.threshold]
        hits = [position for position in reaching.tolist() if passing(int(scored.slots[position]))]
        if passing.all or len(hits) >= query.top_k or count >= len(scored.slots):
            return hits[: query.top_k]
        count *= _MORE


def to_hit(stream: ResidentStream, query: Query, scored: Scored, position: int) -> Hit:
    """A candidate as a hit, without its neighbours."""
    row = stream.rows[int(scored.slots[position])]
    assert row is not None  # what the columns let through lives
    left = 1.0 if scored.decay is None else float(scored.decay[position])
    contributions = {
        arm: Contribution(measure, weight * measure * left)
        for arm, weight in query.recipe.weights.items()
        for measure in (float(scored.measures[arm][position]),)
    }
    total = float(scored.total[position])
    moved = total - float(scored.plain[position])
    if moved > 0:
        contributions["supersedes"] = Contribution(total, moved)
    elif moved < 0:
        contributions["superseded"] = Contribution(total / UNDER, moved)
    return Hit(row, total, contributions)


def _with_neighbours(stream: ResidentStream, query: Query, hits: Sequence[Hit]) -> list[Hit]:
    """The hits with what the view, though not the filter, lets through of the same conversations."""
    adjacent = stream.conversations.adjacent(stream.columns.allowed(query.view))
    found = []
    for hit in hits:
        slot = stream.slot(hit.row.memory.id)
        assert slot is not None  # a hit lives
        around = stream.conversations.around(slot, query.neighbours, adjacent)
        before, after = ([row for at in side if (row := stream.rows[at]) is not None] for side in around)
        found.append(replace(hit, before=before, after=after))
    return found
