"""``python -m tenants export`` and ``import``: a whole tenant to a file, and from one.

Each may be interrupted anywhere: called again with the same file, it goes on where it was.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from scrubjay import v1
from tenants.cli import LOCAL_SERVER, AdminKey, AsJson, Server, TenantId, admin, fail
from tenants.digest import file_digest
from tenants.operation_commands import NoWait, bar, follow, report
from tenants.screen import operation_table, show

CHUNK_BYTES = 2 * 1024 * 1024
UPLOAD_SECONDS = 60
"""How long one chunk may take: over a slow line."""
_ENDED_BADLY = (v1.OPERATION_STATE_FAILED, v1.OPERATION_STATE_CANCELLED)

ExportFile = Annotated[Path, typer.Argument(help="Where it goes; such as acme.jsonl.gz.", dir_okay=False)]
ImportFile = Annotated[Path, typer.Argument(help="What export wrote.", exists=True, dir_okay=False)]


def add_commands(app: typer.Typer) -> None:
    """Add what is about whole tenants as files."""
    app.command("export")(export)
    app.command("import")(import_tenant)


def export(
    tenant_id: TenantId,
    file: ExportFile,
    api_key: AdminKey,
    server: Server = LOCAL_SERVER,
    as_json: AsJson = False,
) -> None:
    """Write all that is held of a tenant to a file. Needs a key of the tenant's own admin."""
    part, note = file.with_name(f"{file.name}.part"), file.with_name(f"{file.name}.operation")
    with admin(server, api_key) as stub:
        operation = _exporting(stub, tenant_id, note)
        note.write_text(json.dumps({"tenant": tenant_id, "operation": operation.operation.id}))
        ended = follow(stub, operation)
        if ended.operation.state in _ENDED_BADLY:
            note.unlink()
            report(stub, ended, no_wait=True, as_json=as_json)
        told = ended.result.export_tenant
        _download(stub, tenant_id, ended.operation.id, part, told.size_bytes)
    digest = file_digest(part)
    note.unlink()
    if digest != told.sha256:
        part.unlink()
        fail("what came is not what the server wrote; call again")
    part.replace(file)
    show(ended, operation_table(ended), as_json)


def _exporting(stub: v1.TenantAdminServiceStub, tenant_id: str, note: Path) -> v1.TenantOperation:
    """The export that an earlier call began and that has not come to nothing, or else a new one."""
    begun = _noted(note, tenant_id)
    part = note.with_suffix(".part")
    kept = v1.ListTenantOperationsRequest(tenant_id=tenant_id, page_size=1000)
    for one in stub.ListTenantOperations(kept).operations:
        if one.operation.id == begun and one.operation.state not in _ENDED_BADLY:
            return one
        if _is_open(one, "ExportTenant"):
            part.unlink(missing_ok=True)
            return one
    part.unlink(missing_ok=True)
    return stub.ExportTenant(v1.ExportTenantRequest(tenant_id=tenant_id)).operation


def _noted(note: Path, tenant_id: str) -> str:
    try:
        found = json.loads(note.read_text())
    except (OSError, ValueError):
        return ""
    return str(found["operation"]) if found.get("tenant") == tenant_id else ""


def _is_open(operation: v1.TenantOperation, kind: str) -> bool:
    return operation.operation.kind == kind and not operation.operation.HasField("ended_at")


def _download(
    stub: v1.TenantAdminServiceStub, tenant_id: str, operation_id: str, part: Path, size: int
) -> None:
    """The rest of the file, behind what is there."""
    with part.open("ab") as file, bar() as progress:
        task = progress.add_task("download", total=size, completed=file.tell())
        request = v1.DownloadExportRequest(tenant_id=tenant_id, operation_id=operation_id, offset=file.tell())
        for response in stub.DownloadExport(request):
            file.write(response.chunk)
            progress.advance(task, len(response.chunk))


def import_tenant(
    tenant_id: TenantId,
    file: ImportFile,
    api_key: AdminKey,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only read and judge the file, and store nothing.")
    ] = False,
    no_wait: NoWait = False,
    server: Server = LOCAL_SERVER,
    as_json: AsJson = False,
) -> None:
    """Fill a tenant to which nothing was ever written from a file. Needs a key of the tenant's own admin."""
    with admin(server, api_key) as stub:
        open_ones = v1.ListTenantOperationsRequest(tenant_id=tenant_id, open_only=True)
        under_way = stub.ListTenantOperations(open_ones).operations
        found = next((one for one in under_way if _is_open(one, "ImportTenant")), None)
        if found is None:
            digest = _upload(stub, tenant_id, file)
            request = v1.ImportTenantRequest(
                tenant_id=tenant_id, upload_id=digest, sha256=digest, validate_only=dry_run
            )
            found = stub.ImportTenant(request).operation
        ended = found if no_wait else follow(stub, found)
        report(stub, ended, no_wait=True, as_json=as_json)
    if ended.result.import_tenant.problems:
        fail("the file can't be imported as it is")


def _upload(stub: v1.TenantAdminServiceStub, tenant_id: str, path: Path) -> str:
    """Send what the server does not have of the file; its digest, which names it."""
    size = path.stat().st_size
    with bar() as progress, path.open("rb") as file:
        task = progress.add_task("read", total=size)
        digest = file_digest(path, lambda done: progress.update(task, completed=done))
        request = v1.UploadImportRequest(tenant_id=tenant_id, upload_id=digest)
        there = stub.UploadImport(request).size_bytes
        progress.update(task, description="upload", completed=there)
        while there < size:
            file.seek(there)
            request.offset, request.chunk = there, file.read(CHUNK_BYTES)
            there = stub.UploadImport(request, timeout=UPLOAD_SECONDS).size_bytes
            progress.update(task, completed=there)
    return digest
