"""The base of every error, and what one may hold beside its message."""

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


class NotFound(ScrubjayError):
    """Nothing of this id that the caller may see."""

    code = code_pb2.NOT_FOUND
