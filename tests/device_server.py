"""A server for one device at a time: it takes what comes, gives what a test put in, and notes what it saw."""

from __future__ import annotations

import hashlib
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
from google.protobuf import timestamp_pb2

from scrubjay import v1
from scrubjay.errors import CredentialInvalid, ScrubjayError
from scrubjay.feed import seal_page, unpack, whole
from scrubjay.memory import ClientId, Memory, MemoryId, Micros, Subject, id_bytes, new_memory_id
from scrubjay.merge import State, Write, apply, create
from scrubjay.operation import Operation, decode, replay
from scrubjay.stamp import CommitStamp, ReplicaId, Stamp, pack_field_stamps
from scrubjay.status import to_status
from scrubjay.v1.sync_service_pb2_grpc import SyncServiceServicer, add_SyncServiceServicer_to_server
from scrubjay.wire import to_message

ELSEWHERE = ReplicaId(b"elsewhere 123456")
APPLIED = v1.OperationResult(status=v1.OPERATION_STATUS_APPLIED)


@dataclass
class DeviceServer(SyncServiceServicer):
    """``accounts`` are user and client by enrolment code; ``judge`` says how an operation ends; ``error``
    is what every Sync is refused with."""

    accounts: dict[str, tuple[str, str]] = field(
        default_factory=lambda: {"code-ann": ("ann", "phone"), "code-bob": ("bob", "laptop")}
    )
    judge: Callable[[Operation], v1.OperationResult] = lambda _: APPLIED
    error: ScrubjayError | None = None
    directive: v1.Directive.ValueType = v1.DIRECTIVE_OK
    target: str = ""
    registered: list[v1.RegisterDeviceRequest] = field(default_factory=list)
    synced: list[v1.SyncRequest] = field(default_factory=list)
    rows: dict[MemoryId, tuple[int, State | None]] = field(default_factory=dict)
    account: tuple[str, str] = ("ann", "phone")
    head: int = 1 << 16
    changed: threading.Condition = field(default_factory=threading.Condition)

    # --- what a test does -------------------------------------------------------------------------

    def put(self, content: str) -> MemoryId:
        """Another device adds a memory."""
        self.head += 1
        memory_id = new_memory_id(self.head, self.head.to_bytes(10, "big"))
        memory = Memory(
            memory_id,
            content,
            Micros(1_796_000_000_000_000 + self.head),
            user_id=self.account[0],
            owner_client_id=ClientId("web"),
        )
        return self._put(memory_id, create(memory, Stamp(self.head << 16, ELSEWHERE)))

    def edit(self, memory_id: MemoryId, content: str) -> None:
        """Another device writes a memory's content."""
        self.head += 1
        _, state = self.rows[memory_id]
        assert state is not None
        stamp = Stamp(self.head << 16, ELSEWHERE)
        self._put(memory_id, apply(state, [Write("content", content, stamp, None)], ClientId("web"))[0])

    def remove(self, memory_id: MemoryId) -> None:
        """Another device deletes a memory."""
        self.head += 1
        self._put(memory_id, None)

    def _put(self, memory_id: MemoryId, state: State | None) -> MemoryId:
        with self.changed:
            self.rows[memory_id] = (self.head, state)
            self.changed.notify_all()
        return memory_id

    @property
    def contents(self) -> set[str]:
        """What the living memories say."""
        return {state.memory.content for _, state in self.rows.values() if state is not None}

    @property
    def operations(self) -> list[Operation]:
        """Every operation that came, in order."""
        return [operation for request in self.synced for operation in self._operations(request)]

    # --- SyncService ------------------------------------------------------------------------------

    def RegisterDevice(
        self, request: v1.RegisterDeviceRequest, context: grpc.ServicerContext
    ) -> v1.RegisterDeviceResponse:
        code = str(dict(context.invocation_metadata())["authorization"]).removeprefix("Bearer ")
        if code not in self.accounts:
            _abort(context, CredentialInvalid())
        self.registered.append(request)
        self.account = user, client = self.accounts[code]
        return v1.RegisterDeviceResponse(
            device_id=f"device of {user}",
            client_id=client,
            device_token=f"token-of-{user}",
            expires_at=timestamp_pb2.Timestamp(seconds=4_000_000_000),
            user_id=user,
            principal=hashlib.sha256(user.encode()).digest()[:8],
        )

    def Sync(self, request: v1.SyncRequest, context: grpc.ServicerContext) -> v1.SyncResponse:
        if self.error is not None:
            _abort(context, self.error)
        if self.directive != v1.DIRECTIVE_OK:
            return v1.SyncResponse(directive=self.directive)
        self.synced.append(request)
        results = [self._take(operation) for operation in self._operations(request)]
        return v1.SyncResponse(
            directive=v1.DIRECTIVE_OK,
            results=results,
            page=self._page(int(request.last_sync_at or 0)),
            last_sync_at=str(self.head),
            commit_stamp=self.head,
            server_time=_now(),
        )

    def Snapshot(
        self, request: v1.SnapshotRequest, context: grpc.ServicerContext
    ) -> Iterator[v1.SnapshotResponse]:
        living = {
            memory_id: (stamp, state) for memory_id, (stamp, state) in self.rows.items() if state is not None
        }
        body = _snapshot_file(living)
        half = len(body) // 2
        for offset, chunk in ((0, body[:half]), (half, body[half:])):
            yield v1.SnapshotResponse(
                total_bytes=len(body),
                row_count=len(living),
                offset=offset,
                chunk=chunk,
                chunk_digest=hashlib.sha256(chunk).digest(),
                last_sync_at=str(self.head),
                commit_stamp=self.head,
            )

    def Watch(self, request: v1.WatchRequest, context: grpc.ServicerContext) -> Iterator[v1.WatchResponse]:
        here = int(request.last_sync_at)
        context.add_callback(self._wake)
        while context.is_active():
            with self.changed:
                while self.head <= here and context.is_active():
                    self.changed.wait()
                response = v1.WatchResponse(
                    from_sync_at=str(here),
                    page=self._page(here),
                    last_sync_at=str(self.head),
                    commit_stamp=self.head,
                    server_time=_now(),
                )
                here = self.head
            yield response

    def _wake(self) -> None:
        with self.changed:
            self.changed.notify_all()

    def _operations(self, request: v1.SyncRequest) -> list[Operation]:
        batch = unpack(v1.Batch, "", request.packed_batch) if request.packed_batch else request.batch
        user, client = self.account
        return [
            decode(
                body,
                ReplicaId(request.replica_id),
                request.first_number + n,
                ClientId(client),
                Subject("user", user),
            )
            for n, body in enumerate(batch.operations)
        ]

    def _take(self, operation: Operation) -> v1.OperationResult:
        self.head += 1
        result = v1.OperationResult(commit_stamp=self.head)
        result.MergeFrom(self.judge(operation))
        if result.status == v1.OPERATION_STATUS_APPLIED:
            _, old = self.rows.get(operation.memory_id, (0, None))
            self._put(operation.memory_id, replay(old, operation, ClientId(self.account[1]))[0])
        return result

    def _page(self, after: int) -> v1.Page:
        rows = sorted((stamp, memory_id, state) for memory_id, (stamp, state) in self.rows.items())
        changes = []
        for stamp, memory_id, state in rows:
            if stamp > after and state is not None:
                message, stamps = _encoded(stamp, state)
                change = whole(message, stamps, Subject("user", self.account[0]))
                changes.append((memory_id, CommitStamp(stamp), change))
            elif stamp > after and after:
                changes.append((memory_id, CommitStamp(stamp), v1.Change(kind=v1.CHANGE_KIND_DELETED)))
        return seal_page(changes)


def _encoded(stamp: int, state: State) -> tuple[bytes, bytes]:
    message = to_message(state.memory, CommitStamp(stamp)).SerializeToString()
    return message, pack_field_stamps(state.stamps)


def _snapshot_file(rows: dict[MemoryId, tuple[int, State]]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "snapshot"
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA user_version = 1")
        connection.execute("CREATE TABLE rows (id, commit_stamp, created_at, message, field_stamps)")
        connection.executemany(
            "INSERT INTO rows VALUES (?, ?, ?, ?, ?)",
            [
                (id_bytes(memory_id), stamp, state.memory.created_at, *_encoded(stamp, state))
                for memory_id, (stamp, state) in rows.items()
            ],
        )
        connection.commit()
        connection.close()
        return path.read_bytes()


def _now() -> timestamp_pb2.Timestamp:
    now = timestamp_pb2.Timestamp()
    now.GetCurrentTime()
    return now


def _abort(context: grpc.ServicerContext, error: ScrubjayError) -> None:
    status = to_status(error)
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(next(each for each in grpc.StatusCode if each.value[0] == status.code), status.message)


@contextmanager
def device_server() -> Iterator[DeviceServer]:
    """A server on a port of its own for the block."""
    servicer = DeviceServer()
    running = grpc.server(futures.ThreadPoolExecutor(4))
    add_SyncServiceServicer_to_server(servicer, running)
    servicer.target = f"127.0.0.1:{running.add_insecure_port('127.0.0.1:0')}"
    running.start()
    try:
        yield servicer
    finally:
        running.stop(0).wait()
        servicer._wake()
