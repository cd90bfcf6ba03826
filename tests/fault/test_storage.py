"""A database that fails under a running server: callers hear so, nothing is lost, and it goes on."""

from __future__ import annotations

import resource
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import grpc
import pytest

from fault import evidence
from fault.conftest import Start
from fault.crash import KillablePostgres, killable_postgres
from fault.load import Client, UntilEnough, Writer, check_stored, code_of, working
from rpc.refusal import refused
from scrubjay import v1
from scrubjay.channel import from_rpc_error
from scrubjay.errors import StorageUnavailable
from tests.postgres import PostgresServer, database_name

WRITERS = 16
LIST = v1.ListRequest(user_id="alice", page_size=1000)


def add(content: str) -> v1.AddRequest:
    return v1.AddRequest(request_id=content, memories=[v1.Memory(user_id="alice", content=content)])


def contents(client: Client) -> list[str]:
    return sorted(memory.content for memory in client.send(LIST).memories)


def check_unavailable(errors: list[grpc.RpcError]) -> None:
    """Each is what a caller must hear where the database does not answer."""
    assert errors
    assert {(code_of(error), type(from_rpc_error(error))) for error in errors} == {
        (grpc.StatusCode.UNAVAILABLE, StorageUnavailable)
    }


@contextmanager
def full_disk(pid: int, data_dir: Path) -> Iterator[None]:
    """No file of the process may grow for the block."""
    soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    largest = max(file.stat().st_size for file in data_dir.iterdir())
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (largest, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_refuses_writes_and_serves_reads_until_there_is_room(
    start: Start, data_dir: Path, tmp_path: Path
) -> None:
    server = start()
    writers = [Writer(f"writer {n}", 0, n) for n in range(WRITERS)]
    until_enough = UntilEnough()
    with (
        Client.opened(server.address, server.service_key) as client,
        working([client], writers, until_enough),
    ):
        client.send(add("before"))
        until_enough.wait(acknowledged=20)
        with full_disk(server.process.pid, data_dir):
            until_enough.wait(errors=4 * WRITERS)
            assert contents(client) == ["before"]
        until_enough.wait(acknowledged=10 * WRITERS)
        until_enough.end()
    check_unavailable(until_enough.errors)
    server.kill()
    stored = evidence.of_files(data_dir, tmp_path / "copies")
    alice = [memory_id for memory_id, user in stored.users.items() if user == "alice"]
    assert [(stored.contents.pop(one), stored.operations.pop(one)) for one in alice] == [("before", [1])]
    check_stored(stored, writers)


def test_a_file_that_another_process_has_locked_refuses_writes_and_serves_reads(
    start: Start, data_dir: Path
) -> None:
    server = start()
    with Client.opened(server.address, server.service_key) as client, ExitStack() as stack:
        client.send(add("before"))
        for file in data_dir.glob("shard-*.db"):
            holder = stack.enter_context(closing(sqlite3.connect(file, isolation_level=None)))
            holder.execute("BEGIN EXCLUSIVE")
        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(client.send, add("meanwhile"))
            assert contents(client) == ["before"]
            with refused() as answer:
                writing.result()
        assert answer.code is grpc.StatusCode.UNAVAILABLE
        assert isinstance(answer.error, StorageUnavailable)
        stack.close()
        client.send(add("meanwhile"))
        assert contents(client) == ["before", "meanwhile"]


@pytest.fixture
def own() -> Iterator[KillablePostgres]:
    """A PostgreSQL server that may be killed."""
    with killable_postgres() as server:
        yield server


def test_a_killed_postgresql_is_unavailable_and_found_again_without_a_restart(
    own: KillablePostgres, start: Start
) -> None:
    url = own.create()
    server = start(shards=url)
    writers = [Writer(f"writer {n}", 0, n) for n in range(WRITERS)]
    until_enough = UntilEnough()
    with (
        Client.opened(server.address, server.service_key) as client,
        working([client], writers, until_enough),
    ):
        until_enough.wait(acknowledged=100)
        own.kill()
        until_enough.wait(errors=2 * WRITERS)
        with refused() as answer:
            client.send(LIST)
        assert isinstance(answer.error, StorageUnavailable)
        own.start()
        until_enough.wait(acknowledged=100)
        until_enough.end()
    check_unavailable(until_enough.errors)
    assert server.stop() == 0
    check_stored(evidence.of_postgres(url), writers)


def test_cut_connections_to_postgresql_are_made_again(
    postgres: PostgresServer, postgres_url: str, start: Start
) -> None:
    server = start(shards=postgres_url)
    writers = [Writer(f"writer {n}", 0, n) for n in range(WRITERS)]
    until_enough = UntilEnough()
    name = database_name(postgres_url)
    with (
        Client.opened(server.address, server.service_key) as client,
        working([client], writers, until_enough),
    ):
        for _ in range(10):
            until_enough.wait(acknowledged=20)
            postgres.execute(
                f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
            )
        until_enough.wait(acknowledged=100)
        until_enough.end()
    check_unavailable(until_enough.errors)
    assert server.stop() == 0
    check_stored(evidence.of_postgres(postgres_url), writers)
