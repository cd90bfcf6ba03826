"""``python -m tenants reindex``: a tenant's vectors go over to another embedding space."""

from __future__ import annotations

from typing import Annotated

import typer

from scrubjay import v1
from tenants.cli import LOCAL_SERVER, AdminKey, AsJson, Server, TenantId, admin
from tenants.operation_commands import NoWait, report


def reindex(
    tenant_id: TenantId,
    api_key: AdminKey,
    embedder: Annotated[
        str, typer.Option(help="The embedder that shall make its vectors, by name, or the space's id.")
    ],
    no_wait: NoWait = False,
    server: Server = LOCAL_SERVER,
    as_json: AsJson = False,
) -> None:
    """Take a tenant's vectors to another embedding space, while it serves."""
    with admin(server, api_key) as stub:
        request = v1.ReindexTenantRequest(tenant_id=tenant_id, embedder=embedder)
        begun = stub.ReindexTenant(request).operation
        report(stub, begun, no_wait=no_wait, as_json=as_json)
