"""``export``: every memory as a line of JSON."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from client_sync.failures import fail
from client_sync.progress import bar
from client_sync.rendering import json_line
from client_sync.session import (
    Connection,
    Session,
    open_session,
    settings_of,
    takes,
)
from scrubjay import v1

_PAGE_SIZE = 1000


@takes(Connection.SERVER, Connection.API_KEY, Connection.USER, Connection.HOME)
def export(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="[FILE]", help="Default: stdout.")] = "-",
) -> None:
    """Write every memory as a line of JSON, newest first."""
    with (
        open_session(settings_of(context)) as session,
        bar() as show,
        writing(file) as write,
    ):
        total = session.local.replica.status().memories if session.local else None
        done = 0
        for page in _pages(session):
            write("".join(f"{json_line(memory)}\n" for memory in page))
            done += len(page)
            show(f"{done} memories", done, total)


def _pages(session: Session) -> Iterator[list[v1.Memory]]:
    request = v1.ListRequest(user_id=session.user, page_size=_PAGE_SIZE)
    while True:
        response = session.call(session.memories.List, request)
        yield list(response.memories)
        request.page_token = response.next_page_token
        if not request.page_token:
            return


@contextmanager
def writing(file: str) -> Iterator[Callable[[str], object]]:
    """Writes to stdout, or to a file of its user alone that is there once it is whole."""
    if file == "-":
        yield sys.stdout.write
        return
    path = Path(file)
    part = path.with_name(f"{path.name}.part")
    try:
        with open(
            os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8"
        ) as opened:
            yield opened.write
        part.replace(path)
    except OSError as error:
        fail(f"{path} can't be written ({error.strerror}); what was there before is unchanged", error)
    finally:
        part.unlink(missing_ok=True)
