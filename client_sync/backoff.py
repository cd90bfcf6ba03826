"""How long to wait before the next attempt."""

from __future__ import annotations

from collections.abc import Callable

_MOST_DOUBLINGS = 32


def full_jitter(attempt: int, first: float, longest: float, jitter: Callable[[], float]) -> float:
    """Seconds to wait after the failed attempt number ``attempt``, from 0.

    Anywhere from 0 to ``first`` at first, twice as far each time, and never beyond ``longest``: devices that
    lost their server at one moment come back spread out. ``jitter`` gives 0 to 1.
    """
    return jitter() * min(longest, first * 2.0 ** min(attempt, _MOST_DOUBLINGS))
