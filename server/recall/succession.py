"""What was replaced ranks under what replaced it.

The newer one takes at least the older one's score, whether it matched itself or not, and the older one keeps
at most ``UNDER`` of the newer one's. Along a chain both hold from each to the next. Where memories replace
each other in a circle nobody knows which is the newest, and they keep what they have.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

UNDER = 0.9

Positions = NDArray[np.int64]
Scores = NDArray[np.float64]


def succeed(scores: Scores, newer: Positions) -> Scores:
    """The scores as they rank; ``newer`` has the position of what replaced each, -1 for none."""
    depth = _depths(newer)
    older = np.flatnonzero(depth > 0)
    found = scores.copy()
    if not len(older):
        return found
    by_depth = older[np.argsort(depth[older], kind="stable")]
    levels = np.split(by_depth, np.flatnonzero(np.diff(depth[by_depth])) + 1)
    for level in reversed(levels):
        np.maximum.at(found, newer[level], found[level])
    for level in levels:
        found[level] = np.minimum(found[level], UNDER * found[newer[level]])
    return found


def _depths(newer: Positions) -> Positions:
    """How many replaced each, one after the other; 0 for the newest, and where the way ends in a circle."""
    jump = newer.copy()
    depth = (newer >= 0).astype(np.int64)
    for _ in range(len(newer).bit_length() + 1):
        going = np.flatnonzero(jump >= 0)
        if not len(going):
            break
        depth[going] += depth[jump[going]]
        jump[going] = jump[jump[going]]
    depth[jump >= 0] = 0
    return depth
