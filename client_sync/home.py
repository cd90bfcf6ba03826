"""The folder in which a device keeps who it is, and a replica for each one it ever was.

Whoever signs in anew under another account gets another file: what one never sent is never sent under
another's name.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from client_sync import recovery
from client_sync.credentials import DeviceCredentials
from client_sync.errors import ReplicaUnwritable
from client_sync.identity import Identity
from client_sync.replica import Replica
from client_sync.replica_file import delete_files, set_meta

INSTALLATION_BYTES = 16


@dataclass(frozen=True, slots=True)
class Home:
    """The files of one person's device, readable by that person alone."""

    path: Path

    @property
    def credentials_path(self) -> Path:
        """Where the credentials of the account in use are."""
        return self.path / "device.json"

    def is_enrolled(self) -> bool:
        """Whether the device is enrolled here, as far as its files say."""
        return self.credentials_path.exists()

    def replica_path(self, principal: bytes) -> Path:
        """Where the replica of this principal is, or would be."""
        return self.path / f"{principal.hex()}.db"

    def other_replicas(self, principal: bytes) -> list[Path]:
        """The replicas of other accounts that were in use here and are kept."""
        mine = self.replica_path(principal)
        return sorted(path for path in self.path.glob("*.db") if path != mine)

    def installation_id(self, entropy: Callable[[int], bytes] = os.urandom) -> bytes:
        """16 random bytes made with the home: an enrolment that is repeated gives the same device."""
        file = self.path / "installation"
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if file.exists() and len(known := bytes.fromhex(file.read_text())) == INSTALLATION_BYTES:
                return known
            made = entropy(INSTALLATION_BYTES)
            with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as opened:
                opened.write(made.hex())
        except (OSError, ValueError) as error:
            raise ReplicaUnwritable(f"{self.path} can't be used as the device's home ({error})") from error
        return made

    def open_replica(self, identity: Identity) -> Replica:
        """The replica of this identity, made where there is none. ReplicaDamaged, UpgradeNeeded."""
        path = self.replica_path(identity.principal)
        if not path.exists():
            return Replica.create(path, identity)
        replica = Replica.open(path)
        if replica.identity == identity:
            return replica
        try:
            _take_scopes(replica, identity.scopes)
        finally:
            replica.close()
        return Replica.open(path)

    def open_own_replica(self) -> Replica:
        """The replica of the account in use. CredentialsMissing, and what ``open_replica`` raises."""
        return self.open_replica(DeviceCredentials.load(self.credentials_path).identity)

    def discard(self, principal: bytes) -> None:
        """Delete all that is kept of this principal, damaged files too, their bytes overwritten first."""
        path = self.replica_path(principal)
        for damaged in list(self.path.glob(f"{path.name}.damaged*")):
            delete_files(damaged)
        delete_files(path)

    def sign_out(self) -> None:
        """Forget who the device is; replicas stay."""
        for name in ("device.json", "device.json.lock", "installation"):
            (self.path / name).unlink(missing_ok=True)


def _take_scopes(replica: Replica, scopes: tuple[str, ...]) -> None:
    """What the device may see was decided anew: it is loaded anew, so that nothing else stays here."""
    recovery.begin_reload(replica)
    with replica.file.transaction(durable=True) as sql:
        set_meta(sql, scopes="\n".join(scopes))
