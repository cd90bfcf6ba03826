"""A tenant is deleted, and nothing of it is left: in no table, in no file, and not for who comes after it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from rpc.conftest import Serving
from rpc.conftest import Tenant as Caller
from rpc.refusal import refused
from scrubjay import v1
from scrubjay.memory import Micros
from server import purging
from server.app import App, wall_clock
from server.config import Settings

MARK = "Xylokarp"
"""A word that nothing but the purged tenant's memories holds."""


@pytest.fixture
def ahead() -> list[int]:
    """Microseconds that the server's clock is ahead."""
    return [0]


@pytest.fixture
def clock(ahead: list[int], monkeypatch: pytest.MonkeyPatch) -> Callable[[], Micros]:
    """A clock that the test moves, of a server that looks all the time for what is to be purged."""
    monkeypatch.setattr(purging, "INTERVAL_SECONDS", 0.02)
    return lambda: Micros(wall_clock() + ahead[0])


def until_purged(serving: Serving, tenant_id: str) -> v1.Tenant:
    deadline = wall_clock() + 30_000_000
    while wall_clock() < deadline:
        tenant = serving.admin.GetTenant(v1.GetTenantRequest(tenant_id=tenant_id)).tenant
        if tenant.state == v1.TENANT_STATE_PURGED:
            return tenant
        threading.Event().wait(0.02)
    raise AssertionError("the tenant is not purged")


def purge(serving: Serving, tenant_id: str, ahead: list[int]) -> v1.Tenant:
    serving.admin.DeleteTenant(v1.DeleteTenantRequest(tenant_id=tenant_id, grace_days=0))
    ahead[0] += purging.SETTLED_MICROS
    return until_purged(serving, tenant_id)


def plant(serving: Serving, tenant: Caller) -> None:
    """Marks of many sizes wherever a tenant's callers may put words, edited and deleted again."""
    user = f"user {MARK}"
    made = []
    for n in range(60):
        content = f"{MARK} {n} " + f"{MARK.lower()}{n} " * (n * n % 700)
        made += tenant.add(content, user_id=user, tags=[f"{MARK}-{n}"], metadata={"where": MARK})
    for n, memory in enumerate(made[::2]):
        memory.content = f"{MARK} changed " * (1 + n * 13 % 90)
        update = v1.UpdateRequest(memory=memory, update_mask=FieldMask(paths=["content"]))
        update.request_id = f"request {MARK} {n}"
        tenant.memories.Update(update)
    for memory in made[::5]:
        tenant.memories.Delete(v1.DeleteRequest(id=memory.id))
    tenant.memories.Search(v1.SearchRequest(user_id=user, query=MARK, count_access=True))
    asked = v1.CreateEnrolmentRequest(tenant_id=tenant.tenant_id, user_id=user, display_name=MARK)
    code = serving.admin.CreateEnrolment(asked).enrolment_code
    stub = v1.SyncServiceStub(serving.open_channel(serving.app.address, code))
    token = stub.RegisterDevice(v1.RegisterDeviceRequest(installation_id=b"i" * 16)).device_token
    device = v1.SyncServiceStub(serving.open_channel(serving.app.address, token))
    assert sum(len(part.chunk) for part in device.Snapshot(v1.SnapshotRequest())) > 0
    settings = v1.WriteSettings(custom_instructions=f"Remember {MARK}.")
    told = v1.Tenant(tenant_id=tenant.tenant_id, write_settings=settings)
    mask = FieldMask(paths=["write_settings"])
    serving.admin.UpdateTenant(v1.UpdateTenantRequest(tenant=told, update_mask=mask))


def marked(folder: Path) -> Iterator[str]:
    """Files that hold the mark anywhere in their bytes, in any case of letters."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and MARK.lower().encode() in path.read_bytes().lower():
            yield str(path.relative_to(folder))


def test_nothing_is_left_of_a_purged_tenant(serving: Serving, settings: Settings, ahead: list[int]) -> None:
    doomed = serving.tenant("doomed")
    plant(serving, doomed)
    theirs = serving.dev.add("kept by another")
    if not settings.shards:
        assert len(list(marked(settings.data_dir))) >= 2
    receipt = purge(serving, "doomed", ahead).purge_receipt
    swept = {each.place: each.count for each in receipt.swept}
    assert (swept["memories"], swept["devices"], swept["API keys"]) == (48, 1, 1)
    assert (swept["device snapshots"], swept["index files"]) == (1, 0)
    assert swept["history"] > 60
    if not settings.shards:  # PostgreSQL takes back the space of what was deleted by itself
        assert list(marked(settings.data_dir)) == []
    else:
        assert list(marked(settings.data_dir / "snapshots")) == []
    assert serving.dev.memories.Get(v1.GetRequest(id=theirs[0].id)).memory == theirs[0]
    with refused() as answer:
        doomed.memories.List(v1.ListRequest(user_id="alice"))
    assert answer.code is grpc.StatusCode.UNAUTHENTICATED


def test_a_server_starts_again_after_a_purge(serving: Serving, settings: Settings, ahead: list[int]) -> None:
    doomed = serving.tenant("doomed")
    doomed.add("the last thing that was written here")
    purge(serving, "doomed", ahead)
    serving.app.close()
    with App(settings):
        pass
    if not settings.shards:
        assert list(marked(settings.data_dir)) == []


def test_the_same_id_again_and_again_is_another_tenant_each_time(serving: Serving, ahead: list[int]) -> None:
    before: Caller | None = None
    token = ""
    for n in range(3):
        tenant = serving.tenant("again")
        if before is not None:
            assert not tenant.memories.List(v1.ListRequest(user_id="alice")).memories
            assert not tenant.memories.History(v1.HistoryRequest(user_id="alice")).entries
            with refused() as answer:
                tenant.memories.List(v1.ListRequest(user_id="alice", page_size=2, page_token=token))
            assert answer.fields == ["page_token"]
            with refused() as answer:
                before.add("late")
            assert answer.code is grpc.StatusCode.UNAUTHENTICATED
        made = tenant.add(*(f"life {n}, fact {m}" for m in range(5)))
        page = tenant.memories.List(v1.ListRequest(user_id="alice", page_size=2, page_token=""))
        token = page.next_page_token
        assert {memory.content for memory in page.memories} <= {memory.content for memory in made}
        stopped = threading.Event()
        writers = [threading.Thread(target=write_until, args=(tenant, stopped)) for _ in range(2)]
        for writer in writers:
            writer.start()
        purge(serving, "again", ahead)
        stopped.set()
        for writer in writers:
            writer.join()
        before = tenant
    last = serving.tenant("again")
    assert not last.memories.List(v1.ListRequest(user_id="alice")).memories


def write_until(tenant: Caller, stopped: threading.Event) -> None:
    """Write on, refused or not."""
    while not stopped.is_set():
        try:
            tenant.add("by a writer that does not listen")
        except grpc.RpcError:
            stopped.wait(0.01)
