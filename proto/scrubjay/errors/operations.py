"""How a long operation stands."""

from __future__ import annotations

from google.rpc import code_pb2

from scrubjay import v1
from scrubjay.errors.error import NotFound, ScrubjayError


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


class OperationCancelled(ScrubjayError):
    """The operation that a call waited for was cancelled."""

    code = code_pb2.ABORTED
    reason = v1.ERROR_REASON_OPERATION_CANCELLED

    def __init__(self, operation_id: str) -> None:
        super().__init__(
            f"the operation {operation_id} was cancelled; nothing was stored",
            metadata={"operation_id": operation_id},
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
