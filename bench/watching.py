"""What thousands of open Watch streams cost the other calls of a server, as a ratio.

    python bench/watching.py                    # 4 000 streams of 500 devices
    python bench/watching.py --streams 1000 --rounds 1

One caller searches a subject of 1 000 memories, without streams and with them, in turn; no stream has news.
Beside it stands what an open stream takes of the server's memory, and of its processor while nothing happens.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import grpc

from client_sync import Remote
from rpc import cpu_seconds, running, sentence
from scrubjay import connect, v1
from server.slots import STREAMS_PER_KEY

ROWS = 1000
SEARCHES = 2000
IDLE_SECONDS = 60
"""Two signs of life of every stream."""
Stream: TypeAlias = "grpc.CallIterator[v1.WatchResponse]"


@dataclass(frozen=True)
class Server:
    """The server that is measured, a backend's stub to it, and the tokens of its devices."""

    address: str
    pid: int
    memories: v1.MemoryServiceStub
    tokens: Sequence[str]


@contextmanager
def started(devices: int, streams: int) -> Iterator[Server]:
    """A server with the hash embedder and ``devices`` of as many users, which lets in so many streams."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        environment = {
            "SCRUBJAY_LISTEN": "127.0.0.1:0",
            "SCRUBJAY_DATA_DIR": str(Path(folder) / "data"),
            "SCRUBJAY_EMBEDDER": "hash",
            "SCRUBJAY_WATCH_STREAMS": str(streams),
        }
        command = [sys.executable, "-m", "server", "serve"]
        pid, address, printed = stack.enter_context(running(command, environment))
        service, admin = (
            stack.enter_context(connect(address, found[1]))
            for found in (
                re.search(rf"{name} key:\s+(\S+)", printed) for name in ("service", "platform admin")
            )
            if found is not None
        )
        enrolments = v1.TenantAdminServiceStub(admin)
        tokens = [token_of(address, enrolments, f"user-{n}") for n in range(devices)]
        memories = v1.MemoryServiceStub(service)
        for at in range(0, ROWS, 100):
            rows = [v1.Memory(user_id="alice", content=sentence(n)) for n in range(at, at + 100)]
            memories.Add(v1.AddRequest(memories=rows, dedup=v1.DEDUP_OFF))
        yield Server(address, pid, memories, tokens)


def token_of(address: str, admin: v1.TenantAdminServiceStub, user_id: str) -> str:
    """The token of a new device."""
    request = v1.CreateEnrolmentRequest(tenant_id="dev", user_id=user_id, display_name="phone")
    code = admin.CreateEnrolment(request).enrolment_code
    return Remote.register(address, code, installation_id=os.urandom(16)).token


@contextmanager
def watching(server: Server) -> Iterator[int]:
    """All streams of all devices open, each device on a connection of its own; how many."""
    with ExitStack() as stack:
        waiting = []
        for token in server.tokens:
            own = (("grpc.use_local_subchannel_pool", 1),)
            watch = v1.SyncServiceStub(stack.enter_context(grpc.insecure_channel(server.address, own))).Watch
            key = (("authorization", f"Bearer {token}"),)
            waiting += [partial(watch, v1.WatchRequest(), metadata=key)] * STREAMS_PER_KEY
        streams: list[Stream] = []
        while waiting:  # those that a server refuses, which is busy with the others, come again
            asked = [(call, call()) for call in waiting]
            waiting = [call for call, stream in asked if not begins(stream)]
            streams += [stream for _, stream in asked]
        yield len(server.tokens) * STREAMS_PER_KEY
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
        request = v1.SearchRequest(user_id="alice", query=sentence(n % 50), top_k=10, recipe="semantic")
        began = time.perf_counter()
        server.memories.Search(request)
        took.append((time.perf_counter() - began) * 1e3)
    took.sort()
    return took[SEARCHES // 2], took[SEARCHES * 99 // 100]


def resident_kilobytes(pid: int) -> int:
    """What the process has in memory."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1])


def main() -> None:
    """Measure in turn and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    without, beside, opened = [], [], []
    with started(options.streams // STREAMS_PER_KEY, options.streams) as server:
        searched(server)
        small = resident_kilobytes(server.pid)
        for number in range(options.rounds):
            without.append(searched(server))
            began = time.perf_counter()
            with watching(server) as count:
                opened.append(time.perf_counter() - began)
                if number == 0:
                    print(f"a stream: {(resident_kilobytes(server.pid) - small) / count:.0f} KB of memory")
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
