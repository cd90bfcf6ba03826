"""One exception vocabulary for both ends: what went wrong, as the contract's ErrorReason.

A class is raised where the fact is known; the server's door maps it to a status in one place and
``from_rpc_error`` maps that status back. Every message says what was wrong, with which value, and
what to do. This package does not import grpc.
"""

from scrubjay.errors.calls import (
    DeadlineExceeded,
    InvalidField,
    MessageTooLarge,
    RequestIdReused,
    UnknownMethod,
    check,
)
from scrubjay.errors.credentials import CredentialInvalid, DeviceRevoked, RoleNotAllowed, TokenExpired
from scrubjay.errors.error import DOMAIN, FieldViolation, NotFound, QuotaViolation, ScrubjayError
from scrubjay.errors.memories import (
    EtagMismatch,
    HistoryForgotten,
    MemoryDeleted,
    MemoryExists,
    MemoryNotFound,
)
from scrubjay.errors.operations import (
    ExportGone,
    OperationCancelled,
    OperationEnded,
    OperationNotFound,
    OperationUnderWay,
)
from scrubjay.errors.replicas import (
    CursorAhead,
    CursorInvalid,
    PrincipalMismatch,
    SnapshotGone,
    WatchTokenExpired,
)
from scrubjay.errors.server import (
    InternalError,
    ModelMismatch,
    ModelNotConfigured,
    ModelUnavailable,
    RateLimited,
    RevisionNotReached,
    ServerBusy,
    StorageUnavailable,
    Unavailable,
)
from scrubjay.errors.tenants import (
    ApiKeyNotFound,
    DeviceNotFound,
    QuotaExceeded,
    TenantDeleting,
    TenantExists,
    TenantNotActive,
    TenantNotEmpty,
    TenantNotFound,
    TenantSuspended,
)

__all__ = [
    "DOMAIN",
    "ApiKeyNotFound",
    "CredentialInvalid",
    "CursorAhead",
    "CursorInvalid",
    "DeadlineExceeded",
    "DeviceNotFound",
    "DeviceRevoked",
    "EtagMismatch",
    "ExportGone",
    "FieldViolation",
    "HistoryForgotten",
    "InternalError",
    "InvalidField",
    "MemoryDeleted",
    "MemoryExists",
    "MemoryNotFound",
    "MessageTooLarge",
    "ModelMismatch",
    "ModelNotConfigured",
    "ModelUnavailable",
    "NotFound",
    "OperationCancelled",
    "OperationEnded",
    "OperationNotFound",
    "OperationUnderWay",
    "PrincipalMismatch",
    "QuotaExceeded",
    "QuotaViolation",
    "RateLimited",
    "RequestIdReused",
    "RevisionNotReached",
    "RoleNotAllowed",
    "ScrubjayError",
    "ServerBusy",
    "SnapshotGone",
    "StorageUnavailable",
    "TenantDeleting",
    "TenantExists",
    "TenantNotActive",
    "TenantNotEmpty",
    "TenantNotFound",
    "TenantSuspended",
    "TokenExpired",
    "Unavailable",
    "UnknownMethod",
    "WatchTokenExpired",
    "check",
]
