"""Search: the union of the arms' candidates, fused by a recipe, filtered, best first.

Absolute fusion: a memory's score is the sum of what each arm measured times the recipe's weight for the
arm, see ``server.recall.recipes``. As measured, it finds more than rank fusion of BM25 and the same model,
most of all where question and memory share no words (see docs/evaluation.md).

The order depends on memories and query alone, never on where rows lie: of equal scores the newer memory
comes first, then the lower id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from server.index.resident import ResidentStream
from server.recall.candidates import passing_first
from server.recall.query import Contribution, Hit, Passing, Query
from server.recall.scoring import Scored, score
from server.recall.succession import UNDER

__all__ = ["Hit", "Query", "best", "search", "to_hit"]


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


def best(stream: ResidentStream, query: Query, scored: Scored, passing: Passing) -> Sequence[int]:
    """The positions of the hits, best first."""
    first = passing_first(stream.columns, scored.slots, scored.total, query.top_k, passing)
    positions: list[int] = first[scored.total[first] >= query.recipe.threshold].tolist()
    return positions


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
