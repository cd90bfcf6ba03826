"""The door of the audit log: who may read it, and how what was refused comes into it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from google.protobuf.message import Message

from scrubjay import v1
from scrubjay.errors import InvalidField, RoleNotAllowed, ScrubjayError, TenantNotFound, Unavailable, check
from scrubjay.validity import is_memory_id
from tenants.admin_parts import AdminParts
from tenants.audit import Act
from tenants.credentials import is_key_id
from tenants.messages import audit_message
from tenants.ownership import life_of
from tenants.page import page_of
from tenants.tenant import Caller, tenant_id_violation

VERIFIED_AT_ONCE = 10_000
"""Events that one call checks: some 0.2 s."""

Answer = TypeVar("Answer", bound=Message)
Service = TypeVar("Service", bound="AuditDoor")


class AuditDoor:
    """Reads the audit log, and notes what was refused; what the other parts of TenantAdminService are built
    on."""

    def __init__(self, parts: AdminParts) -> None:
        self._registry = parts.registry
        self._secret = parts.secret
        self._clock = parts.clock
        self._subjects = parts.subjects
        self._begun = parts.begun
        self._shards = parts.shards

    def list_audit_events(
        self, request: v1.ListAuditEventsRequest, caller: Caller
    ) -> v1.ListAuditEventsResponse:
        """Raises InvalidField, RoleNotAllowed, TenantNotFound."""
        self._check_reader(caller, request.tenant_id)
        life = life_of(caller)
        purpose = f"audit events of {life or request.tenant_id}"
        page, token = page_of(
            request,
            self._secret,
            purpose,
            (int,),
            find=partial(self._registry.audit.list_events, tenant_id=request.tenant_id, incarnation=life),
            key=lambda event: (event.number,),
            message=audit_message,
        )
        return v1.ListAuditEventsResponse(events=page, next_page_token=token)

    def verify_audit_events(
        self, request: v1.VerifyAuditEventsRequest, _caller: Caller
    ) -> v1.VerifyAuditEventsResponse:
        """Raises InvalidField."""
        if request.after_number < 0:
            raise InvalidField.of("after_number", f"is {request.after_number}; give 0 or a last_number")
        found = self._registry.audit.verify(request.after_number, VERIFIED_AT_ONCE)
        return v1.VerifyAuditEventsResponse(
            checked_count=found.count,
            faults=found.faults,
            last_number=found.last,
            last_digest=found.digest,
            at_end=found.at_end,
            cut_number=found.cut,
        )

    def _check_reader(self, caller: Caller, tenant_id: str) -> None:
        """Whether the caller may read what is about this tenant, or about all.

        Raises InvalidField, RoleNotAllowed, TenantNotFound.
        """
        check(tenant_id_violation("tenant_id", tenant_id) if tenant_id else None)
        check_reader(caller, tenant_id)
        if tenant_id:
            self._registry.get_tenant(tenant_id)

    def _note_refusal(self, method: str, request: Any, caller: Caller, error: ScrubjayError) -> None:
        own = caller.tenant
        if isinstance(error, Unavailable):  # the log would not take it either
            return
        asked = _tenant_id(request)
        reason = v1.ErrorReason.Name(error.reason).removeprefix("ERROR_REASON_")
        act = Act(
            at=self._clock(),
            actor=caller.key_id,
            role=caller.role,
            # What a tenant's admin tries on another tenant is none of that tenant's business.
            tenant_id=asked if own is None else own.tenant_id,
            incarnation="" if own is None else own.incarnation,
            method=method,
            resource=" ".join(_touched(request, asked if own is not None and asked != own.tenant_id else "")),
            outcome=reason,
        )
        self._registry.audit.refuse(act)


def audited(
    method: Callable[[Service, Any, Caller], Answer],
) -> Callable[[Service, Any, Caller], Answer]:
    """A mutation whose refusal is noted too; what it does is noted where it is done."""
    name = "".join(word.title() for word in method.__name__.split("_"))

    @functools.wraps(method)
    def call(self: Service, request: Any, caller: Caller) -> Answer:
        try:
            return method(self, request, caller)
        except ScrubjayError as error:
            self._note_refusal(name, request, caller, error)
            raise

    return call


def check_reader(caller: Caller, tenant_id: str) -> None:
    """What is about all tenants is for platform admins; a tenant's own admin reads what is about its own.

    Raises RoleNotAllowed, TenantNotFound.
    """
    if caller.tenant is None:
        return
    if not tenant_id:
        raise RoleNotAllowed("only a platform admin may read what is about all tenants; name your own")
    if tenant_id != caller.tenant.tenant_id:
        raise TenantNotFound(tenant_id)


def _tenant_id(request: Any) -> str:
    """The tenant that a request names, where that is one's id."""
    updates = isinstance(request, v1.UpdateTenantRequest)
    named: str = request.tenant.tenant_id if updates else getattr(request, "tenant_id", "")
    return "" if tenant_id_violation("", named) else named


def _touched(request: Any, other_tenant: str) -> list[str]:
    """What a refused request names, where it has the form of an id."""
    named = [f"tenants/{other_tenant}"] if other_tenant else []
    for field, kind, has_form in _NAMED:
        text = getattr(request, field, "")
        if has_form(text):
            named.append(f"{kind}/{text}")
    return named


_NAMED: tuple[tuple[str, str, Callable[[str], bool]], ...] = (
    ("key_id", "keys", is_key_id),
    ("device_id", "devices", is_key_id),
    ("operation_id", "operations", is_memory_id),
)
