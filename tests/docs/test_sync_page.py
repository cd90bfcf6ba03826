"""The page about sync names the checks and mutants that there are, and its byte rules are the code's."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from docs.blocks import blocks
from scrubjay.memory import id_bytes
from scrubjay.operation import derived_id, next_chain
from scrubjay.stamp import ReplicaId, Stamp, pack_field_stamps
from tests.sync import invariants, occasions

PAGE = Path(__file__).parents[2] / "docs" / "sync.md"


def column(heading: str, column: int) -> list[str]:
    """What stands in backticks in a column of the table below a heading."""
    text = PAGE.read_text(encoding="utf-8")
    section = re.split(r"^## ", text.partition(f"\n## {heading}\n")[2], flags=re.MULTILINE)[0]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return [match[1] for cells in rows if (match := re.search(r"`([^`]+)`", cells[column]))]


def test_the_page_names_every_invariant_by_its_check() -> None:
    checks = [
        name
        for room in (invariants, occasions)
        for name, check in inspect.getmembers(room, inspect.isfunction)
        if check.__module__ == room.__name__ and check.__annotations__["return"] == "None"
    ]
    assert sorted(column("Invariants", 1)) == sorted(checks)


def test_the_page_names_every_mutant() -> None:
    there = importlib.util.find_spec("tests.sync.mutants") is not None
    mutants = importlib.import_module("tests.sync.mutants").MUTANTS if there else {}
    assert sorted(column("Mutants", 0)) == sorted(mutants)


@pytest.fixture(scope="module")
def rules() -> dict[str, Any]:
    """What the page's blocks about bytes define."""
    names: dict[str, Any] = {}
    for block in blocks(PAGE):
        if block.language == "python" and re.match(r"import (struct|hashlib)\n", block.text):
            with contextlib.redirect_stdout(io.StringIO()):
                exec(block.text, names)
    return names


SENDER = ReplicaId(bytes(range(16)))
OTHER = ReplicaId(bytes(range(16, 32)))


@pytest.mark.parametrize(
    "stamps",
    [
        {},
        {"content": Stamp(7 << 16 | 3, SENDER)},
        {"tags.b": Stamp(2**60, OTHER), "content": Stamp(1, SENDER), "tags.é.ü": Stamp(1, SENDER)},
    ],
)
def test_field_stamps_are_packed_as_the_page_says(rules: dict[str, Any], stamps: dict[str, Stamp]) -> None:
    plain = {name: (stamp.time, bytes(stamp.replica)) for name, stamp in stamps.items()}
    pack: Callable[[dict[str, tuple[int, bytes]]], bytes] = rules["packed"]
    assert pack(plain) == pack_field_stamps(stamps)


@pytest.mark.parametrize("number", [1, 256, 2**40])
def test_operations_are_named_and_chained_as_the_page_says(rules: dict[str, Any], number: int) -> None:
    encoded = b"an operation"
    assert rules["operation_id"](SENDER, number, encoded) == id_bytes(derived_id(SENDER, number, encoded))
    assert rules["next_chain"](SENDER, encoded) == next_chain(SENDER, encoded)
