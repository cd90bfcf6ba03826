"""Workers: each job is done once, whoever dies, by whoever holds its lease."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from scrubjay import v1
from scrubjay.errors import Unavailable
from scrubjay.memory import ClientId, Micros
from server.index.cache import StreamCache
from server.index.shelf import Shelf
from server.operations import workers
from server.operations.workers import LEASE_SECONDS, MOST_TAKEN, Report, Workers
from server.services.operations import bare
from server.shard import Request, Shard
from server.store.jobs import Job, Lease, Progress
from server.store.memory_store import MemoryStore, StreamKey, Writing
from tenants.operation import OperationState
from tenants.tenant import Incarnation, Tenant, TenantState
from tests.stored import SPACE, insert, memory
from tests.waiting import patiently

LIFE = Incarnation("00000000-0000-4000-8000-000000000001")
KEY = StreamKey(LIFE, "user:alice")
TENANT = Tenant("acme", "", LIFE, TenantState.ACTIVE, "main", SPACE, Micros(0))
PATIENCE_SECONDS = 20


until = patiently(PATIENCE_SECONDS)


@dataclass
class Host:
    """A server's share of the work: its own way to the database, workers, and work that is held back."""

    shard: Shard
    clock: list[Micros]
    tenant: list[Tenant]
    asked: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    added: threading.Event = field(default_factory=threading.Event)
    free: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None

    def begin(self) -> Workers:
        return Workers([self.shard], lambda _: self.tenant[0], {"Add": self.work}, self.now, self.added)

    def now(self) -> Micros:
        return self.clock[0]

    def work(self, job: Job, _tenant: Tenant, report: Report) -> None:
        """Write a memory, and the end of the job with it."""
        self.asked.append(job.id)
        report(Progress("at work", 1, 2))
        assert self.free.wait(PATIENCE_SECONDS)
        if self.error is not None:
            raise self.error
        errand = self.shard.errand(job, bare, self.now)
        one = memory(user_id="alice", content=f"of {job.id}")

        def unit(writing: Writing) -> v1.AddResponse:
            insert(writing, KEY, [one])
            return v1.AddResponse(revision="r")

        self.shard.write(errand, [job.key], v1.AddResponse, unit)

    def acknowledge(self) -> str:
        """A job, as an Add leaves it."""
        now = self.now()
        job = Job(
            str(uuid.uuid4()),
            KEY,
            kind="Add",
            client_id=ClientId("phone"),
            actor="key",
            role="SERVICE",
            request_id="",
            private_to="",
            created_at=now,
            updated_at=now,
            progress=Progress("", 0, 2),
            request=b"asked",
        )
        self.shard.begin_job(Request(LIFE, "", b"", now), job, v1.AddResponse(operation_id=job.id))
        self.added.set()
        return job.id

    def job(self, job_id: str) -> Job:
        found = self.shard.job(LIFE, job_id)
        assert found is not None
        return found

    def ended(self, job_id: str) -> bool:
        return self.job(job_id).state.ended

    def contents(self) -> list[str]:
        with self.shard._store.read() as reading:
            return [one.memory.content for one in reading.page(KEY, None, 100)]


@pytest.fixture
def host(shard_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Host]]:
    """Makes hosts on one database, with one clock, that look for work all the time."""
    monkeypatch.setattr(workers, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(workers, "RENEW_SECONDS", 0.02)
    clock, tenant = [Micros(1_796_000_000_000_000)], [TENANT]
    with ExitStack() as stack:

        def made() -> Host:
            store = stack.enter_context(MemoryStore(shard_url))
            shelf = Shelf(tmp_path / "index")
            cache = StreamCache(store, shelf, {SPACE: 4}, budget_bytes=1 << 20)
            stack.callback(cache.close)
            host = Host(Shard("main", store, cache), clock, tenant)
            stack.callback(host.free.set)
            return host

        yield made


def test_a_job_is_done_and_ends_with_what_it_wrote(host: Callable[[], Host]) -> None:
    one = host()
    one.free.set()
    workers = one.begin()
    job_id = one.acknowledge()
    until(lambda: one.ended(job_id))
    workers.close()
    job = one.job(job_id)
    assert (job.state, job.fence, job.request, job.progress) == (
        OperationState.SUCCEEDED,
        1,
        b"",
        Progress("", 2, 2),
    )
    assert v1.AddResponse.FromString(job.answer).revision == "r"
    assert one.contents() == [f"of {job_id}"]


def test_progress_is_written_with_the_lease(host: Callable[[], Host]) -> None:
    one = host()
    workers = one.begin()
    job_id = one.acknowledge()
    until(lambda: one.job(job_id).progress == Progress("at work", 1, 2))
    one.free.set()
    workers.close()


def test_who_lost_the_lease_writes_nothing(host: Callable[[], Host]) -> None:
    stale, other = host(), host()
    first = stale.begin()
    job_id = stale.acknowledge()
    until(lambda: bool(stale.asked))
    first._renewal.close()  # as if its process stood still
    stale.clock[0] = Micros(stale.clock[0] + (LEASE_SECONDS + 1) * 1_000_000)
    taken = other.shard.take_job(LIFE, job_id, other.now(), Micros(other.now() + 1_000_000))
    assert taken is not None
    assert taken.fence == 2
    stale.free.set()
    first.close()
    assert stale.contents() == []
    assert stale.job(job_id).state is OperationState.RUNNING
    other.shard.release_jobs([Lease.of(taken)])
    second = other.begin()
    other.free.set()
    until(lambda: other.ended(job_id))
    second.close()
    assert other.contents() == [f"of {job_id}"]
    assert other.job(job_id).fence == 3


def test_a_lease_that_is_held_is_held_for_as_long_as_the_work_takes(host: Callable[[], Host]) -> None:
    one, other = host(), host()
    first = one.begin()
    job_id = one.acknowledge()
    until(lambda: bool(one.asked))
    for _ in range(5):
        renewed = one.now()
        until(lambda renewed=renewed: one.job(job_id).updated_at >= renewed)
        one.clock[0] = Micros(one.clock[0] + (LEASE_SECONDS - 1) * 1_000_000)
        assert other.shard.take_job(LIFE, job_id, other.now(), other.now()) is None
    one.free.set()
    until(lambda: one.ended(job_id))
    first.close()
    assert one.job(job_id).fence == 1


def test_a_server_that_stops_leaves_its_work_to_others_at_once(
    host: Callable[[], Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "STOP_SECONDS", 0.05)
    stopping, other = host(), host()
    first = stopping.begin()
    job_id = stopping.acknowledge()
    until(lambda: bool(stopping.asked))
    first.close()
    other.free.set()
    second = other.begin()
    until(lambda: other.ended(job_id))
    second.close()
    stopping.free.set()
    until(lambda: not first._at_work())
    assert other.contents() == [f"of {job_id}"]


def test_a_job_that_brings_its_server_down_is_not_tried_for_ever(host: Callable[[], Host]) -> None:
    one = host()
    job_id = one.acknowledge()
    for _ in range(MOST_TAKEN):
        taken = one.shard.take_job(LIFE, job_id, one.now(), one.now())
        assert taken is not None
    workers = one.begin()
    until(lambda: one.ended(job_id))
    workers.close()
    job = one.job(job_id)
    assert job.state is OperationState.FAILED
    assert v1.OperationError.FromString(job.error).reason == v1.ERROR_REASON_INTERNAL
    assert one.asked == []


def test_what_the_database_did_not_take_is_tried_again(host: Callable[[], Host]) -> None:
    one = host()
    one.error = Unavailable("the database does not answer")
    one.free.set()
    workers = one.begin()
    job_id = one.acknowledge()
    until(lambda: bool(one.asked) and not workers._at_work())
    assert one.job(job_id).state is OperationState.RUNNING
    one.error = None
    one.clock[0] = Micros(one.clock[0] + (LEASE_SECONDS + 1) * 1_000_000)
    until(lambda: one.ended(job_id))
    workers.close()
    assert one.job(job_id).state is OperationState.SUCCEEDED
    assert one.contents() == [f"of {job_id}"]


def test_the_work_of_a_suspended_tenant_waits(host: Callable[[], Host]) -> None:
    one = host()
    one.free.set()
    one.tenant[0] = replace(TENANT, state=TenantState.SUSPENDED)
    workers = one.begin()
    job_id = one.acknowledge()
    until(lambda: not one.added.is_set())
    assert one.job(job_id).state is OperationState.PENDING
    one.tenant[0] = TENANT
    until(lambda: one.ended(job_id))
    workers.close()


@pytest.mark.parametrize("backend", ["postgresql"])
def test_two_servers_share_the_work_and_do_each_job_once(host: Callable[[], Host]) -> None:
    one, other = host(), host()
    both = [one.begin(), other.begin()]
    jobs = [one.acknowledge() for _ in range(12)]
    until(lambda: len(one.asked) == len(other.asked) == 4)
    one.free.set()
    other.free.set()
    until(lambda: all(one.ended(job_id) for job_id in jobs))
    for each in both:
        each.close()
    assert sorted(one.asked + other.asked) == sorted(jobs)
    assert sorted(one.contents()) == sorted(f"of {job_id}" for job_id in jobs)
    assert {one.job(job_id).fence for job_id in jobs} == {1}
