"""The door of a tenant's archives: exporting it to a file, fetching that, and importing one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from scrubjay import v1
from scrubjay.errors import (
    InvalidField,
    MessageTooLarge,
    OperationNotFound,
    ScrubjayError,
    Unavailable,
    check,
)
from scrubjay.validity import MAX_REQUEST_ID_BYTES
from tenants.audit_door import audited
from tenants.operation import Kind, OperationState
from tenants.operation_door import OperationDoor
from tenants.ownership import check_own
from tenants.registry.operations import USABLE, check_state
from tenants.tenant import Caller, Tenant, tenant_id_violation
from tenants.validation import named_violation

MAX_CHUNK_BYTES = 3 * 1024 * 1024
"""Of an upload: what a message takes, with room for the rest of it."""
MAX_OFFSET = 1 << 50
_SHA256 = re.compile(r"[0-9a-f]{64}")


class ArchiveDoor(OperationDoor):
    """Exports and imports tenants; a part of TenantAdminService."""

    @audited
    def export_tenant(self, request: v1.ExportTenantRequest, caller: Caller) -> v1.ExportTenantResponse:
        """Raises InvalidField, TenantNotFound, TenantNotActive, OperationUnderWay, RequestIdReused."""
        return v1.ExportTenantResponse(operation=self._begin(Kind.EXPORT, request, caller, {}))

    def download_export(
        self, request: v1.DownloadExportRequest, caller: Caller, _ending: object
    ) -> Iterator[v1.DownloadExportResponse]:
        """Raises InvalidField, TenantNotFound, TenantNotActive, OperationNotFound, ExportGone, Unavailable
        where it is not written yet."""
        try:
            chunks = self._downloaded(request, caller)
        except ScrubjayError as error:
            self._note_refusal("DownloadExport", request, caller, error)
            raise
        for chunk in chunks:
            yield v1.DownloadExportResponse(chunk=chunk)

    def _downloaded(self, request: v1.DownloadExportRequest, caller: Caller) -> Iterator[bytes]:
        check(
            tenant_id_violation("tenant_id", request.tenant_id),
            named_violation("operation_id", request.operation_id, "the operation that wrote it"),
        )
        _check_offset(request.offset)
        check_own(caller, request.tenant_id)
        tenant = self._usable(request.tenant_id)
        operation = self._registry.operations.get(request.operation_id, tenant.incarnation)
        if operation.kind is not Kind.EXPORT:
            raise OperationNotFound(request.operation_id)
        if not operation.state.ended:
            raise Unavailable("the export is not written yet; wait for the operation's end")
        if operation.state is not OperationState.SUCCEEDED:
            raise OperationNotFound(request.operation_id)
        chunks = self._subjects.exported(tenant, request.operation_id, request.offset)
        self._registry.subjects.note_given(tenant, caller, "DownloadExport", now=self._clock())
        return chunks

    def upload_import(self, request: v1.UploadImportRequest, caller: Caller) -> v1.UploadImportResponse:
        """Raises InvalidField, MessageTooLarge, TenantNotFound, TenantNotActive, QuotaExceeded."""
        _check_upload_id(request.upload_id)
        check(tenant_id_violation("tenant_id", request.tenant_id))
        _check_offset(request.offset)
        if len(request.chunk) > MAX_CHUNK_BYTES:
            raise MessageTooLarge(
                f"the chunk has {len(request.chunk)} bytes; at most {MAX_CHUNK_BYTES} are allowed"
            )
        check_own(caller, request.tenant_id)
        tenant = self._usable(request.tenant_id)
        size = self._subjects.upload(tenant, request.upload_id, request.offset, request.chunk)
        return v1.UploadImportResponse(size_bytes=size)

    @audited
    def import_tenant(self, request: v1.ImportTenantRequest, caller: Caller) -> v1.ImportTenantResponse:
        """Raises InvalidField, TenantNotFound, TenantNotActive, OperationUnderWay, RequestIdReused."""
        _check_upload_id(request.upload_id)
        check(tenant_id_violation("tenant_id", request.tenant_id))
        if not _SHA256.fullmatch(request.sha256):
            raise InvalidField.of("sha256", "is no SHA-256 in lower-case hexadecimal; give the file's")
        check_own(caller, request.tenant_id)
        asked = {"upload_id": request.upload_id, "sha256": request.sha256}
        begun = self._begin(Kind.IMPORT, request, caller, {**asked, "validate_only": request.validate_only})
        return v1.ImportTenantResponse(operation=begun)

    def _usable(self, tenant_id: str) -> Tenant:
        tenant = self._registry.get_tenant(tenant_id)
        check_state(tenant, USABLE)
        return tenant


def _check_offset(offset: int) -> None:
    if not 0 <= offset <= MAX_OFFSET:
        raise InvalidField.of("offset", f"is {offset}; give the number of bytes that are there already")


def _check_upload_id(upload_id: str) -> None:
    check(named_violation("upload_id", upload_id, "the file, such as by its digest"))
    if len(upload_id.encode()) > MAX_REQUEST_ID_BYTES:
        raise InvalidField.of("upload_id", f"has more than {MAX_REQUEST_ID_BYTES} bytes")
