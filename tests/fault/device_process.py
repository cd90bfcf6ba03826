"""Devices in processes of their own, which can be told things, killed, paused and started again."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.fault.process import EXIT_SECONDS, ROOT

ANSWER_SECONDS = 90.0


class DeviceProcess:
    """One device, whose process may end and be started again; ``folder`` holds all of it.

    ``settings`` are those of ``tests.fault.device``. AssertionError, with what the device said, where it
    does not do what it is told.
    """

    def __init__(self, folder: Path, **settings: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.settings = {"folder": str(folder), **settings}
        self.log = folder.with_name(f"{folder.name}.log")
        self.replica = folder / "replica.db"
        self._process: subprocess.Popen[bytes] | None = None
        self._said = b""

    @property
    def running(self) -> bool:
        """Whether there is a process."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Of the process."""
        assert self._process is not None
        return self._process.pid

    @property
    def wrote(self) -> bool:
        """Whether its app was ever told that something is saved."""
        told = self.folder / "acknowledged.jsonl"
        return told.exists() and told.stat().st_size > 0

    def start(self) -> None:
        """Start it; ``wait("ready")`` waits until it is."""
        assert not self.running
        places = [str(ROOT), str(ROOT / "proto"), os.environ.get("PYTHONPATH", "")]
        with self.log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fault.device", json.dumps(self.settings)],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(places)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self._said = b""

    def tell(self, word: str) -> None:
        """Say a word to it."""
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{word}\n".encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def wait(self, word: str, seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
        """What it says once the word is done; what it said before is passed over."""
        assert self._process is not None
        assert self._process.stdout is not None
        output = self._process.stdout.fileno()
        while True:
            while b"\n" not in self._said:
                assert select.select([output], [], [], seconds)[0], f"{self.folder.name}: no answer to {word}"
                data = os.read(output, 65536)
                if not data:
                    raise self._ended()
                self._said += data
            line, _, self._said = self._said.partition(b"\n")
            answer: dict[str, Any] = json.loads(line)
            if answer.pop("done") == word:
                return answer

    def ask(self, word: str) -> dict[str, Any]:
        """Say a word and wait until it is done."""
        self.tell(word)
        return self.wait(word)

    def kill(self) -> None:
        """End it as kill -9 does."""
        assert self._process is not None
        self._process.kill()
        self._reap()

    def quit(self) -> None:
        """Let it close its replica and end."""
        assert self._process is not None
        self.tell("quit")
        assert self._reap() == 0, self._ended()

    def check(self) -> None:
        """AssertionError where it has ended by itself."""
        if not self.running:
            raise self._ended()

    def signal(self, number: signal.Signals) -> None:
        """SIGSTOP and SIGCONT."""
        assert self._process is not None
        self._process.send_signal(number)

    def close(self) -> None:
        """Make sure that it has ended. May be called again."""
        if self.running:
            self.kill()

    def _reap(self) -> int:
        assert self._process is not None
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        return self._process.wait(EXIT_SECONDS)

    def _ended(self) -> AssertionError:
        code = self._reap() if self._process is not None else None
        told = self.log.read_text(errors="replace")[-4000:]
        return AssertionError(f"{self.folder.name} ended with {code}: {told}")
