"""The door of MemoryService: a message becomes a value here, and a value becomes a message."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from server.services.backend_watch import BackendWatch
from server.services.finding import Finding
from server.services.memory_reads import MemoryReads
from server.services.memory_writes import MemoryWrites
from tenants.tenant import MEMORY_READERS, MEMORY_WRITERS, Role

_PATH = "/scrubjay.v1.MemoryService/"
ALLOWED: Mapping[str, frozenset[Role]] = MappingProxyType(
    {f"{_PATH}{rpc}": MEMORY_WRITERS for rpc in ("Add", "Update", "Delete", "DeleteAll")}
    | {f"{_PATH}{rpc}": MEMORY_READERS for rpc in ("Get", "BatchGet", "List", "Search", "History", "Watch")}
)
"""Who may call what."""


class MemoryService(MemoryWrites, MemoryReads, BackendWatch, Finding):
    """Answers MemoryService's RPCs."""
