"""A world: one server, several devices of several people, a backend that writes, and a clock for each.

Everything in it is real but time, randomness and the line between the two. A world does the same twice:
nothing in it reads the machine's clock or draws random bytes.
"""

from __future__ import annotations

import copy
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

from client_sync import Replica, ReplicaError, Wiped, synchronize
from client_sync.identity import Identity
from scrubjay import v1
from scrubjay.errors import InvalidField, ScrubjayError
from scrubjay.feed import unpack
from scrubjay.memory import MemoryId, Micros, id_text
from scrubjay.operation import Operation, decode
from scrubjay.stamp import ReplicaId
from server.ending import Ending
from tenants.tenant import Caller, DeviceBinding, Incarnation, Role, Tenant, TenantState, principal
from tests.sync import invariants, occasions, serving
from tests.sync.crash import Crash, CrashPoint, Disk, crashing
from tests.sync.device import ACME, GLOBEX, PLACES, Device, Place
from tests.sync.held import Held, read_held
from tests.sync.line import Line
from tests.sync.oracle import Oracle, Who
from tests.sync.server_side import SHARD, Databases, ServerSide
from tests.sync.simple_client import SimpleClient

T = TypeVar("T")

BEGINNING = Micros(1_796_000_000_000_000)
MILLISECOND = 1_000
SECOND = 1_000_000
MINUTE = 60 * SECOND
DAY = 24 * 3600 * SECOND

SLOTS = 4
CANARY = re.compile(rb"zq[0-9a-f]{6}")


class World:
    """See the module. ``close`` it; its ``folder`` is the caller's."""

    def __init__(self, databases: Databases, folder: Path, seed: int = 0) -> None:
        self._stack = ExitStack()
        self.folder = folder
        self.seed = seed
        self.micros = BEGINNING
        self.oracle = Oracle(tuple({place.who: None for place in PLACES.values()}))
        self.devices: dict[str, Device] = {}
        self.delayed: list[tuple[Device, Caller, v1.SyncRequest]] = []
        self.delivered: list[tuple[Device, Caller, v1.SyncRequest]] = []
        self.local_only: set[bytes] = set()
        self.backups: list[tuple[str, Oracle]] = []
        self.restores = 0
        self.collected = False
        self.obligations: list[tuple[Device, Held]] = []
        """What devices held when they heard that the server had been restored."""
        self.unheard: set[tuple[Who, MemoryId]] = set()
        """What devices gave back to a restored server that hid it from them, so that it did not hear."""
        self.slots: dict[tuple[Incarnation, int], list[MemoryId]] = {}
        self.simple: dict[str, SimpleClient] = {}
        self.events: Counter[str] = Counter()
        """How often what happened: a model that never comes to something proves nothing about it."""
        self._canaries = 0
        self._turn = 0
        self._limits = self._stack.enter_context(ExitStack())
        self._known: dict[object, Any] | None = None
        self._stack.enter_context(crashing(self._disk_of))
        # A quiet Watch gives a sign of life at once: nobody waits for real time to pass.
        self._stack.enter_context(patch("server.services.watching.IDLE_SECONDS", 0))
        self.server = ServerSide(databases, folder, lambda: self.micros)
        self._stack.callback(self.server.close)
        space = self.server.embedder.space.id
        self.tenants = {
            incarnation: Tenant(name, name, incarnation, TenantState.ACTIVE, SHARD, space, BEGINNING)
            for name, incarnation in (("acme", ACME), ("globex", GLOBEX))
        }

    def close(self) -> None:
        """Close every file."""
        for device in self.devices.values():
            if device.replica is not None:
                device.replica.close()
        self._stack.close()

    # --- time and names ---------------------------------------------------------------------------

    def wait(self, micros: int) -> None:
        """Time passes."""
        self.micros = Micros(self.micros + micros)

    def text(self, value: str) -> str:
        """A content that was never written before, so that it is recognised wherever it turns up."""
        self._canaries += 1
        return f"{value} zq{self._canaries:06x}"

    def new_id(self, incarnation: Incarnation, slot: int) -> MemoryId:
        """The id of the next memory of a slot, which nobody has yet."""
        ids = self.slots.setdefault((incarnation, slot), [])
        ids.append(MemoryId(id_text(bytes([0x5A, slot, len(ids), 0xA5]) * 4)))
        return ids[-1]

    def ids(self, incarnation: Incarnation, slot: int) -> list[MemoryId]:
        """The ids that a slot's memories have had, newest first."""
        return self.slots.get((incarnation, slot), [])[::-1]

    def known_id(self, incarnation: Incarnation, slot: int) -> MemoryId:
        """The newest id of a slot that the server has heard of, else a new one."""
        known = (
            each for each in self.ids(incarnation, slot) if (incarnation, each) in self.oracle.ever_known
        )
        return next(known, None) or self.new_id(incarnation, slot)

    def turn(self) -> int:
        """A number that counts up: what comes next where nobody chose."""
        self._turn += 1
        return self._turn

    # --- devices ----------------------------------------------------------------------------------

    def device(self, name: str) -> Device:
        """The device, made when it is first named, its file open."""
        device = self.devices.get(name)
        if device is None:
            device = self._made(name, PLACES[name])
            self.devices[name] = device
        if device.replica is None and not device.wiped:
            device.replica = self._opened(device)
        return device

    def _made(self, name: str, place: Place) -> Device:
        folder = self.folder / name
        folder.mkdir()
        caller = Caller(
            role=Role.DEVICE,
            key_id=name,
            client_id=place.client_id,
            tenant=self.tenants[place.incarnation],
            device=DeviceBinding(name, place.subject, place.scopes),
        )
        entropy = random.Random(f"{self.seed} {name}")
        return Device(name, place, caller, Disk(folder / "replica.db"), entropy)

    def _opened(self, device: Device) -> Replica:
        tools: dict[str, Any] = {
            "wall": lambda: Micros(self.micros + device.clock_offset),
            "monotonic": lambda: int(self.micros),
            "entropy": device.entropy.randbytes,
        }
        if device.disk.path.exists():
            replica = Replica.open(device.disk.path, **tools)
        else:
            replica = Replica.create(device.disk.path, self.identity(device.place), **tools)
        if device.sends_at_once:
            replica.on_write(lambda: None)
        return replica

    def identity(self, place: Place) -> Identity:
        """What a device of this place was registered as."""
        named = principal(place.incarnation, place.subject, place.client_id)
        return Identity(named, place.client_id, place.subject, place.scopes)

    def _disk_of(self, path: Path) -> Disk | None:
        return next((each.disk for each in self.devices.values() if each.disk.path == path), None)

    def held(self, device: Device) -> Held:
        """What the device's file holds."""
        return self.known(device.name, lambda: read_held(device.disk.path))

    @contextmanager
    def still(self) -> Iterator[None]:
        """For the block nothing happens, so that what was read once is known."""
        self._known = {}
        try:
            yield
        finally:
            self._known = None

    def known(self, name: object, read: Callable[[], T]) -> T:
        """What ``read`` returns, or returned before while nothing happened."""
        if self._known is None:
            return read()
        if name not in self._known:
            self._known[name] = read()
        found: T = self._known[name]
        return found

    def limit(self, page_bytes: int, operations: int, chunk_bytes: int) -> None:
        """Let pages, batches and parts of snapshots be small, so that few memories need many of them."""
        self._limits.close()
        for name, value in (
            ("server.services.sync_service.MAX_PAGE_BYTES", page_bytes),
            ("client_sync.outbox.MAX_OPERATIONS", operations),
            ("server.services.downloading.CHUNK_BYTES", chunk_bytes),
        ):
            self._limits.enter_context(patch(name, value))

    def judge(self, names: Iterable[Callable[[World], None]]) -> None:
        """Check these invariants."""
        with self.still():
            for invariant in names:
                invariant(self)

    def running(
        self, device: Device, work: Callable[[Replica], T], crash: CrashPoint | None = None
    ) -> T | None:
        """Run ``work`` on the device, which may crash in it; what it returned, None where it crashed."""
        assert device.replica is not None
        before = self.held(device)
        device.disk.armed = crash
        try:
            return work(device.replica)
        except Crash:
            self.events[f"crash power={crash is not None and crash.power}"] += 1
            if crash is not None and crash.power:
                device.last_place, device.uncounted = (0, 0), True
            self.restart(device)
            occasions.crash_leaves_rows_and_cursor_of_one_page(device, before, self.held(device))
            return None
        finally:
            device.disk.armed = None

    def restart(self, device: Device) -> None:
        """The device's process is gone; the next one opens what it left."""
        device.replica = None
        device.disk.recover()
        device.replica = self._opened(device)

    def put(self, device: Device, files: dict[str, bytes]) -> None:
        """The device's file is replaced."""
        if device.replica is not None:
            device.replica.close()
        device.replica = None
        device.disk.image = dict(files)
        self.restart(device)

    def clone(self, device: Device, name: str) -> Device:
        """Another device that begins with a copy of this one's file."""
        other = self._made(name, device.place)
        other.clock_offset = device.clock_offset
        other.edits, other.touches = copy.deepcopy(device.edits), dict(device.touches)
        other.made, other.named = set(device.made), set(device.named)
        other.last_place = device.last_place
        other.disk.put(device.disk.files())
        device.may_fork = other.may_fork = device.uncounted = other.uncounted = True
        other.told_to_load = device.told_to_load
        self.devices[name] = other
        other.replica = self._opened(other)
        return other

    def sync(
        self,
        device: Device,
        plan: Iterable[str] = (),
        crash: CrashPoint | None = None,
        *,
        vectors: bool = False,
    ) -> Exception | None:
        """Synchronize the device over a line that breaks as planned; the error that ended it, if any."""
        line = Line(self, device)
        line.plan.extend(plan)

        def work(replica: Replica) -> Exception | None:
            try:
                synchronize(replica, line, vectors=vectors)
            except (ScrubjayError, ReplicaError) as error:
                return error
            return None

        error = self.running(device, work, crash)
        if isinstance(error, Wiped):
            self._wiped(device)
        if error is None and device.replica is not None and not self.held(device).meta.get("reload"):
            device.told_to_load = False
        return error

    def _wiped(self, device: Device) -> None:
        """The device deleted its memories, as it was told."""
        device.replica, device.wiped = None, True
        occasions.wiped_devices_keep_nothing(device)

    def calm(self) -> None:
        """Faults end: late requests arrive or never do, and everybody synchronizes until nothing moves."""
        self.delayed.clear()
        for _ in range(invariants.MAX_ROUNDS):
            for device in self.devices.values():
                if device.replica is not None:
                    self.wait(SECOND)
                    occasions.synchronizing_ends(device, self.sync(device, vectors=True))
        self.judge(invariants.ALWAYS)
        for invariant in invariants.AT_REST:
            invariant(self)

    # --- the line's other end ---------------------------------------------------------------------

    def request_leaves(self, device: Device, rpc: str, request: Any) -> None:
        """A device sends something."""
        serving.judge_request(self, device, rpc, request)

    def serve_sync(self, device: Device, caller: Caller, request: v1.SyncRequest) -> v1.SyncResponse:
        """The server answers Sync."""
        return serving.sync(self, device, caller, request)

    def serve_reconcile(
        self, device: Device, caller: Caller, request: v1.ReconcileRequest
    ) -> v1.ReconcileResponse:
        """The server answers Reconcile."""
        return serving.plain(self, device, request, lambda: self.server.sync.reconcile(request, caller))

    def serve_reoffer(self, device: Device, caller: Caller, request: v1.ReofferRequest) -> v1.ReofferResponse:
        """The server answers Reoffer."""
        return serving.reoffer(self, device, caller, request)

    def serve_vectors(self, device: Device, caller: Caller, request: v1.VectorsRequest) -> v1.VectorsResponse:
        """The server answers Vectors."""
        return serving.plain(self, device, request, lambda: self.server.sync.vectors(request, caller))

    def serve_snapshot(
        self, device: Device, caller: Caller, request: v1.SnapshotRequest
    ) -> Iterator[v1.SnapshotResponse]:
        """The server answers Snapshot."""
        occasions.loads_anew_only_where_told(device, self.held(device).cursor)
        return serving.stream(self, device, lambda: self.server.sync.snapshot(request, caller, Ending()))

    def serve_watch(
        self, device: Device, caller: Caller, request: v1.WatchRequest
    ) -> Iterator[v1.WatchResponse]:
        """The server answers Watch."""
        return serving.stream(self, device, lambda: self.server.sync.watch(request, caller, Ending()))

    def others_write(self, device: Device) -> None:
        """Somebody else writes to the device's stream while it waits for an answer."""
        from tests.sync.actions.backend import somebody_writes

        somebody_writes(self, device)

    def app_writes(self, device: Device) -> None:
        """The device's own app writes while it synchronizes."""
        from tests.sync.actions.app import the_app_writes

        the_app_writes(self, device)

    def another_process(self, device: Device) -> None:
        """Another process that has the device's file open synchronizes it too."""
        with self._opened(device) as other, suppress(ScrubjayError, ReplicaError):
            synchronize(other, Line(self, device))

    def answered_before(self, device: Device, request: v1.SyncRequest) -> bool:
        """Whether everything that the request brings was taken before, and is not lost since."""
        return not (request.touches and self.restores) and all(
            operation is None or (device.place.incarnation, operation.operation_id) in self.oracle.answered
            for operation in self.operations(device, request)
        )

    def operations(self, device: Device, request: v1.SyncRequest) -> list[Operation | None]:
        """The operations of a request; None for one that can't be read."""
        batch = request.batch
        if request.packed_batch:
            batch = unpack(v1.Batch, "packed_batch", request.packed_batch)
        found: list[Operation | None] = []
        for number, body in enumerate(batch.operations, request.first_number):
            try:
                sender = ReplicaId(request.replica_id)
                place = device.place
                found.append(decode(body, sender, number, place.client_id, place.subject))
            except InvalidField:
                found.append(None)
        return found
