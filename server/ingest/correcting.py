"""Corrections: what a new memory says is true no more is put under it, and stays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from scrubjay.errors import MemoryDeleted, MemoryNotFound
from scrubjay.memory import Memory, MemoryId, Micros
from scrubjay.text import tokens
from server.ingest.author import Author
from server.ingest.conversations import Learnt
from server.ingest.edits import Edit, living, update
from server.recall.query import Hit
from server.store.rows import StreamKey
from server.store.writing import Writing

ALIKE = 0.4
"""The least cosine of two texts of one thing: "I use Vim" and "I no longer use Vim, VS Code now"."""
CANDIDATES = 10
MOST = 3
"""Memories that one correction replaces: what was said of one thing in so many ways."""


def corrected(hits: Iterable[Hit], new: Learnt) -> list[MemoryId]:
    """Those of the hits, best first, that say what is replaced: they hold its words and are like the
    new text."""
    found = [
        hit.row.memory.id
        for hit in hits
        if _says(hit.row.memory, new) and hit.contributions["dense"].measure >= ALIKE
    ]
    return found[:MOST]


def corrected_within(found: Sequence[Learnt], vectors: NDArray[np.float32]) -> list[Learnt]:
    """What one conversation gave, where what it says later replaces what it said before."""
    known = list(found)
    for n, later in enumerate(known):
        for m in range(n if later.replaces else 0):
            if _says(known[m].memory, later) and float(vectors[m] @ vectors[n]) >= ALIKE:
                known[m] = replace(known[m], memory=replace(known[m].memory, superseded_by=later.memory.id))
    return known


def _says(memory: Memory, new: Learnt) -> bool:
    """Whether the memory says of the same one what the new one ends: "I live …", not "My sister lives …".
    What happened stays true."""
    wanted, held = frozenset(tokens(new.replaces)), tokens(memory.content)
    return (
        bool(wanted)
        and memory.superseded_by is None
        and memory.category != "EVENT"
        and wanted <= frozenset(held)
        and held[:1] == tokens(new.memory.content)[:1]
    )


def supersede(
    writing: Writing,
    key: StreamKey,
    space: str,
    older: Iterable[MemoryId],
    newer: MemoryId,
    author: Author,
    now: Micros,
) -> list[MemoryId]:
    """Note of the older memories what replaced them; which of them still live."""
    done = []
    for memory_id in older:
        try:
            stored = living(writing, key, memory_id, author, now)
        except (MemoryDeleted, MemoryNotFound):
            continue
        values = replace(stored.memory, superseded_by=newer)
        edit = Edit(memory_id, values, ("superseded_by",), {}, "", None, reason="corrected")
        update(writing, key, space, edit, author, now)
        done.append(memory_id)
    return done
