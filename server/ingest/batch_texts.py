"""The texts that a batch's new memories may say again: stored ones, and those of the batch itself."""

from __future__ import annotations

from collections.abc import Iterable

from scrubjay.memory import Memory, MemoryId
from server.ingest.words import mark
from server.store.rows import StoredMemory, StreamKey
from server.store.writing import Writing


class BatchTexts:
    """``new`` are the texts of the memories that the batch makes, whose marks are looked up at once."""

    def __init__(self, writing: Writing, key: StreamKey, new: Iterable[str]) -> None:
        self._writing = writing
        self._key = key
        marks = {mark(text) for text in new}
        self._marked = writing.marked(key, marks) if marks else set()
        self._written: dict[int, list[MemoryId]] = {}

    def note(self, memory: Memory) -> None:
        """The batch made the memory, or wrote its text."""
        self._written.setdefault(mark(memory.content), []).append(memory.id)

    def stored(self, memory: Memory) -> list[StoredMemory]:
        """Stored memories that may say what a new one says."""
        its_mark = mark(memory.content)
        return self._writing.alike(self._key, its_mark, memory) if its_mark in self._marked else []

    def written(self, memory: Memory) -> list[MemoryId]:
        """Those that the batch itself wrote."""
        return self._written.get(mark(memory.content), [])
