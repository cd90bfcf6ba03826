"""Space ``hash``: signed hashes of words, their 3-grams and Chinese 1- and 2-grams. No model, no meaning.

It finds what is spelled alike and nothing else; its space says so (``semantic`` is False). The idea is
Weinberger et al., "Feature Hashing for Large Scale Multitask Learning" (2009).
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from server.providers import fingerprint, text_rules
from server.providers.embedder import Space, TextKind
from server.providers.pieces import normalised

DIMENSION = 1024
_HAN = r"\u3400-\u4dbf\u4e00-\u9fff"
_TOKEN = re.compile(rf"[{_HAN}]+|(?P<word>[^\W_{_HAN}]+)|\S")
_NUMBERS = (
    (-0.00747, 0.02448, -0.04155, -0.00299, -0.00961, 0.00178),
    (0.03562, -0.02365, -0.01813, 0.03655, -0.02672, 0.02145),
)


class HashEmbedder:
    """The lightest embedder: NumPy and microseconds."""

    def __init__(self) -> None:
        self._space = Space(
            id=f"hash-1/{DIMENSION}",
            dimension=DIMENSION,
            semantic=False,
            record={
                "model": "signed crc32 of words, 3-grams, Chinese 1- and 2-grams",
                "package": "numpy",
                "prefix": "",
                "text_rules": text_rules.TEXT_RULES,
            },
        )

    @property
    def space(self) -> Space:
        return self._space

    def embed(self, texts: Sequence[str], kind: TextKind) -> NDArray[np.float32]:
        """See Embedder. Both kinds are embedded alike."""
        del kind
        known: dict[str, list[int]] = {}
        rows = np.zeros((len(texts), DIMENSION), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            row[:] = _signed_counts(_hashes(text_rules.prepare(text), known))
        return normalised(rows)

    def self_test(self) -> None:
        fingerprint.check_numbers(self, _NUMBERS)

    def close(self) -> None:
        """Nothing to give back."""


def _signed_counts(hashes: list[int]) -> NDArray[np.float32]:
    found = np.array(hashes, dtype=np.uint32)
    signs = np.where(found >> 31, -1.0, 1.0)
    return np.bincount(found % DIMENSION, weights=signs, minlength=DIMENSION).astype(np.float32)


def _hashes(text: str, known: dict[str, list[int]]) -> list[int]:
    """The hashes of a text's features. ``known`` has those of tokens of the same call: texts share most."""
    hashes: list[int] = []
    for token in _TOKEN.finditer(text.casefold()):
        characters = token.group()
        if characters not in known:
            known[characters] = [zlib.crc32(feature.encode()) for feature in _features(token)]
        hashes += known[characters]
    return hashes


def _features(token: re.Match[str]) -> list[str]:
    characters = token.group()
    if token["word"]:
        padded = f"<{characters}>"
        return [characters, *(padded[i : i + 3] for i in range(len(padded) - 2))]
    return [*characters, *(characters[i : i + 2] for i in range(len(characters) - 1))]
