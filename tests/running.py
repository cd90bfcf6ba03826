"""The ``scrubjay`` command run in this process, as a shell would."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from client_sync import cli

_COLOURS = re.compile(r"\x1b\[[\d;]*m")  # typer may colour a usage error on a build machine


@dataclass
class Ran:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[Any]:
        """Its output as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


def runner(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """A function that runs one command, 80 columns wide; ``terminal``: a person types ``stdin``."""

    def run(*arguments: str, stdin: str = "", terminal: bool = False) -> Ran:
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.delenv("FORCE_COLOR", raising=False)
        monkeypatch.setattr("sys.argv", ["scrubjay", *arguments])
        typed = io.StringIO(stdin)
        monkeypatch.setattr(typed, "isatty", lambda: terminal)
        monkeypatch.setattr("sys.stdin", typed)
        with pytest.raises(SystemExit) as exited:
            cli.main()
        shown = capsys.readouterr()
        code = exited.value.code or 0
        assert isinstance(code, int)
        return Ran(code, shown.out, _COLOURS.sub("", shown.err))

    return run
