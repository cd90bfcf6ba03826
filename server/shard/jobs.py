"""The jobs of a shard: work that is acknowledged at once and done later."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from google.protobuf.message import Message

from scrubjay.memory import ClientId, Micros
from scrubjay.stamp import CommitStamp
from server.ending import Ending
from server.shard.parts import Answer, Request, ShardParts
from server.store.jobs import Job, Lease, Outcome, Progress
from server.store.memory_store import Reading, StreamKey, Writing
from server.watch import ANY_HEAD
from tenants.operation import OperationState
from tenants.tenant import Incarnation

LOOK_SECONDS = 1.0
"""How often a wait looks for an end that came about in another process."""
COLLECTED_AT_ONCE = 500
"""Jobs that one transaction forgets."""


@dataclass(frozen=True, slots=True)
class Errand(Request):
    """A job as the request that it carries out: its answer is kept with it, in the unit that made it.

    ``bare`` gives what is kept of the answer, ``clock`` the time of its end; ``ended`` is called after that.
    LeaseLost where another one has the job, or it has ended: then nothing of the unit is stored.
    """

    lease: Lease
    bare: Callable[[Message], bytes]
    clock: Callable[[], Micros]
    ended: Callable[[], object]

    def answered(self, _reading: Reading, _kind: type[Answer]) -> Answer | None:
        """Nothing: a job that has an answer is not taken up."""
        return None

    def keep(self, writing: Writing, answer: Message, _keys: Sequence[StreamKey]) -> None:
        """End the job with its answer."""
        outcome = Outcome(OperationState.SUCCEEDED, answer=self.bare(answer))
        writing.end_job(self.lease, outcome, self.clock())
        writing.on_commit(self.ended)


class ShardJobs(ShardParts):
    """Keeps jobs, lends them to who works on them, and wakes who waits for them."""

    def begin_job(self, request: Request, job: Job, answer: Answer) -> Answer:
        """Store the job durably, once for the request; the request's answer."""

        def unit(writing: Writing) -> Answer:
            writing.add_job(job)
            return answer

        return self.write(request, (), type(answer), unit)

    def job(self, incarnation: Incarnation, job_id: str) -> Job | None:
        """A job; None where there is none of this id, or it ended a day ago."""
        with self._store.read() as reading:
            return reading.job(incarnation, job_id)

    def jobs(
        self,
        incarnation: Incarnation,
        stream: str | None,
        client_id: ClientId,
        states: Collection[OperationState],
        before: str,
        limit: int,
    ) -> list[Job]:
        """At most ``limit`` jobs that a client asked for, newest first, older than the job ``before``."""
        with self._store.read() as reading:
            return reading.jobs(incarnation, stream, client_id, states, before, limit)

    def wait_for_job(
        self, incarnation: Incarnation, job_id: str, seconds: float, ending: Ending
    ) -> Job | None:
        """The job once it has ended, or as it stands after ``seconds`` or at the ``ending``."""
        due = time.monotonic() + seconds
        job = self.job(incarnation, job_id)
        if job is None:
            return None
        with self.hub.subscribe(job.key) as subscription:
            ending.on_end(subscription.close)
            while (job := self.job(incarnation, job_id)) is not None and not job.state.ended:
                left = due - time.monotonic()
                if left <= 0 or ending.over:
                    break
                subscription.wait(left if self._store.exclusive else min(left, LOOK_SECONDS), CommitStamp(0))
        return job

    def open_jobs(self, incarnation: Incarnation) -> tuple[int, int]:
        """How many jobs of the tenant have not ended, and how many bytes their requests have."""
        with self._store.read() as reading:
            return reading.open_jobs(incarnation)

    def wake(self, key: StreamKey) -> None:
        """Wake who waits for a job of the stream; others there find nothing new."""
        self.hub.notify(key, ANY_HEAD)

    # --- for who works on them --------------------------------------------------------------------

    def next_job(self, after: Incarnation, now: Micros) -> tuple[Incarnation, str] | None:
        """The oldest job that may be taken up of the next tenant behind ``after`` that has one."""
        with self._store.read() as reading:
            return reading.next_job(after, now)

    def take_job(self, incarnation: Incarnation, job_id: str, now: Micros, until: Micros) -> Job | None:
        """Take the job's lease; None where it has ended, or another one holds it."""

        def unit(writing: Writing) -> Job | None:
            return writing.take_job(incarnation, job_id, now, until)

        return self._store.write([], unit, tenant=incarnation)

    def errand(self, job: Job, bare: Callable[[Message], bytes], clock: Callable[[], Micros]) -> Errand:
        """The job, which was taken, as a request to be carried out now."""
        lease, ended = Lease.of(job), partial(self.wake, job.key)
        return Errand(job.key.incarnation, "", b"", clock(), lease, bare, clock, ended)

    def renew_jobs(self, held: Mapping[Lease, Progress], now: Micros, until: Micros) -> None:
        """Hold these leases longer, those that are still held, and say how far the jobs are."""

        def unit(writing: Writing) -> None:
            for lease, progress in held.items():
                writing.renew_job(lease, progress, now, until)

        self._store.write([], unit)

    def end_job(self, key: StreamKey, lease: Lease, outcome: Outcome, now: Micros) -> None:
        """End the job. LeaseLost where another one has it, or it has ended."""

        def unit(writing: Writing) -> None:
            writing.end_job(lease, outcome, now)
            writing.on_commit(lambda: self.wake(key))

        self._store.write([], unit, tenant=key.incarnation)

    def release_jobs(self, leases: Collection[Lease]) -> None:
        """Give these leases back: others may take the jobs up at once."""

        def unit(writing: Writing) -> None:
            for lease in leases:
                writing.release_job(lease)

        self._store.write([], unit)

    def release_lost_jobs(self) -> int:
        """Give back what a process held that is no more, where none but this one has the database."""
        if not self._store.exclusive:
            return 0
        return self._store.write([], lambda writing: writing.release_jobs())

    def collect_jobs(self, ended_until: Micros, over: Callable[[], bool]) -> int:
        """Forget what ended so long ago, until ``over``; how many there were."""
        count, found = 0, COLLECTED_AT_ONCE
        while found == COLLECTED_AT_ONCE and not over():
            found = self._store.write(
                [], lambda writing: writing.collect_jobs(ended_until, COLLECTED_AT_ONCE)
            )
            count += found
        return count
