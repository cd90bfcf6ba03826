"""Query embeddings that were made before: people and agents ask the same thing again within minutes."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from server.providers.embedder import Embedder, Space, TextKind


class QueryCache:
    """An Embedder around another one that remembers single queries; documents pass through.

    It holds at most ``capacity`` rows, least recently used first out: 10 000 rows of 512 numbers take about
    22 MB, and cover the questions of minutes at hundreds of searches a second. A text is kept as a digest
    of 16 bytes, so long queries take no more and none can be read from memory.
    """

    def __init__(self, embedder: Embedder, *, capacity: int = 10_000) -> None:
        if capacity < 1:
            raise ValueError(f"capacity is {capacity}; a cache holds one row at least")
        self._embedder = embedder
        self._capacity = capacity
        self._lock = threading.Lock()
        self._rows: OrderedDict[bytes, NDArray[np.float32]] = OrderedDict()

    @property
    def space(self) -> Space:
        return self._embedder.space

    def embed(self, texts: Sequence[str], kind: TextKind) -> NDArray[np.float32]:
        """See Embedder. One query is answered from the cache; what the model raises is not remembered."""
        if kind is not TextKind.QUERY or len(texts) != 1:
            return self._embedder.embed(texts, kind)
        key = hashlib.blake2b(texts[0].encode("utf-8", "surrogatepass"), digest_size=16).digest()
        row = self._remembered(key)
        if row is None:
            row = self._embedder.embed(texts, kind)
            self._remember(key, row)
        return row.copy()

    def self_test(self) -> None:
        self._embedder.self_test()

    def close(self) -> None:
        """Close the embedder and forget its rows."""
        self._embedder.close()
        with self._lock:
            self._rows.clear()

    def _remembered(self, key: bytes) -> NDArray[np.float32] | None:
        with self._lock:
            row = self._rows.get(key)
            if row is not None:
                self._rows.move_to_end(key)
            return row

    def _remember(self, key: bytes, row: NDArray[np.float32]) -> None:
        with self._lock:
            self._rows[key] = row
            self._rows.move_to_end(key)
            if len(self._rows) > self._capacity:
                self._rows.popitem(last=False)
