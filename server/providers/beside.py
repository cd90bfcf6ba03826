"""Embedding in two spaces: what is written while a tenant goes over to another space gets its vector there in
the call that writes it, so writers are no faster than both models, and nothing is left behind."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scrubjay.errors import ScrubjayError
from server.providers.embedder import Embedder, Space, TextKind
from server.store.vector_codec import encode_vectors

KEPT = 10_000
"""Encoded vectors, some 6 MiB; they are asked for within the second."""


class Ahead:
    """Encoded vectors of texts of memories, made when they were written and kept until they are stored."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._lock = threading.Lock()
        self._kept: OrderedDict[bytes, bytes] = OrderedDict()
        self._is_gone = False

    @property
    def space(self) -> str:
        """The id of their space."""
        return self._embedder.space.id

    def make(self, texts: Sequence[str]) -> list[bytes]:
        """The vectors of texts: those that are kept, and the rest made now. Raises as Embedder.embed."""
        keys = [_digest(text) for text in texts]
        with self._lock:
            found = {key: self._kept[key] for key in keys if key in self._kept}
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
        if missing:
            rows = self._embedder.embed(list(missing.values()), TextKind.DOCUMENT)
            found |= zip(missing, encode_vectors(rows), strict=True)
        return [found[key] for key in keys]

    def prepare(self, texts: Sequence[str]) -> None:
        """Make and keep the vectors of texts that are about to be written. Where the model does not answer,
        they are made later, and so are all that come: nobody's write fails for it, and few wait."""
        if self._is_gone:
            return
        try:
            vectors = self.make(texts)
        except ScrubjayError:
            self._is_gone = True
            return
        keys = [_digest(text) for text in texts]
        with self._lock:
            self._kept.update(zip(keys, vectors, strict=True))
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)


class Beside:
    """An embedder whose texts of memories are embedded in another space too."""

    def __init__(self, embedder: Embedder, ahead: Ahead) -> None:
        self._embedder = embedder
        self._ahead = ahead

    @property
    def space(self) -> Space:
        return self._embedder.space

    def embed(self, texts: Sequence[str], kind: TextKind) -> NDArray[np.float32]:
        """See Embedder."""
        rows = self._embedder.embed(texts, kind)
        if kind is TextKind.DOCUMENT:
            self._ahead.prepare(texts)
        return rows

    def self_test(self) -> None:
        self._embedder.self_test()

    def close(self) -> None:
        self._embedder.close()


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
