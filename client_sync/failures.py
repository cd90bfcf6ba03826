"""How a command fails: one line on stderr that says what to do, and an exit code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer

from client_sync.errors import ReplicaError
from client_sync.rendering import plain
from scrubjay import v1
from scrubjay.errors import DeviceRevoked, ScrubjayError, Unavailable
from scrubjay.tls import HandshakeFailed

ENROL = "'scrubjay init --server HOST:PORT --enrol CODE'"


@contextmanager
def failing_in_one_line(server: str) -> Iterator[None]:
    """What goes wrong within ends the command: 2 where it was called wrongly, else 1."""
    try:
        yield
    except UnicodeError as error:
        raise typer.BadParameter("an argument or a line is not valid UTF-8") from error
    except ScrubjayError as error:
        fail(told(error, server), error)
    except ReplicaError as error:
        fail(str(error), error)


@contextmanager
def usage(hint: str) -> Iterator[None]:
    """A ValueError within is the caller's mistake in the parameter ``hint``."""
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=hint or None) from error


def note(line: str) -> None:
    """Say on stderr what is no failure."""
    typer.echo(plain(line), err=True)


def complain(line: str) -> None:
    """Say that something went wrong."""
    typer.echo(f"error: {plain(line)}", err=True)


def fail(line: str, cause: BaseException | None = None) -> NoReturn:
    """Say what went wrong, and end the command."""
    complain(line)
    raise typer.Exit(1) from cause


def told(error: ScrubjayError, server: str) -> str:
    """An error in one line, with each wrong field. ``server`` is the one that was asked, empty for none."""
    if is_silence(error):
        return (
            f"{silence(error, server)};"
            " start one with 'make run', or name another with --server or SCRUBJAY_SERVER"
        )
    if isinstance(error, DeviceRevoked):
        return f"{error.message} ({ENROL})"
    if server and [each.field.rpartition(".")[2] for each in error.field_violations] == ["user_id"]:
        return f"{error.message}; give --user, or set SCRUBJAY_USER"
    if request_id := error.metadata.get("request_id"):
        return f"{error.message}: {request_id}"
    unsaid = [each for each in error.field_violations if each.description not in error.message]
    return "; ".join([error.message, *(f"{each.field}: {each.description}" for each in unsaid)])


def is_silence(error: ScrubjayError) -> bool:
    """Whether no server answered at all."""
    if isinstance(error, HandshakeFailed):
        return False
    return error.reason == v1.ERROR_REASON_UNSPECIFIED and isinstance(error, Unavailable)


def silence(error: ScrubjayError, server: str) -> str:
    """That no server answers, and why."""
    return f"no server answers at {server} ({error.message.rpartition(': ')[2]})"
