"""What a file holds, by its content."""

from __future__ import annotations

import itertools
from enum import StrEnum
from pathlib import Path

from client_sync.importing.documents import Document, documents
from client_sync.importing.skipping import Skipped, Unreadable

LOOKED_AT = 100
"""Documents that may be broken or unknown before one says what the file is."""


class Format(StrEnum):
    """What a file holds."""

    JSONL = "jsonl"
    MEM0 = "mem0"
    CHATGPT = "chatgpt"


def looks_like(file: Path) -> Format:
    """What the first document is that is known; JSONL where there is none at all. Unreadable where all are
    unknown."""
    empty = True
    for _, found in itertools.islice(documents(file, lambda _read, _size: None), LOOKED_AT):
        empty = False
        if known := _format_of(found):
            return known
    if empty:
        return Format.JSONL
    raise Unreadable(f"{file} looks like nothing that is known; say what it is with --format")


def _format_of(found: Document | Skipped) -> Format | None:
    if not isinstance(found, dict):
        return None
    if isinstance(found.get("mapping"), dict):
        return Format.CHATGPT
    if isinstance(found.get("memory"), str):
        return Format.MEM0
    return Format.JSONL if "content" in found else None
