"""A resident stream: everything that a search of one subject reads, in memory, as of a commit stamp.

It is a consumer of the stream's feed: it applies rows in commit-stamp order and can be dropped and
loaded again at any time. A row has a *slot*, a small integer that names it in the vector index, the
keyword index and the columns alike. A change of content takes a new slot; the old one is dead.

A search across subjects reads another one, made from all streams of a tenant: commit stamps order one
stream alone, so it names the stamp that it has applied of each.

A memory that has no vector of the space yet is *bare*: its words are found, and by meaning it is like
nothing, until it is dressed.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from scrubjay.memory import ClientId, Memory, MemoryId, Micros
from scrubjay.stamp import CommitStamp
from scrubjay.text import tokens
from server.index.columns import Columns, View
from server.index.conversations import Conversations
from server.index.hnsw_index import HnswIndex
from server.index.shelf import Shelved
from server.index.switch import grown, open_index
from server.index.vector_index import VectorIndex
from server.recall.entities import EntityIndex
from server.recall.lexical import LexicalIndex
from server.recall.speakers import Speakers
from server.recall.tags import TagIndex
from server.store.memory_store import Change
from server.store.vector_codec import SCALE_BYTES, decode_vectors

__all__ = ["ResidentStream", "Row", "View"]

_ROW_BYTES = 1200
"""A Memory value and its small strings, as CPython lays them out, beside its texts."""
_REBUILD_DEAD_SHARE = 0.3
_REBUILD_LEAST_ROWS = 256


@dataclass(frozen=True, slots=True)
class Row:
    """One living memory of the stream; ``message`` is its encoded form, ready to be joined, ``names`` the
    normal names of what it mentions."""

    memory: Memory
    message: bytes
    commit_stamp: CommitStamp
    names: tuple[str, ...] = ()


class ResidentStream:
    """Hold ``lock`` around every other use; the cache and the search do."""

    def __init__(self, dimension: int) -> None:
        self.lock = threading.Lock()
        self.applied: dict[str, CommitStamp] = {}
        self.counted: dict[str, CommitStamp] = {}
        """How far ``note_access`` has come in each stream's lane of access counts."""
        self.rows: list[Row | None] = []
        self.columns = Columns()
        self.conversations = Conversations(self.columns)
        self.words = LexicalIndex()
        self.tags = TagIndex()
        self.entities = EntityIndex()
        self.speakers = Speakers()
        self.vectors: VectorIndex = open_index(dimension, 0)
        self.bare: dict[MemoryId, int] = {}
        """The slots of memories without a vector."""
        self._slots: dict[MemoryId, int] = {}
        self._accessed: dict[MemoryId, Micros] = {}
        self._shelved: Shelved | None = None
        self._bytes = 0

    def __len__(self) -> int:
        """How many memories live in it."""
        return len(self._slots)

    @property
    def nbytes(self) -> int:
        """An estimate of the resident bytes."""
        memories = self.vectors, self.columns, self.conversations
        texts = self.words, self.tags, self.entities, self.speakers
        return self._bytes + sum(part.nbytes for part in (*memories, *texts))

    @property
    def worn(self) -> bool:
        """Whether so many slots are dead that loading it again pays."""
        dead = len(self.rows) - len(self._slots)
        return len(self.rows) > _REBUILD_LEAST_ROWS and dead > _REBUILD_DEAD_SHARE * len(self.rows)

    @property
    def bare_streams(self) -> set[str]:
        """In which streams there are memories without a vector."""
        rows = (self.rows[slot] for slot in self.bare.values())
        return {_subject(row.memory) for row in rows if row is not None}

    def restore(self, shelved: Shelved) -> None:
        """Begin a load with the graph of an earlier residency; ``settle`` ends it."""
        self._shelved = shelved
        self.vectors = shelved.index
        self.rows = [None] * shelved.size
        self.columns.reserve(shelved.size)

    def settle(self) -> None:
        """End a load: what the earlier residency had and the stream has no longer is forgotten."""
        if self._shelved is not None:
            gone = [slot for memory_id, slot in self._shelved.slots.items() if memory_id not in self._slots]
            moved = [slot for i, slot in self._shelved.slots.items() if self._slots.get(i, slot) != slot]
            self.vectors.remove(np.array(gone + moved, dtype=np.int64))
            self._shelved = None

    def to_shelve(self) -> Shelved | None:
        """What is worth keeping when the stream leaves: a graph, which takes long to build."""
        if not isinstance(self.vectors, HnswIndex):
            return None
        self.vectors.remove(np.array(list(self.bare.values()), dtype=np.int64))
        slots = {i: slot for i, slot in self._slots.items() if i not in self.bare}
        return Shelved(self.vectors, slots, len(self.rows), dict(self.applied))

    def apply(self, changes: Sequence[Change]) -> None:
        """Apply rows of the feed, in commit-stamp order in each stream; those applied before change
        nothing."""
        fresh: list[tuple[int, bytes]] = []
        dead: list[int] = []
        for change in changes:
            if change.commit_stamp <= self.applied.get(change.stream, 0):
                continue
            self.applied[change.stream] = change.commit_stamp
            slot = self._slots.get(change.memory_id)
            row = self._row(change)
            old = self.rows[slot] if slot is not None else None
            if (
                slot is not None
                and old is not None
                and row is not None
                and old.memory.content == row.memory.content
            ):
                self._put(slot, row)
                if change.vector is not None and self.bare.pop(change.memory_id, None) is not None:
                    fresh.append((slot, change.vector))
                continue
            if slot is not None and old is not None:
                self._kill(slot, old)
                dead.append(slot)
            if row is None:
                self._accessed.pop(change.memory_id, None)
            if row is not None and (known := self._known_slot(change)) is not None:
                self._fill(known, row)
            elif row is not None:
                self.rows.append(None)
                slot = len(self.rows) - 1
                fresh.append((slot, self._vector(change, slot)))
                self._fill(slot, row)
        self.vectors.remove(np.array(dead, dtype=np.int64))
        self._add_vectors([(slot, vector) for slot, vector in fresh if self.rows[slot] is not None])

    def dress(self, vectors: Mapping[MemoryId, bytes]) -> None:
        """Give bare memories their vectors, which were made of the contents that they have here."""
        known = [(slot, vectors[i]) for i, slot in self.bare.items() if i in vectors]
        self.bare = {i: slot for i, slot in self.bare.items() if i not in vectors}
        self._add_vectors(known)

    def _vector(self, change: Change, slot: int) -> bytes:
        """The change's vector; where there is none one that is like nothing."""
        if change.vector is not None:
            return change.vector
        self.bare[change.memory_id] = slot
        return bytes(SCALE_BYTES + self.vectors.dimension)

    @staticmethod
    def _row(change: Change) -> Row | None:
        if change.memory is None or change.message is None:
            return None
        return Row(change.memory, change.message, change.commit_stamp, change.names)

    def _known_slot(self, change: Change) -> int | None:
        """The slot whose vector the restored graph has already."""
        shelved = self._shelved
        if shelved is None or change.commit_stamp > shelved.applied.get(change.stream, 0):
            return None
        return shelved.slots.get(change.memory_id)

    def _fill(self, slot: int, row: Row) -> None:
        self._slots[row.memory.id] = slot
        self.words.add(slot, tokens(row.memory.content))
        self._put(slot, row)
        if (accessed_at := self._accessed.get(row.memory.id)) is not None:
            self.columns.note_access(slot, accessed_at)

    def _put(self, slot: int, row: Row) -> None:
        old = self.rows[slot]
        self._bytes += _size(row) - (_size(old) if old else 0)
        if (tags := old.memory.tags if old else frozenset()) != row.memory.tags:
            self.tags.remove(slot, tags)
            self.tags.add(slot, row.memory.tags)
        if (names := old.names if old else ()) != row.names:
            self.entities.remove(slot, names)
            self.entities.add(slot, row.names)
        self.rows[slot] = row
        successor = row.memory.superseded_by
        successor_slot = -1 if successor is None else self._slots.get(successor, -1)
        subject = _subject(row.memory)
        self.columns.put(slot, row.memory, subject, row.commit_stamp, successor_slot)
        self.conversations.put(slot, row.memory, subject)
        self.speakers.put(slot, row.memory.source.role)

    def _kill(self, slot: int, row: Row) -> None:
        self._bytes -= _size(row)
        self.tags.remove(slot, row.memory.tags)
        self.entities.remove(slot, row.names)
        self.rows[slot] = None
        self.columns.kill(slot, row.memory.id)
        self.conversations.kill(slot)
        del self._slots[row.memory.id]
        self.bare.pop(row.memory.id, None)

    def _add_vectors(self, fresh: Sequence[tuple[int, bytes]]) -> None:
        if fresh:
            labels = np.array([slot for slot, _ in fresh], dtype=np.int64)
            self.vectors.add(labels, decode_vectors([vector for _, vector in fresh]))
            self.vectors = grown(self.vectors)

    def note_access(self, memory_id: MemoryId, accessed_at: Micros) -> None:
        """Hear when a memory was looked at last."""
        self._accessed[memory_id] = accessed_at
        if (slot := self._slots.get(memory_id)) is not None:
            self.columns.note_access(slot, accessed_at)

    def confine(self, clients: Mapping[MemoryId, ClientId]) -> None:
        """Let each memory be seen by its client alone, whatever it says itself; by whom it says where that
        is empty."""
        for memory_id, client_id in clients.items():
            slot = self._slots.get(memory_id)
            if slot is not None and (row := self.rows[slot]) is not None:
                self.columns.confine(slot, row.memory, client_id)

    def slot(self, memory_id: MemoryId) -> int | None:
        """Where a memory is; None where it does not live here."""
        return self._slots.get(memory_id)

    def close(self) -> None:
        """Stop what the vector index runs."""
        self.vectors.close()


def _subject(memory: Memory) -> str:
    """Its subject's key; of a user's memory without a value between, which is slow."""
    return f"user:{memory.user_id}" if memory.user_id else memory.subject.key


def _size(row: Row) -> int:
    return _ROW_BYTES + len(row.message) + len(row.memory.content)
