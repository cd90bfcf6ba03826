"""The tag arm: how many of a query's terms name a tag of the memory."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from scrubjay.text import tokens

_ENTRY_BYTES = 90
"""A set's slot and an int, as CPython lays them out, with the table's free places."""
_TERM_BYTES = 400


class TagIndex:
    """Which slots have a tag with which terms. Not safe for two threads at once: its stream's lock
    guards it."""

    def __init__(self) -> None:
        self._slots: dict[str, set[int]] = {}
        self._entries = 0

    def add(self, slot: int, tags: Iterable[str]) -> None:
        """Note that ``slot`` has these tags."""
        for term in tag_terms(tags):
            slots = self._slots.setdefault(term, set())
            self._entries += slot not in slots
            slots.add(slot)

    def remove(self, slot: int, tags: Iterable[str]) -> None:
        """Note that ``slot``, to which these tags were added, has them no more."""
        for term in tag_terms(tags):
            slots = self._slots[term]
            slots.remove(slot)
            self._entries -= 1
            if not slots:
                del self._slots[term]

    def share(self, terms: Iterable[str], size: int) -> NDArray[np.float32] | None:
        """Of slots 0 to ``size`` - 1, the share of the distinct terms that are in a tag of theirs; None where
        none is in any."""
        distinct = set(terms)
        scores: NDArray[np.float32] | None = None
        for term in distinct & self._slots.keys():
            if scores is None:
                scores = np.zeros(size, dtype=np.float32)
            slots = self._slots[term]
            scores[np.fromiter(slots, np.int64, len(slots))] += 1
        return None if scores is None else scores / np.float32(len(distinct))

    @property
    def nbytes(self) -> int:
        """An estimate of the resident bytes."""
        return len(self._slots) * _TERM_BYTES + self._entries * _ENTRY_BYTES


def tag_terms(tags: Iterable[str]) -> set[str]:
    """The terms of tags, folded as those of a text are."""
    return {term for tag in tags for term in tokens(tag)}
