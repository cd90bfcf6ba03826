"""Two servers on one PostgreSQL: what one wrote the other knows, and both together do each request once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from fault import evidence
from fault.conftest import Start
from fault.load import Client, UntilEnough, Writer, check_stored, open_channel, working
from fault.process import ServerProcess
from scrubjay import v1

PEPPER = "one of both servers"


@pytest.fixture
def servers(postgres_url: str, start: Start, tmp_path: Path) -> tuple[ServerProcess, ServerProcess]:
    """Two servers; the first one made the catalogue."""
    one, other = (start(tmp_path / name, shards=postgres_url, pepper=PEPPER) for name in ("one", "other"))
    return one, other


@pytest.fixture
def addresses(servers: tuple[ServerProcess, ServerProcess]) -> tuple[str, str, str]:
    """The addresses of two servers, and a key of both."""
    one, other = servers
    return one.address, other.address, one.service_key


@pytest.fixture
def clients(addresses: tuple[str, str, str]) -> Iterator[tuple[Client, Client]]:
    """A client of each server."""
    *both, key = addresses
    with ExitStack() as stack:
        one, other = (stack.enter_context(Client.opened(address, key)) for address in both)
        yield one, other


def memory(content: str) -> v1.Memory:
    return v1.Memory(user_id="alice", content=content)


def contents(client: Client, revision: str) -> list[list[str]]:
    """What List, and what Search by meaning, give at this revision."""
    listed = client.send(v1.ListRequest(user_id="alice", page_size=1000, min_revision=revision)).memories
    search = v1.SearchRequest(
        user_id="alice", query="note", top_k=200, recipe="semantic", min_revision=revision
    )
    hits = client.send(search).hits
    return [sorted(one.content for one in listed), sorted(hit.memory.content for hit in hits)]


def test_a_write_on_one_is_at_once_found_on_the_other(clients: tuple[Client, Client]) -> None:
    expected: dict[str, str] = {}
    for n in range(30):
        writer, reader = clients if n % 2 else clients[::-1]
        added = writer.send(v1.AddRequest(memories=[memory(f"note {n}"), memory(f"note dead {n}")]))
        kept, dead = (result.memory for result in added.results)
        assert reader.send(v1.GetRequest(id=kept.id, min_revision=added.revision)).memory == kept
        deleted = reader.send(v1.DeleteRequest(id=dead.id))
        expected[kept.id] = kept.content
        assert contents(writer, deleted.revision) == [sorted(expected.values())] * 2
        mask = FieldMask(paths=["content"])
        edit = v1.UpdateRequest(memory=v1.Memory(id=kept.id, content=f"note new {n}"), update_mask=mask)
        updated = writer.send(edit)
        expected[kept.id] = updated.memory.content
        assert contents(reader, updated.revision) == [sorted(expected.values())] * 2


def test_a_write_on_one_is_at_once_found_across_subjects_on_the_other(
    servers: tuple[ServerProcess, ServerProcess],
) -> None:
    request = v1.SearchRequest(query="note", across_subjects=True, top_k=200, recipe="semantic")
    expected: dict[str, str] = {}
    with ExitStack() as stack:
        key = granted(servers[0])
        clients = [stack.enter_context(Client.opened(server.address, key)) for server in servers]
        for n in range(30):
            writer, reader = clients if n % 2 else clients[::-1]
            added = writer.send(v1.AddRequest(memories=[v1.Memory(user_id=f"{n % 7}", content=f"note {n}")]))
            expected[added.results[0].memory.id] = f"note {n}"
            if n % 3 == 2:
                dead = next(iter(expected))
                writer.send(v1.DeleteRequest(id=dead))
                del expected[dead]
            request.min_revision = added.revision if n % 4 else ""
            hits = reader.send(request).hits
            assert {hit.memory.id: hit.memory.content for hit in hits} == expected


def granted(server: ServerProcess) -> str:
    """A service key that may search across subjects."""
    request = v1.CreateApiKeyRequest(tenant_id="dev", role=v1.ROLE_SERVICE, across_subjects=True)
    metadata = (("authorization", f"Bearer {server.admin_key}"),)
    with open_channel(server.address) as channel:
        return str(v1.TenantAdminServiceStub(channel).CreateApiKey(request, metadata=metadata).secret)


def test_writers_of_both_on_one_user_lose_nothing(clients: tuple[Client, Client], postgres_url: str) -> None:
    writers = [Writer(f"writer {n}", n % 2, n) for n in range(16)]
    until_enough = UntilEnough()
    with working(list(clients), writers, until_enough):
        until_enough.wait(acknowledged=400)
        until_enough.end()
    assert until_enough.errors == []
    check_stored(evidence.of_postgres(postgres_url), writers)
    histories = [history(client, "all") for client in clients]
    assert histories[0] == histories[1]
    stamps = [entry.commit_stamp for entry in reversed(histories[0])]
    assert len(stamps) == sum(
        len(known.operations)
        for writer in writers
        for known in writer.known.values()
        if known.user_id == "all"
    )
    assert all(before < after for before, after in pairwise(stamps))


def history(client: Client, user: str) -> list[v1.HistoryEntry]:
    """Every entry of a user, newest first."""
    entries: list[v1.HistoryEntry] = []
    request = v1.HistoryRequest(user_id=user, page_size=500)
    while True:
        page = client.send(request)
        entries += page.entries
        request.page_token = page.next_page_token
        if not request.page_token:
            return entries


def test_one_request_sent_to_both_at_once_is_done_once(clients: tuple[Client, Client]) -> None:
    with ThreadPoolExecutor(4) as pool:
        for n in range(25):
            request = v1.AddRequest(request_id=f"request {n}", memories=[memory(f"note {n}")])
            sent = [pool.submit(client.send, request) for client in (*clients, *clients)]
            answers = [one.result() for one in sent]
            assert all(answer == answers[0] for answer in answers)
    for client in clients:
        assert contents(client, answers[0].revision) == [sorted(f"note {n}" for n in range(25))] * 2
    assert len(history(clients[0], "alice")) == 25
