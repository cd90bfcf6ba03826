"""The speaker arm: whether a memory was said by whom the query asks about."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from scrubjay.text import tokens
from server.index.columns import Mask
from server.recall.asking import asked_speaker

_NOBODY = 0


class Speakers:
    """Who said each memory, by slot: the role that its source names."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {"": _NOBODY}
        self._named: dict[str, list[tuple[int, float]]] = {}
        self._said = np.zeros(0, np.int32)

    @property
    def nbytes(self) -> int:
        """Resident bytes of the column."""
        return self._said.nbytes

    def put(self, slot: int, role: str) -> None:
        """Note who said a memory; an empty role: nobody knows."""
        if slot >= len(self._said):
            more = max(16, 2 * slot) - len(self._said)
            self._said = np.concatenate([self._said, np.zeros(more, np.int32)])
        self._said[slot] = self._number(role)

    def of(self, slots: NDArray[np.int64]) -> NDArray[np.int32]:
        """Numbers of who said each of ``slots``, equal for the same role."""
        return self._said[slots]

    def share(
        self, text: str, terms: Iterable[str], size: int, seen: Mask | None
    ) -> NDArray[np.float32] | None:
        """Of slots 0 to ``size`` - 1, how far the query asks for what its speaker said: the share of the
        role's words that are in it, 1 for the one it is about. None where it asks for nobody, and where all
        that is ``seen`` was said by one."""
        asked = np.zeros(len(self._numbers), np.float32)
        for term in terms:
            for number, share in self._named.get(term, ()):
                asked[number] += share
        role = asked_speaker(text)
        if role is not None and role in self._numbers:
            asked[self._numbers[role]] = 1
        if not asked.any():
            return None
        said = self._said[:size]
        heard = np.bincount(said if seen is None else said[seen[: len(said)]], minlength=len(asked))
        return np.minimum(asked, 1)[said] if np.count_nonzero(heard[1:]) > 1 else None

    def _number(self, role: str) -> int:
        number = self._numbers.get(role)
        if number is None:
            number = self._numbers[role] = len(self._numbers)
            terms = set(tokens(role))
            for term in terms:
                self._named.setdefault(term, []).append((number, 1 / len(terms)))
        return number
