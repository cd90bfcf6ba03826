"""A tenant learns nothing of another: not that it is there, not what it has, not from any RPC or field."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from server.config import Settings
from tests.isolation.fields import kind_of, leaves, text_of
from tests.isolation.home import Home
from tests.isolation.lines import RPCS, call
from tests.isolation.reads import told
from tests.isolation.requests import ROWS
from tests.isolation.walk import Nothing, cases, check, outcome
from tests.isolation.world import AHEAD, Clock, World, build, leave, logged, served, stored_of


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The tenants, on each database; both are filled alike."""
    folder: Path = tmp_path_factory.mktemp("isolation")
    settings = Settings(listen="127.0.0.1:0", data_dir=folder / "data", embedder="hash")
    if request.param == "sqlite":
        yield build(settings)
        return
    postgres = request.getfixturevalue("postgres")
    url = postgres.create()
    whole = build(settings.model_copy(update={"shards": url}))
    # It is slower, and the statements are the same: some of the others stand for all of them.
    yield replace(whole, others=[one for one in whole.others if one.name in ("live", "homeone")])
    postgres.drop(url)


@pytest.fixture(scope="module")
def clock() -> Clock:
    """The server's clock, which the last test moves."""
    return Clock(AHEAD)


@pytest.fixture(scope="module")
def home(world: World, clock: Clock) -> Iterator[Home]:
    """The tenant that looks at the others."""
    with served(world, clock) as home:
        yield home


def test_every_field_is_classified() -> None:
    for name, rpc in RPCS.items():
        for path in leaves(rpc):
            assert kind_of(path) is not None, (
                f"say in tests/isolation/fields.py what {name} {text_of(path)} takes"
            )


def test_every_rpc_has_a_row() -> None:
    missing = RPCS.keys() - ROWS.keys()
    assert not missing, f"give {sorted(missing)} a row in tests/isolation/requests.py"
    assert not ROWS.keys() - RPCS.keys()


def test_what_others_have_changes_no_answer(world: World, home: Home) -> None:
    now = told(home, world.marks())
    for name, answer in world.before.items():
        assert now[name] == answer, name


def test_every_kind_of_id_is_there_to_be_put(world: World) -> None:
    walked = {case.kind for case in cases(world.others)}
    for them, kind in itertools.product(world.others, walked):
        assert them.of(kind, "MemoryService/List"), (them.name, kind)


def test_what_is_anothers_is_what_never_was(world: World, home: Home) -> None:
    marks, lives = world.marks(), world.lives()
    stored = stored_of(world.settings, lives)
    with logged() as records:
        known: Nothing = {}
        counts = [(check(case, home, marks, known), case) for case in cases(world.others)]
    walked = {(case.name, text_of(case.path)) for count, case in counts if count}
    assert {(case.name, text_of(case.path)) for _, case in counts} == walked
    canaries = [one.canary for one in (*world.others, world.home)]
    said = [str(record.__dict__) for record in records]
    assert not [line for line in said if any(canary in line for canary in canaries)]
    assert stored_of(world.settings, lives) == stored


def test_its_own_requests_are_answered(home: Home) -> None:
    home.made.clear()  # an EraseSubject deletes exports
    for name, rows in ROWS.items():
        for row in rows:
            came = home.call(row.caller, name, row.request(home))
            assert came.ok is not bool(row.refused), (name, row.caller, came.code, came.message)


def test_what_a_life_was_given_opens_nothing_in_the_next(world: World, home: Home) -> None:
    rpcs = (
        "MemoryService/List",
        "TenantAdminService/GetTenant",
        "SyncService/Sync",
        "SyncService/RegisterDevice",
    )
    gone = [one for one in world.others if not one.alive]
    for them, name in itertools.product(gone, rpcs):
        request = ROWS[name][0].request(home)
        for what, key in them.keys.items():
            came = call(home.channel, key, RPCS[name], request)
            never = call(home.channel, key[:-9] + "0" * 9, RPCS[name], request)
            assert not came.ok, (them.name, what, name)
            assert outcome(came, "") == outcome(never, ""), (them.name, what, name)


def test_what_goes_takes_nothing_of_others(world: World, home: Home, clock: Clock) -> None:
    lives = world.lives()
    stored = stored_of(world.settings, lives)
    leave(home, clock, world.marks())
    assert stored_of(world.settings, lives) == stored
