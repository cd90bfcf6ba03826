"""The contract's messages, enums and stubs: ``from scrubjay import v1``.

Importing this needs protobuf alone; the stubs bring grpc in when one of them is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrubjay.v1.error_reason_pb2 import *  # noqa: F403 - the contract's names, as protoc wrote them
from scrubjay.v1.memory_pb2 import *  # noqa: F403
from scrubjay.v1.memory_service_pb2 import *  # noqa: F403
from scrubjay.v1.operation_pb2 import *  # noqa: F403
from scrubjay.v1.sync_service_pb2 import *  # noqa: F403
from scrubjay.v1.tenant_service_pb2 import *  # noqa: F403

if TYPE_CHECKING:
    from scrubjay.v1.memory_service_pb2_grpc import MemoryServiceStub as MemoryServiceStub
    from scrubjay.v1.sync_service_pb2_grpc import SyncServiceStub as SyncServiceStub
    from scrubjay.v1.tenant_service_pb2_grpc import TenantAdminServiceStub as TenantAdminServiceStub
else:  # a type checker that saw __getattr__ would believe in every name
    _STUBS = {
        "MemoryServiceStub": "scrubjay.v1.memory_service_pb2_grpc",
        "SyncServiceStub": "scrubjay.v1.sync_service_pb2_grpc",
        "TenantAdminServiceStub": "scrubjay.v1.tenant_service_pb2_grpc",
    }

    def __getattr__(name: str) -> Any:
        if name in _STUBS:
            from importlib import import_module

            return getattr(import_module(_STUBS[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
