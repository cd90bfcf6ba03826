"""The door of TenantAdminService: messages become values here, and values become messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from scrubjay import v1
from scrubjay.errors import FieldViolation, RoleNotAllowed, check
from scrubjay.validity import name_violation, request_id_violation
from scrubjay.wire import from_timestamp, to_timestamp
from tenants import forget_policy, quotas, retention, write_settings
from tenants.archive_door import ArchiveDoor
from tenants.audit_door import audited
from tenants.messages import api_key_message, device_message, tenant_message
from tenants.ownership import check_own, request_key
from tenants.page import page_of
from tenants.registry import DEFAULT_OVERLAP_SECONDS, TenantChanges
from tenants.shard_door import ShardDoor
from tenants.states import DEFAULT_GRACE_DAYS
from tenants.subject_door import SubjectDoor
from tenants.tenant import (
    OWN_ADMINS,
    PLATFORM_ADMINS,
    TENANT_ADMINS,
    Caller,
    Role,
    Tenant,
    tenant_id_violation,
)
from tenants.usage_door import UsageDoor
from tenants.validation import (
    grace_violation,
    grant_violation,
    key_role,
    mask_violations,
    named_violation,
    overlap_violation,
    owner_violation,
    reach_violations,
    scope_violations,
    sole_subject,
    time_violation,
)

_SERVICE = "/scrubjay.v1.TenantAdminService"

ALLOWED: Mapping[str, frozenset[Role]] = MappingProxyType(
    {
        f"{_SERVICE}/CreateTenant": PLATFORM_ADMINS,
        f"{_SERVICE}/GetTenant": TENANT_ADMINS,
        f"{_SERVICE}/ListTenants": PLATFORM_ADMINS,
        f"{_SERVICE}/UpdateTenant": TENANT_ADMINS,
        f"{_SERVICE}/SuspendTenant": PLATFORM_ADMINS,
        f"{_SERVICE}/ResumeTenant": PLATFORM_ADMINS,
        f"{_SERVICE}/DeleteTenant": PLATFORM_ADMINS,
        f"{_SERVICE}/UndeleteTenant": PLATFORM_ADMINS,
        f"{_SERVICE}/GetUsage": TENANT_ADMINS,
        f"{_SERVICE}/CreateApiKey": TENANT_ADMINS,
        f"{_SERVICE}/ListApiKeys": TENANT_ADMINS,
        f"{_SERVICE}/RotateApiKey": TENANT_ADMINS,
        f"{_SERVICE}/RevokeApiKey": TENANT_ADMINS,
        f"{_SERVICE}/CreateEnrolment": TENANT_ADMINS,
        f"{_SERVICE}/ListDevices": TENANT_ADMINS,
        f"{_SERVICE}/RevokeDevice": TENANT_ADMINS,
        f"{_SERVICE}/ExportSubject": OWN_ADMINS,
        f"{_SERVICE}/EraseSubject": TENANT_ADMINS,
        f"{_SERVICE}/ExportTenant": OWN_ADMINS,
        f"{_SERVICE}/DownloadExport": OWN_ADMINS,
        f"{_SERVICE}/UploadImport": OWN_ADMINS,
        f"{_SERVICE}/ImportTenant": OWN_ADMINS,
        f"{_SERVICE}/ReindexTenant": PLATFORM_ADMINS,
        f"{_SERVICE}/GetTenantOperation": TENANT_ADMINS,
        f"{_SERVICE}/ListTenantOperations": TENANT_ADMINS,
        f"{_SERVICE}/CancelTenantOperation": TENANT_ADMINS,
        f"{_SERVICE}/WaitTenantOperation": TENANT_ADMINS,
        f"{_SERVICE}/MoveTenant": PLATFORM_ADMINS,
        f"{_SERVICE}/ListShards": PLATFORM_ADMINS,
        f"{_SERVICE}/DrainShard": PLATFORM_ADMINS,
        f"{_SERVICE}/ListAuditEvents": TENANT_ADMINS,
        f"{_SERVICE}/VerifyAuditEvents": PLATFORM_ADMINS,
    }
)
"""Which roles may call which RPC. Whose tenant a tenant's admin may name is checked here, per call."""
WAITING = frozenset({f"{_SERVICE}/WaitTenantOperation"})
"""The RPCs that may wait for work that takes long."""

_ChangesState = (
    v1.SuspendTenantRequest | v1.ResumeTenantRequest | v1.DeleteTenantRequest | v1.UndeleteTenantRequest
)


class TenantAdminService(UsageDoor, SubjectDoor, ArchiveDoor, ShardDoor):
    """Tenants, their keys and devices. Callers come authenticated, with a role that ``ALLOWED`` lets in."""

    @audited
    def create_tenant(self, request: v1.CreateTenantRequest, caller: Caller) -> v1.CreateTenantResponse:
        """Raises InvalidField, TenantExists, RequestIdReused."""
        check(
            request_id_violation(request.request_id),
            tenant_id_violation("tenant_id", request.tenant_id),
            name_violation("display_name", request.display_name),
        )
        tenant = self._registry.create_tenant(
            request.tenant_id,
            request.display_name or request.tenant_id,
            now=self._clock(),
            request=request_key(request.request_id, caller),
        )
        return v1.CreateTenantResponse(tenant=tenant_message(tenant))

    def get_tenant(self, request: v1.GetTenantRequest, caller: Caller) -> v1.GetTenantResponse:
        """Raises InvalidField, TenantNotFound."""
        check(tenant_id_violation("tenant_id", request.tenant_id))
        check_own(caller, request.tenant_id)
        tenant = self._registry.get_tenant(request.tenant_id)
        return v1.GetTenantResponse(tenant=tenant_message(tenant))

    def list_tenants(self, request: v1.ListTenantsRequest, _caller: Caller) -> v1.ListTenantsResponse:
        """Raises InvalidField."""
        page, token = page_of(
            request,
            self._secret,
            "tenants",
            (str,),
            find=self._registry.list_tenants,
            key=lambda tenant: (tenant.tenant_id,),
            message=tenant_message,
        )
        return v1.ListTenantsResponse(tenants=page, next_page_token=token)

    @audited
    def update_tenant(self, request: v1.UpdateTenantRequest, caller: Caller) -> v1.UpdateTenantResponse:
        """Raises InvalidField, TenantNotFound, RoleNotAllowed, RequestIdReused."""
        asked, fields = request.tenant, frozenset(request.update_mask.paths)
        policy = forget_policy.from_message(asked.forget_policy) if asked.HasField("forget_policy") else None
        settings, limits, kept = (
            write_settings.from_message(asked.write_settings),
            quotas.from_message(asked.quotas),
            retention.from_message(asked.retention),
        )
        check(
            request_id_violation(request.request_id),
            tenant_id_violation("tenant.tenant_id", asked.tenant_id),
            *mask_violations(fields),
            name_violation("tenant.display_name", asked.display_name),
            *(forget_policy.violations("tenant.forget_policy", policy) if policy else ()),
            *write_settings.violations("tenant.write_settings", settings),
            *quotas.violations("tenant.quotas", limits),
            *retention.violations("tenant.retention", kept),
        )
        check_own(caller, asked.tenant_id)
        if "quotas" in fields and caller.role is not Role.PLATFORM_ADMIN:
            raise RoleNotAllowed("only a platform admin may write a tenant's quotas")
        changed = self._registry.update_tenant(
            asked.tenant_id,
            TenantChanges(fields, asked.display_name or asked.tenant_id, policy, settings, limits, kept),
            now=self._clock(),
            request=request_key(request.request_id, caller),
        )
        return v1.UpdateTenantResponse(tenant=tenant_message(changed))

    @audited
    def suspend_tenant(self, request: v1.SuspendTenantRequest, caller: Caller) -> v1.SuspendTenantResponse:
        """Raises InvalidField, TenantNotFound, TenantNotActive, RequestIdReused."""
        suspend = partial(self._registry.lives.suspend_tenant, reason=request.reason)
        suspended = self._change_state(request, caller, suspend, name_violation("reason", request.reason))
        return v1.SuspendTenantResponse(tenant=suspended)

    @audited
    def resume_tenant(self, request: v1.ResumeTenantRequest, caller: Caller) -> v1.ResumeTenantResponse:
        """Raises InvalidField, TenantNotFound, TenantNotActive, RequestIdReused."""
        resumed = self._change_state(request, caller, self._registry.lives.resume_tenant)
        return v1.ResumeTenantResponse(tenant=resumed)

    @audited
    def delete_tenant(self, request: v1.DeleteTenantRequest, caller: Caller) -> v1.DeleteTenantResponse:
        """Raises InvalidField, TenantNotFound, TenantNotActive, RequestIdReused."""
        grace_days = request.grace_days if request.HasField("grace_days") else DEFAULT_GRACE_DAYS
        delete = partial(self._registry.lives.delete_tenant, grace_days=grace_days)
        deleted = self._change_state(request, caller, delete, grace_violation(grace_days))
        return v1.DeleteTenantResponse(tenant=deleted)

    @audited
    def undelete_tenant(self, request: v1.UndeleteTenantRequest, caller: Caller) -> v1.UndeleteTenantResponse:
        """Raises InvalidField, TenantNotFound, TenantNotActive, RequestIdReused."""
        undeleted = self._change_state(request, caller, self._registry.lives.undelete_tenant)
        return v1.UndeleteTenantResponse(tenant=undeleted)

    def _change_state(
        self,
        request: _ChangesState,
        caller: Caller,
        move: Callable[..., Tenant],
        violation: FieldViolation | None = None,
    ) -> v1.Tenant:
        """Move a tenant to another state, unless there is a ``violation`` beside those of every request."""
        check(
            request_id_violation(request.request_id),
            tenant_id_violation("tenant_id", request.tenant_id),
            violation,
        )
        asked = request_key(request.request_id, caller)
        return tenant_message(move(request.tenant_id, now=self._clock(), request=asked))

    @audited
    def create_api_key(self, request: v1.CreateApiKeyRequest, caller: Caller) -> v1.CreateApiKeyResponse:
        """Raises InvalidField, RoleNotAllowed, TenantNotFound, RequestIdReused."""
        role = key_role(request.role)
        expires_at = from_timestamp(request.expires_at) if request.HasField("expires_at") else None
        check(
            request_id_violation(request.request_id),
            owner_violation(request.tenant_id, role),
            name_violation("display_name", request.display_name),
            name_violation("client_id", request.client_id),
            time_violation("expires_at", expires_at),
            grant_violation(request.across_subjects, role),
            *reach_violations(request.scopes, role),
        )
        check_own(caller, request.tenant_id)
        made = self._registry.create_api_key(
            request.tenant_id or None,
            role,
            now=self._clock(),
            display_name=request.display_name,
            client_id=request.client_id,
            expires_at=expires_at,
            across_subjects=request.across_subjects,
            scopes=tuple(dict.fromkeys(request.scopes)),
            request=request_key(request.request_id, caller),
        )
        return v1.CreateApiKeyResponse(api_key=api_key_message(made.api_key), secret=made.secret)

    def list_api_keys(self, request: v1.ListApiKeysRequest, caller: Caller) -> v1.ListApiKeysResponse:
        """Raises InvalidField, RoleNotAllowed, TenantNotFound."""
        check(tenant_id_violation("tenant_id", request.tenant_id) if request.tenant_id else None)
        check_own(caller, request.tenant_id)
        whose = request.tenant_id or None
        life = "" if whose is None else self._registry.get_tenant(whose).incarnation
        page, token = page_of(
            request,
            self._secret,
            f"keys of {life}",
            (str,),
            find=partial(self._registry.list_api_keys, whose),
            key=lambda api_key: (api_key.key_id,),
            message=api_key_message,
        )
        return v1.ListApiKeysResponse(api_keys=page, next_page_token=token)

    @audited
    def rotate_api_key(self, request: v1.RotateApiKeyRequest, caller: Caller) -> v1.RotateApiKeyResponse:
        """Raises InvalidField, RoleNotAllowed, TenantNotFound, TenantNotActive, ApiKeyNotFound,
        RequestIdReused."""
        given = request.HasField("overlap_seconds")
        overlap_seconds = request.overlap_seconds if given else DEFAULT_OVERLAP_SECONDS
        check(
            request_id_violation(request.request_id),
            tenant_id_violation("tenant_id", request.tenant_id) if request.tenant_id else None,
            named_violation("key_id", request.key_id, "a key"),
            overlap_violation(overlap_seconds),
        )
        check_own(caller, request.tenant_id)
        rotated = self._registry.rotate_api_key(
            request.tenant_id or None,
            request.key_id,
            now=self._clock(),
            overlap_seconds=overlap_seconds,
            request=request_key(request.request_id, caller),
        )
        return v1.RotateApiKeyResponse(
            api_key=api_key_message(rotated.made.api_key),
            secret=rotated.made.secret,
            old_api_key=api_key_message(rotated.old),
        )

    @audited
    def revoke_api_key(self, request: v1.RevokeApiKeyRequest, caller: Caller) -> v1.RevokeApiKeyResponse:
        """Raises InvalidField, RoleNotAllowed, TenantNotFound, ApiKeyNotFound, RequestIdReused."""
        check(
            request_id_violation(request.request_id),
            tenant_id_violation("tenant_id", request.tenant_id) if request.tenant_id else None,
            named_violation("key_id", request.key_id, "a key"),
        )
        check_own(caller, request.tenant_id)
        revoked = self._registry.revoke_api_key(
            request.tenant_id or None,
            request.key_id,
            now=self._clock(),
            request=request_key(request.request_id, caller),
        )
        return v1.RevokeApiKeyResponse(api_key=api_key_message(revoked))

    @audited
    def create_enrolment(
        self, request: v1.CreateEnrolmentRequest, caller: Caller
    ) -> v1.CreateEnrolmentResponse:
        """Raises InvalidField, TenantNotFound, RequestIdReused."""
        expires_at = from_timestamp(request.expires_at) if request.HasField("expires_at") else None
        check(
            request_id_violation(request.request_id),
            tenant_id_violation("tenant_id", request.tenant_id),
            *scope_violations(request.scopes),
            name_violation("client_id", request.client_id),
            name_violation("display_name", request.display_name),
            time_violation("expires_at", expires_at),
        )
        subject = sole_subject(request)
        check_own(caller, request.tenant_id)
        made = self._registry.enrolments.create_enrolment(
            request.tenant_id,
            subject,
            now=self._clock(),
            scopes=tuple(request.scopes),
            client_id=request.client_id,
            display_name=request.display_name,
            expires_at=expires_at,
            request=request_key(request.request_id, caller),
        )
        return v1.CreateEnrolmentResponse(
            enrolment_code=made.code, client_id=made.client_id, expires_at=to_timestamp(made.expires_at)
        )

    def list_devices(self, request: v1.ListDevicesRequest, caller: Caller) -> v1.ListDevicesResponse:
        """Raises InvalidField, TenantNotFound."""
        check(tenant_id_violation("tenant_id", request.tenant_id))
        check_own(caller, request.tenant_id)
        page, token = page_of(
            request,
            self._secret,
            f"devices of {self._registry.get_tenant(request.tenant_id).incarnation}",
            (str,),
            find=partial(self._registry.devices.list_devices, request.tenant_id),
            key=lambda device: (device.device_id,),
            message=device_message,
        )
        return v1.ListDevicesResponse(devices=page, next_page_token=token)

    @audited
    def revoke_device(self, request: v1.RevokeDeviceRequest, caller: Caller) -> v1.RevokeDeviceResponse:
        """Raises InvalidField, TenantNotFound, DeviceNotFound, RequestIdReused."""
        check(
            request_id_violation(request.request_id),
            tenant_id_violation("tenant_id", request.tenant_id),
            named_violation("device_id", request.device_id, "a device"),
        )
        check_own(caller, request.tenant_id)
        revoked = self._registry.devices.revoke_device(
            request.tenant_id,
            request.device_id,
            now=self._clock(),
            wipe=request.wipe,
            request=request_key(request.request_id, caller),
        )
        return v1.RevokeDeviceResponse(device=device_message(revoked))
