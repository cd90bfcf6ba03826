"""Scores: what the arms measured, added up by a recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scrubjay.memory import Memory
from scrubjay.text import tokens
from server.index.columns import Columns, Slots
from server.index.resident import ResidentStream
from server.recall import newer
from server.recall.arms import ARMS, Asked, decay
from server.recall.asking import asks_for_present, query_terms
from server.recall.candidates import candidates, passing_first
from server.recall.query import Passing, Query
from server.recall.recipes import Recipe
from server.recall.succession import Scores, succeed
from server.recall.turns import lift

_OWN = ("dense", "lexical", "bm25")
"""What a turn may share with the turn beside it."""


@dataclass(frozen=True, slots=True)
class Scored:
    """Candidates: their slots, ascending, and by position what each arm measured, what age left of it, the
    score of that, and the score as it ranks with what replaced what."""

    slots: Slots
    measures: Mapping[str, NDArray[np.floating[Any]]]
    decay: Scores | None
    plain: Scores
    total: Scores


def score(stream: ResidentStream, query: Query, passing: Passing) -> Scored:
    """Everything that the view lets through with its score, or what the arms choose of it where that is
    too much. The filter is not applied, but what it holds back replaces nothing."""
    columns, recipe, view = stream.columns, query.recipe, query.view
    allowed = columns.allowed(view)
    terms = query_terms(query.text, leaning=recipe.last_line > 0)
    asked = Asked(stream, query.text, terms, view.now, columns.seen(view))
    found = {arm: measure(asked) for arm, measure in ARMS.items() if arm in recipe.weights}
    turns = stream.conversations.turns(allowed) if "neighbours" in recipe.weights else None
    slots = candidates(stream, query, found, allowed, passing, turns)
    measures: dict[str, NDArray[np.floating[Any]]] = {
        arm: measure[slots] for arm, measure in found.items() if measure is not None
    }
    if "dense" in recipe.weights:
        measures["dense"] = np.minimum(np.maximum(stream.vectors.score(query.vector, slots), 0), 1)
    plain = _added(recipe, measures, len(slots))
    if turns is not None:
        own = np.zeros(columns.size)
        own[slots] = _added(recipe, {arm: measures[arm] for arm in _OWN if arm in measures}, len(slots))
        measures["neighbours"] = lift(own, slots, *turns)
        plain += recipe.weights["neighbours"] * measures["neighbours"]
    if "newer" in recipe.weights and asks_for_present(query.text, terms):
        measures["newer"] = _newer(stream, slots, plain, passing, turns)
        plain += recipe.weights["newer"] * measures["newer"]
    left = None
    if recipe.decay_per_day < 1:
        left = decay(stream, view.now, recipe.decay_per_day)[slots]
        plain *= left
    nothing = np.zeros(len(slots), np.float32)
    ordered = {arm: measures.get(arm, nothing) for arm in recipe.weights}
    return Scored(slots, ordered, left, plain, _succeeded(columns, slots, plain, passing))


def _added(recipe: Recipe, measures: Mapping[str, NDArray[np.floating[Any]]], count: int) -> Scores:
    total = np.zeros(count)
    for arm, measure in measures.items():
        total += recipe.weights[arm] * measure.astype(np.float64)
    return total


def _newer(
    stream: ResidentStream,
    slots: Slots,
    plain: Scores,
    passing: Passing,
    turns: tuple[Slots, Slots] | None,
) -> Scores:
    """What the best candidates gain for being newer."""
    gain = np.zeros(len(slots))
    best = passing_first(stream.columns, slots, plain, newer.POOL, passing)
    best = best[plain[best] > 0]
    chosen = slots[best]
    times = stream.columns.time("created_at")[chosen]
    if not len(times) or times.max() - times.min() <= newer.SAME_TIME:
        return gain
    memories = [row.memory for slot in chosen.tolist() if (row := stream.rows[slot]) is not None]
    gain[best] = newer.lifts(
        plain[best],
        times,
        _voices(memories, stream.speakers.of(chosen)),
        np.zeros(len(chosen), np.bool_) if turns is None else _any_beside(chosen, *turns),
        stream.vectors.vectors(chosen),
        lambda position: tokens(memories[position].content),
    )
    return gain


def _any_beside(slots: Slots, before: Slots, after: Slots) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = (before[slots] >= 0) | (after[slots] >= 0)
    return found


def _voices(memories: Sequence[Memory], speakers: NDArray[np.int32]) -> NDArray[np.int64]:
    """Numbers of who said each memory of whom: what one subject says now replaces nothing of another's."""
    numbers: dict[tuple[str, int], int] = {}
    told = (
        (memory.subject.key, speaker) for memory, speaker in zip(memories, speakers.tolist(), strict=True)
    )
    return np.array([numbers.setdefault(one, len(numbers)) for one in told], np.int64)


def _succeeded(columns: Columns, slots: Slots, plain: Scores, passing: Passing) -> Scores:
    """The scores with what replaced what, among candidates that the filter lets through."""
    successors = columns.successors()
    if successors is None or not len(slots):
        return plain
    positions = np.full(columns.size, -1, np.int64)
    positions[slots] = np.arange(len(slots))
    following = successors[slots]
    follower = np.where(following >= 0, positions[following], -1)
    if not passing.all:
        older = np.flatnonzero(follower >= 0)
        both = passing.mask(slots[older]) & passing.mask(slots[follower[older]])
        follower[older[~both]] = -1
    return succeed(plain, follower)
