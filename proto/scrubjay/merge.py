"""The merge law: how edits of one memory, made in any order in any places, become one memory.

A memory is a set of *registers*. Each holds a value and the stamp of the edit that wrote it:

=====================================================  ==========================================
register                                               join of two values
=====================================================  ==========================================
content, category, scope, confidence, valid_from,      the higher stamp; on equal stamps the
valid_to, expires_at, pinned, source, superseded_by    larger bytes of canonical JSON
tags.<tag>, metadata.<key>: one register each          the same, so edits of different tags or
                                                       keys never collide
privacy_level: written by the owner client alone       the same, but on equal stamps the more private
                                                       level wins
access counts: one total per replica                   the maximum per replica, shown as their sum;
                                                       a lane of their own, see ``join_counts``
id, user_id, agent_id, run_id, owner, created_at       fixed by the first accepted create
deleted                                                true absorbs everything
=====================================================  ==========================================

A stamp orders by time, then by replica, so stamps are equal only where it is the same edit; the last
tie-break exists for damaged or hostile input, so that even then every side ends with the same bytes.

An edit carries a *base stamp*: the stamp of the value its author was looking at. Where it is the stamp
that stands, the edit is a clean overwrite. Where it is not, the two edits were concurrent: the stamps
decide, and the loser is kept in history. A stamp is always later than its base (a clock advances past
every stamp it has seen), so a value never stands while an accepted edit has it as base.

A value of None is an absent register: a tag that is not there, a key that was removed, a time that
is not set. It keeps its stamp, so a removal also wins against an earlier write.

The law is a function of values. It does not know whether a server or a device runs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from operator import attrgetter

from scrubjay.memory import (
    ClientId,
    JsonValue,
    Memory,
    MemoryId,
    Micros,
    PrivacyLevel,
    Source,
    canonical_json,
    normal_json,
    normal_metadata,
)
from scrubjay.stamp import ReplicaId, Stamp

PLAIN_FIELDS = (
    "content",
    "category",
    "scope",
    "confidence",
    "valid_from",
    "valid_to",
    "expires_at",
    "pinned",
    "source",
    "privacy_level",
    "superseded_by",
)
"""The registers that are one field each."""

_PLAIN = frozenset(PLAIN_FIELDS)

KEYED_FIELDS = ("tags", "metadata")
"""The fields that are one register per key: ``tags.<tag>``, ``metadata.<key>``."""


class Outcome(IntEnum):
    """How a write ended; the numbers are the contract's."""

    APPLIED = 1
    APPLIED_CONCURRENT = 2
    SUPERSEDED = 3
    GONE = 4


@dataclass(frozen=True, slots=True)
class Write:
    """One edit of one register. ``base`` is None where its author saw no value ever written.

    ``value`` is one that its field may have; ValueError for an unknown register and for a base that is
    not earlier than the stamp.
    """

    field: str
    value: JsonValue
    stamp: Stamp
    base: Stamp | None

    def __post_init__(self) -> None:
        if not is_register(self.field):
            raise ValueError(f"{self.field!r} is no register")
        if self.base is not None and self.base >= self.stamp:
            raise ValueError(f"{self.field}: the stamp {self.stamp} is not later than its base {self.base}")


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What became of a write: the value before it, and the stamp that stands after it."""

    write: Write
    outcome: Outcome
    old_value: JsonValue
    standing: Stamp


@dataclass(frozen=True, slots=True)
class State:
    """A memory and the stamp of every register that was ever written."""

    memory: Memory
    stamps: Mapping[str, Stamp]

    def latest(self) -> Stamp | None:
        """The highest stamp in it; a clock that edits this state advances past it."""
        return max(self.stamps.values(), default=None)


def create(memory: Memory, stamp: Stamp) -> State:
    """The state of a memory written at once: every register that has a value gets ``stamp``."""
    if memory.metadata or not isinstance(memory.confidence, float):
        metadata, confidence = normal_metadata(memory.metadata), float(memory.confidence)
        memory = replace(memory, metadata=metadata, confidence=confidence)
    return State(memory, {field: stamp for field, _ in registers(memory)})


def is_register(field: str) -> bool:
    """Whether ``field`` names a register; a key may hold dots."""
    kind, _, key = field.partition(".")
    return field in _PLAIN or (kind in KEYED_FIELDS and key != "")


def registers(memory: Memory) -> list[tuple[str, JsonValue]]:
    """Every register that has a value, with the value as JSON."""
    plain: list[JsonValue] = list(_plain_fields(memory))
    plain[_SOURCE] = source_json(memory.source)
    plain[_PRIVACY_LEVEL] = int(memory.privacy_level)
    found: list[tuple[str, JsonValue]] = [
        named for named in zip(PLAIN_FIELDS, plain, strict=True) if named[1] is not None
    ]
    if memory.tags:
        found += [(f"tags.{tag}", True) for tag in sorted(memory.tags)]
    if memory.metadata:
        found += [(f"metadata.{key}", value) for key, value in memory.metadata.items() if value is not None]
    return found


_plain_fields = attrgetter(*PLAIN_FIELDS)
_SOURCE, _PRIVACY_LEVEL = map(PLAIN_FIELDS.index, ("source", "privacy_level"))


def get(memory: Memory, field: str) -> JsonValue:
    """The value of a register as JSON; None where it is absent. KeyError for an unknown register."""
    if not is_register(field):
        raise KeyError(field)
    kind, _, key = field.partition(".")
    if kind == "tags":
        return True if key in memory.tags else None
    if kind == "metadata":
        return memory.metadata.get(key)
    return _get_plain(memory, field)


def _get_plain(memory: Memory, field: str) -> JsonValue:
    if field == "source":
        return source_json(memory.source)
    value: JsonValue = getattr(memory, field)
    return int(value) if isinstance(value, PrivacyLevel) else value


def source_json(source: Source) -> JsonValue:
    """The value of the register ``source``; None where nothing is known."""
    values: dict[str, JsonValue] = {}
    if source.client_id:
        values["client_id"] = source.client_id
    if source.conversation_id:
        values["conversation_id"] = source.conversation_id
    if source.message_ids:
        values["message_ids"] = list(source.message_ids)
    if source.role:
        values["role"] = source.role
    if source.trust_class:
        values["trust_class"] = source.trust_class
    return values or None


def apply(state: State, writes: Iterable[Write], author: ClientId) -> tuple[State, tuple[WriteResult, ...]]:
    """Join ``writes`` into ``state``; returns the new state and a result for each write, in order.

    A write of privacy_level by another client than the owner is SUPERSEDED, whatever its stamp.
    """
    changed: dict[str, JsonValue] = {}
    stamps = dict(state.stamps)
    results = []
    for write in writes:
        value = _normal(write.field, write.value)
        old_value = changed[write.field] if write.field in changed else get(state.memory, write.field)
        standing = stamps.get(write.field)
        allowed = write.field != "privacy_level" or author == state.memory.owner_client_id
        if allowed and _wins(write.field, (value, write.stamp), (old_value, standing)):
            concurrent = write.base != standing and standing != write.stamp
            outcome = Outcome.APPLIED_CONCURRENT if concurrent else Outcome.APPLIED
            changed[write.field], stamps[write.field] = value, write.stamp
        else:
            outcome = Outcome.SUPERSEDED
        results.append(WriteResult(write, outcome, old_value, stamps.get(write.field, write.stamp)))
    return State(put(state.memory, changed), stamps), tuple(results)


def join(one: State, other: State) -> State:
    """The join of two states of one memory: commutative, associative, idempotent."""
    changed: dict[str, JsonValue] = {}
    stamps = dict(one.stamps)
    for field, stamp in other.stamps.items():
        theirs = get(other.memory, field)
        if _wins(field, (theirs, stamp), (get(one.memory, field), stamps.get(field))):
            changed[field], stamps[field] = theirs, stamp
    return State(put(one.memory, changed), stamps)


def join_counts(one: Mapping[ReplicaId, int], other: Mapping[ReplicaId, int]) -> dict[ReplicaId, int]:
    """The join of two counters, each a total per replica: the maximum of each. Their sum is shown."""
    return {replica: max(one.get(replica, 0), other.get(replica, 0)) for replica in {*one, *other}}


def _wins(field: str, new: tuple[JsonValue, Stamp], old: tuple[JsonValue, Stamp | None]) -> bool:
    """Whether ``new`` stands when the two meet; an equal write stands, since it changes nothing."""
    (value, stamp), (old_value, old_stamp) = new, old
    if old_stamp is None or stamp != old_stamp:
        return old_stamp is None or stamp > old_stamp
    new_json, old_json = canonical_json(value), canonical_json(old_value)  # text sorts as its UTF-8 does
    return new_json <= old_json if field == "privacy_level" else new_json >= old_json


def _normal(field: str, value: JsonValue) -> JsonValue:
    """The value as ``get`` gives it back once it stands: a cleared field has its default."""
    kind, _, _ = field.partition(".")
    if kind == "tags":
        return True if value else None
    if kind == "metadata":
        return None if value is None else normal_json(value)
    plain = _plain_value(field, value)
    if isinstance(plain, Source):
        return source_json(plain)
    return int(plain) if isinstance(plain, PrivacyLevel) else plain  # type: ignore[return-value]  # a plain value


def put(memory: Memory, values: Mapping[str, JsonValue]) -> Memory:
    """The memory with these registers set; a plain field set to None gets its default."""
    if not values:
        return memory
    plain: dict[str, object] = {}
    tags, metadata = set(memory.tags), dict(memory.metadata)
    for field, value in values.items():
        kind, _, key = field.partition(".")
        if kind == "tags":
            (tags.add if value else tags.discard)(key)
        elif kind == "metadata":
            metadata.pop(key, None)
            if value is not None:
                metadata[key] = normal_json(value)
        else:
            plain[field] = _plain_value(field, value)
    return replace(memory, tags=frozenset(tags), metadata=metadata, **plain)  # type: ignore[arg-type]  # by name


def _plain_value(field: str, value: JsonValue) -> object:
    if field == "source":
        fields = dict(value) if isinstance(value, Mapping) else {}
        return Source(**fields | {"message_ids": tuple(fields.get("message_ids") or ())})  # type: ignore[arg-type]  # by name
    if value is None:
        return _DEFAULTS[field]
    if field == "privacy_level":
        return PrivacyLevel(value)  # type: ignore[arg-type]  # an integer, by its field
    return float(value) if field == "confidence" else value  # type: ignore[arg-type]  # a number, by its field


_BLANK = Memory(id=MemoryId(""), content="", created_at=Micros(0))
_DEFAULTS: dict[str, object] = {field: getattr(_BLANK, field) for field in PLAIN_FIELDS}
