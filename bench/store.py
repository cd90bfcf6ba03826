"""The store's writes against bare sqlite3 with the same rows, in turn in one run; prints ratios.

Both write a memory, its history entry, its vector and the stream's head into the same tables with
``synchronous=FULL``. The store gets one memory from each of N callers, or a batch of 100 from one; bare
sqlite3 gets rows that are ready, N to a commit, from one thread. So the ratio holds everything that an
Add does around SQL: threads, savepoints, checks, stamps, encoding. The last line is the store against
itself with a commit for each write. CPU is the process's, per row.

    python bench/store.py [--seconds 50]
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from scrubjay.memory import ClientId, Memory, MemoryId, Micros, Source, new_memory_id
from scrubjay.merge import Outcome, create, registers
from scrubjay.operation import OperationKind
from scrubjay.stamp import CommitStamp, ReplicaId, Stamp
from server.store.committer import MAX_BATCH
from server.store.history import HistoryChange, HistoryRow
from server.store.memory_store import MemoryStore, StoredMemory, StreamKey, Writing
from server.store.rows import history_row, new_memory_row
from server.store.tables import history, memories, vectors
from server.store.vector_codec import encode_vector
from tenants.tenant import Incarnation

INCARNATION = Incarnation(str(uuid.UUID(int=7)))
REPLICA = ReplicaId(bytes(16))
SPACE = "bench/384"
STREAMS = 50
PAIRS = 5
ONE_BATCH = 100
READY = 6400

rng = random.Random(1)
VECTOR = encode_vector(np.random.default_rng(1).normal(size=384).astype(np.float32))
NOW_MILLIS = 1_796_000_000_000


def memory(number: int) -> Memory:
    """A memory of usual size."""
    return Memory(
        id=new_memory_id(NOW_MILLIS + number, rng.randbytes(10)),
        content=f"Prefers the {number}th seat by the window and a coffee without sugar, please.",
        created_at=Micros(1_796_000_000_000_000 + number),
        user_id=f"user-{number % STREAMS}",
        owner_client_id=ClientId("backend"),
        tags=frozenset({"travel"}),
        metadata={"city": "Aachen"},
        source=Source(client_id="backend", conversation_id="c-17"),
    )


def key_of(one: Memory) -> StreamKey:
    """Its stream."""
    return StreamKey(INCARNATION, one.subject.key)


def operation(one: Memory, stamp: Stamp, commit_stamp: CommitStamp) -> HistoryRow:
    """The entry of its creation."""
    changes = tuple(HistoryChange(f, None, v, stamp, None, Outcome.APPLIED) for f, v in registers(one))
    return HistoryRow(
        operation_id=str(uuid.UUID(bytes=rng.randbytes(16))),
        memory_id=MemoryId(one.id),
        commit_stamp=commit_stamp,
        kind=OperationKind.CREATE,
        changes=changes,
        client_id=ClientId("backend"),
        replica_id=REPLICA,
        actor="key",
        role="SERVICE",
        outcome=Outcome.APPLIED,
        claimed_at=one.created_at,
        private_to=ClientId(""),
    )


def add(store: MemoryStore, group: list[Memory]) -> None:
    """What an Add does to the store: check the ids, take stamps, write everything."""
    key = key_of(group[0])

    def unit(writing: Writing) -> None:
        ids = [one.id for one in group]
        if writing.get_many(INCARNATION, ids) or writing.buried(INCARNATION, ids):
            raise AssertionError("the ids are new")
        stamps = writing.stamps(key, len(group), NOW_MILLIS)
        pairs = list(zip(group, stamps, strict=True))
        writing.insert(key, [StoredMemory.of(create(m, Stamp(s, REPLICA)), s) for m, s in pairs])
        writing.put_vectors(key, SPACE, [(m.id, Stamp(s, REPLICA), VECTOR) for m, s in pairs])
        writing.add_history(key, [operation(m, Stamp(s, REPLICA), s) for m, s in pairs])

    store.write([key], unit)


class Bare:
    """sqlite3 and ready rows."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA synchronous=FULL")
        self._inserts = [
            f"INSERT INTO {t.name} ({', '.join(t.c.keys())}) VALUES ({', '.join('?' * len(t.c))})"
            for t in (memories, vectors, history)
        ]

    def rows(self, group: list[Memory], first: int) -> list[list[tuple[object, ...]]]:
        """The rows of memories, vectors and history, as sqlite3 takes them."""
        found: list[list[tuple[object, ...]]] = [[], [], []]
        for number, one in enumerate(group, first):
            key, stamp = key_of(one), Stamp(number, REPLICA)
            vector = {"incarnation": INCARNATION, "stream": key.stream, "memory_id": one.id, "space": SPACE}
            vector |= {"content_stamp": stamp.pack(), "vector": VECTOR}
            stored = StoredMemory.of(create(one, stamp), CommitStamp(number))
            entry = history_row(key, operation(one, stamp, CommitStamp(number)))
            for rows, table, row in zip(
                found, (memories, vectors, history), (new_memory_row(key, stored), vector, entry), strict=True
            ):
                rows.append(tuple(row[column.name] for column in table.c))
        return found

    def add(self, rows: list[list[tuple[object, ...]]]) -> None:
        """One transaction."""
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        for insert, values in zip(self._inserts, rows, strict=True):
            self._connection.executemany(insert, values)
        streams = {row[:2] for row in rows[1]}
        self._connection.executemany(
            "INSERT INTO streams VALUES (?, ?, 1, 1, 0) ON CONFLICT DO UPDATE SET head = head + 1",
            list(streams),
        )
        execute("COMMIT")

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()


@dataclass(frozen=True)
class Cost:
    """Of one row, in seconds."""

    wall: float
    cpu: float


def store_cost(path: Path, callers: int, size: int, seconds: float, max_batch: int = MAX_BATCH) -> Cost:
    """What a row costs through the store."""
    ready = [
        [
            [memory(STREAMS * (n * size + i) + caller) for i in range(size)]
            for n in range(READY // size // callers)
        ]
        for caller in range(callers)
    ]
    with MemoryStore(f"sqlite:///{path}", max_batch=max_batch) as store:
        store.migrate()
        deadline = time.perf_counter() + seconds

        def call(groups: list[list[Memory]]) -> int:
            count = 0
            for group in groups:
                if time.perf_counter() > deadline:
                    break
                add(store, group)
                count += size
            return count

        with ThreadPoolExecutor(callers) as pool:
            wall, cpu = time.perf_counter(), time.process_time()
            count = sum(pool.map(call, ready))
            return Cost((time.perf_counter() - wall) / count, (time.process_time() - cpu) / count)


def bare_cost(path: Path, rows_a_commit: int, seconds: float) -> Cost:
    """What a ready row costs in bare sqlite3."""
    with MemoryStore(f"sqlite:///{path}") as store:
        store.migrate()
    bare = Bare(path)
    wall, cpu, count = 0.0, 0.0, 0
    while wall < seconds:
        rows = bare.rows([memory(count + n) for n in range(rows_a_commit)], count + 1)
        start, start_cpu = time.perf_counter(), time.process_time()
        bare.add(rows)
        wall += time.perf_counter() - start
        cpu += time.process_time() - start_cpu
        count += rows_a_commit
    bare.close()
    return Cost(wall / count, cpu / count)


def in_turn(name: str, one: Callable[[Path], Cost], other: Callable[[Path], Cost]) -> None:
    """Measure both A B A B …, and print the medians."""
    pairs = []
    for _ in range(PAIRS):
        with tempfile.TemporaryDirectory() as folder:
            pairs.append((one(Path(folder) / "one.db"), other(Path(folder) / "other.db")))
    ratio = statistics.median(b.wall / a.wall for a, b in pairs)
    cpu_ratio = statistics.median(b.cpu / a.cpu for a, b in pairs)
    costs = [
        f"{1 / statistics.median(c.wall for c in column):7,.0f} rows/s "
        f"{statistics.median(c.cpu for c in column) * 1e6:4.0f} us CPU"
        for column in zip(*pairs, strict=True)
    ]
    print(f"{name:44} {costs[0]}   {costs[1]}   {ratio:5.2f} x, CPU {cpu_ratio:.2f} x", flush=True)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=50, help="for the whole run")
    each = parser.parse_args().seconds / (5 * 2 * PAIRS)
    for callers in (1, 16, 64):
        in_turn(
            f"{callers} callers ÷ bare, {callers} rows a commit",
            lambda path, n=callers: store_cost(path, n, 1, each),
            lambda path, n=callers: bare_cost(path, n, each),
        )
    in_turn(
        f"batches of {ONE_BATCH} ÷ bare, {ONE_BATCH} rows a commit",
        lambda path: store_cost(path, 1, ONE_BATCH, each),
        lambda path: bare_cost(path, ONE_BATCH, each),
    )
    in_turn(
        "64 callers, group commit ÷ one commit each",
        lambda path: store_cost(path, 64, 1, each),
        lambda path: store_cost(path, 64, 1, each, max_batch=1),
    )


if __name__ == "__main__":
    main()
