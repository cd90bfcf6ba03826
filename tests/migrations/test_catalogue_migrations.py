"""The catalogue's migrations, on SQLite and on PostgreSQL."""

from __future__ import annotations

from pathlib import Path

from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import text

from tenants.database import migrate, open_engine, pending
from tenants.registry import SCRIPTS, VERSION_TABLE, Registry
from tenants.registry.tables import metadata
from tenants.write_settings import WriteSettings

LIFE = "11111111-1111-4111-8111-111111111111"


def test_tenants_and_keys_of_an_older_catalogue_are_what_they_were(database_url: str, tmp_path: Path) -> None:
    scripts = tmp_path / "older"
    (scripts / "versions").mkdir(parents=True)
    (scripts / "env.py").write_text((SCRIPTS / "env.py").read_text())
    for version in ("0001_tenants_keys_requests.py", "0002_devices.py"):
        (scripts / "versions" / version).write_text((SCRIPTS / "versions" / version).read_text())
    engine = open_engine(database_url)
    migrate(engine, scripts, VERSION_TABLE)
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO catalogue_tenants VALUES ('acme', 'Acme', :life, 1, 'shard-0', 'lite-1/512', 7)"
            ),
            {"life": LIFE},
        )
        connection.execute(
            text(
                "INSERT INTO catalogue_api_keys VALUES ('k', :life, :digest, 'key', 3, 'web', 7, NULL, NULL)"
            ),
            {"life": LIFE, "digest": b"d" * 32},
        )
    migrate(engine, SCRIPTS, VERSION_TABLE)
    registry = Registry(engine, pepper=b"p", shard_names=["shard-0"], space="lite-1/512")
    tenant = registry.get_tenant("acme")
    assert (tenant.display_name, tenant.incarnation, tenant.forget_policy) == ("Acme", LIFE, None)
    assert tenant.write_settings == WriteSettings()
    with engine.begin() as connection:
        across = connection.execute(text("SELECT across_subjects FROM catalogue_api_keys")).scalar_one()
    assert not across
    engine.dispose()


def test_migrations_make_what_the_code_expects_and_can_be_repeated(database_url: str) -> None:
    engine = open_engine(database_url)
    assert pending(engine, SCRIPTS, VERSION_TABLE)
    for _ in range(2):
        migrate(engine, SCRIPTS, VERSION_TABLE)
        assert not pending(engine, SCRIPTS, VERSION_TABLE)
    options = {"version_table": VERSION_TABLE, "compare_type": True}
    with engine.begin() as connection:
        assert compare_metadata(MigrationContext.configure(connection, opts=options), metadata) == []
    engine.dispose()
