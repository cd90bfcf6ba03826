"""Writers that remember what they were told, so that it can be held against what is stored."""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import grpc
from google.protobuf.field_mask_pb2 import FieldMask

from fault.evidence import Evidence
from scrubjay import v1
from server.store.history import HistoryKind

CREATE, SET, DELETE = HistoryKind
CALL_SECONDS = 30
"""A call's deadline, where a test has no other in mind."""


class Client:
    """Sends requests with a key and never repeats one by itself."""

    def __init__(self, channel: grpc.Channel, key: str) -> None:
        self._memories = v1.MemoryServiceStub(channel)
        self._metadata = (("authorization", f"Bearer {key}"),)

    def send(self, request: Any, seconds: float = CALL_SECONDS) -> Any:
        """The answer of the RPC that takes this request."""
        method = getattr(self._memories, type(request).__name__.removesuffix("Request"))
        return method(request, timeout=seconds, metadata=self._metadata)


def open_channel(address: str) -> grpc.Channel:
    """A channel that repeats nothing by itself."""
    return grpc.insecure_channel(
        address,
        options=[
            ("grpc.enable_retries", 0),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 200),
        ],
    )


def code_of(error: grpc.RpcError) -> grpc.StatusCode:
    """The status code of a failed call."""
    assert isinstance(error, grpc.Call)
    return error.code()


@dataclass(frozen=True)
class Known:
    """A memory as its writer was told it is stored."""

    user_id: str
    content: str
    operations: tuple[HistoryKind, ...] = (CREATE,)

    @property
    def dead(self) -> bool:
        return self.operations[-1] is DELETE


@dataclass
class Writer:
    """One caller that adds, updates and deletes memories of its own, one request at a time.

    ``known`` holds what was acknowledged. ``unanswered`` is the request that was under way when the server
    was lost: it may have been done or not, but wholly.
    """

    name: str
    tenant: int
    seed: int
    known: dict[str, Known] = field(default_factory=dict)
    unanswered: Any = None

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def work(self, client: Client, users: list[str], acknowledged: Callable[[], object]) -> None:
        """Write until the server is lost."""
        while True:
            self.unanswered = self._next(users)
            try:
                client.send(self.unanswered)
            except grpc.RpcError as error:
                if code_of(error) is not grpc.StatusCode.UNAVAILABLE:
                    raise
                return
            self.learn()
            acknowledged()

    def repeat(self, client: Client) -> None:
        """Send once more what was not answered."""
        if self.unanswered is not None:
            client.send(self.unanswered)
            self.learn()

    def learn(self) -> None:
        """Remember that the request was acknowledged."""
        self.known |= self.after(self.unanswered)
        self.unanswered = None

    def after(self, request: Any) -> dict[str, Known]:
        """The memories that a request touches, as they are once it is done."""
        if isinstance(request, v1.AddRequest):
            return {one.id: Known(one.user_id, one.content) for one in request.memories}
        memory_id = request.id if isinstance(request, v1.DeleteRequest) else request.memory.id
        before = self.known[memory_id]
        if isinstance(request, v1.DeleteRequest):
            return {memory_id: replace(before, operations=(*before.operations, DELETE))}
        return {memory_id: Known(before.user_id, request.memory.content, (*before.operations, SET))}

    def _next(self, users: list[str]) -> Any:
        living = [memory_id for memory_id, known in self.known.items() if not known.dead]
        request_id = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
        choice = self._random.random()
        if living and choice < 0.2:
            memory = v1.Memory(id=self._random.choice(living), content=self._text())
            mask = FieldMask(paths=["content"])
            return v1.UpdateRequest(request_id=request_id, memory=memory, update_mask=mask)
        if living and choice < 0.3:
            return v1.DeleteRequest(request_id=request_id, id=self._random.choice(living))
        memories = [
            v1.Memory(
                id=str(uuid.UUID(int=self._random.getrandbits(128), version=4)),
                user_id=self._random.choice(users),
                content=self._text(),
            )
            for _ in range(self._random.choice([1, 1, 1, 4]))
        ]
        return v1.AddRequest(request_id=request_id, memories=memories)

    def _text(self) -> str:
        """Words of its own, and one that every text has."""
        return " ".join(["note", *(f"{self._random.getrandbits(32):x}" for _ in range(4))])


def check_stored(evidence: Evidence, writers: list[Writer]) -> None:
    """What was acknowledged is stored exactly so; what was not answered is there wholly or not at all."""
    expected: dict[str, Known] = {}
    for writer in writers:
        expected |= writer.known
        if writer.unanswered is not None:
            expected |= _outcome(evidence, writer)
    living = {memory_id: known.content for memory_id, known in expected.items() if not known.dead}
    assert evidence.contents == living
    assert evidence.dead == {memory_id for memory_id, known in expected.items() if known.dead}
    assert {memory_id: tuple(kinds) for memory_id, kinds in evidence.operations.items()} == {
        memory_id: known.operations for memory_id, known in expected.items()
    }


def _outcome(evidence: Evidence, writer: Writer) -> dict[str, Known]:
    after = writer.after(writer.unanswered)
    done = {
        evidence.operations.get(memory_id) == list(known.operations) for memory_id, known in after.items()
    }
    assert len(done) == 1, f"half done: {writer.unanswered}"
    return after if done == {True} else {}


class Countdown:
    """Wakes who waits once so many writes were acknowledged."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._lock = threading.Lock()
        self.passed = threading.Event()

    def __call__(self) -> None:
        with self._lock:
            self._count -= 1
            if self._count <= 0:
                self.passed.set()
