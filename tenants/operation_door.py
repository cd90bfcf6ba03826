"""The door of tenants' long operations: how they stand, and what the RPCs that begin some are built on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Protocol

from scrubjay import v1
from scrubjay.errors import check
from scrubjay.memory import JsonValue
from scrubjay.validity import request_id_violation
from tenants.audit_door import AuditDoor, audited
from tenants.messages import operation_message
from tenants.operation import Kind, TenantOperation
from tenants.ownership import check_own, life_of, request_key
from tenants.page import page_of
from tenants.tenant import Caller, Tenant, tenant_id_violation
from tenants.validation import named_violation, wait_seconds

LOOK_SECONDS = 0.2
"""How often a call that waits looks."""


class _Ending(Protocol):
    """When a call that waits is over before its time."""

    def on_end(self, hook: Callable[[], object]) -> None:
        """Call ``hook`` then."""


class Patience(Protocol):
    """How long a call may wait, and in whose slot."""

    @property
    def seconds(self) -> float:
        """How long it may wait from now on."""

    def waiting(self) -> AbstractContextManager[_Ending]:
        """The block may wait, until the ending at most."""


class OperationDoor(AuditDoor):
    """Tells of long operations, and begins them; a part of TenantAdminService."""

    def get_tenant_operation(
        self, request: v1.GetTenantOperationRequest, caller: Caller
    ) -> v1.GetTenantOperationResponse:
        """Raises InvalidField, OperationNotFound."""
        found = self._operation(request.operation_id, caller)
        return v1.GetTenantOperationResponse(operation=operation_message(found))

    def list_tenant_operations(
        self, request: v1.ListTenantOperationsRequest, caller: Caller
    ) -> v1.ListTenantOperationsResponse:
        """Raises InvalidField, RoleNotAllowed, TenantNotFound."""
        self._check_reader(caller, request.tenant_id)
        life = life_of(caller)
        purpose = f"operations of {life or request.tenant_id} {request.open_only}"
        find = self._registry.operations.list_operations
        page, token = page_of(
            request,
            self._secret,
            purpose,
            (str,),
            find=partial(find, tenant_id=request.tenant_id, incarnation=life, open_only=request.open_only),
            key=lambda operation: (operation.operation_id,),
            message=operation_message,
        )
        return v1.ListTenantOperationsResponse(operations=page, next_page_token=token)

    @audited
    def cancel_tenant_operation(
        self, request: v1.CancelTenantOperationRequest, caller: Caller
    ) -> v1.CancelTenantOperationResponse:
        """Raises InvalidField, OperationNotFound, OperationEnded, RequestIdReused."""
        check(
            request_id_violation(request.request_id),
            named_violation("operation_id", request.operation_id, "an operation"),
        )
        cancelled = self._registry.operations.cancel(
            request.operation_id,
            life_of(caller),
            now=self._clock(),
            request=request_key(request.request_id, caller),
        )
        self._begun.set()
        return v1.CancelTenantOperationResponse(operation=operation_message(cancelled))

    def wait_tenant_operation(
        self, request: v1.WaitTenantOperationRequest, caller: Caller, patience: Patience
    ) -> v1.WaitTenantOperationResponse:
        """Raises InvalidField, OperationNotFound, ServerBusy, Unavailable."""
        found = self._operation(request.operation_id, caller)
        due = time.monotonic() + wait_seconds(request, patience.seconds)
        if not found.state.ended:
            with patience.waiting() as ending:
                over = threading.Event()
                ending.on_end(over.set)
                while not found.state.ended and (left := due - time.monotonic()) > 0:
                    if over.wait(min(left, LOOK_SECONDS)):
                        break
                    found = self._operation(request.operation_id, caller)
        return v1.WaitTenantOperationResponse(operation=operation_message(found))

    @audited
    def reindex_tenant(self, request: v1.ReindexTenantRequest, caller: Caller) -> v1.ReindexTenantResponse:
        """Raises InvalidField, TenantNotFound, TenantNotActive, OperationUnderWay, RequestIdReused."""
        reindexing = self._registry.reindexing
        space = reindexing.space_of(request.embedder)
        fits = partial(reindexing.check, space=space)
        begun = self._begin(Kind.REINDEX, request, caller, {"space": space}, fits)
        return v1.ReindexTenantResponse(operation=begun)

    # --- for the RPCs that begin some ---------------------------------------------------------------

    def _begin(
        self,
        kind: Kind,
        request: Any,
        caller: Caller,
        asked: Mapping[str, JsonValue],
        fits: Callable[[Tenant], None] = lambda _: None,
    ) -> v1.TenantOperation:
        """Begin what a request with a ``request_id`` and a ``tenant_id`` asks for, if it ``fits`` the tenant.

        Raises InvalidField, TenantNotFound, TenantNotActive, OperationUnderWay, RequestIdReused.
        """
        check(request_id_violation(request.request_id), tenant_id_violation("tenant_id", request.tenant_id))
        check_own(caller, request.tenant_id)
        begun = self._registry.operations.begin(
            kind,
            request.tenant_id,
            asked,
            now=self._clock(),
            request=request_key(request.request_id, caller),
            fits=fits,
        )
        self._begun.set()
        return operation_message(begun)

    def _operation(self, operation_id: str, caller: Caller) -> TenantOperation:
        check(named_violation("operation_id", operation_id, "an operation"))
        return self._registry.operations.get(operation_id, life_of(caller))
