"""An app on a device that does a bit of everything, by chance, and holds the replica to what it promised.

Texts are marked with who may ever see them; see ``acknowledged.CANARY``. The app keeps that true: what it
shares gets a new text in the same write, and what it makes private gets a secret only in the next one.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from client_sync import Replica
from scrubjay.errors import MemoryDeleted, MemoryNotFound
from scrubjay.memory import JsonValue, Memory, PrivacyLevel, id_bytes
from scrubjay.stamp import unpack_field_stamps
from tests.fault.acknowledged import NEVER_SEEN, Acknowledged, Log, canary

SHARED, PRIVATE, LOCAL = PrivacyLevel.SHARED, PrivacyLevel.PRIVATE, PrivacyLevel.LOCAL_ONLY
FLIPS, MOVES = "flips", "moves"
"""Tags of memories whose privacy, and whose scope, change. The others keep theirs for ever."""
_WORDS = ("tea", "violin", "harbour", "cousin", "budget", "茶叶", "会议", "garden", "letter", "winter")


class DeviceApp:
    """Random writes and reads on one replica. ``number`` marks its texts; ``scopes`` is what it may use."""

    def __init__(self, replica: Replica, log: Log, number: int, chance: random.Random) -> None:
        self._replica = replica
        self._log = log
        self._number = number
        self._chance = chance
        self._scopes = ("work", "work/alpha") if replica.identity.scopes else ("work", "work/alpha", "home")

    def act(self) -> None:
        """One thing that a user does."""
        memory = self._any()
        if memory is None or self._chance.random() < 0.3:
            self.add()
            return
        deeds = [self._edit, self._mark, self._flip, self._move, self._delete, self._look]
        deed = self._chance.choices(deeds, weights=[30, 20, 12, 8, 8, 12])[0]
        with suppress(MemoryDeleted, MemoryNotFound):  # what came from the server meanwhile took it away
            deed(memory)

    def _any(self) -> Memory | None:
        shown = self._replica.list(limit=60)
        return self._chance.choice(shown) if shown else None

    def _text(self, level: PrivacyLevel, scope: str, tags: frozenset[str]) -> str:
        kinds = {PRIVATE: "p", LOCAL: "l"}
        kind = kinds.get(level, "h" if scope == "home" and MOVES not in tags else "s")
        words = self._chance.sample(_WORDS, 3)
        return " ".join([*words, canary(kind, self._number, self._chance.getrandbits(32))])

    # --- writes -----------------------------------------------------------------------------------

    def add(self) -> Memory:
        """Store a memory, which is found at once."""
        level = self._chance.choices([SHARED, PRIVATE, LOCAL], weights=[70, 18, 12])[0]
        scope = self._chance.choice(self._scopes)
        tags = frozenset(tag for tag in (FLIPS, MOVES) if self._chance.random() < 0.3)
        metadata: dict[str, JsonValue] = {}
        if level is not SHARED and FLIPS not in tags:
            metadata = {"note": self._text(level, scope, tags)}
        text = self._text(level, scope, tags)
        memory = self._replica.add(
            text, scope=scope, tags=sorted(tags), metadata=metadata, privacy_level=level
        )
        self._acknowledge("add", memory, text)
        if memory.id not in [hit.memory.id for hit in self._replica.search(text, top_k=3)]:
            with suppress(MemoryDeleted):  # by another process on the same file, which may have edited it too
                assert self._replica.get(memory.id).content != text, f"{memory.id} was added and is not found"
        return memory

    def _edit(self, memory: Memory) -> None:
        text = self._text(memory.privacy_level, memory.scope, memory.tags)
        self._update(memory, {"content": text}, text)

    def _mark(self, memory: Memory) -> None:
        """Edit what different people edit at once: tags, metadata, a flag."""
        name = self._chance.choice(["red", "green", "blue"])
        values: list[Mapping[str, JsonValue]] = [
            {f"tags.{name}": True if name not in memory.tags else None},
            {f"metadata.{name}": self._chance.randint(0, 9)},
            {"pinned": not memory.pinned, "confidence": self._chance.randint(0, 10) / 10},
        ]
        self._update(memory, self._chance.choice(values), "")

    def _flip(self, memory: Memory) -> None:
        mine = memory.owner_client_id == self._replica.identity.client_id
        if not mine or FLIPS not in memory.tags:
            return
        if memory.privacy_level is SHARED:
            self._update(memory, {"privacy_level": int(PRIVATE)}, "")
        else:
            text = self._text(SHARED, memory.scope, memory.tags)
            self._update(memory, {"content": text, "privacy_level": int(SHARED)}, text)

    def _move(self, memory: Memory) -> None:
        if MOVES in memory.tags:
            self._update(memory, {"scope": self._chance.choice(self._scopes)}, "")

    def _update(self, memory: Memory, values: Mapping[str, JsonValue], text: str) -> None:
        updated = self._replica.update(memory.id, values)
        self._acknowledge("set", updated, text, values)

    def _delete(self, memory: Memory) -> None:
        self._replica.delete(memory.id)
        self._log.append(Acknowledged("delete", memory.id, int(memory.privacy_level)))
        try:
            self._replica.get(memory.id)
        except (MemoryDeleted, MemoryNotFound):
            return
        raise AssertionError(f"{memory.id} was deleted and is shown")

    def _acknowledge(
        self, kind: str, memory: Memory, text: str, values: Mapping[str, JsonValue] | None = None
    ) -> None:
        stamps = self._stamps(memory)
        written = stamps if values is None else {name: stamps.get(name) for name in values}
        registers = {
            name: (stamp.time, stamp.replica.hex()) if stamp else NEVER_SEEN
            for name, stamp in written.items()
        }
        self._log.append(Acknowledged(kind, memory.id, int(memory.privacy_level), text, registers))

    def _stamps(self, memory: Memory) -> dict[str, Any]:
        """The stamps of what is shown of the memory; none where it was taken away meanwhile."""
        with self._replica.file.reading() as sql:
            row = sql.execute("SELECT field_stamps FROM rows WHERE id = ?", (id_bytes(memory.id),)).fetchone()
        return dict(unpack_field_stamps(row[0])) if row else {}

    # --- reads ------------------------------------------------------------------------------------

    def _look(self, memory: Memory) -> None:
        self._replica.search(self._chance.choice(_WORDS), top_k=5)
        self._replica.touch(memory.id)
        self._replica.history(memory.id)
