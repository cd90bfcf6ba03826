"""Jobs: work that was acknowledged durably and is done later, by whichever server takes it up.

The contract calls them operations, a word that in this store is a device's. Who works on a job holds its
lease, under a fencing number that every taking raises: whoever lost the lease can't write what came of it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    Boolean,
    and_,
    bindparam,
    case,
    delete,
    func,
    literal_column,
    null,
    select,
    tuple_,
    update,
)

from scrubjay.memory import ClientId, Micros
from server.store.rows import StreamKey
from server.store.tables import jobs
from server.store.transaction import Row, Transaction
from tenants.operation import OperationState
from tenants.tenant import Incarnation

ENDED_KEPT_MICROS = 24 * 3600 * 1_000_000
"""How long a job is known after its end: as long as the request_id that made it."""
FIRST_TENANT = Incarnation("00000000-0000-0000-0000-000000000000")
"""Before every incarnation."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job has come: what is being done, and how many of how many parts are."""

    phase: str = ""
    done: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class Job:
    """A job of one stream.

    ``request`` is its encoded request, empty once it has ended; ``answer`` its encoded answer, without any
    memory's text; ``error`` its encoded error. ``client_id``, ``actor`` (the key) and ``role`` say for whom
    it is done. ``private_to`` is the only client that may see what it writes, empty where all may. ``fence``
    counts how often it was taken up.
    """

    id: str
    key: StreamKey
    kind: str
    client_id: ClientId
    actor: str
    role: str
    request_id: str
    private_to: str
    created_at: Micros
    updated_at: Micros
    ended_at: Micros | None = None
    state: OperationState = OperationState.PENDING
    progress: Progress = Progress()
    fence: int = 0
    request: bytes = b""
    answer: bytes = b""
    error: bytes = b""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on a job: its fencing number."""

    incarnation: Incarnation
    job_id: str
    fence: int

    @classmethod
    def of(cls, job: Job) -> Lease:
        """The lease under which the job was taken."""
        return cls(job.key.incarnation, job.id, job.fence)


class LeaseLost(Exception):
    """The job was taken up by another one, or cancelled: what came of it must not be written."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended. One that succeeded has all of its parts done."""

    state: OperationState
    answer: bytes = b""
    error: bytes = b""


class JobReading:
    """What can be read of jobs; a part of ``Reading``."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def job(self, incarnation: Incarnation, job_id: str) -> Job | None:
        """A job; None where there is none of this id, or it ended a day ago."""
        row = self._transaction.first(_JOB, {"incarnation": incarnation, "job_id": job_id})
        return None if row is None else _to_job(row)

    def jobs(
        self,
        incarnation: Incarnation,
        stream: str | None,
        client_id: ClientId,
        states: Collection[OperationState],
        before: str,
        limit: int,
    ) -> list[Job]:
        """At most ``limit`` jobs that a client asked for, of the tenant or of one stream, newest first, older
        than the job ``before``."""
        values = {"incarnation": incarnation, "client_id": client_id, "before": before, "limit": limit}
        values |= {f"state_{state.value}": state.value if state in states else 0 for state in OperationState}
        if stream is None:
            rows = self._transaction.all(_OF_TENANT, values)
        else:
            rows = self._transaction.all(_OF_STREAM, values | {"stream": stream})
        return [_to_job(row) for row in rows]

    def open_jobs(self, incarnation: Incarnation) -> tuple[int, int]:
        """How many jobs of the tenant have not ended, and how many bytes their requests have."""
        count, size = self._transaction.all(_OPEN_JOBS, {"incarnation": incarnation})[0]
        return int(count), int(size or 0)

    def next_job(self, after: Incarnation, now: Micros) -> tuple[Incarnation, str] | None:
        """The oldest job that may be taken up of the next tenant behind ``after`` that has one."""
        row = self._transaction.first(_NEXT, {"after": after, "now": now, "limit": 1})
        return None if row is None else (Incarnation(row[0]), row[1])


class JobWriting:
    """What a unit may write about jobs; a part of ``Writing``. None of it needs a stream's head."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def add_job(self, job: Job) -> None:
        """Store a job of a new id, to be taken up at once."""
        self._transaction.run(_INSERT, _row(job) | {"lease_until": 0})

    def take_job(self, incarnation: Incarnation, job_id: str, now: Micros, until: Micros) -> Job | None:
        """Take the job's lease; None where it has ended, or another one holds it."""
        values = {"of_incarnation": incarnation, "of_job": job_id, "now": now, "new_until": until}
        row = self._transaction.first(_TAKE, values | {"running": OperationState.RUNNING.value})
        return None if row is None else _to_job(row)

    def renew_job(self, lease: Lease, progress: Progress, now: Micros, until: Micros) -> bool:
        """Hold the lease longer, and say how far it is; whether it was still held."""
        values = _held(lease) | {"now": now, "new_until": until}
        values |= {"new_phase": progress.phase, "new_done": progress.done, "new_total": progress.total}
        return self._transaction.run(_RENEW, values) == 1

    def end_job(self, lease: Lease, outcome: Outcome, now: Micros) -> None:
        """End the job, and forget what was asked. LeaseLost where another one has it, or it has ended; none
        other can take it before this unit is over."""
        values = _held(lease) | {
            "now": now,
            "new_state": outcome.state.value,
            "new_answer": outcome.answer,
            "new_error": outcome.error,
            "nothing": b"",
            "no_phase": "",
            "whole": outcome.state is OperationState.SUCCEEDED,
        }
        if self._transaction.run(_END, values) != 1:
            raise LeaseLost(lease.job_id)

    def release_job(self, lease: Lease) -> None:
        """Give the lease back: another one may take the job up at once."""
        self._transaction.run(_RELEASE, _held(lease) | {"at_once": 0})

    def release_jobs(self) -> int:
        """Give every lease back, for a database that no other process has; how many there were."""
        return self._transaction.run(_RELEASE_ALL, {"at_once": 0})

    def cancel_job(self, incarnation: Incarnation, job_id: str, now: Micros) -> bool:
        """End the job without an outcome; whether it had not ended. Who works on it can't write any more."""
        values = {"of_incarnation": incarnation, "of_job": job_id, **_cancelled(now)}
        return self._transaction.run(_CANCEL, values) == 1

    def forget_jobs(self, key: StreamKey, client_id: ClientId, now: Micros) -> list[str]:
        """Cancel the stream's jobs and forget those that have ended, but for what is private to other
        clients; the ids of those that were cancelled."""
        values = {
            "of_incarnation": key.incarnation,
            "of_stream": key.stream,
            "nobody": "",
            "client_id": client_id,
        }
        self._transaction.run(_FORGET, values)
        return [row[0] for row in self._transaction.all(_CANCEL_STREAM, values | _cancelled(now))]

    def collect_jobs(self, ended_until: Micros, limit: int) -> int:
        """Forget at most ``limit`` jobs that ended so long ago; how many there were."""
        return self._transaction.run(_COLLECT, {"ended_until": ended_until, "limit": limit})


def _row(job: Job) -> dict[str, Any]:
    return {
        "incarnation": job.key.incarnation,
        "id": job.id,
        "stream": job.key.stream,
        "kind": job.kind,
        "state": job.state.value,
        "phase": job.progress.phase,
        "done": job.progress.done,
        "total": job.progress.total,
        "request": job.request,
        "answer": job.answer,
        "error": job.error,
        "client_id": job.client_id,
        "actor": job.actor,
        "role": job.role,
        "request_id": job.request_id,
        "private_to": job.private_to,
        "created_at": job.created_at,
        "updated_at": job.updated_at,
        "ended_at": job.ended_at,
        "fence": job.fence,
    }


_COLUMNS = [column for column in jobs.c if column.name != "lease_until"]
_NAMES = [column.name for column in _COLUMNS]


def _to_job(row: Row) -> Job:
    found = dict(zip(_NAMES, row, strict=True))
    return Job(
        id=found["id"],
        key=StreamKey(Incarnation(found["incarnation"]), found["stream"]),
        kind=found["kind"],
        client_id=ClientId(found["client_id"]),
        actor=found["actor"],
        role=found["role"],
        request_id=found["request_id"],
        private_to=found["private_to"],
        created_at=found["created_at"],
        updated_at=found["updated_at"],
        ended_at=found["ended_at"],
        state=OperationState(found["state"]),
        progress=Progress(found["phase"], found["done"], found["total"]),
        fence=found["fence"],
        request=bytes(found["request"]),
        answer=bytes(found["answer"]),
        error=bytes(found["error"]),
    )


def _held(lease: Lease) -> dict[str, Any]:
    return {
        "of_incarnation": lease.incarnation,
        "of_job": lease.job_id,
        "of_fence": lease.fence,
        "running": OperationState.RUNNING.value,
    }


def _cancelled(now: Micros) -> dict[str, Any]:
    return {"now": now, "new_state": OperationState.CANCELLED.value, "nothing": b"", "no_phase": ""}


# --- the statements, built once -------------------------------------------------------------------

_IS_TENANT = jobs.c.incarnation == bindparam("incarnation")
_IS_JOB = and_(jobs.c.incarnation == bindparam("of_incarnation"), jobs.c.id == bindparam("of_job"))
_IS_HELD = and_(_IS_JOB, jobs.c.fence == bindparam("of_fence"), jobs.c.state == bindparam("running"))
# Only a job that has not ended has a lease_until, so that the index on it holds no others.
_OPEN = jobs.c.lease_until.is_not(None)

_INSERT = jobs.insert()
_JOB = select(*_COLUMNS).where(_IS_TENANT, jobs.c.id == bindparam("job_id"))
_OF_TENANT = (
    select(*_COLUMNS)
    .where(
        _IS_TENANT,
        jobs.c.client_id == bindparam("client_id"),
        jobs.c.state.in_([bindparam(f"state_{state.value}") for state in OperationState]),
        jobs.c.id < bindparam("before", type_=jobs.c.id.type),
    )
    .order_by(jobs.c.id.desc())
    .limit(bindparam("limit"))
)
_OF_STREAM = _OF_TENANT.where(jobs.c.stream == bindparam("stream"))
_OPEN_JOBS = select(func.count(), func.sum(func.length(jobs.c.request))).where(_IS_TENANT, _OPEN)
_NEXT = (
    select(jobs.c.incarnation, jobs.c.id)
    .where(
        jobs.c.incarnation > bindparam("after", type_=jobs.c.incarnation.type),
        jobs.c.lease_until <= bindparam("now"),
    )
    .order_by(jobs.c.incarnation, jobs.c.id)
    .limit(bindparam("limit"))
)
_TAKE = (
    update(jobs)
    .where(_IS_JOB, jobs.c.lease_until <= bindparam("now"))
    .values(
        state=bindparam("running"),
        fence=literal_column("fence + 1"),
        lease_until=bindparam("new_until"),
        updated_at=bindparam("now"),
    )
    .returning(*_COLUMNS)
)
_RENEW = (
    update(jobs)
    .where(_IS_HELD)
    .values(
        lease_until=bindparam("new_until"),
        updated_at=bindparam("now"),
        phase=bindparam("new_phase"),
        done=bindparam("new_done"),
        total=bindparam("new_total"),
    )
)
_ENDING = {
    "state": bindparam("new_state"),
    "request": bindparam("nothing"),
    "ended_at": bindparam("now"),
    "updated_at": bindparam("now"),
    "lease_until": null(),
    "phase": bindparam("no_phase"),
}
_END = (
    update(jobs)
    .where(_IS_HELD)
    .values(
        _ENDING
        | {
            "answer": bindparam("new_answer"),
            "error": bindparam("new_error"),
            "done": case((bindparam("whole", type_=Boolean), jobs.c.total), else_=jobs.c.done),
        }
    )
)
_RELEASE = update(jobs).where(_IS_HELD).values(lease_until=bindparam("at_once"))
_RELEASE_ALL = (
    update(jobs).where(jobs.c.lease_until > bindparam("at_once")).values(lease_until=bindparam("at_once"))
)
_CANCEL = update(jobs).where(_IS_JOB, _OPEN).values(_ENDING)
_OF_STREAM_AND_SEEN = and_(
    jobs.c.incarnation == bindparam("of_incarnation"),
    jobs.c.stream == bindparam("of_stream"),
    jobs.c.private_to.in_([bindparam("nobody"), bindparam("client_id")]),
)
_CANCEL_STREAM = update(jobs).where(_OF_STREAM_AND_SEEN, _OPEN).values(_ENDING).returning(jobs.c.id)
_FORGET = delete(jobs).where(_OF_STREAM_AND_SEEN, jobs.c.lease_until.is_(None))
_COLLECT = delete(jobs).where(
    tuple_(jobs.c.incarnation, jobs.c.id).in_(
        select(jobs.c.incarnation, jobs.c.id)
        .where(jobs.c.ended_at <= bindparam("ended_until"))
        .limit(bindparam("limit"))
    )
)
