"""What the commands have in common: whom they ask, how rows are shown, how a failure ends."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
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


class Connection(Enum):
    """An option that goes before a command and after it, where it holds for the command alone."""

    SERVER = "server"
    API_KEY = "api_key"
    USER = "user"
    HOME = "home"
    JSON = "as_json"


_Command = TypeVar("_Command", bound=Callable[..., None])
_TAKEN = "__scrubjay_options__"
_FILES = {"ca", "cert", "key"}
"""The options of TLS, which every command takes."""


def takes(*options: Connection) -> Callable[[_Command], _Command]:
    """Declares which of these a command takes after its name too; their values are in ``settings_of``."""

    def declare(command: _Command) -> _Command:
        setattr(command, _TAKEN, {option.value for option in options})
        return command

    return declare


class CommandGroup(TyperGroup):
    """Commands that take what they declare with ``takes``, and all of them the files of TLS."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        options = typer.Typer(add_completion=False)
        options.command()(_take)
        known = typer.main.get_command(options).params
        for command in self.commands.values():
            taken = getattr(command.callback, _TAKEN, set()) | _FILES
            command.params += [option for option in known if option.name in taken]


def settings_of(context: typer.Context) -> Settings:
    """What holds for a command: the options after it over those before it."""
    settings: Settings = context.obj
    return settings


def _take_one(context: typer.Context, option: typer.CallbackParam, value: object) -> None:
    if value is None or value is False or option.name is None:
        return
    given = settings_of(context)
    if option.name in _FILES:
        tls = replace(given.tls, **{option.name: value})  # type: ignore[arg-type]  # by name
        context.obj = replace(given, tls=tls)
    else:
        context.obj = replace(given, **{option.name: value})  # type: ignore[arg-type]  # by name


def _option(name: str, text: str, **more: Any) -> Any:
    return typer.Option(
        name, help=text, rich_help_panel=_PANEL, callback=_take_one, expose_value=False, **more
    )


def _take(
    server: Annotated[str | None, _option("--server", "The server's host:port.")] = None,
    api_key: Annotated[
        str | None, _option("--api-key", "The API key. Without one, the device's own memories.")
    ] = None,
    user: Annotated[str | None, _option("--user", "The user the memories are about.")] = None,
    home: Annotated[Path | None, _option("--home", "The device's folder.")] = None,
    as_json: Annotated[bool, _option("--json", "One JSON document a line.")] = False,
    ca: Annotated[Path | None, _option("--ca", CA_HELP, metavar="FILE")] = None,
    cert: Annotated[Path | None, _option("--cert", CERT_HELP, metavar="FILE")] = None,
    key: Annotated[Path | None, _option("--key", KEY_HELP, metavar="FILE")] = None,
) -> None:
    """Its parameters are the commands'; they end in the context."""


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
