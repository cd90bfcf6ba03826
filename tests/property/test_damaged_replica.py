"""A device's file that was damaged: what no server has is kept, or its owner hears that some may be lost."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from client_sync import Replica, synchronize
from client_sync.errors import ReplicaError
from client_sync.identity import Identity
from client_sync.replica_file import is_whole
from client_sync.salvage import salvage
from scrubjay.errors import MemoryNotFound
from scrubjay.memory import PrivacyLevel
from tests.devices import NOW, Device, Server
from tests.property.test_fuzz_files import Cut

UNSENT = {f"I wrote number {n} down offline. {'y' * 300}" for n in range(12)}
LOCAL = {f"My diary, day {n}. {'z' * 300}" for n in range(12)}
SERVED = {f"I like tea number {n}. {'x' * 400}" for n in range(40)}


@dataclass(frozen=True)
class Files:
    """A replica's file, once with its last writes in a log beside it, and whose it is."""

    folder: Path
    identity: Identity

    def copied(self, folder: Path, *, log: bool) -> Path:
        """The same somewhere else, in one file or with the log."""
        for each in (self.folder / ("log" if log else "file")).iterdir():
            shutil.copyfile(each, folder / each.name)
        return folder / "alice.db"


@pytest.fixture(scope="module")
def files(shard_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Files]:
    """A replica that was synchronized and has written since, as it is while it is open."""
    folder = tmp_path_factory.mktemp("damaged")
    with ExitStack() as stack:
        path = shutil.copyfile(shard_file, folder / "shard.db")
        server = stack.enter_context(Server(f"sqlite:///{path}", folder))
        device = server.device()
        device.sync(*(device.create(content) for content in sorted(SERVED)))
        phone: Device = server.device()
        identity = Identity(phone.request().principal, phone.client_id, phone.subject)
        (folder / "open").mkdir()
        replica = stack.enter_context(
            Replica.create(folder / "open" / "alice.db", identity, wall=lambda: NOW)
        )
        synchronize(replica, Cut(phone))
        for content in sorted(UNSENT):
            replica.add(content)
        for content in sorted(LOCAL):
            replica.add(content, privacy_level=PrivacyLevel.LOCAL_ONLY)
        for kind, names in (("log", ("alice.db", "alice.db-wal")), ("file", ("alice.db",))):
            (folder / kind).mkdir()
            for name in names:
                shutil.copyfile(folder / "open" / name, folder / kind / name)
            with replica.file.reading() as sql:  # between the two the log is folded back
                sql.execute("ROLLBACK")
                sql.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        yield Files(folder, identity)


@dataclass(frozen=True)
class Harm:
    """What a disk does to a file: pages of zeros, bytes that flip, an end that is missing."""

    log: bool
    kind: str
    at: float
    more: int

    @property
    def looks_like_a_power_cut(self) -> bool:
        """Whether it leaves a log as one that was not written to its end."""
        return self.log and self.kind in ("cut", "zeros")

    def __call__(self, path: Path) -> None:
        file = path.with_name(path.name + "-wal") if self.log else path
        body = bytearray(file.read_bytes())
        place = min(int(self.at * len(body)), len(body) - 1)
        match self.kind:
            case "flip":
                for n in range(1 + self.more % 4):
                    body[(place + n * self.more) % len(body)] ^= 1 << self.more % 8
            case "zeros":
                begin = place - place % 4096
                body[begin : begin + 4096 * (1 + self.more % 3)] = bytes(4096 * (1 + self.more % 3))
            case "cut":
                del body[place:]
            case "noise":
                noise = bytes((self.more * n * 37) % 256 for n in range(64))
                body[place : place + 64] = noise
        file.write_bytes(body)


harms = st.builds(
    Harm,
    st.booleans(),
    st.sampled_from(["flip", "zeros", "cut", "noise"]),
    st.floats(0, 1),
    st.integers(1, 9999),
)


def used(path: Path) -> None:
    """All that an app does with the file."""
    with Replica.open(path, wall=lambda: NOW) as replica:
        for memory in replica.list():
            with suppress(MemoryNotFound):  # an index that names it wrongly
                replica.get(memory.id)
        replica.search("tea")
        replica.status()
        added = replica.add("One more.")
        replica.update(added.id, {"content": "One more, edited."})
        replica.history(added.id)
        replica.delete(added.id)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(harms)
def test_a_damaged_file_is_used_or_refused_and_nothing_is_lost_in_silence(files: Files, harm: Harm) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = files.copied(Path(folder), log=harm.log)
        harm(path)
        said = not is_whole(path) or harm.looks_like_a_power_cut
        with suppress(ReplicaError):
            used(path)
        found = salvage(path, files.identity)
        whole = found.local >= len(LOCAL) and found.unsent >= len(UNSENT)
        assert whole or found.incomplete or said
        assert found.damaged.exists()
        with Replica.open(path, wall=lambda: NOW) as replica:
            assert len(replica.list(limit=1000)) >= found.local
