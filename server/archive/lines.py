"""What is held as lines of an archive: see ``server.archive``."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from scrubjay import v1
from scrubjay.memory import MemoryId, Micros, Subject, canonical_json
from scrubjay.stamp import CommitStamp, time_text
from scrubjay.wire import commit_micros, to_timestamp
from server.services.history import history_entry
from server.shard.exporting import SubjectPages, WholeMemory
from server.store.exporting import NO_UUID
from server.store.history import HistoryRow, encode_changes
from server.store.memory_store import Grave
from server.store.rows import CREATED
from tenants import forget_policy, quotas, retention, write_settings
from tenants.tenant import Tenant

SUBJECT_FORMAT = "scrubjay.subject"
TENANT_FORMAT = "scrubjay.tenant"
VERSION = 1
MANIFEST = "manifest"
CREATE = "created"
"""How ``field_commits`` names the create, which has no name in the store."""

Line = dict[str, Any]


class Seal:
    """Counts and digests the lines of an archive, to be sealed by its manifest."""

    def __init__(self) -> None:
        self.counts = Counter[str]()
        self._digest = hashlib.sha256()

    def add(self, line: bytes, kind: str = "") -> None:
        """A line with its newline; the first one has no kind."""
        self._digest.update(line)
        if kind:
            self.counts[kind] += 1

    @property
    def sha256(self) -> str:
        """The digest of all lines so far, in hexadecimal."""
        return self._digest.hexdigest()

    def manifest(self) -> Line:
        """The last line."""
        return {"kind": MANIFEST, "counts": dict(self.counts), "sha256": self.sha256}


def encoded(line: Line) -> bytes:
    """A line with its newline."""
    return f"{canonical_json(line)}\n".encode()


def sealed(head: Line, lines: Iterable[Line]) -> Iterator[str]:
    """The lines as text, with the manifest behind them."""
    seal = Seal()
    text = encoded(head)
    seal.add(text)
    yield text.decode()
    for line in lines:
        text = encoded(line)
        seal.add(text, line["kind"])
        yield text.decode()
    yield encoded(seal.manifest()).decode()


def subject_head(tenant: Tenant, subject: Subject, now: Micros) -> Line:
    """The first line of a subject's archive."""
    return {**_head(SUBJECT_FORMAT, tenant, now), f"{subject.kind}_id": subject.name}


def tenant_head(tenant: Tenant, now: Micros) -> Line:
    """The first line of a tenant's archive."""
    return {**_head(TENANT_FORMAT, tenant, now), "display_name": tenant.display_name, "space": tenant.space}


def _head(name: str, tenant: Tenant, now: Micros) -> Line:
    return {
        "format": name,
        "version": VERSION,
        "tenant_id": tenant.tenant_id,
        "exported_at": _time(now),
    }


def settings_line(tenant: Tenant) -> Line:
    """What a tenant forgets, if it ever said so, how it writes, what it keeps, and its quotas."""
    line: Line = {
        "kind": "settings",
        "write_settings": _fields(write_settings.to_message(tenant.write_settings)),
        "retention": _fields(retention.to_message(tenant.retention)),
        "quotas": _fields(quotas.to_message(tenant.quotas)),
    }
    if tenant.forget_policy is not None:
        line["forget_policy"] = _fields(forget_policy.to_message(tenant.forget_policy))
    return line


def stream_lines(subject: Subject, pages: SubjectPages) -> Iterator[Line]:
    """All of a subject, in an archive of its tenant."""
    line: Line = {"kind": "subject", f"{subject.kind}_id": subject.name}
    head = pages.head()
    if head is not None:
        horizons = {"horizon": head.horizon, "history_horizon": pages.history_horizon()}
        line |= {"head": time_text(head.head), **{name: time_text(at) for name, at in horizons.items()}}
    yield line
    yield from subject_lines(pages)


def subject_lines(pages: SubjectPages) -> Iterator[Line]:
    """All that a shard holds of a subject."""
    yield from _memories(pages)
    yield from _history(pages)
    yield from _deletions(pages)
    yield from _waiting(pages)
    yield from _recent_messages(pages)
    yield from _requests(pages)


def device_line(device: v1.Device) -> Line:
    """A device of a subject."""
    return {"kind": "device", "device": _fields(device)}


def _memories(pages: SubjectPages) -> Iterator[Line]:
    before: tuple[Micros, MemoryId] | None = None
    while page := pages.memories(before):
        yield from map(_memory, page)
        last = page[-1].stored.memory
        before = (last.created_at, last.id)


def _memory(whole: WholeMemory) -> Line:
    stored, line = whole.stored, Line()
    if whole.accesses:
        line["accesses"] = {
            "count": sum(one.total for one in whole.accesses),
            "last_access_at": _time(max(one.last_access_at for one in whole.accesses)),
            "by_replica": [
                {
                    "replica_id": one.replica_id.hex(),
                    "count": one.total,
                    "last_access_at": _time(one.last_access_at),
                }
                for one in whole.accesses
            ],
        }
    if whole.mentions:
        line["entities"] = [_own(asdict(one)) for one in whole.mentions]
    if whole.relations:
        line["relations"] = [_own(asdict(one)) for one in whole.relations]
    return {
        "kind": "memory",
        "memory": _fields(v1.Memory.FromString(stored.message)),
        "field_stamps": {field: str(stamp) for field, stamp in stored.state.stamps.items()},
        "field_commits": {
            CREATE if field == CREATED else field: time_text(commit)
            for field, commit in stored.field_commits.items()
        },
        **line,
    }


def _own(row: Line) -> Line:
    """What a memory's mention or relation has of its own; its times as text."""
    times = {name: _time(row[name]) for name in ("valid_from", "valid_to") if row.get(name) is not None}
    return {name: value for name, value in row.items() if name != "memory_id" and value is not None} | times


def _history(pages: SubjectPages) -> Iterator[Line]:
    before: CommitStamp | None = None
    while page := pages.history(before):
        yield from map(_operation, page)
        before = page[-1].commit_stamp


def _operation(row: HistoryRow) -> Line:
    line: Line = {"kind": "history", "entry": _fields(history_entry(row))}
    if row.changes:
        line["registers"] = json.loads(encode_changes(row.changes))
    if row.private_to:
        line["private_to"] = row.private_to
    if row.deleted:
        line["deleted"] = _fields(v1.Memory.FromString(row.deleted))
    return line


def _deletions(pages: SubjectPages) -> Iterator[Line]:
    after = CommitStamp(0)
    while page := pages.graves(after):
        yield from map(_deletion, page)
        after = page[-1].commit_stamp


def _deletion(grave: Grave) -> Line:
    return {
        "kind": "deletion",
        "memory_id": grave.memory_id,
        "deleted_at": _time(commit_micros(grave.commit_stamp)),
        "commit_stamp": time_text(grave.commit_stamp),
        "stamp": str(grave.stamp),
        "private_to": grave.private_to,
        "scope": grave.scope,
    }


def _waiting(pages: SubjectPages) -> Iterator[Line]:
    after = (MemoryId(NO_UUID), NO_UUID)
    while page := pages.waiting(after):
        for one in page:
            yield {
                "kind": "waiting",
                "memory_id": one.memory_id,
                "operation_id": one.operation_id,
                "commit_stamp": time_text(one.commit_stamp),
                "client_id": one.client_id,
                "scopes": list(one.scopes),
                "actor": one.actor,
                "role": one.role,
                "replica_id": one.replica_id.hex(),
                "spell_id": one.spell,
                "operation": _fields(v1.Operation.FromString(one.operation)),
            }
        after = (page[-1].memory_id, page[-1].operation_id)


def _recent_messages(pages: SubjectPages) -> Iterator[Line]:
    after = ("", "")
    while page := pages.recent_messages(after):
        for one in page:
            messages = [{**asdict(message), "at": _time(message.at)} for message in one.messages]
            place = {"scope": one.scope, "client_id": one.client_id}
            yield {"kind": "recent_messages", **place, "messages": messages}
        after = (page[-1].scope, page[-1].client_id)


def _requests(pages: SubjectPages) -> Iterator[Line]:
    after = NO_UUID
    while page := pages.unread(after):
        for one in page:
            yield {
                "kind": "request",
                "operation_id": one.job_id,
                "client_id": one.client_id,
                "actor": one.actor,
                "role": one.role,
                "request_id": one.request_id,
                "private_to": one.private_to,
                "created_at": _time(one.created_at),
                "rpc": one.kind,
                "request": _fields(v1.AddRequest.FromString(one.request)),
            }
        after = page[-1].job_id


def _fields(message: Message) -> Line:
    fields: Line = MessageToDict(message, preserving_proto_field_name=True)
    return fields


def _time(time: Micros) -> str:
    return to_timestamp(time).ToJsonString()
