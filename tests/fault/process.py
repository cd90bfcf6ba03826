"""A server in a process of its own, which can be killed, paused, stopped and started again."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXIT_SECONDS = 30
_SERVING = "serving on "
_SECRET = re.compile(r"key: +(\S+)$")


class ServerProcess:
    """``python -m server serve`` on a free port, from the moment it serves.

    ``service_key`` and ``admin_key`` are set where this start made the catalogue. AssertionError, with what
    the server said, where it ends before it serves.
    """

    def __init__(self, data_dir: Path, **settings: str) -> None:
        self.log = data_dir.with_name(f"{data_dir.name}.log")
        self.process = launch("serve", data_dir, self.log, settings)
        said: list[str] = []
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said.append(line.rstrip())
            if line.startswith(_SERVING):
                break
        else:
            raise AssertionError(f"ended with {self.process.wait()} after {said}: {self.log.read_text()}")
        self.address = said[-1].removeprefix(_SERVING)
        keys = [match[1] for line in said if (match := _SECRET.search(line))]
        self.service_key, self.admin_key = (keys[0], keys[1]) if keys else ("", "")

    def kill(self) -> None:
        """End it as kill -9 and a lack of memory do."""
        self.process.kill()
        self._wait()

    def stop(self) -> int:
        """End it as an operator does; its exit code."""
        self.process.terminate()
        return self._wait()

    def pause(self) -> None:
        """Stop it in its tracks."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self.process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Make sure that it has ended. May be called again."""
        if self.process.poll() is None:
            self.kill()

    def _wait(self) -> int:
        with self.process:
            return self.process.wait(EXIT_SECONDS)


def launch(command: str, data_dir: Path, log: Path, settings: Mapping[str, str]) -> subprocess.Popen[str]:
    """``python -m server <command>`` with these settings; its standard error is appended to ``log``."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SCRUBJAY_")}
    given = {"listen": "127.0.0.1:0", "embedder": "hash", "data_dir": str(data_dir), **settings}
    environment |= {f"SCRUBJAY_{name.upper()}": value for name, value in given.items()}
    with log.open("a") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "server", command],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )


def refused_start(data_dir: Path, command: str = "serve", **settings: str) -> tuple[int, str]:
    """The exit code and standard error of a start that ends by itself, with nothing on standard output."""
    log = data_dir.with_name("refused.log")
    log.unlink(missing_ok=True)
    with launch(command, data_dir, log, settings) as process:
        try:
            output, _ = process.communicate(timeout=EXIT_SECONDS)
        finally:
            process.kill()
    assert output == ""
    return process.returncode, log.read_text()
