"""The conductor: threads that carry out tenants' long operations, phase by phase.

Whoever works on one holds its lease, and holds it longer while it works. Where it dies, the lease runs out
and another server begins the phase again that was under way; so each phase, and each roll-back, may be begun
again after it was killed at any point. An operation that is cancelled, or fails, is rolled back as long as
its phase allows that; later it is tried until it is done.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from scrubjay import v1
from scrubjay.errors import InternalError, ScrubjayError, ServerBusy, TenantNotFound, Unavailable
from scrubjay.memory import JsonValue, Micros, canonical_json
from server.periodic import Periodic
from tenants.operation import ROLLING_BACK, Kind, OperationState, TenantOperation
from tenants.registry.operations import KEPT_MICROS, LeaseLost, Operations
from tenants.tenant import Incarnation, Tenant

AT_ONCE = 2
"""Operations that one server works on: a short one does not wait for a long one, nor calls for many."""
LEASE_SECONDS = 10
"""How long an operation lies idle whose server died."""
RENEW_SECONDS = 1.0
"""How often progress is written, and a cancellation heard of."""
LOOK_SECONDS = 2.0
"""How often a server looks for what others began, or left behind."""
AGAIN_SECONDS = (1, 60)
"""How long it lies after it failed, doubled each time, at least and at most."""
MOST_FAILURES = 5
"""A phase that failed so often for a reason nobody knows is not tried again where it can be rolled back."""
STOP_SECONDS = 8
COLLECT_SECONDS = 3600

log = logging.getLogger(__name__)


class Cancelled(Exception):
    """The operation is to be taken back."""


class Stopping(Exception):
    """The server stops: another one goes on."""


class Later(Exception):
    """The phase waits for something else, in nobody's thread: it is begun again after LOOK_SECONDS."""


class Task:
    """An operation at work, as its phases see it."""

    def __init__(
        self,
        operation: TenantOperation,
        operations: Operations,
        living: Callable[[Incarnation], Tenant | None],
        clock: Callable[[], Micros],
    ) -> None:
        self._operation = operation
        self._operations = operations
        self._living = living
        self._clock = clock
        self._begun = (time.monotonic(), operation.done)
        self._notes: dict[str, JsonValue] = dict(operation.notes or {})
        self._answer = b""
        self._lost = False
        self._stopping = False
        self._cancelling = operation.cancelling

    @property
    def operation(self) -> TenantOperation:
        """As this server wrote it last; ``notes`` with what was noted since."""
        return replace(self._operation, notes=dict(self._notes))

    @property
    def tenant(self) -> Tenant:
        """The tenant as it is now. Raises TenantNotFound where its life is over, or a shard is the target."""
        found = self._living(self._operation.incarnation)
        if found is None:
            raise TenantNotFound(self._operation.tenant_id)
        return found

    def report(self, done: int, total: int = 0) -> None:
        """Say how far the phase is; cheap, to be called with every page.

        Raises Cancelled where the operation is to be taken back and the phase allows that, LeaseLost where
        another server has it, Stopping where this one stops: let them through.
        """
        began, first = self._begun
        seconds = max(time.monotonic() - began, 1e-3)
        rate = max(done - first, 0) / seconds
        self._operation = replace(self._operation, done=done, total=total, per_second=rate)
        if self._lost:
            raise LeaseLost(self._operation.operation_id)
        if self._cancelling and self._operation.cancellable:
            raise Cancelled
        if self._stopping:
            raise Stopping

    def note(self, **values: JsonValue) -> None:
        """Keep small facts for later phases, or for this one when it is begun again; durable on return."""
        self._notes |= values
        self._write({"notes": canonical_json(self._notes)})

    def answer(self, result: v1.TenantOperationResult) -> None:
        """What the operation gives; durable with its end."""
        self._answer = result.SerializeToString()

    def _enter(self, phase: str, *, cancellable: bool) -> None:
        """Begin a phase durably. Cancelled where the operation is to be taken back: then it is not begun."""
        fresh = phase != self._operation.phase
        done, total = (0, 0) if fresh else (self._operation.done, self._operation.total)
        values: dict[str, Any] = {"phase": phase, "cancellable": cancellable, "done": done, "total": total}
        if fresh:
            values["failures"] = 0
        calm = self._operation.cancellable and phase != ROLLING_BACK
        if not self._write(values, unless_cancelling=calm):
            raise Cancelled
        failures = 0 if fresh else self._operation.failures
        self._operation = replace(
            self._operation, phase=phase, cancellable=cancellable, done=done, total=total, failures=failures
        )
        self._begun = (time.monotonic(), done)

    def _end(self, state: OperationState, error: bytes = b"") -> None:
        now = self._clock()
        values = {"state": state, "ended_at": now, "error": error, "lease_until": None, "phase": ""}
        if state is OperationState.SUCCEEDED:
            values["answer"] = self._answer
        self._write(values)

    def _release(self, after_seconds: float, failures: int) -> None:
        until = Micros(self._clock() + int(after_seconds * 1_000_000))
        # Under another number, so that a renewal on its way does not take it again.
        fence = self._operation.fence + 1
        pending = {"state": OperationState.PENDING, "failures": failures}
        self._write({**pending, "lease_until": until, "fence": fence})

    def _renew(self, until: Micros) -> None:
        self._write({"lease_until": until, **_progress(self._operation)})
        self._cancelling = self._operations.is_cancelling(self._operation.operation_id)

    def _write(self, values: Mapping[str, Any], *, unless_cancelling: bool = False) -> bool:
        written = {**values, "updated_at": self._clock()}
        try:
            return self._operations.write(self._operation, written, unless_cancelling=unless_cancelling)
        except LeaseLost:
            self._lost = True
            raise


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of an operation. ``run`` raises Unavailable or ServerBusy to be tried again a little later,
    another ScrubjayError to have the operation fail. Where it is not ``cancellable`` it is tried until it is
    done."""

    name: str
    run: Callable[[Task], None]
    cancellable: bool = True


@dataclass(frozen=True, slots=True)
class Plan:
    """The phases of a kind of operation, in order, and what takes back all that they did."""

    phases: tuple[Phase, ...]
    roll_back: Callable[[Task], None]


class Conductor:
    """Carries out the operations of ``plans``, from construction to ``close``.

    ``living`` gives the tenant of an incarnation, ``clock`` microseconds since 1970, and ``begun`` is set
    where an operation was begun or cancelled in this process.
    """

    def __init__(
        self,
        operations: Operations,
        living: Callable[[Incarnation], Tenant | None],
        plans: Mapping[Kind, Plan],
        clock: Callable[[], Micros],
        begun: threading.Event,
    ) -> None:
        self._operations = operations
        self._living = living
        self._plans = plans
        self._clock = clock
        self._begun = begun
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._running: dict[str, tuple[Task, threading.Thread]] = {}
        operations.release_all()
        self._thread = threading.Thread(target=self._run, name="scrubjay-operations", daemon=True)
        self._thread.start()
        self._renewal = Periodic("operation-leases", RENEW_SECONDS, self._renew)
        self._collection = Periodic("operations-collection", COLLECT_SECONDS, self._collect)

    def close(self) -> None:
        """Take no more operations, let those at work stop at their next report. May be called again."""
        self._closing.set()
        self._begun.set()
        self._thread.join()
        with self._lock:
            running = list(self._running.values())
        for task, _ in running:
            task._stopping = True
        due = time.monotonic() + STOP_SECONDS
        for _, thread in running:
            thread.join(max(0.0, due - time.monotonic()))
        self._collection.close()
        self._renewal.close()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._begun.clear()
            try:
                taken = self._take()
            except ScrubjayError as error:
                log.warning("no operations are taken up for %s s: %s", LOOK_SECONDS, error.message)
                taken = False
            except Exception:
                log.exception("no operations are taken up for %s s", LOOK_SECONDS)
                taken = False
            if not taken:
                self._begun.wait(LOOK_SECONDS)

    def _take(self) -> bool:
        with self._lock:
            mine = frozenset(self._running)
        if len(mine) >= AT_ONCE:
            return False
        now = self._clock()
        found = self._operations.take(now, _until(now), mine)
        if found is None:
            return False
        task = Task(found, self._operations, self._living, self._clock)
        name = f"scrubjay-operation-{found.operation_id}"
        thread = threading.Thread(target=self._work, args=(task,), name=name, daemon=True)
        with self._lock:
            self._running[found.operation_id] = (task, thread)
        thread.start()
        return True

    # --- carrying one out -------------------------------------------------------------------------

    def _work(self, task: Task) -> None:
        operation = task.operation
        try:
            self._carry_out(task)
        except LeaseLost:
            log.info("the operation %s was taken up elsewhere", operation.operation_id)
        except Exception:
            log.exception(
                "the operation %s is taken up again when its lease runs out", operation.operation_id
            )
        finally:
            with self._lock:
                del self._running[operation.operation_id]
            self._begun.set()

    def _carry_out(self, task: Task) -> None:
        try:
            self._go_on(task)
        except LeaseLost:
            raise
        except Stopping:
            task._release(0, task.operation.failures)
        except Later:
            task._release(LOOK_SECONDS, task.operation.failures)
        except (Unavailable, ServerBusy) as error:
            self._again(task, error)
        except Exception as error:
            log.error("an operation failed", exc_info=error, extra={"operation": task.operation.operation_id})
            self._again(task, error, unknown=1)

    def _again(self, task: Task, error: Exception, unknown: int = 0) -> None:
        operation = task.operation
        failures = operation.failures + unknown
        least, most = AGAIN_SECONDS
        seconds = min(most, least * 2 ** min(failures, 6))
        said = error.message if isinstance(error, ScrubjayError) else type(error).__name__
        log.warning(
            "%s of %s is tried again in %s s, %r failed: %s",
            operation.kind,
            operation.tenant_id or operation.target,
            seconds,
            operation.phase,
            said,
        )
        task._release(seconds, failures)

    def _go_on(self, task: Task) -> None:
        """Carry the operation to its end; where that is not its success, roll it back before."""
        operation = task.operation
        plan = self._plans[operation.kind]
        if operation.phase == ROLLING_BACK:
            self._roll_back(task, plan)
            return
        try:
            if operation.failures >= MOST_FAILURES and operation.cancellable:
                raise _internal(operation)
            names = [phase.name for phase in plan.phases]
            first = names.index(operation.phase) if operation.phase else 0
            for phase in plan.phases[first:]:
                task._enter(phase.name, cancellable=phase.cancellable)
                phase.run(task)
            task._end(OperationState.SUCCEEDED)
        except Cancelled:
            self._roll_back(task, plan, OperationState.CANCELLED)
        except (Unavailable, ServerBusy):
            raise
        except ScrubjayError as error:
            if not task.operation.cancellable:
                raise
            said = v1.OperationError(code=error.code, reason=error.reason, message=error.message)
            self._roll_back(task, plan, OperationState.FAILED, said)

    def _roll_back(
        self,
        task: Task,
        plan: Plan,
        state: OperationState | None = None,
        error: v1.OperationError | None = None,
    ) -> None:
        """Take back what was done, then end as it is to end; what that is, is kept for who goes on here."""
        if state is not None:
            encoded = error.SerializeToString().hex() if error else ""
            task.note(**{_ENDS_AS: f"{state.value} {encoded}"})
            task._enter(ROLLING_BACK, cancellable=False)
        plan.roll_back(task)
        number, _, encoded = str((task.operation.notes or {})[_ENDS_AS]).partition(" ")
        task._end(OperationState(int(number)), bytes.fromhex(encoded))

    # --- beside them ------------------------------------------------------------------------------

    def _renew(self, _ending: threading.Event) -> None:
        with self._lock:
            tasks = [task for task, _ in self._running.values()]
        for task in tasks:
            try:
                task._renew(_until(self._clock()))
            except LeaseLost:
                continue

    def _collect(self, _ending: threading.Event) -> None:
        self._operations.collect(Micros(self._clock() - KEPT_MICROS))


_ENDS_AS = "ends as"
"""The note of an operation that is rolled back: its state in the end, and its error."""


def _until(now: Micros) -> Micros:
    return Micros(now + LEASE_SECONDS * 1_000_000)


def _progress(operation: TenantOperation) -> dict[str, Any]:
    return {"done": operation.done, "total": operation.total, "per_second": operation.per_second}


def _internal(operation: TenantOperation) -> InternalError:
    request_id = uuid.uuid4().hex
    log.error("the operation %s failed", operation.operation_id, extra={"request_id": request_id})
    return InternalError(f"the server failed; its log has the request_id {request_id}")
