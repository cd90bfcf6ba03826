"""What a search asks of every row of a stream, by slot, in arrays: who may see it, where it belongs, when it
was, what replaced it.

Arrays grow by doubling. A name, such as a scope, is a small number in them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scrubjay.memory import (
    DEFAULT_SCOPE,
    MAX_MICROS,
    MIN_MICROS,
    ClientId,
    Memory,
    MemoryId,
    Micros,
    PrivacyLevel,
    Viewer,
    id_bytes,
    within,
)
from scrubjay.stamp import CommitStamp
from server.store.rows import private_to

INHERITED_SCOPE = DEFAULT_SCOPE
"""What is known of a subject wherever it is asked."""
INHERITED_CATEGORIES = ("PREFERENCE", "FACT")

Mask = NDArray[np.bool_]
Slots = NDArray[np.int64]

_SHARED = -1
_NONE = -1
_NEVER = MIN_MICROS - 1


@dataclass(frozen=True, slots=True)
class View:
    """What a caller may see and asked for: privacy, expiry, scopes, agent and run.

    ``inherit`` lets in facts and preferences of ``INHERITED_SCOPE`` beside ``scopes``. ``valid_at`` asks for
    what was true in the world then. Outside of ``granted`` nothing exists for the caller; empty: everywhere.
    """

    client_id: ClientId
    now: Micros
    scopes: tuple[str, ...] = ()
    agent_id: str = ""
    run_id: str = ""
    inherit: bool = False
    valid_at: Micros | None = None
    granted: tuple[str, ...] = ()

    @property
    def viewer(self) -> Viewer:
        """Who looks, whatever is asked for."""
        return Viewer(self.client_id, self.granted)

    @property
    def inherited_scopes(self) -> tuple[str, ...]:
        """The scopes of which facts and preferences are let in besides; none where all scopes are."""
        return (INHERITED_SCOPE,) if self.inherit and self.scopes else ()


class _Names:
    """Small numbers for the names in a column."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    def known(self, name: str) -> int:
        return self._numbers.get(name, _NONE)

    def below(self, ancestors: Iterable[str]) -> list[int]:
        return [
            n for name, n in self._numbers.items() if any(within(name, ancestor) for ancestor in ancestors)
        ]


_NAMED = ("scope", "agent_id", "run_id", "category", "owner", "subject")
_PLAIN = ("scope", "agent_id", "run_id", "category")
_TIMES = ("created_at", "valid_from", "valid_to", "expires_at", "accessed_at", "commit_stamp")


class Columns:
    """The columns of one stream. A view of an array that is given out holds until the next change."""

    def __init__(self) -> None:
        self.size = 0
        self.living = 0
        self._restricted = 0
        self._superseded = 0
        self._names = {name: _Names() for name in _NAMED}
        self._successors: dict[MemoryId, int] = {}
        self._successor_slots = np.zeros(0, np.int64)
        self._alive = np.zeros(0, np.bool_)
        self._arrays: dict[str, NDArray[np.int32]] = {
            name: np.zeros(0, np.int32) for name in (*_NAMED, "successor")
        }
        self._times: dict[str, NDArray[np.int64]] = {name: np.zeros(0, np.int64) for name in _TIMES}
        self._ids = np.zeros((0, 2), np.uint64)

    @property
    def nbytes(self) -> int:
        """Resident bytes of the arrays."""
        named = sum(array.nbytes for array in self._arrays.values())
        times = sum(array.nbytes for array in self._times.values())
        return named + times + self._alive.nbytes + self._ids.nbytes

    def reserve(self, size: int) -> None:
        """Have slots 0 to ``size`` - 1; those that nothing was put into are dead."""
        if size > len(self._alive):
            self._grow(max(16, 2 * size))
        self.size = max(self.size, size)

    def put(
        self, slot: int, memory: Memory, subject: str, commit_stamp: CommitStamp, successor_slot: int
    ) -> None:
        """Take a row of this subject; ``successor_slot`` is where the memory that replaced it is, -1 where it
        is nowhere."""
        self.reserve(slot + 1)
        self._forget(slot)
        self._alive[slot] = True
        self.living += 1
        self._restricted += _is_restricted(memory)
        for name in _PLAIN:
            self._arrays[name][slot] = self._names[name].number(getattr(memory, name))
        self._arrays["subject"][slot] = self._names["subject"].number(subject)
        shared = memory.privacy_level is PrivacyLevel.SHARED
        owner = _SHARED if shared else self._names["owner"].number(memory.owner_client_id)
        self._arrays["owner"][slot] = owner
        self._put_times(slot, memory, commit_stamp)
        self._ids[slot] = np.frombuffer(id_bytes(memory.id), dtype=">u8")
        self._arrays["successor"][slot] = self._successor(memory, successor_slot)
        self._place(memory.id, slot)

    def kill(self, slot: int, memory_id: MemoryId) -> None:
        """Let go of a row."""
        self._forget(slot)
        self._alive[slot] = False
        self._arrays["successor"][slot] = _NONE
        self._times["accessed_at"][slot] = _NEVER
        self._place(memory_id, _NONE)

    def confine(self, slot: int, memory: Memory, client_id: ClientId) -> None:
        """Let a row be seen by this client alone, whatever it says itself; by whom it says where empty."""
        owner = client_id or private_to(memory)
        expires = self._times["expires_at"][slot] != MAX_MICROS
        self._restricted -= bool(expires or self._arrays["owner"][slot] != _SHARED)
        self._arrays["owner"][slot] = self._names["owner"].number(owner) if owner else _SHARED
        self._restricted += bool(expires or owner)

    def permits(self, slot: int, client_id: ClientId) -> bool:
        """Whether privacy lets the client see a row."""
        return int(self._arrays["owner"][slot]) in (_SHARED, self._names["owner"].known(client_id))

    def note_access(self, slot: int, accessed_at: Micros) -> None:
        """Hear when a row was looked at last."""
        self._times["accessed_at"][slot] = accessed_at

    def time(self, name: str) -> NDArray[np.int64]:
        """A column of microseconds since 1970, or of commit stamps, by slot."""
        return self._times[name][: self.size]

    def named(self, column: str, name: str) -> Mask:
        """Which slots have this name in a column, dead ones included."""
        found: Mask = self._arrays[column][: self.size] == self._names[column].known(name)
        return found

    def last_access(self) -> NDArray[np.int64]:
        """When each row was looked at last, or made where it never was."""
        accessed = self.time("accessed_at")
        return np.where(accessed == _NEVER, self.time("created_at"), accessed)

    def successors(self) -> NDArray[np.int64] | None:
        """The slot of what replaced each row, of the same subject, -1 for none; None where no row was
        replaced."""
        if not self._superseded:
            return None
        numbers, subject = (self._arrays[name][: self.size] for name in ("successor", "subject"))
        slots = np.where(numbers == _NONE, _NONE, self._successor_slots[numbers])
        slots[subject != subject[slots]] = _NONE
        return slots

    def superseded(self) -> Mask:
        """Which slots name a memory that replaced them."""
        found: Mask = self._arrays["successor"][: self.size] != _NONE
        return found

    def newest_first(self, slots: Slots, scores: NDArray[np.floating[Any]]) -> NDArray[np.int64]:
        """Positions in ``slots`` by score, highest first, then by created_at, newest first, then by id."""
        ids = self._ids[slots]
        return np.lexsort((ids[:, 1], ids[:, 0], -self.time("created_at")[slots], -scores))

    def seen(self, view: View) -> Mask | None:
        """Which slots exist for the caller at all: alive, permitted, not expired; None for all."""
        return _both(self._living_mask(), self._permitted(view))

    def allowed(self, view: View) -> Mask | None:
        """Which slots the view lets through, by slot; None where it lets every slot through."""
        masks = [self._living_mask(), self._permitted(view), self.in_scope(view), self.in_part(view)]
        masks.append(self.valid(view))
        found: Mask | None = None
        for mask in masks:
            found = _both(found, mask)
        return found

    def in_scope(self, view: View) -> Mask | None:
        """Which slots the scopes let in, with what is inherited."""
        if not view.scopes:
            return None
        scope = self._arrays["scope"][: self.size]
        inside = np.isin(scope, self._names["scope"].below(view.scopes))
        if view.inherit:
            categories = [self.named("category", name) for name in INHERITED_CATEGORIES]
            general = np.isin(scope, self._names["scope"].below(view.inherited_scopes))
            inside |= general & np.logical_or.reduce(categories)
        return inside

    def in_part(self, view: View) -> Mask | None:
        """Which slots belong to the agent and the run that are asked for."""
        found: Mask | None = None
        for name in ("agent_id", "run_id"):
            if wanted := getattr(view, name):
                found = _both(found, self.named(name, wanted))
        return found

    def valid(self, view: View) -> Mask | None:
        """Which slots were true in the world at ``valid_at``."""
        if view.valid_at is None:
            return None
        return (self.time("valid_from") <= view.valid_at) & (view.valid_at < self.time("valid_to"))

    def unexpired(self, view: View) -> Mask:
        """Which slots had not expired at ``now``."""
        return self.time("expires_at") > view.now

    def _living_mask(self) -> Mask | None:
        return self._alive[: self.size] if self.living < self.size else None

    def _permitted(self, view: View) -> Mask | None:
        return _both(self._shown(view), self._granted(view))

    def _granted(self, view: View) -> Mask | None:
        if not view.granted:
            return None
        scope = self._arrays["scope"][: self.size]
        return np.isin(scope, self._names["scope"].below(view.granted))

    def _shown(self, view: View) -> Mask | None:
        if not self._restricted:
            return None
        owner = self._arrays["owner"][: self.size]
        permitted: Mask = (owner == _SHARED) | (owner == self._names["owner"].known(view.client_id))
        return permitted & self.unexpired(view)

    def _put_times(self, slot: int, memory: Memory, commit_stamp: CommitStamp) -> None:
        times = self._times
        times["created_at"][slot] = memory.created_at
        times["commit_stamp"][slot] = commit_stamp
        times["valid_from"][slot] = _NEVER if memory.valid_from is None else memory.valid_from
        times["valid_to"][slot] = MAX_MICROS + 1 if memory.valid_to is None else memory.valid_to
        times["expires_at"][slot] = MAX_MICROS if memory.expires_at is None else memory.expires_at

    def _successor(self, memory: Memory, slot: int) -> int:
        if memory.superseded_by is None:
            return _NONE
        self._superseded += 1
        number = self._successors.setdefault(memory.superseded_by, len(self._successors))
        if number >= len(self._successor_slots):
            more = np.full(max(16, number + 1), _NONE, np.int64)
            self._successor_slots = np.concatenate([self._successor_slots, more])
        self._successor_slots[number] = slot
        return number

    def _place(self, memory_id: MemoryId, slot: int) -> None:
        number = self._successors.get(memory_id)
        if number is not None:
            self._successor_slots[number] = slot

    def _forget(self, slot: int) -> None:
        if self._alive[slot]:
            self.living -= 1
            expires = self._times["expires_at"][slot] != MAX_MICROS
            self._restricted -= bool(expires or self._arrays["owner"][slot] != _SHARED)
            self._superseded -= bool(self._arrays["successor"][slot] != _NONE)

    def _grow(self, size: int) -> None:
        more = size - len(self._alive)
        self._alive = np.concatenate([self._alive, np.zeros(more, np.bool_)])
        self._ids = np.concatenate([self._ids, np.zeros((more, 2), np.uint64)])
        for name, column in self._arrays.items():
            self._arrays[name] = np.concatenate([column, np.full(more, _NONE, np.int32)])
        for name, times in self._times.items():
            fill = _NEVER if name == "accessed_at" else 0
            self._times[name] = np.concatenate([times, np.full(more, fill, np.int64)])


def _both(one: Mask | None, other: Mask | None) -> Mask | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _is_restricted(memory: Memory) -> bool:
    return memory.expires_at is not None or memory.privacy_level is not PrivacyLevel.SHARED
