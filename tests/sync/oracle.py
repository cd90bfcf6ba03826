"""What must be: a simple model of every stream, fed by what a server took, in plain dictionaries.

It knows the law in words of its own: a register is the highest stamp that was accepted, a dead id is dead,
and a viewer sees what privacy and scope let it see. It never looks into a database.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from scrubjay.memory import (
    ClientId,
    JsonValue,
    Memory,
    MemoryId,
    PrivacyLevel,
    Viewer,
    canonical_json,
    normal_json,
)
from scrubjay.merge import put, registers
from scrubjay.operation import Operation, OperationKind
from scrubjay.stamp import Stamp
from scrubjay.validity import violations
from tenants.tenant import Incarnation
from tests.sync.server_side import Remembered

Key = tuple[Incarnation, MemoryId]

TOO_FAR_AHEAD_MILLIS = 60_000

# The names of the contract's OperationStatus, without their prefix.
APPLIED = "APPLIED"
CONCURRENT = "APPLIED_CONCURRENT"
SUPERSEDED = "SUPERSEDED"
DUPLICATE = "DUPLICATE"
GONE = "GONE"
NOT_VISIBLE = "NOT_VISIBLE"
PENDING = "PENDING_CREATE"
REJECTED = "REJECTED"
LATER = "RETRY_LATER"
MERGED = "MERGED_INTO"


@dataclass(frozen=True, slots=True)
class Who:
    """A viewer of one stream of one tenant."""

    incarnation: Incarnation
    stream: str
    viewer: Viewer

    def sees(self, memory: Memory) -> bool:
        """Whether the memory exists for it, in words of our own."""
        mine = memory.privacy_level is PrivacyLevel.SHARED or (
            memory.privacy_level is PrivacyLevel.PRIVATE and memory.owner_client_id == self.viewer.client_id
        )
        return mine and self.enters(memory.scope)

    def enters(self, scope: str) -> bool:
        """Whether its scopes let it see memories of this one."""
        return not self.viewer.scopes or any(f"{scope}/".startswith(f"{s}/") for s in self.viewer.scopes)


@dataclass(slots=True)
class Truth:
    """A living memory: what never changes of it, and its registers."""

    stream: str
    fixed: Memory
    registers: dict[str, tuple[Stamp, JsonValue]]
    bases: dict[str, set[Stamp]] = field(default_factory=dict)
    """The bases of accepted writes: none of these may stand."""

    @property
    def memory(self) -> Memory:
        """As a value."""
        return put(self.fixed, {name: value for name, (_, value) in self.registers.items()})

    def join(self, name: str, stamp: Stamp, value: JsonValue) -> bool:
        """Whether the write stands now, which was not there before it."""
        value = normal_json(value)
        standing = self.registers.get(name)
        if standing is not None and (stamp, _rank(name, value)) < (standing[0], _rank(name, standing[1])):
            return False
        self.registers[name] = (stamp, value)
        return True


def _rank(name: str, value: JsonValue) -> tuple[int, str]:
    text = canonical_json(value)
    return (-int(text), "") if name == "privacy_level" and isinstance(value, int) else (0, text)


@dataclass(frozen=True, slots=True)
class Tomb:
    """A dead id, and who may hear of it. Without a scope nobody ever knew more of it than the id."""

    stream: str
    private_to: ClientId
    scope: str

    def heard(self, who: Who) -> bool:
        """Whether the viewer may hear of the death."""
        mine = self.stream == who.stream and self.private_to in ("", who.viewer.client_id)
        return mine and (not self.scope or who.enters(self.scope))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What must have become of an operation."""

    status: str
    registers: Mapping[str, str] = field(default_factory=dict)
    first: Verdict | None = None
    """Of a duplicate: how it ended first."""


@dataclass(slots=True)
class Oracle:
    """All streams, for ``watchers`` who may see some of them."""

    watchers: tuple[Who, ...]
    living: dict[Key, Truth] = field(default_factory=dict)
    dead: dict[Key, Tomb] = field(default_factory=dict)
    waiting: dict[tuple[Incarnation, MemoryId, str], list[tuple[Operation, Who]]] = field(
        default_factory=dict
    )
    answered: dict[tuple[Incarnation, str], Verdict] = field(default_factory=dict)
    taken_back: set[tuple[Who, Key]] = field(default_factory=set)
    shown_ids: dict[Who, set[MemoryId]] = field(default_factory=dict)
    shown_texts: dict[Who, set[str]] = field(default_factory=dict)
    taken_back_ever: set[tuple[Who, Key]] = field(default_factory=set)
    ever_dead: set[Key] = field(default_factory=set)
    merged: dict[Key, Key] = field(default_factory=dict)
    """What stands for what, in the batch that is taken."""
    ever_known: set[Key] = field(default_factory=set)
    _before: dict[Key, Truth | None] = field(default_factory=dict)
    """What the transaction that is under way found."""

    def saved(self) -> Oracle:
        """As it is now, for a restore."""
        return copy.deepcopy(self)

    def restore(self, saved: Oracle) -> None:
        """The server went back to what it was then. What was shown was shown."""
        again = saved.saved()
        self.living, self.dead, self.waiting = again.living, again.dead, again.waiting
        self.answered, self.taken_back = again.answered, again.taken_back

    def collect(self, left: Remembered) -> None:
        """The server forgot what lies behind its horizon; this is left."""
        self.answered = {known: v for known, v in self.answered.items() if known in left.operations}
        for place, operations in self.waiting.items():
            operations[:] = [each for each in operations if (place[0], each[0].operation_id) in left.waiting]
        self.taken_back = {
            (who, key)
            for who, key in self.taken_back
            if any(
                Tomb(stream, ClientId(private_to), scope).heard(who)
                for incarnation, stream, memory_id, private_to, scope in left.retractions
                if (incarnation, memory_id) == key
            )
        }
        for incarnation, memory_id, stream, private_to, scope in left.graves:
            self.dead[Incarnation(incarnation), MemoryId(memory_id)] = Tomb(
                stream, ClientId(private_to), scope
            )

    def visible(self, who: Who) -> dict[MemoryId, Truth]:
        """What the viewer sees of its stream."""
        return {
            memory_id: truth
            for (incarnation, memory_id), truth in self.living.items()
            if (incarnation, truth.stream) == (who.incarnation, who.stream) and who.sees(truth.memory)
        }

    # --- operations of devices --------------------------------------------------------------------

    def take(
        self, who: Who, operations: Sequence[Operation | None], now_millis: int, repeated: int = 0
    ) -> list[Verdict]:
        """What becomes of a batch of operations that reaches the server now; None is one nobody can read.

        The first ``repeated`` are known by their numbers to be answered.
        """
        verdicts: list[Verdict | tuple[Incarnation, str]] = []
        self.merged.clear()
        late = False
        for position, operation in enumerate(operations):
            if position < repeated:
                verdicts.append(Verdict(DUPLICATE, first=self._first(who, operation)))
                continue
            late = late or self._is_late(who, operation, now_millis)
            if late:
                verdicts.append(Verdict(LATER))
            elif operation is None:
                verdicts.append(Verdict(REJECTED))
            else:
                verdicts.append(self._one(who, operation))
        self._settle()
        # One that waited may have got its end from a later one.
        return [each if isinstance(each, Verdict) else self.answered[each] for each in verdicts]

    def _first(self, who: Who, operation: Operation | None) -> Verdict | None:
        """How a repeated operation ended first, or what is told where that is forgotten, if anything."""
        if operation is None:
            return None
        key, name = (who.incarnation, operation.memory_id), (who.incarnation, operation.operation_id)
        if name in self.answered or operation.kind is OperationKind.DELETE:
            return self.answered.get(name)
        truth, tomb = self.living.get(key), self.dead.get(key)
        if tomb is not None and tomb.heard(who):
            return Verdict(GONE)
        hidden = tomb or (truth and not (truth.stream == who.stream and who.sees(truth.memory)))
        return Verdict(NOT_VISIBLE) if hidden and (who, key) in self.taken_back else None

    def _is_late(self, who: Who, operation: Operation | None, now_millis: int) -> bool:
        if operation is None or (who.incarnation, operation.operation_id) in self.answered:
            return False
        return operation.stamp.millis > now_millis + TOO_FAR_AHEAD_MILLIS

    def _one(self, who: Who, operation: Operation) -> Verdict | tuple[Incarnation, str]:
        known = (who.incarnation, operation.operation_id)
        if known in self.answered:
            return Verdict(DUPLICATE, first=self.answered[known])
        self.answered[known] = self._take(who, operation)
        return known

    def _take(self, who: Who, operation: Operation) -> Verdict:
        key = (who.incarnation, operation.memory_id)
        if operation.kind is OperationKind.SET:
            key = self.merged.get(key, key)
        tomb, truth = self.dead.get(key), self.living.get(key)
        if tomb is not None:
            return Verdict(GONE) if tomb.heard(who) else self._hidden(who, key, operation)
        if truth is None:
            return self._unknown(who, key, operation)
        if truth.stream != who.stream or not who.sees(truth.memory):
            return self._hidden(who, key, operation)
        if operation.kind is OperationKind.DELETE:
            self._bury(key, truth)
            return Verdict(APPLIED)
        return self._edit(who, key, operation)

    def _hidden(self, who: Who, key: Key, operation: Operation) -> Verdict:
        if (who, key) in self.taken_back:
            return Verdict(NOT_VISIBLE)
        if operation.kind is OperationKind.CREATE:
            return Verdict(REJECTED)
        return Verdict(APPLIED if operation.kind is OperationKind.DELETE else PENDING)

    def _unknown(self, who: Who, key: Key, operation: Operation) -> Verdict:
        if operation.kind is OperationKind.DELETE:
            self.dead[key] = Tomb(who.stream, who.viewer.client_id, "")
            self.ever_dead.add(key)
            self.waiting.pop((*key, who.stream), None)
            return Verdict(APPLIED)
        if operation.memory is None:
            self.waiting.setdefault((*key, who.stream), []).append((operation, who))
            return Verdict(PENDING)
        if not who.enters(operation.memory.scope):
            return Verdict(REJECTED)
        other = self._said_by(who, key, operation.memory)
        if other is not None:
            self._merge(who, key, other, operation)
            return Verdict(MERGED)
        self._create(key, who.stream, operation.memory, operation.stamp)
        self._end_waits(who, key)
        return Verdict(APPLIED)

    def _said_by(self, who: Who, key: Key, new: Memory) -> Key | None:
        """The memory that says already what a new one says, for the same eyes."""
        if self.waiting.get((*key, who.stream)) or new.superseded_by is not None:
            return None
        new = replace(new, owner_client_id=who.viewer.client_id)
        alike = [
            (truth.fixed.created_at, other)
            for other, truth in self.living.items()
            if (other[0], truth.stream) == (key[0], who.stream)
            and who.sees(truth.memory)
            and _says(truth.memory, new)
        ]
        return min(alike)[1] if alike else None

    def _merge(self, who: Who, key: Key, other: Key, operation: Operation) -> None:
        """One stands for both: it gets what it lacks, and the other's id is dead to its maker."""
        assert operation.memory is not None
        truth = self.living[other]
        edited, had = copy.deepcopy(truth), {name for name, _ in registers(truth.memory)}
        for name, value in registers(operation.memory):
            if name.startswith(("tags.", "metadata.")) and name not in had:
                edited.join(name, operation.stamp, value)
        if not violations(edited.memory):
            self._moved(other, truth, edited)
        self.dead[key] = Tomb(who.stream, who.viewer.client_id, "")
        self.ever_dead.add(key)
        self.merged[key] = other

    def _end_waits(self, who: Who, key: Key) -> None:
        for waiting, author in self.waiting.pop((*key, who.stream), []):
            sees = author.sees(self.living[key].memory)
            end = self._edit(author, key, waiting) if sees else Verdict(NOT_VISIBLE)
            self.answered[who.incarnation, waiting.operation_id] = end

    def _edit(self, who: Who, key: Key, operation: Operation) -> Verdict:
        truth = self.living[key]
        edited = copy.deepcopy(truth)
        outcomes: dict[str, str] = {}
        values: list[tuple[str, JsonValue, Stamp | None]]
        if operation.memory is not None:
            values = [(name, value, None) for name, value in registers(operation.memory)]
        else:
            values = [(write.field, write.value, write.base) for write in operation.writes]
        for name, value, base in values:
            standing = edited.registers.get(name)
            stamp = standing[0] if standing else None
            foreign = name == "privacy_level" and who.viewer.client_id != truth.fixed.owner_client_id
            if foreign or not edited.join(name, operation.stamp, value):
                outcomes[name] = SUPERSEDED
            else:
                outcomes[name] = APPLIED if stamp in (base, operation.stamp) else CONCURRENT
            if base is not None and not foreign:
                edited.bases.setdefault(name, set()).add(base)
        after = edited.memory
        if violations(after) or not who.enters(after.scope):
            return Verdict(REJECTED)
        self._moved(key, truth, edited)
        status = CONCURRENT
        for one in (APPLIED, SUPERSEDED):
            if set(outcomes.values()) <= {one}:
                status = one
        return Verdict(status, {name: outcome for name, outcome in outcomes.items() if outcome != status})

    # --- what everybody does ----------------------------------------------------------------------

    def create(self, key: Key, stream: str, memory: Memory, stamp: Stamp) -> None:
        """A new memory under one stamp."""
        self._create(key, stream, memory, stamp)
        self._settle()

    def _create(self, key: Key, stream: str, memory: Memory, stamp: Stamp) -> None:
        named = {name: (stamp, normal_json(value)) for name, value in registers(memory)}
        self._moved(key, None, Truth(stream, _fixed(memory), named))

    def write(self, key: Key, name: str, stamp: Stamp, value: JsonValue) -> None:
        """A write that the server made itself, over what stands."""
        truth = self.living[key]
        edited = copy.deepcopy(truth)
        if name in edited.registers:
            edited.bases.setdefault(name, set()).add(edited.registers[name][0])
        edited.join(name, stamp, value)
        self._moved(key, truth, edited)
        self._settle()

    def bury(self, key: Key) -> None:
        """A delete that the server made itself."""
        if key in self.living:
            self._bury(key, self.living[key])
            self._settle()

    def reoffer(self, who: Who, memory: Memory, stamps: Mapping[str, Stamp]) -> bool:
        """A memory that a device held before the server was restored; whether it was heard.

        What the viewer does not see now its word can't change: it could show it to itself.
        """
        key = (who.incarnation, memory.id)
        truth = self.living.get(key)
        hidden = truth is not None and (truth.stream != who.stream or not who.sees(truth.memory))
        if hidden or key in self.dead or not who.sees(memory):
            return False
        edited = copy.deepcopy(truth) if truth is not None else Truth(who.stream, _fixed(memory), {})
        values = dict(registers(memory))
        for name, stamp in stamps.items():
            edited.join(name, stamp, values.get(name))
        if violations(edited.memory) or not who.sees(edited.memory):
            return False
        self._moved(key, truth, edited)
        self._end_waits(who, key)
        self._settle()
        return True

    def reoffer_dead(self, who: Who, memory_id: MemoryId) -> bool:
        """A dead id that a device held before the server was restored; whether it was heard.

        What the viewer does not see now its word can't bury: it could name what it never saw.
        """
        key = (who.incarnation, memory_id)
        if (truth := self.living.get(key)) is not None:
            if truth.stream != who.stream or not who.sees(truth.memory):
                return False
            self._bury(key, truth)
            self._settle()
        elif key not in self.dead:
            self.dead[key] = Tomb(who.stream, who.viewer.client_id, "")
            self.ever_dead.add(key)
        return True

    def _bury(self, key: Key, truth: Truth) -> None:
        self._before.setdefault(key, truth)
        memory = truth.memory
        private = memory.privacy_level is PrivacyLevel.PRIVATE
        self.dead[key] = Tomb(truth.stream, memory.owner_client_id if private else ClientId(""), memory.scope)
        self.ever_dead.add(key)
        self.waiting.pop((*key, truth.stream), None)
        del self.living[key]

    def _moved(self, key: Key, before: Truth | None, after: Truth) -> None:
        self._before.setdefault(key, before)
        self.living[key] = after
        self.ever_known.add(key)
        memory = after.memory
        for who in self.watchers:  # the id even where it dies in the same transaction: its death is told
            if _in_stream(who, key, after) and who.sees(memory):
                self.shown_ids.setdefault(who, set()).add(key[1])

    def _settle(self) -> None:
        """A transaction ended: who sees a memory for the first time, and from whom is it taken back?"""
        for key, before in self._before.items():
            truth = self.living.get(key)
            now = truth.memory if truth is not None else None
            for who in self.watchers:
                saw = before is not None and _in_stream(who, key, before) and who.sees(before.memory)
                if now is not None and truth is not None and _in_stream(who, key, truth) and who.sees(now):
                    self.shown_texts.setdefault(who, set()).add(now.content)
                elif saw and (now is not None or not self.dead[key].heard(who)):
                    self.taken_back.add((who, key))
                    self.taken_back_ever.add((who, key))
        self._before.clear()


def _says(memory: Memory, new: Memory) -> bool:
    """Whether one memory stands for another, of a world in which who says the same uses the same words."""
    same = (
        "content",
        "scope",
        "agent_id",
        "run_id",
        "user_id",
        "privacy_level",
        "valid_from",
        "valid_to",
    )
    private = new.privacy_level is PrivacyLevel.PRIVATE
    return (
        memory.superseded_by is None
        and all(getattr(memory, name) == getattr(new, name) for name in same)
        and (not private or memory.owner_client_id == new.owner_client_id)
        and new.category in ("FACT", memory.category)
        and memory.expires_at in (None, new.expires_at)
        and (memory.pinned or not new.pinned)
        and ("" in (memory.source.role, new.source.role) or memory.source.role == new.source.role)
        and all(
            canonical_json(memory.metadata.get(name, value)) == canonical_json(value)
            for name, value in new.metadata.items()
        )
    )


def _in_stream(who: Who, key: Key, truth: Truth) -> bool:
    return (who.incarnation, who.stream) == (key[0], truth.stream)


def _fixed(memory: Memory) -> Memory:
    """The memory without any register's value."""
    return replace(
        Memory(id=memory.id, content="", created_at=memory.created_at),
        user_id=memory.user_id,
        agent_id=memory.agent_id,
        run_id=memory.run_id,
        owner_client_id=memory.owner_client_id,
    )
