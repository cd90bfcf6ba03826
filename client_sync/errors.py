"""What can go wrong on a device. What a server refuses is an error of ``scrubjay.errors``."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from scrubjay.errors import InvalidField


class ReplicaError(Exception):
    """Base of every error of a replica. Its message says what to do."""


class ReplicaMissing(ReplicaError):
    """There is no replica at this path."""


class ReplicaExists(ReplicaError):
    """There is a replica at this path already."""


class ReplicaDamaged(ReplicaError):
    """The file is not whole. ``client_sync.salvage`` keeps what was never sent and loads the rest anew."""


UNREADABLE = (DecodeError, ValueError, TypeError, InvalidField)
"""What reading a stored memory or operation raises whose bytes were damaged: SQLite checks no bytes."""


def unreadable(what: str, error: Exception | None = None) -> ReplicaDamaged:
    """What is raised where something that is stored can't be read."""
    why = f" ({error})" if error else ""
    return ReplicaDamaged(
        f"{what} in this replica can't be read{why}; "
        "'scrubjay restore' keeps what was never sent and loads the rest anew"
    )


class ReplicaUnwritable(ReplicaError):
    """The file can't be written now: a full disk, or another program that holds it. Nothing was saved."""


class ReplicaClosed(ReplicaError):
    """The replica was closed, maybe by another thread. Nothing more was saved."""


class TransferBroken(ReplicaError):
    """What came from the server is cut short or damaged; it goes on from there the next time."""


class UpgradeNeeded(ReplicaError):
    """The file or the server is newer than this program."""


class Wiped(ReplicaError):
    """The server told this device to delete what it held, and it did."""


class Unsent(ReplicaError):
    """Operations that no server has yet would be lost. ``count`` says how many."""

    def __init__(self, count: int) -> None:
        were = "1 operation was" if count == 1 else f"{count} operations were"
        super().__init__(
            f"{were} never sent and would be lost; synchronize first, or choose to lose what is unsent"
        )
        self.count = count
