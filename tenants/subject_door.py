"""The door of what concerns one subject of a tenant: exporting and erasing it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from scrubjay import v1
from scrubjay.errors import ScrubjayError, check
from scrubjay.validity import request_id_violation
from tenants import receipt
from tenants.audit_door import AuditDoor, audited
from tenants.messages import device_message
from tenants.ownership import check_own, request_key
from tenants.tenant import Caller, tenant_id_violation
from tenants.validation import sole_subject

PART_CHARACTERS = 256 * 1024
"""What one message of an export holds: at most 1 MiB."""


class SubjectDoor(AuditDoor):
    """Exports and erases subjects; a part of TenantAdminService."""

    @audited
    def erase_subject(self, request: v1.EraseSubjectRequest, caller: Caller) -> v1.EraseSubjectResponse:
        """Raises InvalidField, TenantNotFound, TenantNotActive, RequestIdReused, ServerBusy."""
        check(request_id_violation(request.request_id), tenant_id_violation("tenant_id", request.tenant_id))
        subject = sole_subject(request)
        check_own(caller, request.tenant_id)
        catalogue = self._registry.subjects
        asked = catalogue.erase_subject(
            request.tenant_id,
            subject,
            now=self._clock(),
            request=request_key(request.request_id, caller),
        )
        erased = self._subjects.erase(asked.tenant, subject, asked.asked_at)
        whole = replace(erased, swept={**erased.swept, **asked.swept})
        devices = catalogue.devices_of(asked.tenant, subject)
        return v1.EraseSubjectResponse(
            receipt=receipt.to_message(whole),
            pending_devices=[device_message(one) for one in devices if one.wipe_told_at is None],
        )

    def export_subject(
        self, request: v1.ExportSubjectRequest, caller: Caller, _ending: object
    ) -> Iterator[v1.ExportSubjectResponse]:
        """Raises InvalidField, TenantNotFound, TenantNotActive."""
        try:
            lines = self._exported(request, caller)
        except ScrubjayError as error:
            self._note_refusal("ExportSubject", request, caller, error)
            raise
        for part in _parts(lines):
            yield v1.ExportSubjectResponse(text=part)

    def _exported(self, request: Any, caller: Caller) -> Iterator[str]:
        check(tenant_id_violation("tenant_id", request.tenant_id))
        subject = sole_subject(request)
        check_own(caller, request.tenant_id)
        catalogue = self._registry.subjects
        tenant = catalogue.export_subject(request.tenant_id, caller, now=self._clock())
        devices = map(device_message, catalogue.devices_of(tenant, subject))
        return self._subjects.export(tenant, subject, devices)


def _parts(lines: Iterable[str]) -> Iterator[str]:
    """The lines, joined and cut anew."""
    some: list[str] = []
    size = 0
    for line in lines:
        some.append(line)
        size += len(line)
        if size >= PART_CHARACTERS:
            text = "".join(some)
            cut = size - size % PART_CHARACTERS
            yield from (text[at : at + PART_CHARACTERS] for at in range(0, cut, PART_CHARACTERS))
            some, size = [text[cut:]], size - cut
    if size:
        yield "".join(some)
