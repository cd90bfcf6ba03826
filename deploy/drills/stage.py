"""Where a drill takes place: a folder, a server in it, and commands that are shown as they run."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
STOP_SECONDS = 30
COMMAND_SECONDS = 60


class DrillFailed(Exception):
    """A step did not end as it must."""


class Stage:
    """A folder and a server's settings. Commands run in it, with ``python`` and ``scrubjay`` of this venv."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._server: subprocess.Popen[str] | None = None
        self._step = 0
        own = {name: value for name, value in os.environ.items() if not name.startswith("SCRUBJAY_")}
        address = f"127.0.0.1:{_free_port()}"
        self.environment = own | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{own['PATH']}",
            "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'proto'}",
            "COLUMNS": "140",
            "SCRUBJAY_SERVER": address,
            "SCRUBJAY_LISTEN": address,
            "SCRUBJAY_DATA_DIR": str(folder / "data"),
            "SCRUBJAY_EMBEDDER": "hash",
        }

    def step(self, title: str) -> None:
        """Say what comes next."""
        self._step += 1
        print(f"\n{self._step}. {title}")

    def run(self, command: str, *, code: int = 0, show: Callable[[str], str] = str) -> str:
        """Show a command, run it, and show what it says. DrillFailed where it ends with another code."""
        print(f"$ {command}")
        ran = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        print(show(ran.stdout), end="")
        if ran.returncode != code:
            raise DrillFailed(f"{command!r} ended with {ran.returncode}, not {code}")
        return ran.stdout

    # --- the server -------------------------------------------------------------------------------

    def start_server(self) -> None:
        """Start the server and wait until it serves. Its first start gives the admin's key."""
        print("$ python -m server serve &")
        log = self.folder / "server.log"
        with log.open("a") as errors:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "server", "serve"],
                cwd=self.folder,
                env=self.environment,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        for line in self._server.stdout or ():
            name, _, key = line.strip().rpartition(": ")
            if name.strip().endswith("platform admin key"):
                self.environment["SCRUBJAY_ADMIN_KEY"] = key.strip()
            if line.startswith("serving on "):
                return
        raise DrillFailed(f"the server did not start: {log.read_text()[-500:]}")

    def stop_server(self) -> None:
        """Stop the server, if it runs."""
        if self._server is None:
            return
        print("$ kill %1")
        with self._server:
            self._server.terminate()
            self._server.wait(STOP_SECONDS)
        self._server = None

    # --- devices ----------------------------------------------------------------------------------

    def enrol(self, home: str, *options: str) -> None:
        """Let a device in, or in again."""
        create = " ".join(["python -m tenants create-enrolment --tenant dev --user alice", *options])
        code = json.loads(self.run(f"{create} --json"))["enrolment_code"]
        self.run(f"scrubjay --home {home} init --enrol {code}")

    def expect(self, home: str, texts: Collection[str]) -> None:
        """The device holds these memories and no others."""
        listed = self.run(f"scrubjay --home {home} list --json", show=_contents)
        if _contents(listed).splitlines() != sorted(texts):
            raise DrillFailed(f"{home} does not hold just {sorted(texts)}")


def perform(drill: Callable[[Stage], None], shown: str) -> None:
    """Run a drill and say what it has ``shown``; end with 1 where a step did not end as it must."""
    try:
        with stage() as place:
            drill(place)
    except DrillFailed as error:
        sys.exit(f"error: {error}")
    print(f"\n{shown}")


@contextmanager
def stage() -> Iterator[Stage]:
    """A stage that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="scrubjay-drill-") as folder:
        place = Stage(Path(folder))
        try:
            yield place
        finally:
            place.stop_server()


def _contents(listed: str) -> str:
    return "".join(sorted(json.loads(line)["content"] + "\n" for line in listed.splitlines()))


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port
