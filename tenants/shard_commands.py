"""``python -m tenants move``, ``list-shards`` and ``drain``: which database a tenant's memories lie in."""

from __future__ import annotations

from typing import Annotated

import typer

from scrubjay import v1
from tenants.cli import LOCAL_SERVER, AdminKey, AsJson, Server, TenantId, admin
from tenants.operation_commands import NoWait, report
from tenants.screen import list_of_shards, show

ShardName = Annotated[str, typer.Argument(help="The shard's name, such as shard-1.")]


def add_commands(app: typer.Typer) -> None:
    """Add what is about shards."""
    app.command("move")(move)
    app.command("list-shards")(list_shards)
    app.command("drain")(drain)


def move(
    tenant_id: TenantId,
    api_key: AdminKey,
    shard: Annotated[str, typer.Argument(help="Where it goes. Without it, to one of the others.")] = "",
    no_wait: NoWait = False,
    server: Server = LOCAL_SERVER,
    as_json: AsJson = False,
) -> None:
    """Move a tenant to another shard while it serves."""
    with admin(server, api_key) as stub:
        begun = stub.MoveTenant(v1.MoveTenantRequest(tenant_id=tenant_id, shard=shard)).operation
        report(stub, begun, no_wait=no_wait, as_json=as_json)


def list_shards(api_key: AdminKey, server: Server = LOCAL_SERVER, as_json: AsJson = False) -> None:
    """Show the shards, and what they hold."""
    with admin(server, api_key) as stub:
        found = stub.ListShards(v1.ListShardsRequest()).shards
    show(found, list_of_shards(found), as_json)


def drain(
    shard: ShardName,
    api_key: AdminKey,
    undo: Annotated[bool, typer.Option("--undo", help="Let it take tenants again.")] = False,
    no_wait: NoWait = False,
    server: Server = LOCAL_SERVER,
    as_json: AsJson = False,
) -> None:
    """Move every tenant off a shard, and place no more there."""
    with admin(server, api_key) as stub:
        begun = stub.DrainShard(v1.DrainShardRequest(shard=shard, undo=undo)).operation
        if not undo:
            report(stub, begun, no_wait=no_wait, as_json=as_json)
            return
        found = stub.ListShards(v1.ListShardsRequest()).shards
    show(found, list_of_shards(found), as_json)
