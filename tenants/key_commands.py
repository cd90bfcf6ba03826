"""``python -m tenants create-key`` and others: the keys of a tenant, and of the platform."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated

import typer

from scrubjay import v1
from tenants.cli import LOCAL_SERVER, AdminKey, AsJson, KeyId, Owner, Server, admin, pages
from tenants.screen import key_table, list_of_keys, rotation_table, show


class RoleName(StrEnum):
    """The contract's roles as they are typed."""

    PLATFORM_ADMIN = "platform-admin"
    TENANT_ADMIN = "tenant-admin"
    SERVICE = "service"
    READER = "reader"


def add_commands(app: typer.Typer) -> None:
    """Give the app these commands."""
    for name, command in (
        ("create-key", create_key),
        ("list-keys", list_keys),
        ("rotate-key", rotate_key),
        ("revoke-key", revoke_key),
    ):
        app.command(name)(command)


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
    scope: Annotated[
        list[str] | None, typer.Option(help="Keep it within this scope; may be repeated. Default: all.")
    ] = None,
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
        scopes=scope or (),
    )
    if expires is not None:
        request.expires_at.FromDatetime(expires)
    with admin(server, api_key) as stub:
        answer = stub.CreateApiKey(request)
    show(answer, key_table(answer.api_key), as_json)
    if not as_json:
        typer.echo(f"Keep this key; it is not shown again:\n{answer.secret}")


def list_keys(
    api_key: AdminKey, tenant: Owner = "", server: Server = LOCAL_SERVER, as_json: AsJson = False
) -> None:
    """Show the keys of a tenant, or of the platform, those that have ended too."""
    with admin(server, api_key) as stub:
        found = pages(stub.ListApiKeys, v1.ListApiKeysRequest(tenant_id=tenant))
        keys = [key for page in found for key in page.api_keys]
    show(keys, list_of_keys(keys), as_json)


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
