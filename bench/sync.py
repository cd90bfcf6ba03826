"""Sync through gRPC, to a real device file, against the limits of the same run, as ratios.

    python bench/sync.py                       # 100 000 memories to load, 500 000 rows to change one among
    python bench/sync.py --rows 20000 --present 100000 --pairs 3
    python bench/sync.py a-to-b first-load     # these alone

* First load: a replica loads everything, by snapshot and by pages. The limit is a raw gRPC stream of the
  same rows, 1 000 a message and compressed alike, decoded and inserted into the same table. In turn,
  A B A B; medians. The processor's time, of device and server together, stands beside it.
* One change, one removal: the time a replica takes to apply a page of one change, many rows present.
* Push: operations made offline, in full batches, until they are answered.
* A to B: from a write on one device until another one reads it, both on Watch.
* Bytes: what one more change adds to a page, and what an idle sync sends each way, as encoded messages.
* Slow line: 10 000 operations over 1 Mbit/s and 200 ms there and back, through a relay that delays.
"""

from __future__ import annotations

import argparse
import os
import re
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import grpc
from google.protobuf.field_mask_pb2 import FieldMask

from client_sync import Remote, Replica, synchronize
from client_sync.background import BackgroundSync
from client_sync.credentials import DeviceCredentials
from client_sync.exchange import apply_response, next_request, page_of
from client_sync.sync import SyncReport
from rpc import cpu_seconds, new_sentence, running, sentence
from scrubjay import connect, v1
from scrubjay.feed import MAX_CHANGES, pack, seal_page, whole
from scrubjay.memory import MemoryId, id_text
from scrubjay.stamp import CommitStamp
from tests.fault.proxy import Fault, Proxy, Way

USER = "alice"
STREAMED = "/bench.Raw/Rows"


@dataclass(frozen=True)
class Server:
    """The server that is measured: where it is, its process, and a backend's and an admin's stub to it."""

    address: str
    pid: int
    memories: v1.MemoryServiceStub
    admin: v1.TenantAdminServiceStub

    def register(self, user_id: str, name: str) -> DeviceCredentials:
        """What a new device of a user calls with."""
        request = v1.CreateEnrolmentRequest(tenant_id="dev", user_id=user_id, display_name=name)
        code = self.admin.CreateEnrolment(request).enrolment_code
        return Remote.register(self.address, code, installation_id=os.urandom(16))

    @contextmanager
    def device(self, folder: Path, name: str, through: str = "") -> Iterator[tuple[Replica, Remote]]:
        """A new device's empty replica, and its remote, perhaps ``through`` another address."""
        credentials = self.register(USER, name).save(folder / f"{name}.json")
        with (
            Replica.create(folder / f"{name}.db", credentials.identity) as replica,
            Remote(through or self.address, credentials) as remote,
        ):
            yield replica, remote


def started(stack: ExitStack, folder: Path, **settings: str) -> Server:
    """A server with the hash embedder: what is measured is everything but the model. ``settings`` go to its
    environment."""
    environment = {
        "SCRUBJAY_LISTEN": "127.0.0.1:0",
        "SCRUBJAY_DATA_DIR": str(folder / "data"),
        "SCRUBJAY_EMBEDDER": "hash",
        **settings,
    }
    command = [sys.executable, "-m", "server", "serve"]
    pid, address, printed = stack.enter_context(running(command, environment))
    service, admin = (
        stack.enter_context(connect(address, found[1]))
        for found in (re.search(rf"{name} key:\s+(\S+)", printed) for name in ("service", "platform admin"))
        if found is not None
    )
    return Server(address, pid, v1.MemoryServiceStub(service), v1.TenantAdminServiceStub(admin))


def fill(server: Server, rows: int) -> None:
    """Add memories of usual size, 100 to a call from four callers."""

    def add(at: int) -> None:
        memories = [v1.Memory(user_id=USER, content=sentence(n)) for n in range(at, min(at + 100, rows))]
        server.memories.Add(v1.AddRequest(memories=memories, dedup=v1.DEDUP_OFF))

    with futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(0, rows, 100)))


# --- first load ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Took:
    """What something took: seconds, and the processor's, of this process and the server's."""

    seconds: float
    cpu_seconds: float


def timed(server: Server, work: Callable[[], None]) -> Took:
    """What ``work`` takes."""
    began, used = time.perf_counter(), time.process_time() + cpu_seconds(server.pid)
    work()
    seconds = time.perf_counter() - began
    return Took(seconds, time.process_time() + cpu_seconds(server.pid) - used)


def load_by_snapshot(server: Server, folder: Path, name: str) -> Took:
    """A whole first load."""
    with server.device(folder, name) as (replica, remote):
        return timed(server, lambda: synchronize(replica, remote))


def load_by_pages(server: Server, folder: Path, name: str) -> Took:
    """A first load by pages alone."""

    def load() -> None:
        more = True
        while more:
            request = next_request(replica)
            response = remote.sync(request)
            apply_response(replica, request, response)
            more = response.more

    with server.device(folder, name) as (replica, remote):
        return timed(server, load)


def newest_readable(server: Server, folder: Path, name: str) -> float:
    """Seconds from the start of a first load until 1 000 memories can be read."""
    with server.device(folder, name) as (replica, remote):
        began = time.perf_counter()
        loading = threading.Thread(target=synchronize, args=(replica, remote))
        loading.start()
        while replica.status().memories < min(MAX_CHANGES, 1000):
            time.sleep(0.002)  # a poll of the file, as an app would
        seconds = time.perf_counter() - began
        loading.join()
        return seconds


class RawStream:
    """The limit: the same rows, 1 000 to a message, streamed, decoded and inserted."""

    def __init__(self, stack: ExitStack, replica: Replica) -> None:
        with replica.file.reading() as sql:
            rows = sql.execute("SELECT id, commit_stamp, message, field_stamps FROM rows").fetchall()
            kinds = "SELECT sql FROM sqlite_schema WHERE tbl_name = 'rows' AND sql IS NOT NULL"
            self._tables = [statement for (statement,) in sql.execute(kinds)]
        subject = replica.identity.subject
        self._pages = [
            pack(
                seal_page(
                    [
                        (MemoryId(id_text(key)), CommitStamp(stamp), whole(message, stamps, subject))
                        for key, stamp, message, stamps in rows[at : at + MAX_CHANGES]
                    ]
                )
            )
            for at in range(0, len(rows), MAX_CHANGES)
        ]
        server = grpc.server(futures.ThreadPoolExecutor(2))
        handler = grpc.unary_stream_rpc_method_handler(self._rows)
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("bench.Raw", {"Rows": handler}),)
        )
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        stack.callback(lambda: server.stop(None).wait())
        self._channel = stack.enter_context(grpc.insecure_channel(f"127.0.0.1:{port}"))

    def _rows(self, _body: bytes, _context: grpc.ServicerContext) -> Iterator[bytes]:
        yield from self._pages

    def load(self, path: Path) -> None:
        """Take all rows into a bare table."""
        sql = sqlite3.connect(path, isolation_level=None)
        sql.execute("PRAGMA journal_mode = WAL")
        sql.execute("PRAGMA synchronous = NORMAL")
        for statement in self._tables:
            sql.execute(statement)
        for body in self._channel.unary_stream(STREAMED)(b""):
            sql.execute("BEGIN")
            sql.executemany(
                "INSERT INTO rows VALUES (?, ?, ?, ?, ?, NULL)",
                [
                    (
                        change.memory_id,
                        change.commit_stamp,
                        change.memory.created_at.seconds,
                        change.memory.SerializeToString(),
                        change.field_stamps,
                    )
                    for change in v1.Page.FromString(zlib.decompress(body)).changes
                ],
            )
            sql.execute("COMMIT")
        sql.close()


def first_load(server: Server, folder: Path, rows: int, pairs: int) -> None:
    """Print the rows of the first load."""
    fill(server, rows)
    with ExitStack() as stack:
        with server.device(folder, "template") as (replica, remote):
            synchronize(replica, remote)
            raw = RawStream(stack, replica)
        _first_load(server, folder, raw, rows, pairs)


def _first_load(server: Server, folder: Path, raw: RawStream, rows: int, pairs: int) -> None:
    ours: dict[str, list[Took]] = {"by snapshot": [], "by pages": []}
    limit = []
    for pair in range(pairs):
        limit.append(timed(server, partial(raw.load, folder / f"raw-{pair}.db")))
        ours["by snapshot"].append(load_by_snapshot(server, folder, f"snapshot-{pair}"))
        ours["by pages"].append(load_by_pages(server, folder, f"pages-{pair}"))
    for name, found in ours.items():
        pairs_of = list(zip(limit, found, strict=True))
        ratio = statistics.median(one.seconds / mine.seconds for one, mine in pairs_of)
        cpu_ratio = statistics.median(one.cpu_seconds / mine.cpu_seconds for one, mine in pairs_of)
        seconds = statistics.median(mine.seconds for mine in found)
        print(
            f"first load of {rows} {name} ÷ raw stream + decode + insert: "
            f"{ratio:.2f}, of the processor's time {cpu_ratio:.2f} ({rows / seconds:.0f} rows/s)"
        )
    both = zip(ours["by snapshot"], ours["by pages"], strict=True)
    print(
        f"first load by snapshot ÷ by pages: {statistics.median(b.seconds / a.seconds for a, b in both):.1f}"
    )
    newest = [newest_readable(server, folder, f"newest-{pair}") for pair in range(pairs)]
    print(f"newest 1 000 readable: {statistics.median(newest) * 1e3:.0f} ms", flush=True)


# --- what comes after ------------------------------------------------------------------------------


def multiply(replica: Replica, present: int) -> None:
    """Fill the file up to ``present`` rows with copies under other ids; the server knows none of them."""
    with replica.file.transaction(durable=False) as sql:
        (count,) = sql.execute("SELECT count(*) FROM rows").fetchone()
        while count < present:
            sql.execute(
                "INSERT INTO rows SELECT randomblob(16), commit_stamp, created_at, message, field_stamps,"
                " terms FROM rows LIMIT ?",
                (present - count,),
            )
            (count,) = sql.execute("SELECT count(*) FROM rows").fetchone()


def one_change(server: Server, folder: Path, present: int) -> None:
    """Print how long one change and one removal take to apply."""
    fill(server, 1000)
    changes, removals = [], []
    with server.device(folder, "present") as (replica, remote):
        synchronize(replica, remote)
        multiply(replica, present)
        for n in range(40):
            added = server.memories.Add(
                v1.AddRequest(memories=[v1.Memory(user_id=USER, content=sentence(-n))], dedup=v1.DEDUP_OFF)
            )
            memory_id = added.results[0].memory.id
            changes.append(_applied(replica, remote))
            server.memories.Delete(v1.DeleteRequest(id=memory_id))
            removals.append(_applied(replica, remote))
    for name, found in (("change", changes), ("removal", removals)):
        print(f"one {name} applied with {present} rows present: p50 {statistics.median(found) * 1e3:.2f} ms")
    sys.stdout.flush()


def _applied(replica: Replica, remote: Remote) -> float:
    request = next_request(replica)
    response = remote.sync(request)
    assert len(page_of(response)) == 1
    began = time.perf_counter()
    apply_response(replica, request, response)
    return time.perf_counter() - began


def taken(server: Server, folder: Path, count: int) -> None:
    """Print how fast the server takes operations, the device's own work left out."""
    with server.device(folder, "taken") as (replica, remote):
        synchronize(replica, remote)
        memories = [replica.add(new_sentence(n)) for n in range(count)]
        creates = _sent(replica, remote)
        for memory in memories:
            replica.update(memory.id, {"tags.seen": True})
        edits = _sent(replica, remote)
    for name, seconds in (("creates, with the hash embedder", creates), ("edits of a tag", edits)):
        print(f"operations of one stream taken in full batches, {name}: {count / seconds:.0f}/s", flush=True)


def _sent(replica: Replica, remote: Remote) -> float:
    """Send everything that waits; the seconds that the calls took."""
    seconds = 0.0
    while (request := next_request(replica)).HasField("batch") or request.packed_batch:
        began = time.perf_counter()
        response = remote.sync(request)
        seconds += time.perf_counter() - began
        apply_response(replica, request, response)
    return seconds


def push(server: Server, folder: Path, count: int) -> None:
    """Print how fast operations made offline are taken, and what the device does for it."""
    with server.device(folder, "pusher") as (replica, remote):
        synchronize(replica, remote)
        for n in range(count):
            replica.add(new_sentence(n))
        began, used = time.perf_counter(), time.process_time()
        report = synchronize(replica, remote)
        seconds, cpu_micros = time.perf_counter() - began, (time.process_time() - used) * 1e6
    assert report.pushed == count
    print(
        f"push of {count} operations of one stream: {count / seconds:.0f} operations/s, "
        f"{cpu_micros / count:.0f} µs of the device's processor time each",
        flush=True,
    )


def from_a_to_b(server: Server, folder: Path, writes: int) -> None:
    """Print how long a write on one device takes to be readable on another."""
    arrived: dict[str, float] = {}
    wanted = threading.Condition()

    def note(report: SyncReport) -> None:
        now = time.perf_counter()
        with wanted:
            arrived.update(dict.fromkeys(report.changed, now))
            wanted.notify_all()

    with ExitStack() as stack:
        sides = []
        for name, listener in (("writer", lambda _report: None), ("reader", note)):
            replica, remote = stack.enter_context(server.device(folder, name))
            synchronize(replica, remote)
            background = BackgroundSync(replica, remote, on_change=listener)
            background.start()
            stack.callback(background.stop)
            sides.append(replica)
        time.sleep(1)  # both streams are open then
        took = []
        for n in range(writes):
            began = time.perf_counter()
            memory = sides[0].add(new_sentence(n))
            with wanted:
                assert wanted.wait_for(lambda wanted_id=memory.id: wanted_id in arrived, timeout=10)
            assert sides[1].get(memory.id) == memory
            took.append(arrived[memory.id] - began)
    took.sort()
    p50, p99 = took[len(took) // 2], took[int(len(took) * 0.99)]
    print(
        f"write on A to readable on B, both on Watch: p50 {p50 * 1e3:.1f} ms, p99 {p99 * 1e3:.1f} ms",
        flush=True,
    )


def sizes(server: Server, folder: Path) -> None:
    """Print what changes and idle syncs cost in bytes."""
    with server.device(folder, "sizes") as (replica, remote):
        synchronize(replica, remote)
        texts = [sentence(n) for n in range(100)]
        memories = [v1.Memory(user_id=USER, content=text) for text in texts]
        results = server.memories.Add(v1.AddRequest(memories=memories, dedup=v1.DEDUP_OFF)).results
        request = next_request(replica)
        response = remote.sync(request)
        beyond = (
            len(response.packed_page) / 100
            - len(pack(v1.Batch(operations=[t.encode() for t in texts]))) / 100
        )
        plain = (
            sum(change.ByteSize() + 2 - len(change.memory.content) for _, _, change in page_of(response))
            / 100
        )
        apply_response(replica, request, response)
        print(
            f"a new memory in a page of 100, beyond its text: {beyond:.0f} bytes "
            f"({plain:.0f} before compression)"
        )
        for result in results:
            server.memories.Update(_pinned(result.memory.id))
        request = next_request(replica)
        response = remote.sync(request)
        apply_response(replica, request, response)
        print(f"a change of one field in a page of 100: {len(response.packed_page) / 100:.0f} bytes")
        request = next_request(replica)
        response = remote.sync(request)
        print(f"an idle sync: {request.ByteSize()} bytes up, {response.ByteSize()} down", flush=True)


def _pinned(memory_id: str) -> v1.UpdateRequest:
    return v1.UpdateRequest(
        memory=v1.Memory(id=memory_id, pinned=True), update_mask=FieldMask(paths=["pinned"])
    )


def slow_line(server: Server, folder: Path, count: int) -> None:
    """Print how long operations made offline take over a slow line, and their bytes on it."""
    slow = Fault(delay_seconds=0.1, bits_per_second=1e6)
    with Proxy(server.address, folder / "line") as proxy:
        line = proxy.line("phone", lambda _number: slow)
        with server.device(folder, "phone", through=line.address) as (replica, remote):
            synchronize(replica, remote)
            for n in range(count):
                replica.add(new_sentence(n))
            before = line.bytes_passed(Way.UP)
            began = time.perf_counter()
            synchronize(replica, remote)
            seconds = time.perf_counter() - began
            sent = line.bytes_passed(Way.UP) - before
    print(f"{count} operations over 1 Mbit/s and 200 ms: {seconds:.1f} s, {sent / 1e6:.2f} MB up", flush=True)


WORKS: dict[str, Callable[[Server, Path, argparse.Namespace], None]] = {
    "a-to-b": lambda server, folder, options: from_a_to_b(server, folder, options.writes),
    "bytes": lambda server, folder, _options: sizes(server, folder),
    "taken": lambda server, folder, options: taken(server, folder, options.operations),
    "push": lambda server, folder, options: push(server, folder, options.operations),
    "slow-line": lambda server, folder, options: slow_line(server, folder, options.operations),
    "first-load": lambda server, folder, options: first_load(server, folder, options.rows, options.pairs),
    "one-change": lambda server, folder, options: one_change(server, folder, options.present),
}


def main() -> None:
    """Start a server, fill it, print every row."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("works", nargs="*", metavar="work", help=f"of {', '.join(WORKS)}; all by default")
    parser.add_argument("--rows", type=int, default=100_000, help="memories of a first load")
    parser.add_argument("--present", type=int, default=500_000, help="rows of the file that one change meets")
    parser.add_argument("--operations", type=int, default=10_000, help="made offline, then pushed")
    parser.add_argument("--writes", type=int, default=200, help="from A to B")
    parser.add_argument("--pairs", type=int, default=5)
    options = parser.parse_args()
    if unknown := set(options.works) - set(WORKS):
        parser.error(f"no such work: {', '.join(sorted(unknown))}")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = started(stack, folder)
        for name, work in WORKS.items():
            if not options.works or name in options.works:
                work(server, folder, options)


if __name__ == "__main__":
    main()
