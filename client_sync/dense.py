"""The meaning arm on a device: cosines between a query's vector and the embeddings that were delivered.

A code is one signed byte per dimension, then a little-endian float32 scale. One dot product takes 20 µs
here, so that many codes are first ranked by the signs of their dimensions, which takes 1 µs each.
"""

from __future__ import annotations

import math
import sqlite3
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import mul

_SCALE = struct.Struct("<f")
_SIGNS = bytes(byte >> 7 for byte in range(256))
"""Turns each byte of a code into 1 where it is negative, else 0."""


@dataclass(frozen=True, slots=True)
class QueryVector:
    """What a query means: a vector of the embedding space ``space``. Its length does not matter."""

    space: str
    values: Sequence[float]


class Meanings:
    """The embeddings of one space against one query."""

    def __init__(self, connection: sqlite3.Connection, vector: QueryVector) -> None:
        self._connection = connection
        self._space = vector.space
        length = math.hypot(*vector.values) or 1.0
        self._values = [value / length for value in vector.values]
        self._cosines: dict[bytes, tuple[float, bytes]] = {}

    def ranked(self) -> list[bytes]:
        """The ids of all embedded memories, the most alike by their signs first."""
        size = len(self._values)
        mean = sum(map(abs, self._values)) / (size or 1)
        signs = _bits(value < 0 for value in self._values)
        strong = _bits(abs(value) > mean for value in self._values)
        ranked = []
        for memory_id, code in self._connection.execute(
            "SELECT id, code FROM vectors WHERE space = ? AND length(code) = ?",
            (self._space, size + _SCALE.size),
        ):
            apart = int.from_bytes(code[:size].translate(_SIGNS), "little") ^ signs
            ranked.append((apart.bit_count() + (apart & strong).bit_count(), memory_id))
        ranked.sort()
        return [memory_id for _, memory_id in ranked]

    def cosine(self, memory_id: bytes) -> tuple[float, bytes]:
        """The cosine, 0 to 1, and the stamp of the content that it is of; 0 where there is no embedding."""
        if memory_id not in self._cosines:
            row = self._connection.execute(
                "SELECT code, content_stamp FROM vectors WHERE id = ? AND space = ? AND length(code) = ?",
                (memory_id, self._space, len(self._values) + _SCALE.size),
            ).fetchone()
            self._cosines[memory_id] = (0.0, b"") if row is None else (self._cosine(row[0]), row[1])
        return self._cosines[memory_id]

    def _cosine(self, code: bytes) -> float:
        (scale,) = _SCALE.unpack_from(code, len(self._values))
        cosine = scale * sum(map(mul, self._values, memoryview(code).cast("b")))
        return min(1.0, max(0.0, cosine)) if math.isfinite(cosine) else 0.0


def _bits(flags: Iterable[bool]) -> int:
    """An integer with one byte per flag, 1 or 0."""
    return int.from_bytes(bytes(flags), "little")
