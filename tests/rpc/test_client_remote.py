"""Devices on a real server, over gRPC: they come in, keep up with it and each other, and go."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from client_sync import Remote, Replica, Wiped, synchronize
from client_sync.background import BackgroundSync
from client_sync.credentials import DeviceCredentials
from client_sync.search import QueryVector
from client_sync.sync import SyncReport
from client_sync.vectors import fetch_vectors
from rpc.conftest import Serving
from scrubjay import v1
from scrubjay.errors import CredentialInvalid, DeviceRevoked, MemoryDeleted
from scrubjay.memory import Micros, PrivacyLevel
from server.app import App
from server.config import Settings
from server.providers.embedder import TextKind
from server.providers.hashed import HashEmbedder
from tests.waiting import patiently

SECONDS = 15.0
HOUR = 3_600_000_000

pytestmark = pytest.mark.parametrize("backend", ["sqlite"])


@dataclass
class Device:
    """One enrolled device with its replica and its remote."""

    credentials: DeviceCredentials
    replica: Replica
    remote: Remote

    def synchronize(self) -> SyncReport:
        return synchronize(self.replica, self.remote)

    def contents(self) -> set[str]:
        return {memory.content for memory in self.replica.list(limit=1000)}


@dataclass
class Devices:
    """Enrols devices of user alice on a running server."""

    serving: Serving
    folder: Path
    stack: ExitStack
    made: int = 0

    def code(self, **fields: object) -> str:
        given = {"tenant_id": "dev", "user_id": "alice", **fields}
        return self.serving.admin.CreateEnrolment(v1.CreateEnrolmentRequest(**given)).enrolment_code

    def registered(self, **fields: object) -> DeviceCredentials:
        self.made += 1
        code, installation = self.code(**fields), self.made.to_bytes(16, "big")
        credentials = Remote.register(self.serving.app.address, code, installation_id=installation)
        return credentials.save(self.folder / f"device-{self.made}.json")

    def device(self, **fields: object) -> Device:
        credentials = self.registered(**fields)
        path = self.folder / f"replica-{self.made}.db"
        replica = self.stack.enter_context(Replica.create(path, credentials.identity))
        remote = self.stack.enter_context(Remote(credentials.target, credentials))
        return Device(credentials, replica, remote)


@pytest.fixture
def devices(serving: Serving, tmp_path: Path) -> Iterator[Devices]:
    with ExitStack() as stack:
        yield Devices(serving, tmp_path, stack)


eventually = patiently(SECONDS)


def test_a_code_gives_one_device_however_often_its_installation_asks(devices: Devices) -> None:
    code = devices.code(client_id="phone", scopes=["work"])
    address = devices.serving.app.address
    first, again = (Remote.register(address, code, installation_id=b"i" * 16) for _ in range(2))
    assert first.token == again.token
    assert first.identity == again.identity
    assert (first.client_id, first.subject.key, first.scopes) == ("phone", "user:alice", ("work",))
    with pytest.raises(CredentialInvalid):
        Remote.register(address, code, installation_id=b"j" * 16)


def test_devices_and_backends_see_each_others_edits_but_not_what_is_private(devices: Devices) -> None:
    phone, laptop = devices.device(), devices.device()
    tea = phone.replica.add("likes green tea", tags=["drink"])
    phone.replica.add("the diary", privacy_level=PrivacyLevel.PRIVATE)
    phone.replica.add("the pin", privacy_level=PrivacyLevel.LOCAL_ONLY)
    assert phone.synchronize().pushed == 2
    devices.serving.dev.add("她喜欢喝绿茶")
    laptop.synchronize()
    assert laptop.contents() == {"likes green tea", "她喜欢喝绿茶"}
    laptop.replica.update(tea.id, {"category": "PREFERENCE"})
    phone.replica.update(tea.id, {"tags.daily": True})
    for device in (laptop, phone, laptop):
        device.synchronize()
    for device in (laptop, phone):
        memory = device.replica.get(tea.id)
        assert (memory.category, memory.tags) == ("PREFERENCE", {"drink", "daily"})
    phone.replica.delete(tea.id)
    for device in (phone, laptop):
        device.synchronize()
    with pytest.raises(MemoryDeleted):
        laptop.replica.get(tea.id)
    assert [hit.memory.content for hit in laptop.replica.search("绿茶")] == ["她喜欢喝绿茶"]


def test_a_full_batch_is_answered_operation_by_operation(devices: Devices) -> None:
    phone = devices.device()
    phone.synchronize()
    for n in range(120):
        phone.replica.add(f"fact {n}")
    report = phone.synchronize()
    assert (report.pushed, phone.replica.status().unsent) == (120, 0)


def test_a_first_load_comes_as_a_snapshot(devices: Devices) -> None:
    devices.serving.dev.add(*(f"note {number}" for number in range(1_100)))
    phone = devices.device()
    report = phone.synchronize()
    assert report.loaded
    assert phone.replica.status().memories == 1_100
    assert phone.replica.search("note 1099", top_k=1)[0].memory.content == "note 1099"


def test_embeddings_come_to_the_device_and_find_by_meaning(devices: Devices) -> None:
    devices.serving.dev.add("green tea", "a red bicycle")
    phone = devices.device()
    phone.synchronize()
    assert fetch_vectors(phone.replica, phone.remote) == 2
    embedder = HashEmbedder()
    values = embedder.embed(["green tea"], TextKind.QUERY)[0].tolist()
    hits = phone.replica.search("green tea", vector=QueryVector(embedder.space.id, values))
    assert hits[0].memory.content == "green tea"
    assert hits[0].score == pytest.approx(1, abs=0.02)
    assert {each.arm for each in hits[0].contributions} == {"dense", "lexical"}


def test_two_devices_in_the_background_keep_up_with_each_other(devices: Devices) -> None:
    phone, laptop = devices.device(), devices.device()
    heard: list[SyncReport] = []
    errors: list[Exception] = []
    with (
        BackgroundSync(phone.replica, phone.remote, on_change=lambda _: None, on_error=errors.append),
        BackgroundSync(laptop.replica, laptop.remote, on_change=heard.append, on_error=errors.append),
    ):
        phone.replica.add("likes tea")
        eventually(lambda: laptop.contents() == {"likes tea"})
        devices.serving.dev.add("from a backend")
        eventually(lambda: laptop.contents() == phone.contents() == {"likes tea", "from a backend"})
        laptop.replica.add("from the laptop")
        eventually(lambda: "from the laptop" in phone.contents())
        # The phone may hear of it before the laptop has its own answer.
        eventually(lambda: phone.replica.status().unsent == laptop.replica.status().unsent == 0)
        began = time.monotonic()
    assert time.monotonic() - began < 2
    assert errors == []
    assert heard


def test_a_background_sync_survives_that_its_server_goes_away(devices: Devices, settings: Settings) -> None:
    phone = devices.device()
    address = devices.serving.app.address
    errors: list[Exception] = []
    with BackgroundSync(
        phone.replica, phone.remote, on_change=lambda _: None, on_error=errors.append, jitter=lambda: 0.2
    ):
        phone.replica.add("before")
        eventually(lambda: phone.replica.status().unsent == 0)
        devices.serving.app.close()
        phone.replica.add("meanwhile")
        eventually(lambda: errors)
        with App(settings.model_copy(update={"listen": address})):
            eventually(lambda: phone.replica.status().unsent == 0)
            phone.replica.add("after")
            eventually(lambda: phone.replica.status().unsent == 0)
    assert phone.contents() == {"before", "meanwhile", "after"}


# --- tokens --------------------------------------------------------------------------------------


def test_an_expired_token_is_replaced_on_the_way(devices: Devices, settings: Settings) -> None:
    code, address = devices.code(), devices.serving.app.address
    devices.serving.app.close()
    behind = [2 * HOUR]
    with App(
        settings.model_copy(update={"listen": address}), lambda: Micros(time.time_ns() // 1000 - behind[0])
    ):
        given = Remote.register(address, code, installation_id=b"i" * 16)
        behind[0] = 0
        saved = given.save(devices.folder / "device.json")
        with (
            Replica.create(devices.folder / "replica.db", saved.identity) as replica,
            Remote(address, saved, wall=lambda: Micros(0)) as remote,
        ):
            replica.add("likes tea")
            assert synchronize(replica, remote).pushed == 1
            assert remote.credentials.token != given.token
    assert DeviceCredentials.load(devices.folder / "device.json") == remote.credentials


SYNC_FIVE_TIMES = """
import sys, time
from client_sync import Remote, Replica, synchronize
from client_sync.credentials import DeviceCredentials
from scrubjay.memory import Micros

credentials = DeviceCredentials.load(sys.argv[1])
tomorrow = Micros(time.time_ns() // 1000 + 24 * 3600 * 1000000)
with Replica.create(sys.argv[2], credentials.identity) as replica:
    for number in range(5):
        with Remote(credentials.target, credentials, wall=lambda: tomorrow) as remote:
            replica.add(f"{number} of {sys.argv[2]}")
            synchronize(replica, remote)
"""


def test_processes_that_replace_one_token_over_and_over_never_look_like_thieves(devices: Devices) -> None:
    phone = devices.device()
    first = phone.credentials.token
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SYNC_FIVE_TIMES, str(phone.credentials.path), devices.folder / f"{n}.db"]
        )
        for n in range(2)
    ]
    assert [process.wait(60) for process in processes] == [0, 0]
    phone.synchronize()
    assert phone.replica.status().memories == 10
    assert phone.credentials.path is not None
    assert DeviceCredentials.load(phone.credentials.path).token != first


@pytest.mark.parametrize("hours_ahead", [0, 24])
def test_a_revoked_device_is_wiped_whatever_its_clock_says(devices: Devices, hours_ahead: int) -> None:
    phone = devices.device()
    phone.replica.add("likes tea")
    phone.synchronize()
    devices.serving.admin.RevokeDevice(
        v1.RevokeDeviceRequest(tenant_id="dev", device_id=phone.credentials.device_id, wipe=True)
    )
    wall = Micros(time.time_ns() // 1000 + hours_ahead * HOUR)
    with (
        Remote(phone.credentials.target, phone.credentials, wall=lambda: wall) as remote,
        pytest.raises(Wiped),
    ):
        synchronize(phone.replica, remote)
    assert not phone.replica.file.path.exists()


def test_a_device_that_was_revoked_without_a_wipe_keeps_what_it_has(devices: Devices) -> None:
    phone = devices.device()
    phone.replica.add("likes tea")
    devices.serving.admin.RevokeDevice(
        v1.RevokeDeviceRequest(tenant_id="dev", device_id=phone.credentials.device_id)
    )
    with pytest.raises(DeviceRevoked):
        phone.synchronize()
    assert phone.contents() == {"likes tea"}


def test_a_copied_token_is_found_out(devices: Devices) -> None:
    phone = devices.device()
    assert phone.credentials.path is not None
    copied = phone.credentials.save(devices.folder / "copied.json")
    phone.remote.replace_token(phone.credentials.token)
    phone.synchronize()
    phone.remote.replace_token(phone.remote.credentials.token)
    phone.synchronize()
    with Remote(copied.target, copied) as thief, pytest.raises(DeviceRevoked):
        thief.replace_token(copied.token)
    with pytest.raises(DeviceRevoked):
        phone.synchronize()
