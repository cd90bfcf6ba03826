"""Feedback: who used a memory says how it was, and its confidence follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import IntEnum
from types import MappingProxyType

from scrubjay.memory import Memory, MemoryId, Micros
from server.ingest.author import Author
from server.ingest.edits import Edit, living, update
from server.store.rows import StoredMemory, StreamKey
from server.store.writing import Writing

GAIN = 0.2
"""The share of what is missing to certainty that a helpful memory gains: three times, and half is gone."""
LOSS = 0.5
"""What a wrong or outdated memory keeps of its confidence."""


class FeedbackKind(IntEnum):
    """How a memory was; the numbers are the contract's."""

    HELPFUL = 1
    WRONG = 2
    OUTDATED = 3


def give_feedback(
    writing: Writing,
    key: StreamKey,
    space: str,
    memory_id: MemoryId,
    kind: FeedbackKind,
    etag: str,
    author: Author,
    now: Micros,
) -> StoredMemory:
    """Write what follows from the feedback, computed from what stands under the stream's lock.

    Every feedback is written, also one that leaves the values as they are: it is a use of the memory, and
    History knows of it. MemoryDeleted, MemoryNotFound, EtagMismatch as an edit.
    """
    stored = living(writing, key, memory_id, author, now)
    values = _after(stored.memory, kind, now)
    bases = {"confidence": stored.state.stamps["confidence"]}
    fields = tuple(name for name in ("confidence", "valid_to") if name in values)
    memory = replace(stored.memory, **values)  # type: ignore[arg-type]  # by name
    edit = Edit(memory_id, memory, fields, bases, etag, None, f"feedback: {kind.name}")
    written, _ = update(writing, key, space, edit, author, now)
    return written


def _after(memory: Memory, kind: FeedbackKind, now: Micros) -> Mapping[str, object]:
    """The fields that the feedback writes."""
    if kind is FeedbackKind.HELPFUL:
        return {"confidence": min(1.0, memory.confidence + (1 - memory.confidence) * GAIN)}
    halved: dict[str, object] = {"confidence": memory.confidence * LOSS}
    begun = memory.valid_from is None or memory.valid_from < now
    if kind is FeedbackKind.OUTDATED and begun and (memory.valid_to is None or memory.valid_to > now):
        halved["valid_to"] = now
    return MappingProxyType(halved)
