"""Where a replica and the server can't go on from what was said last."""

from __future__ import annotations

from google.rpc import code_pb2

from scrubjay import v1
from scrubjay.errors.error import ScrubjayError


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
