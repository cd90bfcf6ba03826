"""Search across the subjects of a tenant against a search of one of them, and loading both, as ratios.

    python bench/across_subjects.py                            100 subjects of 1 000 memories, some minutes
    python bench/across_subjects.py --subjects 20 --rows 1000

Everything but gRPC and the query's embedding: a SQLite file, the cache, every arm of a recipe. The two are
timed in turn, A B A B, and the median of the pairs is printed, by the clock and by CPU time. The graph over
the tenant is built before the searches; recall is against a scan of all vectors.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from scrubjay.memory import ClientId, Memory, MemoryId, Micros
from scrubjay.merge import create
from scrubjay.stamp import CommitStamp, ReplicaId, Stamp
from server.index.cache import StreamCache
from server.index.columns import View
from server.index.hnsw_index import HnswIndex
from server.index.shelf import Shelf
from server.recall.recipes import RECIPES
from server.recall.search import Query, search
from server.store.memory_store import Change, Extent, MemoryStore, StoredMemory, StreamKey, Writing
from server.store.vector_codec import decode_vectors, encode_vectors
from tenants.tenant import Incarnation

DIMENSION = 512
SPACE = f"bench/{DIMENSION}"
CLUSTER_ROWS = 50
VOCABULARY = 5_000
WORDS = 12
QUERIES = 40
PAIRS = 5
LOADED_ROWS = 20_000
NOW_MILLIS = 1_796_000_000_000
GRAPH_SECONDS = 3600

Vectors = NDArray[np.float32]
rng = np.random.default_rng(1)


def main() -> None:
    """Run what the command line asks for and print it."""
    parser = argparse.ArgumentParser(description="Search across subjects against a search of one.")
    parser.add_argument("--subjects", type=int, default=100)
    parser.add_argument("--rows", type=int, default=1_000, help="of each subject")
    asked = parser.parse_args()
    with threadpool_limits(limits=1, user_api="blas"), tempfile.TemporaryDirectory() as folder:
        with opened(Path(folder) / "load.db") as store:
            measure_loading(store, asked.subjects, Path(folder))
        with opened(Path(folder) / "search.db") as store:
            measure_searching(store, asked.subjects, asked.rows, Path(folder))


def unit(vectors: Vectors) -> Vectors:
    """Rows of length 1."""
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def clustered(count: int, centres: Vectors) -> Vectors:
    """Rows around centres, with a cosine near .6 to the others of their cluster."""
    noise = rng.standard_normal((count, DIMENSION), dtype=np.float32) * np.float32(0.8 / DIMENSION**0.5)
    return unit(centres[rng.integers(0, len(centres), count)] + noise)


def centres_of(count: int) -> Vectors:
    """The centres for so many rows, some fifty to each."""
    return unit(rng.standard_normal((max(count // CLUSTER_ROWS, 1), DIMENSION), dtype=np.float32))


def sentence() -> str:
    """Words as often as a language has them: some in every other text, most in next to none."""
    numbers = np.minimum(rng.zipf(1.3, WORDS), VOCABULARY)
    return " ".join(f"w{number}" for number in numbers)


@contextmanager
def opened(path: Path) -> Iterator[MemoryStore]:
    """A store in a new file."""
    with MemoryStore(f"sqlite:///{path}") as store:
        store.migrate()
        yield store


@contextmanager
def caching(store: MemoryStore, folder: Path) -> Iterator[StreamCache]:
    """A cache without anything in it, that keeps nothing."""
    with tempfile.TemporaryDirectory(dir=folder) as shelf:
        kept = Shelf(Path(shelf))
        cache = StreamCache(store, kept, {SPACE: DIMENSION}, budget_bytes=1 << 40)
        try:
            yield cache
        finally:
            cache.close()


def fill(
    store: MemoryStore, incarnation: Incarnation, subjects: int, rows: int, centres: Vectors
) -> list[StreamKey]:
    """Memories of usual size, by subject; the streams they are in."""
    keys = [StreamKey(incarnation, f"user:{number}") for number in range(subjects)]
    for key in keys:
        for start in range(0, rows, 1_000):
            store.write([key], batch(key, clustered(min(1_000, rows - start), centres)))
    return keys


def batch(key: StreamKey, vectors: Vectors) -> Callable[[Writing], None]:
    """What writes a memory for each of the vectors."""
    encoded = encode_vectors(vectors)

    def write(writing: Writing) -> None:
        stored, made = [], []
        for stamp, vector in zip(writing.stamps(key, len(encoded), NOW_MILLIS), encoded, strict=True):
            memory = Memory(
                MemoryId(str(uuid.uuid4())), sentence(), Micros(stamp), user_id=key.stream.partition(":")[2]
            )
            edit = Stamp(stamp, ReplicaId(bytes(16)))
            stored.append(StoredMemory.of(create(memory, edit), stamp))
            made.append((memory.id, edit, vector))
        writing.insert(key, stored)
        writing.put_vectors(key, SPACE, made)

    return write


def measure_loading(store: MemoryStore, subjects: int, folder: Path) -> None:
    """Print what a first search waits for, of one stream and of as many rows in many."""
    one, many = (Incarnation(str(uuid.UUID(int=number))) for number in (1, 2))
    centres = centres_of(LOADED_ROWS)
    (alone,) = fill(store, one, 1, LOADED_ROWS, centres)
    fill(store, many, subjects, LOADED_ROWS // subjects, centres)

    def load(extent: Extent) -> float:
        with caching(store, folder) as cache:
            began = time.perf_counter()
            with cache.reading(extent, SPACE):
                return time.perf_counter() - began

    pairs = [(load(alone), load(many)) for _ in range(PAIRS)]
    ratio = statistics.median(tenant / stream for stream, tenant in pairs)
    seconds = statistics.median(tenant for _, tenant in pairs)
    print(f"load {LOADED_ROWS} rows: {subjects} subjects ÷ one {ratio:.2f} ({seconds:.2f} s)")


def measure_searching(store: MemoryStore, subjects: int, rows: int, folder: Path) -> None:
    """Print the ratio of the two searches by recipe, and what the graph over the tenant finds."""
    incarnation = Incarnation(str(uuid.UUID(int=3)))
    centres = centres_of(subjects * rows)
    first = fill(store, incarnation, subjects, rows, centres)[0]
    with caching(store, folder) as cache:
        with cache.reading(incarnation, SPACE) as whole:
            index = whole.vectors
            nbytes = whole.nbytes / len(whole)
        if isinstance(index, HnswIndex) and not index.drain(GRAPH_SECONDS):
            raise SystemExit("the graph was not filled within an hour")
        trusted = f", {index.state.candidates} candidates" if isinstance(index, HnswIndex) else ""
        print(f"{subjects} subjects of {rows} rows: {nbytes:.0f} bytes a row{trusted}", flush=True)
        queries = list(zip([sentence() for _ in range(QUERIES)], clustered(QUERIES, centres), strict=True))
        for recipe in ("semantic", "default"):
            stream, tenant = (timed(cache, extent, recipe, queries) for extent in (first, incarnation))
            pairs = [(stream(), tenant()) for _ in range(PAIRS)]
            wall, cpu = (statistics.median(b[n] / a[n] for a, b in pairs) for n in range(2))
            p50 = [statistics.median(side[0] for side in both) * 1e3 for both in zip(*pairs, strict=True)]
            print(
                f"search, {recipe}: tenant ÷ one subject {wall:.1f} ({cpu:.1f} cpu),"
                f" p50 {p50[1]:.2f} and {p50[0]:.2f} ms"
            )
        ids, vectors = everything(store, incarnation)
        shares = []
        for text, vector in queries:
            nearest = {ids[place] for place in np.argsort(-(vectors @ vector))[:10]}
            found = find(cache, incarnation, "semantic", text, vector)
            shares.append(len(nearest.intersection(found)) / 10)
        print(f"recall of the ten nearest {statistics.mean(shares):.3f}")


def timed(
    cache: StreamCache, extent: Extent, recipe: str, queries: list[tuple[str, Vectors]]
) -> Callable[[], tuple[float, float]]:
    """A measurement of the median search, in seconds by the clock and of CPU time."""

    def run() -> tuple[float, float]:
        wall, cpu = [], []
        for text, vector in queries:
            began, spent = time.perf_counter(), time.thread_time()
            find(cache, extent, recipe, text, vector)
            wall.append(time.perf_counter() - began)
            cpu.append(time.thread_time() - spent)
        return statistics.median(wall), statistics.median(cpu)

    run()
    return run


def find(cache: StreamCache, extent: Extent, recipe: str, text: str, vector: Vectors) -> list[MemoryId]:
    """The ids of the ten best."""
    query = Query(text, vector, RECIPES[recipe], View(ClientId("c"), Micros(NOW_MILLIS * 1000)), 10)
    with cache.reading(extent, SPACE) as stream:
        return [hit.row.memory.id for hit in search(stream, query)]


def everything(store: MemoryStore, incarnation: Incarnation) -> tuple[list[MemoryId], Vectors]:
    """Every memory of the tenant, and the vectors in the same order."""
    changes: list[Change] = []
    with store.read() as reading:
        page = reading.living(incarnation, ("", CommitStamp(0)), SPACE, 1_000)
        while page:
            changes += page
            page = reading.living(incarnation, (page[-1].stream, page[-1].commit_stamp), SPACE, 1_000)
    vectors = decode_vectors([change.vector for change in changes if change.vector is not None])
    return [change.memory_id for change in changes], vectors


if __name__ == "__main__":
    main()
