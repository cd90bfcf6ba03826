"""Progress bars, on stderr and for a person at a terminal alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from client_sync import sync

Show = Callable[[str, int, int | None], None]
"""Called with what is going on, how much of it is done, and how much there is in all, where that is known."""


@contextmanager
def bar() -> Iterator[Show]:
    """A bar for the block, gone behind it; nothing where stderr is no terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _nothing
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("asking the server", total=None)
        yield lambda words, done, total: progress.update(task, description=words, completed=done, total=total)


def _nothing(*_: object) -> None:
    """Shows nothing."""


def told(show: Show) -> Callable[[sync.Progress], None]:
    """What a synchronization calls, so that ``show`` shows it."""
    return lambda at: show(words(at), at.done, at.total)


def words(at: sync.Progress) -> str:
    """How far a synchronization is: bytes while it loads, else changes."""
    if at.loading and at.total is not None:
        return f"loading {decimal(at.done)} of {decimal(at.total)}"
    return f"synchronizing, {at.done} changes"
