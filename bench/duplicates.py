"""What it costs an Add to look for what says the same: with and without, in turn in one run; prints ratios.

One caller adds memories of usual size to one stream of a SQLite file with ``synchronous=FULL``, one at a time
and a hundred at a time, which it does not say yet, where it has few rows and where it has many; then some
that it says. CPU is the process's, per memory; the vector is given.

    python bench/duplicates.py [--rows 100000]
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from scrubjay.memory import ClientId, Memory, Micros, new_memory_id
from scrubjay.stamp import ReplicaId
from server.ingest.adding import Draft, add
from server.ingest.author import Author
from server.ingest.words import mark
from server.store.memory_store import MemoryStore, StreamKey, Writing
from tenants.tenant import Incarnation

INCARNATION = Incarnation("00000000-0000-4000-8000-000000000007")
SPACE = "bench/384"
AUTHOR = Author(ClientId("backend"), ReplicaId(bytes(16)), "key", "SERVICE")
KEY = StreamKey(INCARNATION, "user:alice")
NOW = Micros(1_796_000_000_000_000)
VECTOR = np.random.default_rng(1).normal(size=384).astype(np.float32)
FEW = 100
PAIRS = 7
ONES = 150
WORDS = (
    "seat",
    "window",
    "coffee",
    "sugar",
    "train",
    "garden",
    "river",
    "piano",
    "winter",
    "bread",
    "office",
)

rng = random.Random(1)


def text() -> str:
    """A sentence that no other is like."""
    return f"Prefers the {' '.join(rng.choices(WORDS, k=8))} number {rng.getrandbits(40)} in the morning."


def drafts(texts: list[str]) -> list[Draft]:
    """Memories of alice that are not stored yet."""
    return [
        Draft(
            Memory(
                id=new_memory_id(NOW // 1000, os.urandom(10)),
                content=one,
                created_at=NOW,
                user_id="alice",
                owner_client_id=AUTHOR.client_id,
            ),
            VECTOR,
        )
        for one in texts
    ]


def write(store: MemoryStore, texts: list[str], deduplicate: bool) -> None:
    """Add them as one request does."""
    new = drafts(texts)

    def unit(writing: Writing) -> None:
        add(writing, INCARNATION, SPACE, new, AUTHOR, NOW, deduplicate=deduplicate)

    store.write([KEY], unit)


def measured(work: Callable[[], None], memories: int) -> tuple[float, float]:
    """Wall and CPU microseconds of a memory."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return (
        (time.perf_counter() - wall) / memories * 1e6,
        (time.process_time() - cpu) / memories * 1e6,
    )


def compare(store: MemoryStore, name: str, size: int) -> None:
    """Add with and without, in turn, ``size`` at a time; print both and how many times as long it takes."""
    rounds = ONES // size or 3
    found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for _ in range(PAIRS):
        for deduplicate in (False, True):
            batches = [[text() for _ in range(size)] for _ in range(rounds)]

            def work(batches: list[list[str]] = batches, deduplicate: bool = deduplicate) -> None:
                for batch in batches:
                    write(store, batch, deduplicate)

            found[deduplicate].append(measured(work, size * rounds))
    (off_wall, off_cpu), (on_wall, on_cpu) = (
        tuple(statistics.median(column) for column in zip(*found[which], strict=True))
        for which in (False, True)
    )
    print(
        f"{name}, {size} at a time: without {off_wall:.0f} µs ({off_cpu:.0f} CPU), with {on_wall:.0f} µs "
        f"({on_cpu:.0f} CPU): {on_wall / off_wall:.2f} times as long, {on_cpu / off_cpu:.2f} the CPU"
    )


def main() -> None:
    """Compare on a stream with few rows, fill it, and compare again."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rows", type=int, default=100_000)
    rows = arguments.parse_args().rows
    with (
        tempfile.TemporaryDirectory() as folder,
        MemoryStore(f"sqlite:///{Path(folder) / 'shard.db'}") as store,
    ):
        store.migrate()
        write(store, [text() for _ in range(FEW)], deduplicate=False)
        for size in (1, 100):
            compare(store, f"{FEW} rows", size)
        for _ in range(rows // 100):
            write(store, [text() for _ in range(100)], deduplicate=False)
        for size in (1, 100):
            compare(store, f"{rows} rows", size)
        said = [text() for _ in range(ONES)]
        write(store, said, deduplicate=True)
        again = measured(lambda: [write(store, [one.upper()], True) for one in said] and None, ONES)
        print(f"{rows} rows, said again: {again[0]:.0f} µs ({again[1]:.0f} CPU)")
    texts = [text() for _ in range(2000)]
    _, cpu = measured(lambda: [mark(one) for one in texts] and None, len(texts))
    print(f"the mark of a text: {cpu:.0f} µs CPU")


if __name__ == "__main__":
    main()
