"""Moving a tenant between shards of either kind: whole, wherever it is cut, and unnoticed."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scrubjay import v1
from scrubjay.memory import Micros
from server.heads import HeadMarks
from server.operations.conductor import Later
from server.operations.moving import KNOWN_SECONDS, WAITS
from server.shard import Shard
from server.shard import moving as moves
from server.shard.elsewhere import Elsewhere
from server.store.fence import MoveState, TenantMoving
from server.store.moving import Hold, MoveTaken
from tests.devices import KEY
from tests.killing import Killed
from tests.life import Life
from tests.relocation import ACME, PAIRS, AnyRows, Relocation, relocation, rows_of, states_of

NOWHERE: list[object] = [None, 0, []]
"""How a shard stands to a tenant that does not move."""


TWO_PAIRS = pytest.mark.parametrize("pair", ["sqlite-sqlite", "postgresql-postgresql"], indirect=True)


@pytest.fixture(params=PAIRS)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Relocation]:
    with relocation(request.param, request, tmp_path) as made:
        yield made


@pytest.fixture
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Relocation]:
    with relocation("sqlite-sqlite", request, tmp_path) as made:
        yield made


def got(pair: Relocation, memory_id: str) -> str:
    """The content of a memory, for a backend."""
    answer = pair.here.memories.get(v1.GetRequest(id=memory_id), pair.here.service())
    return v1.GetResponse.FromString(bytes(answer)).memory.content


def test_rows_of_every_table_arrive_as_they_are_in_the_end(
    pair: Relocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moves, "PAGE", 7)
    anything = AnyRows(pair.here.store, random.Random(4))
    for _ in range(8):
        anything.change()
    page = pair.here.shard.row_page

    def changed(*given: object) -> object:
        found = page(*given)  # type: ignore[arg-type]  # as they came
        if anything.dice.random() < 0.2:
            anything.change()
        return found

    monkeypatch.setattr(pair.here.shard, "row_page", changed)
    pair.begin()
    task = pair.taken()
    pair.run(task, between=anything.change, until="switch")
    whole = rows_of(pair.here.shard)
    assert all(whole.values())
    assert rows_of(pair.there.shard) == whole
    pair.run(task)
    assert rows_of(pair.there.shard) == whole
    assert not any(rows_of(pair.here.shard).values())
    assert states_of(pair.here.shard) == [MoveState.GONE, 0, []]
    assert states_of(pair.there.shard) == NOWHERE


@pytest.mark.parametrize("pair", ["sqlite-sqlite", "sqlite-postgresql"], indirect=True)
def test_a_life_goes_on_where_the_tenant_is(pair: Relocation) -> None:
    """Devices' cursors and chains stay good, and their digests are those of the new place."""
    life = Life(pair.here, random.Random(7))

    def live(steps: int = 8) -> None:
        for _ in range(steps):
            life.step()

    live(40)
    for shard, other in (("there", "here"), ("here", "there")):
        pair.move(shard, between=live)
        assert not any(rows_of(pair.shards[other]).values())
        live()
        for device in life.devices:
            device.pull()
            digest = device.sync(include_digest=True).response.digest
            assert digest
        assert pair.tenant.shard == shard
    assert not any(device.cursor == "" for device in life.devices)


@TWO_PAIRS
def test_who_writes_is_refused_from_the_close_on_and_who_reads_from_the_switch_on(pair: Relocation) -> None:
    web = pair.here.service()
    first = v1.AddRequest(memories=[v1.Memory(user_id="alice", content="tea")])
    added = pair.here.memories.add(first, web).results[0].memory
    pair.begin()
    task = pair.taken()
    pair.run(task, until="switch")
    pair.follow_catalogue()
    with pytest.raises(TenantMoving):
        pair.here.memories.add(first, web)
    assert got(pair, added.id) == "tea"
    hold = Hold(ACME, task.operation.operation_id, task.operation.fence)
    pair.here.shard.end_reading(hold, pair.here.now)
    with pytest.raises(TenantMoving):
        got(pair, added.id)
    pair.run(task)
    assert got(pair, added.id) == "tea"
    with pytest.raises(TenantMoving):  # from a server that has not heard of the move
        pair.here.shard._store.write([KEY], lambda _: None)


STEPS = [
    *("begin_leaving", "begin_arriving", "row_page", "take_rows", "pass_on_touched", "close_to_writers"),
    *("end_reading", "settle", "end_following", "delete_rows", "compact"),
]


@pytest.mark.parametrize(
    ("step", "when"),
    [
        *((step, "after") for step in STEPS),
        *((step, "before") for step in ("take_rows", "end_reading", "settle")),
    ],
)
def test_a_move_that_is_cut_anywhere_goes_on(
    files: Relocation, monkeypatch: pytest.MonkeyPatch, step: str, when: str
) -> None:
    monkeypatch.setattr(moves, "PAGE", 9)
    life = Life(files.here, random.Random(11))
    for _ in range(25):
        life.step()
    whole = _cut(files, monkeypatch, step, when, life.step)
    assert rows_of(files.there.shard) == whole
    assert not any(rows_of(files.here.shard).values())
    assert (states_of(files.here.shard), states_of(files.there.shard)) == ([MoveState.GONE, 0, []], NOWHERE)
    assert (files.tenant.shard, files.tenant.moving) == ("there", False)


def _cut(
    files: Relocation, monkeypatch: pytest.MonkeyPatch, step: str, when: str, between: Callable[[], object]
) -> object:
    """Move the tenant, killed at one call of the step after the other; the rows that it had when it left."""
    files.begin()
    left: list[object] = []
    original, end_reading = getattr(Shard, step), Shard.end_reading
    calls = [0, 0]

    def ending(self: Shard, *given: Any) -> None:
        left[:] = left or [rows_of(files.here.shard)]
        end_reading(self, *given)

    def killed(self: Shard, *given: Any) -> object:
        calls[0] += 1
        due = calls[0] == calls[1] + 1
        if due and when == "before":
            raise Killed
        made = (ending if step == "end_reading" else original)(self, *given)
        if due:
            raise Killed
        return made

    monkeypatch.setattr(Shard, "end_reading", ending)
    monkeypatch.setattr(Shard, step, killed)
    for calls[1] in (0, 1, 2, -2):
        calls[0] = 0
        try:
            files.run(files.taken(), between)
        except Killed:
            for server in (files.here, files.there):  # what a new process reads anew
                server.shard._elsewhere = Elsewhere(server.store)
            continue
        return left[0]
    raise AssertionError("it is not killed in the last round")


@pytest.mark.parametrize(
    ("pair", "until"),
    [
        *(("sqlite-sqlite", until) for until in ("follow", "close", "switch")),
        ("postgresql-postgresql", "switch"),
    ],
    indirect=["pair"],
)
def test_what_is_taken_back_leaves_nothing(pair: Relocation, until: str) -> None:
    life = Life(pair.here, random.Random(3))
    for _ in range(20):
        life.step()
    pair.begin()
    task = pair.taken()
    pair.run(task, until=until)
    pair.roll_back(task)
    assert states_of(pair.here.shard) == NOWHERE
    assert states_of(pair.there.shard) == [MoveState.GONE, 0, []]
    assert not any(rows_of(pair.there.shard).values())
    assert (pair.tenant.shard, pair.tenant.moving) == ("here", False)
    for _ in range(5):
        life.step()
    whole = rows_of(pair.here.shard)
    pair.move()
    assert rows_of(pair.there.shard) == whole


def test_a_move_whose_triggers_are_gone_copies_all_again(files: Relocation) -> None:
    life = Life(files.here, random.Random(5))
    for _ in range(30):
        life.step()
    files.begin()
    task = files.taken()
    files.run(task, until="follow")
    hold = Hold(ACME, task.operation.operation_id, task.operation.fence)
    files.here.shard.end_following(hold)
    for _ in range(10):
        life.step()
    files.run(task, until="switch")
    assert rows_of(files.there.shard) == rows_of(files.here.shard)


@TWO_PAIRS
def test_what_an_earlier_holder_still_writes_is_refused(pair: Relocation) -> None:
    operation = pair.begin()
    earlier = Hold(ACME, operation.operation_id, 1)
    pair.here.shard.begin_leaving(earlier, pair.here.now)
    pair.there.shard.begin_arriving(earlier, pair.here.now)
    later = Hold(ACME, operation.operation_id, 2)
    pair.here.shard.begin_leaving(later, pair.here.now)
    pair.there.shard.begin_arriving(later, pair.here.now)
    with pytest.raises(MoveTaken):
        pair.there.shard.take_rows(earlier, {})
    with pytest.raises(MoveTaken):
        pair.here.shard.close_to_writers(earlier, pair.here.now)
    with pytest.raises(MoveTaken):
        pair.here.shard.begin_leaving(earlier, pair.here.now)
    pair.there.shard.take_rows(later, {})


def test_a_shard_that_a_tenant_left_does_not_count_as_restored(files: Relocation, tmp_path: Path) -> None:
    Life(files.here, random.Random(1)).add()
    marks = HeadMarks(tmp_path, files.shards)
    marks.write()
    files.move()
    HeadMarks(tmp_path, files.shards).write()
    assert files.here.shard.highest_head() >= marks._written["here"]


def test_accesses_that_were_counted_and_not_written_go_along(files: Relocation) -> None:
    life = Life(files.here, random.Random(2))
    life.add()
    with files.here.store.read() as reading:
        stored = reading.page(KEY, None, 10)
    memories = [one.memory for one in stored]

    def looked_at() -> None:
        files.here.shard.accesses.add(ACME, memories, files.here.now)

    files.move(between=looked_at)
    files.here.shard.accesses.add(ACME, memories, files.here.now)  # by a call that was late
    files.here.shard.accesses.write()
    files.here.shard.accesses.hand_over(ACME, files.there.shard.accesses)
    files.there.shard.accesses.write()
    with files.there.store.read() as reading:
        counts = reading.accesses(KEY, [one.id for one in memories])
    assert {count.total for count in counts.values()} == {3}


def test_a_server_lets_go_of_what_another_one_moved(
    files: Relocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.move()
    discarded: list[object] = []
    monkeypatch.setattr(files.here.shard, "discard_index", discarded.append)
    mover = files.mover()
    mover.follow(threading.Event())
    mover.follow(threading.Event())
    assert discarded == [ACME]


def test_other_servers_must_have_heard_before_a_tenant_leaves_postgresql(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with relocation("postgresql-postgresql", request, tmp_path) as pair:
        pair.begin()
        task = pair.taken()
        phases = {phase.name: phase.run for phase in pair.mover(WAITS).plan().phases}
        phases["copy"](task)
        assert pair.tenant.moving
        with pytest.raises(Later):
            phases["follow"](task)
        pair.here.now = Micros(pair.here.now + int(KNOWN_SECONDS * 1_000_000))
        phases["follow"](task)
