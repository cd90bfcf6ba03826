"""A PostgreSQL server whose postmaster can be killed and started again."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from tests.postgres import PostgresServer, own_postgres

START_SECONDS = 30
# Not by Popen's own ``user``: it forks a process in which gRPC's threads are gone and its locks held.
_AS_OWNER = """
import os, sys
owner = os.stat(sys.argv[1])
os.setgroups([])
os.setgid(owner.st_gid)
os.setuid(owner.st_uid)
os.execv(sys.argv[2], sys.argv[2:])
"""


class KillablePostgres(PostgresServer):
    """A server of our own. Its backends end by themselves once the postmaster is gone."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._data = Path(str(self.execute("SHOW data_directory")[0][0]))
        self._postmaster: subprocess.Popen[bytes] | None = None

    def kill(self) -> None:
        """kill -9 of the postmaster."""
        os.kill(int((self._data / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)

    def start(self) -> None:
        """Start it as it was started before; it recovers, and answers when this returns."""
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            assert time.monotonic() < deadline, (self._data / "log").read_text()[-2000:]
            if self._postmaster is None or self._postmaster.poll() is not None:
                # It ends at once while a backend of before still holds the shared memory.
                self._postmaster = self._launch()

    def _launch(self) -> subprocess.Popen[bytes]:
        command = shlex.split((self._data / "postmaster.opts").read_text())
        if os.geteuid() == 0:  # it refuses to run as root
            command = [sys.executable, "-c", _AS_OWNER, str(self._data), *command]
        with (self._data / "log").open("ab") as log:
            return subprocess.Popen(command, cwd=self._data, stdout=log, stderr=log)

    def _answers(self) -> bool:
        try:
            with psycopg.connect(self.url, connect_timeout=1):
                return True
        except psycopg.OperationalError:
            return False

    def end(self) -> None:
        """End what ``start`` started, where nobody has yet."""
        if self._postmaster is not None:
            self._postmaster.send_signal(signal.SIGINT)
            self._postmaster.wait(START_SECONDS)


@contextmanager
def killable_postgres() -> Iterator[KillablePostgres]:
    """A server for the block."""
    with own_postgres() as server:
        killable = KillablePostgres(server.url)
        try:
            yield killable
        finally:
            killable.start()  # who made it stops a running one
    killable.end()
