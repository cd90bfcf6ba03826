"""What is wrong with a call itself, whatever it asks for."""

from __future__ import annotations

from collections.abc import Iterable

from google.rpc import code_pb2

from scrubjay import v1
from scrubjay.errors.error import FieldViolation, ScrubjayError


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


class RequestIdReused(ScrubjayError):
    """The request_id was used with another body in the last 24 hours."""

    code = code_pb2.FAILED_PRECONDITION
    reason = v1.ERROR_REASON_REQUEST_ID_REUSED

    def __init__(self, request_id: str) -> None:
        super().__init__(
            f"request_id {request_id!r} was used with another body; use a new one for a new request",
            metadata={"request_id": request_id},
        )


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
