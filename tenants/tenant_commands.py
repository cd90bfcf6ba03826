"""``python -m tenants create``, ``list`` and others: a tenant from its first day to its last."""

from __future__ import annotations

from typing import Annotated

import typer
from google.protobuf.json_format import Parse, ParseError
from google.protobuf.message import Message

from scrubjay import v1
from tenants.cli import (
    LOCAL_SERVER,
    AdminKey,
    AsJson,
    Confirm,
    Server,
    TenantId,
    admin,
    confirm_by_typing,
    pages,
)
from tenants.screen import list_of_tenants, show, tenant_table


def add_commands(app: typer.Typer) -> None:
    """Give the app these commands."""
    for name, command in (
        ("create", create),
        ("get", get),
        ("list", list_),
        ("update", update),
        ("suspend", suspend),
        ("resume", resume),
        ("delete", delete),
        ("undelete", undelete),
    ):
        app.command(name)(command)


def create(
    tenant_id: Annotated[str, typer.Argument(help="Lower-case letters, digits and '-'.")],
    api_key: AdminKey,
    name: Annotated[str, typer.Option(help="A name for people. Default: the tenant's id.")] = "",
    server: Server = LOCAL_SERVER,
    as_json: AsJson = False,
) -> None:
    """Make a tenant, usable at once."""
    with admin(server, api_key) as stub:
        answer = stub.CreateTenant(v1.CreateTenantRequest(tenant_id=tenant_id, display_name=name))
    show(answer.tenant, tenant_table(answer.tenant), as_json)


def get(
    tenant_id: TenantId, api_key: AdminKey, server: Server = LOCAL_SERVER, as_json: AsJson = False
) -> None:
    """Show one tenant."""
    with admin(server, api_key) as stub:
        answer = stub.GetTenant(v1.GetTenantRequest(tenant_id=tenant_id))
    show(answer.tenant, tenant_table(answer.tenant), as_json)


def list_(api_key: AdminKey, server: Server = LOCAL_SERVER, as_json: AsJson = False) -> None:
    """Show all tenants."""
    with admin(server, api_key) as stub:
        found = pages(stub.ListTenants, v1.ListTenantsRequest())
        tenants = [tenant for page in found for tenant in page.tenants]
    show(tenants, list_of_tenants(tenants), as_json)


def update(
    tenant_id: TenantId,
    api_key: AdminKey,
    name: Annotated[str | None, typer.Option(help="A name for people.")] = None,
    forget_policy: Annotated[
        str | None,
        typer.Option(
            help="""What it forgets, as JSON: '{"rules": [{"category": "TASK", "unused_days": 30}]}'. """
            "'{}': only what expired. 'default': what a new tenant forgets."
        ),
    ] = None,
    write_settings: Annotated[
        str | None,
        typer.Option(
            help="""How Add writes, as JSON: '{"policy": "WRITE_POLICY_RAW", "custom_instructions": "…"}'. """
            "'default': as for a new tenant."
        ),
    ] = None,
    quotas: Annotated[
        str | None,
        typer.Option(help="""Its limits, as JSON: '{"devices": 100, "calls_per_second": 50}'. '{}': none."""),
    ] = None,
    retention: Annotated[
        str | None,
        typer.Option(
            help="""How long its past is kept, as JSON: '{"history_days": 365, "tombstone_days": 30}'. """
            "'{}': as for a new tenant."
        ),
    ] = None,
    server: Server = LOCAL_SERVER,
    as_json: AsJson = False,
) -> None:
    """Change a tenant's name, what it forgets, how it writes, its limits, or how long its past is kept."""
    request = v1.UpdateTenantRequest(tenant=v1.Tenant(tenant_id=tenant_id))
    if name is not None:
        request.tenant.display_name = name
        request.update_mask.paths.append("display_name")
    if forget_policy is not None:
        request.update_mask.paths.append("forget_policy")
        if forget_policy != "default":
            _parse(forget_policy, request.tenant.forget_policy, "--forget-policy")
    if write_settings is not None:
        request.update_mask.paths.append("write_settings")
        if write_settings != "default":
            _parse(write_settings, request.tenant.write_settings, "--write-settings")
    if quotas is not None:
        request.update_mask.paths.append("quotas")
        _parse(quotas, request.tenant.quotas, "--quotas")
    if retention is not None:
        request.update_mask.paths.append("retention")
        _parse(retention, request.tenant.retention, "--retention")
    with admin(server, api_key) as stub:
        answer = stub.UpdateTenant(request)
    show(answer.tenant, tenant_table(answer.tenant), as_json)


def _parse(text: str, message: Message, option: str) -> None:
    """Fill a message from an option's JSON; it is then set, even where the JSON is empty."""
    message.SetInParent()
    try:
        Parse(text, message)
    except ParseError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def suspend(
    tenant_id: TenantId,
    api_key: AdminKey,
    reason: Annotated[str, typer.Option(help="Why, for people.")] = "",
    server: Server = LOCAL_SERVER,
    as_json: AsJson = False,
) -> None:
    """Stop every use of a tenant's memories until it is resumed."""
    with admin(server, api_key) as stub:
        answer = stub.SuspendTenant(v1.SuspendTenantRequest(tenant_id=tenant_id, reason=reason))
    show(answer.tenant, tenant_table(answer.tenant), as_json)


def resume(
    tenant_id: TenantId, api_key: AdminKey, server: Server = LOCAL_SERVER, as_json: AsJson = False
) -> None:
    """Let a suspended tenant be used again."""
    with admin(server, api_key) as stub:
        answer = stub.ResumeTenant(v1.ResumeTenantRequest(tenant_id=tenant_id))
    show(answer.tenant, tenant_table(answer.tenant), as_json)


def delete(
    tenant_id: TenantId,
    api_key: AdminKey,
    grace_days: Annotated[int | None, typer.Option(help="Days until it is purged. Default: 30.")] = None,
    confirm: Confirm = None,
    server: Server = LOCAL_SERVER,
    as_json: AsJson = False,
) -> None:
    """Stop every use of a tenant, and purge all that is stored of it when its grace has passed."""
    confirm_by_typing(tenant_id, confirm, "delete it and all its memories")
    with admin(server, api_key) as stub:
        answer = stub.DeleteTenant(v1.DeleteTenantRequest(tenant_id=tenant_id, grace_days=grace_days))
    show(answer.tenant, tenant_table(answer.tenant), as_json)


def undelete(
    tenant_id: TenantId, api_key: AdminKey, server: Server = LOCAL_SERVER, as_json: AsJson = False
) -> None:
    """Take a deletion back, until the purge has begun."""
    with admin(server, api_key) as stub:
        answer = stub.UndeleteTenant(v1.UndeleteTenantRequest(tenant_id=tenant_id))
    show(answer.tenant, tenant_table(answer.tenant), as_json)
