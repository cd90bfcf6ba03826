"""Stamps: what orders edits, and what orders a feed.

Two clocks, two jobs:

* A ``Stamp`` is a hybrid logical clock reading, made where an edit is made: 48 bits of milliseconds
  since 1970, a 16-bit counter, and the replica that made it. It orders the edits of one field.
* A ``CommitStamp`` is a number given by the server inside the write transaction under the stream's
  head lock: ``max(previous + 1, now)``, in the same 48 + 16 bit layout. It orders the feed.

Clocks and randomness come in as arguments; nothing here reads the time.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NewType

ReplicaId = NewType("ReplicaId", bytes)
"""128 bits that name one clock: a device's database file, or a server's shard."""

CommitStamp = NewType("CommitStamp", int)
"""A position in one stream's feed: milliseconds << 16 | counter."""

COUNTER_BITS = 16
STAMP_BYTES = 24
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_CACHED_INSTANTS = 64
"""All commits of a batch share one."""
_MAX_CACHED_NAMES = 256
"""Lists of fields that were written at once: nearly all memories have one of a few."""
_MAX_TIME = (253_402_300_799_999 << COUNTER_BITS) | 0xFFFF
_LAYOUT = struct.Struct(">Q16s")
_TIME_TEXT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z\.[0-9a-f]{4}")


@dataclass(frozen=True, slots=True, order=True)
class Stamp:
    """A clock reading. Ordered by time, then by replica, so no two replicas ever tie.

    ``time`` is milliseconds since 1970 << 16 | counter, from 1970 to the year 9999.
    """

    time: int
    replica: ReplicaId

    def __post_init__(self) -> None:
        if not 0 <= self.time <= _MAX_TIME or len(self.replica) != 16:
            raise ValueError(f"not a stamp: time {self.time}, replica of {len(self.replica)} bytes")

    @property
    def millis(self) -> int:
        """Milliseconds since 1970."""
        return self.time >> COUNTER_BITS

    def pack(self) -> bytes:
        """24 bytes that sort as the stamp does."""
        return _LAYOUT.pack(self.time, self.replica)

    @classmethod
    def unpack(cls, packed: bytes) -> Stamp:
        """The inverse of ``pack``; ValueError for anything else."""
        if len(packed) != STAMP_BYTES:
            raise ValueError(f"a packed stamp has {STAMP_BYTES} bytes, not {len(packed)}")
        time, replica = _LAYOUT.unpack(packed)
        return cls(time, ReplicaId(replica))

    def __str__(self) -> str:
        """``2026-11-30T08:00:00.000Z.0000.<replica>``: readable, and sorts as the stamp does."""
        return f"{time_text(self.time)}.{self.replica.hex()}"

    @classmethod
    def parse(cls, text: str) -> Stamp:
        """The inverse of ``str``; ValueError for anything else."""
        try:
            time, _, replica = text.rpartition(".")
            stamp = cls(parse_time_text(time), ReplicaId(bytes.fromhex(replica)))
        except ValueError:
            stamp = None
        if stamp is None or str(stamp) != text:
            raise ValueError(f"not a stamp: {text!r}; take it from Memory or History as it is")
        return stamp


def time_text(time: int) -> str:
    """A stamp's or commit stamp's time as text: ``2026-11-30T08:00:00.000Z.0000``."""
    return f"{_instant_text(time >> COUNTER_BITS)}.{time & 0xFFFF:04x}"


@lru_cache(_MAX_CACHED_INSTANTS)
def _instant_text(millis: int) -> str:
    at = _EPOCH + timedelta(milliseconds=millis)
    return f"{at.isoformat(timespec='milliseconds')[:-6]}Z"


def parse_time_text(text: str) -> int:
    """The inverse of ``time_text``; ValueError for anything else."""
    if _TIME_TEXT.fullmatch(text) is None:
        raise ValueError(f"not a stamp's time: {text!r}")
    instant, _, counter = text.rpartition(".")
    millis = (datetime.fromisoformat(instant) - _EPOCH) // timedelta(milliseconds=1)
    time = millis << COUNTER_BITS | int(counter, 16)
    if time < 0 or time_text(time) != text:
        raise ValueError(f"not a stamp's time: {text!r}")
    return time


def next_time(previous: int, now_millis: int) -> int:
    """The next reading after ``previous`` of a clock that never runs backwards."""
    return max(previous + 1, now_millis << COUNTER_BITS)


def next_commit_stamp(head: CommitStamp, now_millis: int) -> CommitStamp:
    """The commit stamp that follows a stream's head."""
    return CommitStamp(next_time(head, now_millis))


class Clock:
    """A hybrid logical clock of one replica. Not safe for two threads at once."""

    def __init__(self, replica: ReplicaId, last: int = 0) -> None:
        self.replica = replica
        self.last = last

    def tick(self, now_millis: int) -> Stamp:
        """A stamp later than every one made or observed here."""
        self.last = next_time(self.last, now_millis)
        return Stamp(self.last, self.replica)

    def observe(self, stamp: Stamp) -> None:
        """Advance past a stamp received from elsewhere."""
        self.last = max(self.last, stamp.time)


# --- the stamps of one memory's fields, packed into one column -----------------------------------

_VERSION = 1
_COUNT = struct.Struct(">H")


def pack_field_stamps(stamps: Mapping[str, Stamp]) -> bytes:
    """Stamps by field, grouped by stamp: a memory written at once costs one stamp and its names."""
    groups: dict[Stamp, list[str]] = {}
    last, group = None, []
    for field, stamp in sorted(stamps.items()):
        if stamp is not last:  # mostly it is, and hashing one is slow
            last, group = stamp, groups.setdefault(stamp, [])
        group.append(field)
    parts = [bytes([_VERSION])]
    for stamp, fields in groups.items():
        parts += [stamp.pack(), _pack_names(tuple(fields))]
    return b"".join(parts)


@lru_cache(_MAX_CACHED_NAMES)
def _pack_names(fields: tuple[str, ...]) -> bytes:
    encoded = [field.encode() for field in fields]
    return _COUNT.pack(len(fields)) + b"".join(_COUNT.pack(len(each)) + each for each in encoded)


def unpack_field_stamps(packed: bytes) -> dict[str, Stamp]:
    """The inverse of ``pack_field_stamps``; ValueError where the bytes are damaged."""
    if not packed or packed[0] != _VERSION:
        raise ValueError("field stamps of an unknown version")
    stamps: dict[str, Stamp] = {}
    at = 1
    try:
        while at < len(packed):
            stamp = Stamp.unpack(packed[at : at + STAMP_BYTES])
            (count,) = _COUNT.unpack_from(packed, at + STAMP_BYTES)
            at += STAMP_BYTES + _COUNT.size
            for _ in range(count):
                (length,) = _COUNT.unpack_from(packed, at)
                at += _COUNT.size + length
                if at > len(packed):
                    raise ValueError("a field name is cut short")
                field = packed[at - length : at].decode()
                if field in stamps:
                    raise ValueError(f"field stamps are damaged: {field!r} is there twice")
                stamps[field] = stamp
    except struct.error as error:
        raise ValueError(f"field stamps are damaged: {error}") from error
    return stamps
