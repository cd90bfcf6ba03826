"""TLS as a client has it: the files it is given, and what a handshake that failed says in words.

This module does not import grpc.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict
from urllib.parse import unquote

from scrubjay import v1
from scrubjay.errors import Unavailable


class Certificates(TypedDict):
    """What ``connect`` takes of TLS, each in PEM. None: the system's authorities, no certificate."""

    root_certificates: bytes | None
    client_certificate: bytes | None
    client_key: bytes | None


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: the authorities that are trusted, and the client's own certificate with its key."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def read(self) -> Certificates:
        """Their contents. ValueError names the file that can't be used, and says why."""
        if (self.cert is None) != (self.key is None):
            raise ValueError("a client's certificate and its key go together; give both or neither")
        if self.cert is not None and self.key is not None:
            _check_pair(self.cert, self.key)
        return Certificates(
            root_certificates=None if self.ca is None else _authorities(self.ca),
            client_certificate=None if self.cert is None else _read(self.cert),
            client_key=None if self.key is None else _read(self.key),
        )

    def absolute(self) -> TlsFiles:
        """The same files, wherever the next command is called from."""
        return TlsFiles(
            *(
                None if path is None else path.expanduser().absolute()
                for path in (self.ca, self.cert, self.key)
            )
        )


NO_FILES = TlsFiles()
"""The system's authorities, and no certificate of the client's own."""


def _authorities(path: Path) -> bytes:
    import ssl  # here, since most commands need none of it

    found = _read(path)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=found.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise ValueError(f"{path} holds no certificate in PEM") from error
    return found


def _check_pair(cert: Path, key: Path) -> None:
    import ssl

    for path, label in ((cert, b"CERTIFICATE-----"), (key, b"PRIVATE KEY-----")):
        if label not in _read(path):
            raise ValueError(f"{path} holds no {label.decode().rstrip('-').lower()} in PEM")
    if b"ENCRYPTED" in _read(key):
        raise ValueError(f"{key} has a passphrase; give a key without one, readable by you alone")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(cert, key)
    except ssl.SSLError as error:
        raise ValueError(f"{key} is not the key of the certificate in {cert}") from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} can't be read ({error.strerror})") from error


class HandshakeFailed(Unavailable):
    """A server was there, and no connection came about: one side did not take the other's certificate, or
    only one of them speaks TLS. Trying again does not help until one of them is set up otherwise."""


_ADDRESS = re.compile(r"last error: \w+: (?:ipv[46]:|unix:)?(\S+): ")
_SAYINGS = (
    (
        "certificate has expired",
        "the certificate of the server at {address} has expired; its operator has to renew it",
    ),
    (
        "certificate is not yet valid",
        "the certificate of the server at {address} is not valid yet; compare the clocks of both machines",
    ),
    (
        "CERTIFICATE_VERIFY_FAILED",
        "the certificate of the server at {address} is of no authority that is trusted here; trust its own "
        "by root_certificates of connect(), --ca or SCRUBJAY_CA",
    ),
    (
        "Hostname Verification Check failed",
        "the certificate of the server at {address} is for other names; call it by one of those",
    ),
    (
        "WRONG_VERSION_NUMBER",
        "the server at {address} speaks no TLS here; call it without certificates, or by its TLS port",
    ),
    (
        "missing selected ALPN property",
        "the server at {address} speaks TLS but no gRPC; call it by its gRPC port",
    ),
    (
        "security handshaker",
        "the certificates given for {address} can't be used; look whether root_certificates hold one in PEM, "
        "and whether client_key is that of client_certificate",
    ),
    (
        "Socket closed",
        "the server at {address} ended the connection before it said anything; it may speak TLS and was "
        "called without (--ca), or take only clients with a certificate of its authority that has not "
        "expired (--cert, --key)",
    ),
)


def handshake_failure(details: str) -> HandshakeFailed | None:
    """What gRPC's text about a call that found no connection says of TLS; None where it is about something
    else, such as a server that is not there."""
    if not details.startswith("failed to connect to all addresses"):
        return None
    found = _ADDRESS.search(details)
    address = unquote(found[1]) if found else "the address"
    for sign, saying in _SAYINGS:
        if sign in details:
            return HandshakeFailed.decoded(
                saying.format(address=address),
                code=HandshakeFailed.code,
                reason=v1.ERROR_REASON_UNSPECIFIED,
            )
    return None
