"""kill -9 at any moment: what was acknowledged is there once and whole, and nothing is there by half."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from fault import evidence
from fault.conftest import Start
from fault.evidence import Evidence
from fault.load import Client, UntilLost, Writer, check_stored, open_channel
from fault.process import ServerProcess
from scrubjay import connect, v1

WRITERS = 16
ROUNDS = 10
MOST_ACKNOWLEDGED = 200
"""A round's server is killed behind one of so many writes."""
MOST_HITS = 200


@pytest.mark.parametrize("seed", range(5))
def test_a_killed_server_has_what_it_acknowledged(
    seed: int, start: Start, data_dir: Path, tmp_path: Path
) -> None:
    _kill_and_start(seed, ROUNDS, start, lambda: evidence.of_files(data_dir, tmp_path / "copies"))


def test_a_killed_server_on_postgresql_has_what_it_acknowledged(postgres_url: str, start: Start) -> None:
    def with_shards() -> ServerProcess:
        return start(shards=postgres_url)

    _kill_and_start(5, 5, with_shards, lambda: evidence.of_postgres(postgres_url))


def _kill_and_start(seed: int, rounds: int, start: Start, stored: Callable[[], Evidence]) -> None:
    chance = random.Random(seed)
    writers = [Writer(f"writer {n}", n % 3, chance.getrandbits(64)) for n in range(WRITERS)]
    server = start()
    keys = _keys(server)
    for number in range(rounds):
        print(f"seed {seed}, round {number}")  # shown where the test fails
        with _clients(server, keys) as clients:
            _work_until_killed(server, clients, writers, f"round {number}", chance)
        check_stored(stored(), writers)
        server = start()
        with _clients(server, keys) as clients:
            for writer in writers:
                writer.repeat(clients[writer.tenant])
            _check_served(clients, writers, f"round {number}")
    server.kill()
    check_stored(stored(), writers)


def _keys(server: ServerProcess) -> list[str]:
    """A key of each of three tenants."""
    keys = [server.service_key]
    with connect(server.address, server.admin_key) as channel:
        admin = v1.TenantAdminServiceStub(channel)
        for tenant_id in ("second", "third"):
            admin.CreateTenant(v1.CreateTenantRequest(tenant_id=tenant_id))
            request = v1.CreateApiKeyRequest(tenant_id=tenant_id, role=v1.ROLE_SERVICE)
            keys.append(admin.CreateApiKey(request).secret)
    return keys


@contextmanager
def _clients(server: ServerProcess, keys: list[str]) -> Iterator[list[Client]]:
    with open_channel(server.address) as channel:
        yield [Client(channel, key) for key in keys]


def _work_until_killed(
    server: ServerProcess, clients: list[Client], writers: list[Writer], about: str, chance: random.Random
) -> None:
    until_lost = UntilLost(chance.randint(1, MOST_ACKNOWLEDGED))
    with ThreadPoolExecutor(len(writers)) as pool:
        work = [
            pool.submit(writer.work, clients[writer.tenant], _users(writer, about), until_lost)
            for writer in writers
        ]
        try:
            assert until_lost.passed.wait(30)
            time.sleep(chance.uniform(0, 0.01))  # any moment of a commit, not only the one behind an answer
        finally:
            server.kill()
        for done in work:
            done.result()


def _users(writer: Writer, about: str) -> list[str]:
    """One of the writer's own, and one that it shares with others of its tenant."""
    return [f"{writer.name} {about}", f"all {about}"]


def _check_served(clients: list[Client], writers: list[Writer], about: str) -> None:
    """List and Search give exactly what was acknowledged, and each text finds its memory."""
    for tenant, client in enumerate(clients):
        mine = [writer for writer in writers if writer.tenant == tenant]
        living = {
            memory_id: known
            for writer in mine
            for memory_id, known in writer.known.items()
            if not known.dead and known.user_id.endswith(about)
        }
        for user in {user for writer in mine for user in _users(writer, about)}:
            expected = {memory_id for memory_id, known in living.items() if known.user_id == user}
            assert len(expected) <= MOST_HITS
            listed = client.send(v1.ListRequest(user_id=user, page_size=1000)).memories
            assert sorted(memory.id for memory in listed) == sorted(expected)
            assert _found(client, user, "note", MOST_HITS) == sorted(expected)
        for memory_id, known in living.items():
            assert _found(client, known.user_id, known.content, 1) == [memory_id]


def _found(client: Client, user: str, query: str, count: int) -> list[str]:
    """The ids that meaning alone finds, sorted."""
    request = v1.SearchRequest(user_id=user, query=query, top_k=count, recipe="semantic")
    return sorted(hit.memory.id for hit in client.send(request).hits)
