"""A replica: one subject's memories in one file, readable and writable with no server in reach."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from client_sync import journal, search
from client_sync.copies import Copies, Copy, updated_at
from client_sync.dead_letters import DeadLetter, dead_letters
from client_sync.dense import QueryVector
from client_sync.device_clock import DeviceClock, monotonic_micros, wall_micros
from client_sync.errors import ReplicaMissing
from client_sync.identity import Identity, read_identity
from client_sync.journal import JournalEntry
from client_sync.local_rules import check_new, check_registers, check_scope, check_values, differing
from client_sync.local_writing import LocalWriting
from client_sync.outbox import Outbox
from client_sync.replica_file import ReplicaFile, get_meta, set_meta
from client_sync.search import Hit
from client_sync.status import Status, status_of
from scrubjay.errors import InvalidField, MemoryDeleted, MemoryExists, MemoryNotFound
from scrubjay.filters import Matcher
from scrubjay.memory import (
    DEFAULT_CATEGORY,
    DEFAULT_SCOPE,
    JsonValue,
    Memory,
    MemoryId,
    Micros,
    PrivacyLevel,
    Source,
    expired,
    id_bytes,
    new_memory_id,
    within,
)
from scrubjay.merge import State, Write, create
from scrubjay.operation import NO_ID, Operation, OperationKind, replay
from scrubjay.validity import is_memory_id

MAX_LIST = 1000
"""A page of the list; ``before`` goes on behind it."""
_LISTED_AT_ONCE = 500
_INDEXED_AT_ONCE = 2000
"""Some 60 ms under the file's write lock."""


class Replica:
    """One file of one principal; safe for many threads, and other processes may have it open too.

    Every write is on disk when it returns. What is read is the server's copy with this device's own
    operations on top. ``wall`` and ``monotonic`` give microseconds, ``entropy`` that many random bytes.
    """

    def __init__(
        self,
        file: ReplicaFile,
        identity: Identity,
        *,
        wall: Callable[[], Micros] = wall_micros,
        monotonic: Callable[[], int] = monotonic_micros,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.file = file
        self.identity = identity
        self.entropy = entropy
        self.syncing = threading.RLock()
        """Held while this process exchanges with the server: one at a time."""
        with file.reading() as sql:
            offset = int(get_meta(sql, "clock_offset", 0))
        self.clock = DeviceClock(offset, wall, monotonic)
        self._listeners: list[Callable[[], None]] = []

    @classmethod
    def create(
        cls,
        path: str | Path,
        identity: Identity,
        *,
        wall: Callable[[], Micros] = wall_micros,
        monotonic: Callable[[], int] = monotonic_micros,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> Replica:
        """A new and empty replica. ReplicaExists where there is a file."""
        file = ReplicaFile.create(Path(path))
        with file.transaction(durable=True) as sql:
            set_meta(
                sql,
                replica_id=entropy(16),
                principal=identity.principal,
                client_id=identity.client_id,
                subject_kind=identity.subject.kind,
                subject_name=identity.subject.name,
                scopes="\n".join(identity.scopes),
            )
        return cls(file, identity, wall=wall, monotonic=monotonic, entropy=entropy)

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        wall: Callable[[], Micros] = wall_micros,
        monotonic: Callable[[], int] = monotonic_micros,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> Replica:
        """An existing replica. ReplicaMissing, ReplicaDamaged, UpgradeNeeded."""
        file = ReplicaFile.open(Path(path))
        with file.reading() as sql:
            identity = read_identity(sql.execute("SELECT key, value FROM meta").fetchall())
        if identity is None:
            file.close()
            raise ReplicaMissing(f"{path} is no replica: it was never set up; delete it and make a new one")
        return cls(file, identity, wall=wall, monotonic=monotonic, entropy=entropy)

    def close(self) -> None:
        """Close the file. May be called again."""
        self.file.close()

    def __enter__(self) -> Replica:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- reading ----------------------------------------------------------------------------------

    def get(self, memory_id: str) -> Memory:
        """A memory. MemoryDeleted where it was deleted, MemoryNotFound where there is none."""
        with self.file.reading() as sql:
            outbox = Outbox(sql, self.identity)
            copies = Copies(sql, self.identity, outbox)
            state = is_memory_id(memory_id) and copies.shown_state(MemoryId(memory_id))
            if not state and is_memory_id(memory_id) and copies.deleted(MemoryId(memory_id)):
                raise MemoryDeleted(memory_id)
        if not state or expired(state.memory, self.clock.now()):
            raise MemoryNotFound(memory_id)
        return state.memory

    def list(
        self,
        *,
        scopes: Sequence[str] = (),
        matches: Matcher | None = None,
        limit: int = 100,
        before: tuple[Micros, MemoryId] | None = None,
    ) -> list[Memory]:
        """At most ``limit`` memories, newest ``created_at`` first, behind ``before``: (created_at, id)."""
        if not 1 <= limit <= MAX_LIST:
            raise InvalidField.of("limit", f"is {limit}; give 1 to {MAX_LIST}")
        found: list[Memory] = []
        now = self.clock.now()
        for state, commit_stamp in self._newest_first(before):
            memory = state.memory
            if (
                not expired(memory, now)
                and (not scopes or any(within(memory.scope, scope) for scope in scopes))
                and (matches is None or matches(memory, updated_at(commit_stamp, state)))
            ):
                found.append(memory)
                if len(found) == limit:
                    break
        return found

    def _newest_first(self, before: tuple[Micros, MemoryId] | None) -> Iterator[tuple[State, int]]:
        at, key = (before[0], id_bytes(before[1])) if before else (1 << 62, b"")
        while True:
            with self.file.reading() as sql:
                rows = sql.execute(
                    "SELECT created_at, id, message, field_stamps, commit_stamp FROM rows"
                    " WHERE (created_at, id) < (?, ?) ORDER BY created_at DESC, id DESC LIMIT ?",
                    (at, key, _LISTED_AT_ONCE),
                ).fetchall()
            for created_at, row_id, message, field_stamps, commit_stamp in rows:
                at, key = created_at, row_id
                yield Copy(commit_stamp, message, field_stamps).state, commit_stamp
            if len(rows) < _LISTED_AT_ONCE:
                return

    def search(
        self,
        query: str,
        *,
        top_k: int = 10,
        scopes: Sequence[str] = (),
        matches: Matcher | None = None,
        vector: QueryVector | None = None,
    ) -> Sequence[Hit]:
        """The best hits, by keywords; with ``vector``, the query's embedding, by meaning too where the
        memories' embeddings are here. InvalidField."""
        self._index_pending()
        with self.file.reading() as sql:
            return search.search(
                sql,
                self.identity,
                query,
                top_k=top_k,
                scopes=scopes,
                matches=matches,
                vector=vector,
                now=self.clock.now(),
            )

    def _index_pending(self) -> None:
        """Index what came since; rows that are not are found too, only slower."""
        with self.file.reading() as sql:
            if sql.execute("SELECT 1 FROM rows WHERE terms IS NULL LIMIT 1").fetchone() is None:
                return
        indexed = _INDEXED_AT_ONCE
        while indexed == _INDEXED_AT_ONCE:
            with self.file.transaction(durable=False) as sql:
                indexed = search.index_pending(sql, _INDEXED_AT_ONCE)

    def history(self, memory_id: str, *, limit: int = 100) -> Sequence[JournalEntry]:
        """What happened to a memory as this device saw it, newest first. MemoryNotFound where nothing did."""
        with self.file.reading() as sql:
            found = journal.entries(sql, MemoryId(memory_id), limit) if is_memory_id(memory_id) else []
        if not found:
            self.get(memory_id)
        return found

    def status(self) -> Status:
        """How the replica stands."""
        with self.file.reading() as sql:
            return status_of(sql, self.identity, self.clock.now())

    def dead_letters(self) -> Sequence[DeadLetter]:
        """The operations that the server refused for good, oldest first."""
        with self.file.reading() as sql:
            return dead_letters(sql, Outbox(sql, self.identity))

    def discard_dead_letter(self, position: int) -> None:
        """Forget a refused operation, once its user has dealt with it."""
        with self.file.transaction(durable=True) as sql:
            sql.execute("DELETE FROM dead_letters WHERE position = ?", (position,))

    def access_count(self, memory_id: str) -> int:
        """How often the memory was looked at, on all replicas as far as is known here."""
        with self.file.reading() as sql:
            key = id_bytes(memory_id)
            row = sql.execute("SELECT count FROM counts WHERE id = ?", (key,)).fetchone()
            mine = sql.execute("SELECT total - sent FROM touches WHERE id = ?", (key,)).fetchone()
        return (row[0] if row else 0) + (mine[0] if mine else 0)

    # --- writing ----------------------------------------------------------------------------------

    def add(
        self,
        content: str,
        *,
        memory_id: str | None = None,
        agent_id: str = "",
        run_id: str = "",
        scope: str = DEFAULT_SCOPE,
        category: str = DEFAULT_CATEGORY,
        tags: Iterable[str] = (),
        metadata: Mapping[str, JsonValue] | None = None,
        source: Source | None = None,
        confidence: float = 1.0,
        privacy_level: PrivacyLevel = PrivacyLevel.SHARED,
        pinned: bool = False,
        created_at: Micros | None = None,
        valid_from: Micros | None = None,
        valid_to: Micros | None = None,
        expires_at: Micros | None = None,
        superseded_by: MemoryId | None = None,
    ) -> Memory:
        """Store a memory. InvalidField names what is wrong; MemoryExists where the id is taken."""
        now = self.clock.now()
        subject = self.identity.subject
        ids = {"user_id": "", "agent_id": agent_id, "run_id": run_id, f"{subject.kind}_id": subject.name}
        memory = Memory(
            id=MemoryId(memory_id or new_memory_id(now // 1000, self.entropy(10))),
            content=content,
            created_at=now if created_at is None else created_at,
            user_id=ids["user_id"],
            agent_id=ids["agent_id"],
            run_id=ids["run_id"],
            owner_client_id=self.identity.client_id,
            scope=scope,
            category=category,
            tags=frozenset(tags),
            metadata=metadata or {},
            source=replace(source or Source(), client_id=self.identity.client_id),
            confidence=confidence,
            privacy_level=privacy_level,
            pinned=pinned,
            valid_from=valid_from,
            valid_to=valid_to,
            expires_at=expires_at,
            superseded_by=superseded_by,
        )
        check_new(memory, self.identity)
        with self._writing() as write:
            if write.copies.shown_state(memory.id) or write.copies.deleted(memory.id):
                raise MemoryExists(memory.id)
            stamp = write.stamp(None)
            if privacy_level is PrivacyLevel.LOCAL_ONLY:
                return write.keep_local(create(memory, stamp)).memory
            operation = Operation(NO_ID, memory.id, OperationKind.CREATE, stamp, memory=memory)
            return write.queue(operation, None).memory

    def update(self, memory_id: str, values: Mapping[str, JsonValue]) -> Memory:
        """Write registers, such as ``content``, ``tags.work`` or ``metadata.city``; None clears one.

        InvalidField, MemoryDeleted, MemoryNotFound.
        """
        check_registers(values)
        with self._writing() as write:
            state = write.living(memory_id)
            check_values(state.memory, values, self.identity)
            stamp = write.stamp(state)
            changed = differing(state.memory, values)
            if not changed:
                return state.memory
            writes = tuple(
                Write(field, value, stamp, state.stamps.get(field)) for field, value in changed.items()
            )
            operation = Operation(NO_ID, state.memory.id, OperationKind.SET, stamp, writes=writes)
            after, _ = replay(state, operation, self.identity.client_id)
            assert after is not None
            check_scope(after.memory.scope, self.identity)
            if state.memory.privacy_level is PrivacyLevel.LOCAL_ONLY:
                return self._update_local(write, after).memory
            return write.queue(operation, after).memory

    def _update_local(self, write: LocalWriting, after: State) -> State:
        if after.memory.privacy_level is PrivacyLevel.LOCAL_ONLY:
            return write.keep_local(after)
        stamp = write.stamp(after)
        operation = Operation(NO_ID, after.memory.id, OperationKind.CREATE, stamp, memory=after.memory)
        return write.queue(operation, None)

    def delete(self, memory_id: str) -> None:
        """Delete a memory for ever; nothing happens where it was deleted before. MemoryNotFound."""
        with self._writing() as write:
            if is_memory_id(memory_id) and write.copies.deleted(MemoryId(memory_id)):
                return
            state = write.living(memory_id)
            operation = Operation(NO_ID, state.memory.id, OperationKind.DELETE, write.stamp(state))
            write.delete(operation, state)

    def touch(self, memory_id: str) -> None:
        """Count that the memory was looked at. Counts travel apart and change nothing else."""
        with self.file.transaction(durable=False) as sql:
            sql.execute(
                "INSERT INTO touches VALUES (?, 1, ?, 0) ON CONFLICT (id) DO UPDATE"
                " SET total = total + 1, last_access_at = excluded.last_access_at",
                (id_bytes(memory_id), self.clock.now()),
            )

    @contextmanager
    def _writing(self) -> Iterator[LocalWriting]:
        with self.file.transaction(durable=True) as sql:
            write = LocalWriting(sql, self.identity, self.clock.now())
            yield write
            if self._listeners:
                write.number()
        for listener in tuple(self._listeners):
            listener()

    def on_write(self, listener: Callable[[], None]) -> None:
        """Call ``listener``, who sends what was written, after every write of this process, in its thread."""
        self._listeners.append(listener)
