"""``python -m tests.fault.reborn --seconds 60``: one tenant id is deleted and made again and again, while
writers of each life go on, on two servers of one PostgreSQL; with ``--sqlite`` on one with a file.

Each life is filled with something of everything, and what its
callers were given is tried in the next: nothing of it opens anything, changes anything, or is seen. A write
that began in one life and computes for long, on each server, comes to its end in the next, and is refused.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import grpc
from sqlalchemy import create_engine

from scrubjay import v1
from server import purging
from server.app import App
from server.config import Settings
from server.providers.hashed import HashEmbedder
from tests.chat_server import ChatServer
from tests.isolation.fields import Kind
from tests.isolation.filling import filled
from tests.isolation.home import DEVICE, SERVICE, Home
from tests.isolation.known import Known, create_operation, fresh_id
from tests.isolation.lines import RPCS, Came, call
from tests.isolation.reads import told
from tests.isolation.requests import sending
from tests.isolation.walk import Nothing, cases, check, look_for
from tests.isolation.world import AHEAD, Clock, one_database, stored_of, until_purged
from tests.postgres import running_postgres

TENANT = "again"
WRITERS = 2
"""A server's, which write on, refused or not."""
SLOW = "this takes long"
KEPT = {"purges", "catalogue_tenants", "catalogue_audit_events", "catalogue_usage", "catalogue_operations"}
"""Where a life that is over is still named: that it ended, and what operators and bills are asked about."""


@dataclass
class Servers:
    """Servers of one catalogue; what they embed waits at the ``gate`` where it says that it is slow."""

    settings: Settings
    clock: Clock
    platform: str
    channels: Sequence[grpc.Channel]
    catalogue: Any
    gate: threading.Event = field(default_factory=threading.Event)
    waiting: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))


@contextmanager
def serving(settings: Settings, count: int) -> Iterator[Servers]:
    """Servers on these databases for the block, each with a folder of its own."""
    with ExitStack() as stack:
        chat = stack.enter_context(ChatServer())
        chosen = {"chat_base_url": chat.base_url, "chat_model": "talker", "chat_api_key": "chat-secret"}
        asked = Settings(**chosen).model_dump(include=set(chosen))
        given = one_database(settings).model_copy(update=asked)
        stack.enter_context(patch.object(purging, "INTERVAL_SECONDS", 0.02))
        clock, found = Clock(), list[App]()
        for n in range(count):
            folder = given.data_dir if count == 1 else given.data_dir / str(n)
            found.append(stack.enter_context(App(given.model_copy(update={"data_dir": folder}), clock)))
        first = found[0].first_credentials
        assert first is not None
        channels = [stack.enter_context(grpc.insecure_channel(app.address)) for app in found]
        url = given.catalogue_url().replace("postgresql://", "postgresql+psycopg://", 1)
        catalogue = create_engine(url)
        stack.callback(catalogue.dispose)
        servers = Servers(given, clock, first.admin.secret, channels, catalogue)
        stack.enter_context(_slow_embedding(servers))
        yield servers


@contextmanager
def _slow_embedding(servers: Servers) -> Iterator[None]:
    embed = HashEmbedder.embed

    def slow(self: HashEmbedder, texts: Sequence[str], kind: Any) -> Any:
        if any(SLOW in text for text in texts):
            servers.waiting.release()
            servers.gate.wait(60)
        return embed(self, texts, kind)

    with patch.object(HashEmbedder, "embed", slow):
        try:
            yield
        finally:
            servers.gate.set()


def run(
    servers: Servers, *, lives: int = 0, seconds: float = 0, tried: Collection[Kind] = tuple(Kind)
) -> Counter[str]:
    """So many lives, or lives for so long; what happened, counted. AssertionError where one sees another.

    Of these kinds everything that a life was given is tried in the next.
    """
    counts, before, due = Counter[str](), list[_Life](), time.monotonic() + seconds
    while counts["lives"] < lives or time.monotonic() < due:
        life = _Life(servers, counts["lives"], counts)
        if before:
            life.begin(before[-1])
            life.meet(before[-1], tried)
        else:
            life.begin(None)
        life.write()
        life.end()
        before.append(life)
        counts["lives"] += 1
    servers.gate.set()
    for one in before:
        one.join()
    left = stored_of(servers.settings, [one.incarnation for one in before])
    named = {table: sorted(rows) for table, rows in left.items() if rows and table not in KEPT}
    assert not named, f"rows of lives that are over: {named}"
    return counts


class _Life:
    """One life of the tenant, and the callers that write in it."""

    def __init__(self, servers: Servers, number: int, counts: Counter[str]) -> None:
        self._servers = servers
        self._name = f"life{number}x"
        self._counts = counts
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._slow: list[threading.Thread] = []
        self._late: list[Came] = []
        self.home = Home(Known("", TENANT, ""), servers.channels[0], servers.platform)

    @property
    def known(self) -> Known:
        return self.home.known

    @property
    def incarnation(self) -> str:
        return str(self.known.values[Kind.LIFE][0])

    def begin(self, before: _Life | None) -> None:
        """Make the tenant, let what is late of the life before come to its end, and fill it."""
        waiter = threading.Thread(target=self._open_the_gate)
        waiter.start()
        servers, channel = self._servers, self._servers.channels[0]
        self.home = filled(channel, servers.platform, TENANT, self._name, servers.catalogue)
        waiter.join()
        if before is not None:
            before.join()

    def _open_the_gate(self) -> None:
        """Once the next life has begun."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            came = self.home.call(
                "platform", "TenantAdminService/GetTenant", v1.GetTenantRequest(tenant_id=TENANT)
            )
            if came.ok and came.responses[0].tenant.state == v1.TENANT_STATE_ACTIVE:
                break
            self._over.wait(0.005)
        self._servers.gate.set()

    def meet(self, before: _Life, tried: Collection[Kind]) -> None:
        """Nothing of the life before is here: not in what is told, not for what its callers were given."""
        marks = before.known.marks() - self.known.marks()
        for home in self._homes():
            told(home, marks)
        known: Nothing = {}
        for case in cases([before.known]):
            if case.kind in tried:
                self._counts["tried"] += check(case, self.home, marks, known)
        for channel in self._servers.channels:
            self._knock(before.known, channel, marks)
        told(self.home, {before.known.canary.encode()})  # its ids were sent since, and some are kept

    def _knock(self, them: Known, channel: grpc.Channel, marks: set[bytes]) -> None:
        """A server that has not heard yet lets them in, but to nothing."""
        for what, key in them.keys.items():
            for name, request in (
                ("MemoryService/List", v1.ListRequest(user_id="alice")),
                ("MemoryService/Add", v1.AddRequest(memories=[v1.Memory(user_id="alice", content="Late.")])),
                ("SyncService/Sync", v1.SyncRequest(protocol=1)),
                ("TenantAdminService/ListDevices", v1.ListDevicesRequest(tenant_id=TENANT)),
            ):
                came = call(channel, key, RPCS[name], request)
                look_for(f"{what} of the life before, {name}", came.whole, self.known.marks() | marks)
                _check_refusal(came)
                assert not came.ok or name != "MemoryService/Add", what
                self._counts["knocks"] += 1

    def write(self) -> None:
        """Callers write on every server until they are told to end, and some of it takes long."""
        self._servers.gate.clear()
        for home in self._homes():
            for _ in range(WRITERS):
                self._start(self._threads, self._write_on, home)
            self._start(self._slow, self._write_slowly, home)
            self._start(self._slow, self._sync_slowly, home)
        for _ in self._homes():
            assert self._servers.waiting.acquire(timeout=30)

    def _start(self, threads: list[threading.Thread], work: Any, home: Home) -> None:
        threads.append(threading.Thread(target=work, args=(home,)))
        threads[-1].start()

    def _homes(self) -> list[Home]:
        """The tenant on each server."""
        return [replace(self.home, channel=channel) for channel in self._servers.channels]

    def _write_on(self, home: Home) -> None:
        memory = v1.Memory(user_id="alice", content=f"{self.known.canary} is written on and on.")
        request = v1.AddRequest(memories=[memory], dedup=v1.DEDUP_OFF)
        while not self._over.is_set():
            came = home.call(SERVICE, "MemoryService/Add", request)
            _check_refusal(came)
            self._counts["writes" if came.ok else "writes refused"] += 1
            if not came.ok:
                self._over.wait(0.01)

    def _write_slowly(self, home: Home) -> None:
        memory = v1.Memory(user_id="alice", content=f"{self.known.canary}: {SLOW}.")
        self._late.append(home.call(SERVICE, "MemoryService/Add", v1.AddRequest(memories=[memory])))

    def _sync_slowly(self, home: Home) -> None:
        made = create_operation(fresh_id(), f"{self.known.canary}, offline: {SLOW}.")
        request = sending(home, batch=v1.Batch(operations=[made]))
        self._late.append(home.call(DEVICE, "SyncService/Sync", request))

    def end(self) -> None:
        """Delete the tenant, on one server or the other, and wait until it is purged."""
        number = self._counts["lives"] % len(self._servers.channels)
        home = replace(self.home, channel=self._servers.channels[number])
        home.govern("DeleteTenant", v1.DeleteTenantRequest(tenant_id=TENANT, grace_days=0))
        self._servers.clock.ahead += AHEAD
        until_purged(home)

    def join(self) -> None:
        """Wait until all callers have gone. AssertionError where a late write was taken."""
        self._over.set()
        for thread in (*self._threads, *self._slow):
            thread.join(60)
            assert not thread.is_alive()
        for came in self._late:
            _check_refusal(came)
            assert not came.ok, "a write of one life was taken in the next"
            self._counts["late writes refused"] += 1
        self._late.clear()


def _check_refusal(came: Came) -> None:
    assert came.code not in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN), came.message


def main() -> int:
    """Run; 1 where a life saw another one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long")
    parser.add_argument("--sqlite", action="store_true", help="one server on a SQLite file")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        settings = Settings(listen="127.0.0.1:0", data_dir=folder / "data", embedder="hash")
        if not given.sqlite:
            postgres = stack.enter_context(running_postgres())
            pepper = Settings(pepper="of both servers").pepper
            settings = settings.model_copy(update={"shards": postgres.create(), "pepper": pepper})
        servers = stack.enter_context(serving(settings, 1 if given.sqlite else 2))
        counts = run(servers, seconds=given.seconds)
    print(", ".join(f"{count} {name}" for name, count in counts.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
