"""The workers: threads that take up jobs, a tenant in turn, and do each of them once.

Whoever takes a job holds its lease, and holds it longer while it works. Where it dies, the lease runs out and
another server takes the job up, under a higher fencing number; what the first one still writes is refused.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from scrubjay import v1
from scrubjay.errors import InternalError, ModelUnavailable, ScrubjayError, ServerBusy, Unavailable
from scrubjay.memory import Micros
from server.periodic import Periodic
from server.shard import Shard
from server.store.fence import TenantMoving
from server.store.jobs import (
    ENDED_KEPT_MICROS,
    FIRST_TENANT,
    Job,
    Lease,
    LeaseLost,
    Outcome,
    Progress,
)
from tenants.operation import OperationState
from tenants.tenant import Incarnation, Tenant, TenantState

WORKERS = 8
"""As many as a model is asked at once; mostly they wait for it."""
AT_ONCE_PER_TENANT = 4
"""Half of them, so that there is one for another tenant whatever one tenant asks for."""
LEASE_SECONDS = 10
"""How long a job lies idle whose server died. Where clocks of servers differ more, a job may be begun twice,
and a model asked in vain; it ends once all the same."""
RENEW_SECONDS = 3
LOOK_SECONDS = 2.0
"""How often a server looks for what others acknowledged, or left behind."""
MOST_TAKEN = 5
"""A job that was taken up so often and never ended brings its server down, and is not tried again."""
STOP_SECONDS = 8
"""How long jobs may go on when the server stops; then they are left to others."""
COLLECT_SECONDS = 3600

log = logging.getLogger(__name__)

Report = Callable[[Progress], None]
"""Says how far a job is. It is written with the lease, every three seconds."""
Work = Callable[[Job, Tenant, Report], None]
"""Does a job of its kind and ends it. LeaseLost where it may not; another error ends the job as failed."""


@dataclass(slots=True)
class _Running:
    """A job at work."""

    shard: Shard
    job: Job
    thread: threading.Thread
    progress: Progress

    def report(self, progress: Progress) -> None:
        """Say how far it is."""
        self.progress = progress

    @property
    def lease(self) -> Lease:
        return Lease.of(self.job)


class Workers:
    """Does the jobs of these shards, from construction to ``close``.

    ``living`` gives the tenant of an incarnation, ``work`` does the jobs of each kind, ``clock`` gives
    microseconds since 1970, and ``added`` is set where a job was added in this process.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        living: Callable[[Incarnation], Tenant | None],
        work: Mapping[str, Work],
        clock: Callable[[], Micros],
        added: threading.Event,
    ) -> None:
        self._shards = shards
        self._living = living
        self._work = work
        self._clock = clock
        self._added = added
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._running: dict[Lease, _Running] = {}
        self._served = (0, FIRST_TENANT)
        for shard in shards:
            shard.release_lost_jobs()
        self._thread = threading.Thread(target=self._run, name="scrubjay-jobs", daemon=True)
        self._thread.start()
        self._renewal = Periodic("leases", RENEW_SECONDS, self._renew)
        self._collection = Periodic("jobs-collection", COLLECT_SECONDS, self._collect)

    def close(self) -> None:
        """Take no more jobs, let those at work end or leave them to others. May be called again."""
        self._closing.set()
        self._added.set()
        self._thread.join()
        self._collection.close()
        self._renewal.close()
        due = time.monotonic() + STOP_SECONDS
        for running in self._at_work():
            running.thread.join(max(0.0, due - time.monotonic()))
        for running in self._at_work():
            self._leave(running)

    def _leave(self, running: _Running) -> None:
        try:
            running.shard.release_jobs([running.lease])
        except ScrubjayError as error:
            log.warning("a job is taken up again when its lease runs out: %s", error.message)

    def _at_work(self) -> list[_Running]:
        with self._lock:
            return list(self._running.values())

    # --- taking jobs up ---------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing.is_set():
            self._added.clear()
            try:
                begun = self._begin_next()
            except ScrubjayError as error:
                log.warning("no jobs are taken up for %s s: %s", LOOK_SECONDS, error.message)
                begun = False
            except Exception:
                log.exception("no jobs are taken up for %s s", LOOK_SECONDS)
                begun = False
            if not begun:
                self._added.wait(LOOK_SECONDS)

    def _begin_next(self) -> bool:
        """Take up one job, if there is one and a worker for it."""
        at_work = self._at_work()
        of_tenant = Counter(running.job.key.incarnation for running in at_work)
        mine = {running.job.id for running in at_work}  # whose leases this server is late to renew
        if len(at_work) >= WORKERS:
            return False
        for place, incarnation, job_id in self._waiting():
            if of_tenant[incarnation] >= AT_ONCE_PER_TENANT or job_id in mine:
                continue
            tenant, shard = self._living(incarnation), self._shards[place]
            if tenant is None or tenant.state is not TenantState.ACTIVE or tenant.shard != shard.name:
                continue
            now = self._clock()
            until = Micros(now + LEASE_SECONDS * 1_000_000)
            job = _taken(shard, incarnation, job_id, now, until)
            if job is not None:
                self._served = (place, incarnation)
                self._begin(shard, job, tenant)
                return True
        return False

    def _waiting(self) -> Iterator[tuple[int, Incarnation, str]]:
        """A job of each tenant that has one, with the place of its shard: those behind the tenant that was
        served last, then the others."""
        first, last = self._served
        for turn in range(len(self._shards) + 1):
            place = (first + turn) % len(self._shards)
            after = last if turn == 0 else FIRST_TENANT
            while (found := self._shards[place].next_job(after, self._clock())) is not None:
                after = found[0]
                yield place, *found

    def _begin(self, shard: Shard, job: Job, tenant: Tenant) -> None:
        def do() -> None:
            self._do(running, tenant)

        thread = threading.Thread(target=do, name=f"scrubjay-job-{job.id}", daemon=True)
        running = _Running(shard, job, thread, job.progress)
        with self._lock:
            self._running[running.lease] = running
        thread.start()

    # --- doing them -------------------------------------------------------------------------------

    def _do(self, running: _Running, tenant: Tenant) -> None:
        job = running.job
        try:
            self._try(running, tenant)
        except LeaseLost:
            log.info("the job %s was cancelled, or taken up elsewhere", job.id)
        except (Unavailable, ServerBusy) as error:
            log.warning("the job %s is taken up again when its lease runs out: %s", job.id, error.message)
        except Exception:
            log.exception("the job %s is taken up again when its lease runs out", job.id)
        finally:
            with self._lock:
                del self._running[running.lease]
            self._added.set()

    def _try(self, running: _Running, tenant: Tenant) -> None:
        """Do the job; where it can't be done, say so. Raises where that can't be said either."""
        shard, job = running.shard, running.job
        if job.fence > MOST_TAKEN:
            self._fail(shard, job, InternalError(f"it was begun {MOST_TAKEN} times and never ended"))
            return
        try:
            self._work[job.kind](job, tenant, running.report)
        except ModelUnavailable as error:
            self._fail(shard, job, error)
        except (Unavailable, ServerBusy, LeaseLost):
            raise
        except ScrubjayError as error:
            self._fail(shard, job, error)
        except Exception as error:
            self._fail(shard, job, _internal(job, error))

    def _fail(self, shard: Shard, job: Job, error: ScrubjayError) -> None:
        said = v1.OperationError(code=error.code, reason=error.reason, message=error.message)
        outcome = Outcome(OperationState.FAILED, error=said.SerializeToString())
        shard.end_job(job.key, Lease.of(job), outcome, self._clock())

    # --- beside them ------------------------------------------------------------------------------

    def _renew(self, _ending: threading.Event) -> None:
        now = self._clock()
        until = Micros(now + LEASE_SECONDS * 1_000_000)
        at_work = self._at_work()
        for shard in self._shards:
            held = {running.lease: running.progress for running in at_work if running.shard is shard}
            if held:
                shard.renew_jobs(held, now, until)

    def _collect(self, ending: threading.Event) -> None:
        until = Micros(self._clock() - ENDED_KEPT_MICROS)
        for shard in self._shards:
            shard.collect_jobs(until, ending.is_set)


def _taken(shard: Shard, incarnation: Incarnation, job_id: str, now: Micros, until: Micros) -> Job | None:
    """The job with its lease; None where another one has it, or its tenant moves and takes it along."""
    try:
        return shard.take_job(incarnation, job_id, now, until)
    except TenantMoving:
        return None


def _internal(job: Job, error: Exception) -> InternalError:
    request_id = uuid.uuid4().hex
    log.error("the job %s failed", job.id, exc_info=error, extra={"request_id": request_id})
    return InternalError(f"the server failed; its log has the request_id {request_id}")
