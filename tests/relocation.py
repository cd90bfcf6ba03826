"""Two shards and a catalogue, and a tenant that moves from one to the other phase by phase."""

from __future__ import annotations

import os
import random
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Boolean, Column, Double, Integer, LargeBinary, Text

from scrubjay.memory import Micros
from server.operations.conductor import Later, Task
from server.operations.moving import Mover, Waits
from server.passage import Passage
from server.router import Router
from server.shard import Shard
from server.store.memory_store import MemoryStore
from server.store.moved_rows import MOVED_TABLES, Key, key_of
from server.store.tables import metadata
from server.store.transaction import Row
from tenants.database import migrate, open_engine
from tenants.operation import Kind, TenantOperation
from tenants.registry import SCRIPTS, VERSION_TABLE, Registry, RequestKey
from tenants.tenant import Incarnation, Tenant
from tests.devices import ACME, Server
from tests.postgres import PostgresServer

PAIRS = ("sqlite-sqlite", "postgresql-postgresql", "sqlite-postgresql", "postgresql-sqlite")
AT_ONCE = Waits(0, 0, 0)
Change = Callable[[], object]


@dataclass
class Relocation:
    """A tenant with its two shards: ``here``, and ``there``, where it goes."""

    here: Server
    there: Server
    registry: Registry
    passage: Passage = field(init=False)

    def __post_init__(self) -> None:
        self.here.shard.name, self.there.shard.name = "here", "there"
        self.shards = {"here": self.here.shard, "there": self.there.shard}
        self.passage = Passage(self.shards, self.registry.living)
        for server in (self.here, self.there):
            for service in (server.memories, server.sync):
                service._router = Router(self.shards)
        self.follow_catalogue()

    @property
    def tenant(self) -> Tenant:
        return self.registry.get_tenant("acme")

    @property
    def incarnation(self) -> Incarnation:
        return self.tenant.incarnation

    def follow_catalogue(self) -> None:
        """Let calls go to where the tenant is."""
        space = self.here.tenant.space
        for server in (self.here, self.there):
            server.tenant = replace(self.tenant, space=space)

    def mover(self, waits: Waits = AT_ONCE) -> Mover:
        clock = lambda: self.here.now  # noqa: E731 - a name for it would say no more
        return Mover(self.shards, self.registry.placing, self.registry.living, self.passage, clock, waits)

    def begin(self, shard: str = "there") -> TenantOperation:
        request, asked = RequestKey(""), {"shard": shard}
        return self.registry.operations.begin(Kind.MOVE, "acme", asked, now=self.here.now, request=request)

    def taken(self) -> Task:
        """The open operation, taken up by a server."""
        now = self.here.now
        found = self.registry.operations.take(now, now, ())
        assert found is not None
        return Task(found, self.registry.operations, self.registry.living, lambda: self.here.now)

    def run(self, task: Task, between: Change = lambda: None, until: str = "") -> None:
        """Go through the phases from where it stands, as a conductor does, until before the phase named."""
        plan = self.mover().plan()
        names = [phase.name for phase in plan.phases]
        first = names.index(task.operation.phase) if task.operation.phase else 0
        for phase in plan.phases[first:]:
            if phase.name == until:
                return
            task._enter(phase.name, cancellable=phase.cancellable)
            while True:
                try:
                    phase.run(task)
                    break
                except Later:
                    continue
            if phase.name in ("copy", "follow"):
                between()
        self.end(task)

    def end(self, task: Task) -> None:
        from tenants.operation import OperationState

        task._end(OperationState.SUCCEEDED)
        self.follow_catalogue()

    def roll_back(self, task: Task) -> None:
        from tenants.operation import OperationState

        self.mover().plan().roll_back(task)
        task._end(OperationState.CANCELLED)

    def move(self, shard: str = "there", between: Change = lambda: None) -> None:
        """All of it."""
        self.begin(shard)
        self.run(self.taken(), between)


@contextmanager
def relocation(pair: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Relocation]:
    """A tenant on a shard of the pair's first kind, and a shard of the second beside it."""
    with ExitStack() as stack:
        urls = [
            stack.enter_context(_database(kind, n, request, tmp_path))
            for n, kind in enumerate(pair.split("-"))
        ]
        engine = open_engine(f"sqlite:///{tmp_path / 'catalogue.db'}")
        stack.callback(engine.dispose)
        migrate(engine, SCRIPTS, VERSION_TABLE)
        here, there = (stack.enter_context(Server(url, tmp_path / str(n))) for n, url in enumerate(urls))
        given = [uuid.UUID(ACME).bytes]
        registry = Registry(
            engine,
            pepper=b"p" * 32,
            shard_names=["here"],
            space=here.embedder.space.id,
            entropy=lambda count: given.pop() if given else os.urandom(count),
        )
        registry.create_tenant("acme", "", now=here.now)
        registry.placing.names = frozenset({"here", "there"})
        yield Relocation(here, there, registry)


@contextmanager
def _database(kind: str, number: int, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if kind == "sqlite":
        path = tmp_path / f"shard-{number}.db"
        shutil.copyfile(request.getfixturevalue("shard_file"), path)
        yield f"sqlite:///{path}"
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    url = server.create(request.getfixturevalue("shard_template"))
    yield url
    server.drop(url)


# --- rows -----------------------------------------------------------------------------------------


def rows_of(shard: Shard, incarnation: Incarnation = ACME) -> dict[str, list[Row]]:
    """Every row of a tenant in a shard, by table and key, as both databases would give it."""
    found = {}
    with shard._store.reading_moves() as reading:
        for table in MOVED_TABLES:
            rows = reading.page(incarnation, table, None, 1 << 30)
            same = [tuple(int(v) if isinstance(v, bool) else v for v in row) for row in rows]
            found[table] = sorted(same, key=lambda row: repr(key_of(table, row)))
    return found


def states_of(shard: Shard, incarnation: Incarnation = ACME) -> list[object]:
    """What a shard keeps of the tenant's moves: its state, how many notes of writes, which triggers."""
    with shard._store.reading_moves() as reading:
        followed = [table for table in MOVED_TABLES if reading.is_followed(incarnation, table)]
        return [reading.state(incarnation), len(reading.touched(incarnation, 1000)), followed]


@dataclass
class AnyRows:
    """Rows of every table, made, written over and deleted by the dice."""

    store: MemoryStore
    dice: random.Random
    keys: dict[str, list[Key]] = field(default_factory=lambda: {name: [] for name in MOVED_TABLES})

    def change(self) -> None:
        """Something happens to some rows of every table."""
        for table in MOVED_TABLES:
            self._put(table, [self._row(table) for _ in range(self.dice.randrange(3))])
            known = self.keys[table]
            for key in self.dice.sample(known, min(len(known), 3)):
                if self.dice.random() < 0.5:
                    self._put(table, [self._row(table, key)])
                else:
                    with self.store.moving() as moving:
                        moving.delete(ACME, table, [key])

    def _put(self, table: str, rows: list[Row]) -> None:
        with self.store.moving() as moving:
            moving.put(table, rows)
        self.keys[table] += [key_of(table, row) for row in rows if key_of(table, row) not in self.keys[table]]

    def _row(self, table: str, key: Key | None = None) -> Row:
        columns = metadata.tables[table].c
        names = [column.name for column in metadata.tables[table].primary_key if column.name != "incarnation"]
        given = dict(zip(names, key, strict=True)) if key is not None else {}
        values = {"incarnation": ACME, **given}
        return tuple(
            values[column.name] if column.name in values else self._value(column) for column in columns
        )

    def _value(self, column: Column[Any]) -> Any:
        if column.nullable and self.dice.random() < 0.3:
            return None
        if isinstance(column.type, Boolean):
            return self.dice.random() < 0.5
        if isinstance(column.type, Integer):
            small = "SMALL" in str(column.type)
            return self.dice.randrange(1 << 15 if small else 1 << 62)
        if isinstance(column.type, Double):
            return self.dice.choice((0.1, -1e300, 2.0))
        if isinstance(column.type, LargeBinary):
            return self.dice.randbytes(self.dice.choice((0, 16, 400)))
        if isinstance(column.type, Text):
            return self.dice.choice(
                ("", "绿茶 \U0001f375", 'it\'s "so"\n\\x', "user:alice")
            ) + self.dice.choice("abc")
        return str(uuid.UUID(bytes=self.dice.randbytes(16), version=4))


__all__ = [
    "ACME",
    "PAIRS",
    "AnyRows",
    "Micros",
    "Relocation",
    "closing",
    "relocation",
    "rows_of",
    "states_of",
]
