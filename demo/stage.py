"""How the demo shows a step, and how it fails where one does not give what it promises."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text


class PromiseBroken(Exception):
    """A step did not give what the demo says it gives."""


def check(kept: bool, promise: str) -> None:
    """Raise PromiseBroken unless the promise was kept."""
    if not kept:
        raise PromiseBroken(promise)


def heading(console: Console, title: str) -> None:
    """A title of a step."""
    console.print(Text(f"\n{title}", style="bold"))


def new_table(*columns: str) -> Table:
    """A table without lines, whose columns wrap."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim", show_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def row(table: Table, *cells: str) -> None:
    """A row of plain text: what users said is never read as markup."""
    table.add_row(*(Text(cell) for cell in cells))
