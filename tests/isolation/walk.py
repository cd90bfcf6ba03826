"""The walk: each id of another tenant into each field that takes one, compared with one that never was.

A tenant that names what is another's must learn nothing: it gets, byte for byte where it is refused and field
for field where it is answered, what it gets for an id that nobody ever had. What differs from call to call of
itself, such as times and new ids, is left out of the comparison; whatever another tenant was ever given is
looked for in all that comes back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from google.protobuf import struct_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from tests.isolation.fields import Kind, Path, kind_of, leaves, text_of
from tests.isolation.home import PLATFORM, Home
from tests.isolation.known import ALIKE, Known, Value, stranger
from tests.isolation.lines import RPCS, Came
from tests.isolation.requests import ROWS, Row

SENT = "<what was sent>"


@dataclass(frozen=True)
class Case:
    """One field of one RPC's request, and whose id is put there."""

    name: str
    row: Row
    path: Path
    kind: Kind
    them: Known

    def __str__(self) -> str:
        return f"{self.name} {text_of(self.path)} by {self.row.caller}, of {self.them.name}"


def cases(others: list[Known]) -> Iterator[Case]:
    """Every RPC × every field that takes an id × every other tenant."""
    for name, rows in sorted(ROWS.items(), key=lambda each: _TAKING.get(each[0], 0)):
        for path in leaves(RPCS[name]):
            for row in rows:
                if (kind := kind_of(path)) is not None and _goes(kind, row, rows):
                    yield from (Case(name, row, path, kind, them) for them in others)


def _goes(kind: Kind, row: Row, rows: list[Row]) -> bool:
    """Whether a field of the kind is walked in the row."""
    if kind is Kind.TEXT or (kind in (Kind.TENANT, Kind.TENANT_JOB) and row.caller == PLATFORM):
        return False  # a platform admin may name every tenant, and what is done with it
    return kind not in _USED_UP or row is next(one for one in rows if one.caller == row.caller)


_SUBJECTS = {"user_id", "agent_id", "run_id"}
_USED_UP = {Kind.REQUEST, Kind.REPLICA}
"""What is this tenant's too once it was sent: it goes into the first row of its caller alone."""
_TAKING = {
    **dict.fromkeys(("TenantAdminService/CreateEnrolment", "SyncService/Sync"), 1),
    **dict.fromkeys((f"TenantAdminService/{name}" for name in ("ExportTenant", "DownloadExport")), 1),
    **dict.fromkeys((f"TenantAdminService/{name}" for name in ("ImportTenant", "UploadImport")), 1),
    "MemoryService/Add": 2,
}
"""What makes something of this tenant's that other RPCs count, or an id one of its own too, comes last."""


def holds(request: Message, path: Path) -> bool:
    """Whether the first of the messages on the way to the field is set in the request."""
    first = path[0]
    if first.message_type is None:
        return True
    return bool(getattr(request, first.name)) if first.is_repeated else request.HasField(first.name)


def put(request: Message, path: Path, value: Value) -> None:
    """Put the value into the field."""
    held: Any = request
    for step in path[:-1]:
        inner = getattr(held, step.name)
        if step.is_repeated:
            held = inner[0] if inner else inner.add()
        else:
            inner.SetInParent()
            held = inner
    last = path[-1]
    if last.name in _SUBJECTS and last.containing_type.name != "Memory":
        for other in _SUBJECTS & set(last.containing_type.fields_by_name):
            held.ClearField(other)  # so that it is the subject, and narrows none
    if last.message_type is not None:
        getattr(held, last.name).CopyFrom(struct_pb2.Value(string_value=str(value)))
    elif last.is_repeated:
        many = len(getattr(held, last.name))
        held.ClearField(last.name)
        getattr(held, last.name).extend([value] * max(1, many))
    else:
        setattr(held, last.name, value)


class Found(AssertionError):
    """A tenant learnt something of another one, or changed it."""


Nothing = dict[tuple[Row, str, Kind], object]
"""What was told of what never was, by row and field: asked once for all tenants, again where it differs."""


def check(case: Case, home: Home, marks: set[bytes], known: Nothing) -> int:
    """Send every value of the other tenant's, and compare with one that never was; how many there were.

    Raises Found.
    """
    count, key = 0, (case.row, text_of(case.path), case.kind)
    for value in case.them.of(case.kind, case.name):
        if value in home.known.values[case.kind]:
            if case.kind not in ALIKE:
                raise Found(f"{case}: both were given {value!r}")
            continue
        request = case.row.request(home)
        if not holds(request, case.path):
            return count
        told = _sent(case, home, request, value, case.them, marks)
        if key not in known or told != known[key]:
            never = stranger(case.kind, value)
            known[key] = _sent(case, home, case.row.request(home), never, None, marks)
        if told != known[key]:
            raise Found(f"{case}: {value!r} is answered {told}, and what never was {known[key]}")
        count += 1
    return count


def _sent(
    case: Case, home: Home, request: Message, value: Value, them: Known | None, marks: set[bytes]
) -> object:
    put(request, case.path, value)
    if them is not None and case.row.beside is not None:
        case.row.beside(request, them)
    came = home.call(case.row.caller, case.name, request)
    if not case.row.sees_all:
        look_for(str(case), came.whole, marks, request.SerializeToString())
    return outcome(came, value, ids_of(request))


def ids_of(message: Message) -> list[str]:
    """The long texts of a request: ids of this tenant's own, which are new ones in each call."""
    found: list[str] = []
    for each, held in message.ListFields():
        for one in held if each.is_repeated and not _is_map(each) else [held]:
            if isinstance(one, Message):
                found += ids_of(one)
            elif isinstance(one, str) and len(one) >= 8:
                found.append(one)
    return found


def look_for(where: str, body: bytes, marks: set[bytes], sent: bytes = b"") -> None:
    """Raises Found where the bytes hold what another tenant was given, and this one did not send."""
    found = [mark for mark in marks if mark in body and mark not in sent]
    if found:
        raise Found(f"{where}: the answer holds {found}")


def outcome(came: Came, value: Value, own: Iterable[str] = ()) -> object:
    """What came, without what the caller sent, and what differs from call to call."""
    if came.ok:
        return [shape(one, value) for one in came.responses]
    details = _unsent(came.details, value)
    for text in own:
        details = _unsent(details, text)
    return came.code, details


# --- what differs of itself ----------------------------------------------------------------------

_VARYING = {
    *("etag", "revision", "stamp", "stamps", "field_stamps", "commit_stamp", "field_commits"),
    *("last_sync_at", "from_sync_at", "resume_token", "next_page_token"),
    *("secret", "key_id", "device_id", "enrolment_code", "device_token", "client_id", "principal"),
    *("digest", "chunk", "chunk_digest", "total_bytes", "newest_page", "packed_page", "page", "text"),
    *("number", "last_number", "last_digest", "checked_count", "counts_after", "score"),
    *("incarnation", "shard", "operation_id", "id", "entity_id", "rows", "events"),
}
_COUNTED = {"devices", "tenants", "changes", "counts"}
"""Lists whose length says enough: what is in them changes while the walk goes on."""
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MADE_UP = re.compile(r"(user|spare|made)-[0-9a-f-]{8,}")
"""Names that ``Home`` makes anew for each call."""
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z(\.[0-9a-f]{4})?")


def shape(message: Message, value: Value) -> dict[str, object]:
    """The message by its fields."""
    return {each.name: _shape(each, held, value) for each, held in message.ListFields()}


def _shape(field: FieldDescriptor, held: Any, value: Value) -> object:
    if field.name in _COUNTED and field.is_repeated:
        return len(held)
    if field.name in _VARYING:
        return "*"
    if field.is_repeated and not _is_map(field):
        return [_one(one, value) for one in held]
    return _one(held, value)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _one(held: Any, value: Value) -> object:
    if isinstance(held, Timestamp):
        return "a time"
    if isinstance(held, Message):
        return shape(held, value)
    if isinstance(held, str):
        return _masked(held, value)
    if isinstance(held, bytes):
        return _unsent(held, value)
    if isinstance(held, float):
        return round(held, 3)
    return held


def _masked(text: str, value: Value) -> str:
    if isinstance(value, str) and value:
        text = text.replace(value, SENT)
    return _TIME.sub("<time>", _MADE_UP.sub("<name>", _UUID.sub("<uuid>", text)))


def _unsent(body: bytes, value: Value) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return body.replace(raw, SENT.encode()) if raw else body
