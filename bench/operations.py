"""Acknowledging an Add that asks a slow model, beside an Add that asks none, in one run.

    python bench/operations.py                  # a model of 5 seconds, 1 and 8 callers
    python bench/operations.py --calls 400 --model-seconds 1

One server in a process of its own; the model is a server of this process that thinks for a while. The two
kinds of calls are made in turn, A B A B, and the median and the 95th percentile of each are printed. The work
that was acknowledged goes on meanwhile: at the end some of it is waited for, and the rest is cancelled.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from demo.local_server import local_server
from scrubjay import connect, v1
from tests.chat_server import Asked, ChatServer, every_message

WARM_UP = 20
WAITED_FOR = 8


@contextmanager
def thinking(seconds: float) -> Iterator[ChatServer]:
    """A model that thinks so long, until the end of the block."""
    over = threading.Event()

    def mind(asked: Asked) -> object:
        over.wait(seconds)
        return every_message(asked)

    with ChatServer(mind) as chat:
        try:
            yield chat
        finally:
            over.set()


def plain(memories: v1.MemoryServiceStub, n: int) -> None:
    """Add one memory as it is."""
    one = v1.Memory(user_id=f"plain-{n % 50}", content=f"note {n}: bread, a letter and the garden")
    memories.Add(v1.AddRequest(memories=[one], dedup=v1.DEDUP_OFF))


def asking(memories: v1.MemoryServiceStub, n: int) -> None:
    """Add a message that a model is to read."""
    message = v1.ConversationMessage(role="user", content=f"note {n}: bread, a letter and the garden")
    template = v1.Memory(user_id=f"asking-{n % 50}")
    request = v1.AddRequest(messages=[message], template=template, policy=v1.WRITE_POLICY_APPEND)
    assert memories.Add(request).operation_id


def latencies(call: Callable[[int], None], numbers: Iterator[int], calls: int, callers: int) -> list[float]:
    """Milliseconds of each of so many calls."""

    def timed(n: int) -> float:
        began = time.perf_counter()
        call(n)
        return (time.perf_counter() - began) * 1e3

    with ThreadPoolExecutor(callers) as pool:
        return list(pool.map(timed, itertools.islice(numbers, calls)))


def finish(memories: v1.MemoryServiceStub) -> int:
    """Wait for some of the work, and cancel the rest; how much of it was stored."""
    open_states = [v1.OPERATION_STATE_PENDING, v1.OPERATION_STATE_RUNNING]
    operations = memories.ListOperations(
        v1.ListOperationsRequest(states=open_states, page_size=1000)
    ).operations
    oldest = [one.id for one in operations][::-1]
    for operation_id in oldest[:WAITED_FOR]:
        memories.WaitOperation(v1.WaitOperationRequest(id=operation_id), timeout=60)
    for operation_id in oldest[WAITED_FOR:]:
        memories.CancelOperation(v1.CancelOperationRequest(id=operation_id))
    ended = memories.ListOperations(
        v1.ListOperationsRequest(states=[v1.OPERATION_STATE_SUCCEEDED], page_size=1000)
    )
    return len(ended.operations)


def main() -> None:
    """Print a row for each number of callers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--callers", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--model-seconds", type=float, default=5.0)
    options = parser.parse_args()
    numbers = itertools.count()
    with thinking(options.model_seconds) as chat:
        settings = {"SCRUBJAY_CHAT_BASE_URL": chat.base_url, "SCRUBJAY_CHAT_MODEL": "thinking-1"}
        with (
            local_server("hash", settings=settings) as server,
            connect(server.address, server.service_key) as channel,
        ):
            memories = v1.MemoryServiceStub(channel)
            kinds = (lambda n: plain(memories, n), lambda n: asking(memories, n))
            for call in kinds:
                latencies(call, numbers, WARM_UP, 1)
            print("| Callers | plain Add, p50; p95 ms | acknowledged, p50; p95 ms | p95 ÷ p95 |")
            print("|---|---|---|---|")
            for callers in options.callers:
                found: tuple[list[float], list[float]] = ([], [])
                for _ in range(4):
                    for call, mine in zip(kinds, found, strict=True):
                        mine += latencies(call, numbers, options.calls // 4, callers)
                (a50, a95), (b50, b95) = (
                    (statistics.median(mine), statistics.quantiles(mine, n=20)[-1]) for mine in found
                )
                print(
                    f"| {callers} | {a50:.1f}; {a95:.1f} | {b50:.1f}; {b95:.1f} | {b95 / a95:.2f} |",
                    flush=True,
                )
            print(f"{finish(memories)} operations were done meanwhile, and the others cancelled")


if __name__ == "__main__":
    main()
