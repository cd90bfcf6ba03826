"""Group commit: the writers of a shard queue, and one transaction takes what has gathered.

Tenants take turns: a transaction takes a write of each that waits before it takes a second one of any.

One thread runs it. A transaction locks the heads of all streams that its units named, runs each unit
inside a savepoint, and commits; then it calls the units' hooks and answers their callers. A unit that
raises is undone alone. Where the transaction itself fails, every caller of it hears StorageUnavailable
and nothing is published.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

from scrubjay.errors import (
    DeadlineExceeded,
    OperationUnderWay,
    ScrubjayError,
    ServerBusy,
    StorageUnavailable,
    TenantDeleting,
    Unavailable,
)
from scrubjay.memory import Micros
from server.fair_queue import FairQueue
from server.store.fence import TenantMoving, closed_among
from server.store.importing import importing_among
from server.store.purging import ended_among
from server.store.rows import StreamHead, StreamKey
from server.store.stocks import Limits, StockKeeping
from server.store.transaction import LostRace, Transaction, Transactions
from server.store.writing import Writing, lock_heads, purge_requests, save_heads
from tenants.operation import Kind
from tenants.quotas import Allowance
from tenants.tenant import Incarnation

_logger = logging.getLogger(__name__)
T = TypeVar("T")
Aside = Callable[[], AbstractContextManager[None]]
"""Around a wait, in which the thread that waits has no turn at the processor."""

MAX_BATCH = 64
"""Units in one transaction: behind it the gain of sharing a commit is flat, and the first one waits."""
MIN_BATCH = 8
BATCH_SECONDS = 0.02
"""How long a transaction's units run together, or four times as long as its commit takes: more of them share
it no better, and whoever comes meanwhile waits for all."""
MAX_QUEUE = 1024
"""Units that wait; the server's handler threads are fewer, so that only a stalled disk fills it. Then it is
the tenant with most of them that is refused."""
ATTEMPTS = 3
"""How often a unit runs that other processes get in the way of: a deadlock, then a lost race, then not."""


@dataclass(slots=True, eq=False)
class _Job:
    keys: Sequence[StreamKey]
    unit: Callable[[Writing], object]
    answer: Future[Any]
    tenant: Incarnation | None = None
    result: object = None
    hooks: Sequence[Callable[[], object]] = ()


class Committer:
    """Runs units of write on ``transactions`` in a thread of its own, from construction to ``close``."""

    def __init__(
        self,
        transactions: Transactions,
        *,
        limits: Limits = lambda _: Allowance(),
        max_batch: int = MAX_BATCH,
        max_queue: int = MAX_QUEUE,
        aside: Aside = nullcontext,
    ) -> None:
        self._transactions = transactions
        self._aside = aside
        self._limits = limits
        self._max_queue = max_queue
        self._queue: FairQueue[_Job] = FairQueue(max_queue)
        self._pace = _Pace(max_batch)
        self._gathered = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="scrubjay-committer", daemon=True)
        self._thread.start()

    def write(
        self,
        keys: Sequence[StreamKey],
        unit: Callable[[Writing], T],
        timeout_seconds: float | None = None,
        tenant: Incarnation | None = None,
    ) -> T:
        """What ``unit`` returned, once it is committed; what it raised, once it is undone.

        It waits in the turns of ``tenant``, by default that of the first key. Raises ServerBusy where too
        many wait and no other tenant has more of them, Unavailable where it was closed, StorageUnavailable
        where the commit failed, DeadlineExceeded after ``timeout_seconds``: a unit that had not begun will
        not.
        """
        answer: Future[T] = Future()
        job = _Job(keys, unit, answer, tenant)
        with self._gathered:
            if self._closing:
                raise Unavailable("this server is shutting down; retry elsewhere")
            turned_away = self._queue.put(tenant or (keys[0].incarnation if keys else ""), job)
            if turned_away is not None and turned_away.answer.set_running_or_notify_cancel():
                busy = ServerBusy(f"{self._max_queue} writes wait already; nothing was stored; retry shortly")
                turned_away.answer.set_exception(busy)
            self._gathered.notify()
        with self._aside():
            return self._wait(answer, timeout_seconds)

    @staticmethod
    def _wait(answer: Future[T], timeout_seconds: float | None) -> T:
        try:
            return answer.result(timeout_seconds)
        except TimeoutError as error:
            if answer.done():
                return answer.result()
            begun = not answer.cancel()
            outcome = "it may be stored; retry with the same request_id" if begun else "nothing was stored"
            raise DeadlineExceeded(f"the write took longer than {timeout_seconds} s; {outcome}") from error

    def close(self) -> None:
        """Take no more units, finish those that wait, and end the thread. May be called again."""
        with self._gathered:
            self._closing = True
            self._gathered.notify()
        self._thread.join()

    # --- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        while batch := self._next_batch():
            self._answer(batch, self._commit(batch))

    def _next_batch(self) -> list[_Job]:
        """What has gathered, at least one; empty once closed and drained."""
        with self._gathered:
            batch: list[_Job] = []
            while not batch:
                while not self._queue and not self._closing:
                    self._gathered.wait()
                if not self._queue:
                    return batch
                while len(batch) < self._pace.units and (job := self._queue.take()) is not None:
                    if job.answer.set_running_or_notify_cancel():
                        batch.append(job)
            return batch

    def _commit(self, batch: Sequence[_Job]) -> dict[_Job, BaseException]:
        """Run the batch in one transaction; the error of each job that failed."""
        try:
            began = time.monotonic()
            with self._transactions.begin() as transaction:
                errors = _run_units(transaction, batch, self._limits)
                ran = time.monotonic()
            self._pace.learn(len(batch), ran - began, time.monotonic() - ran)
            return errors
        except Exception as error:
            _logger.warning("a transaction of %d writes failed", len(batch), exc_info=error)
            return {job: StorageUnavailable() for job in batch}

    def _answer(self, batch: Sequence[_Job], errors: Mapping[_Job, BaseException]) -> None:
        for job in batch:
            if job not in errors:
                _call(job.hooks)
        for job in batch:
            if job in errors:
                job.answer.set_exception(errors[job])
            else:
                job.answer.set_result(job.result)


class _Pace:
    """How many units the next transaction takes, by how long the last ones ran."""

    def __init__(self, max_batch: int) -> None:
        self._max_batch = max_batch
        self.units = max_batch

    def learn(self, count: int, units_seconds: float, commit_seconds: float) -> None:
        """So many units ran for so long, and their commit took so long."""
        together = max(BATCH_SECONDS, 4 * commit_seconds)
        fit = round(count * together / max(units_seconds, 1e-6))
        self.units = min(max(fit, MIN_BATCH, self.units // 2), 2 * self.units, self._max_batch)


def _call(hooks: Iterable[Callable[[], object]]) -> None:
    for hook in hooks:
        try:
            hook()
        except Exception:
            _logger.exception("a hook failed; its write is committed")


def _run_units(transaction: Transaction, batch: Sequence[_Job], limits: Limits) -> dict[_Job, BaseException]:
    locked = lock_heads(transaction, (key for job in batch for key in job.keys))
    heads = dict(locked)
    requested: dict[Incarnation, Micros] = {}
    errors: dict[_Job, BaseException] = {}
    closed = _closed(transaction, batch, locked)
    keeping = StockKeeping(transaction, limits, {key.incarnation for key in locked} - closed.keys())
    for job in batch:
        if (refusal := next((closed[one] for one in _tenants(job) if one in closed), None)) is not None:
            errors[job] = refusal
            continue
        for _ in range(ATTEMPTS):
            writing, error = _attempt(transaction, job, heads, keeping)
            if not isinstance(error, LostRace | StorageUnavailable):
                break
        if error is None:
            heads |= writing.advanced
            requested |= writing.requested
            keeping.add(writing.stock)
            job.hooks = writing.hooks
        else:
            errors[job] = error.error if isinstance(error, LostRace) else error
    purge_requests(transaction, requested)
    save_heads(transaction, locked, heads)
    keeping.save()
    return errors


def _closed(
    transaction: Transaction, batch: Sequence[_Job], locked: Mapping[StreamKey, StreamHead]
) -> dict[Incarnation, ScrubjayError]:
    """Why nobody may write to some of the tenants: their lives ended, they are imported into, or they move.

    Only a stream that is made now may be of one of the first two; and what goes into no stream may.
    """
    asked = {key.incarnation for key, head in locked.items() if not head.head}
    asked |= {job.tenant for job in batch if job.tenant and not job.keys}
    closed: dict[Incarnation, ScrubjayError] = {
        one: OperationUnderWay(Kind.IMPORT, operation_id)
        for one, operation_id in importing_among(transaction, asked).items()
    }
    closed |= {one: TenantDeleting() for one in ended_among(transaction, asked)}
    every = {key.incarnation for key in locked} | {job.tenant for job in batch if job.tenant}
    return closed | {one: TenantMoving(one) for one in closed_among(transaction, every)}


def _tenants(job: _Job) -> set[Incarnation]:
    return {key.incarnation for key in job.keys} or ({job.tenant} if job.tenant else set())


def _attempt(
    transaction: Transaction, job: _Job, heads: Mapping[StreamKey, StreamHead], keeping: StockKeeping
) -> tuple[Writing, BaseException | None]:
    """Run one unit inside a savepoint; what it raised, once it is undone. Raises where that failed."""
    writing = Writing(transaction, heads)
    transaction.command("SAVEPOINT unit")
    try:
        job.result = job.unit(writing)
        keeping.check(writing.stock)
        transaction.command("RELEASE SAVEPOINT unit")
    except BaseException as error:
        transaction.command("ROLLBACK TO SAVEPOINT unit")
        transaction.command("RELEASE SAVEPOINT unit")
        return writing, error
    return writing, None
