"""Space ``hash``: signed hashes of words, their 3-grams and Chinese 1- and 2-grams. No model, no meaning.

It finds what is spelled alike and nothing else; its space says so (``semantic`` is False). The idea is
Weinberger et al., "Feature Hashing for Large Scale Multitask Learning" (2009).
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from server.providers import fingerprint, text_rules
from server.providers.embedder import Space, TextKind
from server.providers.pieces import normalised

DIMENSION = 1024
"""A power of two: the last bits of a hash are its place."""
_HAN = r"\u3400-\u4dbf\u4e00-\u9fff"
_HAN_RUN = re.compile(f"([{_HAN}]+)")
_FIRST_HAN, _AFTER_HAN = 0x3400, 0xA000
_TOKEN = re.compile(r"(?P<word>[^\W_]+)|\S")
_BLOCK = 32
"""Texts that are counted at once: their counts, a quarter of a MB, stay in the processor's cache."""
_MAX_KEPT_CHUNKS, _LONGEST_KEPT = 16_384, 32
"""Some 5 MB; nine words of ten have been seen before."""
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
        rows = np.empty((len(texts), DIMENSION), dtype=np.float32)
        for start in range(0, len(texts), _BLOCK):
            block = [text_rules.prepare(text).casefold() for text in texts[start : start + _BLOCK]]
            rows[start : start + _BLOCK] = normalised(_signed_counts(block))
        return rows

    def self_test(self) -> None:
        fingerprint.check_numbers(self, _NUMBERS)

    def close(self) -> None:
        """Nothing to give back."""


def _signed_counts(texts: Sequence[str]) -> NDArray[np.float32]:
    """How often each text has each feature's number, of shape (len(texts), DIMENSION)."""
    parts = [[text] if text.isascii() else _HAN_RUN.split(text) for text in texts]
    of_words = [_hashes_of_words(spaced[::2]) for spaced in parts]
    rows = _rows(len(hashes) // 4 for hashes in of_words)
    hashes = np.frombuffer(b"".join(of_words), np.uint32)
    if any(len(part) > 1 for part in parts):
        rows_of_han, hashes_of_han = _hashes_of_han([" ".join(part[1::2]) for part in parts])
        rows, hashes = np.concatenate((rows, rows_of_han)), np.concatenate((hashes, hashes_of_han))
    places = rows * DIMENSION + (hashes & (DIMENSION - 1))
    signs = np.where(hashes >> 31, -1.0, 1.0)
    counts = np.bincount(places, weights=signs, minlength=len(texts) * DIMENSION)
    return counts.astype(np.float32).reshape(len(texts), DIMENSION)


def _rows(lengths: Iterable[int]) -> NDArray[np.intp]:
    """The number of each row, as often as the row is long."""
    each = list(lengths)
    return np.arange(len(each)).repeat(each)


def _hashes_of_words(spaced: Iterable[str]) -> bytes:
    """The hashes of what is no Han character, 4 bytes each."""
    return b"".join(
        [
            _kept_hashes(chunk) if len(chunk) <= _LONGEST_KEPT else _hashes_of_chunk(chunk)
            for part in spaced
            for chunk in part.split()
        ]
    )


def _hashes_of_chunk(chunk: str) -> bytes:
    hashes = [
        zlib.crc32(feature.encode()) for token in _TOKEN.finditer(chunk) for feature in _features(token)
    ]
    return np.array(hashes, dtype=np.uint32).tobytes()


_kept_hashes = lru_cache(_MAX_KEPT_CHUNKS)(_hashes_of_chunk)


def _features(token: re.Match[str]) -> list[str]:
    characters = token.group()
    if not token["word"]:
        return [characters]
    padded = f"<{characters}>"
    return [characters, *(padded[i : i + 3] for i in range(len(padded) - 2))]


def _hashes_of_han(runs: Sequence[str]) -> tuple[NDArray[np.intp], NDArray[np.uint32]]:
    """The rows and hashes of all Han characters and of all pairs in each text's runs, which are apart by
    spaces."""
    single, first, second = _han_tables()
    places = np.frombuffer(" ".join([*runs, ""]).encode("utf-16-le"), np.uint16) - _FIRST_HAN
    rows = _rows(len(text) + 1 for text in runs)
    is_han = places < len(single)
    are_two = is_han[:-1] & is_han[1:]
    pairs = first[places[:-1][are_two]] ^ second[places[1:][are_two]]
    return np.concatenate((rows[is_han], rows[:-1][are_two])), np.concatenate((single[places[is_han]], pairs))


@cache
def _han_tables() -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint32]]:
    """The hash of each character from ``_FIRST_HAN``, and what it gives to that of a pair as its first and as
    its second.

    All take three bytes in UTF-8, and of three texts of one length the CRC of their XOR is the XOR of their
    CRCs: "ab" is "a" before three zeros, XOR "b" behind three zeros, XOR six zeros.
    """
    encoded = [chr(code).encode() for code in range(_FIRST_HAN, _AFTER_HAN)]
    zeros = b"\0\0\0"
    return (
        np.array([zlib.crc32(one) for one in encoded], dtype=np.uint32),
        np.array([zlib.crc32(one + zeros) for one in encoded], dtype=np.uint32),
        np.array([zlib.crc32(zeros + one) for one in encoded], dtype=np.uint32)
        ^ np.uint32(zlib.crc32(zeros + zeros)),
    )
