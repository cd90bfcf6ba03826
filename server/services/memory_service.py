"""The door of MemoryService: a message becomes a value here, and a value becomes a message."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from server.services.adding import Adding
from server.services.backend_watch import BackendWatch
from server.services.context import Contexts
from server.services.entities import EntityReads
from server.services.feedback import Feedback
from server.services.forgetting import Forgetting
from server.services.memory_reads import MemoryReads
from server.services.memory_writes import MemoryWrites
from server.services.restoring import Restoring
from tenants.tenant import MEMORY_READERS, MEMORY_WRITERS, Role

_PATH = "/scrubjay.v1.MemoryService/"
_READS = (
    *("Get", "BatchGet", "List", "Search", "Context", "ExplainMiss", "History", "Watch"),
    *("ListEntities", "ListRelations"),
    *("GetOperation", "ListOperations", "WaitOperation"),
)
_WRITES = (
    *("Add", "Update", "Delete", "DeleteAll", "DeleteByFilter", "Forget", "Feedback", "Restore"),
    "CancelOperation",
)
ALLOWED: Mapping[str, frozenset[Role]] = MappingProxyType(
    {f"{_PATH}{rpc}": MEMORY_WRITERS for rpc in _WRITES} | {f"{_PATH}{rpc}": MEMORY_READERS for rpc in _READS}
)
"""Who may call what."""
WAITING = frozenset({f"{_PATH}Add", f"{_PATH}WaitOperation"})
"""What may wait for long work."""


class MemoryService(
    Adding, MemoryWrites, Restoring, MemoryReads, Forgetting, Feedback, BackendWatch, Contexts, EntityReads
):
    """Answers MemoryService's RPCs."""
