"""The server of a world: real services over a real database, that can die, fail, be saved and be restored."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import Table, select

from scrubjay import v1
from scrubjay.memory import Micros
from scrubjay.stamp import COUNTER_BITS, CommitStamp, ReplicaId
from server.index.cache import StreamCache
from server.index.shelf import Shelf
from server.providers.embedders import Embedders
from server.providers.hashed import HashEmbedder
from server.router import Router
from server.services.memory_door import MemoryParts
from server.services.memory_service import MemoryService
from server.services.sync_service import SyncService
from server.shard import Shard
from server.snapshots import Snapshots
from server.store.memory_store import MemoryStore, StreamKey
from server.store.tables import access_counts, graveyard, memories, operations, retractions, vectors, waiting
from tenants.tenant import Caller

SHARD = "main"
SECRET = b"the secret of every test world"


@dataclass(frozen=True, slots=True)
class Remembered:
    """What the server still knows of the past, each with its tenant first."""

    operations: set[tuple[str, str]]
    waiting: set[tuple[str, str]]
    retractions: set[tuple[str, str, str, str, str]]
    graves: set[tuple[str, str, str, str, str]]


class Databases(Protocol):
    """Where a world's server keeps its database."""

    def first(self) -> str:
        """The URL of a database with a shard's empty tables."""

    def crashed(self, url: str) -> str:
        """The URL of the database as a crash of the server that uses ``url`` leaves it. Nothing is closed."""

    def copied(self, url: str) -> str:
        """The URL of a copy of a database that nobody has open."""


class SqliteDatabases:
    """SQLite files in one folder."""

    def __init__(self, folder: Path, template: Path) -> None:
        self._folder = folder
        self._template = template
        self._count = 0

    def _fresh(self) -> Path:
        self._count += 1
        return self._folder / f"shard-{self._count}.db"

    def first(self) -> str:
        """See Databases."""
        return f"sqlite:///{shutil.copyfile(self._template, self._fresh())}"

    def crashed(self, url: str) -> str:
        """See Databases."""
        return self.copied(url)

    def copied(self, url: str) -> str:
        """See Databases."""
        path, fresh = url.removeprefix("sqlite:///"), self._fresh()
        for suffix in ("", "-wal"):
            if Path(path + suffix).exists():
                shutil.copyfile(path + suffix, f"{fresh}{suffix}")
        return f"sqlite:///{fresh}"


class ServerSide:
    """A server, from construction to ``close``. ``clock`` gives microseconds since 1970."""

    def __init__(self, databases: Databases, folder: Path, clock: Callable[[], Micros]) -> None:
        self._databases = databases
        self._folder = folder
        self._clock = clock
        self._stack = ExitStack()
        self._failing = False
        self.embedder = HashEmbedder()
        self.url = databases.first()
        self._start()

    def _start(self) -> None:
        with ExitStack() as stack:
            self.store = stack.enter_context(MemoryStore(self.url))
            self._break_on_demand()
            embedders = Embedders({"hash": self.embedder})
            shelf = Shelf(self._folder / "index")
            cache = StreamCache(self.store, shelf, embedders.dimensions, budget_bytes=1 << 24)
            stack.callback(cache.close)
            self.shard = Shard(SHARD, self.store, cache)
            self.router = Router({SHARD: self.shard})
            self.memories = MemoryService(MemoryParts(self.router, embedders, SECRET, self._clock))
            snapshots = Snapshots(self._folder / "snapshots", SECRET, budget_bytes=1 << 26)
            stack.callback(snapshots.close)
            self.sync = SyncService(self.router, embedders, SECRET, self._clock, NoRegistration(), snapshots)
            self._stack = stack.pop_all()

    def _break_on_demand(self) -> None:
        committer: Any = self.store._committer
        committer._transactions = _Breaking(committer._transactions, lambda: self._failing)

    @contextmanager
    def failing_commits(self) -> Iterator[None]:
        """For the block, every transaction fails where it would commit."""
        self._failing = True
        try:
            yield
        finally:
            self._failing = False

    def crash(self) -> None:
        """The process dies and a new one begins on what it left."""
        left = self._databases.crashed(self.url)
        self.close()
        self.url = left
        self._start()

    def backup(self) -> str:
        """The URL of a copy of the database as it is now."""
        self.close()
        saved = self._databases.copied(self.url)
        self._start()
        return saved

    def go_back(self, saved: str) -> None:
        """The database is what it was at a backup, and nobody has said so yet."""
        self.close()
        self.url = self._databases.copied(saved)
        self._start()

    def announce_restored(self) -> None:
        """What ``python -m server restored`` does."""
        self.store.begin_epochs(self._clock() // 1000)

    def collect(self) -> None:
        """Forget what is older than now."""
        self.shard.collect(CommitStamp(self._clock() // 1000 << COUNTER_BITS), lambda: False)

    def remembered(self) -> Remembered:
        """What a collection left."""
        with self.store.read() as reading:
            transaction: Any = reading._transaction

            def rows(table: Table, *names: str) -> set[Any]:
                columns = [table.c[name] for name in ("incarnation", *names)]
                return {tuple(row) for row in transaction.all(select(*columns), {})}

            return Remembered(
                operations=rows(operations, "operation_id"),
                waiting=rows(waiting, "operation_id"),
                retractions=rows(retractions, "stream", "memory_id", "private_to", "scope"),
                graves=rows(graveyard, "memory_id", "stream", "private_to", "scope"),
            )

    def number(self, key: StreamKey, replica_id: bytes) -> int:
        """The number of the last operation of a replica that was answered."""
        with self.store.read() as reading:
            mark = reading.replica(key, ReplicaId(replica_id))
        return mark.number if mark is not None else 0

    def tables(self) -> dict[str, Sequence[object]]:
        """Every row of what sync keeps, but for how far replicas came: that may be noted again."""
        with self.store.read() as reading:
            transaction: Any = reading._transaction
            return {
                table.name: sorted(map(repr, transaction.all(select(table), {})))
                for table in (memories, graveyard, retractions, operations, waiting, access_counts, vectors)
            }

    def close(self) -> None:
        """Stop. May be called again."""
        self._stack.close()


class NoRegistration:
    """The devices of a world have their callers already."""

    def register_device(self, request: v1.RegisterDeviceRequest, caller: Caller) -> v1.RegisterDeviceResponse:
        """See Registration."""
        raise NotImplementedError

    def refresh_token(self, request: v1.RefreshTokenRequest, caller: Caller) -> v1.RefreshTokenResponse:
        """See Registration."""
        raise NotImplementedError

    def note_wipe(self, caller: Caller) -> None:
        """No catalogue knows the device."""


class _Breaking:
    """Transactions that fail on demand where they would commit."""

    def __init__(self, inner: Any, failing: Callable[[], bool]) -> None:
        self._inner = inner
        self._failing = failing

    @contextmanager
    def begin(self) -> Iterator[Any]:
        with self._inner.begin() as transaction:
            yield transaction
            if self._failing():
                raise OSError("the disk is gone")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
