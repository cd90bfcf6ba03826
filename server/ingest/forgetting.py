"""Forgetting: which memories go, and why.

A memory goes where it has expired, or where a rule of its tenant's policy lets it: it lies in the rule's
scope, is of its category, was not used for so many days, and is not surer than the rule says. It is used
whenever it is written and whenever an access to it is counted; one whose event lies ahead is used until
then. A pinned memory stays, even where it has expired.

Whose memory it is does not matter to the rules. What a caller is told of it does: see ``find``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby

from scrubjay.memory import DAY_MICROS, ClientId, Memory, MemoryId, Micros, expired, permitted, within
from scrubjay.wire import commit_micros
from server.ingest.author import Author
from server.ingest.edits import bury
from server.store.memory_store import Reading, StoredMemory, StreamKey, Writing
from server.store.use_reading import Place, Unused
from tenants.forget_policy import ForgetPolicy, ForgetRule
from tenants.tenant import Incarnation

CHUNK = 250
"""Memories that are looked at, and go, at a time: their stream is locked for some 100 ms."""
SWEEP_ROLE = "SWEEP"
"""The role that History names for what no caller deleted, but the daily sweep."""
_ANY_CONFIDENCE = 2.0


@dataclass(frozen=True, slots=True)
class Sweep:
    """What a sweep looks at: a tenant's memories, or those of one stream of it, as of ``now``."""

    incarnation: Incarnation
    stream: str | None
    policy: ForgetPolicy
    now: Micros


@dataclass(frozen=True, slots=True)
class Forgotten:
    """A memory that goes, or went. ``rule`` is None where it had expired."""

    key: StreamKey
    stored: StoredMemory
    rule: ForgetRule | None
    used_at: Micros

    @property
    def memory(self) -> Memory:
        """Its value."""
        return self.stored.memory

    @property
    def place(self) -> Place:
        """Where the walk through the tenant meets it."""
        return Place(self.key.stream, self.stored.commit_stamp)

    @property
    def why(self) -> str:
        """``expired``, or the rule."""
        return "expired" if self.rule is None else str(self.rule)


def judged(
    key: StreamKey, stored: StoredMemory, accessed_at: Micros | None, sweep: Sweep
) -> Forgotten | None:
    """The memory as it goes; None where it stays."""
    memory = stored.memory
    if memory.pinned:
        return None
    written_at = max(memory.created_at, commit_micros(stored.commit_stamp))
    used_at = written_at if accessed_at is None else max(written_at, accessed_at)
    if expired(memory, sweep.now):
        return Forgotten(key, stored, None, used_at)
    unused = Micros(sweep.now - used_at)
    rule = next((rule for rule in sweep.policy.rules if _lets_go(rule, memory, unused)), None)
    return None if rule is None else Forgotten(key, stored, rule, used_at)


def _lets_go(rule: ForgetRule, memory: Memory, unused: Micros) -> bool:
    return (
        (not rule.scope or within(memory.scope, rule.scope))
        and rule.category in ("", memory.category)
        and unused >= rule.unused_days * DAY_MICROS
        and (rule.below_confidence is None or memory.confidence < rule.below_confidence)
    )


def find(
    reading: Reading, sweep: Sweep, after: Place, size: int, client_id: ClientId | None = None
) -> list[Forgotten]:
    """The next ``size`` memories behind ``after`` that go; fewer, where there are no more.

    With a ``client_id``, those that this client may see: the others have no part in the answer.
    """
    found: list[Forgotten] = []
    while len(found) < size:
        rows = reading.forgettable(sweep.incarnation, sweep.stream, _unused(sweep), after, CHUNK)
        if client_id is None:
            mine = rows
        else:
            mine = [(key, stored) for key, stored in rows if permitted(stored.memory, client_id)]
        for key, group in groupby(mine, key=lambda row: row[0]):
            found += _judge(reading, key, [stored for _, stored in group], sweep)
        if len(rows) < CHUNK:
            break
        after = Place(rows[-1][0].stream, rows[-1][1].commit_stamp)
    return found[:size]


def _unused(sweep: Sweep) -> Unused:
    rules = sweep.policy.rules
    if not rules:
        return Unused(sweep.now, Micros(-1), 0.0, frozenset())
    days = min(rule.unused_days for rule in rules)
    below = max(_ANY_CONFIDENCE if r.below_confidence is None else r.below_confidence for r in rules)
    categories = frozenset(rule.category for rule in rules)
    of_any = None if "" in categories else categories
    return Unused(sweep.now, Micros(sweep.now - days * DAY_MICROS), below, of_any)


def _judge(
    reading: Reading, key: StreamKey, memories: Sequence[StoredMemory], sweep: Sweep
) -> list[Forgotten]:
    accesses = reading.accesses(key, [stored.memory.id for stored in memories])
    verdicts = (
        judged(key, stored, access.last_access_at if access else None, sweep)
        for stored in memories
        for access in (accesses.get(stored.memory.id),)
    )
    return [verdict for verdict in verdicts if verdict is not None]


def forget(
    writing: Writing, key: StreamKey, ids: Collection[MemoryId], sweep: Sweep, author: Author
) -> list[Forgotten]:
    """Delete those of the stream's memories that still go, for ever; History says by which rule."""
    gone = _judge(writing, key, list(writing.get_many(key.incarnation, ids).values()), sweep)
    reasons = {one.memory.id: f"forgotten: {one.why}" for one in gone}
    bury(writing, key, [one.stored for one in gone], author, sweep.now, reasons)
    return gone
