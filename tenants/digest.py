"""The digest by which a tenant's archive is known on both ends."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

_READ_BYTES = 1024 * 1024


def file_digest(path: Path, report: Callable[[int], object] = lambda _: None) -> str:
    """A file's SHA-256, in hexadecimal; ``report`` is told how many bytes were read."""
    digest, done = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(_READ_BYTES):
            digest.update(chunk)
            done += len(chunk)
            report(done)
    return digest.hexdigest()
