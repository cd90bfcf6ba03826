"""What the commands of ``python -m tenants`` share: their options, and the server they speak to."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, NoReturn, Protocol, TypeVar

import typer
from typer.core import TyperGroup

from scrubjay import v1
from scrubjay.errors import ScrubjayError, Unavailable
from scrubjay.tls import NO_FILES, HandshakeFailed, TlsFiles
from tenants.screen import printable


@dataclass(frozen=True, slots=True)
class Target:
    """A server's host:port, and the files of TLS that it is called with."""

    address: str
    tls: TlsFiles = NO_FILES

    def __str__(self) -> str:
        return self.address


def _target(given: str | Target) -> Target:
    return given if isinstance(given, Target) else Target(given)


def _with_files(context: typer.Context, given: Target) -> Target:
    return replace(given, tls=context.ensure_object(TlsFiles))


LOCAL_SERVER = Target("localhost:7437")
PAGE = 1000
"""As many as a server gives at once."""

TenantId = Annotated[str, typer.Argument(help="The tenant.")]
Owner = Annotated[str, typer.Option("--tenant", help="The key's tenant. A platform admin's key has none.")]
KeyId = Annotated[str, typer.Argument(help="The key's id, the part between 'sj_live_' and the next '_'.")]
TenantOption = Annotated[str, typer.Option("--tenant", help="The device's tenant.")]
Server = Annotated[
    Target,
    typer.Option(
        parser=_target,
        metavar="HOST:PORT",
        callback=_with_files,
        envvar="SCRUBJAY_SERVER",
        help="host:port of the server.",
    ),
]
AdminKey = Annotated[str, typer.Option("--api-key", envvar="SCRUBJAY_ADMIN_KEY", help="An admin's key.")]
Confirm = Annotated[
    str | None, typer.Option(help="The id again, for scripts. Without it, you are asked to type it.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


class _AsksForPages(Protocol):
    page_size: int
    page_token: str


class _HasNext(Protocol):
    @property
    def next_page_token(self) -> str: ...


_Asks = TypeVar("_Asks", bound=_AsksForPages)
_Page = TypeVar("_Page", bound=_HasNext)


class CommandGroup(TyperGroup):
    """Commands that all take the files of TLS, which end in the server that they speak to."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        files = typer.Typer(add_completion=False)
        files.command()(_take_files)
        for command in self.commands.values():
            command.params += typer.main.get_command(files).params


def _take_file(context: typer.Context, option: typer.CallbackParam, path: Path | None) -> None:
    if path is not None and option.name is not None:
        context.obj = replace(context.ensure_object(TlsFiles), **{option.name: path})


def _quiet(verbosity: str) -> None:
    """What gRPC itself writes of a handshake that failed would stand beside what is said of it here."""
    os.putenv("GRPC_VERBOSITY", verbosity)


def _file(name: str, text: str) -> Any:
    return typer.Option(
        name,
        envvar=f"SCRUBJAY_{name.lstrip('-').upper()}",
        help=text,
        metavar="FILE",
        callback=_take_file,
        expose_value=False,
        is_eager=True,
    )


def _take_files(
    ca: Annotated[
        Path | None, _file("--ca", "PEM file of the authorities that are trusted. Default: the system's.")
    ] = None,
    cert: Annotated[
        Path | None, _file("--cert", "PEM file of your certificate, for a server that asks for one.")
    ] = None,
    key: Annotated[Path | None, _file("--key", "PEM file of its key.")] = None,
    grpc_verbosity: Annotated[
        str, typer.Option(envvar="GRPC_VERBOSITY", hidden=True, callback=_quiet, expose_value=False)
    ] = "NONE",
) -> None:
    """Its parameters are each command's; they end in the context."""


def pages(rpc: Callable[[_Asks], _Page], request: _Asks) -> Iterator[_Page]:
    """The pages of a list, each as large as may be unless the request says less."""
    request.page_size = request.page_size or PAGE
    page = rpc(request)
    yield page
    while page.next_page_token:
        request.page_token = page.next_page_token
        page = rpc(request)
        yield page


@contextmanager
def admin(server: Target, api_key: str) -> Iterator[v1.TenantAdminServiceStub]:
    """A stub for the calls of one command; what goes wrong ends the command with one line."""
    import grpc  # here, so that --help does not wait for it

    from scrubjay.channel import connect, from_rpc_error

    try:
        with connect(server.address, api_key, **server.tls.read()) as channel:
            yield v1.TenantAdminServiceStub(channel)
    except ValueError as error:
        fail(str(error))
    except grpc.RpcError as failed:
        fail(_line(from_rpc_error(failed), server))


def _line(error: ScrubjayError, server: Target) -> str:
    """An error in one line, with its reason where a server gave one."""
    if error.reason != v1.ERROR_REASON_UNSPECIFIED:
        return f"{error.message} [{v1.ErrorReason.Name(error.reason).removeprefix('ERROR_REASON_')}]"
    if isinstance(error, Unavailable) and not isinstance(error, HandshakeFailed):
        return f"no server answers at {server} ({error.message.rpartition(': ')[2]})"
    return error.message


def confirm_by_typing(name: str, given: str | None, consequence: str) -> None:
    """Go on where ``name`` was typed, here or as ``--confirm``; else end the command, with nothing done."""
    typed = typer.prompt(f"Type {name} to {consequence}", err=True) if given is None else given
    if typed != name:
        fail(f"{typed!r} is not {name!r}; nothing was done")


def fail(message: str) -> NoReturn:
    """End the command with one line."""
    typer.echo(f"error: {printable(message)}", err=True)
    raise typer.Exit(1)
