"""The marks that show a database that went back in time.

Beside the databases lies a file with each shard's highest head. A database that stands lower was restored
from a backup: replicas hold edits that it lost, and would take what they see for the whole. The operator
says so with ``python -m server restored``, and replicas give back what they hold.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path

from scrubjay.stamp import time_text
from server.shard import Shard

INTERVAL_SECONDS = 5
"""How far the file may lie behind: what is lost with it is noticed by the replicas alone."""
_FILE = "heads.json"


class WentBack(Exception):
    """A shard's database stands lower than it once did."""


class HeadMarks:
    """The file in ``data_dir``, and the shards it is about. A lost file is no error.

    Raises WentBack where a shard stands lower than its mark.
    """

    def __init__(self, data_dir: Path, shards: Mapping[str, Shard]) -> None:
        self._path = data_dir / _FILE
        self._shards = shards
        self._written = _read(self._path)
        for name, shard in shards.items():
            mark, highest = self._written.get(name, 0), shard.highest_head()
            if highest < mark:
                raise WentBack(
                    f"{name} stands at {time_text(highest)} and stood at {time_text(mark)} before: it was "
                    "restored from a backup. Run 'python -m server restored', so that devices give back "
                    "what they still hold, then start again"
                )

    def write(self, _ending: threading.Event | None = None) -> None:
        """Note the highest heads durably, where they moved."""
        marks = {name: int(shard.highest) for name, shard in self._shards.items()}
        if marks != self._written:
            _write(self._path, marks)
            self._written = marks


def forget_marks(data_dir: Path) -> None:
    """Forget where the shards stood: they were restored, and it was said."""
    (data_dir / _FILE).unlink(missing_ok=True)


def _read(path: Path) -> dict[str, int]:
    try:
        marks: dict[str, int] = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except ValueError:  # written beside and renamed, so that only a damaged disk leads here
        return {}
    return marks


def _write(path: Path, marks: Mapping[str, int]) -> None:
    beside = path.with_suffix(".new")
    with beside.open("w") as file:
        json.dump(marks, file)
        file.flush()
        os.fsync(file.fileno())
    beside.rename(path)
