"""Runs the catalogue's migrations on the connection that ``tenants.database.migrate`` gives."""

from __future__ import annotations

from alembic import context

from tenants.registry.tables import metadata

options = context.config.attributes
context.configure(
    connection=options["connection"],
    version_table=options["version_table"],
    target_metadata=metadata,
)
with context.begin_transaction():
    context.run_migrations()
