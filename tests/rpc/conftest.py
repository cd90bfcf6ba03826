"""A real server on a real database, spoken to over a real channel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from scrubjay import connect, v1
from scrubjay.memory import Micros
from server.app import App, wall_clock
from server.config import Settings


@dataclass
class Tenant:
    """A tenant with a channel of its own."""

    tenant_id: str
    key: str
    channel: grpc.Channel
    memories: v1.MemoryServiceStub

    def add(self, *contents: str, user_id: str = "alice", **fields: object) -> list[v1.Memory]:
        """Memories of these contents, as stored."""
        memories = [v1.Memory(user_id=user_id, content=content, **fields) for content in contents]
        return [
            result.memory
            for at in range(0, len(memories), 100)
            for result in self.memories.Add(v1.AddRequest(memories=memories[at : at + 100])).results
        ]

    def found(self, query: str, user_id: str = "alice", **fields: object) -> list[str]:
        """The contents of the hits, best first."""
        response = self.memories.Search(v1.SearchRequest(user_id=user_id, query=query, **fields))
        return [hit.memory.content for hit in response.hits]


@dataclass
class Serving:
    """A running server: its first tenant, its admin, and a way to have more tenants."""

    app: App
    settings: Settings
    admin: v1.TenantAdminServiceStub
    dev: Tenant
    open_channel: Callable[..., grpc.Channel]

    def tenant(self, tenant_id: str, role: v1.Role.ValueType = v1.ROLE_SERVICE) -> Tenant:
        """A new tenant with a key of this role."""
        self.admin.CreateTenant(v1.CreateTenantRequest(tenant_id=tenant_id))
        return self.with_key(tenant_id, role)

    def with_key(self, tenant_id: str, role: v1.Role.ValueType) -> Tenant:
        """An existing tenant through a new key of this role."""
        created = self.admin.CreateApiKey(v1.CreateApiKeyRequest(tenant_id=tenant_id, role=role))
        return self.named(tenant_id, created.secret)

    def named(self, tenant_id: str, key: str, **options: object) -> Tenant:
        """A tenant through this key."""
        channel = self.open_channel(self.app.address, key, **options)
        return Tenant(tenant_id, key, channel, v1.MemoryServiceStub(channel))


@pytest.fixture
def settings(backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> Settings:
    """Settings of a server on each database, with an embedder that loads at once."""
    shards = str(request.getfixturevalue("postgres_url")) if backend == "postgresql" else ""
    return Settings(listen="127.0.0.1:0", data_dir=tmp_path / "data", shards=shards, embedder="hash")


@pytest.fixture
def clock() -> Callable[[], Micros]:
    """The server's clock; a test that needs another time has one of its own."""
    return wall_clock


@pytest.fixture
def serving(settings: Settings, clock: Callable[[], Micros]) -> Iterator[Serving]:
    """A running server."""
    with served(settings, clock) as serving:
        yield serving


@contextmanager
def served(settings: Settings, clock: Callable[[], Micros] = wall_clock) -> Iterator[Serving]:
    """A running server for the block."""
    with ExitStack() as stack:

        def open_channel(target: str, key: str, **options: object) -> grpc.Channel:
            return stack.enter_context(connect(target, key, **options))

        app = stack.enter_context(App(settings, clock))
        first = app.first_credentials
        assert first is not None
        admin = v1.TenantAdminServiceStub(open_channel(app.address, first.admin.secret))
        channel = open_channel(app.address, first.service.secret)
        dev = Tenant("dev", first.service.secret, channel, v1.MemoryServiceStub(channel))
        yield Serving(app, settings, admin, dev, open_channel)


@pytest.fixture
def dev(serving: Serving) -> Tenant:
    """The first tenant of a running server."""
    return serving.dev
