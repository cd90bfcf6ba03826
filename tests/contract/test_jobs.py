"""Jobs in the store: one lease at a time, and nobody writes without it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest

from scrubjay.memory import ClientId, Micros
from server.store.jobs import FIRST_TENANT, Job, Lease, LeaseLost, Outcome, Progress
from server.store.memory_store import MemoryStore, StreamKey, Writing
from tenants.operation import OperationState
from tenants.tenant import Incarnation

NOW = Micros(1_000_000)
LATER = Micros(2_000_000)
LIFE = Incarnation("00000000-0000-4000-8000-000000000001")
OTHER_LIFE = Incarnation("00000000-0000-4000-8000-000000000002")
ALICE, BOB = StreamKey(LIFE, "user/alice"), StreamKey(LIFE, "user/bob")
PHONE, DESK = ClientId("phone"), ClientId("desk")
LAST = str(uuid.UUID(int=(1 << 128) - 1))


@pytest.fixture
def store(shard_url: str) -> Iterator[MemoryStore]:
    with MemoryStore(shard_url) as store:
        yield store


def job(number: int, key: StreamKey = ALICE, **fields: object) -> Job:
    made = Job(
        str(uuid.UUID(int=number)),
        key,
        kind="Add",
        client_id=PHONE,
        actor="key",
        role="SERVICE",
        request_id=f"request {number}",
        private_to="",
        created_at=NOW,
        updated_at=NOW,
        progress=Progress("waiting", 0, 3),
        request=b"what was asked",
    )
    return replace(made, **fields)  # type: ignore[arg-type]  # of a Job's own fields


def added(store: MemoryStore, *jobs: Job) -> None:
    def unit(writing: Writing) -> None:
        for one in jobs:
            writing.add_job(one)

    store.write([], unit)


def taken(store: MemoryStore, one: Job, now: Micros = NOW) -> Job | None:
    until = Micros(now + 10)
    return store.write([], lambda writing: writing.take_job(one.key.incarnation, one.id, now, until))


def end(store: MemoryStore, lease: Lease, outcome: Outcome) -> None:
    store.write([], lambda writing: writing.end_job(lease, outcome, LATER))


def read(store: MemoryStore, one: Job) -> Job | None:
    with store.read() as reading:
        return reading.job(one.key.incarnation, one.id)


def test_a_job_is_read_as_it_was_written(store: MemoryStore) -> None:
    one = job(1, private_to="phone")
    added(store, one)
    assert read(store, one) == one
    with store.read() as reading:
        assert reading.job(OTHER_LIFE, one.id) is None


def test_one_lease_at_a_time_each_under_a_higher_fence(store: MemoryStore) -> None:
    one = job(1)
    added(store, one)
    first = taken(store, one)
    assert first is not None
    assert (first.state, first.fence) == (OperationState.RUNNING, 1)
    assert taken(store, one) is None
    second = taken(store, one, LATER)
    assert second is not None
    assert second.fence == 2
    stale, held = Lease.of(first), Lease.of(second)
    outcome = Outcome(OperationState.SUCCEEDED, b"answer")
    progress = Progress("asking", 1, 3)
    with pytest.raises(LeaseLost):
        end(store, stale, outcome)
    assert store.write([], lambda writing: writing.renew_job(stale, progress, LATER, LATER)) is False
    assert store.write([], lambda writing: writing.renew_job(held, progress, LATER, LATER)) is True
    end(store, held, outcome)
    assert read(store, one) == replace(
        second,
        state=OperationState.SUCCEEDED,
        progress=Progress("", 3, 3),
        request=b"",
        answer=b"answer",
        updated_at=LATER,
        ended_at=LATER,
    )
    assert taken(store, one, Micros(10**15)) is None


def test_a_lease_that_is_given_back_can_be_taken_at_once(store: MemoryStore) -> None:
    one, other = job(1), job(2)
    added(store, one, other)
    lease = Lease.of(taken(store, one) or one)
    taken(store, other)
    store.write([], lambda writing: writing.release_job(lease))
    assert taken(store, one) is not None
    assert taken(store, other) is None
    assert store.write([], lambda writing: writing.release_jobs()) == 2
    assert taken(store, other) is not None


@pytest.mark.parametrize("running", [False, True])
def test_a_cancelled_job_is_never_done(store: MemoryStore, running: bool) -> None:
    one = job(1)
    added(store, one)
    lease = Lease.of((running and taken(store, one)) or one)
    assert store.write([], lambda writing: writing.cancel_job(LIFE, one.id, LATER)) is True
    assert store.write([], lambda writing: writing.cancel_job(LIFE, one.id, LATER)) is False
    found = read(store, one)
    assert found is not None
    assert (found.state, found.request, found.ended_at) == (OperationState.CANCELLED, b"", LATER)
    with pytest.raises(LeaseLost):
        end(store, lease, Outcome(OperationState.SUCCEEDED))
    assert taken(store, one, LATER) is None


def test_tenants_take_turns(store: MemoryStore) -> None:
    mine = [job(n) for n in range(3)]
    other = job(9, StreamKey(OTHER_LIFE, "user/alice"))
    added(store, *mine, other)
    with store.read() as reading:
        assert reading.next_job(FIRST_TENANT, NOW) == (LIFE, mine[0].id)
        assert reading.next_job(LIFE, NOW) == (OTHER_LIFE, other.id)
        assert reading.next_job(OTHER_LIFE, NOW) is None
    taken(store, mine[0])
    with store.read() as reading:
        assert reading.next_job(FIRST_TENANT, NOW) == (LIFE, mine[1].id)
        assert reading.next_job(FIRST_TENANT, LATER) == (LIFE, mine[0].id)


def test_a_list_has_what_one_client_asked_for_newest_first(store: MemoryStore) -> None:
    added(store, job(1), job(2, BOB), job(3), job(4, client_id=DESK))
    store.write([], lambda writing: writing.cancel_job(LIFE, job(3).id, NOW))

    def listed(
        stream: str | None,
        client_id: ClientId,
        states: list[OperationState],
        before: str = LAST,
        limit: int = 9,
    ) -> list[int]:
        with store.read() as reading:
            found = reading.jobs(LIFE, stream, client_id, states, before, limit)
        return [uuid.UUID(one.id).int for one in found]

    every = list(OperationState)
    assert listed(None, PHONE, every) == [3, 2, 1]
    assert listed(None, PHONE, every, limit=2) == [3, 2]
    assert listed(None, PHONE, every, before=job(2).id) == [1]
    assert listed("user/alice", PHONE, every) == [3, 1]
    assert listed(None, PHONE, [OperationState.CANCELLED]) == [3]
    assert listed(None, DESK, every) == [4]


def test_a_forgotten_stream_keeps_nothing_of_its_jobs_but_what_others_own(store: MemoryStore) -> None:
    waits, runs, ended, private, elsewhere = (
        job(1),
        job(2),
        job(3),
        job(4, private_to="desk", client_id=DESK),
        job(5, BOB),
    )
    added(store, waits, runs, ended, private, elsewhere)
    lease = Lease.of(taken(store, runs) or runs)
    store.write([], lambda writing: writing.cancel_job(LIFE, ended.id, NOW))
    cancelled = store.write([], lambda writing: writing.forget_jobs(ALICE, PHONE, LATER))
    assert sorted(cancelled) == [waits.id, runs.id]
    for one in (waits, runs):
        found = read(store, one)
        assert found is not None
        assert (found.state, found.request) == (OperationState.CANCELLED, b"")
    with pytest.raises(LeaseLost):
        end(store, lease, Outcome(OperationState.SUCCEEDED))
    assert read(store, ended) is None
    assert read(store, private) == private
    assert read(store, elsewhere) == elsewhere


def test_what_ended_long_ago_is_collected(store: MemoryStore) -> None:
    added(store, *[job(n) for n in range(4)])
    store.write([], lambda writing: [writing.cancel_job(LIFE, job(n).id, Micros(NOW + n)) for n in range(3)])
    until = Micros(NOW + 1)
    assert store.write([], lambda writing: writing.collect_jobs(until, 1)) == 1
    assert store.write([], lambda writing: writing.collect_jobs(until, 9)) == 1
    assert [read(store, job(n)) is not None for n in range(4)] == [False, False, True, True]
