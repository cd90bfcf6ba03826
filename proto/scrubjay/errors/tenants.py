"""How a tenant stands, and what belongs to it."""

from __future__ import annotations

from google.rpc import code_pb2

from scrubjay import v1
from scrubjay.errors.error import NotFound, QuotaViolation, ScrubjayError


class TenantNotFound(NotFound):
    """No tenant of this id."""

    reason = v1.ERROR_REASON_TENANT_NOT_FOUND

    def __init__(self, tenant_id: str) -> None:
        super().__init__(f"no tenant {tenant_id!r}", metadata={"tenant_id": tenant_id})


class ApiKeyNotFound(NotFound):
    """No key of this id in the tenant."""

    reason = v1.ERROR_REASON_API_KEY_NOT_FOUND

    def __init__(self, key_id: str) -> None:
        super().__init__(f"no API key {key_id!r}", metadata={"key_id": key_id})


class DeviceNotFound(NotFound):
    """No device of this id in the tenant."""

    reason = v1.ERROR_REASON_DEVICE_NOT_FOUND

    def __init__(self, device_id: str) -> None:
        super().__init__(f"no device {device_id!r}", metadata={"device_id": device_id})


class TenantExists(ScrubjayError):
    """A tenant of this id is there."""

    code = code_pb2.ALREADY_EXISTS
    reason = v1.ERROR_REASON_TENANT_EXISTS

    def __init__(self, tenant_id: str) -> None:
        super().__init__(f"the tenant {tenant_id!r} exists", metadata={"tenant_id": tenant_id})


class TenantNotEmpty(ScrubjayError):
    """Something was written to the tenant that is to be imported into."""

    code = code_pb2.FAILED_PRECONDITION
    reason = v1.ERROR_REASON_TENANT_NOT_EMPTY

    def __init__(self, tenant_id: str) -> None:
        super().__init__(
            f"something was written to the tenant {tenant_id!r} before, even if it is deleted now; "
            "import into a new one",
            metadata={"tenant_id": tenant_id},
        )


class TenantNotActive(ScrubjayError):
    """The tenant's state does not allow the call."""

    code = code_pb2.FAILED_PRECONDITION
    reason = v1.ERROR_REASON_TENANT_NOT_ACTIVE


class TenantSuspended(ScrubjayError):
    """The tenant's memories are neither read nor written."""

    code = code_pb2.FAILED_PRECONDITION
    reason = v1.ERROR_REASON_TENANT_SUSPENDED

    def __init__(self) -> None:
        super().__init__("this tenant is suspended; its operator knows why and can resume it")


class TenantDeleting(ScrubjayError):
    """The tenant was deleted."""

    code = code_pb2.FAILED_PRECONDITION
    reason = v1.ERROR_REASON_TENANT_DELETING

    def __init__(self) -> None:
        super().__init__("this tenant was deleted; its operator can take that back until it is purged")


class QuotaExceeded(ScrubjayError):
    """The tenant has as many as its quotas allow."""

    code = code_pb2.RESOURCE_EXHAUSTED
    reason = v1.ERROR_REASON_QUOTA_EXCEEDED

    def __init__(self, quota: str, limit: int, tenant_id: str) -> None:
        things = quota.replace("_", " ")
        super().__init__(
            f"the tenant may have {limit} {things}; nothing was stored; delete some, or ask its operator for "
            "more",
            metadata={"quota": quota, "limit": str(limit)},
        )
        allowed = f"may have {limit} {things}"
        self.quota_violations = (QuotaViolation(f"tenants/{tenant_id}", allowed),)
