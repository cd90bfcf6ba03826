"""The lines of a tenant's archive as the values that the store takes: see ``server.archive``."""

from server.archive.records.frame import (
    Head,
    Manifest,
    Stream,
    TenantSettings,
    read_head,
    read_manifest,
    read_settings,
    read_stream,
)
from server.archive.records.history import read_grave, read_operation
from server.archive.records.memories import ImportedMemory, read_memory
from server.archive.records.pending import content_of, read_recent_messages, read_request, read_waiting

__all__ = [
    "Head",
    "ImportedMemory",
    "Manifest",
    "Stream",
    "TenantSettings",
    "content_of",
    "read_grave",
    "read_head",
    "read_manifest",
    "read_memory",
    "read_operation",
    "read_recent_messages",
    "read_request",
    "read_settings",
    "read_stream",
    "read_waiting",
]
