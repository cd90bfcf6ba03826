"""Leaving a device: what becomes of its replica."""

from __future__ import annotations

from enum import Enum

from client_sync.errors import Unsent
from client_sync.outbox import Outbox
from client_sync.remote_sync import RemoteSync
from client_sync.replica import Replica
from client_sync.sync import synchronize


class SignOut(Enum):
    """``KEEP`` leaves the file for the next sign-in of the same principal, ``UPLOAD`` sends what waits and
    deletes it, ``WIPE`` deletes it as it is."""

    KEEP = "keep"
    UPLOAD = "upload"
    WIPE = "wipe"


def sign_out(replica: Replica, mode: SignOut, remote: RemoteSync | None = None) -> int:
    """Close the replica as ``mode`` says; how many operations were not sent: kept, or lost.

    UPLOAD raises Unsent, and deletes nothing, where the server does not take everything, and what the
    remote raises.
    """
    if mode is SignOut.UPLOAD:
        if remote is None:
            raise ValueError("UPLOAD needs a remote")
        synchronize(replica, remote)
    with replica.file.reading() as sql:
        unsent = Outbox(sql, replica.identity).unanswered_count()
    if mode is SignOut.UPLOAD and unsent:
        raise Unsent(unsent)
    if mode is SignOut.KEEP:
        replica.close()
    else:
        replica.file.delete()
    return unsent
