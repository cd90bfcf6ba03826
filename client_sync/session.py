"""What the commands have in common: where the server is, how rows are shown, how a failure ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, TypeVar

import typer
from google.protobuf.message import Message
from rich.console import Console

from client_sync.cli import RemoteMemories
from client_sync.rendering import Tables, json_line, plain
from scrubjay import v1
from scrubjay.errors import ScrubjayError, Unavailable
from scrubjay.memory import Micros

PAGE_SIZE = 100
"""Rows asked for at once; the first are shown while the next are still to come."""

_PANEL = "Connection (also before the command)"
ServerOption = Annotated[
    str | None, typer.Option("--server", help="The server's host:port.", rich_help_panel=_PANEL)
]
ApiKeyOption = Annotated[str | None, typer.Option("--api-key", help="The API key.", rich_help_panel=_PANEL)]
UserOption = Annotated[
    str | None, typer.Option("--user", help="The user the memories are about.", rich_help_panel=_PANEL)
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document a line.", rich_help_panel=_PANEL)]

_Row = TypeVar("_Row", bound=Message)


@dataclass(frozen=True, slots=True)
class Settings:
    """What holds for every command. An empty ``user`` means none."""

    server: str
    api_key: str = field(repr=False)
    user: str
    as_json: bool


class Session:
    """One command's server, settings and output."""

    def __init__(self, settings: Settings, remote: RemoteMemories) -> None:
        self.user = settings.user
        self.memories = remote.memories
        self.call = remote.call
        self._as_json = settings.as_json
        self._tables = Tables(Console(highlight=False), Micros(time.time_ns() // 1000))

    def show(self, rows: Iterable[Message], told: Callable[[Tables], None]) -> None:
        """The rows as JSON lines, or what ``told`` writes for a person."""
        if not self._as_json:
            told(self._tables)
            return
        for row in rows:
            typer.echo(json_line(row))


@contextmanager
def open_session(
    context: typer.Context, server: str | None, api_key: str | None, user: str | None, as_json: bool
) -> Iterator[Session]:
    """A session with the options after the command over those before it; a failure ends the command."""
    given: Settings = context.obj
    settings = Settings(
        server=given.server if server is None else server,
        api_key=given.api_key if api_key is None else api_key,
        user=given.user if user is None else user,
        as_json=as_json or given.as_json,
    )
    if not settings.api_key:
        raise typer.BadParameter("give --api-key or set SCRUBJAY_API_KEY")
    with usage(""):
        remote = RemoteMemories(settings.server, settings.api_key)
    with remote:
        try:
            yield Session(settings, remote)
        except UnicodeError as error:
            raise typer.BadParameter("an argument or a line is not valid UTF-8") from error
        except ScrubjayError as error:
            complain(_told(error, settings.server))
            raise typer.Exit(1) from error


@contextmanager
def usage(hint: str) -> Iterator[None]:
    """A ValueError within is the caller's mistake in the parameter ``hint``."""
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=hint or None) from error


def complain(line: str) -> None:
    typer.echo(f"error: {plain(line)}", err=True)


def _told(error: ScrubjayError, server: str) -> str:
    """An error in one line, with each wrong field."""
    if error.reason == v1.ERROR_REASON_UNSPECIFIED and isinstance(error, Unavailable):
        cause = error.message.rpartition(": ")[2]
        return (
            f"no server answers at {server} ({cause});"
            " start one with 'make run', or name another with --server or SCRUBJAY_SERVER"
        )
    if [each.field.rpartition(".")[2] for each in error.field_violations] == ["user_id"]:
        return f"{error.message}; give --user, or set SCRUBJAY_USER"
    unsaid = [each for each in error.field_violations if each.description not in error.message]
    return "; ".join([error.message, *(f"{each.field}: {each.description}" for each in unsaid)])


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
