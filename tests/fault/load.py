"""Writers that remember what they were told, so that it can be held against what is stored."""

from __future__ import annotations

import itertools
import random
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import grpc
from google.protobuf.field_mask_pb2 import FieldMask

from fault.evidence import Evidence
from scrubjay import v1
from scrubjay.operation import OperationKind

GoOn = Callable[[grpc.RpcError | None], bool]
"""Told of each answer, or error, whether to write on."""

CREATE, SET, DELETE = OperationKind
CALL_SECONDS = 30
"""A call's deadline, where a test has no other in mind."""


_FAULTS = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


class Client:
    """Sends requests, with a key where the channel has none, and repeats none by itself."""

    def __init__(self, channel: grpc.Channel, key: str = "") -> None:
        self._memories = v1.MemoryServiceStub(channel)
        self._metadata = (("authorization", f"Bearer {key}"),) if key else ()

    @classmethod
    @contextmanager
    def opened(cls, address: str, key: str) -> Iterator[Client]:
        """A client with a channel of its own."""
        with open_channel(address) as channel:
            yield cls(channel, key)

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
    operations: tuple[OperationKind, ...] = (CREATE,)

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

    def work(self, client: Client, users: list[str], go_on: GoOn, seconds: float = CALL_SECONDS) -> None:
        """Write while ``go_on`` says so; what failed is sent again, as it is, before anything new."""
        going = True
        while going:
            self.unanswered = self.unanswered or self._next(users)
            try:
                client.send(self.unanswered, seconds)
            except grpc.RpcError as error:
                going = go_on(error)
            else:
                self.learn()
                going = go_on(None)

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
        """Words of its own, one that every text has, and an address to link to."""
        words = [f"{self._random.getrandbits(32):x}" for _ in range(4)]
        return " ".join(["note", *words, f"{words[0]}@example.org"])


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


class UntilLost:
    """Writes until the server is lost, and tells when so many were acknowledged."""

    def __init__(self, count: int, *codes: grpc.StatusCode) -> None:
        self._codes = codes or (grpc.StatusCode.UNAVAILABLE,)
        self._left = itertools.count(count - 1, -1)
        self.passed = threading.Event()

    def __call__(self, error: grpc.RpcError | None) -> bool:
        if error is None:
            if next(self._left) <= 0:
                self.passed.set()
            return True
        if code_of(error) not in self._codes:
            raise error
        return False


class UntilEnough:
    """Writes through faults until ``end`` is called; counts answers, keeps errors."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._ended = False
        self._wrong: list[grpc.RpcError] = []
        self.acknowledged = 0
        self.errors: list[grpc.RpcError] = []

    def __call__(self, error: grpc.RpcError | None) -> bool:
        with self._changed:
            if error is None:
                self.acknowledged += 1
            elif code_of(error) in _FAULTS:
                self.errors.append(error)
            else:
                self._wrong.append(error)
            self._changed.notify_all()
            return not self._wrong and (error is not None or not self._ended)

    def wait(self, acknowledged: int = 0, errors: int = 0, seconds: float = 30) -> None:
        """Until so many more of each were seen. AssertionError where a call failed for another reason."""
        with self._changed:
            goal = (self.acknowledged + acknowledged, len(self.errors) + errors)
            self._changed.wait_for(lambda: self._wrong or self._reached(*goal), seconds)
            assert self._wrong == []
            assert self._reached(*goal), f"{self.acknowledged} writes, {len(self.errors)} errors, not {goal}"

    def _reached(self, acknowledged: int, errors: int) -> bool:
        return self.acknowledged >= acknowledged and len(self.errors) >= errors

    def end(self) -> None:
        """Let each writer end with an answer."""
        self._ended = True


@contextmanager
def working(
    clients: list[Client], writers: list[Writer], go_on: GoOn, seconds: float = CALL_SECONDS
) -> Iterator[None]:
    """Writers at work on two users each, one of their own and one of all; when the block ends, they have."""
    failed = threading.Event()

    def until_failed(error: grpc.RpcError | None) -> bool:
        return not failed.is_set() and go_on(error)

    with ThreadPoolExecutor(len(writers)) as pool:
        work = [
            pool.submit(writer.work, clients[writer.tenant], [writer.name, "all"], until_failed, seconds)
            for writer in writers
        ]
        try:
            yield
        except BaseException:
            failed.set()
            raise
        for done in work:
            done.result()
