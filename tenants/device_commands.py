"""``python -m tenants create-enrolment`` and others: the devices of a tenant."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from scrubjay import v1
from tenants.cli import (
    LOCAL_SERVER,
    AdminKey,
    AsJson,
    Confirm,
    Server,
    TenantOption,
    admin,
    confirm_by_typing,
    pages,
)
from tenants.screen import device_table, enrolment_table, list_of_devices, show


def add_commands(app: typer.Typer) -> None:
    """Give the app these commands."""
    for name, command in (
        ("create-enrolment", create_enrolment),
        ("list-devices", list_devices),
        ("revoke-device", revoke_device),
    ):
        app.command(name)(command)


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


def list_devices(
    api_key: AdminKey, tenant: TenantOption, server: Server = LOCAL_SERVER, as_json: AsJson = False
) -> None:
    """Show a tenant's devices, revoked ones too."""
    with admin(server, api_key) as stub:
        found = pages(stub.ListDevices, v1.ListDevicesRequest(tenant_id=tenant))
        devices = [device for page in found for device in page.devices]
    show(devices, list_of_devices(devices), as_json)


def revoke_device(
    device_id: Annotated[str, typer.Argument(help="The device's id, as list-devices shows it.")],
    api_key: AdminKey,
    tenant: TenantOption,
    wipe: Annotated[
        bool, typer.Option("--wipe", help="Tell it to delete all it holds, unsent edits too, when it calls.")
    ] = False,
    confirm: Confirm = None,
    server: Server = LOCAL_SERVER,
    as_json: AsJson = False,
) -> None:
    """End a device at once. A device that was revoked can still be told to wipe."""
    if wipe:
        confirm_by_typing(device_id, confirm, "have it delete all it holds, unsent edits too")
    with admin(server, api_key) as stub:
        answer = stub.RevokeDevice(v1.RevokeDeviceRequest(tenant_id=tenant, device_id=device_id, wipe=wipe))
    show(answer.device, device_table(answer.device), as_json)
