"""A server that ends in the middle of a sweep, or with counts that are not written yet."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import grpc
from google.protobuf.timestamp_pb2 import Timestamp

from fault.conftest import Start
from fault.process import ServerProcess
from scrubjay import connect, v1

MEMORIES = 2_000
BOUND_SECONDS = 30
PAST = Timestamp(seconds=5)


@contextmanager
def memories(server: ServerProcess, key: str) -> Iterator[v1.MemoryServiceStub]:
    with connect(server.address, key) as channel:
        yield v1.MemoryServiceStub(channel)


def history(stub: v1.MemoryServiceStub) -> list[v1.HistoryEntry]:
    request = v1.HistoryRequest(user_id="alice", page_size=1000)
    entries: list[v1.HistoryEntry] = []
    while True:
        page = stub.History(request)
        entries += page.entries
        request.page_token = page.next_page_token
        if not request.page_token:
            return entries


def would_go(stub: v1.MemoryServiceStub) -> list[str]:
    request = v1.ForgetRequest(validate_only=True, page_size=1000)
    ids: list[str] = []
    while True:
        page = stub.Forget(request)
        ids += [one.memory.id for one in page.forgotten]
        request.page_token = page.next_page_token
        if not request.page_token:
            return ids


def until_something_went(stub: v1.MemoryServiceStub) -> None:
    deadline = time.monotonic() + BOUND_SECONDS
    while time.monotonic() < deadline:
        entries = stub.History(v1.HistoryRequest(user_id="alice", page_size=1)).entries
        if entries[0].kind == v1.OPERATION_KIND_DELETE:
            return
    raise AssertionError("nothing went")


def test_a_server_that_is_killed_in_a_sweep_leaves_each_memory_whole_or_gone(start: Start) -> None:
    server = start()
    key = server.service_key
    forget = v1.ForgetRequest(request_id="r-1", user_id="alice")
    with memories(server, key) as stub, ThreadPoolExecutor(1) as pool:
        expired = [v1.Memory(user_id="alice", content=f"note {n}", expires_at=PAST) for n in range(MEMORIES)]
        for at in range(0, MEMORIES, 100):
            stub.Add(v1.AddRequest(memories=expired[at : at + 100]))
        cut_off = pool.submit(stub.Forget, forget)
        until_something_went(stub)
        server.kill()
        with suppress(grpc.RpcError):
            cut_off.result()
    server = start()
    with memories(server, key) as stub:
        left = would_go(stub)
        kinds = Counter((entry.memory_id, entry.kind) for entry in history(stub))
        gone = {memory_id for memory_id, kind in kinds if kind == v1.OPERATION_KIND_DELETE}
        assert 0 < len(left) < MEMORIES
        assert gone.isdisjoint(left)
        assert len(gone) + len(left) == MEMORIES
        assert stub.Forget(forget).deleted_count == len(left)
        assert would_go(stub) == []
        entries = history(stub)
        assert len(entries) == 2 * MEMORIES
        assert set(Counter((entry.memory_id, entry.kind) for entry in entries).values()) == {1}


def test_a_server_that_is_stopped_has_written_what_it_counted(start: Start) -> None:
    server = start()
    key = server.service_key
    with memories(server, key) as stub:
        memory = (
            stub.Add(v1.AddRequest(memories=[v1.Memory(user_id="alice", content="tea")])).results[0].memory
        )
        for _ in range(5):
            stub.Get(v1.GetRequest(id=memory.id, count_access=True))
    assert server.stop() == 0
    with memories(start(), key) as stub:
        assert stub.Get(v1.GetRequest(id=memory.id)).access_count == 5
