"""The past is what was: whatever happens to a stream, every moment of it can be had back."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.struct_pb2 import Struct

from scrubjay import v1
from scrubjay.errors import ScrubjayError
from scrubjay.memory import ClientId, JsonValue, Memory, MemoryId, Micros, PrivacyLevel, Viewer, new_memory_id
from scrubjay.merge import create
from scrubjay.operation import OperationKind
from scrubjay.stamp import CommitStamp, ReplicaId, Stamp
from server.ingest.author import Author
from server.ingest.batch import Sender
from server.ingest.offers import Offered
from server.past import read_past, retold
from server.store.history import HistoryRow
from tests.devices import ACME, ALICE, KEY, Device, Server

STEPS = 80
SCOPES = ("general", "work", "work/alpha", "home")
TEXTS = ("tea", "coffee with milk", "绿茶", "the office is in Porto", "Tea")
CLIENTS = ("web", "cli", "phone", "laptop")


@dataclass
class Moment:
    """What the stream held after an operation: the memories' messages, and what each client was listed."""

    stamp: CommitStamp
    memories: dict[MemoryId, v1.Memory]
    listed: dict[str, set[MemoryId]]
    at: Micros


@dataclass
class Life:
    """A stream to which anything may happen, by backends and devices."""

    server: Server
    dice: random.Random
    devices: list[Device] = field(init=False)
    ids: list[str] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)

    def __post_init__(self) -> None:
        phone, laptop = self.server.device("phone"), self.server.device("laptop", ("work",))
        self.devices = [phone, laptop]

    def live(self, steps: int) -> None:
        """That many things happen, and what is there after each is noted."""
        for _ in range(steps):
            act = self.dice.choice(ACTS)
            with suppress(ScrubjayError):  # refused: nothing has happened
                act(self)
            self.note()
            self.server.wait(self.dice.choice((0.001, 0.5, 3600)))

    def note(self) -> None:
        with self.server.store.read() as reading:
            stamp = reading.newest_operation(KEY)
            rows = reading.page(KEY, None, 10_000)
        listed = {}
        for client_id in CLIENTS:
            answer = self.server.memories.list(
                v1.ListRequest(user_id="alice", page_size=1000), self.server.service(client_id)
            )
            listed[client_id] = {MemoryId(one.id) for one in v1.ListResponse.FromString(answer).memories}
        memories = {row.memory.id: v1.Memory.FromString(row.message) for row in rows}
        self.moments.append(Moment(stamp, memories, listed, self.server.now))

    # --- values -----------------------------------------------------------------------------------

    def any_id(self) -> str:
        return self.dice.choice(self.ids[-12:]) if self.ids else self.new_id()

    def new_id(self) -> str:
        return new_memory_id(self.server.now // 1000, self.dice.randbytes(10))

    def memory(self) -> v1.Memory:
        metadata = Struct()
        metadata.update({key: self.dice.choice((1, 2.5, "x", [True])) for key in self.tags()})
        now = self.server.now
        memory = v1.Memory(
            user_id="alice",
            agent_id=self.dice.choice(("", "coach")),
            content=self.dice.choice(TEXTS),
            scope=self.dice.choice(SCOPES),
            category=self.dice.choice(("FACT", "TASK")),
            tags=self.tags(),
            metadata=metadata,
            source=v1.Source(role=self.dice.choice(("", "user"))),
            privacy_level=self.dice.choice((v1.PRIVACY_LEVEL_SHARED, v1.PRIVACY_LEVEL_PRIVATE)),
            pinned=self.dice.random() < 0.3,
            superseded_by=self.dice.choice(("", self.new_id())),
        )
        if self.dice.random() < 0.5:
            memory.confidence = self.dice.choice((0, 0.5, 1))
        if self.dice.random() < 0.5:
            memory.created_at.FromMicroseconds(now - self.dice.randrange(10**12))
        if self.dice.random() < 0.2:
            memory.expires_at.FromMicroseconds(now + self.dice.randrange(10**10))
        return memory

    def tags(self) -> list[str]:
        return self.dice.sample(("a", "b", "a.b"), self.dice.randrange(3))

    def paths(self) -> list[str]:
        fields = ("content", "scope", "category", "confidence", "pinned", "tags", "metadata", "source")
        more = ("privacy_level", "superseded_by", "expires_at", "tags.a", "metadata.a.b")
        return self.dice.sample(fields + more, self.dice.randrange(1, 4))

    def values(self) -> Mapping[str, JsonValue]:
        more: list[tuple[str, JsonValue]] = [("scope", "home"), ("privacy_level", 2), ("privacy_level", 3)]
        chosen = dict(self.dice.sample(more, self.dice.randrange(2)))
        return {"content": self.dice.choice(TEXTS), "tags.a": self.dice.random() < 0.5, **chosen}

    # --- what happens -----------------------------------------------------------------------------

    def add(self) -> None:
        memories = [self.memory() for _ in range(self.dice.randrange(1, 4))]
        for memory in memories:
            memory.id = self.any_id() if self.dice.random() < 0.2 else self.new_id()
            self.ids.append(memory.id)
        client = self.server.service(self.dice.choice(CLIENTS))
        self.server.memories.add(v1.AddRequest(memories=memories), client)

    def update(self) -> None:
        memory, paths = self.memory(), self.paths()
        memory.id = self.any_id()
        client = self.server.service(self.dice.choice(CLIENTS))
        self.server.memories.update(
            v1.UpdateRequest(memory=memory, update_mask=FieldMask(paths=paths)), client
        )

    def delete(self) -> None:
        client = self.server.service(self.dice.choice(CLIENTS))
        self.server.memories.delete(v1.DeleteRequest(id=self.any_id()), client)

    def delete_all(self) -> None:
        if self.dice.random() < 0.05:
            client = self.server.service(self.dice.choice(CLIENTS))
            self.server.memories.delete_all(v1.DeleteAllRequest(user_id="alice"), client)

    def sync(self) -> None:
        device = self.dice.choice(self.devices)
        operations = []
        for _ in range(self.dice.randrange(1, 5)):
            late = self.dice.choice((0, 0, -60, -7200))
            memory_id = self.any_id() if self.dice.random() < 0.7 else self.new_id()
            self.ids.append(memory_id)
            stamp = device.stamp(late)
            kind = self.dice.randrange(4)
            if kind == 0:
                made = self.memory()
                operations.append(
                    device.create(
                        made.content,
                        memory_id=memory_id,
                        stamp=stamp,
                        scope=made.scope,
                        agent_id=made.agent_id,
                        tags=frozenset(made.tags),
                        privacy_level=PrivacyLevel(made.privacy_level),
                    )
                )
            elif kind == 1 and self.dice.random() < 0.5:
                operations.append(device.delete(memory_id, stamp=stamp))
            else:
                operations.append(device.set(memory_id, self.values(), stamp=stamp))
        device.sync(*operations)

    def offer(self) -> None:
        """A device gives back what it holds, maybe another client's memory."""
        device = self.dice.choice(self.devices)
        memory_id = MemoryId(self.any_id() if self.dice.random() < 0.5 else self.new_id())
        self.ids.append(memory_id)
        owner = ClientId(self.dice.choice(CLIENTS))
        memory = Memory(memory_id, self.dice.choice(TEXTS), Micros(7), user_id="alice", owner_client_id=owner)
        memory = replace(memory, scope=self.dice.choice(SCOPES), tags=frozenset(self.tags()))
        stamp = Stamp((self.server.now // 1000 - self.dice.randrange(10**6)) << 16, ReplicaId(b"o" * 16))
        state = None if self.dice.random() < 0.1 else create(memory, stamp)
        author = Author(device.client_id, device.replica, "key", "DEVICE")
        sender = Sender(Viewer(device.client_id, device.scopes), author, device.replica, ALICE)
        offered = [Offered(memory_id, state)]
        self.server.shard.reoffer(KEY, self.server.embedder.space.id, sender, offered, self.server.now)


ACTS: tuple[Callable[[Life], None], ...] = (
    *(Life.add, Life.update, Life.update, Life.update, Life.update, Life.delete),
    *(Life.delete_all, Life.sync, Life.sync, Life.sync, Life.offer),
)


@pytest.fixture
def server(shard_url: str, tmp_path: Path) -> Iterator[Server]:
    with Server(shard_url, tmp_path) as server:
        yield server


@pytest.mark.parametrize("seed", range(2))
def test_every_moment_is_what_it_was(server: Server, seed: int) -> None:
    life = Life(server, random.Random(seed))
    life.live(STEPS)
    space = server.embedder.space.id
    for moment in life.moments:
        with server.store.read() as reading:
            past = read_past(reading, KEY, moment.stamp, space)
        found = {one.memory_id: v1.Memory.FromString(one.message or b"") for one in past.changes}
        assert found == moment.memories
        for change in past.changes:
            assert change.memory is not None
            assert change.commit_stamp <= moment.stamp
        stamps = [change.commit_stamp for change in past.changes]
        assert stamps == sorted(set(stamps))
        for client_id, ids in moment.listed.items():
            assert ids == _visible(found, client_id, moment.at)
    assert _happened(server) >= {(1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (2, 4)}


def _happened(server: Server) -> set[tuple[int, int]]:
    """Which kinds of operation ended how."""
    with server.store.read() as reading:
        return {(row.kind, row.outcome) for row in reading.history(ACME, KEY, None, 10_000)}


def _visible(memories: dict[MemoryId, v1.Memory], client_id: str, now: Micros) -> set[MemoryId]:
    return {
        i
        for i, one in memories.items()
        if (one.privacy_level == v1.PRIVACY_LEVEL_SHARED or one.owner_client_id == client_id)
        and not (one.HasField("expires_at") and one.expires_at.ToMicroseconds() <= now)
    }


def test_who_may_see_the_past_today_is_who_may_see_the_memory_today(server: Server) -> None:
    life = Life(server, random.Random(100))
    life.live(STEPS)
    deaths: dict[MemoryId, str] = {}
    with server.store.read() as reading:
        rows: list[HistoryRow] = reading.history(ACME, KEY, None, 10_000)
        living = {one.memory.id: one.memory for one in reading.page(KEY, None, 10_000)}
        for row in rows:
            if row.kind is OperationKind.DELETE:
                deaths.setdefault(row.memory_id, row.private_to)
        for moment in life.moments:
            past = read_past(reading, KEY, moment.stamp, server.embedder.space.id)
            for change in past.changes:
                memory = living.get(change.memory_id)
                if memory is None:
                    today = deaths[change.memory_id]
                else:
                    shared = memory.privacy_level is PrivacyLevel.SHARED
                    today = "" if shared else memory.owner_client_id
                assert change.memory is not None
                mine = change.memory.privacy_level is not PrivacyLevel.SHARED
                then = change.memory.owner_client_id if mine else ""
                assert past.confined.get(change.memory_id, then) == today


def test_a_deletion_that_kept_nothing_is_told_from_what_was_written(server: Server) -> None:
    """As versions did that knew of no past."""
    phone = server.device("phone")
    made = phone.create("tea", scope="work", tags=frozenset({"a"}), privacy_level=PrivacyLevel.PRIVATE)
    phone.sync(made)
    server.wait()
    phone.sync(phone.set(made.memory_id, {"content": "green tea", "tags.a": None, "metadata.k": 1}))
    before = server.shard.get(ACME, made.memory_id, ClientId("phone"), server.now, {}).memory
    phone.sync(phone.delete(made.memory_id))
    with server.store.read() as reading:
        rows = reading.history(ACME, made.memory_id, None, 10)
    assert retold(reversed(rows), ALICE) == before
    assert retold([], ALICE) is None
