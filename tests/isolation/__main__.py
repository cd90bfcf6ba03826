"""``python -m tests.isolation``: take each guard away, and see that its check notices; a table of them.

With ``--search`` all checks are asked about the guards that another condition implies.
"""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from server.config import Settings
from tests.isolation.broken import ROOMS
from tests.isolation.catches import CATCHES, IMPLIED
from tests.isolation.guards import GUARDS, STATEMENTS, Guard
from tests.isolation.mutants import first_to_notice, notices
from tests.isolation.twinned import Pair, lone, migrated, paired, tenant
from tests.isolation.world import World, build
from tests.postgres import running_postgres


def noticed(guard: Guard, world: World, folder: Path) -> bool:
    """Whether the check that is named for the guard notices; a test elsewhere in a process of its own."""
    which = CATCHES[guard.name]
    if "::" not in which:
        return notices(guard, world, folder, which)
    command = [sys.executable, "-m", "tests.isolation.broken", guard.name, which]
    return subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode == 1


def of_statements() -> Iterator[tuple[Guard, str | None]]:
    """The guards in the shard's statements, each with the step among twins that misses it."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        pairs = list(stack.enter_context(_pairs(folder)))
        for name, held in STATEMENTS.items():
            steps = [pair.notices(held) for pair in pairs]
            yield GUARDS[name], next((f"among twins: {step}" for step in steps if step), None)


@contextmanager
def _pairs(folder: Path) -> Iterator[tuple[Pair, Pair]]:
    asked = tenant(lone(Settings(listen="127.0.0.1:0", data_dir=folder / "data", embedder="hash")))
    with ExitStack() as stack:
        server = stack.enter_context(running_postgres())
        sqlite = [migrated(f"sqlite:///{folder / name}.db") for name in ("alone", "among")]
        postgresql = [migrated(server.create()) for _ in range(2)]
        yield (
            stack.enter_context(paired(asked, *sqlite)),
            stack.enter_context(paired(asked, *postgresql)),
        )


def of_rooms(search: bool) -> Iterator[tuple[Guard, str | None]]:
    """The other guards, each with the check that misses it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        world = build(Settings(listen="127.0.0.1:0", data_dir=folder / "data", embedder="hash"))
        for number, guard in enumerate(GUARDS.values()):
            where = folder / str(number)
            if guard.name in CATCHES:
                yield guard, CATCHES[guard.name] if noticed(guard, world, where) else None
            elif guard.name in IMPLIED and not search:
                yield guard, f"nobody, since {IMPLIED[guard.name]}"
            elif guard.name not in STATEMENTS:
                yield guard, first_to_notice(guard, world, where)


def main() -> int:
    """Take them away; 1 where one is missed by nobody."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--search", action="store_true", help="look for who notices an implied one")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    assert ROOMS
    missed, count = 0, 0
    print("| Guard | Rule | Missed by |\n|---|---|---|")
    for found in (of_statements(), of_rooms(given.search)):
        for guard, which in found:
            count += 1
            missed += which is None
            print(f"| {guard.name} | {guard.rule} | {which or 'nobody'} |", flush=True)
    print(f"{count} taken away, {missed} missed by nobody")
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main())
