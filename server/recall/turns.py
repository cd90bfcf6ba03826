"""The neighbours arm: a turn of a conversation is also about what is said beside it.

"Yeah, about an hour" answers a question with which only the turn before shares anything. What a turn's own
words and meaning lack to the best one near it is what the arm measures. It only ever lifts turns: nothing is
taken from a memory that stands alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from server.index.columns import Slots

SECOND = 0.8
"""What the turn two away counts, beside 1 for the one next to it."""


def beside(slots: Slots, before: Slots, after: Slots) -> list[Slots]:
    """The slots next to each of ``slots`` and those two away, -1 for none.

    ``before`` and ``after`` are by slot.
    """
    near = [before[slots], after[slots]]
    return [*near, _step(near[0], before), _step(near[1], after)]


def lift(own: NDArray[np.float64], slots: Slots, before: Slots, after: Slots) -> NDArray[np.float64]:
    """How far the best turn near each of ``slots`` is above it, 0 where none is; ``own`` is by slot."""
    padded = np.append(own, 0.0)  # slot -1 reads the 0 at the end
    previous, following, second_before, second_after = beside(slots, before, after)
    near = np.maximum(padded[previous], padded[following])
    second = SECOND * np.maximum(padded[second_before], padded[second_after])
    lacking: NDArray[np.float64] = np.maximum(near, second) - own[slots]
    return np.maximum(lacking, 0)


def _step(at: Slots, steps: Slots) -> Slots:
    return np.where(at >= 0, steps[at], -1)
