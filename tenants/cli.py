"""What the commands of ``python -m tenants`` share: their options, and the server they speak to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, NoReturn

import typer

from scrubjay import v1
from tenants.screen import printable

LOCAL_SERVER = "localhost:7437"

TenantId = Annotated[str, typer.Argument(help="The tenant.")]
Owner = Annotated[str, typer.Option("--tenant", help="The key's tenant. A platform admin's key has none.")]
KeyId = Annotated[str, typer.Argument(help="The key's id, the part between 'sj_live_' and the next '_'.")]
TenantOption = Annotated[str, typer.Option("--tenant", help="The device's tenant.")]
Server = Annotated[str, typer.Option(envvar="SCRUBJAY_SERVER", help="host:port of the server.")]
AdminKey = Annotated[str, typer.Option("--api-key", envvar="SCRUBJAY_ADMIN_KEY", help="An admin's key.")]
Confirm = Annotated[
    str | None, typer.Option(help="The id again, for scripts. Without it, you are asked to type it.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


@contextmanager
def admin(server: str, api_key: str) -> Iterator[v1.TenantAdminServiceStub]:
    """A stub for the calls of one command; what goes wrong ends the command with one line."""
    import grpc  # here, so that --help does not wait for it

    from scrubjay.channel import connect, from_rpc_error

    try:
        with connect(server, api_key) as channel:
            yield v1.TenantAdminServiceStub(channel)
    except ValueError as error:
        fail(str(error))
    except grpc.RpcError as failed:
        told = from_rpc_error(failed)
        reason = v1.ErrorReason.Name(told.reason).removeprefix("ERROR_REASON_")
        fail(told.message if told.reason == v1.ERROR_REASON_UNSPECIFIED else f"{told.message} [{reason}]")


def confirm_by_typing(name: str, given: str | None, consequence: str) -> None:
    """Go on where ``name`` was typed, here or as ``--confirm``; else end the command, with nothing done."""
    typed = typer.prompt(f"Type {name} to {consequence}", err=True) if given is None else given
    if typed != name:
        fail(f"{typed!r} is not {name!r}; nothing was done")


def fail(message: str) -> NoReturn:
    """End the command with one line."""
    typer.echo(f"error: {printable(message)}", err=True)
    raise typer.Exit(1)
