"""A tenant goes over to another embedding space and back, while one caller searches it and one adds to it.

    python bench/reindexing.py                          # hash to lite and back
    python bench/reindexing.py --to e5 --memories 500

Printed are how many memories a second got vectors of the space against the embedder alone in the same run;
how long a Search and an Add took before and then (median; 99th percentile; longest in ms; how many); and
what calls failed, or left out memories that were there.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

import grpc
from threadpoolctl import threadpool_limits

from demo.local_server import local_server
from scrubjay import connect, v1
from server.providers.embedder import TextKind, open_embedder

ROUNDS = 3
BEFORE_SECONDS = 4.0
USERS = 20
WORDS = (
    *("tea", "rain", "bread", "chess", "Lisbon", "tomatoes", "letter"),
    *("garden", "train", "piano", "winter", "doctor", "bicycle", "river"),
)


def text(n: int) -> str:
    """A sentence that nobody says twice."""
    one, other, third = (WORDS[n // step % len(WORDS)] for step in (1, len(WORDS), len(WORDS) ** 2))
    return f"User said on day {n} that the {one} goes with the {other}, and the {third} with neither."


def alone(name: str, count: int) -> float:
    """Texts a second of the embedder by itself."""
    texts = [text(n) for n in range(count)]
    with threadpool_limits(limits=1, user_api="blas"), closing(open_embedder(name)) as embedder:
        embedder.embed(texts[:16], TextKind.DOCUMENT)
        began = time.perf_counter()
        for at in range(0, count, 64):
            embedder.embed(texts[at : at + 64], TextKind.DOCUMENT)
        return count / (time.perf_counter() - began)


@dataclass
class Calls:
    """How long one caller's calls took, and what was wrong with them."""

    milliseconds: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        found = sorted(self.milliseconds)
        p99 = found[min(len(found) - 1, int(len(found) * 0.99))]
        return f"{statistics.median(found):.1f}; {p99:.1f}; {found[-1]:.1f} ({len(found)})"


class Load:
    """One caller that searches and one that adds, for a block."""

    def __init__(self, memories: v1.MemoryServiceStub, numbers: Iterator[int]) -> None:
        self._memories, self._numbers = memories, numbers

    @contextmanager
    def running(self) -> Iterator[tuple[Calls, Calls]]:
        """Searches and adds that are made in the block."""
        over, searches, adds = threading.Event(), Calls(), Calls()
        callers = [
            threading.Thread(target=self._make, args=(over, searches, self._search)),
            threading.Thread(target=self._make, args=(over, adds, self._add)),
        ]
        for caller in callers:
            caller.start()
        try:
            yield searches, adds
        finally:
            over.set()
            for caller in callers:
                caller.join()

    def _make(self, over: threading.Event, calls: Calls, call: object) -> None:
        while not over.is_set():
            began = time.perf_counter()
            try:
                problem = call(next(self._numbers))  # type: ignore[operator]  # one of the two below
            except grpc.RpcError as error:
                problem = str(error.code())
            calls.milliseconds.append((time.perf_counter() - began) * 1e3)
            if problem:
                calls.wrong.append(problem)

    def _search(self, n: int) -> str:
        request = v1.SearchRequest(user_id=f"user-{n % USERS}", query=f"the {WORDS[n % len(WORDS)]} {n}")
        count = len(self._memories.Search(request).hits)
        return "" if count == 10 else f"{count} hits"

    def _add(self, n: int) -> str:
        memory = v1.Memory(user_id=f"user-{n % USERS}", content=text(n))
        self._memories.Add(v1.AddRequest(memories=[memory], dedup=v1.DEDUP_OFF))
        return ""


def reindex(admin: v1.TenantAdminServiceStub, embedder: str) -> tuple[dict[str, float], int]:
    """The seconds of each phase, and how many memories there were at the end."""
    request = v1.ReindexTenantRequest(tenant_id="dev", embedder=embedder)
    operation_id = admin.ReindexTenant(request).operation.operation.id
    phases: dict[str, float] = {}
    before, phase = time.perf_counter(), ""
    while True:
        asked = v1.GetTenantOperationRequest(operation_id=operation_id)
        stands = admin.GetTenantOperation(asked).operation
        found = stands.operation
        now = time.perf_counter()
        phases[phase] = phases.get(phase, 0) + now - before
        before, phase = now, found.phase
        if found.HasField("ended_at"):
            assert found.state == v1.OPERATION_STATE_SUCCEEDED, found
            return phases, stands.result.reindex_tenant.memory_count
        time.sleep(0.02)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--to", default="lite", choices=("lite", "e5"))
    parser.add_argument("--memories", type=int, default=4000)
    arguments = parser.parse_args()
    speed = alone(arguments.to, min(arguments.memories, 1000))
    print(f"{arguments.to} alone: {speed:.0f} texts/s")
    settings = {"SCRUBJAY_EMBEDDER": "hash", "SCRUBJAY_EMBEDDERS": arguments.to}
    with (
        local_server(settings=settings) as server,
        connect(server.address, server.admin_key) as admin_channel,
        connect(server.address, server.service_key) as channel,
    ):
        memories, admin = v1.MemoryServiceStub(channel), v1.TenantAdminServiceStub(admin_channel)
        numbers = itertools.count()
        for _ in range(0, arguments.memories, 100):
            some = [
                v1.Memory(user_id=f"user-{n % USERS}", content=text(n))
                for n in (next(numbers) for _ in range(100))
            ]
            memories.Add(v1.AddRequest(memories=some, dedup=v1.DEDUP_OFF))
        load = Load(memories, numbers)
        for _ in range(ROUNDS):
            with load.running() as (searches, adds):
                time.sleep(BEFORE_SECONDS)
            print(f"before:    Search {searches}, Add {adds}, wrong {searches.wrong + adds.wrong}")
            with load.running() as (searches, adds):
                phases, count = reindex(admin, arguments.to)
            rate = count / phases["embed"]
            print(f"meanwhile: Search {searches}, Add {adds}, wrong {searches.wrong + adds.wrong}")
            seconds = ", ".join(f"{name} {took:.1f}" for name, took in phases.items() if name)
            ratio = rate / speed
            print(f"embedded {count}, {rate:.0f}/s, {ratio:.2f} of the embedder alone; seconds: {seconds}")
            reindex(admin, "hash")


if __name__ == "__main__":
    main()
