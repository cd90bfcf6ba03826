"""A tenant that moves between two shards to and fro while it is read, written and synchronized.

    python bench/moving.py                          # 20 000 memories, 10 moves, two SQLite files
    python bench/moving.py --rows 2000 --moves 30
    python bench/moving.py --shards postgresql:///a postgresql:///b

The server is a process of its own. Two callers add, one edits and deletes, two search, and two devices
synchronize by themselves and write; no caller tries anything twice. Printed are: calls that failed, and
errors that devices told of; for how long a move kept writers waiting, as the server saw it, and the slowest
write of any caller in each move, beside the slowest in as much time without a move; how long a move takes for
1 000 memories; and whether the devices hold in the end what the server does.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import grpc
from google.protobuf.field_mask_pb2 import FieldMask

from client_sync import Remote, Replica, synchronize
from client_sync.background import BackgroundSync
from demo.local_server import LocalServer, local_server
from rpc import new_sentence, sentence
from scrubjay import connect, v1

USER = "alice"
WAIT_SECONDS = 600
DEVICE_WRITES_EVERY_SECONDS = 0.25
PAUSE_SECONDS = 0.005
"""Between two calls of a caller: five callers leave a machine of two processors some room."""


@dataclass
class Load:
    """Callers that go on until told to end, the time each of their writes took, and what failed."""

    server: LocalServer
    failed: list[str] = field(default_factory=list)
    writes: list[tuple[float, float]] = field(default_factory=list)
    calls: int = 0
    over: threading.Event = field(default_factory=threading.Event)

    def forever(self, call: Callable[[v1.MemoryServiceStub, int], None], *, writes: bool) -> None:
        """Call again and again, each call once."""
        with grpc.insecure_channel(self.server.address) as channel:
            stub = _Keyed(v1.MemoryServiceStub(channel), self.server.service_key)
            memories = cast("v1.MemoryServiceStub", stub)
            for n in itertools.count():
                if self.over.wait(PAUSE_SECONDS):
                    return
                began = time.monotonic()
                try:
                    call(memories, n)
                except grpc.RpcError as error:
                    self.failed.append(f"{error.code().name}: {error.details()}")
                self.calls += 1
                if writes:
                    self.writes.append((began, time.monotonic() - began))

    def slowest(self, began: float, ended: float) -> float:
        """Of the writes that were under way in that time."""
        return max((took for at, took in self.writes if at < ended and at + took > began), default=0.0)


class _Keyed:
    """A stub whose calls carry a key."""

    def __init__(self, stub: v1.MemoryServiceStub, key: str) -> None:
        self._stub = stub
        self._metadata = (("authorization", f"Bearer {key}"),)

    def __getattr__(self, rpc: str) -> Any:
        return partial(getattr(self._stub, rpc), metadata=self._metadata)


def add(memories: v1.MemoryServiceStub, _n: int) -> None:
    """Add one memory that nobody added before."""
    one = v1.Memory(user_id=USER, content=new_sentence(int.from_bytes(os.urandom(4), "big")))
    memories.Add(v1.AddRequest(memories=[one], dedup=v1.DEDUP_OFF))


def edit_and_delete(memories: v1.MemoryServiceStub, n: int) -> None:
    """Add one, change it, and delete every second."""
    one = v1.Memory(user_id=USER, content=new_sentence(int.from_bytes(os.urandom(4), "big")))
    added = memories.Add(v1.AddRequest(memories=[one], dedup=v1.DEDUP_OFF)).results[0].memory
    edited = v1.Memory(id=added.id, category="TASK")
    memories.Update(v1.UpdateRequest(memory=edited, update_mask=FieldMask(paths=["category"])))
    if n % 2:
        memories.Delete(v1.DeleteRequest(id=added.id))


def search(memories: v1.MemoryServiceStub, n: int) -> None:
    """Search for what nobody asked before; there are always hits."""
    found = memories.Search(v1.SearchRequest(user_id=USER, query=f"{sentence(n)} {n}", top_k=10))
    if len(found.hits) < 10:
        raise AssertionError(f"{len(found.hits)} hits of 10")


CALLERS = ((add, True), (add, True), (edit_and_delete, True), (search, False), (search, False))


@contextmanager
def loaded(server: LocalServer) -> Iterator[Load]:
    """All callers, for the block."""
    load = Load(server)
    with ThreadPoolExecutor(len(CALLERS)) as pool:
        running = [pool.submit(load.forever, call, writes=writes) for call, writes in CALLERS]
        try:
            yield load
        finally:
            load.over.set()
    for one in running:
        one.result()


@contextmanager
def device(
    server: LocalServer,
    admin: v1.TenantAdminServiceStub,
    folder: Path,
    name: str,
    errors: list[str],
    over: threading.Event,
) -> Iterator[tuple[Replica, Remote]]:
    """A device that synchronizes by itself, with a thread that writes on it now and then until ``over``."""
    request = v1.CreateEnrolmentRequest(tenant_id="dev", user_id=USER, display_name=name)
    code = admin.CreateEnrolment(request).enrolment_code
    credentials = Remote.register(server.address, code, installation_id=os.urandom(16))
    credentials = credentials.save(folder / f"{name}.json")

    def write() -> None:
        for n in itertools.count():
            if over.wait(DEVICE_WRITES_EVERY_SECONDS):
                return
            replica.add(f"{name} noted {n}: {new_sentence(int.from_bytes(os.urandom(4), 'big'))}")

    with (
        Replica.create(folder / f"{name}.db", credentials.identity) as replica,
        Remote(server.address, credentials) as remote,
    ):
        synchronize(replica, remote)
        writer = threading.Thread(target=write)
        told = lambda error: errors.append(f"{name}: {error!r}")  # noqa: E731 - named where it is used
        with BackgroundSync(replica, remote, on_change=lambda _: None, on_error=told):
            writer.start()
            try:
                yield replica, remote
            finally:
                over.set()
                writer.join()


@dataclass(frozen=True)
class Move:
    """What a move took: the whole until the tenant was in its new place, and the pause of its writers."""

    began: float
    switched: float
    pause_millis: int


def move(admin: v1.TenantAdminServiceStub, shard: str) -> Move:
    """Move the tenant, and wait for the end."""
    began, switched = time.monotonic(), 0.0
    asked = v1.MoveTenantRequest(tenant_id="dev", shard=shard)
    operation = admin.MoveTenant(asked).operation
    wait = v1.WaitTenantOperationRequest(operation_id=operation.operation.id)
    wait.timeout.FromMilliseconds(20)
    while not operation.operation.HasField("ended_at"):
        operation = admin.WaitTenantOperation(wait).operation
        if not switched and operation.operation.phase in ("settle", "sweep", ""):
            switched = time.monotonic()
    if operation.operation.state != v1.OPERATION_STATE_SUCCEEDED:
        raise AssertionError(operation)
    return Move(began, switched, operation.result.move_tenant.write_pause_millis)


def fill(memories: v1.MemoryServiceStub, rows: int) -> None:
    """Add memories of usual size, 100 to a call from four callers."""

    def add_some(at: int) -> None:
        many = [v1.Memory(user_id=USER, content=sentence(n)) for n in range(at, min(at + 100, rows))]
        memories.Add(v1.AddRequest(memories=many, dedup=v1.DEDUP_OFF))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add_some, range(0, rows, 100)))


def held(replica: Replica, remote: Remote) -> set[str]:
    """What a device holds, once it is level with the server."""
    while synchronize(replica, remote).changed:
        pass
    found, before = set[str](), None
    while page := replica.list(limit=1000, before=before):
        found |= {one.id for one in page}
        before = page[-1].created_at, page[-1].id
    return found


def stored(memories: v1.MemoryServiceStub) -> set[str]:
    """What the server holds."""
    found, request = set[str](), v1.ListRequest(user_id=USER, page_size=1000)
    while True:
        page = memories.List(request)
        found |= {one.id for one in page.memories}
        if not page.next_page_token:
            return found
        request.page_token = page.next_page_token


def are_same(replicas: Sequence[tuple[Replica, Remote]], memories: v1.MemoryServiceStub) -> bool:
    """Whether every device holds what the server does, once each has sent what it wrote."""
    for replica, remote in replicas:
        synchronize(replica, remote)
    there = stored(memories)
    return all(held(replica, remote) == there for replica, remote in replicas)


def in_words(millis: Sequence[float]) -> str:
    """Median, 99th percentile and most."""
    ordered = sorted(millis)
    p99 = ordered[min(len(ordered) - 1, -(-len(ordered) * 99 // 100) - 1)]
    return f"median {statistics.median(ordered):.0f} ms, p99 {p99:.0f} ms, most {ordered[-1]:.0f} ms"


def run(server: LocalServer, rows: int, moves: int, stack: ExitStack) -> None:
    """Fill, move to and fro under load, print."""
    folder, errors = Path(stack.enter_context(tempfile.TemporaryDirectory())), list[str]()
    over = threading.Event()
    admin = v1.TenantAdminServiceStub(stack.enter_context(connect(server.address, server.admin_key)))
    memories = v1.MemoryServiceStub(stack.enter_context(connect(server.address, server.service_key)))
    fill(memories, rows)
    home = admin.GetTenant(v1.GetTenantRequest(tenant_id="dev")).tenant.shard
    other = next(one.name for one in admin.ListShards(v1.ListShardsRequest()).shards if one.name != home)
    with ExitStack() as devices:
        opened = [device(server, admin, folder, name, errors, over) for name in ("phone", "laptop")]
        replicas = [devices.enter_context(one) for one in opened]
        with loaded(server) as load:
            time.sleep(2)
            made, calm = list[Move](), list[float]()
            for shard in itertools.islice(itertools.cycle((other, home)), moves):
                made.append(move(admin, shard))
                began = time.monotonic()
                time.sleep(max(1.0, made[-1].switched - made[-1].began))
                calm.append(1000 * load.slowest(began, time.monotonic()))
        over.set()
        same = are_same(replicas, memories)
    slowest = [1000 * load.slowest(one.began, one.switched) for one in made]
    there = stored(memories)
    print(f"{len(there)} memories, {moves} moves, {load.calls} calls, {len(load.writes)} of them writes")
    print(
        f"failed calls: {len(load.failed)} {load.failed[:3]}; errors of devices: {len(errors)} {errors[:3]}"
    )
    print(f"writers waited:            {in_words([one.pause_millis for one in made])}")
    print(f"slowest write in a move:   {in_words(slowest)}")
    print(f"slowest write without one: {in_words(calm)}")
    seconds = statistics.median(one.switched - one.began for one in made)
    print(f"a move takes {seconds / len(there) * 1000:.2f} s for 1 000 memories, {seconds:.1f} s in all")
    print(f"devices hold what the server does: {same}")


def main() -> None:
    """Start a server, run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=20_000, help="memories of the tenant")
    parser.add_argument("--moves", type=int, default=10)
    parser.add_argument("--shards", nargs=2, metavar="URL", help="two databases; SQLite files by default")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        urls = options.shards or [f"sqlite:///{folder}/{name}.db" for name in ("one", "two")]
        server = stack.enter_context(local_server("hash", {"SCRUBJAY_SHARDS": ",".join(urls)}))
        run(server, options.rows, options.moves, stack)


if __name__ == "__main__":
    main()
