"""Certificates in files: those made for development, those a server serves with, those a client shows."""

from __future__ import annotations

import logging
import os
import re
import shlex
import stat
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from typer.testing import CliRunner

from scrubjay.tls import NO_FILES, TlsFiles, handshake_failure
from server.__main__ import cli
from server.certificates import CertificatesUnusable, CertificateWatch, ServerFiles
from server.dev_certificates import CertificateFiles, make_certificates

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC) - timedelta(days=900)


@pytest.fixture
def made(tmp_path: Path) -> CertificateFiles:
    return make_certificates(tmp_path / "certs")


@pytest.fixture
def other(tmp_path: Path) -> CertificateFiles:
    return make_certificates(tmp_path / "other")


def served(files: CertificateFiles, *, mutual: bool = False) -> ServerFiles:
    return ServerFiles(*files.server, files.ca if mutual else None)


def with_passphrase(key: Path) -> None:
    private = load_pem_private_key(key.read_bytes(), None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    locked = BestAvailableEncryption(b"hidden")
    key.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked))


# --- for development ------------------------------------------------------------------------------


def test_one_command_makes_certificates_and_says_how_to_use_them(tmp_path: Path) -> None:
    folder = tmp_path / "my certs"
    ran = CliRunner().invoke(
        cli, ["dev-certs", str(folder), "--name", "memory.example.com", "--name", "10.0.0.7"]
    )
    assert ran.exit_code == 0, ran.output
    exported = dict(re.findall(r"export (\w+)=(.+)", ran.stdout))
    files = {name: Path(shlex.split(value)[0]) for name, value in exported.items()}
    assert all(path.is_absolute() and path.is_file() for path in files.values())
    watch = CertificateWatch(
        ServerFiles(files["SCRUBJAY_TLS_CERT"], files["SCRUBJAY_TLS_KEY"], files["SCRUBJAY_TLS_CLIENT_CA"])
    )
    assert watch.certificates.expires_at > datetime.now(UTC) + timedelta(days=300)
    TlsFiles(files["SCRUBJAY_CA"], files["SCRUBJAY_CERT"], files["SCRUBJAY_KEY"]).read()
    names = x509.load_pem_x509_certificate(files["SCRUBJAY_TLS_CERT"].read_bytes()).extensions
    held = names.get_extension_for_class(x509.SubjectAlternativeName).value
    assert held.get_values_for_type(x509.DNSName) == ["localhost", "memory.example.com"]
    addresses = [str(address) for address in held.get_values_for_type(x509.IPAddress)]
    assert addresses == ["127.0.0.1", "::1", "10.0.0.7"]


def test_keys_are_their_owners_alone(made: CertificateFiles) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in made.folder.iterdir()}
    assert modes == {
        **dict.fromkeys(("server-key.pem", "client-key.pem"), 0o600),
        **dict.fromkeys(("ca.pem", "server.pem", "client.pem"), 0o644),
    }


def test_the_authoritys_key_is_nowhere(made: CertificateFiles) -> None:
    of_authority = x509.load_pem_x509_certificate(made.ca.read_bytes()).public_key()
    keys = [path for path in made.folder.iterdir() if b"PRIVATE KEY" in path.read_bytes()]
    assert len(keys) == 2
    assert all(load_pem_private_key(key.read_bytes(), None).public_key() != of_authority for key in keys)


@pytest.mark.parametrize("there", ["ca.pem", "client-key.pem"])
def test_nothing_is_replaced_unless_it_is_said(there: str, tmp_path: Path) -> None:
    (tmp_path / there).write_text("mine")
    refused = CliRunner().invoke(cli, ["dev-certs", str(tmp_path)])
    assert refused.exit_code == 1
    assert there in refused.stderr
    assert [path.name for path in tmp_path.iterdir()] == [there]
    forced = CliRunner().invoke(cli, ["dev-certs", str(tmp_path), "--force"])
    assert forced.exit_code == 0
    assert b"BEGIN" in (tmp_path / there).read_bytes()
    assert len(list(tmp_path.iterdir())) == 5


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--name", "https://x"], "'https://x' is no host name"), (["--name", "x:1"], "'x:1' is no host name")],
)
def test_a_name_that_is_none_is_said_and_nothing_made(words: list[str], said: str, tmp_path: Path) -> None:
    refused = CliRunner().invoke(cli, ["dev-certs", str(tmp_path / "certs"), *words])
    assert (refused.exit_code, said in refused.stderr) == (1, True)
    assert not (tmp_path / "certs").exists()


def test_a_folder_that_cant_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused = CliRunner().invoke(cli, ["dev-certs", str(tmp_path / "file" / "certs")])
    assert (refused.exit_code, "can't be written" in refused.stderr) == (1, True)


# --- a server's -----------------------------------------------------------------------------------

Spoil = Callable[[CertificateFiles, CertificateFiles], object]
SPOILT: dict[str, tuple[Spoil, str]] = {
    "no certificate": (lambda made, _: made.server[0].unlink(), "server.pem can't be read"),
    "no key": (lambda made, _: made.server[1].unlink(), "server-key.pem can't be read"),
    "no authority": (lambda made, _: made.ca.unlink(), "ca.pem can't be read"),
    "half a certificate": (
        lambda made, _: made.server[0].write_bytes(made.server[0].read_bytes()[:200]),
        "server.pem holds no certificate in PEM",
    ),
    "half a key": (
        lambda made, _: made.server[1].write_bytes(made.server[1].read_bytes()[:100]),
        "server-key.pem holds no private key in PEM",
    ),
    "an empty authority": (lambda made, _: made.ca.write_bytes(b""), "ca.pem holds no certificate in PEM"),
    "another's key": (
        lambda made, other: made.server[1].write_bytes(other.server[1].read_bytes()),
        "server-key.pem is not the key of the certificate in",
    ),
    "a passphrase": (lambda made, _: with_passphrase(made.server[1]), "server-key.pem has a passphrase"),
    "a folder": (lambda made, _: (made.ca.unlink(), made.ca.mkdir()), "ca.pem can't be read"),
}


@pytest.mark.parametrize("name", SPOILT)
def test_files_that_cant_be_used_end_a_start_with_one_line(
    name: str, made: CertificateFiles, other: CertificateFiles
) -> None:
    spoil, said = SPOILT[name]
    spoil(made, other)
    with pytest.raises(CertificatesUnusable) as caught:
        CertificateWatch(served(made, mutual=True))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", SPOILT)
def test_files_that_cant_be_used_any_more_change_nothing_and_are_logged_once(
    name: str, made: CertificateFiles, other: CertificateFiles, caplog: pytest.LogCaptureFixture
) -> None:
    watch = CertificateWatch(served(made, mutual=True))
    before = watch.certificates
    spoil, said = SPOILT[name]
    spoil(made, other)
    assert [watch.changed() for _ in range(3)] == [None] * 3
    assert watch.certificates == before
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert said in record.getMessage()
    assert "stays in use" in record.getMessage()


@pytest.mark.parametrize("seconds", [0, 60])
def test_what_was_replaced_is_used_once_both_halves_are_there(
    seconds: int, made: CertificateFiles, other: CertificateFiles
) -> None:
    """Files that were written a moment ago, and files that keep an old time of change, as copies may."""
    watch = CertificateWatch(served(made))
    assert watch.changed() is None
    for target, source in zip(made.server, other.server, strict=True):
        assert watch.changed() is None
        target.write_bytes(source.read_bytes())
        old = source.stat().st_mtime - seconds
        os.utime(target, (old, old))
    found = watch.changed()
    assert found is not None
    assert (found.chain, found.key) == tuple(path.read_bytes() for path in other.server)
    assert watch.changed() is None


def test_another_authority_of_clients_is_taken_too(made: CertificateFiles, other: CertificateFiles) -> None:
    watch = CertificateWatch(served(made, mutual=True))
    made.ca.write_bytes(other.ca.read_bytes())
    found = watch.changed()
    assert found is not None
    assert found.client_ca == other.ca.read_bytes()


def test_a_certificate_that_ended_is_served_and_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    CertificateWatch(served(make_certificates(tmp_path, now=LONG_AGO)))
    assert "no client takes it" in caplog.text


# --- a client's -----------------------------------------------------------------------------------


def test_no_files_are_no_certificates() -> None:
    assert set(NO_FILES.read().values()) == {None}


def test_a_clients_files_are_given_as_they_are(made: CertificateFiles) -> None:
    found = TlsFiles(made.ca, *made.client).read()
    assert found["root_certificates"] == made.ca.read_bytes()
    assert (found["client_certificate"], found["client_key"]) == tuple(p.read_bytes() for p in made.client)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (lambda made, _: TlsFiles(made.folder / "none"), "none can't be read"),
        (lambda made, _: TlsFiles(made.client[1]), "client-key.pem holds no certificate in PEM"),
        (lambda made, _: TlsFiles(made.ca, made.client[0]), "go together"),
        (lambda made, _: TlsFiles(made.ca, None, made.client[1]), "go together"),
        (lambda made, _: TlsFiles(None, *reversed(made.client)), "client-key.pem holds no certificate"),
        (lambda made, _: TlsFiles(None, made.client[0], made.ca), "ca.pem holds no private key"),
        (lambda made, other: TlsFiles(None, made.client[0], other.client[1]), "is not the key of"),
    ],
)
def test_a_clients_file_that_cant_be_used_is_named(
    files: Callable[[CertificateFiles, CertificateFiles], TlsFiles],
    said: str,
    made: CertificateFiles,
    other: CertificateFiles,
) -> None:
    with pytest.raises(ValueError, match=said):
        files(made, other).read()


def test_a_clients_key_with_a_passphrase_is_named_and_asks_nobody(made: CertificateFiles) -> None:
    with_passphrase(made.client[1])
    with pytest.raises(ValueError, match="has a passphrase"):
        TlsFiles(None, *made.client).read()


@pytest.mark.parametrize(
    "details",
    [
        "",
        "the database does not answer",
        "Socket closed",
        "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: Failed to connect to "
        "remote host: Connection refused",
    ],
)
def test_what_is_not_about_tls_is_left_as_it_is(details: str) -> None:
    assert handshake_failure(details) is None
