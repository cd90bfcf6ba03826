"""Errors <-> google.rpc.Status, both ways in one file and without grpc.

A status travels in a call's trailers twice: its message as text, percent-encoded, and all of it as
base64. HTTP/2 peers refuse trailers past 8 KB, so every part here has a bound in bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableSequence
from typing import Any, TypeVar

from google.protobuf import duration_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from scrubjay import v1
from scrubjay.errors import (
    DOMAIN,
    CredentialInvalid,
    DeadlineExceeded,
    FieldViolation,
    InternalError,
    InvalidField,
    NotFound,
    QuotaViolation,
    RoleNotAllowed,
    ScrubjayError,
    Unavailable,
    UnknownMethod,
)

STATUS_KEY = "grpc-status-details-bin"
"""The trailing metadata key that a status travels under."""
MAX_MESSAGE_BYTES = 900
"""Percent-encoding can treble it: 2.7 KB, and 1.2 KB more in the base64."""
MAX_DETAILS_BYTES = 2200
"""3 KB as base64."""
MAX_VIOLATIONS = 20
"""More wrong fields at once help nobody."""
_MAX_TEXT_BYTES = 480
_MAX_PATH_BYTES = 160
_PREFIX = "ERROR_REASON_"
_NANOS_PER_SECOND = 1_000_000_000

_Detail = TypeVar("_Detail", bound=Message)


def to_status(error: ScrubjayError, extra_metadata: Mapping[str, str] | None = None) -> status_pb2.Status:
    """The status of an error: one ErrorInfo, a BadRequest where fields are wrong, a QuotaFailure where quotas
    are used up, a RetryInfo where known.

    Texts past their bounds end in an ellipsis; violations and metadata that find no room are left out.
    Its trailers stay below 8 KB where the call's own details are the status's ``message``.
    """
    status = status_pb2.Status(code=error.code, message=_clip(error.message, MAX_MESSAGE_BYTES))
    for detail in _details(error, {**error.metadata, **(extra_metadata or {})}):
        status.details.add().Pack(detail)
    return status


def _details(error: ScrubjayError, metadata: Mapping[str, str]) -> Iterator[Message]:
    info = error_details_pb2.ErrorInfo(reason=_reason_name(error.reason), domain=DOMAIN)
    for key, value in metadata.items():
        clipped = _clip(value, _MAX_TEXT_BYTES)
        if info.ByteSize() + len(key) + len(clipped.encode()) < MAX_DETAILS_BYTES // 2:
            info.metadata[key] = clipped
    yield info
    if error.field_violations:
        yield _bad_request(error.field_violations, MAX_DETAILS_BYTES - info.ByteSize())
    if error.quota_violations:
        yield _quota_failure(error.quota_violations, MAX_DETAILS_BYTES - info.ByteSize())
    if error.retry_after_seconds is not None:
        nanos = round(error.retry_after_seconds * _NANOS_PER_SECOND)
        seconds, nanos = divmod(nanos, _NANOS_PER_SECOND)
        yield error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(seconds=seconds, nanos=nanos))


def _bad_request(violations: tuple[FieldViolation, ...], room: int) -> error_details_pb2.BadRequest:
    request = error_details_pb2.BadRequest()
    for one in violations[:MAX_VIOLATIONS]:
        request.field_violations.add(field=_clip(one.field, _MAX_PATH_BYTES), description=_told(one))
    _shorten(request, request.field_violations, room)
    return request


def _quota_failure(violations: tuple[QuotaViolation, ...], room: int) -> error_details_pb2.QuotaFailure:
    failure = error_details_pb2.QuotaFailure()
    for one in violations[:MAX_VIOLATIONS]:
        failure.violations.add(subject=_clip(one.subject, _MAX_PATH_BYTES), description=_told(one))
    _shorten(failure, failure.violations, room)
    return failure


def _told(violation: FieldViolation | QuotaViolation) -> str:
    return _clip(violation.description, _MAX_TEXT_BYTES)


def _shorten(detail: Message, violations: MutableSequence[Any], room: int) -> None:
    """Leave out the last violations of a detail that has more than ``room`` bytes."""
    while violations and detail.ByteSize() > room:
        del violations[-1]


def _clip(text: str, max_bytes: int) -> str:
    """The text as valid UTF-8 of at most ``max_bytes``, cut between characters."""
    encoded = text.encode(errors="replace")
    if len(encoded) <= max_bytes:
        return encoded.decode()
    return encoded[: max_bytes - 3].decode(errors="ignore") + "…"


def from_status(status: status_pb2.Status) -> ScrubjayError:
    """The error of a status: of the class that has its reason, else of the general class of its code.

    DecodeError where a detail's bytes are damaged.
    """
    info = _detail(status, error_details_pb2.ErrorInfo())
    bad_request = _detail(status, error_details_pb2.BadRequest())
    quota_failure = _detail(status, error_details_pb2.QuotaFailure())
    retry = _detail(status, error_details_pb2.RetryInfo())
    reason = _reason(info)
    return _class_of(reason, status.code).decoded(
        status.message,
        code=status.code,
        reason=reason,
        metadata=info.metadata,
        field_violations=[FieldViolation(v.field, v.description) for v in bad_request.field_violations],
        quota_violations=[QuotaViolation(v.subject, v.description) for v in quota_failure.violations],
        retry_after_seconds=(
            retry.retry_delay.ToNanoseconds() / _NANOS_PER_SECOND if retry.HasField("retry_delay") else None
        ),
    )


def _detail(status: status_pb2.Status, empty: _Detail) -> _Detail:
    for detail in status.details:
        if detail.Unpack(empty):
            break
    return empty


def _reason_name(reason: v1.ErrorReason.ValueType) -> str:
    return v1.ErrorReason.Name(reason).removeprefix(_PREFIX)


def _reason(info: error_details_pb2.ErrorInfo) -> v1.ErrorReason.ValueType:
    """UNSPECIFIED where a proxy or gRPC made the status, or where a newer server has a newer reason."""
    if info.domain != DOMAIN:
        return v1.ERROR_REASON_UNSPECIFIED
    return _REASONS.get(_PREFIX + info.reason, v1.ERROR_REASON_UNSPECIFIED)


def _class_of(reason: v1.ErrorReason.ValueType, code: int) -> type[ScrubjayError]:
    exact = _BY_REASON.get(reason)
    if exact is not None and exact.code == code:
        return exact
    return _BY_CODE.get(code, ScrubjayError)


def _classes(parent: type[ScrubjayError]) -> Iterator[type[ScrubjayError]]:
    for child in parent.__subclasses__():
        yield child
        yield from _classes(child)


_REASONS = dict(v1.ErrorReason.items())
_BY_REASON = {each.reason: each for each in _classes(ScrubjayError) if "reason" in vars(each)}
_BY_CODE: dict[int, type[ScrubjayError]] = {
    each.code: each
    for each in (
        InvalidField,
        CredentialInvalid,
        RoleNotAllowed,
        NotFound,
        Unavailable,
        DeadlineExceeded,
        UnknownMethod,
        InternalError,
    )
}
