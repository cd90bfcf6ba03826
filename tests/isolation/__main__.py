"""``python -m tests.isolation``: take each guard away, and see that its check notices; a table of them.

With ``--search`` all checks are asked about the guards that none is named for: that takes an hour.
"""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys
import tempfile
from pathlib import Path

from server.config import Settings
from tests.isolation.broken import ROOMS
from tests.isolation.catches import CATCHES
from tests.isolation.guards import GUARDS, Guard
from tests.isolation.mutants import first_to_notice, notices
from tests.isolation.world import World, build


def noticed(guard: Guard, world: World, folder: Path) -> bool:
    """Whether the check that is named for the guard notices; a test elsewhere in a process of its own."""
    which = CATCHES[guard.name]
    if "::" not in which:
        return notices(guard, world, folder, which)
    command = [sys.executable, "-m", "tests.isolation.broken", guard.name, which]
    return subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode == 1


def main() -> int:
    """Take them away; 1 where one is missed by nobody."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--search", action="store_true", help="look for who notices where nobody is named")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    assert ROOMS
    missed = 0
    print("| Guard | Rule | Missed by |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        world = build(Settings(listen="127.0.0.1:0", data_dir=folder / "data", embedder="hash"))
        for number, guard in enumerate(GUARDS.values()):
            where = folder / str(number)
            if guard.name in CATCHES:
                which = CATCHES[guard.name] if noticed(guard, world, where) else None
            elif given.search:
                which = first_to_notice(guard, world, where)
            else:
                continue
            missed += which is None
            print(f"| {guard.name} | {guard.rule} | {which or 'nobody'} |", flush=True)
    print(f"{missed} missed by nobody")
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main())
