"""``python -m tenants``: tenants and keys from a terminal, over gRPC."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

import typer
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from rich.console import Console
from rich.table import Table
from rich.text import Text

from scrubjay import v1

LOCAL_SERVER = "localhost:7437"

app = typer.Typer(
    help="Tenants and their API keys.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

TenantId = Annotated[str, typer.Argument(help="The tenant.")]
Owner = Annotated[str, typer.Option("--tenant", help="The key's tenant. A platform admin's key has none.")]
Server = Annotated[str, typer.Option(envvar="SCRUBJAY_SERVER", help="host:port of the server.")]
AdminKey = Annotated[str, typer.Option("--api-key", envvar="SCRUBJAY_ADMIN_KEY", help="An admin's key.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


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
    with _admin(server, api_key) as stub:
        answer = stub.CreateTenant(v1.CreateTenantRequest(tenant_id=tenant_id, display_name=name))
    _show(answer.tenant, _tenant_table(answer.tenant), as_json)


@app.command()
def get(
    tenant_id: TenantId, api_key: AdminKey, server: Server = LOCAL_SERVER, as_json: AsJson = False
) -> None:
    """Show one tenant."""
    with _admin(server, api_key) as stub:
        answer = stub.GetTenant(v1.GetTenantRequest(tenant_id=tenant_id))
    _show(answer.tenant, _tenant_table(answer.tenant), as_json)


@app.command("list")
def list_(api_key: AdminKey, server: Server = LOCAL_SERVER, as_json: AsJson = False) -> None:
    """Show all tenants."""
    with _admin(server, api_key) as stub:
        tenants = list(_every_tenant(stub))
    _show(tenants, _list_of(tenants), as_json)


@app.command()
def create_key(
    api_key: AdminKey,
    role: Annotated[RoleName, typer.Option(help="What the key may do.")],
    tenant: Owner = "",
    name: Annotated[str, typer.Option(help="A name for people.")] = "",
    client_id: Annotated[str, typer.Option(help="The client it writes as. Default: the key's id.")] = "",
    expires: Annotated[datetime | None, typer.Option(help="When it ends, in UTC. Default: never.")] = None,
    server: Server = LOCAL_SERVER,
    as_json: AsJson = False,
) -> None:
    """Make a key. It is shown now and never again."""
    request = v1.CreateApiKeyRequest(
        tenant_id=tenant, role=v1.Role.Value(f"ROLE_{role.name}"), display_name=name, client_id=client_id
    )
    if expires is not None:
        request.expires_at.FromDatetime(expires)
    with _admin(server, api_key) as stub:
        answer = stub.CreateApiKey(request)
    _show(answer, _key_table(answer.api_key), as_json)
    if not as_json:
        typer.echo(f"Keep this key; it is not shown again:\n{answer.secret}")


@app.command()
def revoke_key(
    key_id: Annotated[
        str, typer.Argument(help="The key's id, the part between 'sj_live_' and the next '_'.")
    ],
    api_key: AdminKey,
    tenant: Owner = "",
    server: Server = LOCAL_SERVER,
    as_json: AsJson = False,
) -> None:
    """End a key at once."""
    with _admin(server, api_key) as stub:
        answer = stub.RevokeApiKey(v1.RevokeApiKeyRequest(tenant_id=tenant, key_id=key_id))
    _show(answer.api_key, _key_table(answer.api_key), as_json)


# --- the server -----------------------------------------------------------------------------------


@contextmanager
def _admin(server: str, api_key: str) -> Iterator[v1.TenantAdminServiceStub]:
    """A stub for the calls of one command; what goes wrong ends the command with one line."""
    import grpc  # here, so that --help does not wait for it

    from scrubjay.channel import connect, from_rpc_error

    try:
        with connect(server, api_key) as channel:
            yield v1.TenantAdminServiceStub(channel)
    except ValueError as error:
        _fail(str(error))
    except grpc.RpcError as failed:
        told = from_rpc_error(failed)
        reason = v1.ErrorReason.Name(told.reason).removeprefix("ERROR_REASON_")
        _fail(told.message if told.reason == v1.ERROR_REASON_UNSPECIFIED else f"{told.message} [{reason}]")


def _every_tenant(stub: v1.TenantAdminServiceStub) -> Iterator[v1.Tenant]:
    page = stub.ListTenants(v1.ListTenantsRequest(page_size=1000))
    yield from page.tenants
    while page.next_page_token:
        page = stub.ListTenants(v1.ListTenantsRequest(page_size=1000, page_token=page.next_page_token))
        yield from page.tenants


def _fail(message: str) -> None:
    typer.echo(f"error: {_printable(message)}", err=True)
    raise typer.Exit(1)


# --- the screen -----------------------------------------------------------------------------------


def _show(answer: Message | Sequence[Message], table: Table, as_json: bool) -> None:
    if not as_json:
        Console().print(table)
        return
    value = _json(answer) if isinstance(answer, Message) else [_json(each) for each in answer]
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2))


def _json(message: Message) -> dict[str, object]:
    return MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)


def _list_of(tenants: Iterable[v1.Tenant]) -> Table:
    table = Table()
    for column in ("tenant", "name", "state", "shard", "made"):
        table.add_column(column, overflow="fold")
    for each in tenants:
        made = _time(each.created_at)
        _add(table, each.tenant_id, each.display_name, _state(each), each.shard, made)
    return table


def _tenant_table(tenant: v1.Tenant) -> Table:
    return _details(
        ("tenant", tenant.tenant_id),
        ("name", tenant.display_name),
        ("state", _state(tenant)),
        ("shard", tenant.shard),
        ("space", tenant.space),
        ("incarnation", tenant.incarnation),
        ("made", _time(tenant.created_at)),
    )


def _key_table(key: v1.ApiKey) -> Table:
    return _details(
        ("key id", key.key_id),
        ("tenant", key.tenant_id or "(platform)"),
        ("name", key.display_name),
        ("role", v1.Role.Name(key.role).removeprefix("ROLE_")),
        ("client", key.client_id),
        ("made", _time(key.created_at)),
        ("expires", _time(key.expires_at) if key.HasField("expires_at") else "never"),
        ("revoked", _time(key.revoked_at) if key.HasField("revoked_at") else "no"),
    )


def _details(*lines: tuple[str, str]) -> Table:
    table = Table("", "", show_header=False)
    for column in table.columns:
        column.overflow = "fold"
    for line in lines:
        _add(table, *line)
    return table


def _add(table: Table, *cells: str) -> None:
    """A row of plain text: a name is shown as it is, never obeyed as markup or as a terminal's command."""
    table.add_row(*(Text(_printable(cell)) for cell in cells))


def _state(tenant: v1.Tenant) -> str:
    return v1.TenantState.Name(tenant.state).removeprefix("TENANT_STATE_")


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _time(time: Timestamp) -> str:
    return f"{time.ToDatetime(UTC):%Y-%m-%d %H:%M:%S}Z"


if __name__ == "__main__":
    app(prog_name="python -m tenants")
