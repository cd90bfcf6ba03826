"""Sentences that tests/evals has labelled by hand, and the shares that tables show of them."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

EVALS = Path(__file__).parent.parent / "tests" / "evals"


class Labelled(Protocol):
    """A sentence of a split, in a language."""

    @property
    def split(self) -> str: ...
    @property
    def language(self) -> str: ...


One = TypeVar("One", bound=Labelled)


def rows(name: str) -> Iterator[list[str]]:
    """The lines of a file of tests/evals as their fields, without the first, which names them."""
    with (EVALS / name).open(encoding="utf-8", newline="") as lines:
        found = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        next(found)
        yield from found


def share(part: int, whole: int) -> float:
    """From 0 to 1; 1 where there is nothing to count."""
    return part / whole if whole else 1.0


def share_of(values: Iterable[bool]) -> float:
    """Of those that are true."""
    counted = list(values)
    return share(sum(counted), len(counted))


def table(
    heads: str,
    splits: Iterable[str],
    every: Sequence[One],
    shares: Callable[[Sequence[One]], Iterable[float]],
) -> Iterator[str]:
    """The lines of a table: of each split what is of a language, and all of it, with its ``shares``."""
    yield f"| sentences | n | {heads} |"
    yield "|---" * (2 + len(heads.split("|"))) + "|"
    for split in splits:
        for language in ("en", "zh", ""):
            chosen = [one for one in every if one.split == split and language in ("", one.language)]
            if chosen:
                cells = [f"{split} {language}".strip(), str(len(chosen))]
                yield f"| {' | '.join([*cells, *(f'{one:.2f}' for one in shares(chosen))])} |"
