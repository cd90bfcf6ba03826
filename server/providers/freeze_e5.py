"""Find once what ``e5`` vectors must lose, and freeze it: ``python -m server.providers.freeze_e5``.

``e5_language_pairs.tsv`` holds 40 sentences in English and in Chinese. What all 80 raw vectors share is their
mean; where the two languages differ are the first singular directions of the pairs' differences. Both are
found for either kind of text by itself, since the model sets the kinds apart. Other sentences or weights
give other numbers, and those are another space: it needs a new id and new vectors.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from server.providers import text_rules
from server.providers.e5 import CORRECTION, KINDS
from server.providers.e5_process import E5Process

PAIRS = Path(__file__).with_name("e5_language_pairs.tsv")
DIRECTIONS = 4


def correction(english: NDArray[np.float32], chinese: NDArray[np.float32]) -> NDArray[np.float32]:
    """Mean and directions, shape (1 + 4, 384), from raw rows of parallel sentences."""
    mean = np.concatenate([english, chinese]).mean(axis=0)
    _, _, directions = np.linalg.svd(english - chinese, full_matrices=False)
    return np.vstack([mean, directions[:DIRECTIONS]]).astype(np.float32)


def main() -> None:
    """Write ``e5_correction.npy``."""
    pairs = [line.split("\t") for line in PAIRS.read_text(encoding="utf-8").splitlines()]
    sides = [[text_rules.prepare(sentence) for sentence in side] for side in zip(*pairs, strict=True)]
    with contextlib.closing(E5Process()) as worker:
        corrections = [correction(*(worker.embed(side, kind) for side in sides)) for kind in KINDS]
    np.save(CORRECTION, np.stack(corrections), allow_pickle=False)
    sys.stdout.write(f"wrote {CORRECTION.name} from {len(pairs)} pairs\n")


if __name__ == "__main__":
    main()
