"""Recipes: named and versioned ways of scoring.

A memory's score is the sum of what each arm measured, 0 to 1, times the recipe's weight for the arm. The
weights add up to 1, so scores lie in 0 to 1 too, and mean the same from query to query. A change of anything
that moves a score is a new version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Recipe:
    """A way of scoring: the weight of each arm, adding up to 1, and how many hits it gives by default."""

    name: str
    version: int
    weights: Mapping[str, float]
    top_k: int = 10

    def __str__(self) -> str:
        return f"{self.name}-{self.version}"


RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        recipe.name: recipe
        for recipe in (
            Recipe("default", 1, {"dense": 0.6, "lexical": 0.4}),
            Recipe("semantic", 1, {"dense": 1.0}),
        )
    }
)
