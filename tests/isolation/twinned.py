"""A tenant alone in a shard and among its twins, and what notices that a statement forgets whose it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import grpc
from sqlalchemy.sql import ClauseElement

from server.app import App
from server.config import Settings
from server.store.memory_store import MemoryStore
from server.store.rows import StreamKey
from server.store.transaction import Transaction, Transactions
from tenants.tenant import Incarnation
from tests.chat_server import ChatServer
from tests.isolation import steps_reading, steps_writing
from tests.isolation.fields import Kind
from tests.isolation.filling import filled
from tests.isolation.guards import Held
from tests.isolation.reads import told
from tests.isolation.twins import (
    BARE,
    FULL,
    Asked,
    Outcome,
    Rows,
    Step,
    opened,
    other_id,
    outcome,
    plant,
    read_rows,
    twins,
)
from tests.isolation.world import World, catalogue_engine, one_database

STEPS: dict[str, Step] = {**steps_reading.STEPS, **steps_writing.STEPS}
_RUNNERS = ("first", "all", "run", "run_many", "first_of_each")
"""What runs a statement."""


def lone(settings: Settings) -> World:
    """A server that had one tenant, and ended: it is all that there is."""
    with ExitStack() as stack:
        chat = stack.enter_context(ChatServer())
        chosen = {"chat_base_url": chat.base_url, "chat_model": "talker", "chat_api_key": "chat-secret"}
        given = one_database(settings).model_copy(update=Settings(**chosen).model_dump(include=set(chosen)))
        app = stack.enter_context(App(given))
        assert app.first_credentials is not None
        platform = app.first_credentials.admin.secret
        channel = stack.enter_context(grpc.insecure_channel(app.address))
        catalogue = catalogue_engine(given)
        stack.callback(catalogue.dispose)
        home = filled(channel, platform, "home", "home", catalogue)
        return World(one_database(settings), platform, home.known, [], told(home))


def rows_of(world: World) -> Rows:
    """What the world's tenant has in its shard."""
    return read_rows(world.settings.shards, str(world.home.values[Kind.LIFE][0]))


def tenant(world: World) -> Asked:
    """The world's tenant with a row in every table of a shard."""
    life = Incarnation(str(world.home.values[Kind.LIFE][0]))
    asked = Asked(StreamKey(life, FULL), rows_of(world))
    _fill(asked)
    return asked


def _fill(asked: Asked) -> None:
    """What a tenant has only while something is done to it: all of it at once."""
    rows, life = asked.rows, {"incarnation": asked.life}
    stream = {**life, "stream": asked.key.stream}
    ended = rows["jobs"][0]
    for n, (state, lease_until) in enumerate(((2, 5), (1, 0))):
        open_job = {"id": other_id(f"job {n}"), "state": state, "lease_until": lease_until, "fence": n}
        rows["jobs"].append({**ended, **open_job, "ended_at": None, "request": b"asked"})
    answer = rows["requests"][0]
    rows["requests"] += [
        {**answer, "request_id": "of alice", "stream": asked.key.stream},
        {**answer, "request_id": "of several", "stream": None, "response": b"of alice and bob"},
    ]
    rows["erasures"].append({**stream, "began_at": 5, "finished_at": None, "swept": "{}"})
    rows["imports"].append({**life, "operation_id": other_id("import"), "place": 0})
    moved = {"state": 1, "operation_id": "move", "fence": 1, "highest": 1, "changed_at": 1}
    rows["moves"].append({**life, **moved})
    rows["purges"].append({**life, "began_at": 1, "highest": 1, "swept": '{"jobs": 1}'})
    rows["touched"].append({**life, "entry": "e", "table_name": "erasures", "key": '["user:alice"]'})
    rows["unlinked"].append(stream)
    rows["streams"].append({**rows["streams"][0], "stream": BARE})
    (without, *_) = (row for row in rows["vectors"] if row["stream"] == FULL)
    rows["vectors"].remove(without)


@dataclass(frozen=True)
class Pair:
    """The tenant alone, and among its twins; what comes of each step alone, and which statements it runs."""

    asked: Asked
    urls: tuple[str, str]
    alone: Transactions
    among: Transactions
    expected: dict[str, Outcome]
    statements: dict[str, set[int]]
    foreign: frozenset[tuple[object, ...]]
    """All that the twins have."""

    def differs(self, name: str) -> bool:
        """Whether the twins make a difference to a step, or the step to them."""
        came, expected = outcome(self.among, STEPS[name], self.asked), self.expected[name]
        return (came.answer, came.own, came.foreign) != (expected.answer, expected.own, self.foreign)

    def running(self, held: Held) -> list[str]:
        """The steps that run a statement."""
        return [name for name, ids in self.statements.items() if id(held.statement) in ids]

    def notices(self, held: Held) -> str | None:
        """The first step that notices that the statement forgets whose rows it is about; None where nobody
        does. AssertionError where it does not even run alone."""
        with held.widened():
            for name in self.running(held):
                if outcome(self.alone, STEPS[name], self.asked) != self.expected[name]:
                    raise AssertionError(f"{held.path} is broken in another way")
                if self.differs(name):
                    return name
        return None


def migrated(url: str) -> str:
    """The URL of a shard that has its tables now."""
    with MemoryStore(url) as store:
        store.migrate()
    return url


@contextmanager
def paired(asked: Asked, alone: str, among: str) -> Iterator[Pair]:
    """The pair in two shards, given by their URLs, whose tables are empty."""
    before, behind = twins(asked.rows)
    plant(alone, asked.rows)
    plant(among, before, asked.rows, behind)
    with opened(alone) as one, opened(among) as other:
        expected: dict[str, Outcome] = {}
        statements: dict[str, set[int]] = {}
        for name, step in STEPS.items():
            with _noted() as noted:
                expected[name] = outcome(one, step, asked)
            statements[name] = noted
        foreign = outcome(other, lambda *_: None, asked).foreign
        yield Pair(asked, (alone, among), one, other, expected, statements, foreign)


@contextmanager
def _noted() -> Iterator[set[int]]:
    """The statements that are run in the block, by their identity."""
    found: set[int] = set()

    def noting(run: Any) -> Any:
        def noted(self: Transaction, statement: ClauseElement, values: Any) -> Any:
            found.add(id(statement))
            return run(self, statement, values)

        return noted

    with ExitStack() as stack:
        for name in _RUNNERS:
            stack.enter_context(patch.object(Transaction, name, noting(getattr(Transaction, name))))
        yield found
