"""A start that can't be ends with one clear line; one that was cut off can be repeated."""

from __future__ import annotations

import random
import re
import socket
import sqlite3
import subprocess
from contextlib import closing, suppress
from pathlib import Path

import grpc
import pytest

from fault.conftest import Start
from fault.load import Client
from fault.process import launch, refused_start
from rpc.refusal import refused
from scrubjay import connect, v1
from scrubjay.errors import CredentialInvalid


def why_not(data_dir: Path, **settings: str) -> str:
    """The one line that a start ends with, beside the log's, which are JSON, and gRPC's own."""
    code, said = refused_start(data_dir, **settings)
    assert code == 1
    (line,) = [line for line in said.splitlines() if not re.match(r"\{|E\d{4} ", line)]
    return line


def test_a_second_server_on_a_data_directory_names_the_first(start: Start, data_dir: Path) -> None:
    first = start()
    line = why_not(data_dir)
    assert f"process {first.process.pid}" in line
    assert str(data_dir) in line
    assert "SCRUBJAY_DATA_DIR" in line
    first.kill()
    start()


def test_another_embedder_than_the_stored_vectors_is_refused(start: Start, data_dir: Path) -> None:
    start().stop()
    line = why_not(data_dir, embedder="lite")
    assert "SCRUBJAY_EMBEDDERS" in line
    assert "hash-1/1024" in line
    assert "lite-1/512" in line
    start(embedder="lite", embedders="hash").stop()
    start()


def test_a_port_in_use_is_named(data_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        line = why_not(data_dir, listen=address)
    assert address in line
    assert "SCRUBJAY_LISTEN" in line


def test_a_shard_that_holds_tenants_and_is_not_configured_is_named(start: Start, data_dir: Path) -> None:
    server = start()
    with connect(server.address, server.admin_key) as channel:
        admin = v1.TenantAdminServiceStub(channel)
        for n in range(40):
            admin.CreateTenant(v1.CreateTenantRequest(tenant_id=f"tenant-{n}"))
    server.stop()
    with closing(sqlite3.connect(data_dir / "catalogue.db")) as catalogue:
        shards = {name for (name,) in catalogue.execute("SELECT shard FROM catalogue_tenants")}
    assert shards == {"shard-0", "shard-1", "shard-2", "shard-3"}
    line = why_not(data_dir, shards=f"sqlite:///{data_dir}/shard-0.db,sqlite:///{data_dir}/shard-1.db")
    assert "shard-2, shard-3" in line
    assert "SCRUBJAY_SHARDS" in line


@pytest.mark.parametrize("setting", ["catalogue", "shards"])
def test_a_database_that_does_not_answer_is_named_without_its_password(data_dir: Path, setting: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    url = f"postgresql://someone:hidden-word@127.0.0.1:{port}/nothing"
    catalogue = {"catalogue": f"sqlite:///{data_dir}/catalogue.db"} if setting == "shards" else {}
    line = why_not(data_dir, **catalogue | {setting: url})
    assert f"127.0.0.1:{port}/nothing" in line
    assert "hidden-word" not in data_dir.with_name("refused.log").read_text()


def test_a_file_that_is_no_database_is_named(data_dir: Path) -> None:
    data_dir.mkdir()
    (data_dir / "shard-2.db").write_bytes(b"no database" * 1000)
    assert "shard-2.db" in why_not(data_dir)


def test_a_data_directory_that_is_a_file_is_named(data_dir: Path) -> None:
    data_dir.write_text("")
    line = why_not(data_dir)
    assert str(data_dir) in line
    assert "SCRUBJAY_DATA_DIR" in line


def test_another_pepper_refuses_the_keys_of_before(start: Start) -> None:
    first = start()
    key = first.service_key
    first.stop()
    other = start(pepper="another one")
    with Client.opened(other.address, key) as client, refused() as answer:
        client.send(v1.ListRequest(user_id="alice"))
    assert answer.code is grpc.StatusCode.UNAUTHENTICATED
    assert isinstance(answer.error, CredentialInvalid)
    other.stop()
    again = start()
    with Client.opened(again.address, key) as client:
        client.send(v1.ListRequest(user_id="alice"))


def test_first_starts_that_are_killed_at_any_moment_leave_what_can_be_started(
    start: Start, data_dir: Path
) -> None:
    chance = random.Random(20)
    for _ in range(6):
        with launch("serve", data_dir, data_dir.with_name("killed.log"), {}) as process:
            with suppress(subprocess.TimeoutExpired):
                process.wait(chance.uniform(0.5, 1.2))
            process.kill()
    start().stop()
    with launch("create-admin-key", data_dir, data_dir.with_name("key.log"), {}) as process:
        key, _ = process.communicate(timeout=30)
    with connect(start().address, key.strip()) as channel:
        tenants = v1.TenantAdminServiceStub(channel).ListTenants(v1.ListTenantsRequest()).tenants
    assert [tenant.tenant_id for tenant in tenants] == ["dev"]
