"""The entity arm: whether a memory mentions whom or what the query names.

The names are those that the stream's memories mention. A query names one where its words are in it side by
side, whatever their case, script or width; characters written without spaces are looked up run by run. A name
counts by how few of the memories that the caller may see mention it: one that is in all of them says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from math import log

import numpy as np
from numpy.typing import NDArray

from server.index.columns import Mask
from server.ingest.entities.entity import normal

MOST_WORDS = 5
"""Of a name in a query."""
MOST_CHARACTERS = 12
"""Of a name without spaces."""
MOST_PIECES = 4000
"""Of a query: a text of some thousand characters names too much to ask for anybody."""

_ENTRY_BYTES = 90
_NAME_BYTES = 400
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7ff]+")
_WORD = re.compile(r"[^\s,;!?()\[\]{}<>:：，。！？；、（）《》]+")


class EntityIndex:
    """Which slots mention which names. Not safe for two threads at once: its stream's lock guards it."""

    def __init__(self) -> None:
        self._slots: dict[str, set[int]] = {}
        self._entries = 0

    def add(self, slot: int, names: Iterable[str]) -> None:
        """Note that ``slot`` mentions these names, each once."""
        for name in names:
            self._slots.setdefault(name, set()).add(slot)
            self._entries += 1

    def remove(self, slot: int, names: Iterable[str]) -> None:
        """Note that ``slot``, to which these names were added, mentions them no more."""
        for name in names:
            slots = self._slots[name]
            slots.remove(slot)
            self._entries -= 1
            if not slots:
                del self._slots[name]

    def share(self, text: str, size: int, seen: Mask | None) -> NDArray[np.float32] | None:
        """Of slots 0 to ``size`` - 1, the mean over the names in ``text`` of how telling each is that the
        slot mentions, 0 to 1; None where the text names nothing that a memory which is ``seen`` mentions."""
        if not self._slots:
            return None
        count = size if seen is None else int(np.count_nonzero(seen))
        scores = np.zeros(size, np.float32)
        named = 0
        for name in {piece for piece in pieces(text) if piece in self._slots}:
            slots = np.fromiter(self._slots[name], np.int64, len(self._slots[name]))
            mentioning = slots if seen is None else slots[seen[slots]]
            if len(mentioning):
                named += 1
                scores[mentioning] += telling(len(mentioning), count)
        return scores / np.float32(named) if named else None

    @property
    def nbytes(self) -> int:
        """An estimate of the resident bytes."""
        return len(self._slots) * _NAME_BYTES + self._entries * _ENTRY_BYTES


def telling(mentioning: int, count: int) -> float:
    """What a name counts that so many of ``count`` memories mention: 1 for one of many, 0 for all of them."""
    return log(count / mentioning) / log(count) if count > 1 else 1.0


def pieces(text: str) -> Iterator[str]:
    """What in a text may be a name, in its normal form."""
    return islice(_pieces(normal(text)), MOST_PIECES)


def _pieces(plain: str) -> Iterator[str]:
    words = [word.strip(".\"'") for word in _WORD.findall(plain)]
    words = [word for word in words if word]
    for start in range(len(words)):
        for end in range(start + 1, min(start + MOST_WORDS, len(words)) + 1):
            piece = " ".join(words[start:end])
            yield piece
            # apostrophes are no part of a normal form: "anna's" is "annas" here
            if words[end - 1] != "s" and piece.endswith("s"):
                yield piece[:-1]
    for run in _UNSPACED.finditer(plain):
        characters = run[0]
        for start in range(len(characters)):
            for end in range(start + 2, min(start + MOST_CHARACTERS, len(characters)) + 1):
                yield characters[start:end]
