"""A tenant among twins, whose ids, stamps and streams are its own: nothing of theirs is read, nor written.

Each statement that compares lives is run once more without doing so, and that is noticed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from scrubjay.memory import ClientId, Viewer
from server.config import Settings
from server.store.memory_store import MemoryStore
from tests.isolation.guards import STATEMENTS
from tests.isolation.reads import told
from tests.isolation.twinned import STEPS, Pair, lone, migrated, paired, rows_of, tenant
from tests.isolation.twins import BEFORE, BEHIND, Asked, plant, twins
from tests.isolation.world import AHEAD, Clock, World, leave, served, stored_of
from tests.postgres import PostgresServer

OF_POSTGRESQL = " on PostgreSQL"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder: Path = tmp_path_factory.mktemp("twinned")
    return lone(Settings(listen="127.0.0.1:0", data_dir=folder / "data", embedder="hash"))


@pytest.fixture(scope="module")
def asked(world: World) -> Asked:
    return tenant(world)


@pytest.fixture(scope="module")
def sqlite(asked: Asked, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder: Path = tmp_path_factory.mktemp("twins")
    urls = [migrated(f"sqlite:///{folder / name}.db") for name in ("alone", "among")]
    with paired(asked, *urls) as pair:
        yield pair


@pytest.fixture(scope="module")
def postgresql(asked: Asked, postgres: PostgresServer, shard_template: str) -> Iterator[Pair]:
    urls = [postgres.create(shard_template) for _ in range(2)]
    with paired(asked, *urls) as pair:
        yield pair
    for url in urls:
        postgres.drop(url)


@pytest.fixture(params=["sqlite", "postgresql"])
def pair(request: pytest.FixtureRequest) -> Pair:
    made: Pair = request.getfixturevalue(request.param)
    return made


def test_a_tenant_has_something_in_every_table(asked: Asked) -> None:
    assert not [name for name, rows in asked.rows.items() if not rows]


def test_every_step_can_be_done(pair: Pair) -> None:
    assert not {name: came.answer for name, came in pair.expected.items() if not came.own}


def test_twins_change_no_answer_and_stay_as_they_are(pair: Pair) -> None:
    assert not [name for name in STEPS if pair.differs(name)]


def test_a_server_answers_a_tenant_among_twins_as_alone_and_takes_nothing_of_theirs(
    world: World, asked: Asked
) -> None:
    plant(world.settings.shards, *twins(rows_of(world)))
    clock, lives = Clock(AHEAD), [*BEFORE, *BEHIND]
    with served(world, clock) as home:
        now, stored = told(home), stored_of(world.settings, lives)
        for name, answer in world.before.items():
            assert now[name] == answer, name
        assert len(stored["memories"]) > len(asked.rows["memories"])
        leave(home, clock, set())
        assert stored_of(world.settings, lives) == stored


def test_a_copy_of_a_stream_is_of_its_tenant_alone(pair: Pair) -> None:
    alone, among = (copied(url, pair.asked) for url in pair.urls)
    assert alone
    assert among == alone


def copied(url: str, asked: Asked) -> list[tuple[object, ...]]:
    """What a snapshot of the stream is made of."""
    file = sqlite3.connect("file::memory:", uri=True, isolation_level=None)
    with closing(file), MemoryStore(url) as store:
        file.execute("CREATE TABLE rows (id, commit_stamp, created_at, message, field_stamps)")
        store.copy_visible(file, asked.key, Viewer(ClientId("web")))
        return file.execute("SELECT * FROM rows").fetchall()


def test_every_statement_is_run(sqlite: Pair, postgresql: Pair) -> None:
    for held in STATEMENTS.values():
        pair = postgresql if OF_POSTGRESQL in held.path else sqlite
        assert pair.running(held), f"add a step to tests/isolation that runs {held.path}"


def test_a_statement_that_forgets_its_tenant_is_noticed(pair: Pair) -> None:
    missed = [held.path for held in STATEMENTS.values() if pair.running(held) and not pair.notices(held)]
    assert not missed
