"""Which memories of a stream follow each other: those of one conversation, in the order of their times.

A memory belongs to the conversation that its source names; without one, to its run; without either, to its
scope, as long as no more than ``SESSION`` passes from one to the next.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scrubjay.memory import Memory
from server.index.columns import Columns, Mask, Slots

SESSION = 3_600_000_000
"""An hour in microseconds."""
TURNS_APART = SESSION // 2
"""Between two turns that are about the same thing."""
_MOST_CHANGED = 64
"""Changes that are sorted in one by one; more of them cost as much as sorting all."""


class Conversations:
    """The conversations of one stream, by slot, beside its columns."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._numbers: dict[str, int] = {}
        self._groups = np.zeros(0, np.int64)
        self._open = np.zeros(0, np.bool_)
        self._spoken = np.zeros(0, np.bool_)
        self._living = np.zeros(0, np.bool_)
        self._order = np.zeros(0, np.int64)
        self._changed: set[int] = set()
        self._named = False
        self._all_turns: tuple[Slots, Slots] | None = None

    @property
    def nbytes(self) -> int:
        """Resident bytes of the arrays."""
        return sum(a.nbytes for a in (self._groups, self._open, self._spoken, self._living, self._order))

    def put(self, slot: int, memory: Memory, subject: str) -> None:
        """Take a row of this subject, which its columns have."""
        if slot >= len(self._groups):
            more = max(16, 2 * slot) - len(self._groups)
            self._groups = np.concatenate([self._groups, np.zeros(more, np.int64)])
            self._open = np.concatenate([self._open, np.zeros(more, np.bool_)])
            self._spoken = np.concatenate([self._spoken, np.zeros(more, np.bool_)])
            self._living = np.concatenate([self._living, np.zeros(more, np.bool_)])
        spoken = bool(memory.source.conversation_id)
        name = f"{subject}\0{_conversation(memory)}"
        self._groups[slot] = self._numbers.setdefault(name, len(self._numbers))
        self._spoken[slot] = spoken
        self._named = self._named or spoken
        self._open[slot] = not (spoken or memory.run_id)
        self._living[slot] = True
        self._changed.add(slot)

    def kill(self, slot: int) -> None:
        """Let go of a row."""
        self._living[slot] = False
        self._changed.add(slot)

    def adjacent(self, allowed: Mask | None) -> tuple[Slots, Slots]:
        """Of each slot, the one before and the one after it among those ``allowed``; -1 for none."""
        earlier, later, apart = self._pairs(allowed)
        return self._linked(earlier, later, (apart <= SESSION) | ~self._open[later])

    def turns(self, allowed: Mask | None) -> tuple[Slots, Slots] | None:
        """The same of turns alone: those of a conversation that is named, ``TURNS_APART`` at most; None where
        no conversation is."""
        if not self._named:
            return None
        self._settle()
        if allowed is None and self._all_turns is not None:
            return self._all_turns
        earlier, later, apart = self._pairs(allowed)
        found = self._linked(earlier, later, (apart <= TURNS_APART) & self._spoken[later])
        if allowed is None:
            self._all_turns = found
        return found

    def _pairs(self, allowed: Mask | None) -> tuple[Slots, Slots, NDArray[np.int64]]:
        """Each slot but the last in the order, the one behind it, and the time between."""
        self._settle()
        order = self._order if allowed is None else self._order[allowed[self._order]]
        times = self._columns.time("created_at")[order]
        return order[:-1], order[1:], times[1:] - times[:-1]

    def _linked(self, earlier: Slots, later: Slots, near: Mask) -> tuple[Slots, Slots]:
        before, after = (np.full(self._columns.size, -1, np.int64) for _ in range(2))
        follows = near & (self._groups[earlier] == self._groups[later])
        after[earlier[follows]] = later[follows]
        before[later[follows]] = earlier[follows]
        return before, after

    def around(
        self, slot: int, count: int, adjacent: tuple[Slots, Slots]
    ) -> tuple[Sequence[int], Sequence[int]]:
        """The ``count`` slots before and after one, in the order of their times. What only a scope joins
        lies within ``SESSION`` of it."""
        before, after = (self._walk(slot, count, steps) for steps in adjacent)
        return before[::-1], after

    def _walk(self, slot: int, count: int, steps: Slots) -> list[int]:
        times, at = self._columns.time("created_at"), int(steps[slot])
        found: list[int] = []
        while at >= 0 and len(found) < count:
            if self._open[slot] and abs(times[at] - times[slot]) > SESSION:
                break
            found.append(at)
            at = int(steps[at])
        return found

    def _settle(self) -> None:
        """Bring the order up to date."""
        if not self._changed:
            return
        self._all_turns = None
        changed = np.fromiter(self._changed, np.int64, len(self._changed))
        self._changed.clear()
        if len(changed) > _MOST_CHANGED:
            self._order = self._sorted(np.flatnonzero(self._living[: self._columns.size]))
            return
        stays = np.ones(self._columns.size, np.bool_)
        stays[changed] = False
        order = self._order[stays[self._order]]
        for slot in changed[self._living[changed]].tolist():
            order = np.insert(order, self._place(order, slot), slot)
        self._order = order

    def _sorted(self, slots: Slots) -> Slots:
        times, stamps = self._columns.time("created_at"), self._columns.time("commit_stamp")
        return slots[np.lexsort((stamps[slots], times[slots], self._groups[slots]))]

    def _place(self, order: Slots, slot: int) -> int:
        """Where in the order a slot belongs."""
        first, last = 0, len(order)
        for column in (self._groups, self._columns.time("created_at"), self._columns.time("commit_stamp")):
            among = column[order[first:last]]
            last = first + int(np.searchsorted(among, column[slot], "right"))
            first += int(np.searchsorted(among, column[slot], "left"))
        return last


def _conversation(memory: Memory) -> str:
    if memory.source.conversation_id:
        return f"conversation\0{memory.source.conversation_id}"
    return f"run\0{memory.run_id}" if memory.run_id else f"scope\0{memory.scope}"
