"""``python -m tenants``: every RPC of TenantAdminService from a terminal, over gRPC."""

from __future__ import annotations

import typer

from tenants import (
    archive_commands,
    device_commands,
    key_commands,
    operation_commands,
    shard_commands,
    tenant_commands,
)
from tenants.audit_command import audit
from tenants.cli import CommandGroup
from tenants.reindex_command import reindex
from tenants.subject_commands import erase_subject, export_subject
from tenants.usage_command import usage

app = typer.Typer(
    cls=CommandGroup,
    help="Tenants, their API keys and their devices.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
tenant_commands.add_commands(app)
key_commands.add_commands(app)
device_commands.add_commands(app)
operation_commands.add_commands(app)
shard_commands.add_commands(app)
archive_commands.add_commands(app)
app.command("export-subject")(export_subject)
app.command("erase-subject")(erase_subject)
app.command("audit")(audit)
app.command("usage")(usage)
app.command("reindex")(reindex)


if __name__ == "__main__":
    app(prog_name="python -m tenants")
