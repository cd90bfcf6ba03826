"""Unit vectors for the tests of the indexes, in the form that the store keeps: int8 and a scale."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from server.store.vector_codec import decode_vectors, encode_vectors


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows of length 1."""
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def stored(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """What the store gives back for ``vectors``."""
    return decode_vectors(encode_vectors(vectors)) if len(vectors) else vectors


def gaussian(count: int, dimension: int, seed: int = 0) -> NDArray[np.float32]:
    """Rows without any structure."""
    return stored(unit(np.random.default_rng(seed).standard_normal((count, dimension), dtype=np.float32)))


def clustered(
    count: int, dimension: int, seed: int = 0, clusters: int = 20, spread: float = 0.5
) -> NDArray[np.float32]:
    """Rows around centres that are the same for every seed: within a cluster the cosine is near .8."""
    centres = unit(np.random.default_rng(99).standard_normal((clusters, dimension), dtype=np.float32))
    random = np.random.default_rng(seed)
    noise = random.standard_normal((count, dimension), dtype=np.float32) * np.float32(spread / dimension**0.5)
    return stored(unit(centres[random.integers(0, clusters, count)] + noise))
