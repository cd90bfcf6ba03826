"""What the server can't do now, whoever asks."""

from __future__ import annotations

from google.rpc import code_pb2

from scrubjay import v1
from scrubjay.errors.error import ScrubjayError


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


class InternalError(ScrubjayError):
    """A fault of the server; the request id in the metadata finds it in the log."""

    reason = v1.ERROR_REASON_INTERNAL
