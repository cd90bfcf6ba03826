"""What came of an import: counts, and what was left out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from client_sync.importing.skipping import ON_PURPOSE, Skipped
from scrubjay.memory import JsonValue

MAX_SHOWN = 20
"""Faults that are told one by one; the report has all."""


@dataclass
class Tally:
    """Counts that grow while the import runs. ``things`` is what is imported: memories, or messages, of which
    ``learnt`` memories were made. ``report`` takes the lines of a report."""

    things: str
    report: Callable[[str], object] | None = None
    imported: int = 0
    already_there: int = 0
    duplicates: int = 0
    learnt: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    faults: list[Skipped] = field(default_factory=list)
    fault_count: int = 0

    def leave_out(self, found: Iterable[Skipped]) -> None:
        """Count what is left out, and put it into the report."""
        for one in found:
            self.skipped[one.reason.value] += 1
            if self.report is not None:
                self.report(json.dumps(one.to_json(), ensure_ascii=False) + "\n")
            if one.reason not in ON_PURPOSE:
                self.fault_count += 1
                if len(self.faults) < MAX_SHOWN:
                    self.faults.append(one)

    def to_json(self) -> dict[str, JsonValue]:
        """The counts; ``learnt`` only of messages."""
        found: dict[str, JsonValue] = {
            "imported": self.imported,
            "already_there": self.already_there,
            "duplicates": self.duplicates,
            "skipped": dict(sorted(self.skipped.items())),
        }
        return found if self.things == "memories" else found | {"learnt": self.learnt}

    def words(self) -> str:
        """How far it came."""
        return f"importing, {self.imported + self.already_there} {self.things}"

    def line(self) -> str:
        """The counts in one line."""
        counts = {"imported": self.imported}
        if self.things != "memories":
            counts["learnt"] = self.learnt
        counts["already there"] = self.already_there
        if self.duplicates:
            counts["duplicates"] = self.duplicates
        counts["skipped"] = self.skipped.total()
        reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(self.skipped.items()))
        return ", ".join(f"{name} {count}" for name, count in counts.items()) + (
            f" ({reasons})" if reasons else ""
        )
