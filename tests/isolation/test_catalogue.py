"""What is written of one tenant in the catalogue leaves another one's row as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from scrubjay.memory import Micros
from tenants.database import migrate, open_engine
from tenants.operation import Kind
from tenants.registry import SCRIPTS, VERSION_TABLE, Registry, RequestKey
from tenants.tenant import Incarnation, Tenant

NOW = Micros(1_796_000_000_000_000)
OTHER_SPACE = "hash-1/1024"
NAMES = ("first", "home", "second")


@pytest.fixture
def registry(database_url: str) -> Iterator[Registry]:
    """A catalogue with three tenants."""
    engine = open_engine(database_url)
    migrate(engine, SCRIPTS, VERSION_TABLE)
    made = Registry(
        engine,
        pepper=b"p" * 32,
        shard_names=["one", "two"],
        space="lite-1/512",
        offered={"lite": "lite-1/512", "hash": OTHER_SPACE},
    )
    for name in NAMES:
        made.create_tenant(name, "", now=NOW)
    yield made
    engine.dispose()


def _assign(registry: Registry, life: Incarnation) -> None:
    registry.placing.assign(life, "elsewhere")


def _switch(registry: Registry, life: Incarnation) -> None:
    registry.operations.begin(Kind.REINDEX, "home", {}, now=NOW, request=RequestKey("once"))
    held = registry.operations.take(NOW, Micros(NOW + 1_000_000), ())
    assert held is not None
    registry.reindexing.switch(held, OTHER_SPACE)


@pytest.mark.parametrize("write", [_assign, _switch])
def test_what_is_written_of_one_tenant_is_anothers_never(
    write: Callable[[Registry, Incarnation], None], registry: Registry
) -> None:
    before = _tenants(registry)
    write(registry, before["home"].incarnation)
    after = _tenants(registry)
    assert after.pop("home") != before.pop("home")
    assert after == before


def _tenants(registry: Registry) -> dict[str, Tenant]:
    return {name: registry.get_tenant(name) for name in NAMES}


def test_a_life_is_one_tenants(registry: Registry) -> None:
    for tenant in _tenants(registry).values():
        assert registry.living(tenant.incarnation) == tenant
    assert registry.living(Incarnation("88888888-8888-4888-8888-888888888888")) is None
