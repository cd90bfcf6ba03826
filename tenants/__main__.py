"""``python -m tenants``: tenants, keys and devices from a terminal, over gRPC."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from typing import Annotated

import typer
from google.protobuf.json_format import Parse, ParseError
from google.protobuf.message import Message

from scrubjay import v1
from tenants.audit_command import audit
from tenants.cli import (
    LOCAL_SERVER,
    AdminKey,
    AsJson,
    KeyId,
    Owner,
    Server,
    TenantId,
    TenantOption,
    admin,
    fail,
)
from tenants.screen import (
    device_table,
    enrolment_table,
    key_table,
    list_of_devices,
    list_of_tenants,
    rotation_table,
    show,
    tenant_table,
)
from tenants.subject_commands import erase_subject, export_subject

app = typer.Typer(
    help="Tenants, their API keys and their devices.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class RoleName(StrEnum):
    """The contract's roles as they are typed."""

    PLATFORM_ADMIN = "platform-admin"
    TENANT_ADMIN = "tenant-admin"
    SERVICE = "service"
    READER = "reader"


@app.command()
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


@app.command()
def get(
    tenant_id: TenantId, api_key: AdminKey, server: Server = LOCAL_SERVER, as_json: AsJson = False
) -> None:
    """Show one tenant."""
    with admin(server, api_key) as stub:
        answer = stub.GetTenant(v1.GetTenantRequest(tenant_id=tenant_id))
    show(answer.tenant, tenant_table(answer.tenant), as_json)


@app.command("list")
def list_(api_key: AdminKey, server: Server = LOCAL_SERVER, as_json: AsJson = False) -> None:
    """Show all tenants."""
    with admin(server, api_key) as stub:
        tenants = list(_every_tenant(stub))
    show(tenants, list_of_tenants(tenants), as_json)


@app.command()
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
    server: Server = LOCAL_SERVER,
    as_json: AsJson = False,
) -> None:
    """Change a tenant's name, what it forgets, how it writes, or its limits."""
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


@app.command()
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


@app.command()
def resume(
    tenant_id: TenantId, api_key: AdminKey, server: Server = LOCAL_SERVER, as_json: AsJson = False
) -> None:
    """Let a suspended tenant be used again."""
    with admin(server, api_key) as stub:
        answer = stub.ResumeTenant(v1.ResumeTenantRequest(tenant_id=tenant_id))
    show(answer.tenant, tenant_table(answer.tenant), as_json)


@app.command()
def delete(
    tenant_id: TenantId,
    api_key: AdminKey,
    grace_days: Annotated[int | None, typer.Option(help="Days until it is purged. Default: 30.")] = None,
    confirm: Annotated[
        str | None, typer.Option(help="The tenant's id again. Without it, it is asked for.")
    ] = None,
    server: Server = LOCAL_SERVER,
    as_json: AsJson = False,
) -> None:
    """Stop every use of a tenant, and purge all that is stored of it when its grace has passed."""
    if confirm is None:
        confirm = typer.prompt(f"Type {tenant_id} to delete it and all its memories", err=True)
    if confirm != tenant_id:
        fail(f"{confirm!r} is not {tenant_id!r}; nothing was deleted")
    with admin(server, api_key) as stub:
        answer = stub.DeleteTenant(v1.DeleteTenantRequest(tenant_id=tenant_id, grace_days=grace_days))
    show(answer.tenant, tenant_table(answer.tenant), as_json)


@app.command()
def undelete(
    tenant_id: TenantId, api_key: AdminKey, server: Server = LOCAL_SERVER, as_json: AsJson = False
) -> None:
    """Take a deletion back, until the purge has begun."""
    with admin(server, api_key) as stub:
        answer = stub.UndeleteTenant(v1.UndeleteTenantRequest(tenant_id=tenant_id))
    show(answer.tenant, tenant_table(answer.tenant), as_json)


@app.command()
def create_key(
    api_key: AdminKey,
    role: Annotated[RoleName, typer.Option(help="What the key may do.")],
    tenant: Owner = "",
    name: Annotated[str, typer.Option(help="A name for people.")] = "",
    client_id: Annotated[str, typer.Option(help="The client it writes as. Default: the key's id.")] = "",
    expires: Annotated[datetime | None, typer.Option(help="When it ends, in UTC. Default: never.")] = None,
    across_subjects: Annotated[
        bool, typer.Option("--across-subjects", help="Let it search all subjects of the tenant at once.")
    ] = False,
    server: Server = LOCAL_SERVER,
    as_json: AsJson = False,
) -> None:
    """Make a key. It is shown now and never again."""
    request = v1.CreateApiKeyRequest(
        tenant_id=tenant,
        role=v1.Role.Value(f"ROLE_{role.name}"),
        display_name=name,
        client_id=client_id,
        across_subjects=across_subjects,
    )
    if expires is not None:
        request.expires_at.FromDatetime(expires)
    with admin(server, api_key) as stub:
        answer = stub.CreateApiKey(request)
    show(answer, key_table(answer.api_key), as_json)
    if not as_json:
        typer.echo(f"Keep this key; it is not shown again:\n{answer.secret}")


@app.command()
def rotate_key(
    key_id: KeyId,
    api_key: AdminKey,
    tenant: Owner = "",
    overlap_hours: Annotated[
        float | None, typer.Option(help="Hours that the old key is still good for. Default: 24.")
    ] = None,
    server: Server = LOCAL_SERVER,
    as_json: AsJson = False,
) -> None:
    """Make a key in place of another. It is shown now and never again."""
    request = v1.RotateApiKeyRequest(tenant_id=tenant, key_id=key_id)
    if overlap_hours is not None:
        request.overlap_seconds = round(overlap_hours * 3600)
    with admin(server, api_key) as stub:
        answer = stub.RotateApiKey(request)
    show(answer, rotation_table(answer), as_json)
    if not as_json:
        typer.echo(f"Keep this key; it is not shown again:\n{answer.secret}")


@app.command()
def revoke_key(
    key_id: KeyId,
    api_key: AdminKey,
    tenant: Owner = "",
    server: Server = LOCAL_SERVER,
    as_json: AsJson = False,
) -> None:
    """End a key at once."""
    with admin(server, api_key) as stub:
        answer = stub.RevokeApiKey(v1.RevokeApiKeyRequest(tenant_id=tenant, key_id=key_id))
    show(answer.api_key, key_table(answer.api_key), as_json)


@app.command()
def create_enrolment(
    api_key: AdminKey,
    tenant: TenantOption,
    user: Annotated[str, typer.Option(help="The user whose memories the device syncs.")] = "",
    agent: Annotated[str, typer.Option(help="The agent, for memories without a user.")] = "",
    run: Annotated[str, typer.Option(help="The run, for memories without a user and an agent.")] = "",
    scope: Annotated[
        list[str] | None,
        typer.Option(help="A scope it sees, with what lies below; may be repeated. Default: all."),
    ] = None,
    client_id: Annotated[
        str,
        typer.Option(help="The client it acts as, such as that of a lost device. Default: a new one."),
    ] = "",
    name: Annotated[str, typer.Option(help="A name for people.")] = "",
    expires: Annotated[
        datetime | None, typer.Option(help="When the code ends, in UTC. Default: in an hour.")
    ] = None,
    server: Server = LOCAL_SERVER,
    as_json: AsJson = False,
) -> None:
    """Make a code that lets one device in. It is shown now and never again."""
    request = v1.CreateEnrolmentRequest(
        tenant_id=tenant,
        user_id=user,
        agent_id=agent,
        run_id=run,
        scopes=scope,
        client_id=client_id,
        display_name=name,
    )
    if expires is not None:
        request.expires_at.FromDatetime(expires)
    with admin(server, api_key) as stub:
        answer = stub.CreateEnrolment(request)
    show(answer, enrolment_table(request, answer), as_json)
    if not as_json:
        typer.echo(f"Give this code to the device; it is not shown again:\n{answer.enrolment_code}")


@app.command()
def list_devices(
    api_key: AdminKey, tenant: TenantOption, server: Server = LOCAL_SERVER, as_json: AsJson = False
) -> None:
    """Show a tenant's devices, revoked ones too."""
    with admin(server, api_key) as stub:
        devices = list(_every_device(stub, tenant))
    show(devices, list_of_devices(devices), as_json)


@app.command()
def revoke_device(
    device_id: Annotated[str, typer.Argument(help="The device's id, as list-devices shows it.")],
    api_key: AdminKey,
    tenant: TenantOption,
    wipe: Annotated[
        bool, typer.Option("--wipe", help="Tell it to delete all it holds, unsent edits too, when it calls.")
    ] = False,
    server: Server = LOCAL_SERVER,
    as_json: AsJson = False,
) -> None:
    """End a device at once. A device that was revoked can still be told to wipe."""
    with admin(server, api_key) as stub:
        answer = stub.RevokeDevice(v1.RevokeDeviceRequest(tenant_id=tenant, device_id=device_id, wipe=wipe))
    show(answer.device, device_table(answer.device), as_json)


# --- pages --------------------------------------------------------------------------------------


def _every_tenant(stub: v1.TenantAdminServiceStub) -> Iterator[v1.Tenant]:
    page = stub.ListTenants(v1.ListTenantsRequest(page_size=1000))
    yield from page.tenants
    while page.next_page_token:
        page = stub.ListTenants(v1.ListTenantsRequest(page_size=1000, page_token=page.next_page_token))
        yield from page.tenants


def _every_device(stub: v1.TenantAdminServiceStub, tenant_id: str) -> Iterator[v1.Device]:
    request = v1.ListDevicesRequest(tenant_id=tenant_id, page_size=1000)
    page = stub.ListDevices(request)
    yield from page.devices
    while page.next_page_token:
        request.page_token = page.next_page_token
        page = stub.ListDevices(request)
        yield from page.devices


app.command("audit")(audit)
app.command("export-subject")(export_subject)
app.command("erase-subject")(erase_subject)


if __name__ == "__main__":
    app(prog_name="python -m tenants")
