"""Recipes: named and versioned ways of scoring.

A memory's score is the sum of what each arm measured, 0 to 1, times the recipe's weight for the arm, and
times what age left of it where the recipe decays. No score is above 1: the weights of the arms that look at a
memory alone add up to 1, less what the newer arm may add; the neighbours arm, which measures what is lacking
to a better one, gives a share of that. So scores mean the same from query to query. A change of anything that
moves a score is a new version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Recipe:
    """A way of scoring: the weight of each arm, and how many hits it gives by default.

    A query of several lines leans towards its last one: the meaning of that counts ``last_line`` beside the
    whole query's, and its words count more. A score falls to ``decay_per_day`` of itself for each day since
    the memory was looked at last. What scores less than ``threshold`` is no hit.
    """

    name: str
    version: int
    weights: Mapping[str, float]
    top_k: int = 10
    last_line: float = 0.0
    threshold: float = 0.0
    decay_per_day: float = 1.0

    def __str__(self) -> str:
        return f"{self.name}-{self.version}"


def _shares(weights: Mapping[str, float]) -> dict[str, float]:
    """The weights divided by their sum."""
    return {arm: weight / sum(weights.values()) for arm, weight in weights.items()}


RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        recipe.name: recipe
        for recipe in (
            Recipe(
                "default",
                2,
                {
                    "dense": 0.39,
                    "lexical": 0.34,
                    "speaker": 0.07,
                    "time": 0.1,
                    "neighbours": 0.6,
                    "newer": 1.0,
                },
                last_line=0.75,
            ),
            Recipe("semantic", 1, {"dense": 1.0}),
            Recipe(
                "shared-memory",
                1,
                _shares({"lexical": 1.0, "tag": 1.0, "recent": 0.7, "open_tasks": 1.2}),
                decay_per_day=0.95,
            ),
            # The threshold is 0.1 of what meaning and words give alone, as it was before there were entities.
            Recipe(
                "hybrid-v3", 2, _shares({"dense": 1.0, "bm25": 1.0, "entity": 0.5}), top_k=20, threshold=0.08
            ),
        )
    }
)
