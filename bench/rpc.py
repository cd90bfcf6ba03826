"""Search and Add through gRPC against a raw echo of the same message sizes, in one run, as ratios.

    python bench/rpc.py                     # Search at 100 and 1 000 memories, Add at 1 and 16 callers
    python bench/rpc.py --rows 1000 10000 --seconds 3 --pairs 7

The echo is the least that a gRPC server in Python can do: it reads a request and builds an answer of as
many bytes from Python values, 10 hits for a Search. It and the server each run in one process; the two are
measured in turn, A B A B, and the median of the pairs is printed, with the server's CPU time per call
beside it. One row of each size has ``default`` against ``semantic`` instead. The embedder is ``hash``, whose
time is next to none, so what is measured is everything else.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from contextlib import ExitStack, contextmanager
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path

import grpc
from google.protobuf.timestamp_pb2 import Timestamp

from scrubjay import connect, v1

QUERIES = 200
LOAD_SECONDS = 60
"""The first search of a large stream loads it."""
SETTLE_SECONDS = 4
IDLE_SHARE = 0.05
"""Of one core."""
WORDS = (
    *("coffee", "lisbon", "garden", "invoice", "meeting", "python", "river", "guitar", "doctor", "train"),
    *("winter", "bread", "letter", "museum", "window", "holiday", "market", "engine", "painter", "island"),
)


def sentence(n: int) -> str:
    """A text of some 60 bytes, another one for every n."""
    picked = [WORDS[(n * step + step) % len(WORDS)] for step in (1, 3, 7, 11, 13)]
    return f"note {n}: {' '.join(picked)} and more"


def new_sentence(n: int) -> str:
    """One that nobody said before, in an earlier measurement either: what is said again is not stored."""
    return f"{sentence(n)} {time.monotonic_ns()}"


@dataclass(frozen=True)
class Measured:
    """One timed stretch: calls a second, the median call, and the server's CPU time a call."""

    calls_per_second: float
    p50_ms: float
    cpu_us: float


@contextmanager
def running(command: Sequence[str], environment: dict[str, str]) -> Iterator[tuple[int, str, str]]:
    """A server as a process: its id, its address, and what it printed until it served."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | environment, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    printed = ""
    try:
        for line in process.stdout:
            printed += line
            if found := re.match(r"serving on (\S+)", line):
                yield process.pid, found[1], printed
                break
        else:
            raise RuntimeError(f"{' '.join(command)} did not start")
    finally:
        process.terminate()
        process.wait()


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def settle(pid: int) -> None:
    """Wait until a process does nothing by itself, such as building an index."""
    while True:
        before = cpu_seconds(pid)
        time.sleep(SETTLE_SECONDS)
        if cpu_seconds(pid) - before < IDLE_SHARE * SETTLE_SECONDS:
            return


def measure(pid: int, call: Callable[[int], object], callers: int, seconds: float) -> Measured:
    """Call as fast as ``callers`` threads can for ``seconds``."""
    numbers = itertools.count()
    latencies: list[float] = []
    end = time.perf_counter() + seconds

    def work() -> None:
        mine = []
        while (began := time.perf_counter()) < end:
            call(next(numbers))
            mine.append(time.perf_counter() - began)
        latencies.extend(mine)

    cpu = cpu_seconds(pid)
    began = time.perf_counter()
    threads = [threading.Thread(target=work) for _ in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed, count = time.perf_counter() - began, len(latencies)
    return Measured(
        count / elapsed, statistics.median(latencies) * 1e3, (cpu_seconds(pid) - cpu) / count * 1e6
    )


def compare(name: str, ours: Callable[[], Measured], raw: Callable[[], Measured], pairs: int) -> None:
    """Measure in turn and print one row."""
    ours()
    raw()
    found = [(ours(), raw()) for _ in range(pairs)]
    rate, p50 = (statistics.median(ratio) for ratio in zip(*map(_ratios, found), strict=True))
    mine, its = (
        [statistics.median(values) for values in zip(*map(astuple, side), strict=True)]
        for side in zip(*found, strict=True)
    )
    print(
        f"| {name} | {rate:.2f} | {p50:.2f} | {mine[2]:.0f} / {its[2]:.0f} | {mine[0]:.0f} / {its[0]:.0f} |",
        flush=True,
    )


def _ratios(pair: tuple[Measured, Measured]) -> tuple[float, float]:
    ours, raw = pair
    return ours.calls_per_second / raw.calls_per_second, ours.p50_ms / raw.p50_ms


def echo() -> None:
    """Serve answers built from values, as many bytes as the server's own answers."""

    def search(body: bytes, _context: grpc.ServicerContext) -> bytes:
        request = v1.SearchRequest.FromString(body)
        hits = [
            v1.SearchHit(
                memory=v1.Memory(
                    id="0193f0c2-a5b1-7000-8000-000000000000",
                    user_id=request.user_id,
                    scope="general",
                    category="FACT",
                    content=sentence(n),
                    confidence=1,
                    privacy_level=v1.PRIVACY_LEVEL_SHARED,
                    created_at=Timestamp(seconds=1_790_000_000, nanos=n),
                    updated_at=Timestamp(seconds=1_790_000_000, nanos=n),
                    owner_client_id="0123456789abcdef",
                    source=v1.Source(client_id="0123456789abcdef"),
                    etag="2026-11-30T08:00:00.000Z.0000",
                ),
                score=0.5,
            )
            for n in range(request.top_k)
        ]
        return v1.SearchResponse(hits=hits, recipe="default-1").SerializeToString()

    def add(body: bytes, _context: grpc.ServicerContext) -> bytes:
        request = v1.AddRequest.FromString(body)
        results = [v1.AddResult(memory=memory) for memory in request.memories]
        return v1.AddResponse(results=results, revision="x" * 90).SerializeToString()

    server = grpc.server(futures.ThreadPoolExecutor(64))
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "Search": grpc.unary_unary_rpc_method_handler(search),
        "Add": grpc.unary_unary_rpc_method_handler(add),
    }
    service = grpc.method_handlers_generic_handler("scrubjay.v1.MemoryService", handlers)
    server.add_generic_rpc_handlers((service,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(f"serving on 127.0.0.1:{port}", flush=True)
    server.wait_for_termination()


def main() -> None:
    """Start both servers, fill ours, print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rows", type=int, nargs="+", default=[100, 1000], help="memories of who is searched"
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument(
        "--embedder", default="hash", help="lite: 512 numbers, and a model's time in each Add"
    )
    parser.add_argument("--echo", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.echo:
        echo()
        return
    with ExitStack() as stack:
        ours, key = _start(stack, options.embedder)
        raw = _Side.of(stack, [sys.executable, __file__, "--echo"], {}, key)
        print("| work | calls/s ÷ echo | p50 ÷ echo | server CPU µs a call | calls/s |")
        print("|---|---|---|---|---|")
        for rows in options.rows:
            _fill(ours.stub, f"user-{rows}", rows)
            _search(ours, rows, "default", 1, 0.1)
            settle(ours.pid)
            for recipe, callers in itertools.product(("semantic", "default"), (1, 16)):
                name = f"Search, {recipe}, {rows} rows, {callers} callers"
                compare(
                    name,
                    partial(_search, ours, rows, recipe, callers, options.seconds),
                    partial(_search, raw, rows, recipe, callers, options.seconds),
                    options.pairs,
                )
            by_recipe = {
                recipe: partial(_search, ours, rows, recipe, 1, options.seconds)
                for recipe in ("default", "semantic")
            }
            name = f"Search, default ÷ semantic, {rows} rows, 1 caller"
            compare(name, by_recipe["default"], by_recipe["semantic"], options.pairs)
        for callers in (1, 16):
            compare(
                f"Add one, durable, {callers} callers",
                partial(_add, ours, callers, options.seconds),
                partial(_add, raw, callers, options.seconds),
                options.pairs,
            )


@dataclass(frozen=True)
class _Side:
    """One of the two servers: its process and a stub to it."""

    pid: int
    stub: v1.MemoryServiceStub

    @classmethod
    def of(cls, stack: ExitStack, command: Sequence[str], environment: dict[str, str], key: str) -> _Side:
        pid, address, _ = stack.enter_context(running(command, environment))
        return cls(pid, _stub(stack, address, key))


def _stub(stack: ExitStack, address: str, key: str) -> v1.MemoryServiceStub:
    return v1.MemoryServiceStub(stack.enter_context(connect(address, key, deadline_seconds=LOAD_SECONDS)))


def _start(stack: ExitStack, embedder: str) -> tuple[_Side, str]:
    environment = {
        "SCRUBJAY_LISTEN": "127.0.0.1:0",
        "SCRUBJAY_DATA_DIR": stack.enter_context(tempfile.TemporaryDirectory()),
        "SCRUBJAY_EMBEDDER": embedder,
    }
    pid, address, printed = stack.enter_context(
        running([sys.executable, "-m", "server", "serve"], environment)
    )
    key = re.search(r"service key:\s+(\S+)", printed)
    assert key is not None
    return _Side(pid, _stub(stack, address, key[1])), key[1]


def _search(side: _Side, rows: int, recipe: str, callers: int, seconds: float) -> Measured:
    requests = [
        v1.SearchRequest(user_id=f"user-{rows}", query=sentence(n), top_k=10, recipe=recipe)
        for n in range(QUERIES)
    ]
    return measure(side.pid, lambda n: side.stub.Search(requests[n % QUERIES]), callers, seconds)


def _add(side: _Side, callers: int, seconds: float) -> Measured:
    return measure(side.pid, lambda n: side.stub.Add(_one(n)), callers, seconds)


def _one(n: int) -> v1.AddRequest:
    return v1.AddRequest(memories=[v1.Memory(user_id=f"writer-{n % 100}", content=new_sentence(n))])


def _fill(stub: v1.MemoryServiceStub, user_id: str, rows: int) -> None:
    for at in range(0, rows, 100):
        memories = [v1.Memory(user_id=user_id, content=sentence(n)) for n in range(at, min(at + 100, rows))]
        stub.Add(v1.AddRequest(memories=memories, dedup=v1.DEDUP_OFF))


if __name__ == "__main__":
    main()
