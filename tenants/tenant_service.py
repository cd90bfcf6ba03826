"""The door of TenantAdminService: messages become values here, and values become messages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from google.protobuf.timestamp_pb2 import Timestamp

from scrubjay import v1
from scrubjay.errors import FieldViolation, InvalidField, RoleNotAllowed, TenantNotFound, check
from scrubjay.memory import (
    MAX_MICROS,
    MIN_MICROS,
    SUBJECT_FIELDS,
    Micros,
    Subject,
    name_violation,
    request_id_violation,
    scope_violation,
    subject_of,
)
from scrubjay.wire import from_timestamp, to_timestamp
from tenants.forget_policy import from_message, to_message, violations
from tenants.page_token import seal, unseal
from tenants.registry import Registry, RequestKey, TenantChanges
from tenants.tenant import (
    ACROSS_SUBJECTS,
    API_KEY_ROLES,
    PLATFORM_ADMINS,
    TENANT_ADMINS,
    ApiKey,
    Caller,
    Device,
    Role,
    Tenant,
    tenant_id_violation,
)

DEFAULT_PAGE = 100
MAX_PAGE = 1000
"""A page of 1 000 tenants or devices is some 300 KB; gRPC refuses messages past 4 MB."""
MAX_PAGE_BYTES = 3 * 1024 * 1024
"""Where a page of tenants ends even if more was asked for: each may have many long rules."""
MAX_SCOPES = 32
"""Each is compared with the scope of every memory that a device is sent."""

_SERVICE = "/scrubjay.v1.TenantAdminService"

ALLOWED: Mapping[str, frozenset[Role]] = MappingProxyType(
    {
        f"{_SERVICE}/CreateTenant": PLATFORM_ADMINS,
        f"{_SERVICE}/GetTenant": TENANT_ADMINS,
        f"{_SERVICE}/ListTenants": PLATFORM_ADMINS,
        f"{_SERVICE}/UpdateTenant": TENANT_ADMINS,
        f"{_SERVICE}/CreateApiKey": TENANT_ADMINS,
        f"{_SERVICE}/RevokeApiKey": TENANT_ADMINS,
        f"{_SERVICE}/CreateEnrolment": TENANT_ADMINS,
        f"{_SERVICE}/ListDevices": TENANT_ADMINS,
        f"{_SERVICE}/RevokeDevice": TENANT_ADMINS,
    }
)
"""Which roles may call which RPC. Whose tenant a tenant's admin may name is checked here, per call."""


class TenantAdminService:
    """Tenants, their keys and devices. Callers come authenticated, with a role that ``ALLOWED`` lets in.

    ``secret`` seals page tokens; ``clock`` gives the time.
    """

    def __init__(self, registry: Registry, secret: bytes, clock: Callable[[], Micros]) -> None:
        self._registry = registry
        self._secret = secret
        self._clock = clock

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
            request=_request_key(request.request_id, caller),
        )
        return v1.CreateTenantResponse(tenant=_tenant_message(tenant))

    def get_tenant(self, request: v1.GetTenantRequest, caller: Caller) -> v1.GetTenantResponse:
        """Raises InvalidField, TenantNotFound."""
        check(tenant_id_violation("tenant_id", request.tenant_id))
        _check_own(caller, request.tenant_id)
        tenant = self._registry.get_tenant(request.tenant_id)
        return v1.GetTenantResponse(tenant=_tenant_message(tenant))

    def list_tenants(self, request: v1.ListTenantsRequest, _caller: Caller) -> v1.ListTenantsResponse:
        """Raises InvalidField."""
        size = _page_size(request.page_size)
        after = ""
        if request.page_token:
            (after,) = unseal(self._secret, "tenants", request.page_token, (str,))
        found = self._registry.list_tenants(size + 1, after)
        page = _fitting(map(_tenant_message, found[:size]))
        more = len(found) > len(page)
        return v1.ListTenantsResponse(
            tenants=page,
            next_page_token=seal(self._secret, "tenants", (page[-1].tenant_id,)) if more else "",
        )

    def update_tenant(self, request: v1.UpdateTenantRequest, caller: Caller) -> v1.UpdateTenantResponse:
        """Raises InvalidField, TenantNotFound, RequestIdReused."""
        asked, fields = request.tenant, frozenset(request.update_mask.paths)
        policy = from_message(asked.forget_policy) if asked.HasField("forget_policy") else None
        check(
            request_id_violation(request.request_id),
            tenant_id_violation("tenant.tenant_id", asked.tenant_id),
            *_mask_violations(fields),
            name_violation("tenant.display_name", asked.display_name),
            *(violations("tenant.forget_policy", policy) if policy else ()),
        )
        _check_own(caller, asked.tenant_id)
        changed = self._registry.update_tenant(
            asked.tenant_id,
            TenantChanges(fields, asked.display_name or asked.tenant_id, policy),
            now=self._clock(),
            request=_request_key(request.request_id, caller),
        )
        return v1.UpdateTenantResponse(tenant=_tenant_message(changed))

    def create_api_key(self, request: v1.CreateApiKeyRequest, caller: Caller) -> v1.CreateApiKeyResponse:
        """Raises InvalidField, RoleNotAllowed, TenantNotFound, RequestIdReused."""
        role = _role(request.role)
        expires_at = from_timestamp(request.expires_at) if request.HasField("expires_at") else None
        check(
            request_id_violation(request.request_id),
            _owner_violation(request.tenant_id, role),
            name_violation("display_name", request.display_name),
            name_violation("client_id", request.client_id),
            _time_violation("expires_at", expires_at),
            _grant_violation(request.across_subjects, role),
        )
        _check_own(caller, request.tenant_id)
        made = self._registry.create_api_key(
            request.tenant_id or None,
            role,
            now=self._clock(),
            display_name=request.display_name,
            client_id=request.client_id,
            expires_at=expires_at,
            across_subjects=request.across_subjects,
            request=_request_key(request.request_id, caller),
        )
        return v1.CreateApiKeyResponse(api_key=_api_key_message(made.api_key), secret=made.secret)

    def revoke_api_key(self, request: v1.RevokeApiKeyRequest, caller: Caller) -> v1.RevokeApiKeyResponse:
        """Raises InvalidField, RoleNotAllowed, TenantNotFound, ApiKeyNotFound, RequestIdReused."""
        check(
            request_id_violation(request.request_id),
            tenant_id_violation("tenant_id", request.tenant_id) if request.tenant_id else None,
            _named("key_id", request.key_id, "a key"),
        )
        _check_own(caller, request.tenant_id)
        revoked = self._registry.revoke_api_key(
            request.tenant_id or None,
            request.key_id,
            now=self._clock(),
            request=_request_key(request.request_id, caller),
        )
        return v1.RevokeApiKeyResponse(api_key=_api_key_message(revoked))

    def create_enrolment(
        self, request: v1.CreateEnrolmentRequest, caller: Caller
    ) -> v1.CreateEnrolmentResponse:
        """Raises InvalidField, TenantNotFound, RequestIdReused."""
        expires_at = from_timestamp(request.expires_at) if request.HasField("expires_at") else None
        check(
            request_id_violation(request.request_id),
            tenant_id_violation("tenant_id", request.tenant_id),
            *_scope_violations(request.scopes),
            name_violation("client_id", request.client_id),
            name_violation("display_name", request.display_name),
            _time_violation("expires_at", expires_at),
        )
        subject = _sole_subject(request)
        _check_own(caller, request.tenant_id)
        made = self._registry.enrolments.create_enrolment(
            request.tenant_id,
            subject,
            now=self._clock(),
            scopes=tuple(request.scopes),
            client_id=request.client_id,
            display_name=request.display_name,
            expires_at=expires_at,
            request=_request_key(request.request_id, caller),
        )
        return v1.CreateEnrolmentResponse(
            enrolment_code=made.code, client_id=made.client_id, expires_at=to_timestamp(made.expires_at)
        )

    def list_devices(self, request: v1.ListDevicesRequest, caller: Caller) -> v1.ListDevicesResponse:
        """Raises InvalidField, TenantNotFound."""
        check(tenant_id_violation("tenant_id", request.tenant_id))
        _check_own(caller, request.tenant_id)
        size = _page_size(request.page_size)
        purpose = f"devices of {self._registry.get_tenant(request.tenant_id).incarnation}"
        after = ""
        if request.page_token:
            (after,) = unseal(self._secret, purpose, request.page_token, (str,))
        found = self._registry.devices.list_devices(request.tenant_id, size + 1, after)
        page = found[:size]
        more = len(found) > size
        return v1.ListDevicesResponse(
            devices=map(_device_message, page),
            next_page_token=seal(self._secret, purpose, (page[-1].device_id,)) if more else "",
        )

    def revoke_device(self, request: v1.RevokeDeviceRequest, caller: Caller) -> v1.RevokeDeviceResponse:
        """Raises InvalidField, TenantNotFound, DeviceNotFound, RequestIdReused."""
        check(
            request_id_violation(request.request_id),
            tenant_id_violation("tenant_id", request.tenant_id),
            _named("device_id", request.device_id, "a device"),
        )
        _check_own(caller, request.tenant_id)
        revoked = self._registry.devices.revoke_device(
            request.tenant_id,
            request.device_id,
            now=self._clock(),
            wipe=request.wipe,
            request=_request_key(request.request_id, caller),
        )
        return v1.RevokeDeviceResponse(device=_device_message(revoked))


# --- whose tenant ---------------------------------------------------------------------------------


def _check_own(caller: Caller, tenant_id: str) -> None:
    """A tenant's admin acts on its own tenant; any other is answered as one that does not exist.

    An empty ``tenant_id`` stands for the platform, whose keys are its own admins' matter.
    """
    if caller.tenant is None:
        return
    if not tenant_id:
        raise RoleNotAllowed("only a platform admin may make or revoke a platform admin's key")
    if tenant_id != caller.tenant.tenant_id:
        raise TenantNotFound(tenant_id)


def _request_key(request_id: str, caller: Caller) -> RequestKey | None:
    if not request_id:
        return None
    return RequestKey(request_id, "" if caller.tenant is None else caller.tenant.incarnation)


# --- what makes a request valid -------------------------------------------------------------------


def _fitting(tenants: Iterable[v1.Tenant]) -> list[v1.Tenant]:
    """As many of the first ones as a page may hold, at least one."""
    total, page = 0, list[v1.Tenant]()
    for tenant in tenants:
        total += tenant.ByteSize()
        if page and total > MAX_PAGE_BYTES:
            break
        page.append(tenant)
    return page


def _mask_violations(fields: Collection[str]) -> Iterator[FieldViolation]:
    if not fields:
        yield FieldViolation("update_mask", f"is empty; name the fields to write: {', '.join(_UPDATABLE)}")
    for field in sorted(fields):
        if field not in _UPDATABLE:
            known = ", ".join(_UPDATABLE)
            yield FieldViolation("update_mask", f"{field!r} is no field to write; these are: {known}")


_UPDATABLE = ("display_name", "forget_policy")


def _page_size(page_size: int) -> int:
    if not 0 <= page_size <= MAX_PAGE:
        raise InvalidField.of("page_size", f"is {page_size}; give 1 to {MAX_PAGE}, or 0 for {DEFAULT_PAGE}")
    return page_size or DEFAULT_PAGE


def _role(number: v1.Role.ValueType) -> Role:
    if number == v1.ROLE_DEVICE:
        raise InvalidField.of("role", "is a device's, which no API key has; CreateEnrolment lets a device in")
    for role in API_KEY_ROLES:
        if role.value == int(number):
            return role
    raise InvalidField.of("role", f"is {number}; name one of the roles of the contract")


def _owner_violation(tenant_id: str, role: Role) -> FieldViolation | None:
    if role is not Role.PLATFORM_ADMIN:
        return tenant_id_violation("tenant_id", tenant_id)
    if tenant_id:
        return FieldViolation("tenant_id", "is set; a platform admin's key belongs to no tenant")
    return None


def _grant_violation(across_subjects: bool, role: Role) -> FieldViolation | None:
    if not across_subjects or role in ACROSS_SUBJECTS:
        return None
    return FieldViolation("across_subjects", f"is set, but a key of role {role.name} searches no memories")


def _named(field_path: str, name: str, thing: str) -> FieldViolation | None:
    if not name:
        return FieldViolation(field_path, f"is empty; name {thing}")
    return name_violation(field_path, name)


def _sole_subject(request: v1.CreateEnrolmentRequest) -> Subject:
    given = [name for name in SUBJECT_FIELDS if getattr(request, name)]
    if len(given) > 1:
        raise InvalidField.of(given[1], f"{' and '.join(given)} are set; exactly one is needed")
    subject = subject_of(request.user_id, request.agent_id, request.run_id)
    if subject is None:
        raise InvalidField.of("user_id", "one of user_id, agent_id and run_id is needed")
    check(name_violation(given[0], subject.name))
    return subject


def _scope_violations(scopes: Sequence[str]) -> list[FieldViolation | None]:
    if len(scopes) > MAX_SCOPES:
        return [FieldViolation("scopes", f"has {len(scopes)} scopes; at most {MAX_SCOPES} are allowed")]
    return [scope_violation(f"scopes[{n}]", scope) for n, scope in enumerate(scopes)]


def _time_violation(field_path: str, time: Micros | None) -> FieldViolation | None:
    if time is not None and not MIN_MICROS <= time <= MAX_MICROS:
        return FieldViolation(field_path, "lies outside the years 1 to 9999")
    return None


# --- values as messages ---------------------------------------------------------------------------


def _tenant_message(tenant: Tenant) -> v1.Tenant:
    return v1.Tenant(
        tenant_id=tenant.tenant_id,
        display_name=tenant.display_name,
        incarnation=tenant.incarnation,
        state=v1.TenantState.ValueType(tenant.state),
        shard=tenant.shard,
        space=tenant.space,
        created_at=to_timestamp(tenant.created_at),
        forget_policy=None if tenant.forget_policy is None else to_message(tenant.forget_policy),
    )


def _api_key_message(api_key: ApiKey) -> v1.ApiKey:
    return v1.ApiKey(
        key_id=api_key.key_id,
        tenant_id=api_key.tenant_id or "",
        display_name=api_key.display_name,
        role=v1.Role.ValueType(api_key.role),
        client_id=api_key.client_id,
        created_at=to_timestamp(api_key.created_at),
        expires_at=_optional_timestamp(api_key.expires_at),
        revoked_at=_optional_timestamp(api_key.revoked_at),
        across_subjects=api_key.across_subjects,
    )


def _device_message(device: Device) -> v1.Device:
    return v1.Device(
        device_id=device.device_id,
        tenant_id=device.tenant_id,
        client_id=device.client_id,
        display_name=device.display_name,
        **{f"{device.subject.kind}_id": device.subject.name},
        scopes=device.scopes,
        created_at=to_timestamp(device.created_at),
        last_seen_at=to_timestamp(device.seen_at),
        revoked_at=_optional_timestamp(device.revoked_at),
        wipe=device.wipe,
    )


def _optional_timestamp(time: Micros | None) -> Timestamp | None:
    return None if time is None else to_timestamp(time)
