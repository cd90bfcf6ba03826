"""What is looked for, and what is found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scrubjay.filters import Matcher
from scrubjay.wire import commit_micros
from server.index.columns import Mask, Slots, View
from server.index.resident import ResidentStream, Row
from server.recall.asking import last_line
from server.recall.recipes import Recipe


@dataclass(frozen=True, slots=True)
class Query:
    """What is looked for. ``vector``, which ``query_vector`` makes, is of the stream's space. Each hit brings
    ``neighbours`` memories from before and after it."""

    text: str
    vector: NDArray[np.float32]
    recipe: Recipe
    view: View
    top_k: int
    matches: Matcher | None = None
    neighbours: int = 0


def query_vector(
    text: str, recipe: Recipe, embed: Callable[[str], NDArray[np.float32]]
) -> NDArray[np.float32]:
    """The direction to search in: the whole query's, leaning towards its last line where the recipe does."""
    whole, last = embed(text), last_line(text)
    if not recipe.last_line or last is None:
        return whole
    row = whole + np.float32(recipe.last_line) * embed(last)
    return np.divide(row, max(float(np.linalg.norm(row)), 1e-6), dtype=np.float32)


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
