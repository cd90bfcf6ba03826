"""A replica of one subject's memories on a person's own device: it works offline, and synchronizes.

``Replica`` is the file, ``Remote`` the server, and ``synchronize(replica, remote)`` brings them together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from client_sync.errors import (
    ReplicaClosed,
    ReplicaDamaged,
    ReplicaError,
    ReplicaExists,
    ReplicaMissing,
    ReplicaUnwritable,
    TransferBroken,
    Unsent,
    UpgradeNeeded,
    Wiped,
)

if TYPE_CHECKING:
    from client_sync.remote import Remote as Remote
    from client_sync.replica import Replica as Replica
    from client_sync.sync import SyncReport as SyncReport
    from client_sync.sync import synchronize as synchronize
else:  # what needs protobuf or grpc loads when it is first asked for
    _PLACES = {
        "Remote": "client_sync.remote",
        "Replica": "client_sync.replica",
        "SyncReport": "client_sync.sync",
        "synchronize": "client_sync.sync",
    }

    def __getattr__(name: str) -> Any:
        if name in _PLACES:
            from importlib import import_module

            return getattr(import_module(_PLACES[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Remote",
    "Replica",
    "ReplicaClosed",
    "ReplicaDamaged",
    "ReplicaError",
    "ReplicaExists",
    "ReplicaMissing",
    "ReplicaUnwritable",
    "SyncReport",
    "TransferBroken",
    "Unsent",
    "UpgradeNeeded",
    "Wiped",
    "synchronize",
]
