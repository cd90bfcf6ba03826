"""How a memory stands, or its history."""

from __future__ import annotations

from google.rpc import code_pb2

from scrubjay import v1
from scrubjay.errors.error import NotFound, ScrubjayError


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


class MemoryExists(ScrubjayError):
    """A memory of this id is there, or was."""

    code = code_pb2.ALREADY_EXISTS
    reason = v1.ERROR_REASON_MEMORY_EXISTS

    def __init__(self, memory_id: str) -> None:
        super().__init__(
            f"the id {memory_id} is taken or was deleted; leave id empty to get a new one",
            metadata={"memory_id": memory_id},
        )


class EtagMismatch(ScrubjayError):
    """The memory changed since the etag was read."""

    code = code_pb2.ABORTED
    reason = v1.ERROR_REASON_ETAG_MISMATCH

    def __init__(self, memory_id: str) -> None:
        super().__init__(
            f"memory {memory_id} changed since this etag was read; get it again and retry",
            metadata={"memory_id": memory_id},
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
