"""Shown: the memories that a model is shown, under short ids, and what it may name by them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from scrubjay.memory import Memory, MemoryId, utc_day
from server.ingest.chat.reading import numbers_of

MAX_CHARACTERS = 2_000
"""Of each memory that is shown."""


class Shown:
    """Memories by 0, 1, 2 …; ``invented`` counts names that stand for none of them."""

    def __init__(self, memories: Iterable[Memory]) -> None:
        self._memories = list({memory.id: memory for memory in memories}.values())
        self._numbers = {memory.id: n for n, memory in enumerate(self._memories)}
        self.invented = 0

    def as_json(self) -> list[dict[str, object]]:
        """What the model sees of them."""
        return [
            {
                "id": n,
                "text": memory.content[:MAX_CHARACTERS],
                "day": _day(memory),
            }
            for n, memory in enumerate(self._memories)
        ]

    def numbers(self, memories: Iterable[Memory]) -> list[int]:
        """The short ids of some of them."""
        return [self._numbers[memory.id] for memory in memories]

    def named(self, item: Mapping[str, object], *keys: str) -> Sequence[Memory]:
        """The memories that an item names under any of the keys, each once."""
        found: dict[MemoryId, Memory] = {}
        for n in numbers_of(item, *keys):
            if n is None or not 0 <= n < len(self._memories):
                self.invented += 1
            else:
                found[self._memories[n].id] = self._memories[n]
        return list(found.values())


def _day(memory: Memory) -> str:
    return utc_day(memory.created_at if memory.valid_from is None else memory.valid_from).isoformat()
