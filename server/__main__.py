"""``python -m server``: serve, bring the databases to this version, or make certificates to try TLS."""

from __future__ import annotations

import gc
import json
import logging
import shlex
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from server.app import CANT_START, App
from server.config import Settings
from server.dev_certificates import CertificatesThere, CertificatesUnwritable, make_certificates
from server.upkeep import begin_epochs, migrate_all, new_admin_key
from tenants.registry import FirstCredentials

GARBAGE_AFTER = 10_000
"""New objects after which Python looks for garbage; its own number is 700."""

cli = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False)


@cli.command()
def serve() -> None:
    """Serve until SIGINT or SIGTERM. Settings are environment variables: see docs/configuration.md."""
    settings = _settings()
    _log_to_stderr(settings.log_level)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with _explained(), closing(App(settings)) as app:
        if app.first_credentials is not None:
            _show(app.first_credentials)
        # What the start made stays, and nearly all that a call makes goes without being looked for: looking
        # for garbage often slows a batch by a fifth.
        gc.freeze()
        gc.set_threshold(GARBAGE_AFTER)
        typer.echo(f"serving on {app.address}")
        sys.stdout.flush()
        stop.wait()
        logging.getLogger("scrubjay").info("stopping")


@cli.command()
def create_admin_key() -> None:
    """Make a platform admin's key on this machine: for when the first one was lost."""
    settings = _settings()
    _log_to_stderr(settings.log_level)
    with _explained():
        typer.echo(new_admin_key(settings))


@cli.command()
def migrate() -> None:
    """Bring every database to this version's tables, and say which they are."""
    settings = _settings()
    _log_to_stderr(settings.log_level)
    with _explained():
        for name in migrate_all(settings):
            typer.echo(f"{name}: up to date")


@cli.command()
def restored() -> None:
    """Say that the databases were restored from a backup: devices then give back what they still hold."""
    settings = _settings()
    _log_to_stderr(settings.log_level)
    with _explained():
        count = begin_epochs(settings)
        typer.echo(f"{count} streams begin a new epoch; start the server again")


@cli.command()
def dev_certs(
    folder: Annotated[Path, typer.Argument(help="Where to put them.")] = Path("certs"),
    name: Annotated[
        list[str] | None,
        typer.Option(help="A host name or address of the server, beside localhost; may be repeated."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace those that are there.")] = False,
) -> None:
    """Make certificates for development: an authority, a server's and a client's, good for a year."""
    try:
        made = make_certificates(folder.absolute(), name or (), replace=force)
    except (CertificatesThere, CertificatesUnwritable, ValueError) as error:
        typer.echo(f"error: {error}", err=True)
        raise SystemExit(1) from None
    (cert, key), (client_cert, client_key) = made.server, made.client
    typer.echo(
        f"# The server speaks TLS with these; the last makes it ask clients for a certificate.\n"
        f"export SCRUBJAY_TLS_CERT={shlex.quote(str(cert))}\n"
        f"export SCRUBJAY_TLS_KEY={shlex.quote(str(key))}\n"
        f"export SCRUBJAY_TLS_CLIENT_CA={shlex.quote(str(made.ca))}\n"
        f"# A client trusts the server with the first, and shows who it is with the others.\n"
        f"export SCRUBJAY_CA={shlex.quote(str(made.ca))}\n"
        f"export SCRUBJAY_CERT={shlex.quote(str(client_cert))}\n"
        f"export SCRUBJAY_KEY={shlex.quote(str(client_key))}"
    )


def _settings() -> Settings:
    try:
        return Settings()
    except ValidationError as error:
        for problem in error.errors():
            name = "".join(f"SCRUBJAY_{part}".upper() for part in problem["loc"])
            typer.echo(f"{name or 'settings'}: {problem['msg']}", err=True)
        raise SystemExit(2) from None


@contextmanager
def _explained() -> Iterator[None]:
    """Ends the program with one clear line where the server can't run."""
    try:
        yield
    except CANT_START as error:
        typer.echo(str(error), err=True)
        raise SystemExit(1) from None


def _show(first: FirstCredentials) -> None:
    typer.echo(
        "This catalogue is new. These keys are shown once and stored nowhere:\n"
        f"  tenant {first.tenant.tenant_id!r}, service key:  {first.service.secret}\n"
        f"  platform admin key:         {first.admin.secret}\n"
        "Try:\n"
        f"  export SCRUBJAY_API_KEY={first.service.secret}\n"
        '  scrubjay --user alice add "I moved to Lisbon last spring"\n'
        '  scrubjay --user alice search "which city do I live in?"'
    )


class _JsonLines(logging.Formatter):
    """A log record as one line of JSON: when, how bad, what, and the request's id where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name in ("path", "reason", "request_id"):
            if hasattr(record, name):
                line[name] = getattr(record, name)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _log_to_stderr(level: str) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name in ("alembic", "sqlalchemy", "httpx", "httpcore", "tenants.database._Pool"):
        logging.getLogger(name).setLevel(logging.WARNING)


if __name__ == "__main__":
    cli()
