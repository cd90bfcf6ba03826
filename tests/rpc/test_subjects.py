"""A person's data: given whole to who may have it, and erased down to the last byte."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from typer.testing import CliRunner, Result

from rpc.conftest import Serving, Tenant
from rpc.refusal import refused
from scrubjay import v1
from server.config import Settings
from tenants.__main__ import app

MARK = "Xylokarp"
"""A word that nothing but the erased subject's memories holds."""
ALICE = {"tenant_id": "dev", "user_id": "alice"}


@pytest.fixture
def admin(serving: Serving) -> v1.TenantAdminServiceStub:
    """The tenant's own admin."""
    return v1.TenantAdminServiceStub(serving.with_key("dev", v1.ROLE_TENANT_ADMIN).channel)


def enrolled(serving: Serving, user_id: str = "alice", name: str = "phone") -> v1.SyncServiceStub:
    """A device of the tenant dev."""
    asked = v1.CreateEnrolmentRequest(tenant_id="dev", user_id=user_id, display_name=name)
    code = serving.admin.CreateEnrolment(asked).enrolment_code
    stub = v1.SyncServiceStub(serving.open_channel(serving.app.address, code))
    token = stub.RegisterDevice(v1.RegisterDeviceRequest(installation_id=b"i" * 16)).device_token
    return v1.SyncServiceStub(serving.open_channel(serving.app.address, token))


def plant(dev: Tenant) -> None:
    """Marks of many sizes wherever a caller may put words, edited and deleted again."""
    made = []
    for n in range(40):
        content = f"I live in {MARK} {n} " + f"{MARK.lower()}{n} " * (n * n % 300)
        made += dev.add(content, tags=[f"{MARK}-{n}"], metadata={"where": MARK}, scope=f"work/{MARK}")
    for n, memory in enumerate(made[::2]):
        memory.content = f"{MARK} changed " * (1 + n * 13 % 90)
        update = v1.UpdateRequest(memory=memory, update_mask=FieldMask(paths=["content"]))
        dev.memories.Update(update)
    for memory in made[::5]:
        dev.memories.Delete(v1.DeleteRequest(id=memory.id))
    dev.add(f"secret {MARK}", privacy_level=v1.PRIVACY_LEVEL_PRIVATE)
    dev.memories.Search(v1.SearchRequest(user_id="alice", query=MARK, count_access=True))


def marked(folder: Path) -> list[str]:
    """Files that hold the mark anywhere in their bytes, in any case of letters."""
    return [
        str(path.relative_to(folder))
        for path in sorted(folder.rglob("*"))
        if path.is_file() and MARK.lower().encode() in path.read_bytes().lower()
    ]


def swept(answer: v1.EraseSubjectResponse) -> dict[str, int]:
    return {each.place: each.count for each in answer.receipt.swept}


def exported(admin: v1.TenantAdminServiceStub, **named: str) -> list[str]:
    responses = admin.ExportSubject(v1.ExportSubjectRequest(**{**ALICE, **named}))
    return "".join(response.text for response in responses).splitlines(keepends=True)


def test_nothing_is_left_of_an_erased_subject(
    serving: Serving, settings: Settings, admin: v1.TenantAdminServiceStub
) -> None:
    plant(serving.dev)
    phone = enrolled(serving)
    assert sum(len(part.chunk) for part in phone.Snapshot(v1.SnapshotRequest())) > 0
    theirs = serving.dev.add("kept by another", user_id="bob")
    if not settings.shards:
        assert len(marked(settings.data_dir)) >= 2
    answer = admin.EraseSubject(v1.EraseSubjectRequest(**ALICE))
    counts = swept(answer)
    assert (counts["memories"], counts["device snapshots"], counts["enrolments"]) == (33, 1, 1)
    assert counts["history"] > 60
    assert counts["mentions"] > 0
    assert counts["request answers"] > 60
    assert answer.receipt.HasField("finished_at")
    if not settings.shards:  # PostgreSQL takes back the space of what was deleted by itself
        assert marked(settings.data_dir) == []
    else:
        assert marked(settings.data_dir / "snapshots") == []
    listed = serving.dev.memories.List(v1.ListRequest(user_id="alice")).memories
    assert not listed
    assert not serving.dev.memories.History(v1.HistoryRequest(user_id="alice")).entries
    assert not serving.dev.memories.ListEntities(v1.ListEntitiesRequest(user_id="alice")).entities
    assert serving.dev.memories.Get(v1.GetRequest(id=theirs[0].id)).memory == theirs[0]


def test_its_devices_are_told_to_wipe_and_listed_until_they_were(
    serving: Serving, admin: v1.TenantAdminServiceStub
) -> None:
    serving.dev.add("Likes tea.")
    phone, laptop = enrolled(serving), enrolled(serving, name="laptop")
    other = enrolled(serving, "bob", "bob's")
    for device in (phone, laptop, other):
        device.Sync(v1.SyncRequest(protocol=1))
    first = admin.EraseSubject(v1.EraseSubjectRequest(**ALICE))
    assert {each.display_name for each in first.pending_devices} == {"phone", "laptop"}
    assert phone.Sync(v1.SyncRequest(protocol=1)).directive == v1.DIRECTIVE_WIPE
    assert other.Sync(v1.SyncRequest(protocol=1)).directive == v1.DIRECTIVE_OK
    again = admin.EraseSubject(v1.EraseSubjectRequest(**ALICE))
    assert [each.display_name for each in again.pending_devices] == ["laptop"]
    devices = admin.ListDevices(v1.ListDevicesRequest(tenant_id="dev")).devices
    told = {each.display_name for each in devices if each.HasField("wipe_told_at")}
    assert told == {"phone"}


def test_an_enrolment_code_that_is_still_out_lets_nobody_in(
    serving: Serving, admin: v1.TenantAdminServiceStub
) -> None:
    asked = v1.CreateEnrolmentRequest(tenant_id="dev", user_id="alice")
    code = serving.admin.CreateEnrolment(asked).enrolment_code
    admin.EraseSubject(v1.EraseSubjectRequest(**ALICE))
    stub = v1.SyncServiceStub(serving.open_channel(serving.app.address, code))
    with refused() as answer:
        stub.RegisterDevice(v1.RegisterDeviceRequest(installation_id=b"i" * 16))
    assert answer.code is grpc.StatusCode.UNAUTHENTICATED


def test_a_repeated_call_erases_nothing_that_came_later(
    serving: Serving, admin: v1.TenantAdminServiceStub
) -> None:
    serving.dev.add("of before")
    request = v1.EraseSubjectRequest(**ALICE, request_id="erase-1")
    first = admin.EraseSubject(request)
    (later,) = serving.dev.add("of later")
    assert admin.EraseSubject(request) == first
    assert serving.dev.memories.Get(v1.GetRequest(id=later.id)).memory == later
    second = admin.EraseSubject(v1.EraseSubjectRequest(**ALICE, request_id="erase-2"))
    assert swept(second)["memories"] == 1
    with refused() as answer:
        admin.EraseSubject(v1.EraseSubjectRequest(tenant_id="dev", user_id="bob", request_id="erase-1"))
    assert answer.error.reason == v1.ERROR_REASON_REQUEST_ID_REUSED


def test_an_export_has_all_of_one_person_and_a_manifest(
    serving: Serving, admin: v1.TenantAdminServiceStub
) -> None:
    plant(serving.dev)
    serving.dev.add("of bob alone", user_id="bob")
    enrolled(serving)
    lines = exported(admin)
    manifest = json.loads(lines[-1])
    assert manifest["sha256"] == hashlib.sha256("".join(lines[:-1]).encode()).hexdigest()
    assert manifest["counts"]["memory"] == 33
    assert manifest["counts"]["device"] == 1
    assert f"secret {MARK}" in "".join(lines)
    assert "of bob alone" not in "".join(lines)


def test_a_long_export_comes_in_parts(serving: Serving, admin: v1.TenantAdminServiceStub) -> None:
    serving.dev.add(*(f"{n} " + "long words " * 1000 for n in range(60)))
    parts = [part.text for part in admin.ExportSubject(v1.ExportSubjectRequest(**ALICE))]
    assert len(parts) > 3
    assert max(map(len, parts)) <= 256 * 1024
    assert json.loads("".join(parts).splitlines()[-1])["counts"]["memory"] == 60


@pytest.mark.parametrize("rpc", ["ExportSubject", "EraseSubject"])
def test_who_may_not_is_refused(serving: Serving, rpc: str) -> None:
    (kept,) = serving.dev.add("Likes tea.")
    serving.tenant("other")
    strange = v1.TenantAdminServiceStub(serving.with_key("other", v1.ROLE_TENANT_ADMIN).channel)
    backend = v1.TenantAdminServiceStub(serving.dev.channel)
    request = v1.ExportSubjectRequest if rpc == "ExportSubject" else v1.EraseSubjectRequest

    def call(stub: v1.TenantAdminServiceStub, **fields: str) -> None:
        answer = getattr(stub, rpc)(request(**fields))
        if rpc == "ExportSubject":
            list(answer)

    with refused() as answer:
        call(backend, **ALICE)
    assert answer.code is grpc.StatusCode.PERMISSION_DENIED
    told = []
    for tenant_id in ("dev", "nix"):
        with refused() as answer:
            call(strange, tenant_id=tenant_id, user_id="alice")
        told.append((answer.code, answer.details.replace(tenant_id.encode(), b"")))
    assert told[0] == told[1]
    assert told[0][0] is grpc.StatusCode.NOT_FOUND
    if rpc == "ExportSubject":
        with refused() as answer:
            call(serving.admin, **ALICE)
        assert answer.code is grpc.StatusCode.PERMISSION_DENIED
    for wrong, fields in ({}, ["user_id"]), ({"user_id": "a", "run_id": "b"}, ["run_id"]):
        own = v1.TenantAdminServiceStub(serving.with_key("dev", v1.ROLE_TENANT_ADMIN).channel)
        with refused() as answer:
            call(own, tenant_id="dev", **wrong)
        assert answer.fields == fields
    assert serving.dev.memories.Get(v1.GetRequest(id=kept.id)).memory == kept


def test_a_suspended_tenant_still_owes_a_person_their_data(
    serving: Serving, admin: v1.TenantAdminServiceStub
) -> None:
    serving.dev.add("Likes tea.")
    serving.admin.SuspendTenant(v1.SuspendTenantRequest(tenant_id="dev"))
    assert json.loads(exported(admin)[-1])["counts"]["memory"] == 1
    assert swept(admin.EraseSubject(v1.EraseSubjectRequest(**ALICE)))["memories"] == 1
    serving.admin.DeleteTenant(v1.DeleteTenantRequest(tenant_id="dev"))
    for call in (lambda: exported(admin), lambda: admin.EraseSubject(v1.EraseSubjectRequest(**ALICE))):
        with refused() as answer:
            call()
        assert answer.error.reason == v1.ERROR_REASON_TENANT_NOT_ACTIVE


def test_both_are_in_the_audit_log_without_the_subjects_name(
    serving: Serving, admin: v1.TenantAdminServiceStub
) -> None:
    list(exported(admin, user_id="somebody"))
    request = v1.EraseSubjectRequest(tenant_id="dev", user_id="somebody", request_id="r-1")
    for _ in range(2):
        admin.EraseSubject(request)
    with refused():
        exported(admin, user_id="")
    events = admin.ListAuditEvents(v1.ListAuditEventsRequest(tenant_id="dev")).events
    noted = [(each.method, each.outcome) for each in events if each.method.endswith("Subject")]
    assert noted == [
        ("ExportSubject", "INVALID_FIELD"),
        ("EraseSubject", "REPEATED"),
        ("EraseSubject", "OK"),
        ("ExportSubject", "OK"),
    ]
    assert "somebody" not in str(events)


# --- the commands ---------------------------------------------------------------------------------


def run(serving: Serving, *words: str, typed: str = "") -> Result:
    key = serving.with_key("dev", v1.ROLE_TENANT_ADMIN).key
    environment = {"SCRUBJAY_SERVER": serving.app.address, "SCRUBJAY_ADMIN_KEY": key, "COLUMNS": "200"}
    return CliRunner().invoke(app, words, input=typed, env=environment)


def test_the_commands_export_and_erase(serving: Serving) -> None:
    serving.dev.add("Likes tea.", "喜欢茶。")
    enrolled(serving)
    shown = run(serving, "export-subject", "dev", "--user", "alice")
    assert shown.exit_code == 0, shown.output
    lines = shown.stdout.splitlines()
    assert json.loads(lines[-1])["counts"] == {"device": 1, "history": 2, "memory": 2}
    assert "喜欢茶。" in shown.stdout
    wrong = run(serving, "erase-subject", "dev", "--user", "alice", typed="bob\n")
    assert (wrong.exit_code, len(serving.dev.found("tea"))) == (1, 2)
    erased = run(serving, "erase-subject", "dev", "--user", "alice", typed="alice\n")
    assert erased.exit_code == 0, erased.output
    assert all(text in erased.stdout for text in ("2 memories", "phone ("))
    assert serving.dev.found("tea") == []
    again = run(serving, "erase-subject", "dev", "--user", "alice", "--confirm", "alice", "--json")
    assert json.loads(again.stdout)["receipt"]["finished_at"]
    nobody = run(serving, "erase-subject", "dev")
    assert nobody.exit_code == 1
    assert "user_id" in nobody.stderr


def test_an_export_that_was_cut_off_is_told_apart(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.services.subjects.sealed", lambda head, _lines: iter([json.dumps(head)]))
    cut = run(serving, "export-subject", "dev", "--user", "alice")
    assert cut.exit_code == 1
    assert "cut off" in cut.stderr
