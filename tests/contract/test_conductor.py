"""The conductor: every phase is done, whoever dies, and what is cancelled is taken back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field

import pytest

from scrubjay import v1
from scrubjay.errors import (
    InvalidField,
    OperationEnded,
    OperationNotFound,
    OperationUnderWay,
    StorageUnavailable,
    TenantNotActive,
    TenantNotFound,
)
from scrubjay.memory import ClientId, Micros, Subject
from server.operations import conductor
from server.operations.conductor import LEASE_SECONDS, MOST_FAILURES, Conductor, Later, Phase, Plan, Task
from tenants.admin_parts import AdminParts
from tenants.database import migrate, open_engine
from tenants.operation import Kind, OperationState, TenantOperation
from tenants.registry import SCRIPTS, VERSION_TABLE, Registry, RequestKey
from tenants.tenant import Caller, Role
from tenants.tenant_service import TenantAdminService
from tests.killing import Killed
from tests.no_subjects import NoSubjects
from tests.waiting import patiently

PATIENCE_SECONDS = 20
PHASES = ("copy", "switch", "sweep")


until = patiently(PATIENCE_SECONDS)


@dataclass
class Host:
    """A server's share: its own way to the catalogue, and a plan of three phases that says what it does."""

    registry: Registry
    clock: list[Micros]
    done: list[str] = field(default_factory=list)
    raising: dict[str, list[BaseException]] = field(default_factory=dict)
    holding: dict[str, threading.Event] = field(default_factory=dict)
    at_work: threading.Event = field(default_factory=threading.Event)
    begun: threading.Event = field(default_factory=threading.Event)

    def now(self) -> Micros:
        return self.clock[0]

    def phase(self, name: str) -> Callable[[Task], None]:
        def run(task: Task) -> None:
            task.report(1, 4)
            self.at_work.set()
            while name in self.holding and not self.holding[name].wait(0.005):
                task.report(2, 4)
            if self.raising.get(name):
                raise self.raising[name].pop(0)
            task.note(**{name: True})
            self.done.append(name)
            if name == PHASES[-1]:
                task.answer(v1.TenantOperationResult())

        return run

    def conduct(self) -> Conductor:
        phases = tuple(Phase(name, self.phase(name), cancellable=name == "copy") for name in PHASES)
        plan = Plan(phases, self.phase("back"))
        operations = self.registry.operations
        return Conductor(operations, self.registry.living, {Kind.MOVE: plan}, self.now, self.begun)

    def begin(self, tenant_id: str = "acme", request_id: str = "") -> TenantOperation:
        request = RequestKey(request_id, actor="key", role=Role.PLATFORM_ADMIN)
        found = self.registry.operations.begin(
            Kind.MOVE, tenant_id, {"shard": "shard-1"}, now=self.now(), request=request
        )
        self.begun.set()
        return found

    def cancel(self, operation: TenantOperation) -> TenantOperation:
        return self.registry.operations.cancel(
            operation.operation_id, None, now=self.now(), request=RequestKey("")
        )

    def stands(self, operation: TenantOperation) -> TenantOperation:
        return self.registry.operations.get(operation.operation_id)

    def ended(self, operation: TenantOperation) -> bool:
        return self.stands(operation).state.ended


@pytest.fixture
def host(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Host]]:
    """Makes hosts on one catalogue with one clock, that look for work all the time."""
    monkeypatch.setattr(conductor, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(conductor, "RENEW_SECONDS", 0.02)
    monkeypatch.setattr(conductor, "AGAIN_SECONDS", (0, 0))
    clock = [Micros(1_796_000_000_000_000)]
    with ExitStack() as stack:

        def made() -> Host:
            engine = open_engine(database_url)
            stack.callback(engine.dispose)
            migrate(engine, SCRIPTS, VERSION_TABLE)
            names = ["shard-0", "shard-1"]
            return Host(Registry(engine, pepper=b"p" * 32, shard_names=names, space="lite-1/512"), clock)

        first = made()
        first.registry.create_tenant("acme", "Acme", now=clock[0])
        first.registry.create_tenant("rival", "Rival", now=clock[0])
        hosts = [first]
        yield lambda: hosts.pop() if hosts else made()


def test_an_operation_goes_through_its_phases_once(host: Callable[[], Host]) -> None:
    here = host()
    with closing(here.conduct()):
        operation = here.begin()
        until(lambda: here.ended(operation))
    found = here.stands(operation)
    assert (found.state, found.notes) == (OperationState.SUCCEEDED, dict.fromkeys(PHASES, True))
    assert here.done == list(PHASES)
    assert here.registry.operations.under_way(found.incarnation) is None


@pytest.mark.parametrize("name", PHASES)
def test_who_is_killed_in_a_phase_is_followed_by_another(host: Callable[[], Host], name: str) -> None:
    here, other = host(), host()
    here.raising[name] = [Killed()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading, "excepthook", lambda _: None)
        first = here.conduct()
        operation = here.begin()
        until(lambda: here.stands(operation).phase == name and not first._running)
        first.close()
    with closing(other.conduct()):
        if other.registry.operations._engine.dialect.name == "postgresql":
            assert other.done == []
            other.clock[0] = Micros(other.clock[0] + (LEASE_SECONDS + 1) * 1_000_000)
        until(lambda: other.ended(operation))
    assert other.done == list(PHASES[PHASES.index(name) :])
    assert other.stands(operation).state is OperationState.SUCCEEDED


def test_a_server_that_stops_leaves_it_to_another_at_once(host: Callable[[], Host]) -> None:
    here, other = host(), host()
    here.holding["copy"] = threading.Event()
    with closing(here.conduct()):
        operation = here.begin()
        assert here.at_work.wait(PATIENCE_SECONDS)
    assert (here.stands(operation).state, here.done) == (OperationState.PENDING, [])
    with closing(other.conduct()):
        until(lambda: other.ended(operation))
    assert other.done == list(PHASES)


def test_what_is_cancelled_is_taken_back(host: Callable[[], Host]) -> None:
    here = host()
    here.holding["copy"] = threading.Event()
    with closing(here.conduct()):
        operation = here.begin()
        assert here.at_work.wait(PATIENCE_SECONDS)
        assert here.cancel(operation).cancelling
        until(lambda: here.ended(operation))
        assert here.cancel(operation).state is OperationState.CANCELLED
    assert (here.stands(operation).state, here.done) == (OperationState.CANCELLED, ["back"])


def test_what_has_come_too_far_is_not_cancelled(host: Callable[[], Host]) -> None:
    here = host()
    here.holding["switch"] = threading.Event()
    with closing(here.conduct()):
        operation = here.begin()
        until(lambda: here.stands(operation).phase == "switch")
        with pytest.raises(OperationEnded):
            here.cancel(operation)
        here.holding["switch"].set()
        until(lambda: here.ended(operation))
    assert here.stands(operation).state is OperationState.SUCCEEDED


def test_who_is_killed_while_taking_back_is_followed_by_another(host: Callable[[], Host]) -> None:
    here, other = host(), host()
    here.raising = {"copy": [InvalidField.of("shard", "is full")], "back": [Killed()]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading, "excepthook", lambda _: None)
        first = here.conduct()
        operation = here.begin()
        until(lambda: here.stands(operation).phase == "rolling back" and not first._running)
        first.close()
    other.clock[0] = Micros(other.clock[0] + (LEASE_SECONDS + 1) * 1_000_000)
    with closing(other.conduct()):
        until(lambda: other.ended(operation))
    found = other.stands(operation)
    assert (found.state, other.done) == (OperationState.FAILED, ["back"])
    assert v1.OperationError.FromString(found.error).message == "shard: is full"


def test_a_database_that_does_not_answer_is_waited_for(host: Callable[[], Host]) -> None:
    here = host()
    here.raising["copy"] = [StorageUnavailable() for _ in range(MOST_FAILURES + 2)]
    here.raising["sweep"] = [InvalidField.of("shard", "is odd"), ValueError("what?")]
    with closing(here.conduct()):
        operation = here.begin()
        until(lambda: here.ended(operation))
    assert (here.stands(operation).state, here.done) == (OperationState.SUCCEEDED, list(PHASES))


def test_a_phase_that_fails_for_no_known_reason_is_taken_back(host: Callable[[], Host]) -> None:
    here = host()
    here.raising["copy"] = [ValueError("secret text") for _ in range(MOST_FAILURES)]
    with closing(here.conduct()):
        operation = here.begin()
        until(lambda: here.ended(operation))
    found = here.stands(operation)
    assert (found.state, here.done) == (OperationState.FAILED, ["back"])
    error = v1.OperationError.FromString(found.error)
    assert error.reason == v1.ERROR_REASON_INTERNAL
    assert "secret" not in error.message


def test_a_phase_that_waits_for_something_holds_no_thread(host: Callable[[], Host]) -> None:
    here = host()
    waits: list[BaseException] = [Later() for _ in range(3)]
    here.raising["copy"] = waits
    with closing(here.conduct()):
        operation = here.begin()
        while waits:
            here.clock[0] = Micros(here.clock[0] + 100_000)
            here.begun.set()
            time.sleep(0.005)  # for the conductor
        here.clock[0] = Micros(here.clock[0] + 100_000)
        until(lambda: here.ended(operation))
    assert here.done == list(PHASES)


def test_a_tenant_has_one_at_a_time_and_others_have_theirs(host: Callable[[], Host]) -> None:
    here = host()
    operation = here.begin(request_id="once")
    assert here.begin(request_id="once").operation_id == operation.operation_id
    with pytest.raises(OperationUnderWay) as refused:
        here.begin()
    assert refused.value.metadata["operation_id"] == operation.operation_id
    assert here.begin("rival").operation_id != operation.operation_id
    with pytest.raises(OperationUnderWay):
        here.registry.lives.delete_tenant("acme", 0, now=here.now())
    with pytest.raises(OperationUnderWay):
        here.registry.subjects.erase_subject(
            "acme", Subject("user", "alice"), now=here.now(), request=RequestKey("")
        )
    with closing(here.conduct()):
        until(lambda: here.ended(operation))
    here.registry.lives.delete_tenant("acme", 0, now=here.now())
    with pytest.raises(TenantNotActive):
        here.begin()


def test_two_servers_work_on_it_one_at_a_time(host: Callable[[], Host]) -> None:
    here, other = host(), host()
    with closing(here.conduct()), closing(other.conduct()):
        operations = [here.begin("acme"), other.begin("rival")]
        until(lambda: all(here.ended(operation) for operation in operations))
    assert sorted(here.done + other.done) == sorted(PHASES * 2)


# --- the door ---------------------------------------------------------------------------------------


@pytest.fixture
def door(host: Callable[[], Host]) -> tuple[Host, TenantAdminService]:
    here = host()
    return here, TenantAdminService(AdminParts(here.registry, b"s" * 32, here.now, NoSubjects(), here.begun))


def test_a_tenants_admin_sees_its_own_alone(door: tuple[Host, TenantAdminService]) -> None:
    here, service = door
    platform = Caller(Role.PLATFORM_ADMIN, "platform", ClientId("platform"), None)
    acme = here.registry.get_tenant("acme")
    admin = Caller(Role.TENANT_ADMIN, "admin", ClientId("admin"), acme)
    own, foreign = here.begin("acme"), here.begin("rival")
    listed = v1.ListTenantOperationsRequest
    for caller, tenant_id, expected in (
        (platform, "", [foreign, own]),
        (platform, "acme", [own]),
        (admin, "acme", [own]),
    ):
        answer = service.list_tenant_operations(listed(tenant_id=tenant_id, page_size=5), caller)
        assert sorted(one.operation.id for one in answer.operations) == sorted(
            one.operation_id for one in expected
        )
    with pytest.raises(TenantNotFound):
        service.list_tenant_operations(listed(tenant_id="rival"), admin)
    unknown = "01890000-0000-7000-8000-000000000000"
    for operation_id in (foreign.operation_id, unknown, "x\N{OBJECT REPLACEMENT CHARACTER}" * 9):
        with pytest.raises(OperationNotFound):
            service.get_tenant_operation(v1.GetTenantOperationRequest(operation_id=operation_id), admin)
        with pytest.raises(OperationNotFound):
            service.cancel_tenant_operation(v1.CancelTenantOperationRequest(operation_id=operation_id), admin)
    got = service.get_tenant_operation(v1.GetTenantOperationRequest(operation_id=own.operation_id), admin)
    assert (got.operation.operation.kind, got.operation.operation.tenant_id) == ("MoveTenant", "acme")


def test_operations_come_in_pages(door: tuple[Host, TenantAdminService]) -> None:
    here, service = door
    platform = Caller(Role.PLATFORM_ADMIN, "platform", ClientId("platform"), None)
    begun = [here.begin("acme"), here.begin("rival")]
    request = v1.ListTenantOperationsRequest(page_size=1)
    first = service.list_tenant_operations(request, platform)
    request.page_token = first.next_page_token
    second = service.list_tenant_operations(request, platform)
    found = [*first.operations, *second.operations]
    assert sorted(one.operation.id for one in found) == sorted(one.operation_id for one in begun)
    assert second.next_page_token == ""
