"""Certificates for development: an authority, a server's of it and a client's, made in one go.

The authority's key is in no file: nobody can make more of its certificates, and a new set has a new one.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

OWN_NAMES = ("localhost", "127.0.0.1", "::1")
VALID = timedelta(days=365)
_SKEW = timedelta(hours=1)
_HOST_NAME = re.compile(r"(\*\.)?[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*", re.IGNORECASE)


class CertificatesThere(Exception):
    """Files of these names are in the folder."""


class CertificatesUnwritable(Exception):
    """The folder can't be written."""


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Where they are. Keys can be read by their owner alone."""

    folder: Path

    @property
    def ca(self) -> Path:
        """The authority's certificate, which clients trust, and a server where it asks clients for theirs."""
        return self.folder / "ca.pem"

    @property
    def server(self) -> tuple[Path, Path]:
        """The server's certificate, and its key."""
        return self.folder / "server.pem", self.folder / "server-key.pem"

    @property
    def client(self) -> tuple[Path, Path]:
        """A client's certificate, and its key."""
        return self.folder / "client.pem", self.folder / "client-key.pem"


def make_certificates(
    folder: Path, names: Sequence[str] = (), *, replace: bool = False, now: datetime | None = None
) -> CertificateFiles:
    """Make a set in ``folder``, valid for a year from ``now``. The server's is for this machine and for
    ``names``, host names or addresses.

    Raises CertificatesThere unless they may be replaced, CertificatesUnwritable, ValueError for a name.
    """
    files = CertificateFiles(folder)
    begins = datetime.now(UTC) if now is None else now
    authority = _Authority(begins)
    server = authority.issue("Scrubjay development server", ExtendedKeyUsageOID.SERVER_AUTH, names=names)
    client = authority.issue("Scrubjay development client", ExtendedKeyUsageOID.CLIENT_AUTH)
    contents = {
        files.ca: authority.certificate.public_bytes(Encoding.PEM),
        **dict(zip(files.server, server, strict=True)),
        **dict(zip(files.client, client, strict=True)),
    }
    there = [path.name for path in contents if path.exists()]
    if there and not replace:
        raise CertificatesThere(f"{folder} holds {', '.join(there)}; --force replaces them")
    _write(folder, contents)
    return files


class _Authority:
    """Signs certificates, and is forgotten."""

    def __init__(self, begins: datetime) -> None:
        self._begins = begins
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(f"Scrubjay development authority {x509.random_serial_number():x}"[:60])
        self.certificate = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .sign(self._key, SHA256())
        )

    def issue(
        self, common_name: str, purpose: x509.ObjectIdentifier, *, names: Sequence[str] | None = None
    ) -> tuple[bytes, bytes]:
        """A certificate and its key, in PEM; ``names`` are a server's, beside this machine's own."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            self._builder(_name(common_name), key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        )
        if names is not None:
            wanted = dict.fromkeys((*OWN_NAMES, *names))
            builder = builder.add_extension(x509.SubjectAlternativeName(map(_host, wanted)), critical=False)
        certificate = builder.sign(self._key, SHA256()).public_bytes(Encoding.PEM)
        return certificate, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        own = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._begins - _SKEW)
            .not_valid_after(self._begins + VALID)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(own, critical=False)
        )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        if not _HOST_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no host name or address; give one without a port") from None
        return x509.DNSName(name)


def _write(folder: Path, contents: Mapping[Path, bytes]) -> None:
    """Write all files beside, then put each in its place: who reads meanwhile never meets half a file."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _beside(contents) as written:
            for path, new in written.items():
                new.replace(path)
    except OSError as error:
        raise CertificatesUnwritable(f"{folder} can't be written ({error.strerror})") from error


@contextlib.contextmanager
def _beside(contents: Mapping[Path, bytes]) -> Iterator[dict[Path, Path]]:
    written = {path: path.with_name(f".{path.name}.{os.getpid()}") for path in contents}
    try:
        for path, new in written.items():
            mode = 0o600 if path.stem.endswith("-key") else 0o644
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                file.write(contents[path])
        yield written
    finally:
        for new in written.values():
            new.unlink(missing_ok=True)
