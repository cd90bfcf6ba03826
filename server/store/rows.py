"""What the store takes and gives as values, and how they lie in rows."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from scrubjay import v1
from scrubjay.memory import (
    ClientId,
    Guarded,
    Memory,
    MemoryId,
    PrivacyLevel,
    Source,
    Viewer,
    canonical_json,
)
from scrubjay.merge import Outcome, State, source_json
from scrubjay.operation import OperationKind
from scrubjay.stamp import CommitStamp, Stamp, pack_field_stamps, unpack_field_stamps
from scrubjay.wire import to_message
from server.ingest.words import mark
from server.store.history import HistoryRow, decode_changes, encode_changes
from server.store.tables import history, memories, streams
from server.store.transaction import Row
from tenants.tenant import Incarnation


@dataclass(frozen=True, slots=True, order=True)
class StreamKey:
    """One stream: everything of one subject in one life of a tenant. ``stream`` is the subject's key."""

    incarnation: Incarnation
    stream: str


Extent: TypeAlias = StreamKey | Incarnation
"""What is searched as one: a stream, or all streams of one life of a tenant."""


@dataclass(frozen=True, slots=True)
class StreamHead:
    """Where a stream stands.

    ``head`` is its last commit stamp, ``epoch`` names its life, ``horizon`` is the oldest stamp to pull
    from, ``counts_head`` the last stamp in the lane of access counts.
    """

    head: CommitStamp
    epoch: int
    horizon: CommitStamp
    counts_head: CommitStamp


CREATED = ""
"""The name under which ``field_commits`` holds the commit stamp of the create."""


@dataclass(frozen=True, slots=True)
class StoredMemory:
    """A memory as it is stored; ``message`` is its encoded ``v1.Memory``, ready to be joined.

    ``field_commits`` has the commit stamp of its create, and of every register that was written since.
    """

    state: State
    commit_stamp: CommitStamp
    message: bytes
    field_commits: Mapping[str, CommitStamp]

    @classmethod
    def of(cls, state: State, commit_stamp: CommitStamp) -> StoredMemory:
        """A new memory as it will be stored under ``commit_stamp``."""
        message = to_message(state.memory, commit_stamp).SerializeToString()
        return cls(state, commit_stamp, message, {CREATED: commit_stamp})

    def edited(self, state: State, commit_stamp: CommitStamp) -> StoredMemory:
        """The same memory in its next state, as it will be stored under ``commit_stamp``."""
        before = self.state.stamps
        written = {
            field: commit_stamp
            for field, stamp in state.stamps.items()
            if (old := before.get(field)) is not stamp and old != stamp  # comparing stamps is slow
        }
        message = to_message(state.memory, commit_stamp).SerializeToString()
        return StoredMemory(state, commit_stamp, message, {**self.field_commits, **written})

    def newest_but(self, stamps: Container[CommitStamp]) -> CommitStamp:
        """The newest commit stamp of a register that was not written under ``stamps``; 0 if none."""
        others = (commit for commit in self.field_commits.values() if commit not in stamps)
        return max(others, default=CommitStamp(0))

    @property
    def memory(self) -> Memory:
        """Its value."""
        return self.state.memory


@dataclass(frozen=True, slots=True)
class Change:
    """One row of the feed of ``stream``: a memory at its latest commit stamp.

    ``memory`` and ``message`` are None where it was deleted; ``vector`` is None there, and where no vector
    of the asked space was made from the content that stands. ``names`` are the normal names of what
    it mentions.
    """

    stream: str
    memory_id: MemoryId
    commit_stamp: CommitStamp
    message: bytes | None
    memory: Memory | None
    vector: bytes | None
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Grave:
    """A deletion: of which memory, at which place in the feed, and the stamp of the edit.

    ``private_to`` and ``scope`` say who may hear of it, see ``may_hear``.
    """

    memory_id: MemoryId
    commit_stamp: CommitStamp
    stamp: Stamp
    private_to: ClientId
    scope: str

    @classmethod
    def of(cls, memory: Memory, commit_stamp: CommitStamp, stamp: Stamp) -> Grave:
        """The grave of a memory, heard of by those who saw it last."""
        return cls(memory.id, commit_stamp, stamp, private_to(memory), memory.scope)


def private_to(memory: Guarded) -> ClientId:
    """The only client that privacy lets see the memory; empty where it lets all."""
    shared = memory.privacy_level is PrivacyLevel.SHARED
    return ClientId("") if shared else memory.owner_client_id


def owner_of(message: bytes) -> ClientId:
    """The client that owns an encoded memory."""
    return ClientId(v1.Memory.FromString(message).owner_client_id)


def may_hear(viewer: Viewer, private_to: ClientId, scope: str) -> bool:
    """Whether the viewer may hear that something with these was deleted or taken back.

    Without a scope, which no memory is, scopes do not matter: nobody knows in which it was.
    """
    return private_to in ("", viewer.client_id) and (not scope or viewer.may_enter(scope))


HEAD_COLUMNS = (streams.c.head, streams.c.epoch, streams.c.horizon, streams.c.counts_head)
"""In the order of StreamHead's fields."""

MEMORY_COLUMNS = (
    memories.c.id,
    memories.c.content,
    memories.c.created_at,
    memories.c.user_id,
    memories.c.agent_id,
    memories.c.run_id,
    memories.c.owner_client_id,
    memories.c.scope,
    memories.c.category,
    memories.c.tags,
    memories.c.metadata,
    memories.c.source,
    memories.c.confidence,
    memories.c.privacy_level,
    memories.c.pinned,
    memories.c.valid_from,
    memories.c.valid_to,
    memories.c.expires_at,
    memories.c.superseded_by,
)
"""What ``to_memory`` reads, in the order of Memory's fields."""

STORED_COLUMNS = (
    *MEMORY_COLUMNS,
    memories.c.commit_stamp,
    memories.c.message,
    memories.c.field_stamps,
    memories.c.field_commits,
)
"""What ``to_stored`` reads."""

HISTORY_COLUMNS = (
    history.c.operation_id,
    history.c.memory_id,
    history.c.commit_stamp,
    history.c.kind,
    history.c.changes,
    history.c.client_id,
    history.c.replica_id,
    history.c.actor,
    history.c.role,
    history.c.outcome,
    history.c.claimed_at,
    history.c.private_to,
    history.c.spell,
    history.c.deleted,
    history.c.restores,
    history.c.reason,
)
"""What ``to_history`` reads, in the order of HistoryRow's fields."""


_MAX_CACHED_SOURCES = 256
"""What a client writes at once mostly has one source."""
_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def new_memory_row(key: StreamKey, stored: StoredMemory) -> dict[str, Any]:
    """A new memory as a row of the memories table, as ``memory_row``."""
    row = memory_row(key, stored)
    row["new_mark"] = mark(stored.memory.content)
    return row


def memory_row(key: StreamKey, stored: StoredMemory) -> dict[str, Any]:
    """A memory as a row of the memories table, but for the mark of its text. Each column's value is
    ``new_<column>``: a statement that sets a column keeps the bare name for itself."""
    memory = stored.state.memory
    return {
        "new_incarnation": key.incarnation,
        "new_id": memory.id,
        "new_stream": key.stream,
        "new_commit_stamp": stored.commit_stamp,
        "new_user_id": memory.user_id,
        "new_agent_id": memory.agent_id,
        "new_run_id": memory.run_id,
        "new_owner_client_id": memory.owner_client_id,
        "new_scope": memory.scope,
        "new_category": memory.category,
        "new_content": memory.content,
        "new_tags": canonical_json(sorted(memory.tags)) if memory.tags else "[]",
        "new_metadata": canonical_json(memory.metadata) if memory.metadata else "{}",
        "new_source": _source_text(memory.source),
        "new_confidence": memory.confidence,
        "new_privacy_level": int(memory.privacy_level),
        "new_pinned": memory.pinned,
        "new_created_at": memory.created_at,
        "new_valid_from": memory.valid_from,
        "new_valid_to": memory.valid_to,
        "new_expires_at": memory.expires_at,
        "new_superseded_by": memory.superseded_by,
        "new_content_stamp": stored.state.stamps["content"].pack(),
        "new_field_stamps": pack_field_stamps(stored.state.stamps),
        "new_field_commits": _commits_text(stored.field_commits),
        "new_message": stored.message,
    }


@lru_cache(_MAX_CACHED_SOURCES)
def _source_text(source: Source) -> str:
    return canonical_json(source_json(source) or {})


def _commits_text(field_commits: Mapping[str, CommitStamp]) -> str:
    if len(field_commits) == 1 and CREATED in field_commits:  # never edited
        return f'{{"{CREATED}":{field_commits[CREATED]}}}'
    return _COMPACT(field_commits)


def to_memory(row: Row) -> Memory:
    """A row that begins with MEMORY_COLUMNS as a value."""
    values = list(row[: len(MEMORY_COLUMNS)])
    tags, metadata, source = values[9:12]
    values[9] = frozenset() if tags == "[]" else frozenset(json.loads(tags))
    values[10] = {} if metadata == "{}" else json.loads(metadata)
    values[11] = _NO_SOURCE if source == "{}" else _source(json.loads(source))
    values[13] = PRIVACY_LEVELS[values[13]]
    values[14] = bool(values[14])
    return Memory(*values)


_NO_SOURCE = Source()
PRIVACY_LEVELS = {int(level): level for level in PrivacyLevel}
"""By number; a lookup is faster than a call of the enumeration."""


def _source(values: Mapping[str, Any]) -> Source:
    return Source(**{**values, "message_ids": tuple(values.get("message_ids", ()))})


def to_stored(row: Row) -> StoredMemory:
    """A row of STORED_COLUMNS as a value."""
    commit_stamp, message, field_stamps, field_commits = row[len(MEMORY_COLUMNS) :]
    state = State(to_memory(row), unpack_field_stamps(field_stamps))
    return StoredMemory(state, commit_stamp, message, to_field_commits(field_commits, commit_stamp))


def to_field_commits(text: str, commit_stamp: CommitStamp) -> dict[str, CommitStamp]:
    """The commit stamps of a row's registers, from its column. Rows that are older than the column count
    as made at their own commit stamp."""
    found: dict[str, CommitStamp] = json.loads(text)
    return found or {CREATED: commit_stamp}


def history_row(key: StreamKey, row: HistoryRow) -> dict[str, Any]:
    """An operation as a row of the history table."""
    return {
        "incarnation": key.incarnation,
        "stream": key.stream,
        "commit_stamp": row.commit_stamp,
        "operation_id": row.operation_id,
        "memory_id": row.memory_id,
        "kind": int(row.kind),
        "changes": encode_changes(row.changes),
        "client_id": row.client_id,
        "replica_id": row.replica_id,
        "actor": row.actor,
        "role": row.role,
        "outcome": int(row.outcome),
        "claimed_at": row.claimed_at,
        "private_to": row.private_to,
        "spell": row.spell,
        "deleted": row.deleted or None,
        "restores": row.restores or None,
        "reason": row.reason or None,
    }


def to_history(row: Row) -> HistoryRow:
    """A row of HISTORY_COLUMNS as a value."""
    values = list(row)
    values[3] = OperationKind(values[3])
    values[4] = decode_changes(values[4])
    values[9] = Outcome(values[9])
    values[13:] = values[13] or b"", values[14] or "", values[15] or ""
    return HistoryRow(*values)
