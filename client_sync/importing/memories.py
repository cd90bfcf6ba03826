"""Rows of an export as memories: lines of ``scrubjay export``, and rows of mem0's ``get_all``.

A memory whose row has an id keeps it, and another always gets the same one, made from what the row says: so
a row that is imported again is already there.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError

from client_sync.arguments import TIME_FIELDS
from client_sync.importing.instants import instant
from client_sync.importing.skipping import Reason, Unfit
from scrubjay import v1
from scrubjay.errors import FieldViolation, InvalidField
from scrubjay.memory import (
    DAY_MICROS,
    SUBJECT_FIELDS,
    ClientId,
    MemoryId,
    Micros,
    Subject,
    canonical_json,
    hashed_id,
    new_memory_id,
)
from scrubjay.validity import MAX_CONTENT_BYTES, is_memory_id, violations
from scrubjay.wire import from_message, from_timestamp, to_timestamp

_MADE_BY = "scrubjay import"
_OUTPUT_ONLY = ("updated_at", "etag", "owner_client_id")
_NAMES = {field.json_name: field.name for field in v1.Memory.DESCRIPTOR.fields}
_NAMES |= {field.name: field.name for field in v1.Memory.DESCRIPTOR.fields}
_ANY_ID = MemoryId(hashed_id(b""))
_KEPT_AS_METADATA = ("app_id", "actor_id", "attributed_to", "immutable", "structured_attributes")
"""What mem0 knows beside its metadata, and a memory has no field for."""


@dataclass(frozen=True, slots=True)
class Whom:
    """Whom the memories are about: ``subject``, or whom each one names where that is None. With
    ``from_user`` only that user's, who is called as ``subject`` is here."""

    subject: Subject | None
    from_user: str = ""

    def name(self, memory: v1.Memory) -> bool:
        """Make the memory about its subject, and say whether that renames it. Unfit."""
        given = memory.user_id
        if self.from_user and given != self.from_user:
            raise Unfit(Reason.NOT_CHOSEN, f"is about {_told(memory)}")
        if self.subject is None:
            if not any(getattr(memory, field) for field in SUBJECT_FIELDS):
                raise Unfit(Reason.NOBODY, "names no user; say with --user whom it is about")
            return False
        own = f"{self.subject.kind}_id"
        renamed = bool(self.from_user) and own == "user_id" and given != self.subject.name
        if not renamed:
            self._check(memory, own)
        setattr(memory, own, self.subject.name)
        return renamed

    def _check(self, memory: v1.Memory, own: str) -> None:
        assert self.subject is not None
        for field in SUBJECT_FIELDS[: SUBJECT_FIELDS.index(own) + 1]:
            given = getattr(memory, field)
            if given and (field, given) != (own, self.subject.name):
                hint = f"; --from-user {given} takes it as that one" if own == field == "user_id" else ""
                raise Unfit(
                    Reason.OTHER_USER,
                    f"is about {_told(memory)}, not {self.subject.kind} {self.subject.name!r}{hint}",
                )


def _told(memory: v1.Memory) -> str:
    found = [
        f"{field.removesuffix('_id')} {getattr(memory, field)!r}"
        for field in SUBJECT_FIELDS
        if getattr(memory, field)
    ]
    return found[0] if found else "nobody"


def from_line(row: object) -> v1.Memory:
    """A memory in the contract's JSON, as ``scrubjay export`` writes it. Unfit."""
    if not isinstance(row, dict):
        raise Unfit(Reason.NO_MEMORY, "is no JSON object")
    if unknown := sorted(str(name) for name in row if name not in _NAMES):
        raise Unfit(Reason.UNKNOWN_FIELD, f"has a field that memories have not: {', '.join(unknown)[:200]}")
    fields = {_NAMES[name]: value for name, value in row.items() if value is not None}
    return _parsed(fields)


def from_mem0(row: object) -> v1.Memory:
    """A memory as mem0's ``get_all`` gives it. Unfit.

    Its categories become tags, and what has no field of its own becomes metadata. Its ``expiration_date`` is
    the last day, in UTC, on which it is shown.
    """
    if not isinstance(row, dict) or not isinstance(row.get("memory"), str):
        raise Unfit(Reason.NO_MEMORY, "has no text 'memory'")
    fields: dict[str, Any] = {"content": row["memory"]}
    for name in ("id", "created_at", *SUBJECT_FIELDS):
        if row.get(name):
            fields[name] = row[name]
    if row.get("role"):
        fields["source"] = {"role": row["role"]}
    if row.get("categories"):
        fields["tags"] = row["categories"]
    if row.get("expiration_date"):
        last_day = instant(row["expiration_date"])
        ends = Micros(last_day // DAY_MICROS * DAY_MICROS + DAY_MICROS)
        fields["expires_at"] = to_timestamp(ends).ToJsonString()
    metadata = row.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise Unfit(Reason.INVALID, "metadata: is no JSON object")
    more = {name: row[name] for name in _KEPT_AS_METADATA if row.get(name)}
    if metadata or more:
        fields["metadata"] = more | {key: value for key, value in metadata.items() if value is not None}
    return _parsed(fields)


def _parsed(fields: Mapping[str, Any]) -> v1.Memory:
    """The message of these fields, without what its writer can't set. Unfit."""
    times = {name: _rfc3339(fields[name]) for name in TIME_FIELDS if name in fields}
    memory = v1.Memory()
    try:
        # Protobuf's own parser fails oddly at what no UTF-8 can hold.
        json.dumps(fields, ensure_ascii=False).encode()
        ParseDict({**fields, **times}, memory)
    except UnicodeEncodeError as error:
        raise Unfit(Reason.INVALID, "holds a lone surrogate, which is no valid Unicode") from error
    except ParseError as error:
        raise Unfit(Reason.INVALID, str(error).partition("\n")[0][:200]) from error
    except (ValueError, OverflowError, RecursionError) as error:
        raise Unfit(Reason.INVALID, str(error)[:200]) from error
    for name in _OUTPUT_ONLY:
        memory.ClearField(name)  # type: ignore[arg-type]  # by name
    memory.source.ClearField("client_id")
    if memory.source == v1.Source():
        memory.ClearField("source")
    return memory


def _rfc3339(value: object) -> str:
    try:
        return to_timestamp(instant(value)).ToJsonString()
    except ValueError as error:
        raise Unfit(Reason.BAD_DATE, f"{value!r} is no time of the contract") from error


def finish(
    memory: v1.Memory, whom: Whom, now: Micros, *, scope: str = "", tags: tuple[str, ...] = ()
) -> None:
    """Give the memory its subject, its id, and what the import gives to all. Unfit says what is wrong.

    ``scope`` is for what names none.
    """
    renamed = whom.name(memory)
    memory.id = _id_of(memory, renamed)
    if memory.superseded_by:
        successor = _canonical(memory.superseded_by) or memory.superseded_by
        memory.superseded_by = _renamed_id(memory, successor) if renamed else successor
    if not memory.scope:
        memory.scope = scope
    memory.tags.extend(tags)
    _check(memory, now)


def _id_of(memory: v1.Memory, renamed: bool) -> str:
    given = _canonical(memory.id)
    if given:
        return _renamed_id(memory, given) if renamed else given
    material = canonical_json([_MADE_BY, MessageToDict(memory)]).encode()
    if not memory.HasField("created_at"):
        return hashed_id(material)
    return new_memory_id(from_timestamp(memory.created_at) // 1000, hashlib.sha256(material).digest())


def _renamed_id(memory: v1.Memory, given: str) -> str:
    """The id under which a memory of another user is this one's: the first may be here too."""
    return hashed_id(
        canonical_json([_MADE_BY, given, *(getattr(memory, f) for f in SUBJECT_FIELDS)]).encode()
    )


def _canonical(text: str) -> str:
    """A UUID in canonical form; empty for what is none."""
    if is_memory_id(text):
        return text
    try:
        return str(uuid.UUID(text))
    except ValueError:
        return ""


def _check(memory: v1.Memory, now: Micros) -> None:
    try:
        found = from_message(memory, memory_id=_ANY_ID, owner=ClientId(""), now=now)
    except InvalidField as error:
        raise Unfit(Reason.INVALID, str(error)) from error
    if wrong := violations(found):
        raise Unfit(
            _reason(memory, wrong[0]), "; ".join(f"{each.field}: {each.description}" for each in wrong)
        )
    if found.expires_at is not None and found.expires_at <= now:
        raise Unfit(Reason.EXPIRED, f"expired at {memory.expires_at.ToJsonString()}")


def _reason(memory: v1.Memory, wrong: FieldViolation) -> Reason:
    if wrong.field == "content":
        if not memory.content.strip():
            return Reason.NO_TEXT
        return Reason.TOO_LONG if len(memory.content.encode()) > MAX_CONTENT_BYTES else Reason.INVALID
    return Reason.BAD_DATE if wrong.field in TIME_FIELDS else Reason.INVALID
