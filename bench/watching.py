"""What thousands of open Watch streams cost the other calls of a server, as a ratio.

    python bench/watching.py                    # 4 000 streams of 500 devices
    python bench/watching.py --streams 1000 --rounds 1

One caller searches a subject of 1 000 memories, without streams and with them, in turn; no stream has news.
Beside it stands what an open stream takes of the server's memory, and of its processor while nothing happens.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeAlias

import grpc
from many_tenants import resident_mib

from rpc import cpu_seconds, sentence
from scrubjay import v1
from server.slots import STREAMS_PER_KEY
from sync import USER, Server, fill, started

ROWS = 1000
SEARCHES = 2000
IDLE_SECONDS = 60
"""Two signs of life of every stream."""
Stream: TypeAlias = "grpc.CallIterator[v1.WatchResponse]"


@contextmanager
def watching(server: Server, tokens: Sequence[str]) -> Iterator[int]:
    """All streams of all devices open, each device on a connection of its own; how many."""
    with ExitStack() as stack:
        waiting = []
        for token in tokens:
            own = (("grpc.use_local_subchannel_pool", 1),)
            watch = v1.SyncServiceStub(stack.enter_context(grpc.insecure_channel(server.address, own))).Watch
            key = (("authorization", f"Bearer {token}"),)
            waiting += [partial(watch, v1.WatchRequest(), metadata=key)] * STREAMS_PER_KEY
        streams: list[Stream] = []
        while waiting:  # those that a server refuses, which is busy with the others, come again
            asked = [(call, call()) for call in waiting]
            waiting = [call for call, stream in asked if not begins(stream)]
            streams += [stream for _, stream in asked]
        yield len(tokens) * STREAMS_PER_KEY
        for stream in streams:
            stream.cancel()


def begins(stream: Stream) -> bool:
    """Whether the stream is open, which its first response says; not where the server was busy."""
    try:
        next(stream)
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
            return False
        raise
    return True


def searched(server: Server) -> tuple[float, float]:
    """Median and 99th percentile of a search, in ms."""
    took = []
    for n in range(SEARCHES):
        request = v1.SearchRequest(user_id=USER, query=sentence(n % 50), top_k=10, recipe="semantic")
        began = time.perf_counter()
        server.memories.Search(request)
        took.append((time.perf_counter() - began) * 1e3)
    took.sort()
    return took[SEARCHES // 2], took[SEARCHES * 99 // 100]


def main() -> None:
    """Measure in turn and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    without, beside, opened = [], [], []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = started(stack, folder, SCRUBJAY_WATCH_STREAMS=str(options.streams))
        devices = range(options.streams // STREAMS_PER_KEY)
        tokens = [server.register(f"user-{n}", "phone").token for n in devices]
        fill(server, ROWS)
        searched(server)
        small = resident_mib(server.pid)
        for number in range(options.rounds):
            without.append(searched(server))
            began = time.perf_counter()
            with watching(server, tokens) as count:
                opened.append(time.perf_counter() - began)
                if number == 0:
                    grown = resident_mib(server.pid) - small
                    print(f"a stream: {grown * 1024 / count:.0f} KB of memory")
                    before = cpu_seconds(server.pid)
                    time.sleep(IDLE_SECONDS)
                    idle = (cpu_seconds(server.pid) - before) / IDLE_SECONDS
                    print(f"{count} quiet streams: {idle * 100:.1f} % of a processor", flush=True)
                beside.append(searched(server))
    print(f"until all of them are open, opened at once: {statistics.median(opened):.1f} s")
    for name, at in (("p50", 0), ("p99", 1)):
        ratio = statistics.median(
            with_them[at] / bare[at] for bare, with_them in zip(without, beside, strict=True)
        )
        mine, bare = (statistics.median(one[at] for one in found) for found in (beside, without))
        print(f"Search {name}, {count} streams open ÷ none: {ratio:.2f} ({mine:.1f} ÷ {bare:.1f} ms)")


if __name__ == "__main__":
    main()
