"""A server with a tenant and others that are foreign to it in every way: living, suspended, made again.

home       made, filled, deleted, purged, and made and filled again: its callers are those of today
earlier    the first life of home
live       a tenant that is active
halted     a tenant that is suspended
reborn     a tenant that was deleted and made again under its old id
ghost      the first life of reborn
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from unittest.mock import patch

import grpc
from sqlalchemy import Engine, create_engine, select

from scrubjay import v1
from scrubjay.memory import Micros
from server import purging
from server.app import App, wall_clock
from server.config import Settings
from server.store.tables import metadata as shard_tables
from tenants.registry.tables import metadata as catalogue_tables
from tests.chat_server import ChatServer
from tests.isolation.fields import Kind
from tests.isolation.filling import COMMON_IDS, COMMON_PENDING, filled
from tests.isolation.home import ALICE, DEVICE, PLATFORM, SERVICE, Home
from tests.isolation.known import Known, create_operation, set_operation
from tests.isolation.reads import told
from tests.isolation.requests import exported, sending
from tests.isolation.walk import look_for

AHEAD = purging.SETTLED_MICROS * 2
"""How far the server's clock runs ahead once lives were purged; it never goes back."""
HOME, REBORN = "home", "reborn"


@dataclass
class World:
    """What was built, beside the settings of a server that serves it."""

    settings: Settings
    platform: str
    home: Known
    others: list[Known]
    before: dict[str, object]
    """What home was told before the others were filled."""

    def lives(self) -> list[str]:
        """The incarnations of the others."""
        return [str(other.values[Kind.LIFE][0]) for other in self.others]

    def marks(self) -> set[bytes]:
        """What must be in no answer to home."""
        own = self.home.marks()
        return {mark for other in self.others for mark in other.marks()} - own


def one_database(settings: Settings) -> Settings:
    """All tenants in one database: apart they would be apart in any case."""
    if settings.shards:
        return settings
    return settings.model_copy(update={"shards": f"sqlite:///{settings.data_dir / 'shard.db'}"})


class Clock:
    """The server's clock."""

    def __init__(self, ahead: int = 0) -> None:
        self.ahead = ahead

    def __call__(self) -> Micros:
        return Micros(wall_clock() + self.ahead)


def build(settings: Settings) -> World:
    """A server that ran and ended, and what its callers know."""
    clock = Clock()
    with ExitStack() as stack:
        chat = stack.enter_context(ChatServer())
        chosen = {"chat_base_url": chat.base_url, "chat_model": "talker", "chat_api_key": "chat-secret"}
        given = one_database(settings).model_copy(update=Settings(**chosen).model_dump(include=set(chosen)))
        stack.enter_context(patch.object(purging, "INTERVAL_SECONDS", 0.02))
        app = stack.enter_context(App(given, clock))
        first = app.first_credentials
        assert first is not None
        platform = first.admin.secret
        channel = stack.enter_context(grpc.insecure_channel(app.address))
        catalogue = _engine(given.catalogue_url())
        stack.callback(catalogue.dispose)
        lives = [filled(channel, platform, name, f"{name}one", catalogue) for name in (HOME, REBORN)]
        for life in lives:
            life.govern("DeleteTenant", v1.DeleteTenantRequest(**life.tenant, grace_days=0))
            life.known.alive = False
        clock.ahead = AHEAD
        for life in lives:
            until_purged(life)
        home = filled(channel, platform, HOME, "hometwo", catalogue)
        before = told(home)
        reborn = filled(channel, platform, REBORN, "reborntwo", catalogue)
        live = filled(channel, platform, "live", "live", catalogue)
        halted = filled(channel, platform, "halted", "halted", catalogue)
        halted.govern("SuspendTenant", v1.SuspendTenantRequest(**halted.tenant, reason=halted.known.canary))
        others = [one.known for one in (live, halted, reborn, *lives)]
    return World(one_database(settings), platform, home.known, others, before)


def until_purged(home: Home) -> None:
    """Wait until the server has purged the tenant."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        answer = home.govern("GetTenant", v1.GetTenantRequest(**home.tenant))
        assert isinstance(answer, v1.GetTenantResponse)
        if answer.tenant.state == v1.TENANT_STATE_PURGED:
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"{home.known.tenant_id} is not purged")


@contextmanager
def served(world: World, clock: Clock | None = None) -> Iterator[Home]:
    """The world's home, served for the block by a new server, which purges at once what is due."""
    with (
        patch.object(purging, "INTERVAL_SECONDS", 0.02),
        App(world.settings, clock or Clock(AHEAD)) as app,
        grpc.insecure_channel(app.address) as channel,
    ):
        for other in world.others:
            if other.name in ("live", "reborntwo"):
                warm(Home(other, channel, world.platform))
        yield Home(world.home, channel, world.platform)


def warm(other: Home) -> None:
    """Another tenant uses the server: what is its is resident, and files of its are on the disk."""
    told(other)
    snapshot = other.sync("Snapshot", v1.SnapshotRequest())
    assert isinstance(snapshot, v1.SnapshotResponse)
    other.known.values[Kind.SNAPSHOT_TOKEN] = [snapshot.resume_token]
    other.known.values[Kind.TENANT_JOB] += [exported(other)]
    upload = v1.UploadImportRequest(**other.tenant, upload_id=str(other.known.values[Kind.NAME][0]))
    upload.chunk = b"the beginning of a file"
    other.admin("UploadImport", upload)
    other.govern("GetUsage", v1.GetUsageRequest(**other.tenant))  # which writes what was counted


def leave(home: Home, clock: Clock, marks: set[bytes]) -> None:
    """All of home goes, in every way in which anything can go: nothing of others may, or be told.

    Raises Found.
    """
    changed, living, *_ = COMMON_IDS
    again = v1.UpdateRequest(memory=v1.Memory(id=changed, content="My brother Bo Lund lives in Oslo."))
    again.update_mask.paths.append("content")
    made = create_operation(COMMON_PENDING, "This was edited before.")
    for caller, name, request in (
        (SERVICE, "MemoryService/Update", again),
        (SERVICE, "MemoryService/Delete", v1.DeleteRequest(id=changed)),
        (SERVICE, "MemoryService/Restore", v1.RestoreRequest(memory_id=changed)),
        (DEVICE, "SyncService/Sync", sending(home, batch=v1.Batch(operations=[made]))),
        (DEVICE, "SyncService/Sync", sending(home, batch=v1.Batch(operations=[set_operation(living)]))),
        (SERVICE, "MemoryService/Forget", v1.ForgetRequest(**ALICE)),
        (SERVICE, "MemoryService/DeleteAll", v1.DeleteAllRequest(user_id="bob")),
        (PLATFORM, "TenantAdminService/EraseSubject", v1.EraseSubjectRequest(**home.tenant, **ALICE)),
        (PLATFORM, "TenantAdminService/DeleteTenant", v1.DeleteTenantRequest(**home.tenant, grace_days=0)),
    ):
        came = home.call(caller, name, request)
        if caller != PLATFORM:  # who is told the tenant's settings, with names that it was made to take
            look_for(f"leaving by {name}", came.whole, marks)
        assert came.ok, (name, came.code, came.message)
    clock.ahead += AHEAD
    until_purged(home)


# --- what is stored, and logged -------------------------------------------------------------------


def stored_of(settings: Settings, lives: list[str]) -> dict[str, frozenset[str]]:
    """Every row of these lives, by table."""
    found: dict[str, frozenset[str]] = {}
    urls = {settings.catalogue_url(): catalogue_tables}
    shards = dict.fromkeys(settings.shard_urls().values(), shard_tables)
    for url, tables in [*urls.items(), *shards.items()]:
        engine = _engine(url)
        try:
            with engine.connect() as connection:
                for table in tables.tables.values():
                    if "incarnation" in table.c:
                        theirs = select(table).where(table.c.incarnation.in_(lives))
                        rows = connection.execute(theirs).all()
                        found[table.name] = frozenset(map(repr, rows))
        finally:
            engine.dispose()
    return found


def catalogue_engine(settings: Settings) -> Engine:
    """The catalogue past the server."""
    return _engine(settings.catalogue_url())


def _engine(url: str) -> Engine:
    return create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1))


@contextmanager
def logged() -> Iterator[list[logging.LogRecord]]:
    """All that the server logs in the block, down to what it logs for debugging alone."""
    records: list[logging.LogRecord] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    handler, root = Keep(), logging.getLogger()
    names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] in _OURS]
    levels = {name: logging.getLogger(name).level for name in (*names, *_OURS)}
    root.addHandler(handler)
    try:
        for name in levels:
            logging.getLogger(name).setLevel(logging.DEBUG)
        yield records
    finally:
        root.removeHandler(handler)
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


_OURS = ("scrubjay", "server")
