"""From texts to rows: rules, pieces, one batch to the model, and the mean direction of each text's pieces."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from server.providers import text_rules


def embed_in_pieces(
    texts: Sequence[str], dimension: int, embed_pieces: Callable[[list[str]], NDArray[np.float32]]
) -> NDArray[np.float32]:
    """Rows of length 1, shape (len(texts), dimension).

    ``embed_pieces`` gets every piece of every text in one list and answers a row for each.
    """
    if not texts:
        return np.zeros((0, dimension), dtype=np.float32)
    pieces_of_texts = [text_rules.split(text_rules.prepare(text)) for text in texts]
    rows = normalised(embed_pieces([piece for pieces in pieces_of_texts for piece in pieces]))
    counts = [len(pieces) for pieces in pieces_of_texts]
    if len(rows) == len(texts):
        return rows
    starts = np.concatenate(([0], np.cumsum(counts[:-1], dtype=np.intp)))
    return normalised(np.add.reduceat(rows, starts, axis=0))


def normalised(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Each row divided by its length; a row of zeros stays one."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, np.where(lengths > 0, lengths, 1), dtype=np.float32)
