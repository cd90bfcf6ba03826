"""A server that is killed while it moves a tenant: it goes on, and nothing is lost or left behind."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from fault.conftest import Start
from fault.load import Client
from scrubjay import connect, v1

MARK = "Xylokarp"
BOUND_SECONDS = 60
MEMORIES = 500
PHASES = ("copy", "follow", "close", "switch", "settle", "sweep")
TABLES = ("memories", "history", "vectors", "streams", "operations", "graveyard", "stocks")


def fill(client: Client) -> None:
    for at in range(0, MEMORIES, 100):
        memories = [v1.Memory(user_id="alice", content=f"{MARK} {at + n}") for n in range(100)]
        client.send(v1.AddRequest(memories=[*memories], dedup=v1.DEDUP_OFF))


def rows(data_dir: Path, shard: str) -> dict[str, list[tuple[object, ...]]]:
    """Every row of a shard's file in these tables."""
    with closing(sqlite3.connect(f"file:{data_dir / shard}.db?mode=ro", uri=True)) as connection:
        return {name: sorted(connection.execute(f"SELECT * FROM {name}")) for name in TABLES}


@pytest.mark.parametrize("phase", ["copy", "close"])
def test_a_move_that_is_killed_in_any_phase_goes_on(start: Start, tmp_path: Path, phase: str) -> None:
    server = start()
    key, admin_key = server.service_key, server.admin_key
    with Client.opened(server.address, key) as client:
        fill(client)
    with connect(server.address, admin_key) as channel:
        stub = v1.TenantAdminServiceStub(channel)
        home = stub.GetTenant(v1.GetTenantRequest(tenant_id="dev")).tenant.shard
        other = "shard-0" if home != "shard-0" else "shard-1"
        begun = stub.MoveTenant(v1.MoveTenantRequest(tenant_id="dev", shard=other)).operation
        operation_id = begun.operation.id
        _wait_for_phase(stub, operation_id, phase)
    server.kill()
    server = start()
    with connect(server.address, admin_key) as channel:
        stub = v1.TenantAdminServiceStub(channel)
        deadline = time.monotonic() + BOUND_SECONDS
        request = v1.WaitTenantOperationRequest(operation_id=operation_id)
        while not (found := stub.WaitTenantOperation(request).operation.operation).HasField("ended_at"):
            assert time.monotonic() < deadline, found
        assert found.state == v1.OPERATION_STATE_SUCCEEDED, found
        assert stub.GetTenant(v1.GetTenantRequest(tenant_id="dev")).tenant.shard == other
    with Client.opened(server.address, key) as client:
        page = client.send(v1.ListRequest(user_id="alice", page_size=1000))
        count = len(page.memories)
        while page.next_page_token:
            page = client.send(
                v1.ListRequest(user_id="alice", page_size=1000, page_token=page.next_page_token)
            )
            count += len(page.memories)
        assert count == MEMORIES
        client.send(v1.AddRequest(memories=[v1.Memory(user_id="alice", content="and on it goes")]))
    assert server.stop() == 0
    data_dir = next(path.parent for path in tmp_path.rglob(f"{home}.db"))
    assert not any(rows(data_dir, home).values())
    assert len(rows(data_dir, other)["memories"]) == MEMORIES + 1
    assert MARK.encode() not in (data_dir / f"{home}.db").read_bytes()


def _wait_for_phase(stub: v1.TenantAdminServiceStub, operation_id: str, phase: str) -> None:
    """Return as soon as the operation is seen in the phase, or behind it."""
    deadline = time.monotonic() + BOUND_SECONDS
    request = v1.GetTenantOperationRequest(operation_id=operation_id)
    while (found := stub.GetTenantOperation(request).operation.operation).phase not in PHASES[
        PHASES.index(phase) :
    ]:
        assert time.monotonic() < deadline, found
        if found.HasField("ended_at"):
            return
