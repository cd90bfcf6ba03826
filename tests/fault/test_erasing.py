"""A server that is killed while it erases a person: called again, nothing is left of them."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path

import grpc
import pytest

from fault.conftest import Start
from fault.load import Client
from scrubjay import connect, v1

MARK = "Xylokarp"
BOUND_SECONDS = 60
MEMORIES = 500


def fill(client: Client) -> None:
    for at in range(0, MEMORIES, 100):
        memories = [
            v1.Memory(user_id="alice", content=f"{MARK} {at + n} " * (1 + n % 9), tags=[MARK])
            for n in range(100)
        ]
        client.send(v1.AddRequest(memories=[*memories], dedup=v1.DEDUP_OFF))
    client.send(v1.AddRequest(memories=[v1.Memory(user_id="bob", content="kept")]))


def fewer(client: Client, left: int) -> bool:
    return len(client.send(v1.ListRequest(user_id="alice", page_size=left)).memories) < left


def marked(folder: Path) -> list[str]:
    return [str(p) for p in folder.rglob("*") if p.is_file() and MARK.encode() in p.read_bytes()]


@pytest.mark.parametrize("left", [400, 1])
def test_what_a_kill_cut_off_is_ended_by_the_same_call(start: Start, tmp_path: Path, left: int) -> None:
    """It is killed when fewer memories than ``left`` live."""
    server = start()
    key, admin_key = server.service_key, server.admin_key
    with Client.opened(server.address, key) as client:
        fill(client)
        assert not fewer(client, left)
    request = v1.EraseSubjectRequest(tenant_id="dev", user_id="alice", request_id="erase alice")

    def erase() -> None:
        with connect(server.address, admin_key) as channel, suppress(grpc.RpcError):
            v1.TenantAdminServiceStub(channel).EraseSubject(request, timeout=BOUND_SECONDS)

    caller = threading.Thread(target=erase)
    with Client.opened(server.address, key) as client:
        caller.start()
        deadline = time.monotonic() + BOUND_SECONDS
        while not fewer(client, left):
            assert time.monotonic() < deadline
    server.kill()
    caller.join()
    server = start()
    with connect(server.address, admin_key) as channel:
        answer = v1.TenantAdminServiceStub(channel).EraseSubject(request, timeout=BOUND_SECONDS)
    swept = {each.place: each.count for each in answer.receipt.swept}
    assert (swept["memories"], swept["vectors"], swept["history"]) == (MEMORIES, MEMORIES, MEMORIES)
    with Client.opened(server.address, key) as client:
        assert not client.send(v1.ListRequest(user_id="alice")).memories
        assert len(client.send(v1.ListRequest(user_id="bob")).memories) == 1
    assert server.stop() == 0
    assert marked(tmp_path) == []
