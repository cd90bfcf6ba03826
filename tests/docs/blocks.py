"""Fenced blocks of a Markdown page, and whether an output is the one that a page shows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: its language, its text, and the line of the page it begins at."""

    language: str
    text: str
    line: int

    def commands(self) -> list[tuple[str, list[str]]]:
        """Shell commands with the output lines shown below each; a ``bash`` block shows none."""
        lines = self.text.splitlines()
        if self.language == "bash":
            return [(line.split("  #")[0].strip(), []) for line in lines]
        found: list[tuple[str, list[str]]] = []
        for line in lines:
            if line.startswith("$ "):
                found.append((line.removeprefix("$ "), []))
            else:
                found[-1][1].append(line)
        return found


def blocks(page: Path) -> list[Block]:
    """The page's fenced blocks, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(match[1], match[2], text.count("\n", 0, match.start()) + 1) for match in _FENCE.finditer(text)
    ]


def missing(shown: list[str], output: str) -> str | None:
    """The first shown line that the output does not have below the one before; None where all are there.

    ``…`` stands for anything, and a line of it alone for any lines. Spaces count as one.
    """
    actual = iter([_normal(line) for line in output.splitlines()])
    for line in map(_normal, shown):
        pattern = re.compile(".*".join(map(re.escape, line.split("…"))))
        if line not in ("", "…") and not any(pattern.fullmatch(found) for found in actual):
            return line
    return None


def _normal(line: str) -> str:
    return re.sub(r"\s+", " ", line).strip()
