"""Vectors as they are stored: one float32 scale and an int8 per dimension.

A quarter of float32, and no retrieval metric moved in the third decimal.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_SCALE = np.dtype("<f4")
SCALE_BYTES = 4
"""What an encoded vector begins with."""
_LEVELS = 127
_BLOCK = 64
"""Vectors that are encoded at once: a quarter of a MB if they are long, which a processor's cache keeps."""


def encode_vector(vector: NDArray[np.float32]) -> bytes:
    """A vector of shape (d,) as 4 + d bytes. ValueError where a number is not finite."""
    return encode_vectors(vector[np.newaxis])[0]


def encode_vectors(vectors: NDArray[np.float32]) -> list[bytes]:
    """Vectors of shape (n, d) as n byte strings of 4 + d bytes. ValueError where a number is not finite."""
    width = SCALE_BYTES + vectors.shape[1]
    encoded = b"".join(
        [_encoded(vectors[start : start + _BLOCK]) for start in range(0, len(vectors), _BLOCK)]
    )
    return [encoded[start : start + width] for start in range(0, len(encoded), width)]


def _encoded(vectors: NDArray[np.float32]) -> bytes:
    largest = np.maximum(vectors.max(axis=1, initial=0), np.abs(vectors.min(axis=1, initial=0)))
    if not np.isfinite(largest).all():
        raise ValueError("a vector holds a number that is not finite")
    scales = (largest / _LEVELS).astype(_SCALE)
    codes = vectors / np.where(scales > 0, scales, 1)[:, np.newaxis]
    np.clip(np.rint(codes, out=codes), -_LEVELS, _LEVELS, out=codes)
    encoded = np.empty((len(vectors), SCALE_BYTES + vectors.shape[1]), dtype=np.int8)
    encoded[:, :SCALE_BYTES] = scales[:, np.newaxis].view(np.int8)
    encoded[:, SCALE_BYTES:] = codes
    return encoded.tobytes()


def split_vectors(encoded: Sequence[bytes]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Codes of shape (n, d) and scales of shape (n,), equal lengths given. ValueError for unequal ones."""
    if not encoded:
        return np.zeros((0, 0), dtype=np.int8), np.zeros(0, dtype=np.float32)
    if any(len(one) != len(encoded[0]) for one in encoded) or len(encoded[0]) <= SCALE_BYTES:
        raise ValueError("encoded vectors of different or no dimensions")
    rows = np.frombuffer(b"".join(encoded), dtype=np.int8).reshape(len(encoded), -1)
    scales = np.ascontiguousarray(rows[:, :SCALE_BYTES]).view(_SCALE)[:, 0]
    return rows[:, SCALE_BYTES:], scales.astype(np.float32)


def decode_vectors(encoded: Sequence[bytes]) -> NDArray[np.float32]:
    """Encoded vectors of one dimension as float32 of shape (n, d). ValueError for unequal lengths."""
    codes, scales = split_vectors(encoded)
    return codes.astype(np.float32) * scales[:, np.newaxis]
