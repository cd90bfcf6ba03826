"""The keyword arm on a device: how much of a query's weight the words of a memory cover.

It measures what the server's keyword arm does. There is no index of words: beside each memory lie the
hashes of its terms, so nothing is left of its words when it is deleted. A hash says where to look; a hit
is judged by its text.
"""

from __future__ import annotations

import heapq
import math
import sqlite3
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby

from google.protobuf.message import DecodeError

from scrubjay import v1
from scrubjay.memory import Micros
from scrubjay.text import tokens

FULL_TERMS = 32
"""A query weighs no more than its heaviest terms up to this many, as on the server."""

_HASH_BYTES = 4
_SIFTED_TERMS = 8
"""SQLite looks for one hash in a memory's in 130 ns; to hand them over and look for all takes 1.6 µs. Up to
this many terms, it hands over only those that hold one."""


def packed_terms(text: str) -> bytes:
    """The CRC-32 of each distinct term of the text: 4 bytes each, little-endian, sorted."""
    return b"".join(sorted({_hash(term) for term in tokens(text)}))


def index_pending(connection: sqlite3.Connection, limit: int) -> int:
    """Pack the terms of at most ``limit`` rows that have none yet; how many they were, 0 where all have.

    Runs in the caller's transaction, and does not end it.
    """
    rows = connection.execute("SELECT id, message FROM rows WHERE terms IS NULL LIMIT ?", (limit,)).fetchall()
    connection.executemany(
        # The message is compared, so that terms never come to lie beside another text.
        "UPDATE rows SET terms = ? WHERE id = ? AND terms IS NULL AND message = ?",
        [(packed_terms(_content(message)), memory_id, message) for memory_id, message in rows],
    )
    return len(rows)


class Coverage:
    """Which rows hold terms of a query, as one look at the file has them.

    ``terms`` are the query's distinct ones. What ``ranked`` says of a row is never too little, and is too
    much only where two terms have one hash.
    """

    def __init__(self, connection: sqlite3.Connection, query: str) -> None:
        self.terms = list(dict.fromkeys(tokens(query)))
        self._keys = {term: _key(_hash(term)) for term in self.terms}
        self._groups = _rows_by_shared(connection, {_hash(term) for term in self.terms})
        (count,) = connection.execute("SELECT count(*) FROM rows").fetchone()
        self._weights = _weights(count, self._keys.values(), self._groups)
        self._full = sum(heapq.nlargest(FULL_TERMS, self._weights.values())) or 1.0

    def of(self, terms: Iterable[str]) -> float:
        """The coverage of a memory that holds these terms of the query: 0 to 1."""
        return self._of_keys(self._keys[term] for term in terms)

    def ranked(self) -> Iterator[tuple[bytes, float]]:
        """The id and coverage of every row that has some, highest first and newest first among equals."""
        covered = [(self._of_keys(shared), rows) for shared, rows in self._groups.items()]
        covered.sort(key=_coverage, reverse=True)
        for coverage, equals in groupby(covered, key=_coverage):
            rows = sorted((row for _, group in equals for row in group), reverse=True)
            yield from ((memory_id, coverage) for _, memory_id in rows)

    def _of_keys(self, keys: Iterable[int]) -> float:
        return min(1.0, math.fsum(self._weights[key] for key in keys) / self._full)


_Row = tuple[Micros, bytes]
"""Created_at and id."""


def _coverage(group: tuple[float, list[_Row]]) -> float:
    return group[0]


def _weights(count: int, keys: Iterable[int], groups: dict[frozenset[int], list[_Row]]) -> dict[int, float]:
    """The square of each term's idf among ``count`` rows."""
    frequencies: Counter[int] = Counter()
    for shared, rows in groups.items():
        for key in shared:
            frequencies[key] += len(rows)
    return {key: math.log1p((count - frequencies[key] + 0.5) / (frequencies[key] + 0.5)) ** 2 for key in keys}


def _rows_by_shared(connection: sqlite3.Connection, hashes: set[bytes]) -> dict[frozenset[int], list[_Row]]:
    """The rows that hold one of the hashes, by the keys of those they hold."""
    wanted = frozenset(map(_key, hashes))
    found: dict[frozenset[int], list[_Row]] = {}
    for memory_id, created_at, packed, message in _scan(connection, hashes):
        if packed is None:
            packed = packed_terms(_content(message))
        if shared := wanted.intersection(memoryview(packed).cast("I")):
            found.setdefault(shared, []).append((created_at, memory_id))
    return found


def _scan(connection: sqlite3.Connection, hashes: set[bytes]) -> sqlite3.Cursor:
    """Id, created_at, terms, and in place of missing terms the message, of the rows that may hold one."""
    sifted = tuple(hashes) if len(hashes) <= _SIFTED_TERMS else ()
    where = " OR ".join(["terms IS NULL", *["instr(terms, ?)"] * len(sifted)]) if sifted else "TRUE"
    return connection.execute(
        f"SELECT id, created_at, terms, CASE WHEN terms IS NULL THEN message END FROM rows WHERE {where}",  # noqa: S608 - place-holders alone
        sifted,
    )


def _hash(term: str) -> bytes:
    return zlib.crc32(term.encode(errors="surrogatepass")).to_bytes(_HASH_BYTES, "little")


def _key(packed: bytes) -> int:
    """A hash as a cast of packed ones gives it on this machine."""
    return int.from_bytes(packed, sys.byteorder)


def _content(message: bytes) -> str:
    """The content of a stored message, or none of a damaged one."""
    try:
        return v1.Memory.FromString(message).content
    except DecodeError:
        return ""
