"""Values: a tenant's long operation, which goes on after the call that asked for it and any server's end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from scrubjay.memory import JsonValue, Micros
from tenants.tenant import Incarnation

ROLLING_BACK = "rolling back"
"""The phase of an operation that takes back what it did."""


class OperationState(IntEnum):
    """Where work stands; the numbers are the contract's."""

    PENDING = 1
    RUNNING = 2
    SUCCEEDED = 3
    FAILED = 4
    CANCELLED = 5

    @property
    def ended(self) -> bool:
        """Whether nothing more becomes of it."""
        return self >= OperationState.SUCCEEDED


class Kind(StrEnum):
    """The RPCs that begin one."""

    EXPORT = "ExportTenant"
    IMPORT = "ImportTenant"
    MOVE = "MoveTenant"
    REINDEX = "ReindexTenant"
    DRAIN = "DrainShard"


@dataclass(frozen=True, slots=True)
class TenantOperation:
    """A long operation on a tenant, or on a shard: then ``tenant_id`` and ``incarnation`` are empty.

    ``target`` is what it has for itself while it is open. ``asked`` is what was asked for, ``notes`` what its
    phases keep for each other, both of JSON; ``answer`` its encoded ``v1.TenantOperationResult``, ``error``
    its encoded ``v1.OperationError``. ``cancellable`` says whether it can still be taken back, ``cancelling``
    that it is to be. ``failures`` counts how often its phase failed for a reason that nobody knows.
    """

    operation_id: str
    kind: Kind
    target: str
    tenant_id: str
    incarnation: Incarnation
    state: OperationState
    asked: Mapping[str, JsonValue]
    actor: str
    request_id: str
    created_at: Micros
    updated_at: Micros
    ended_at: Micros | None = None
    phase: str = ""
    done: int = 0
    total: int = 0
    per_second: float = 0.0
    notes: Mapping[str, JsonValue] | None = None
    answer: bytes = b""
    error: bytes = b""
    cancellable: bool = True
    cancelling: bool = False
    failures: int = 0
    fence: int = 0
