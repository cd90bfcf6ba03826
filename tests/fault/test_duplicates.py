"""The same said by many at once is one memory: through two servers, and though the server is killed."""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import grpc

from fault.conftest import Start
from fault.load import Client
from scrubjay import v1

PARALLEL = 32
"""Callers of each of two servers."""
WRITERS = 8
THINGS = ("tea", "rice", "jazz")
TEXTS = [f"I like {thing} more than anything." for thing in THINGS]
AGAIN = [f"I really prefer {thing} over anything" for thing in THINGS]
UNTIL_KILLED_SECONDS = 1.0
BOUND_SECONDS = 30


def add(text: str) -> v1.AddRequest:
    return v1.AddRequest(memories=[v1.Memory(user_id="alice", content=text)])


def stored(client: Client) -> dict[str, str]:
    """The ids of what alice has, with the texts."""
    memories = client.send(v1.ListRequest(user_id="alice", page_size=1000)).memories
    return {memory.id: memory.content for memory in memories}


def test_the_same_added_through_two_servers_at_once_is_one_memory(
    postgres_url: str, start: Start, tmp_path: Path
) -> None:
    servers = [start(tmp_path / name, shards=postgres_url, pepper="of both") for name in ("one", "other")]
    barrier = threading.Barrier(2 * PARALLEL)
    with ExitStack() as stack:
        key = servers[0].service_key
        clients = [stack.enter_context(Client.opened(server.address, key)) for server in servers]

        def one(n: int) -> v1.AddResult:
            barrier.wait(BOUND_SECONDS)
            return clients[n % 2].send(add("I like tea.")).results[0]

        with ThreadPoolExecutor(2 * PARALLEL) as pool:
            results = list(pool.map(one, range(2 * PARALLEL)))
        assert Counter(result.status for result in results) == {
            v1.ADD_STATUS_ADDED: 1,
            v1.ADD_STATUS_DUPLICATE: 2 * PARALLEL - 1,
        }
        (memory_id,) = {result.memory.id for result in results}
        assert [stored(client) for client in clients] == [{memory_id: "I like tea."}] * 2


def test_a_server_killed_in_the_middle_has_each_once(start: Start) -> None:
    server = start()
    key = server.service_key
    told: set[tuple[str, str]] = set()

    def say(client: Client, until_lost: bool) -> None:
        lost = False
        while not lost:
            for text in (*TEXTS, *AGAIN):
                try:
                    memory = client.send(add(text)).results[0].memory
                except grpc.RpcError:
                    lost = True
                    break
                told.add((memory.id, memory.content))
            lost = lost or not until_lost

    with Client.opened(server.address, key) as client, ThreadPoolExecutor(WRITERS) as pool:
        work = [pool.submit(say, client, True) for _ in range(WRITERS)]
        deadline = time.monotonic() + UNTIL_KILLED_SECONDS
        while len(told) < len(TEXTS) or time.monotonic() < deadline:
            assert not any(one.done() for one in work)
        server.kill()
        for one in work:
            one.result()
    server = start()
    with Client.opened(server.address, key) as client:
        before = stored(client)
        assert told <= set(before.items())
        say(client, until_lost=False)
        assert stored(client) == before
    assert len(before) == len(TEXTS)
