"""``python -m tests.sync.soak --runs 1000``: many runs of the model, each from a seed of its own.

A run that breaks a promise is printed with its seed, the promise, and the fewest steps found that break it
too. ``--seed N --runs 1`` repeats one exactly.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback
from collections import Counter

from tests.sync.runs import STEPS, failure, script, shrink, sqlite_places


def main() -> int:
    """Run; how many runs broke a promise, at most 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000, help="how many seeds")
    parser.add_argument("--seed", type=int, default=0, help="the first of them")
    parser.add_argument("--steps", type=int, default=STEPS, help="actions of each run")
    parser.add_argument("--shrink", type=int, default=300, help="at most so many attempts to shorten a run")
    parser.add_argument("--stop-after", type=int, default=10, help="end behind so many broken runs")
    given = parser.parse_args()
    logging.disable(logging.WARNING)  # commits fail on purpose
    events: Counter[str] = Counter()
    broken, done, began = 0, 0, time.monotonic()
    with sqlite_places() as places:
        for seed in range(given.seed, given.seed + given.runs):
            steps = script(seed, given.steps)
            error = failure(steps, places, seed, events)
            done += 1
            if error is not None:
                broken += 1
                print(f"seed {seed}: {type(error).__name__}: {error}")
                fewest, why = shrink(steps, places, seed, given.shrink)
                traceback.print_exception(why, limit=-4, file=sys.stdout)
                print(f"  {len(fewest)} steps, seed={seed}:")
                for step in fewest:
                    print(f"    {step!r},")
                sys.stdout.flush()
                if broken == given.stop_after:
                    break
            elif done % 100 == 0:
                print(f"{done} runs, {time.monotonic() - began:.0f} s", flush=True)
    print(", ".join(f"{count} {name}" for name, count in sorted(events.items())))
    print(f"{done - broken} of {done} clean")
    return min(broken, 1)


if __name__ == "__main__":
    sys.exit(main())
