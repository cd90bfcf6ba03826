"""One exception vocabulary for both ends: what went wrong, as the contract's ErrorReason.

A class is raised where the fact is known; the server's door maps it to a status in one place and
``from_rpc_error`` maps that status back. Every message says what was wrong, with which value, and
what to do. This module does not import grpc.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from google.rpc import code_pb2

from scrubjay import v1

DOMAIN = "scrubjay"


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """One wrong field: its path in the request, and what would be right."""

    field: str
    description: str

    def under(self, prefix: str) -> FieldViolation:
        """The same violation seen from a message that holds this one at ``prefix``."""
        return FieldViolation(f"{prefix}.{self.field}" if self.field else prefix, self.description)


@dataclass(frozen=True, slots=True)
class QuotaViolation:
    """A quota that is used up: whose it is, such as ``tenants/acme``, and how much it allows."""

    subject: str
    description: str


class ScrubjayError(Exception):
    """Base of every error. ``code`` is a google.rpc.Code number, ``reason`` an ErrorReason.

    Both are the class's, but for an error that was ``decoded``: a newer server, or gRPC itself, may send
    what no class here stands for. ``field_violations`` holds the wrong fields, where it is about fields,
    ``quota_violations`` the quotas that are used up, where it is about quotas.
    """

    code: int = code_pb2.INTERNAL
    reason: v1.ErrorReason.ValueType = v1.ERROR_REASON_INTERNAL
    retry_after_seconds: float | None = None
    field_violations: tuple[FieldViolation, ...] = ()
    quota_violations: tuple[QuotaViolation, ...] = ()

    def __init__(self, message: str, *, metadata: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.metadata = dict(metadata or {})

    @classmethod
    def decoded(
        cls,
        message: str,
        *,
        code: int,
        reason: v1.ErrorReason.ValueType,
        metadata: Mapping[str, str] | None = None,
        field_violations: Iterable[FieldViolation] = (),
        quota_violations: Iterable[QuotaViolation] = (),
        retry_after_seconds: float | None = None,
    ) -> Self:
        """An error of this class as it was sent, without the class's own constructor."""
        error = cls.__new__(cls)
        ScrubjayError.__init__(error, message, metadata=metadata)
        error.code = code
        error.reason = reason
        error.field_violations = tuple(field_violations)
        error.quota_violations = tuple(quota_violations)
        error.retry_after_seconds = retry_after_seconds
        return error


class InvalidField(ScrubjayError):
    """One or more fields of the request are missing or wrong."""

    code = code_pb2.INVALID_ARGUMENT
    reason = v1.ERROR_REASON_INVALID_FIELD

    def __init__(self, violations: Iterable[FieldViolation]) -> None:
        self.field_violations = tuple(violations)
        super().__init__("; ".join(f"{v.field}: {v.description}" for v in self.field_violations))

    @classmethod
    def of(cls, field: str, description: str) -> InvalidField:
        """An error about one field."""
        return cls([FieldViolation(field, description)])


def check(*violations: FieldViolation | None) -> None:
    """Raise InvalidField unless every one is None."""
    found = [violation for violation in violations if violation is not None]
    if found:
        raise InvalidField(found)


class CredentialInvalid(ScrubjayError):
    """No credential, an unknown one, a revoked or an expired one: one message for all of them."""

    code = code_pb2.UNAUTHENTICATED
    reason = v1.ERROR_REASON_CREDENTIAL_INVALID

    def __init__(self) -> None:
        super().__init__(
            "the API key is missing, unknown, revoked or expired; send 'authorization: Bearer <key>'"
        )


class TokenExpired(ScrubjayError):
    """The device's token has expired; refreshing takes it and gives the next one."""

    code = code_pb2.UNAUTHENTICATED
    reason = v1.ERROR_REASON_TOKEN_EXPIRED

    def __init__(self) -> None:
        super().__init__("the device's token has expired; call RefreshToken with it")


class DeviceRevoked(ScrubjayError):
    """The device was revoked, or its token was copied."""

    code = code_pb2.UNAUTHENTICATED
    reason = v1.ERROR_REASON_DEVICE_REVOKED

    def __init__(self) -> None:
        super().__init__(
            "this device was signed out by its operator, or its token was used from a copy; "
            "enrol it again: nothing on it is lost"
        )


class RoleNotAllowed(ScrubjayError):
    """The credential's role may not call this RPC, or not for this resource."""

    code = code_pb2.PERMISSION_DENIED
    reason = v1.ERROR_REASON_ROLE_NOT_ALLOWED


class NotFound(ScrubjayError):
    """Nothing of this id that the caller may see."""

    code = code_pb2.NOT_FOUND


class MemoryNotFound(NotFound):
    """No memory of this id that the caller may see. Another tenant's id gives the same bytes."""

    reason = v1.ERROR_REASON_MEMORY_NOT_FOUND

    def __init__(self, memory_id: str) -> None:
        super().__init__(f"no memory {memory_id}", metadata={"memory_id": memory_id})


class MemoryDeleted(NotFound):
    """The memory was deleted; a deleted id never comes back."""

    reason = v1.ERROR_REASON_MEMORY_DELETED

    def __init__(self, memory_id: str) -> None:
        super().__init__(
            f"memory {memory_id} was deleted; add a new one instead", metadata={"memory_id": memory_id}
        )


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


class OperationNotFound(NotFound):
    """No operation of this id that the calling client asked for."""

    reason = v1.ERROR_REASON_OPERATION_NOT_FOUND

    def __init__(self, operation_id: str) -> None:
        super().__init__(f"no operation {operation_id}", metadata={"operation_id": operation_id})


class OperationEnded(ScrubjayError):
    """The operation can't be cancelled any more."""

    code = code_pb2.FAILED_PRECONDITION
    reason = v1.ERROR_REASON_OPERATION_ENDED

    def __init__(self, operation_id: str) -> None:
        super().__init__(
            f"the operation {operation_id} has ended, or come too far, and can't be cancelled",
            metadata={"operation_id": operation_id},
        )


class OperationUnderWay(ScrubjayError):
    """Another operation has the tenant, or the shard, for itself."""

    code = code_pb2.FAILED_PRECONDITION
    reason = v1.ERROR_REASON_OPERATION_UNDER_WAY

    def __init__(self, kind: str, operation_id: str) -> None:
        super().__init__(
            f"{kind} is under way as the operation {operation_id}; wait for its end, or cancel it",
            metadata={"kind": kind, "operation_id": operation_id},
        )


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


class ExportGone(NotFound):
    """The file of an export is not on this server."""

    reason = v1.ERROR_REASON_EXPORT_GONE

    def __init__(self, operation_id: str) -> None:
        super().__init__(
            f"this server has no file of the export {operation_id}: it is deleted, or another server has it; "
            "export anew",
            metadata={"operation_id": operation_id},
        )


class OperationCancelled(ScrubjayError):
    """The operation that a call waited for was cancelled."""

    code = code_pb2.ABORTED
    reason = v1.ERROR_REASON_OPERATION_CANCELLED

    def __init__(self, operation_id: str) -> None:
        super().__init__(
            f"the operation {operation_id} was cancelled; nothing was stored",
            metadata={"operation_id": operation_id},
        )


class MemoryExists(ScrubjayError):
    """A memory of this id is there, or was."""

    code = code_pb2.ALREADY_EXISTS
    reason = v1.ERROR_REASON_MEMORY_EXISTS

    def __init__(self, memory_id: str) -> None:
        super().__init__(
            f"the id {memory_id} is taken or was deleted; leave id empty to get a new one",
            metadata={"memory_id": memory_id},
        )


class TenantExists(ScrubjayError):
    """A tenant of this id is there."""

    code = code_pb2.ALREADY_EXISTS
    reason = v1.ERROR_REASON_TENANT_EXISTS

    def __init__(self, tenant_id: str) -> None:
        super().__init__(f"the tenant {tenant_id!r} exists", metadata={"tenant_id": tenant_id})


class EtagMismatch(ScrubjayError):
    """The memory changed since the etag was read."""

    code = code_pb2.ABORTED
    reason = v1.ERROR_REASON_ETAG_MISMATCH

    def __init__(self, memory_id: str) -> None:
        super().__init__(
            f"memory {memory_id} changed since this etag was read; get it again and retry",
            metadata={"memory_id": memory_id},
        )


class RequestIdReused(ScrubjayError):
    """The request_id was used with another body in the last 24 hours."""

    code = code_pb2.FAILED_PRECONDITION
    reason = v1.ERROR_REASON_REQUEST_ID_REUSED

    def __init__(self, request_id: str) -> None:
        super().__init__(
            f"request_id {request_id!r} was used with another body; use a new one for a new request",
            metadata={"request_id": request_id},
        )


class CursorInvalid(ScrubjayError):
    """``last_sync_at`` is no cursor of this tenant, subject and client."""

    code = code_pb2.INVALID_ARGUMENT
    reason = v1.ERROR_REASON_CURSOR_INVALID

    def __init__(self) -> None:
        super().__init__(
            "last_sync_at is no cursor of this tenant, subject and client; "
            "send it as the server gave it, a time such as 2026-11-30T08:00:00Z, or nothing"
        )


class CursorAhead(ScrubjayError):
    """The replica knows more than the server, which went back in time unannounced."""

    code = code_pb2.FAILED_PRECONDITION
    reason = v1.ERROR_REASON_CURSOR_AHEAD

    def __init__(self) -> None:
        super().__init__(
            "this replica knows more than the server, which was restored from a backup; its operator "
            "has yet to run 'python -m server restored'; nothing was taken, try again later"
        )


class PrincipalMismatch(ScrubjayError):
    """The replica belongs to another tenant, subject or client."""

    code = code_pb2.FAILED_PRECONDITION
    reason = v1.ERROR_REASON_PRINCIPAL_MISMATCH

    def __init__(self) -> None:
        super().__init__(
            "this replica belongs to another tenant, subject or client than the token; "
            "open the file of this one, or make a new one"
        )


class SnapshotGone(ScrubjayError):
    """The snapshot that a resume_token names is not kept any more."""

    code = code_pb2.ABORTED
    reason = v1.ERROR_REASON_SNAPSHOT_GONE

    def __init__(self) -> None:
        super().__init__("the snapshot is not kept any more; begin a new one with an empty resume_token")


class WatchTokenExpired(ScrubjayError):
    """What changed since a Watch's resume_token is not known any more."""

    code = code_pb2.OUT_OF_RANGE
    reason = v1.ERROR_REASON_WATCH_TOKEN_EXPIRED

    def __init__(self) -> None:
        super().__init__(
            "what changed since the resume_token is not known any more; watch anew, with include_existing"
        )


class HistoryForgotten(ScrubjayError):
    """The history of that time is not kept any more."""

    code = code_pb2.OUT_OF_RANGE
    reason = v1.ERROR_REASON_HISTORY_FORGOTTEN

    def __init__(self) -> None:
        super().__init__(
            "the history of that time is not kept any more, by the tenant's retention; ask for a later time, "
            "or for another operation"
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


class ModelMismatch(ScrubjayError):
    """The configured model is not the one the stored vectors came from."""

    code = code_pb2.FAILED_PRECONDITION
    reason = v1.ERROR_REASON_MODEL_MISMATCH


class ModelNotConfigured(ScrubjayError):
    """The call needs a chat model, and the server has none."""

    code = code_pb2.FAILED_PRECONDITION
    reason = v1.ERROR_REASON_MODEL_NOT_CONFIGURED

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} asks a chat model, and this server has none; its operator sets SCRUBJAY_CHAT_MODEL"
        )


class Unavailable(ScrubjayError):
    """Something this server needs does not answer now; nothing was stored."""

    code = code_pb2.UNAVAILABLE
    retry_after_seconds = 1.0


class StorageUnavailable(Unavailable):
    """The database does not answer."""

    reason = v1.ERROR_REASON_STORAGE_UNAVAILABLE

    def __init__(self) -> None:
        super().__init__("the database does not answer; nothing was stored; retry with the same request_id")


class ModelUnavailable(Unavailable):
    """A model does not answer."""

    reason = v1.ERROR_REASON_MODEL_UNAVAILABLE


class RevisionNotReached(Unavailable):
    """This server has not seen the revision yet."""

    reason = v1.ERROR_REASON_REVISION_NOT_REACHED
    retry_after_seconds = 0.05

    def __init__(self) -> None:
        super().__init__("min_revision is ahead of this server; retry shortly")


class ServerBusy(ScrubjayError):
    """More calls at once than this server takes."""

    code = code_pb2.RESOURCE_EXHAUSTED
    reason = v1.ERROR_REASON_SERVER_BUSY
    retry_after_seconds = 0.2


class RateLimited(ServerBusy):
    """More calls a second than the tenant's quotas allow, or its shard's limit."""

    reason = v1.ERROR_REASON_RATE_LIMITED

    def __init__(self, retry_after_seconds: float) -> None:
        super().__init__(
            "this key, its tenant, or the shard of both, is called more often than it may be; "
            f"retry in {retry_after_seconds:.3g} seconds; nothing was done"
        )
        self.retry_after_seconds = retry_after_seconds


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


class MessageTooLarge(ScrubjayError):
    """A request or a response is larger than the limit."""

    code = code_pb2.RESOURCE_EXHAUSTED
    reason = v1.ERROR_REASON_MESSAGE_TOO_LARGE


class DeadlineExceeded(ScrubjayError):
    """The caller's deadline passed."""

    code = code_pb2.DEADLINE_EXCEEDED
    reason = v1.ERROR_REASON_DEADLINE_EXCEEDED


class UnknownMethod(ScrubjayError):
    """This server has no such RPC."""

    code = code_pb2.UNIMPLEMENTED
    reason = v1.ERROR_REASON_UNKNOWN_METHOD


class InternalError(ScrubjayError):
    """A fault of the server; the request id in the metadata finds it in the log."""

    reason = v1.ERROR_REASON_INTERNAL
