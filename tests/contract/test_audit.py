"""The audit log: every mutation of an admin is in it, refused or not, and nobody changes it unseen."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from sqlalchemy import Engine, delete, insert, select, text, update

from scrubjay import v1
from scrubjay.errors import (
    ApiKeyNotFound,
    DeviceRevoked,
    RoleNotAllowed,
    ScrubjayError,
    StorageUnavailable,
    TenantExists,
    TenantNotFound,
)
from scrubjay.memory import DAY_MICROS, ClientId, Micros, Subject
from tenants import audit_door
from tenants.admin_parts import AdminParts
from tenants.database import migrate, open_engine
from tenants.operation import Kind, OperationState
from tenants.registry import SCRIPTS, VERSION_TABLE, Registry, RequestKey
from tenants.registry import audit as registry_audit
from tenants.registry.tables import audit_events, audit_head, audit_tail
from tenants.tenant import Caller, Role
from tenants.tenant_service import ALLOWED, TenantAdminService
from tests.no_subjects import NoSubjects

NOW = Micros(1_796_000_000_123_456)
PLATFORM = Caller(Role.PLATFORM_ADMIN, "platformkey", ClientId("platform"), None)
SECRET_WORD = "Xylokarp"
"""Stands wherever a request takes words, and never in the log."""


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = open_engine(database_url)
    migrate(engine, SCRIPTS, VERSION_TABLE)
    yield engine
    engine.dispose()


@pytest.fixture
def registry(engine: Engine) -> Registry:
    offered = {"lite": "lite-1/512", "hash": "hash-1/1024"}
    return Registry(engine, pepper=b"p" * 32, shard_names=["shard-0"], space="lite-1/512", offered=offered)


@pytest.fixture
def service(registry: Registry) -> TenantAdminService:
    return TenantAdminService(AdminParts(registry, b"s" * 32, lambda: NOW, NoSubjects()))


def admin_of(registry: Registry, tenant_id: str) -> Caller:
    return Caller(Role.TENANT_ADMIN, f"{tenant_id}key", ClientId("admin"), registry.get_tenant(tenant_id))


def events(
    service: TenantAdminService, caller: Caller = PLATFORM, tenant_id: str = ""
) -> list[v1.AuditEvent]:
    """All events, oldest first."""
    request = v1.ListAuditEventsRequest(tenant_id=tenant_id, page_size=1000)
    return list(reversed(service.list_audit_events(request, caller).events))


def lines(service: TenantAdminService, **kwargs: Any) -> list[tuple[str, ...]]:
    found = events(service, **kwargs)
    return [(each.method, each.tenant_id, each.resource, each.outcome, each.detail) for each in found]


def verified(service: TenantAdminService) -> list[str]:
    answer = service.verify_audit_events(v1.VerifyAuditEventsRequest(), PLATFORM)
    assert answer.at_end
    return list(answer.faults)


# --- what is in it --------------------------------------------------------------------------------


def everything(service: TenantAdminService, registry: Registry) -> Iterator[tuple[str, str, str]]:
    """Every mutation once: its method, what it touched, and the detail."""
    say = SECRET_WORD
    service.create_tenant(v1.CreateTenantRequest(tenant_id="acme", display_name=say), PLATFORM)
    yield "CreateTenant", "", ""
    told = v1.Tenant(tenant_id="acme", display_name=say, write_settings={"custom_instructions": say})
    mask = FieldMask(paths=["write_settings", "display_name"])
    service.update_tenant(v1.UpdateTenantRequest(tenant=told, update_mask=mask), PLATFORM)
    yield "UpdateTenant", "", "display_name, write_settings"
    service.suspend_tenant(v1.SuspendTenantRequest(tenant_id="acme", reason=say), PLATFORM)
    yield "SuspendTenant", "", ""
    service.resume_tenant(v1.ResumeTenantRequest(tenant_id="acme"), PLATFORM)
    yield "ResumeTenant", "", ""
    service.delete_tenant(v1.DeleteTenantRequest(tenant_id="acme", grace_days=7), PLATFORM)
    yield "DeleteTenant", "", "grace of 7 days"
    service.undelete_tenant(v1.UndeleteTenantRequest(tenant_id="acme"), PLATFORM)
    yield "UndeleteTenant", "", ""
    asked = v1.CreateApiKeyRequest(tenant_id="acme", role=v1.ROLE_SERVICE, display_name=say, client_id=say)
    key_id = service.create_api_key(asked, PLATFORM).api_key.key_id
    yield "CreateApiKey", f"keys/{key_id}", "SERVICE"
    rotate = v1.RotateApiKeyRequest(tenant_id="acme", key_id=key_id)
    new_id = service.rotate_api_key(rotate, PLATFORM).api_key.key_id
    yield "RotateApiKey", f"keys/{key_id} keys/{new_id}", ""
    service.revoke_api_key(v1.RevokeApiKeyRequest(tenant_id="acme", key_id=key_id), PLATFORM)
    yield "RevokeApiKey", f"keys/{key_id}", ""
    enrol = v1.CreateEnrolmentRequest(tenant_id="acme", user_id=say, display_name=say, scopes=[say])
    code = registry.authenticate(service.create_enrolment(enrol, PLATFORM).enrolment_code, NOW)
    yield "CreateEnrolment", f"enrolments/{code.key_id}", ""
    device = registry.devices.register_device(code.key_id, b"i" * 16, now=NOW).device.device_id
    revoke = v1.RevokeDeviceRequest(tenant_id="acme", device_id=device, wipe=True)
    service.revoke_device(revoke, PLATFORM)
    yield "RevokeDevice", f"devices/{device}", "wipe"
    list(service.export_subject(v1.ExportSubjectRequest(tenant_id="acme", user_id=say), PLATFORM, None))
    yield "ExportSubject", "", ""
    service.erase_subject(v1.EraseSubjectRequest(tenant_id="acme", user_id=say), PLATFORM)
    yield "EraseSubject", "", ""
    begun = registry.operations.begin(
        Kind.MOVE,
        "acme",
        {"note": say},
        now=NOW,
        request=RequestKey("", actor="platformkey", role=Role.PLATFORM_ADMIN),
    )
    yield "MoveTenant", f"operations/{begun.operation_id}", ""
    cancel = v1.CancelTenantOperationRequest(operation_id=begun.operation_id)
    service.cancel_tenant_operation(cancel, PLATFORM)
    yield "CancelTenantOperation", f"operations/{begun.operation_id}", ""
    registry.operations.write(begun, {"state": OperationState.CANCELLED, "lease_until": None})
    reindex = v1.ReindexTenantRequest(tenant_id="acme", embedder="hash")
    reindexing = service.reindex_tenant(reindex, PLATFORM).operation.operation
    yield "ReindexTenant", f"operations/{reindexing.id}", ""


def test_every_mutation_is_in_it_with_who_when_and_what(
    service: TenantAdminService, registry: Registry, engine: Engine
) -> None:
    done = list(everything(service, registry))
    mutations = {path.rpartition("/")[2] for path in ALLOWED} - {"GetTenant", "ListTenants", "ListDevices"}
    mutations -= {"ListAuditEvents", "VerifyAuditEvents", "GetTenantOperation", "ListTenantOperations"}
    mutations = mutations - {"GetUsage", "ListApiKeys", "WaitTenantOperation"} | {"MoveTenant"}
    mutations -= {"ListShards", "DrainShard"}  # rpc/test_moving.py
    mutations -= {"ExportTenant", "DownloadExport", "UploadImport", "ImportTenant"}  # rpc/test_archives.py
    assert {method for method, *_ in done} == mutations
    found = events(service)
    assert lines(service) == [(method, "acme", on, "OK", detail) for method, on, detail in done]
    assert [each.number for each in found] == list(range(1, len(done) + 1))
    life = registry.get_tenant("acme").incarnation
    assert {(each.actor, each.role, each.incarnation) for each in found} == {
        ("platformkey", v1.ROLE_PLATFORM_ADMIN, life)
    }
    assert {each.occurred_at.ToMicroseconds() for each in found} == {NOW}
    assert verified(service) == []
    with engine.begin() as connection:
        rows = [dict(row) for row in connection.execute(select(audit_events)).mappings()]
    assert SECRET_WORD not in json.dumps(rows, default=str)


def test_what_is_refused_is_in_it_with_the_reason(service: TenantAdminService, registry: Registry) -> None:
    create = v1.CreateTenantRequest(tenant_id="acme")
    service.create_tenant(create, PLATFORM)
    unknown = "0" * 16
    refused: list[tuple[Callable[[], object], type[ScrubjayError], str, str]] = [
        (lambda: service.create_tenant(create, PLATFORM), TenantExists, "CreateTenant", ""),
        (
            lambda: service.revoke_api_key(
                v1.RevokeApiKeyRequest(tenant_id="acme", key_id=unknown), PLATFORM
            ),
            ApiKeyNotFound,
            "RevokeApiKey",
            f"keys/{unknown}",
        ),
        (
            lambda: service.rotate_api_key(
                v1.RotateApiKeyRequest(tenant_id="acme", key_id=f"{SECRET_WORD}\n"), PLATFORM
            ),
            ApiKeyNotFound,
            "RotateApiKey",
            "",
        ),
    ]
    for call, kind, _, _ in refused:
        with pytest.raises(kind):
            call()
    reasons = {TenantExists: "TENANT_EXISTS", ApiKeyNotFound: "API_KEY_NOT_FOUND"}
    assert lines(service)[1:] == [(method, "acme", on, reasons[kind], "") for _, kind, method, on in refused]
    service.get_tenant(v1.GetTenantRequest(tenant_id="acme"), PLATFORM)
    assert len(events(service)) == 4


def test_a_repeat_is_in_it_as_one(service: TenantAdminService) -> None:
    service.create_tenant(v1.CreateTenantRequest(tenant_id="acme"), PLATFORM)
    request = v1.CreateApiKeyRequest(tenant_id="acme", role=v1.ROLE_READER, request_id="r-1")
    (key_id,) = {service.create_api_key(request, PLATFORM).api_key.key_id for _ in range(2)}
    assert [line[2:4] for line in lines(service)[1:]] == [
        (f"keys/{key_id}", "OK"),
        (f"keys/{key_id}", "REPEATED"),
    ]


def test_what_is_undone_is_not_in_it(
    service: TenantAdminService, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise StorageUnavailable

    monkeypatch.setattr(registry.audit, "append", fail)
    with pytest.raises(StorageUnavailable):
        service.create_tenant(v1.CreateTenantRequest(tenant_id="acme"), PLATFORM)
    monkeypatch.undo()
    with pytest.raises(TenantNotFound):
        registry.get_tenant("acme")
    assert events(service) == []


def test_what_the_server_does_by_itself_is_in_it(service: TenantAdminService, registry: Registry) -> None:
    registry.create_tenant("acme", "", now=NOW)
    code = registry.enrolments.create_enrolment("acme", Subject("user", "alice"), now=NOW).code
    issued = registry.devices.register_device(registry.authenticate(code, NOW).key_id, b"i" * 16, now=NOW)
    second = registry.devices.refresh_token(issued.device.device_id, 1, now=NOW)
    registry.authenticate(second.token, NOW)
    with pytest.raises(DeviceRevoked):
        registry.devices.refresh_token(issued.device.device_id, 1, now=NOW)
    registry.lives.delete_tenant("acme", 0, now=NOW)
    tenant = registry.lives.begin_purge(registry.get_tenant("acme"), now=NOW)
    registry.lives.finish_purge(tenant, {"memories": 7}, now=NOW)
    found = events(service)
    assert {(each.actor, each.role) for each in found} == {("", v1.ROLE_UNSPECIFIED)}
    assert [(each.method, each.detail) for each in found[2:]] == [
        ("RevokeDevice", "an older token came back"),
        ("DeleteTenant", "grace of 0 days"),
        ("PurgeTenant", "8 rows and files"),
    ]


# --- who reads it ---------------------------------------------------------------------------------


def test_a_tenants_admin_reads_what_is_about_this_life_of_its_tenant(
    service: TenantAdminService, registry: Registry
) -> None:
    for tenant_id in ("acme", "rival"):
        service.create_tenant(v1.CreateTenantRequest(tenant_id=tenant_id), PLATFORM)
    acme, rival = admin_of(registry, "acme"), admin_of(registry, "rival")
    with pytest.raises(TenantNotFound):
        service.update_tenant(
            v1.UpdateTenantRequest(
                tenant=v1.Tenant(tenant_id="rival"), update_mask=FieldMask(paths=["display_name"])
            ),
            acme,
        )
    assert [line[:4] for line in lines(service, caller=acme, tenant_id="acme")] == [
        ("CreateTenant", "acme", "", "OK"),
        ("UpdateTenant", "acme", "tenants/rival", "TENANT_NOT_FOUND"),
    ]
    assert len(events(service, rival, "rival")) == 1
    with pytest.raises(TenantNotFound):
        events(service, acme, "rival")
    with pytest.raises(RoleNotAllowed):
        events(service, acme)
    registry.lives.delete_tenant("acme", 0, now=NOW)
    tenant = registry.lives.begin_purge(registry.get_tenant("acme"), now=NOW)
    registry.lives.finish_purge(tenant, {}, now=NOW)
    service.create_tenant(v1.CreateTenantRequest(tenant_id="acme"), PLATFORM)
    assert len(events(service, admin_of(registry, "acme"), "acme")) == 1
    assert len(events(service, PLATFORM, "acme")) == 5


@pytest.mark.parametrize("size", [1, 2, 7])
def test_pages_join_to_the_whole_log(service: TenantAdminService, size: int) -> None:
    for n in range(5):
        service.create_tenant(v1.CreateTenantRequest(tenant_id=f"t{n}"), PLATFORM)
    found: list[int] = []
    request = v1.ListAuditEventsRequest(page_size=size)
    while not found or request.page_token:
        page = service.list_audit_events(request, PLATFORM)
        found += [each.number for each in page.events]
        request.page_token = page.next_page_token
    assert found == [5, 4, 3, 2, 1]


# --- whether it is whole --------------------------------------------------------------------------


def tampering() -> dict[str, tuple[Callable[[Any], object], str]]:
    """Ways to change a log of six events, each with what shows it."""
    number = audit_events.c.number
    changes = {
        column.name: (
            lambda run, name=column.name, value=value: run(
                update(audit_events).where(number == 3).values({name: value})
            ),
            "event 3 was changed",
        )
        for column in audit_events.c
        if column.name not in ("number", "digest")
        for value in [7 if column.name in ("at", "role") else "other"]
    }

    def swap(run: Callable[[object], object]) -> None:
        for before, after in ((2, 99), (3, 2), (99, 3)):
            run(update(audit_events).where(number == before).values(number=after))

    def copy(run: Callable[[object], object]) -> None:
        columns = [column.name for column in audit_events.c if column.name != "number"]
        run(
            insert(audit_events).from_select(
                ["number", *columns],
                select(number + 5, *(audit_events.c[name] for name in columns)).where(number == 2),
            )
        )

    def cut(run: Callable[[object], object]) -> None:
        run(delete(audit_events).where(number == 6))
        last = select(audit_events.c.digest).where(number == 5).scalar_subquery()
        run(update(audit_head).values(number=5, digest=last))

    return changes | {
        "digest": (
            lambda run: run(update(audit_events).where(number == 3).values(digest=b"x" * 32)),
            "event 3 was changed",
        ),
        "first": (lambda run: run(delete(audit_events).where(number == 1)), "event 1 is missing"),
        "middle": (
            lambda run: run(delete(audit_events).where(number.in_((3, 4)))),
            "events 3 to 4 are missing",
        ),
        "last": (lambda run: run(delete(audit_events).where(number == 6)), "event 6 is missing"),
        "all": (lambda run: run(delete(audit_events)), "events 1 to 6 are missing"),
        "swapped": (swap, "event 2 was changed"),
        "added": (copy, "event 7 was changed"),
        "cut with its head": (cut, "the head of the log was changed"),
        "head": (lambda run: run(delete(audit_head)), "the head of the log was changed"),
    }


@pytest.mark.parametrize("backend", ["sqlite"])
@pytest.mark.parametrize("way", tampering())
@pytest.mark.parametrize("part", [2, 100])
def test_whatever_is_changed_or_removed_is_found(
    service: TenantAdminService, engine: Engine, monkeypatch: pytest.MonkeyPatch, way: str, part: int
) -> None:
    monkeypatch.setattr(audit_door, "VERIFIED_AT_ONCE", part)
    for n in range(6):
        service.create_tenant(v1.CreateTenantRequest(tenant_id=f"t{n}"), PLATFORM)
    assert in_parts(service) == []
    change, fault = tampering()[way]
    with engine.begin() as connection:
        change(connection.execute)
    assert in_parts(service)[0] == fault


def in_parts(service: TenantAdminService) -> list[str]:
    request, found = v1.VerifyAuditEventsRequest(), list[str]()
    while True:
        answer = service.verify_audit_events(request, PLATFORM)
        found += answer.faults
        if answer.at_end:
            return found
        request.after_number = answer.last_number


def test_an_event_of_another_pepper_is_none(service: TenantAdminService, engine: Engine) -> None:
    service.create_tenant(v1.CreateTenantRequest(tenant_id="acme"), PLATFORM)
    other = Registry(engine, pepper=b"q" * 32, shard_names=["shard-0"], space="lite-1/512")
    assert other.audit.verify(0, 10).faults == (
        "event 1 was changed",
        "the head of the log was changed",
    )


def test_many_admins_at_once_make_one_chain(service: TenantAdminService) -> None:
    def work(n: int) -> None:
        service.create_tenant(v1.CreateTenantRequest(tenant_id=f"t{n}"), PLATFORM)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(40)))
    assert verified(service) == []
    assert len(events(service)) == 40


def test_an_older_catalogue_gets_an_empty_log(engine: Engine, registry: Registry) -> None:
    with engine.begin() as connection:
        assert connection.execute(text("SELECT number FROM catalogue_audit_head")).scalars().all() == [0]
    assert registry.audit.verify(0, 10).faults == ()


# --- how long it is kept --------------------------------------------------------------------------

DAYS = 30


def aged(registry: Registry, engine: Engine, *ages: float) -> int:
    """A log with an event of each of these ages in days, oldest first; how many events were cut off."""
    for n, age in enumerate(ages):
        registry.create_tenant(f"t{n}", "", now=Micros(int(NOW - age * DAY_MICROS)))
    return registry.audit.cut(DAYS, now=NOW)


def test_old_events_are_cut_off_and_what_is_kept_is_still_checked(
    service: TenantAdminService, registry: Registry, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_audit, "CUT_AT_ONCE", 2)
    assert aged(registry, engine, 50, 40, 31.5, 30.5, 29, 1) == 4
    assert [(each.number, each.method, each.detail) for each in events(service)] == [
        (5, "CreateTenant", ""),
        (6, "CreateTenant", ""),
        (7, "CutAuditLog", "events 1 to 2"),
        (8, "CutAuditLog", "events 3 to 4"),
    ]
    answer = service.verify_audit_events(v1.VerifyAuditEventsRequest(), PLATFORM)
    assert (list(answer.faults), answer.checked_count, answer.cut_number) == ([], 4, 4)
    monkeypatch.setattr(audit_door, "VERIFIED_AT_ONCE", 1)
    assert in_parts(service) == []
    for passed in (1, 2, 4, 5):
        request = v1.VerifyAuditEventsRequest(after_number=passed)
        assert not service.verify_audit_events(request, PLATFORM).faults
    registry.create_tenant("later", "", now=NOW)
    assert in_parts(service) == []


def test_nothing_is_cut_before_there_is_a_days_worth(
    service: TenantAdminService, registry: Registry, engine: Engine
) -> None:
    assert aged(registry, engine, 30.9, 30.5, 2) == 0
    assert registry.audit.cut(DAYS, now=Micros(NOW + DAY_MICROS // 5)) == 2
    assert registry.audit.cut(DAYS, now=Micros(NOW + DAY_MICROS // 5)) == 0
    assert registry.audit.cut(1, now=Micros(NOW + 100 * DAY_MICROS)) == 2
    assert [each.method for each in events(service)] == ["CutAuditLog"]
    assert verified(service) == []
    registry.create_tenant("later", "", now=NOW)
    assert verified(service) == []


def cuts() -> dict[str, tuple[Callable[[Any], object], str]]:
    """Ways to cut off a log of six events of which a server cut off two, each with what shows it."""
    number, tail = audit_events.c.number, audit_tail.c.number

    def pretend(run: Callable[[object], object]) -> None:
        fourth = select(audit_events.c.digest).where(number == 4).scalar_subquery()
        run(update(audit_tail).values(number=4, digest=fourth))
        run(delete(audit_events).where(number <= 4))

    return {
        "events alone": (
            lambda run: run(delete(audit_events).where(number <= 4)),
            "events 3 to 4 are missing",
        ),
        "with a tail": (pretend, "the log was cut off behind event 4, and not by a server"),
        "the tail": (lambda run: run(delete(audit_tail)), "events 1 to 2 are missing"),
        "the tail's number": (
            lambda run: run(update(audit_tail).values(number=3)),
            "the log was cut off behind event 3, and not by a server",
        ),
        "the tail's digest": (
            lambda run: run(update(audit_tail).where(tail == 2).values(digest=b"x" * 32)),
            "the log was cut off behind event 2, and not by a server",
        ),
        "all": (lambda run: run(delete(audit_events)), "events 3 to 7 are missing"),
    }


@pytest.mark.parametrize("backend", ["sqlite"])
@pytest.mark.parametrize("way", cuts())
@pytest.mark.parametrize("part", [1, 100])
def test_a_cut_that_is_no_servers_is_found(
    service: TenantAdminService,
    registry: Registry,
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    part: int,
) -> None:
    monkeypatch.setattr(audit_door, "VERIFIED_AT_ONCE", part)
    assert aged(registry, engine, 40, 35, 20, 19, 18, 17) == 2
    assert in_parts(service) == []
    change, fault = cuts()[way]
    with engine.begin() as connection:
        change(connection.execute)
    assert in_parts(service)[0] == fault


def test_an_earlier_tail_that_is_put_back_is_found(
    service: TenantAdminService, registry: Registry, engine: Engine
) -> None:
    assert aged(registry, engine, 40, 35, 20, 19) == 2
    with engine.begin() as connection:
        kept = connection.execute(select(audit_tail)).mappings().one()
    assert registry.audit.cut(DAYS, now=Micros(NOW + 15 * DAY_MICROS)) == 2
    assert verified(service) == []
    with engine.begin() as connection:
        connection.execute(update(audit_tail).values(dict(kept)))
    assert verified(service) == ["events 3 to 4 are missing"]


def test_a_log_that_somebody_changed_is_not_cut(
    service: TenantAdminService, registry: Registry, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    for n in range(4):
        registry.create_tenant(f"t{n}", "", now=NOW)
    with engine.begin() as connection:  # made to look old, so that the server deletes it
        connection.execute(update(audit_events).where(audit_events.c.number <= 2).values(at=1))
    assert registry.audit.cut(DAYS, now=NOW) == 0
    assert len(events(service)) == 4
    assert "the audit log was changed" in caplog.text


def test_servers_that_cut_at_once_make_one_chain(service: TenantAdminService, registry: Registry) -> None:
    for n in range(20):
        registry.create_tenant(f"t{n}", "", now=Micros(NOW - 40 * DAY_MICROS))
    with ThreadPoolExecutor(4) as pool:
        cut = list(pool.map(lambda _: registry.audit.cut(DAYS, now=NOW), range(4)))
    assert sum(cut) == 20
    assert verified(service) == []
    assert [each.detail for each in events(service)] == ["events 1 to 20"]
