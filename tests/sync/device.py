"""The devices of a world: whose they are, and what is known of each."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from zlib import crc32

from client_sync import Replica
from scrubjay.memory import ClientId, MemoryId, Subject, Viewer
from scrubjay.stamp import Stamp
from tenants.tenant import Caller, Incarnation, Role
from tests.sync.crash import Disk
from tests.sync.oracle import Who

ACME = Incarnation("11111111-1111-4111-8111-111111111111")
GLOBEX = Incarnation("22222222-2222-4222-8222-222222222222")
ALICE = Subject("user", "alice")
BOB = Subject("user", "bob")
WEB = ClientId("web")


@dataclass(frozen=True, slots=True)
class Place:
    """Whose device it is."""

    incarnation: Incarnation
    subject: Subject
    client_id: ClientId
    scopes: tuple[str, ...] = ()

    @property
    def who(self) -> Who:
        """As a viewer."""
        return Who(self.incarnation, self.subject.key, Viewer(self.client_id, self.scopes))


PLACES = {
    "phone": Place(ACME, ALICE, ClientId("phone")),
    "tablet": Place(ACME, ALICE, ClientId("phone")),
    "laptop": Place(ACME, ALICE, ClientId("laptop")),
    "badge": Place(ACME, ALICE, ClientId("badge"), ("work",)),
    "bob": Place(ACME, BOB, ClientId("laptop")),
    "globex": Place(GLOBEX, ALICE, ClientId("phone")),
}
"""The devices: two of one client, another of the same user, one that sees some scopes, and strangers."""


@dataclass(slots=True)
class Edit:
    """A write that a device's app was told is saved: what it set, under which stamps."""

    memory_id: MemoryId
    registers: dict[str, Stamp]
    fast: bool
    """Whether the device's clock ran ahead: stamps that are given anew may be earlier ones."""
    deletes: bool = False


@dataclass(slots=True)
class Device:
    """One device: its file, its clock, and what its app did."""

    name: str
    place: Place
    caller: Caller
    disk: Disk
    entropy: random.Random
    clock_offset: int = 0
    replica: Replica | None = None
    saved: tuple[dict[str, bytes], list[Edit], dict[MemoryId, int]] | None = None
    edits: list[Edit] = field(default_factory=list)
    touches: dict[MemoryId, int] = field(default_factory=dict)
    made: set[bytes] = field(default_factory=set)
    """Canaries of texts that were written here."""
    named: set[MemoryId] = field(default_factory=set)
    """Ids that its app gave."""
    may_fork: bool = False
    uncounted: bool = False
    """Whether its access counts may be lost or doubled: its file went back, or was copied."""
    wiped: bool = False
    told_to_load: bool = False
    """Whether it was told to load everything anew and has not come to an end since."""
    last_place: tuple[int, int] = (0, 0)

    @property
    def sends_at_once(self) -> bool:
        """Whether somebody in its program sends every write, so that it is numbered when it is made."""
        return crc32(self.name.encode()) % 2 == 0

    @property
    def who(self) -> Who:
        """As a viewer."""
        return self.place.who

    @property
    def revoked(self) -> bool:
        """Whether it is not wanted any more."""
        return self.caller.role is Role.REVOKED_DEVICE
