"""What an operator does while no server runs: keys, migrations, and saying that a backup was restored."""

from __future__ import annotations

from contextlib import ExitStack

from server import heads
from server.app import wall_clock
from server.config import Settings
from server.data_dir import locked, pepper
from server.store.memory_store import MemoryStore
from tenants.registry import Registry, open_catalogue
from tenants.tenant import Role


def new_admin_key(settings: Settings) -> str:
    """A new platform admin's key, for who has the data directory. The server may not run on it."""
    with ExitStack() as stack:
        stack.enter_context(locked(settings.data_dir))
        engine = open_catalogue(settings.catalogue_url())
        stack.callback(engine.dispose)
        secret = pepper(settings.data_dir, settings.pepper.get_secret_value())
        registry = Registry(engine, pepper=secret, shard_names=settings.shard_urls(), space="")
        created = registry.create_api_key(
            None, Role.PLATFORM_ADMIN, now=wall_clock(), display_name="made on the server's machine"
        )
        return created.secret


def migrate_all(settings: Settings) -> list[str]:
    """Bring the catalogue and every shard to this version's tables; what was looked at."""
    with ExitStack() as stack:
        stack.enter_context(locked(settings.data_dir))
        open_catalogue(settings.catalogue_url()).dispose()
        urls = settings.shard_urls()
        for url in urls.values():
            stack.enter_context(MemoryStore(url)).migrate()
    return ["catalogue", *urls]


def begin_epochs(settings: Settings) -> int:
    """Say that the databases were restored from a backup, so that devices give back what they hold; of how
    many streams that is true. The server may not run on them."""
    with ExitStack() as stack:
        stack.enter_context(locked(settings.data_dir))
        count = 0
        for url in settings.shard_urls().values():
            store = stack.enter_context(MemoryStore(url))
            store.migrate()
            count += store.begin_epochs(wall_clock() // 1000)
        heads.forget_marks(settings.data_dir)
    return count
