"""TLS as a client meets it: real certificates, real handshakes, and what each one that fails is told as."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from typer.testing import CliRunner

from fault.process import refused_start
from scrubjay import connect, v1
from scrubjay.channel import from_rpc_error
from scrubjay.errors import ScrubjayError
from scrubjay.tls import HandshakeFailed
from server.app import App
from server.config import Settings
from server.dev_certificates import CertificateFiles, make_certificates
from tenants.__main__ import app as tenants_app
from tests.running import Ran, runner

PATIENCE = 30
ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True)
class Place:
    """Certificates, and servers with and without them."""

    made: CertificateFiles
    other: CertificateFiles
    ended: CertificateFiles
    addresses: dict[str, str]
    service_key: str
    admin_key: str


@contextmanager
def serving(folder: Path, **settings: Any) -> Iterator[App]:
    shard = f"sqlite:///{folder / 'shard.db'}"
    given = {"listen": "127.0.0.1:0", "embedder": "hash", "data_dir": folder, "shards": shard} | settings
    with App(Settings(**given)) as app:
        yield app


def served_with(files: CertificateFiles, *, mutual: bool = False) -> dict[str, Path]:
    cert, key = files.server
    return {"tls_cert": cert, "tls_key": key} | ({"tls_client_ca": files.ca} if mutual else {})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    root = tmp_path_factory.mktemp("tls")
    made, other = make_certificates(root / "made"), make_certificates(root / "other")
    past = datetime.now(UTC) - timedelta(days=400)
    ended = make_certificates(root / "ended", now=past)
    with ExitStack() as stack:
        start = lambda name, **settings: stack.enter_context(serving(root / name, **settings))  # noqa: E731  # one line for each
        mutual = start("mutual", **served_with(made, mutual=True))
        apps = {
            "tls": start("tls", **served_with(made)),
            "mutual": mutual,
            "ended": start("old", **served_with(ended)),
            "ended clients": start("late", **served_with(made) | {"tls_client_ca": ended.ca}),
            "plain": start("plain"),
        }
        first = mutual.first_credentials
        assert first is not None
        addresses = {name: app.address for name, app in apps.items()}
        yield Place(made, other, ended, addresses, first.service.secret, first.admin.secret)


def trusting(files: CertificateFiles, client: CertificateFiles | None = None) -> dict[str, bytes]:
    """What a client is given that trusts ``files``, and shows who it is by ``client``."""
    given = {"root_certificates": files.ca.read_bytes()}
    if client is not None:
        cert, key = client.client
        given |= {"client_certificate": cert.read_bytes(), "client_key": key.read_bytes()}
    return given


def answer(target: str, key: str = "sj_live_x", **options: Any) -> ScrubjayError | None:
    """How a stream is refused, which no retry repeats."""
    with connect(target, key, **options) as channel:
        stream = v1.MemoryServiceStub(channel).Watch(
            v1.MemoryServiceWatchRequest(user_id="alice", include_existing=True), timeout=PATIENCE
        )
        try:
            next(stream)
        except grpc.RpcError as error:
            return from_rpc_error(error)
        stream.cancel()
    return None


Given = Callable[[Place], dict[str, Any]]
FAILING: dict[str, tuple[str, Given, str]] = {
    "wrong authority": ("tls", lambda p: trusting(p.other), "is of no authority that is trusted here"),
    "the system's authorities": ("tls", lambda p: {"tls": True}, "is of no authority that is trusted here"),
    "plain text to TLS": ("tls", lambda p: {}, "may speak TLS"),
    "a server's that ended": ("ended", lambda p: trusting(p.ended), "has expired"),
    "TLS to plain text": ("plain", lambda p: trusting(p.made), "speaks no TLS"),
    "no certificate": ("mutual", lambda p: trusting(p.made), "take only clients with a certificate"),
    "a foreign certificate": (
        "mutual",
        lambda p: trusting(p.made, p.other),
        "take only clients with a certificate",
    ),
    "a client's that ended": (
        "ended clients",
        lambda p: trusting(p.made, p.ended),
        "that has not expired",
    ),
    "plain text to mutual TLS": ("mutual", lambda p: {}, "may speak TLS"),
    "a server's for nothing but servers": (
        "mutual",
        lambda p: (
            trusting(p.made)
            | {
                "client_certificate": p.made.server[0].read_bytes(),
                "client_key": p.made.server[1].read_bytes(),
            }
        ),
        "take only clients with a certificate",
    ),
    "no PEM": ("tls", lambda p: {"root_certificates": b"none"}, "can't be used"),
}


@pytest.mark.parametrize("case", FAILING)
def test_a_handshake_that_fails_says_what_it_lacks(place: Place, case: str) -> None:
    server, given, said = FAILING[case]
    address = place.addresses[server]
    failed = answer(address, place.service_key, **given(place))
    assert isinstance(failed, HandshakeFailed)
    assert said in failed.message
    assert address in failed.message
    assert failed.reason == v1.ERROR_REASON_UNSPECIFIED


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_who_shows_a_certificate_of_the_authority_is_let_in(place: Place, host: str) -> None:
    port = place.addresses["mutual"].rpartition(":")[2]
    assert answer(f"{host}:{port}", place.service_key, **trusting(place.made, place.made)) is None


def test_a_server_that_is_called_by_another_name_says_so(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.2", 0)) as taken:
        address = f"127.0.0.2:{taken.getsockname()[1]}"
    made = make_certificates(tmp_path / "certs")
    with serving(tmp_path / "data", listen=address, **served_with(made)):
        failed = answer(address, **trusting(made))
    assert isinstance(failed, HandshakeFailed)
    assert "for other names" in failed.message


def test_a_web_server_is_told_from_one_of_ours(place: Place) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*place.made.server)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve_one() -> None:
            connection, _ = listener.accept()
            with closing(context.wrap_socket(connection, server_side=True)) as wrapped:
                wrapped.settimeout(PATIENCE)
                wrapped.recv(1)

        thread = threading.Thread(target=serve_one)
        thread.start()
        failed = answer(f"127.0.0.1:{listener.getsockname()[1]}", **trusting(place.made))
        thread.join(PATIENCE)
    assert isinstance(failed, HandshakeFailed)
    assert "speaks TLS but no gRPC" in failed.message


def test_health_and_reflection_are_behind_the_same_handshake(place: Place) -> None:
    ca, (cert, key) = place.made.ca.read_bytes(), (path.read_bytes() for path in place.made.client)
    address = place.addresses["mutual"]
    asked = health_pb2.HealthCheckRequest()
    listed = reflection_pb2.ServerReflectionRequest(list_services="")
    with grpc.secure_channel(address, grpc.ssl_channel_credentials(ca, key, cert)) as channel:
        health = health_pb2_grpc.HealthStub(channel).Check(asked, timeout=PATIENCE)
        assert health.status == health_pb2.HealthCheckResponse.SERVING
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        (found,) = stub.ServerReflectionInfo(iter([listed]), timeout=PATIENCE)
        assert "scrubjay.v1.MemoryService" in {each.name for each in found.list_services_response.service}
    for refused in (
        grpc.insecure_channel(address),
        grpc.secure_channel(address, grpc.ssl_channel_credentials(ca)),
    ):
        with refused as channel:
            with pytest.raises(grpc.RpcError):
                health_pb2_grpc.HealthStub(channel).Check(asked, timeout=PATIENCE)
            stub = reflection_pb2_grpc.ServerReflectionStub(channel)
            with pytest.raises(grpc.RpcError):
                next(stub.ServerReflectionInfo(iter([listed]), timeout=PATIENCE))


def asked_for_health(*words: str) -> tuple[int, str]:
    """The exit code of the health check that deployments run, and what it writes to stderr."""
    ran = subprocess.run(
        [sys.executable, ROOT / "deploy" / "healthcheck.py", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    return ran.returncode, ran.stderr


def test_a_deployments_health_check_speaks_tls(place: Place) -> None:
    address, (cert, key) = place.addresses["mutual"], map(str, place.made.client)
    files = ("--ca", str(place.made.ca), "--cert", cert, "--key", key, "--name", "localhost")
    assert asked_for_health(address, *files) == (0, "")
    code, said = asked_for_health(address, *files[:2])
    assert (code, "UNAVAILABLE" in said) == (1, True)


# --- replaced while it serves ---------------------------------------------------------------------


def copied(source: CertificateFiles, target: CertificateFiles, *names: str) -> None:
    for name in names:
        (target.folder / name).write_bytes((source.folder / name).read_bytes())


def test_new_files_are_served_without_a_restart_and_broken_ones_are_not(place: Place, tmp_path: Path) -> None:
    files = make_certificates(tmp_path / "certs")
    first = trusting(files, files)
    with serving(tmp_path / "data", **served_with(files, mutual=True)) as app:
        assert app.first_credentials is not None
        key = app.first_credentials.service.secret
        with connect(app.address, key, **first) as channel:
            stub = v1.MemoryServiceStub(channel)
            stub.List(v1.ListRequest(user_id="alice"))
            copied(place.made, files, "server.pem")  # the half of a pair
            assert answer(app.address, key, **first) is None
            copied(place.made, files, "server-key.pem", "ca.pem")
            now = trusting(place.made, place.made)
            assert answer(app.address, key, **now) is None
            assert isinstance(answer(app.address, key, **first), HandshakeFailed)
            files.server[1].write_text("broken")
            files.ca.unlink()
            assert answer(app.address, key, **now) is None
            stub.List(v1.ListRequest(user_id="alice"))  # who was connected stays so


# --- the commands ---------------------------------------------------------------------------------


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    for name in [name for name in os.environ if name.startswith("SCRUBJAY_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr("client_sync.device_session.BUDGET_SECONDS", 0.0)
    return runner(monkeypatch, capsys)


def test_the_command_takes_files_before_it_after_it_and_from_the_environment(
    place: Place, run: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    ca, (cert, key) = str(place.made.ca), map(str, place.made.client)
    asked = ("--server", place.addresses["mutual"], "--api-key", place.service_key, "--user", "alice")
    options = ("--ca", ca, "--cert", cert, "--key", key)
    assert run(*asked, *options, "add", "I drink tea", "--json").code == 0
    assert [row["content"] for row in run("list", *asked, *options, "--json").rows] == ["I drink tea"]
    for name, path in (("CA", ca), ("CERT", cert), ("KEY", key)):
        monkeypatch.setenv(f"SCRUBJAY_{name}", path)
    assert run("search", "tea", *asked, "--json").code == 0
    wrong = run("list", *asked, "--ca", str(place.other.ca))
    assert (wrong.code, wrong.out) == (1, "")
    assert "is of no authority that is trusted here" in wrong.err
    assert "make run" not in wrong.err
    missing = run("list", *asked, "--ca", "none.pem")
    assert (missing.code, "none.pem" in missing.err) == (2, True)


def test_a_device_remembers_the_files_it_was_enrolled_with(
    place: Place, run: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    address, home = place.addresses["mutual"], str(tmp_path / "home")
    with connect(address, place.admin_key, **trusting(place.made, place.made)) as channel:
        admin = v1.TenantAdminServiceStub(channel)
        code = admin.CreateEnrolment(v1.CreateEnrolmentRequest(tenant_id="dev", user_id="bob")).enrolment_code
    monkeypatch.chdir(place.made.folder)
    files = ("--ca", "ca.pem", "--cert", "client.pem", "--key", "client-key.pem")
    enrolled = run("--home", home, "init", "--server", address, "--enrol", code, *files)
    assert (enrolled.code, enrolled.err) == (0, "")
    monkeypatch.chdir(tmp_path)
    run("--home", home, "add", "written here")
    assert run("--home", home, "sync").out.startswith("pushed 1,")
    wrong = run("--home", home, "sync", "--ca", str(place.other.ca))
    assert wrong.code == 1
    assert "is of no authority that is trusted here; " in wrong.err
    assert "0 changes unsent will go with the next sync" in wrong.err
    assert run("--home", home, "sync").code == 0
    remembered = json.loads((tmp_path / "home" / "device.json").read_text())["tls"]
    assert remembered["ca"] == str(place.made.ca)


def test_the_operators_command_takes_them_too(place: Place) -> None:
    ca, (cert, key) = str(place.made.ca), map(str, place.made.client)
    asked = ["list", "--json", "--server", place.addresses["mutual"], "--api-key", place.admin_key]
    shown = CliRunner().invoke(tenants_app, [*asked, "--ca", ca, "--cert", cert, "--key", key])
    assert [tenant["tenant_id"] for tenant in json.loads(shown.stdout)] == ["dev"]
    environment = {"SCRUBJAY_CA": ca, "SCRUBJAY_CERT": cert, "SCRUBJAY_KEY": key}
    assert CliRunner().invoke(tenants_app, asked, env=environment).exit_code == 0
    alone = CliRunner().invoke(tenants_app, [*asked, "--ca", ca])
    assert alone.exit_code == 1
    assert "take only clients with a certificate" in alone.stderr
    assert alone.stderr.count("\n") == 1
    missing = CliRunner().invoke(tenants_app, [*asked, "--ca", ca, "--cert", cert])
    assert (missing.exit_code, "go together" in missing.stderr) == (1, True)


def test_a_start_without_its_files_says_so_and_leaves_nothing(tmp_path: Path, place: Place) -> None:
    missing, key = str(tmp_path / "none.pem"), str(place.made.server[1])
    ended, log = refused_start(tmp_path / "data", tls_cert=missing, tls_key=key)
    assert (ended, log) == (1, f"{missing} can't be read (No such file or directory)\n")
    assert not (tmp_path / "data").exists()


def test_with_certificates_it_listens_for_other_machines(place: Place, tmp_path: Path) -> None:
    with serving(tmp_path, listen="0.0.0.0:0", **served_with(place.made)) as app:
        port = app.address.rpartition(":")[2]
        failed = answer(f"127.0.0.1:{port}", **trusting(place.made))
    assert failed is not None
    assert failed.reason == v1.ERROR_REASON_CREDENTIAL_INVALID


def test_the_page_names_what_every_handshake_that_fails_says() -> None:
    page = (ROOT / "docs" / "tls.md").read_text(encoding="utf-8")
    assert [said for _, _, said in FAILING.values() if said not in page] == []
