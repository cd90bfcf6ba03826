"""The same said twice: whether a memory that is stored says what a new one would say.

It stands for the new one only where both are alike in all that matters: scope, agent and run, who may see it
(and whose it is, where it is private), the days when it is true. What has expired or is superseded stands for
nothing: said again it is true again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from scrubjay.memory import (
    DEFAULT_CATEGORY,
    ClientId,
    Memory,
    MemoryId,
    Micros,
    PrivacyLevel,
    Viewer,
    canonical_json,
    visible,
)
from server.ingest.wording import Likeness, Wording


@dataclass(frozen=True, slots=True)
class Repeat:
    """What is said again: the memory ``of``, and how alike the two are."""

    of: MemoryId
    likeness: Likeness


def repeat_of(new: Memory, known: Iterable[Memory], client_id: ClientId, now: Micros) -> Repeat | None:
    """Which of the known memories the client says again with ``new``, if any: the one that is most alike, of
    equal ones the oldest."""
    standing = [memory for memory in known if stands_for(memory, new, client_id, now)]
    if not standing:  # most often: a text is taken apart only to be compared
        return None
    wording = Wording.of(new.content)
    found = [(Wording.of(memory.content).likeness(wording), memory) for memory in standing]
    alike = [(likeness, memory) for likeness, memory in found if likeness is not Likeness.OTHER]
    if not alike:
        return None
    likeness, memory = min(alike, key=lambda pair: (-pair[0], pair[1].created_at, pair[1].id))
    return Repeat(memory.id, likeness)


def stands_for(memory: Memory, new: Memory, client_id: ClientId, now: Micros) -> bool:
    """Whether the client may be answered with ``memory`` instead of ``new``, if it says the same.

    A category, a speaker's role, and a key of metadata, that both name has to be the same; FACT names none.
    """
    return (
        memory.superseded_by is None
        and visible(memory, Viewer(client_id), now)
        and _place(memory) == _place(new)
        and _audience(memory) == _audience(new)
        and new.category in (memory.category, DEFAULT_CATEGORY)
        and (memory.valid_from, memory.valid_to) == (new.valid_from, new.valid_to)
        and _is_one(memory.source.role, new.source.role)
        and memory.expires_at in (None, new.expires_at)
        and memory.pinned >= new.pinned
        and not any(
            canonical_json(memory.metadata[key]) != canonical_json(value)  # in Python True equals 1
            for key, value in new.metadata.items()
            if key in memory.metadata
        )
    )


def _is_one(name: str, other: str) -> bool:
    return not name or not other or name == other


def _place(memory: Memory) -> tuple[str, str, str, str]:
    return memory.user_id, memory.agent_id, memory.run_id, memory.scope


def _audience(memory: Memory) -> tuple[PrivacyLevel, ClientId]:
    shared = memory.privacy_level is PrivacyLevel.SHARED
    return memory.privacy_level, ClientId("") if shared else memory.owner_client_id
