"""Who a device is to its server, in a file that only its user can read.

The file changes about once an hour, when the token is replaced. Whoever replaces it holds the lock beside
the file: a token that was replaced twice and is still in use counts as stolen.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from client_sync.errors import ReplicaError, ReplicaUnwritable
from client_sync.identity import Identity
from scrubjay.memory import ClientId, Micros, Subject
from scrubjay.tls import NO_FILES, TlsFiles

FORMAT = 1

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class CredentialsMissing(ReplicaError):
    """There are no credentials at this path: the device was not enrolled."""


class CredentialsDamaged(ReplicaError):
    """The file is not one of these, or of a newer program."""


@dataclass(frozen=True, slots=True)
class DeviceCredentials:
    """What RegisterDevice gave to this device, and where it is kept.

    ``principal`` is 8 bytes; ``expires_at`` is when ``token`` must have been refreshed; ``tls`` are the
    absolute paths of what its server is called with; ``path`` is None until the credentials are saved.
    """

    target: str
    device_id: str
    client_id: ClientId
    token: str = field(repr=False)
    expires_at: Micros
    principal: bytes
    subject: Subject
    scopes: tuple[str, ...] = ()
    tls: TlsFiles = NO_FILES
    path: Path | None = field(default=None, compare=False)

    @property
    def identity(self) -> Identity:
        """Whose replica this device keeps."""
        return Identity(self.principal, self.client_id, self.subject, self.scopes)

    def refreshed(self, token: str, expires_at: Micros) -> DeviceCredentials:
        """The same device with its next token."""
        return replace(self, token=token, expires_at=expires_at)

    def save(self, path: str | Path) -> DeviceCredentials:
        """Put them into a file, whole or not at all, and on disk when this returns. ReplicaUnwritable."""
        path = Path(path)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _replace_file(path, json.dumps(self._to_json(), ensure_ascii=False, indent=2).encode())
        except OSError as error:
            raise ReplicaUnwritable(
                f"{path} can't be written ({error.strerror}); nothing was saved"
            ) from error
        return replace(self, path=path)

    @classmethod
    def load(cls, path: str | Path) -> DeviceCredentials:
        """Those of a file, whose permissions are put right. CredentialsMissing, CredentialsDamaged."""
        path = Path(path)
        try:
            text = path.read_bytes()
            if os.name == "posix" and path.stat().st_mode & _OTHERS:
                path.chmod(stat.S_IRUSR | stat.S_IWUSR)
        except FileNotFoundError as error:
            raise CredentialsMissing(
                f"there are no credentials at {path}; enrol this device first"
            ) from error
        except OSError as error:
            raise CredentialsDamaged(f"{path} can't be read ({error.strerror})") from error
        try:
            return _from_json(json.loads(text), path)
        except (ValueError, KeyError, TypeError) as error:
            raise CredentialsDamaged(
                f"{path} is damaged, or of a newer version; enrol this device again: its memories stay"
            ) from error

    def _to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "target": self.target,
            "device_id": self.device_id,
            "client_id": self.client_id,
            "token": self.token,
            "expires_at": self.expires_at,
            "principal": self.principal.hex(),
            "subject": {"kind": self.subject.kind, "name": self.subject.name},
            "scopes": list(self.scopes),
            "tls": {name: str(path) for name, path in asdict(self.tls).items() if path is not None},
        }


def _from_json(found: Any, path: Path) -> DeviceCredentials:
    if found["format"] != FORMAT:
        raise ValueError(f"format {found['format']}")
    texts = (found["target"], found["device_id"], found["client_id"], found["token"], *found["scopes"])
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("a field that is no text")
    return DeviceCredentials(
        target=found["target"],
        device_id=found["device_id"],
        client_id=ClientId(found["client_id"]),
        token=found["token"],
        expires_at=Micros(int(found["expires_at"])),
        principal=bytes.fromhex(found["principal"]),
        subject=Subject(**found["subject"]),
        scopes=tuple(found["scopes"]),
        tls=TlsFiles(**{name: Path(path) for name, path in found.get("tls", {}).items()}),
        path=path,
    )


def _replace_file(path: Path, content: bytes) -> None:
    """Write beside, sync, rename: a reader and a crash see the old content or the new one."""
    number, name = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)  # of mode 0600
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
    if os.name == "posix":
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
