"""Files that were damaged between one run and the next: what is in them is right, or they are made anew."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from client_sync import Replica, TransferBroken, synchronize
from client_sync.identity import Identity
from client_sync.recovery import begin_reload
from client_sync.replica_file import is_whole
from scrubjay import v1
from scrubjay.errors import Unavailable
from scrubjay.memory import PrivacyLevel
from server.ending import Ending
from server.services import downloading
from tests.devices import NOW, Device, Server

CHUNK_BYTES = 8192
CONTENTS = {f"I like tea number {n}. {'x' * 400}" for n in range(60)}
ATTEMPTS = 3
"""To have everything after a damage: one may find it, and one may be cut."""


@dataclass(frozen=True)
class Damage:
    """A change of a file: ``at`` is a part of its length, ``data`` is what is there then.

    Without ``data`` the file ends there. At 1 it is put behind the end.
    """

    at: float
    data: bytes

    def __call__(self, path: Path) -> None:
        body = path.read_bytes()
        place = int(self.at * len(body))
        path.write_bytes(
            body[:place] + self.data + body[place + len(self.data) :] if self.data else body[:place]
        )


ZEROS = st.integers(1, 5000).map(bytes)
"""As a power cut leaves a file."""
damages = st.builds(Damage, st.floats(0, 1), st.binary(max_size=3) | st.binary(max_size=100) | ZEROS)


class Cut:
    """A device's line to a server in process; its next snapshots are cut behind so many responses."""

    def __init__(self, device: Device) -> None:
        self._sync, self._caller = device.server.sync, device.caller
        self.cuts: list[int] = []

    def sync(self, request: v1.SyncRequest) -> v1.SyncResponse:
        return self._sync.sync(request, self._caller)

    def snapshot(self, request: v1.SnapshotRequest) -> Iterator[v1.SnapshotResponse]:
        cut = self.cuts.pop(0) if self.cuts else None
        for number, response in enumerate(self._sync.snapshot(request, self._caller, Ending())):
            if number == cut:
                raise Unavailable("the line was cut")
            yield response

    def watch(self, request: v1.WatchRequest) -> Iterator[v1.WatchResponse]:
        raise NotImplementedError

    def reconcile(self, request: v1.ReconcileRequest) -> v1.ReconcileResponse:
        return self._sync.reconcile(request, self._caller)

    def reoffer(self, request: v1.ReofferRequest) -> v1.ReofferResponse:
        return self._sync.reoffer(request, self._caller)

    def vectors(self, request: v1.VectorsRequest) -> v1.VectorsResponse:
        return self._sync.vectors(request, self._caller)


@pytest.fixture(scope="module")
def device(shard_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Device]:
    """A device of a server with more than a few chunks of memories."""
    folder = tmp_path_factory.mktemp("server")
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(downloading, "CHUNK_BYTES", CHUNK_BYTES)
        patch.setattr(downloading, "QUICK_SECONDS", 0)
        path = shutil.copyfile(shard_file, folder / "shard.db")
        server = stack.enter_context(Server(f"sqlite:///{path}", folder))
        device = server.device()
        device.sync(*(device.create(content) for content in sorted(CONTENTS)))
        yield device


def loaded(replica: Replica, line: Cut) -> None:
    """Synchronize until everything is here."""
    for _ in range(ATTEMPTS):
        try:
            synchronize(replica, line)
        except (TransferBroken, Unavailable):
            continue
        return
    raise AssertionError(f"{ATTEMPTS} attempts were not enough")


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 6), damages)
def test_a_download_that_was_damaged_while_it_was_cut_gives_what_the_server_has(
    device: Device, cut: int, damage: Damage
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "alice.db"
        identity = Identity(device.request().principal, device.client_id, device.subject)
        with Replica.create(path, identity, wall=lambda: NOW) as replica:
            mine = replica.add("Mine.", privacy_level=PrivacyLevel.LOCAL_ONLY)
            line = Cut(device)
            line.cuts = [cut]
            begin_reload(replica)
            with pytest.raises(Unavailable):
                synchronize(replica, line)
            loading = path.with_name(path.name + ".loading")
            damage(loading)
            loaded(replica, line)
            assert {one.content for one in replica.list()} == CONTENTS | {mine.content}
            assert is_whole(path)
