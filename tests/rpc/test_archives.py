"""A tenant taken elsewhere: exported, fetched, uploaded and imported by the operator's command."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from typer.testing import CliRunner, Result

from rpc.conftest import Serving, Tenant, served
from rpc.refusal import refused
from scrubjay import v1
from server.config import Settings
from tenants.__main__ import app

DEV = {"tenant_id": "dev"}
NEW = {"tenant_id": "acme"}
MARK = "Xylokarp"
ON_SQLITE = pytest.mark.parametrize("backend", ["sqlite"])
"""Where the database does not matter."""
SUCCEEDED = v1.OPERATION_STATE_SUCCEEDED


def own_admin(serving: Serving, tenant_id: str = "dev") -> Tenant:
    return serving.with_key(tenant_id, v1.ROLE_TENANT_ADMIN)


def stub_of(admin: Tenant) -> v1.TenantAdminServiceStub:
    return v1.TenantAdminServiceStub(admin.channel)


def run(serving: Serving, admin: Tenant, *words: str) -> Result:
    environment = {"SCRUBJAY_SERVER": serving.app.address, "SCRUBJAY_ADMIN_KEY": admin.key, "COLUMNS": "200"}
    return CliRunner().invoke(app, words, env=environment)


def waited(stub: v1.TenantAdminServiceStub, begun: v1.TenantOperation) -> v1.TenantOperation:
    """The operation at its end."""
    request = v1.WaitTenantOperationRequest(operation_id=begun.operation.id)
    while not (found := stub.WaitTenantOperation(request).operation).operation.HasField("ended_at"):
        pass
    return found


def exported(serving: Serving) -> tuple[v1.TenantOperation, bytes]:
    """An export of the tenant dev, and its file."""
    stub = stub_of(own_admin(serving))
    ended = waited(stub, stub.ExportTenant(v1.ExportTenantRequest(**DEV)).operation)
    assert ended.operation.state == SUCCEEDED, ended
    asked = v1.DownloadExportRequest(**DEV, operation_id=ended.operation.id)
    return ended, b"".join(one.chunk for one in stub.DownloadExport(asked))


def imported(serving: Serving, data: bytes, *, dry: bool = False) -> v1.TenantOperation:
    """An import of the file into the tenant acme."""
    stub, digest = stub_of(own_admin(serving, "acme")), hashlib.sha256(data).hexdigest()
    stub.UploadImport(v1.UploadImportRequest(**NEW, upload_id="the file", chunk=data))
    asked = v1.ImportTenantRequest(**NEW, upload_id="the file", sha256=digest, validate_only=dry)
    return waited(stub, stub.ImportTenant(asked).operation)


def fill(dev: Tenant) -> list[v1.Memory]:
    made = dev.add(*(f"I live in {MARK} {n}." for n in range(20)), tags=["home"], metadata={"n": 1.5})
    dev.add("Works at Acme.", user_id="bob")
    dev.add(f"secret {MARK}", privacy_level=v1.PRIVACY_LEVEL_PRIVATE)
    made[0].content = f"I moved to {MARK}."
    dev.memories.Update(v1.UpdateRequest(memory=made[0], update_mask=FieldMask(paths=["content"])))
    dev.memories.Delete(v1.DeleteRequest(id=made[1].id))
    return made


@pytest.fixture
def elsewhere(backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Serving]:
    """Another server, on the other kind of database, with a new tenant."""
    shards = "" if backend == "postgresql" else str(request.getfixturevalue("postgres_url"))
    settings = Settings(listen="127.0.0.1:0", data_dir=tmp_path / "elsewhere", shards=shards, embedder="hash")
    with served(settings) as serving:
        serving.admin.CreateTenant(v1.CreateTenantRequest(**NEW))
        yield serving


def test_a_tenant_is_taken_elsewhere_by_two_commands(
    serving: Serving, elsewhere: Serving, tmp_path: Path
) -> None:
    made = fill(serving.dev)
    told = v1.Tenant(
        tenant_id="dev",
        forget_policy=v1.ForgetPolicy(rules=[v1.ForgetRule(unused_days=9)]),
        write_settings=v1.WriteSettings(custom_instructions="only tea"),
        retention=v1.Retention(history_days=400),
        quotas=v1.Quotas(memories=1000),
    )
    mask = FieldMask(paths=["forget_policy", "write_settings", "retention", "quotas"])
    serving.admin.UpdateTenant(v1.UpdateTenantRequest(tenant=told, update_mask=mask))
    file, here, there = tmp_path / "dev.jsonl.gz", own_admin(serving), own_admin(elsewhere, "acme")
    ran = run(serving, here, "export", "dev", str(file))
    assert ran.exit_code == 0, ran.output
    assert "22 memory" not in ran.output
    assert "21 memory" in ran.output
    assert [one.name for one in tmp_path.glob("dev*")] == ["dev.jsonl.gz"]
    ran = run(elsewhere, there, "import", "acme", str(file), "--dry-run", "--json")
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.output)["result"]["import_tenant"]["counts"]["memory"] == "21"
    ran = run(elsewhere, there, "import", "acme", str(file))
    assert ran.exit_code == 0, ran.output
    client = serving.dev.memories.List(v1.ListRequest(user_id="alice")).memories[0].owner_client_id
    created = elsewhere.admin.CreateApiKey(
        v1.CreateApiKeyRequest(**NEW, role=v1.ROLE_SERVICE, client_id=client)
    )
    new = elsewhere.named("acme", created.secret)
    for ask in (
        lambda of: of.memories.List(v1.ListRequest(user_id="alice")).memories,
        lambda of: of.memories.List(v1.ListRequest(user_id="bob")).memories,
        lambda of: of.memories.History(v1.HistoryRequest(user_id="alice", page_size=1000)).entries,
        lambda of: [
            (hit.memory, round(hit.score, 6))
            for hit in of.memories.Search(v1.SearchRequest(user_id="alice", query=f"moved to {MARK}")).hits
        ],
    ):
        assert list(ask(new)) == list(ask(serving.dev))  # type: ignore[no-untyped-call]  # a row of questions
    back = new.memories.Restore(v1.RestoreRequest(memory_id=made[1].id))
    assert back.memory.content == f"I live in {MARK} 1."
    tenant = elsewhere.admin.GetTenant(v1.GetTenantRequest(**NEW)).tenant
    assert (tenant.forget_policy, tenant.write_settings) == (told.forget_policy, told.write_settings)
    assert tenant.retention == told.retention
    assert tenant.quotas == v1.Quotas()


@ON_SQLITE
def test_a_download_that_was_cut_off_goes_on(serving: Serving, tmp_path: Path) -> None:
    fill(serving.dev)
    ended, data = exported(serving)
    result = ended.result.export_tenant
    assert hashlib.sha256(data).hexdigest() == result.sha256
    assert result.expires_at.ToDatetime() - ended.operation.ended_at.ToDatetime() < timedelta(days=7, hours=1)
    file = tmp_path / "dev.gz"
    (tmp_path / "dev.gz.part").write_bytes(data[:100])
    (tmp_path / "dev.gz.operation").write_text(json.dumps({"tenant": "dev", "operation": ended.operation.id}))
    ran = run(serving, own_admin(serving), "export", "dev", str(file))
    assert ran.exit_code == 0, ran.output
    assert file.read_bytes() == data
    assert [one.name for one in tmp_path.glob("dev.gz*")] == ["dev.gz"]
    listed = stub_of(own_admin(serving)).ListTenantOperations(v1.ListTenantOperationsRequest(**DEV))
    assert len(listed.operations) == 1
    damaged = tmp_path / "damaged.gz"
    (tmp_path / "damaged.gz.part").write_bytes(b"x" + data[1:50])
    (tmp_path / "damaged.gz.operation").write_text(
        json.dumps({"tenant": "dev", "operation": ended.operation.id})
    )
    assert "call again" in run(serving, own_admin(serving), "export", "dev", str(damaged)).output
    assert not damaged.exists()
    assert run(serving, own_admin(serving), "export", "dev", str(damaged)).exit_code == 0


@ON_SQLITE
def test_parts_of_an_upload_join_whatever_is_repeated(serving: Serving) -> None:
    serving.admin.CreateTenant(v1.CreateTenantRequest(**NEW))
    stub = stub_of(own_admin(serving, "acme"))

    def sent(offset: int, chunk: bytes) -> int:
        request = v1.UploadImportRequest(**NEW, upload_id="x", offset=offset, chunk=chunk)
        return stub.UploadImport(request).size_bytes

    assert [sent(0, b"abc"), sent(0, b"abc"), sent(9, b"far"), sent(2, b"cdef"), sent(0, b"")] == [
        3,
        3,
        3,
        6,
        6,
    ]
    with refused() as answer:
        sent(6, bytes(3 * 1024 * 1024 + 1))
    assert answer.error.reason == v1.ERROR_REASON_MESSAGE_TOO_LARGE
    whole = hashlib.sha256(b"abcdef").hexdigest()
    asked = v1.ImportTenantRequest(**NEW, upload_id="x", sha256=whole, validate_only=True)
    ended = waited(stub, stub.ImportTenant(asked).operation)
    (problem,) = ended.result.import_tenant.problems
    assert (problem.line, problem.description) == (1, "is no JSON")
    asked = v1.ImportTenantRequest(**NEW, upload_id="x", sha256="0" * 64)
    ended = waited(stub, stub.ImportTenant(asked).operation)
    assert ended.operation.error.message.startswith("sha256: is not that of the 6 bytes")


@ON_SQLITE
def test_a_tenant_that_was_written_to_is_not_imported_into(serving: Serving) -> None:
    _, data = exported(serving)
    other = serving.tenant("acme")
    (kept,) = other.add("already here")
    ended = imported(serving, data)
    assert ended.operation.error.reason == v1.ERROR_REASON_TENANT_NOT_EMPTY
    assert other.memories.Get(v1.GetRequest(id=kept.id)).memory == kept
    assert imported(serving, data, dry=True).operation.state == SUCCEEDED
    other.memories.Delete(v1.DeleteRequest(id=kept.id))
    assert imported(serving, data).operation.error.reason == v1.ERROR_REASON_TENANT_NOT_EMPTY


@ON_SQLITE
def test_more_than_the_quotas_allow_is_not_imported(serving: Serving) -> None:
    fill(serving.dev)
    _, data = exported(serving)
    serving.admin.CreateTenant(v1.CreateTenantRequest(**NEW))
    few = v1.Tenant(**NEW, quotas=v1.Quotas(memories=5))
    serving.admin.UpdateTenant(v1.UpdateTenantRequest(tenant=few, update_mask=FieldMask(paths=["quotas"])))
    ended = imported(serving, data)
    assert ended.operation.error.reason == v1.ERROR_REASON_QUOTA_EXCEEDED
    new = serving.with_key("acme", v1.ROLE_SERVICE)
    assert not new.memories.List(v1.ListRequest(user_id="alice")).memories
    assert len(new.add("one", "two", "three", "four", "five")) == 5


@ON_SQLITE
def test_an_export_goes_with_an_erased_subject(serving: Serving, settings: Settings) -> None:
    fill(serving.dev)
    ended, data = exported(serving)
    stub, folder = stub_of(own_admin(serving)), settings.data_dir
    stub.UploadImport(v1.UploadImportRequest(**DEV, upload_id="x", chunk=data))
    assert len(list(folder.rglob("*.gz"))) == 1
    answer = stub.EraseSubject(v1.EraseSubjectRequest(**DEV, user_id="alice"))
    assert {one.place: one.count for one in answer.receipt.swept}["exports and uploads"] == 2
    assert not [one for name in ("exports", "imports") for one in (folder / name).rglob("*") if one.is_file()]
    with refused() as gone:
        list(stub.DownloadExport(v1.DownloadExportRequest(**DEV, operation_id=ended.operation.id)))
    assert gone.error.reason == v1.ERROR_REASON_EXPORT_GONE


@ON_SQLITE
def test_who_may_not_is_refused_and_who_did_is_noted(serving: Serving) -> None:
    ended, _ = exported(serving)
    serving.tenant("other")
    strange, own = stub_of(own_admin(serving, "other")), stub_of(own_admin(serving))
    calls = {
        "ExportTenant": v1.ExportTenantRequest,
        "DownloadExport": v1.DownloadExportRequest,
        "UploadImport": v1.UploadImportRequest,
        "ImportTenant": v1.ImportTenantRequest,
    }
    fields = {
        "DownloadExport": {"operation_id": ended.operation.id},
        "UploadImport": {"upload_id": "x", "chunk": b"x"},
        "ImportTenant": {"upload_id": "x", "sha256": "0" * 64},
    }

    def call(stub: v1.TenantAdminServiceStub, rpc: str, tenant_id: str) -> None:
        answer = getattr(stub, rpc)(calls[rpc](tenant_id=tenant_id, **fields.get(rpc, {})))
        if rpc == "DownloadExport":
            list(answer)

    for rpc in calls:
        for stub in (serving.admin, v1.TenantAdminServiceStub(serving.dev.channel)):
            with refused() as answer:
                call(stub, rpc, "dev")
            assert answer.code is grpc.StatusCode.PERMISSION_DENIED
        told = []
        for tenant_id in ("dev", "nix"):
            with refused() as answer:
                call(strange, rpc, tenant_id)
            told.append((answer.code, answer.details.replace(tenant_id.encode(), b"")))
        assert told[0] == told[1]
        assert told[0][0] is grpc.StatusCode.NOT_FOUND
    with refused() as answer:
        list(
            strange.DownloadExport(
                v1.DownloadExportRequest(tenant_id="other", operation_id=ended.operation.id)
            )
        )
    assert answer.error.reason == v1.ERROR_REASON_OPERATION_NOT_FOUND
    events = own.ListAuditEvents(v1.ListAuditEventsRequest(**DEV)).events
    noted = [(one.method, one.outcome) for one in events if "Export" in one.method]
    assert noted == [("DownloadExport", "OK"), ("ExportTenant", "OK")]
