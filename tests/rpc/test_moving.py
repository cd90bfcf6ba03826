"""Moving tenants between the shards of a running server, while they are read and written."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import grpc
import pytest

from scrubjay import v1
from server.app import App
from server.config import Settings
from server.operations import conductor, moving
from tenants.credential_cache import CredentialCache
from tenants.registry import registry
from tests.postgres import PostgresServer
from tests.rpc.conftest import Serving, served

PATIENCE_SECONDS = 60


@pytest.fixture
def serving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serving]:
    """A server with four SQLite shards that looks for work all the time."""
    monkeypatch.setattr(conductor, "LOOK_SECONDS", 0.05)
    settings = Settings(listen="127.0.0.1:0", data_dir=tmp_path / "data", embedder="hash")
    with served(settings) as made:
        yield made


def ended(admin: v1.TenantAdminServiceStub, operation: v1.TenantOperation) -> v1.TenantOperation:
    """The operation at its end."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not operation.operation.HasField("ended_at"):
        assert time.monotonic() < deadline, operation
        request = v1.WaitTenantOperationRequest(operation_id=operation.operation.id)
        operation = admin.WaitTenantOperation(request).operation
    return operation


def moved(serving: Serving, tenant_id: str = "dev", shard: str = "") -> v1.MoveTenantResult:
    """The tenant on another shard."""
    request = v1.MoveTenantRequest(tenant_id=tenant_id, shard=shard)
    operation = ended(serving.admin, serving.admin.MoveTenant(request).operation)
    assert operation.operation.state == v1.OPERATION_STATE_SUCCEEDED, operation
    return operation.result.move_tenant


@dataclass
class Load:
    """Calls of a tenant that go on and on, on a channel that tries nothing twice."""

    stub: v1.MemoryServiceStub
    peers: list[v1.MemoryServiceStub] = field(default_factory=list)
    added: set[str] = field(default_factory=set)
    failed: list[BaseException] = field(default_factory=list)
    calls: int = 0
    over: threading.Event = field(default_factory=threading.Event)

    def read_on_another(self, number: int) -> None:
        """What one server acknowledged, every other one has, and what was deleted, none."""
        (writing, reading), user_id = self.peers, f"carol-{id(self)}"
        memory = v1.Memory(user_id=user_id, content=f"carol's no. {number}")
        memory_id = writing.Add(v1.AddRequest(memories=[memory])).results[0].memory.id
        assert reading.Get(v1.GetRequest(id=memory_id)).memory.id == memory_id
        found = reading.Search(v1.SearchRequest(user_id=user_id, query=memory.content))
        assert memory_id in {hit.memory.id for hit in found.hits}
        writing.Delete(v1.DeleteRequest(id=memory_id))
        assert not reading.BatchGet(v1.BatchGetRequest(ids=[memory_id])).memories

    def add(self, number: int) -> None:
        request = v1.AddRequest(memories=[v1.Memory(user_id="alice", content=f"fact no. {number}")])
        self.added.add(self.stub.Add(request).results[0].memory.id)

    def read_what_was_written(self, number: int) -> None:
        request = v1.AddRequest(memories=[v1.Memory(user_id="bob", content=f"bob's no. {number}")])
        added = self.stub.Add(request)
        memory_id = added.results[0].memory.id
        wanted = v1.GetRequest(id=memory_id, min_revision=added.revision)
        assert self.stub.Get(wanted).memory.id == memory_id
        found = self.stub.Search(v1.SearchRequest(user_id="bob", query=f"bob's no. {number}", top_k=200))
        assert memory_id in {hit.memory.id for hit in found.hits}
        self.stub.Delete(v1.DeleteRequest(id=memory_id))

    def search(self, _number: int) -> None:
        before = min(len(self.added), 5)
        found = self.stub.Search(v1.SearchRequest(user_id="alice", query="fact no.", top_k=5))
        assert len(found.hits) >= before

    def forever(self, call: Callable[[int], None]) -> None:
        for number in itertools.count():
            if self.over.is_set():
                return
            time.sleep(0.002)  # so that the machine is not the limit
            try:
                call(number)
                self.calls += 1
            except (grpc.RpcError, AssertionError) as error:
                self.failed.append(error)
                return


@contextmanager
def connected(serving: Serving) -> Iterator[v1.MemoryServiceStub]:
    """The first tenant, on a channel that tries nothing twice."""
    with grpc.insecure_channel(serving.app.address) as channel:
        yield cast("v1.MemoryServiceStub", _Keyed(v1.MemoryServiceStub(channel), serving.dev.key))


@contextmanager
def loaded(serving: Serving, *peers: v1.MemoryServiceStub, searches: bool = True) -> Iterator[Load]:
    """The first tenant under load, for the block."""
    with connected(serving) as stub:
        load = Load(stub, [*peers])
        work: list[Callable[[int], None]] = [load.add]
        work += [load.read_on_another] if peers else [load.add, load.read_what_was_written]
        work += [load.search] if searches else []
        threads = [threading.Thread(target=load.forever, args=(call,)) for call in work]
        for thread in threads:
            thread.start()
        try:
            yield load
        finally:
            load.over.set()
            for thread in threads:
                thread.join()


class _Keyed:
    """A stub whose calls carry a key."""

    def __init__(self, stub: v1.MemoryServiceStub, key: str) -> None:
        self._stub = stub
        self._metadata = (("authorization", f"Bearer {key}"),)

    def __getattr__(self, rpc: str) -> Any:
        return partial(getattr(self._stub, rpc), metadata=self._metadata)


def test_no_call_fails_while_a_tenant_moves_to_and_fro(serving: Serving) -> None:
    home = serving.admin.GetTenant(v1.GetTenantRequest(tenant_id="dev")).tenant.shard
    other = "shard-0" if home != "shard-0" else "shard-1"
    with loaded(serving) as load:
        for shard in (other, home):
            before = load.calls
            assert moved(serving, shard=shard).to_shard == shard
            deadline = time.monotonic() + PATIENCE_SECONDS
            while load.calls < before + 20 and not load.failed:
                assert time.monotonic() < deadline
                time.sleep(0.01)  # between one look and the next
    assert load.failed == []
    page = v1.ListRequest(user_id="alice", page_size=1000)
    assert {one.id for one in serving.dev.memories.List(page).memories} == load.added
    shards = {one.name: one for one in serving.admin.ListShards(v1.ListShardsRequest()).shards}
    assert (shards[other].memory_count, shards[other].byte_count) == (0, 0)
    assert shards[home].memory_count == len(load.added)


def test_a_stream_that_watches_ends_and_goes_on_in_the_new_place(serving: Serving) -> None:
    told: list[v1.MemoryServiceWatchResponse] = []
    came, ended_quietly = threading.Event(), threading.Event()

    def watch() -> None:
        request = v1.MemoryServiceWatchRequest(user_id="alice", include_existing=True)
        for response in serving.dev.memories.Watch(request):
            told.append(response)
            came.set()
        ended_quietly.set()

    serving.dev.add("before")
    watching = threading.Thread(target=watch)
    watching.start()
    assert came.wait(PATIENCE_SECONDS)
    moved(serving)
    assert ended_quietly.wait(PATIENCE_SECONDS)
    watching.join()
    serving.dev.add("behind")
    request = v1.MemoryServiceWatchRequest(user_id="alice", resume_token=told[-1].resume_token)
    stream = serving.dev.memories.Watch(request)
    changes = next(stream).changes
    stream.cancel()
    assert [change.memory.content for change in changes] == ["behind"]


@pytest.fixture
def beside(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[Serving]]:
    """Two servers on two PostgreSQL databases, which know credentials for half a second."""
    monkeypatch.setattr(conductor, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(moving, "WAITS", moving.Waits(known_seconds=2, settled_seconds=3))
    monkeypatch.setattr(registry, "CredentialCache", partial(CredentialCache, seconds=0.5))
    urls = [postgres.create() for _ in range(2)]
    given: dict[str, Any] = {
        "listen": "127.0.0.1:0",
        "embedder": "hash",
        "shards": ",".join(urls),
        "pepper": "pepper",
    }
    with ExitStack() as stack:
        first = stack.enter_context(served(Settings(data_dir=tmp_path / "first", **given)))
        app = stack.enter_context(App(Settings(data_dir=tmp_path / "second", **given)))
        yield [first, replace(first, app=app)]
    for url in urls:
        postgres.drop(url)


def test_servers_that_share_databases_follow_a_tenant_and_read_nothing_old(beside: list[Serving]) -> None:
    first, second = beside
    home = first.admin.GetTenant(v1.GetTenantRequest(tenant_id="dev")).tenant.shard
    other = "shard-1" if home == "shard-0" else "shard-0"
    with (
        connected(first) as here,
        connected(second) as there,
        loaded(first, here, there, searches=False) as load,
        loaded(second, there, here) as also,
    ):
        assert moved(first, shard=other).to_shard == other
    assert load.failed == also.failed == []
    page = v1.ListRequest(user_id="alice", page_size=1000)
    assert {one.id for one in first.dev.memories.List(page).memories} == load.added | also.added
    shards = {one.name: one for one in first.admin.ListShards(v1.ListShardsRequest()).shards}
    assert (shards[home].memory_count, shards[home].kind) == (0, v1.SHARD_KIND_POSTGRESQL)


def test_shards_are_listed_and_told_to_platform_admins_alone(serving: Serving) -> None:
    serving.dev.add("tea", "coffee")
    shards = serving.admin.ListShards(v1.ListShardsRequest()).shards
    assert [one.name for one in shards] == [f"shard-{n}" for n in range(4)]
    assert all(one.kind == v1.SHARD_KIND_SQLITE and one.reachable for one in shards)
    assert sum(one.tenant_count for one in shards) == 1
    assert sum(one.memory_count for one in shards) == 2
    admin = serving.with_key("dev", v1.ROLE_TENANT_ADMIN)
    for rpc, request in (
        ("ListShards", v1.ListShardsRequest()),
        ("MoveTenant", v1.MoveTenantRequest(tenant_id="dev")),
        ("DrainShard", v1.DrainShardRequest(shard="shard-0")),
    ):
        with pytest.raises(grpc.RpcError) as refused:
            getattr(v1.TenantAdminServiceStub(admin.channel), rpc)(request)
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


def test_a_drained_shard_has_no_tenant_and_gets_none_until_that_is_undone(serving: Serving) -> None:
    tenants = [serving.tenant(f"tenant-{n}") for n in range(6)]
    for tenant in tenants:
        tenant.add(f"what {tenant.tenant_id} said")
    places = {one.tenant_id: one.shard for one in serving.admin.ListTenants(v1.ListTenantsRequest()).tenants}
    shard = places["tenant-0"]
    serving.admin.DeleteTenant(v1.DeleteTenantRequest(tenant_id="tenant-1"))
    request = v1.DrainShardRequest(shard=shard, request_id="drain-1")
    begun = serving.admin.DrainShard(request).operation
    assert serving.admin.DrainShard(request).operation.operation.id == begun.operation.id
    drained = ended(serving.admin, begun)
    assert drained.operation.state == v1.OPERATION_STATE_SUCCEEDED, drained
    there = [name for name, place in places.items() if place == shard]
    left = [name for name in there if name == "tenant-1"]
    assert drained.result.drain_shard.moved_count == len(there) - len(left)
    assert drained.result.drain_shard.left_count == len(left)
    for tenant in tenants:
        if tenant.tenant_id != "tenant-1":
            assert tenant.found("said") == [f"what {tenant.tenant_id} said"]
    for number in range(8):
        made = serving.admin.CreateTenant(v1.CreateTenantRequest(tenant_id=f"new-{number}")).tenant
        assert made.shard != shard
    with pytest.raises(grpc.RpcError) as refused:
        serving.admin.MoveTenant(v1.MoveTenantRequest(tenant_id="tenant-2", shard=shard))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    serving.admin.DrainShard(v1.DrainShardRequest(shard=shard, undo=True))
    assert not any(one.draining for one in serving.admin.ListShards(v1.ListShardsRequest()).shards)
    assert moved(serving, "tenant-2", shard if places["tenant-2"] != shard else "").row_count >= 0


def test_a_drain_that_is_cancelled_lets_the_shard_take_tenants_again(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = threading.Event()
    follow = moving.Mover._follow

    def waiting(self: moving.Mover, task: conductor.Task) -> None:
        if not held.is_set():
            task.report(0)
            raise conductor.Later
        follow(self, task)

    monkeypatch.setattr(moving.Mover, "_follow", waiting)
    shard = serving.admin.GetTenant(v1.GetTenantRequest(tenant_id="dev")).tenant.shard
    serving.dev.add("tea")
    begun = serving.admin.DrainShard(v1.DrainShardRequest(shard=shard)).operation
    deadline = time.monotonic() + PATIENCE_SECONDS
    asked = v1.ListTenantOperationsRequest(tenant_id="dev", open_only=True)
    while not serving.admin.ListTenantOperations(asked).operations:
        assert time.monotonic() < deadline
        time.sleep(0.01)  # between one look and the next
    serving.admin.CancelTenantOperation(v1.CancelTenantOperationRequest(operation_id=begun.operation.id))
    assert ended(serving.admin, begun).operation.state == v1.OPERATION_STATE_CANCELLED
    while serving.admin.ListTenantOperations(asked).operations:
        assert time.monotonic() < deadline
        time.sleep(0.01)  # between one look and the next
    assert serving.admin.GetTenant(v1.GetTenantRequest(tenant_id="dev")).tenant.shard == shard
    assert not any(one.draining for one in serving.admin.ListShards(v1.ListShardsRequest()).shards)
    assert serving.dev.found("tea") == ["tea"]


def test_a_tenant_is_not_moved_to_where_it_is_nor_to_nowhere(serving: Serving) -> None:
    shard = serving.admin.GetTenant(v1.GetTenantRequest(tenant_id="dev")).tenant.shard
    with pytest.raises(grpc.RpcError) as refused:
        serving.admin.MoveTenant(v1.MoveTenantRequest(tenant_id="dev", shard="shard-9"))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    begun = serving.admin.MoveTenant(v1.MoveTenantRequest(tenant_id="dev", shard=shard)).operation
    failed = ended(serving.admin, begun).operation
    assert (failed.state, failed.error.reason) == (v1.OPERATION_STATE_FAILED, v1.ERROR_REASON_INVALID_FIELD)
