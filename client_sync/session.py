"""What the commands have in common: whom they ask, how rows are shown, how a failure ends."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from google.protobuf.message import Message
from rich.console import Console
from typer.core import TyperGroup

from client_sync.cli import RemoteMemories
from client_sync.failures import ENROL, failing_in_one_line, usage
from client_sync.home import Home
from client_sync.local_memories import LocalMemories
from client_sync.rendering import Tables, json_line
from scrubjay import v1
from scrubjay.memory import JsonValue, Micros
from scrubjay.tls import NO_FILES, TlsFiles

PAGE_SIZE = 100
"""Rows asked for at once; the first are shown while the next are still to come."""

_PANEL = "Connection (also before the command)"
ServerOption = Annotated[
    str | None, typer.Option("--server", help="The server's host:port.", rich_help_panel=_PANEL)
]
ApiKeyOption = Annotated[
    str | None,
    typer.Option(
        "--api-key", help="The API key. Without one, the device's own memories.", rich_help_panel=_PANEL
    ),
]
UserOption = Annotated[
    str | None, typer.Option("--user", help="The user the memories are about.", rich_help_panel=_PANEL)
]
HomeOption = Annotated[
    Path | None, typer.Option("--home", help="The device's folder.", rich_help_panel=_PANEL)
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document a line.", rich_help_panel=_PANEL)]

CA_HELP = "PEM file of the authorities that are trusted. Default: the system's."
CERT_HELP = "PEM file of your certificate, for a server that asks for one."
KEY_HELP = "PEM file of its key."

_Row = TypeVar("_Row", bound=Message)
_Request = TypeVar("_Request")
_Response = TypeVar("_Response")


@dataclass(frozen=True, slots=True)
class Settings:
    """What holds for every command. An empty ``user`` means none, an empty ``api_key`` this device."""

    server: str
    api_key: str = field(repr=False)
    user: str
    home: Path
    as_json: bool
    tls: TlsFiles = NO_FILES


class Output:
    """Where a command writes: tables for a person, or JSON lines. ``local``: what is found is of this
    device."""

    def __init__(self, as_json: bool, *, local: bool = False) -> None:
        self.as_json = as_json
        self.now = Micros(time.time_ns() // 1000)
        self.tables = Tables(Console(highlight=False), self.now)
        self._local = local

    def show(self, rows: Iterable[Message], told: Callable[[Tables], None]) -> None:
        """The rows as JSON lines, or what ``told`` writes for a person."""
        if not self.as_json:
            told(self.tables)
            return
        for row in rows:
            typer.echo(json_line(row, local=self._local and isinstance(row, v1.SearchHit)))

    def document(self, found: Mapping[str, JsonValue]) -> None:
        """One line of JSON."""
        typer.echo(json.dumps(found, ensure_ascii=False))

    def tell(self, found: Mapping[str, JsonValue], line: str) -> None:
        """One fact, as JSON or as a line for a person."""
        if self.as_json:
            self.document(found)
        else:
            self.tables.say(line)


class Session:
    """One command's memories, a server's or this device's, with its settings and output. ``local`` is None
    where they are a server's, else ``remote`` is."""

    def __init__(self, settings: Settings, source: RemoteMemories | LocalMemories) -> None:
        self.user = settings.user
        self.local = source if isinstance(source, LocalMemories) else None
        self.memories = source if isinstance(source, LocalMemories) else source.memories
        self.remote = None if isinstance(source, LocalMemories) else source
        self.show = Output(settings.as_json, local=self.local is not None).show

    def call(self, method: Callable[[_Request], _Response], request: _Request) -> _Response:
        """The method's response; a ``ScrubjayError`` or ``ReplicaError`` where it fails."""
        return method(request) if self.remote is None else self.remote.call(method, request)


class CommandGroup(TyperGroup):
    """Commands that all take the files of TLS, as the options before the command do."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        files = typer.Typer(add_completion=False)
        files.command()(_take_files)
        for command in self.commands.values():
            command.params += typer.main.get_command(files).params


def _take_file(context: typer.Context, option: typer.CallbackParam, path: Path | None) -> None:
    if path is not None and option.name is not None:
        given: Settings = context.obj
        context.obj = replace(given, tls=replace(given.tls, **{option.name: path}))


def _option(name: str, text: str) -> Any:
    return typer.Option(
        name, help=text, metavar="FILE", rich_help_panel=_PANEL, callback=_take_file, expose_value=False
    )


def _take_files(
    ca: Annotated[Path | None, _option("--ca", CA_HELP)] = None,
    cert: Annotated[Path | None, _option("--cert", CERT_HELP)] = None,
    key: Annotated[Path | None, _option("--key", KEY_HELP)] = None,
) -> None:
    """Its parameters are each command's; they end in the context."""


def merged(
    context: typer.Context,
    server: str | None = None,
    api_key: str | None = None,
    user: str | None = None,
    home: Path | None = None,
    as_json: bool = False,
) -> Settings:
    """The settings, with the options after the command over those before it."""
    given: Settings = context.obj
    return Settings(
        server=given.server if server is None else server,
        api_key=given.api_key if api_key is None else api_key,
        user=given.user if user is None else user,
        home=given.home if home is None else home,
        as_json=as_json or given.as_json,
        tls=given.tls,
    )


@contextmanager
def open_session(settings: Settings) -> Iterator[Session]:
    """A session with the server where there is an API key, else with this device; a failure ends the
    command."""
    home = Home(settings.home)
    if not settings.api_key and not home.is_enrolled():
        raise typer.BadParameter(
            f"give --api-key or set SCRUBJAY_API_KEY to ask a server, or make this a device with {ENROL}"
        )
    with ExitStack() as stack:
        if settings.api_key:
            with usage(""):
                remote = stack.enter_context(RemoteMemories(settings.server, settings.api_key, settings.tls))
            stack.enter_context(failing_in_one_line(settings.server))
            yield Session(settings, remote)
        else:
            stack.enter_context(failing_in_one_line(""))
            replica = stack.enter_context(home.open_own_replica())
            yield Session(settings, LocalMemories(replica))


def show_pages(
    session: Session,
    fetch: Callable[[int, str], tuple[Sequence[_Row], str]],
    limit: int | None,
    table: Callable[..., None],
) -> None:
    """Show pages as they come, ``limit`` rows in all, under one header."""
    left, token, first = limit, "", True
    while first or token:
        rows, token = fetch(PAGE_SIZE if left is None else min(PAGE_SIZE, left), token)
        session.show(rows, partial(table, rows=rows, header=first))
        first = False
        if left is not None and (left := left - len(rows)) <= 0:
            return
