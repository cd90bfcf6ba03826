"""A quiet tenant's calls alone, and beside a tenant that floods the server from 64 callers, in one run.

    python bench/fairness.py                    # the embedder hash
    python bench/fairness.py --embedder lite --seconds 5 search-beside-add-100

The server, the flood and the quiet tenant are a process each. Two kinds of rounds are made in turn, A B A B:
the quiet tenant calls from one caller, without and with the flood, which makes the same kind of call, or adds
100 memories a call, which is work for the embedder. Printed are the median and the 95th percentile of the
quiet tenant's calls, and how many of its and the flood's calls were refused. There is one shard, so that both
tenants wait for one another's commits.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc

from demo.local_server import LocalServer, local_server
from rpc import new_sentence
from scrubjay import connect, v1

CALLERS = 64
ROUNDS = 4
WARM_UP = 20
SETTLE_SECONDS = 1.0
FLOOD_SECONDS = 120.0
"""64 callers that add 100 memories each wait for the embedder as long as 6 400 texts take."""
RISE_SECONDS = 0.5
"""Until all callers of the flood wait for answers."""
SPAWNED = multiprocessing.get_context("spawn")

Call = Callable[[v1.MemoryServiceStub, int], object]


def add(memories: v1.MemoryServiceStub, n: int) -> None:
    """Add one memory as it is."""
    one = v1.Memory(user_id=f"user-{n % 50}", content=f"note {n}: bread, a letter and the garden")
    memories.Add(v1.AddRequest(memories=[one], dedup=v1.DEDUP_OFF))


def search(memories: v1.MemoryServiceStub, n: int) -> None:
    """Search for what nobody asked before."""
    memories.Search(v1.SearchRequest(user_id=f"user-{n % 50}", query=f"a letter about garden {n}"))


def add_100(memories: v1.MemoryServiceStub, n: int) -> None:
    """Add 100 memories that nobody added before."""
    many = [v1.Memory(user_id=f"user-{n % 50}", content=new_sentence(100 * n + one)) for one in range(100)]
    memories.Add(v1.AddRequest(memories=many, dedup=v1.DEDUP_OFF))


PAIRS = {"add": (add, add), "search": (search, search), "search-beside-add-100": (search, add_100)}
"""What the quiet tenant calls, and the flood."""


class Calls:
    """Calls of one tenant: how long those took that were answered, and how many were refused."""

    def __init__(self, memories: v1.MemoryServiceStub, numbers: Iterator[int]) -> None:
        self._memories, self._numbers = memories, numbers
        self.milliseconds: list[float] = []
        self.refused = 0

    def make(self, call: Call) -> None:
        """Make one call."""
        began = time.perf_counter()
        try:
            call(self._memories, next(self._numbers))
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise
            self.refused += 1
        else:
            self.milliseconds.append((time.perf_counter() - began) * 1e3)

    def make_for(self, seconds: float, call: Call) -> None:
        """Make calls one after the other for so long."""
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            self.make(call)

    def __str__(self) -> str:
        p50, p95 = statistics.median(self.milliseconds), statistics.quantiles(self.milliseconds, n=20)[-1]
        return f"{p50:.1f}; {p95:.1f}"


@dataclass(frozen=True)
class Flood:
    """A process that floods while ``on`` is set, so that only the server is what both tenants share."""

    on: Any = field(default_factory=SPAWNED.Event)
    over: Any = field(default_factory=SPAWNED.Event)
    answered: Any = field(default_factory=lambda: SPAWNED.Value("q"))
    refused: Any = field(default_factory=lambda: SPAWNED.Value("q"))

    def run(self, address: str, key: str, call: Call) -> None:
        """Flood from many callers until it is over."""
        numbers = itertools.count()
        with (
            connect(address, key, deadline_seconds=FLOOD_SECONDS) as channel,
            ThreadPoolExecutor(CALLERS) as pool,
        ):
            calls = Calls(v1.MemoryServiceStub(channel), numbers)

            def caller() -> None:
                while not self.over.is_set():
                    if self.on.wait(0.1):
                        calls.make(call)

            for one in [pool.submit(caller) for _ in range(CALLERS)]:
                one.result()
        self.answered.value, self.refused.value = len(calls.milliseconds), calls.refused


@contextmanager
def flood_of(address: str, key: str, call: Call) -> Iterator[Flood]:
    """A process that is ready to flood, for the block."""
    flood = Flood()
    process = SPAWNED.Process(target=flood.run, args=(address, key, call))
    process.start()
    try:
        yield flood
    finally:
        flood.over.set()
        process.join()


def measure(
    server: LocalServer,
    quiet: v1.MemoryServiceStub,
    pair: tuple[Call, Call],
    seconds: float,
    numbers: Iterator[int],
) -> tuple[Calls, Calls, Flood]:
    """The quiet tenant's calls alone, those beside the flood, and the flood."""
    call, flooding = pair
    alone, beside = Calls(quiet, numbers), Calls(quiet, numbers)
    with flood_of(server.address, server.service_key, flooding) as flood:
        for _ in range(ROUNDS):
            alone.make_for(seconds, call)
            flood.on.set()
            time.sleep(RISE_SECONDS)
            beside.make_for(seconds, call)
            flood.on.clear()
            time.sleep(SETTLE_SECONDS)
    return alone, beside, flood


def row(name: str, alone: Calls, beside: Calls, flood: Flood, seconds: float) -> str:
    """What is printed of a pair."""
    ratio = statistics.median(beside.milliseconds) / statistics.median(alone.milliseconds)
    rate = flood.answered.value / (ROUNDS * (seconds + RISE_SECONDS))
    refused = f"{alone.refused + beside.refused}; {flood.refused.value}"
    return f"| {name} | {alone} | {beside} | {ratio:.1f} | {refused} | {rate:.0f} |"


def main() -> None:
    """Print a row for each kind of call."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", nargs="*", default=[*PAIRS], help=", ".join(PAIRS))
    parser.add_argument("--seconds", type=float, default=2.0, help="of a round")
    parser.add_argument("--embedder", default="hash")
    options = parser.parse_args()
    numbers = itertools.count()
    with (
        tempfile.TemporaryDirectory() as folder,
        local_server(options.embedder, {"SCRUBJAY_SHARDS": f"sqlite:///{folder}/shard.db"}) as server,
        connect(server.address, server.admin_key) as admin_channel,
    ):
        admin = v1.TenantAdminServiceStub(admin_channel)
        admin.CreateTenant(v1.CreateTenantRequest(tenant_id="quiet"))
        key = admin.CreateApiKey(v1.CreateApiKeyRequest(tenant_id="quiet", role=v1.ROLE_SERVICE)).secret
        with (
            connect(server.address, key) as quiet_channel,
            connect(server.address, server.service_key) as channel,
        ):
            quiet, noisy = v1.MemoryServiceStub(quiet_channel), v1.MemoryServiceStub(channel)
            for memories, call in itertools.product((quiet, noisy), (add, search)):
                for _ in range(WARM_UP):
                    call(memories, next(numbers))
            print("| Calls | alone, p50; p95 ms | flooded | p50 ÷ p50 | refused, both | flood, calls/s |")
            print("|---|---|---|---|---|---|")
            for name in options.pairs:
                measured = measure(server, quiet, PAIRS[name], options.seconds, numbers)
                print(row(name, *measured, options.seconds), flush=True)


if __name__ == "__main__":
    main()
