"""Hundreds of tenants that nobody calls cost nothing; those that are called stay within a budget."""

from __future__ import annotations

import gc
import itertools
import threading
import tracemalloc
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import Engine, event, insert

from scrubjay.memory import Memory, MemoryId, Micros
from scrubjay.merge import create
from scrubjay.stamp import ReplicaId, Stamp
from server.app import App
from server.config import Settings
from server.index.cache import StreamCache
from server.index.shelf import Shelf
from server.store.memory_store import MemoryStore, StoredMemory, StreamKey, Writing
from server.store.vector_codec import encode_vectors
from tenants.placement import place
from tenants.registry import open_catalogue, rows, tables
from tenants.tenant import Incarnation, Tenant, TenantState

DIMENSION = 512
SPACE = f"test/{DIMENSION}"
NOW = 1_800_000_000_000
MANY = 500
MOST_BYTES = 60_000
WARM = 20
"""Tenants that are called before: what a process remembers of words is not theirs."""
WORDS = ("bread", "letter", "garden", "lisbon", "winter", "museum", "painter", "island", "guitar", "doctor")


# --- a start ------------------------------------------------------------------------------------------


def register(settings: Settings, count: int) -> None:
    """Put so many tenants more into the catalogue."""
    names = settings.shard_urls().keys()
    lives = [Incarnation(str(uuid.uuid4())) for _ in range(count)]
    made = [
        Tenant(f"t-{life}", "", life, TenantState.ACTIVE, place(life, names), "hash-1/1024", Micros(0))
        for life in lives
    ]
    engine = open_catalogue(settings.catalogue_url())
    with engine.begin() as connection:
        connection.execute(insert(tables.tenants), [rows.kept_tenant(tenant) for tenant in made])
    engine.dispose()


@contextmanager
def statements() -> Iterator[list[str]]:
    """What this thread asks databases during the block."""
    asked: list[str] = []
    mine = threading.get_ident()

    def note(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        if threading.get_ident() == mine:
            asked.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield asked
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def test_a_start_touches_no_tenant(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, listen="127.0.0.1:0", embedder="hash")
    App(settings).close()
    with statements() as with_few:
        App(settings).close()
    register(settings, MANY)
    with statements() as with_many:
        App(settings).close()
    assert with_many == with_few
    assert any("catalogue_tenants" in statement for statement in with_few)


# --- what is resident ---------------------------------------------------------------------------------


@contextmanager
def caching(folder: Path, budget_bytes: int = 1 << 30) -> Iterator[tuple[MemoryStore, StreamCache]]:
    folder.mkdir(exist_ok=True)
    with MemoryStore(f"sqlite:///{folder / 'shard.db'}") as store:
        store.migrate()
        cache = StreamCache(store, Shelf(folder / "shelf"), {SPACE: DIMENSION}, budget_bytes=budget_bytes)
        try:
            yield store, cache
        finally:
            cache.close()


def fill(store: MemoryStore, tenants: int, count: int) -> list[StreamKey]:
    """So many memories of one person in each of so many tenants."""
    keys = [StreamKey(Incarnation(str(uuid.uuid4())), "user:alice") for _ in range(tenants)]
    numbers = itertools.count()
    vectors = encode_vectors(np.eye(max(count, 1), DIMENSION, dtype=np.float32))

    def unit(writing: Writing) -> None:
        for key in keys:
            stored, made = [], []
            for stamp, vector in zip(writing.stamps(key, count, NOW), vectors, strict=True):
                memory = Memory(
                    MemoryId(str(uuid.uuid4())), sentence(next(numbers)), Micros(0), user_id="alice"
                )
                edit = Stamp(stamp, ReplicaId(bytes(16)))
                stored.append(StoredMemory.of(create(memory, edit), stamp))
                made.append((memory.id, edit, vector))
            writing.insert(key, stored)
            writing.put_vectors(key, SPACE, made)

    store.write(keys, unit)
    return keys


def sentence(number: int) -> str:
    """Some ten words, most of them in no other memory of the tenant, and in some of others."""
    own = " ".join(f"{word}{number % (10 * WARM)}" for word in WORDS[:5])
    return f"{own} {' '.join(WORDS[(number * step) % len(WORDS)] for step in (1, 3, 7))}"


def load(cache: StreamCache, keys: Sequence[StreamKey]) -> None:
    for key in keys:
        with cache.reading(key, SPACE):
            pass


def test_the_account_of_small_streams_is_honest_and_they_are_small(tmp_path: Path) -> None:
    count = 10
    with caching(tmp_path) as (store, cache):
        keys = fill(store, 60, count)
        load(cache, keys[:WARM])
        gc.collect()
        tracemalloc.start()
        try:
            counted = cache.nbytes
            load(cache, keys[WARM:])
            gc.collect()
            grown, counted = tracemalloc.get_traced_memory()[0], cache.nbytes - counted
        finally:
            tracemalloc.stop()
    assert counted == pytest.approx(grown, rel=0.25)
    assert grown / len(keys[WARM:]) < MOST_BYTES


def test_a_budget_holds_whatever_tenants_are_called(tmp_path: Path) -> None:
    count = 3
    with caching(tmp_path / "weighed") as (store, cache):
        load(cache, fill(store, 1, count))
        each = cache.nbytes
    budget = 50 * each
    with caching(tmp_path / "kept", budget) as (store, cache):
        keys = fill(store, MANY, count)
        for rank in np.minimum(np.random.default_rng(1).zipf(1.2, MANY), MANY):
            with cache.reading(keys[rank - 1], SPACE) as stream:
                assert len(stream) == count
            assert cache.nbytes <= budget
        assert cache.nbytes > budget / 2
