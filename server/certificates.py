"""The certificate a server is known by, and the authority it asks its clients for, from files.

They are looked at when a client comes: what was replaced is used from then on. Files that can't be used, such
as a pair of which one half is new already, change nothing, and the log says so once.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

SETTLED_SECONDS = 2.0
"""A file that changed later than this before it was read may change again without another time of change."""

log = logging.getLogger("scrubjay.tls")


class CertificatesUnusable(Exception):
    """Nothing can be served with these files; says which of them is wrong, and how."""


@dataclass(frozen=True, slots=True)
class ServerFiles:
    """PEM files: the server's certificate, followed by what leads to its authority; its key; and the
    authorities of clients, where those are asked for a certificate."""

    cert: Path
    key: Path
    client_ca: Path | None = None


@dataclass(frozen=True, slots=True)
class ServerCertificates:
    """What the files hold, looked through. ``client_ca`` is None where clients are asked for nothing."""

    chain: bytes
    key: bytes
    client_ca: bytes | None
    expires_at: datetime


class CertificateWatch:
    """What to serve with, as the files are now; safe for many threads.

    Raises CertificatesUnusable where they can't be used at first.
    """

    def __init__(self, files: ServerFiles) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._seen = self._look()
        self._fault = ""
        self.certificates = _loaded(files)
        _warn_of_end(files, self.certificates)

    def changed(self) -> ServerCertificates | None:
        """What is to be used from now on; None where that is what it was."""
        with self._lock:
            now = self._look()
            if now == self._seen:
                return None
            self._seen = now
            try:
                found = _loaded(self._files)
            except CertificatesUnusable as error:
                self._complain(str(error))
                return None
            self._fault = ""
            if found == self.certificates:
                return None
            self.certificates = found
            log.info("serving with the certificate that ends at %s from now on", _day(found.expires_at))
            _warn_of_end(self._files, found)
            return found

    def _complain(self, fault: str) -> None:
        if fault != self._fault:
            log.error("%s; the certificate of before stays in use", fault)
        self._fault = fault

    def _look(self) -> tuple[object, ...]:
        """Something else for each state of the files, and each time while they were changed just now."""
        paths = (self._files.cert, self._files.key, self._files.client_ca)
        return tuple(_traits(path) for path in paths if path is not None)


def _traits(path: Path) -> object:
    try:
        found = path.stat()
    except OSError as error:
        return error.errno
    newest = max(found.st_mtime, found.st_ctime)
    moment = time.time()
    settled = 0.0 if moment - newest > SETTLED_SECONDS else moment
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, settled


def _loaded(files: ServerFiles) -> ServerCertificates:
    chain, key = _read(files.cert), _read(files.key)
    leaf = _certificates(files.cert, chain)[0]
    try:
        private = load_pem_private_key(key, password=None)
    except TypeError:
        raise CertificatesUnusable(
            f"{files.key} has a passphrase; give a key without one, readable by the server alone"
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise CertificatesUnusable(f"{files.key} holds no private key in PEM") from None
    form = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    if private.public_key().public_bytes(*form) != leaf.public_key().public_bytes(*form):
        raise CertificatesUnusable(f"{files.key} is not the key of the certificate in {files.cert}")
    client_ca = None if files.client_ca is None else _read(files.client_ca)
    if files.client_ca is not None and client_ca is not None:
        _certificates(files.client_ca, client_ca)
    return ServerCertificates(chain, key, client_ca, leaf.not_valid_after_utc)


def _certificates(path: Path, pem: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        raise CertificatesUnusable(f"{path} holds no certificate in PEM") from None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CertificatesUnusable(f"{path} can't be read ({error.strerror})") from None


def _warn_of_end(files: ServerFiles, found: ServerCertificates) -> None:
    if found.expires_at < datetime.now(UTC):
        log.warning(
            "the certificate in %s ended at %s; no client takes it", files.cert, _day(found.expires_at)
        )


def _day(time_of_end: datetime) -> str:
    return f"{time_of_end:%Y-%m-%d %H:%M}Z"
