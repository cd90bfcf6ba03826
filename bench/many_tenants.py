"""What many quiet tenants cost: a start, resident memory, a first search.

    python bench/many_tenants.py                                        50 000 tenants, some minutes
    python bench/many_tenants.py --tenants 2000 --active 200 --resident 500

Servers are processes of their own. One has ten tenants, the other has all; both are started in turn, A B A B.
Then some tenants get ten memories each, and are searched as often as Zipf has it, under a budget that holds a
fifth of them. What a resident stream costs is measured in this process, with vectors of 512 numbers.
"""

from __future__ import annotations

import argparse
import gc
import re
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import grpc
import numpy as np
from across_subjects import DIMENSION, SPACE, batch, caching, centres_of, clustered, opened
from sqlalchemy import insert

from rpc import running, sentence
from scrubjay import connect, v1
from scrubjay.memory import Micros
from server.app import App
from server.config import Settings
from server.data_dir import pepper
from server.store.memory_store import StreamKey
from tenants.placement import place
from tenants.registry import Registry, open_catalogue, rows, tables
from tenants.tenant import Incarnation, Role, Tenant, TenantState

ROWS = 10
FEW = 10
STARTS = 3
SEARCHES_EACH = 5
ZIPF = 1.2
BUDGET_SHARE = 0.2
LEAST_BUDGET_MIB = 16
CALL_SECONDS = 60.0
FORGOTTEN = 50
"""Streams that are loaded before the others are measured: what a process allocates once."""

rng = np.random.default_rng(1)


@dataclass(frozen=True)
class Place:
    """A data directory with tenants, an admin's key, and the keys of those tenants that call."""

    data_dir: Path
    admin_key: str
    keys: tuple[str, ...]


def main() -> None:
    """Run what the command line asks for and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tenants", type=int, default=50_000)
    parser.add_argument("--active", type=int, default=1_000, help="of them that have memories and call")
    parser.add_argument("--resident", type=int, default=10_000, help="streams to weigh")
    asked = parser.parse_args()
    print("| Work | measured |\n|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        few, many = (
            made(Path(folder) / "few", FEW, 0),
            made(Path(folder) / "many", asked.tenants, asked.active),
        )
        measure_starts(few, many)
        fill(many)
        measure_traffic(many)
        weigh(asked.resident, Path(folder))


def said(what: str, measured: str) -> None:
    """Print a row."""
    print(f"| {what} | {measured} |", flush=True)


# --- tenants ------------------------------------------------------------------------------------------


def made(data_dir: Path, count: int, active: int) -> Place:
    """A server's data directory with so many tenants, of which some have a key."""
    data_dir.mkdir()
    settings = Settings(data_dir=data_dir, listen="127.0.0.1:0", embedder="hash")
    with App(settings) as app:
        assert app.first_credentials is not None
        first = app.first_credentials
    engine = open_catalogue(settings.catalogue_url())
    try:
        with engine.begin() as connection:
            connection.execute(
                insert(tables.tenants), [tenant_row(n, first.tenant, settings) for n in range(count)]
            )
        secret, names = pepper(data_dir, ""), settings.shard_urls()
        registry = Registry(engine, pepper=secret, shard_names=names, space=first.tenant.space)
        keys = [registry.create_api_key(tenant_id(n), Role.SERVICE, now=now()).secret for n in range(active)]
    finally:
        engine.dispose()
    return Place(data_dir, first.admin.secret, tuple(keys))


def tenant_id(number: int) -> str:
    """The id of the tenant of this number."""
    return f"tenant-{number:06}"


def tenant_row(number: int, like: Tenant, settings: Settings) -> dict[str, object]:
    """A tenant's row in the catalogue."""
    life = Incarnation(str(uuid.uuid4()))
    shard = place(life, settings.shard_urls().keys())
    return rows.kept_tenant(Tenant(tenant_id(number), "", life, TenantState.ACTIVE, shard, like.space, now()))


def now() -> Micros:
    """Microseconds since 1970."""
    return Micros(time.time_ns() // 1000)


# --- servers ------------------------------------------------------------------------------------------


@contextmanager
def serving(one: Place, budget_mib: int = 1024) -> Iterator[tuple[int, str]]:
    """A server's process id and address."""
    environment = {
        "SCRUBJAY_LISTEN": "127.0.0.1:0",
        "SCRUBJAY_DATA_DIR": str(one.data_dir),
        "SCRUBJAY_EMBEDDER": "hash",
        "SCRUBJAY_RESIDENT_MIB": str(budget_mib),
    }
    with running([sys.executable, "-m", "server", "serve"], environment) as (pid, address, _):
        yield pid, address


def resident_mib(pid: int | str = "self") -> float:
    """Resident memory of a process that no file backs."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def measure_starts(few: Place, many: Place) -> None:
    """Print how long a start takes, and what a server weighs that has just started."""
    seconds: dict[Place, list[float]] = {few: [], many: []}
    weights: dict[Place, list[float]] = {few: [], many: []}
    for _ in range(STARTS):
        for one in (few, many):
            began = time.perf_counter()
            with serving(one) as (pid, address):
                seconds[one].append(time.perf_counter() - began)
                weights[one].append(resident_mib(pid))
                if one is many and len(seconds[one]) == STARTS:
                    measure_admin(one, address)
    for name, found, form in (
        ("start until it serves, s", seconds, ".2f"),
        ("resident then, MiB", weights, ".0f"),
    ):
        with_few, with_many = (statistics.median(found[one]) for one in (few, many))
        said(f"{name}: few; many tenants", f"{with_few:{form}}; {with_many:{form}}")


def measure_admin(one: Place, address: str) -> None:
    """Print how long an admin waits for a tenant, and for a page of them."""
    with connect(address, one.admin_key, deadline_seconds=CALL_SECONDS) as channel:
        admin = v1.TenantAdminServiceStub(channel)
        page = admin.ListTenants(v1.ListTenantsRequest(page_size=100))
        get = timed(lambda: admin.GetTenant(v1.GetTenantRequest(tenant_id=tenant_id(7))), 50)
        listed = timed(
            lambda: admin.ListTenants(v1.ListTenantsRequest(page_size=100, page_token=page.next_page_token)),
            50,
        )
    said("`GetTenant`; `ListTenants`, a page of 100: p50 ms", f"{median(get)}; {median(listed)}")


def fill(one: Place) -> None:
    """Add ten memories for each tenant that calls."""
    with serving(one) as (_, address):
        for number, key in enumerate(one.keys):
            memories = [v1.Memory(user_id="alice", content=sentence(ROWS * number + n)) for n in range(ROWS)]
            with connect(address, key, deadline_seconds=CALL_SECONDS) as channel:
                v1.MemoryServiceStub(channel).Add(v1.AddRequest(memories=memories, dedup=v1.DEDUP_OFF))


def measure_traffic(one: Place) -> None:
    """Print what first searches cost, and what a server weighs under a budget."""
    weight = ROWS * 1024 * 4 + 40_000
    budget_mib = max(LEAST_BUDGET_MIB, round(BUDGET_SHARE * len(one.keys) * weight / 2**20))
    with serving(one, budget_mib) as (pid, address):
        first, again = [], []
        for number in range(len(one.keys)):  # what connections and queries leave behind is no tenant's
            search(address, one.keys[0], number)
        before = resident_mib(pid)
        for number, key in enumerate(one.keys[1:301], 1):
            with connect(address, key, deadline_seconds=CALL_SECONDS) as channel:
                memories = v1.MemoryServiceStub(channel)
                with suppress(grpc.RpcError):  # opens the connection, and loads nothing
                    memories.Get(v1.GetRequest(id=str(uuid.uuid4())))
                first += timed(partial(ask, memories, number), 1)
                again += timed(partial(ask, memories, number), 3)[1:]
        ratio = p95(first) / p95(again)
        said(
            "first search of a tenant ÷ one that follows, p95 ms",
            f"{p95(first):.1f} ÷ {p95(again):.1f} = {ratio:.1f}",
        )
        for rank in np.minimum(rng.zipf(ZIPF, SEARCHES_EACH * len(one.keys)), len(one.keys)):
            search(address, one.keys[rank - 1], int(rank))
        grown = resident_mib(pid) - before
        said(f"memory grown by, of {len(one.keys)} tenants under {budget_mib} MiB", f"{grown:.0f} MiB")


def search(address: str, key: str, number: int) -> None:
    """Search for a tenant on a connection of its own."""
    with connect(address, key, deadline_seconds=CALL_SECONDS) as channel:
        ask(v1.MemoryServiceStub(channel), number)


def ask(memories: v1.MemoryServiceStub, number: int) -> None:
    """Search what the tenant of this number was given."""
    found = memories.Search(v1.SearchRequest(user_id="alice", query=sentence(ROWS * number), top_k=5))
    assert found.hits


def timed(call: Callable[[], object], times: int) -> list[float]:
    """Milliseconds of each call."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        found.append((time.perf_counter() - began) * 1e3)
    return found


def p95(milliseconds: Sequence[float]) -> float:
    """Their 95th percentile."""
    return float(np.percentile(milliseconds, 95))


def median(milliseconds: Sequence[float]) -> str:
    """Their median, to be printed."""
    return f"{statistics.median(milliseconds):.1f}"


# --- a resident stream --------------------------------------------------------------------------------


def weigh(count: int, folder: Path) -> None:
    """Print what a resident stream of ten memories costs, by what the process grew and by its own account."""
    centres = centres_of(count)
    with opened(folder / "weigh.db") as store:
        keys = [StreamKey(Incarnation(str(uuid.uuid4())), "user:alice") for _ in range(count)]
        for key in keys:
            store.write([key], batch(key, clustered(ROWS, centres)))
        with caching(store, folder) as cache:
            before = weighed(cache.nbytes)
            for number, key in enumerate(keys):
                if number == FORGOTTEN:
                    before = weighed(cache.nbytes)
                with cache.reading(key, SPACE):
                    pass
            grown, counted = (b - a for a, b in zip(before, weighed(cache.nbytes), strict=True))
            each = count - FORGOTTEN
            said(
                f"a resident stream of {ROWS} memories of {DIMENSION} numbers, KB: grown; counted",
                f"{grown / each / 1e3:.1f}; {counted / each / 1e3:.1f}",
            )


def weighed(counted: int) -> tuple[int, int]:
    """Bytes of this process, and those counted."""
    gc.collect()
    return int(resident_mib() * 2**20), counted


if __name__ == "__main__":
    main()
