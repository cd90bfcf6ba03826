"""Alembic's entry: the migrations of a shard, on the connection that ``tenants.database`` opened."""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    version_table=context.config.attributes["version_table"],
)
context.run_migrations()
