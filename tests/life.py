"""A stream to which anything may happen, by backends and devices."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.struct_pb2 import Struct

from scrubjay import v1
from scrubjay.errors import ScrubjayError
from scrubjay.memory import ClientId, JsonValue, Memory, MemoryId, Micros, PrivacyLevel, Viewer, new_memory_id
from scrubjay.merge import create
from scrubjay.stamp import ReplicaId, Stamp
from server.ingest.author import Author
from server.ingest.batch import Sender
from server.ingest.offers import Offered
from server.providers.embedder import TextKind
from server.store.vector_codec import encode_vector
from tests.devices import ALICE, KEY, Device, Server

SCOPES = ("general", "work", "work/alpha", "home")
TEXTS = ("tea", "coffee with milk", "绿茶", "the office is in Porto", "Tea")
CLIENTS = ("web", "cli", "phone", "laptop")


@dataclass
class Life:
    """What happens is chosen by the dice; with ``secrets`` also who may see a memory."""

    server: Server
    dice: random.Random
    secrets: bool = True
    devices: list[Device] = field(init=False)
    ids: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        phone, laptop = self.server.device("phone"), self.server.device("laptop", ("work",))
        self.devices = [phone, laptop]

    def step(self) -> None:
        """Something happens, or is refused."""
        act = self.dice.choice(ACTS)
        with suppress(ScrubjayError):  # refused: nothing has happened
            act(self)

    def wait(self) -> None:
        """Time passes, a millisecond or more."""
        self.server.wait(self.dice.choice((0.001, 0.5, 3600)))

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
            superseded_by=self.dice.choice(("", "", self.any_id())),
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
        more = ("superseded_by", "expires_at", "tags.a", "metadata.a.b")
        secret = ("privacy_level",) if self.secrets else ()
        return self.dice.sample(fields + more + secret, self.dice.randrange(1, 4))

    def values(self) -> Mapping[str, JsonValue]:
        more: list[tuple[str, JsonValue]] = [("scope", "home"), ("pinned", True)]
        if self.secrets:
            more += [("privacy_level", 2), ("privacy_level", 3)]
        chosen = dict(self.dice.sample(more, self.dice.randrange(2)))
        return {"content": self.dice.choice(TEXTS), "tags.a": self.dice.random() < 0.5, **chosen}

    # --- what happens -----------------------------------------------------------------------------

    def add(self) -> None:
        memories = [self.memory() for _ in range(self.dice.randrange(1, 4))]
        for memory in memories:
            memory.id = self.any_id() if self.dice.random() < 0.2 else self.new_id()
            self.ids.append(memory.id)
        client = self.server.service(self.dice.choice(CLIENTS))
        self.server.memories.add(v1.AddRequest(memories=memories, dedup=v1.DEDUP_OFF), client)

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
        vector = encode_vector(self.server.embedder.embed([memory.content], TextKind.DOCUMENT)[0])
        offered = [Offered(memory_id, state, vector)]
        self.server.shard.reoffer(KEY, self.server.embedder.space.id, sender, offered, self.server.now)


ACTS: tuple[Callable[[Life], None], ...] = (
    *(Life.add, Life.update, Life.update, Life.update, Life.update, Life.delete),
    *(Life.delete_all, Life.sync, Life.sync, Life.sync, Life.offer),
)
