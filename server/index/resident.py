"""A resident stream: everything that a search of one subject reads, in memory, as of a commit stamp.

It is a consumer of the stream's feed: it applies rows in commit-stamp order and can be dropped and
loaded again at any time. A row has a *slot*, a small integer that names it in the vector index, the
keyword index and the columns alike. A change of content takes a new slot; the old one is dead.

A search across subjects reads another one, made from all streams of a tenant: commit stamps order one
stream alone, so it names the stamp that it has applied of each.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scrubjay.memory import MAX_MICROS, ClientId, Memory, MemoryId, Micros, PrivacyLevel, within
from scrubjay.stamp import CommitStamp
from scrubjay.text import tokens
from server.index.hnsw_index import HnswIndex
from server.index.shelf import Shelved
from server.index.switch import grown, open_index
from server.index.vector_index import VectorIndex
from server.recall.lexical import LexicalIndex
from server.store.memory_store import Change
from server.store.vector_codec import decode_vectors

_ROW_BYTES = 1200
"""A Memory value and its small strings, as CPython lays them out, beside its texts."""
_REBUILD_DEAD_SHARE = 0.3
_REBUILD_LEAST_ROWS = 256


@dataclass(frozen=True, slots=True)
class Row:
    """One living memory of the stream; ``message`` is its encoded form, ready to be joined."""

    memory: Memory
    message: bytes
    commit_stamp: CommitStamp


@dataclass(frozen=True, slots=True)
class View:
    """What a caller may see and asked for: privacy, expiry, scopes, agent and run."""

    client_id: ClientId
    now: Micros
    scopes: tuple[str, ...] = ()
    agent_id: str = ""
    run_id: str = ""


class ResidentStream:
    """Hold ``lock`` around every other use; the cache and the search do."""

    def __init__(self, dimension: int) -> None:
        self.lock = threading.Lock()
        self.applied: dict[str, CommitStamp] = {}
        self.rows: list[Row | None] = []
        self.words = LexicalIndex()
        self.vectors: VectorIndex = open_index(dimension, 0)
        self._slots: dict[MemoryId, int] = {}
        self._shelved: Shelved | None = None
        self._columns = _Columns()
        self._bytes = 0

    def __len__(self) -> int:
        """How many memories live in it."""
        return len(self._slots)

    @property
    def nbytes(self) -> int:
        """An estimate of the resident bytes."""
        return self._bytes + self.vectors.nbytes + self.words.nbytes + self._columns.nbytes

    @property
    def worn(self) -> bool:
        """Whether so many slots are dead that loading it again pays."""
        dead = len(self.rows) - len(self._slots)
        return len(self.rows) > _REBUILD_LEAST_ROWS and dead > _REBUILD_DEAD_SHARE * len(self.rows)

    def restore(self, shelved: Shelved) -> None:
        """Begin a load with the graph of an earlier residency; ``settle`` ends it."""
        self._shelved = shelved
        self.vectors = shelved.index
        self.rows = [None] * shelved.size
        self._columns.reserve(shelved.size)

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
        return Shelved(self.vectors, dict(self._slots), len(self.rows), dict(self.applied))

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
                continue
            if slot is not None and old is not None:
                self._kill(slot, old)
                dead.append(slot)
            if row is not None and (known := self._known_slot(change)) is not None:
                self._fill(known, row)
            elif row is not None and change.vector is not None:
                self.rows.append(None)
                fresh.append((len(self.rows) - 1, change.vector))
                self._fill(len(self.rows) - 1, row)
        self.vectors.remove(np.array(dead, dtype=np.int64))
        self._add_vectors([(slot, vector) for slot, vector in fresh if self.rows[slot] is not None])

    @staticmethod
    def _row(change: Change) -> Row | None:
        if change.memory is None or change.message is None:
            return None
        return Row(change.memory, change.message, change.commit_stamp)

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

    def _put(self, slot: int, row: Row) -> None:
        old = self.rows[slot]
        self._bytes += _size(row) - (_size(old) if old else 0)
        self.rows[slot] = row
        self._columns.put(slot, row.memory)

    def _kill(self, slot: int, row: Row) -> None:
        self._bytes -= _size(row)
        self.words.remove(tokens(row.memory.content))
        self.rows[slot] = None
        self._columns.kill(slot)
        del self._slots[row.memory.id]

    def _add_vectors(self, fresh: Sequence[tuple[int, bytes]]) -> None:
        if fresh:
            labels = np.array([slot for slot, _ in fresh], dtype=np.int64)
            self.vectors.add(labels, decode_vectors([vector for _, vector in fresh]))
            self.vectors = grown(self.vectors)

    def allowed(self, view: View) -> NDArray[np.bool_] | None:
        """Which slots the view lets through, by slot; None where it lets every slot through."""
        return self._columns.allowed(view)

    def close(self) -> None:
        """Stop what the vector index runs."""
        self.vectors.close()


def _size(row: Row) -> int:
    return _ROW_BYTES + len(row.message) + len(row.memory.content)


class _Names:
    """Small numbers for the names in a column."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    def known(self, name: str) -> int:
        return self._numbers.get(name, -1)

    def below(self, ancestors: Iterable[str]) -> list[int]:
        return [
            n for name, n in self._numbers.items() if any(within(name, ancestor) for ancestor in ancestors)
        ]


_SHARED = -1


class _Columns:
    """What decides visibility and scope, by slot, in arrays that grow by doubling."""

    def __init__(self) -> None:
        self._size = 0
        self._living = 0
        self._restricted = 0
        self._names = {"scope": _Names(), "agent_id": _Names(), "run_id": _Names(), "owner": _Names()}
        self._arrays = {name: np.zeros(0, dtype=np.int32) for name in self._names}
        self._alive = np.zeros(0, dtype=np.bool_)
        self._expires = np.zeros(0, dtype=np.int64)

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self._arrays.values()) + self._alive.nbytes + self._expires.nbytes

    def reserve(self, size: int) -> None:
        """Have slots 0 to ``size`` - 1; those that nothing was put into are dead."""
        if size > len(self._alive):
            self._grow(max(16, 2 * size))
        self._size = max(self._size, size)

    def put(self, slot: int, memory: Memory) -> None:
        self.reserve(slot + 1)
        self._forget(slot)
        self._alive[slot] = True
        self._living += 1
        self._restricted += _is_restricted(memory)
        self._expires[slot] = MAX_MICROS if memory.expires_at is None else memory.expires_at
        for name in ("scope", "agent_id", "run_id"):
            self._arrays[name][slot] = self._names[name].number(getattr(memory, name))
        shared = memory.privacy_level is PrivacyLevel.SHARED
        self._arrays["owner"][slot] = (
            _SHARED if shared else self._names["owner"].number(memory.owner_client_id)
        )

    def kill(self, slot: int) -> None:
        self._forget(slot)
        self._alive[slot] = False

    def _forget(self, slot: int) -> None:
        if self._alive[slot]:
            self._living -= 1
            restricted = self._expires[slot] != MAX_MICROS or self._arrays["owner"][slot] != _SHARED
            self._restricted -= bool(restricted)

    def _grow(self, size: int) -> None:
        for name, column in self._arrays.items():
            self._arrays[name] = np.concatenate([column, np.zeros(size - len(column), dtype=column.dtype)])
        self._alive = np.concatenate([self._alive, np.zeros(size - len(self._alive), dtype=np.bool_)])
        self._expires = np.concatenate([self._expires, np.zeros(size - len(self._expires), dtype=np.int64)])

    def allowed(self, view: View) -> NDArray[np.bool_] | None:
        n = self._size
        masks: list[NDArray[np.bool_]] = []
        if self._living < n:
            masks.append(self._alive[:n])
        if self._restricted:
            owner = self._arrays["owner"][:n]
            masks.append((owner == _SHARED) | (owner == self._names["owner"].known(view.client_id)))
            masks.append(self._expires[:n] > view.now)
        if view.scopes:
            masks.append(np.isin(self._arrays["scope"][:n], self._names["scope"].below(view.scopes)))
        for name in ("agent_id", "run_id"):
            if wanted := getattr(view, name):
                masks.append(self._arrays[name][:n] == self._names[name].known(wanted))
        return np.logical_and.reduce(masks) if masks else None


def _is_restricted(memory: Memory) -> bool:
    return memory.expires_at is not None or memory.privacy_level is not PrivacyLevel.SHARED
