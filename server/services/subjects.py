"""Subjects whole: exporting all that the server holds of one, and erasing it.

An export is lines of JSON. The first says what follows: format, version, tenant, subject, time. The last is
the manifest: how many lines of each kind there were, and the SHA-256 of all bytes before it. Each line
between has a ``kind``:

    memory           as the contract's Memory, with its fields' stamps, accesses, entities and relations
    history          as the contract's HistoryEntry; of a deletion with what was deleted
    deletion         the id of a memory that was deleted, and when
    waiting          an edit of a device whose memory is not there yet
    recent_messages  the last messages of a scope, kept for the model that reads the next ones
    request          a request that is acknowledged and not done
    device           as the contract's Device
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from scrubjay import v1
from scrubjay.memory import MemoryId, Micros, Subject, canonical_json
from scrubjay.stamp import CommitStamp
from scrubjay.wire import commit_micros, to_timestamp
from server.erasing import Eraser
from server.router import Router
from server.services.history import history_entry
from server.shard import Shard
from server.shard.exporting import WholeMemory
from server.store.exporting import NO_UUID
from server.store.history import HistoryRow
from server.store.memory_store import StreamKey
from tenants.receipt import PurgeReceipt
from tenants.tenant import Tenant

FORMAT = "scrubjay.subject"
VERSION = 1
MANIFEST = "manifest"

Line = dict[str, Any]


class Subjects:
    """Exports and erases subjects. ``clock`` gives microseconds since 1970."""

    def __init__(self, router: Router, eraser: Eraser, clock: Callable[[], Micros]) -> None:
        self._router = router
        self._eraser = eraser
        self._clock = clock

    def erase(self, tenant: Tenant, subject: Subject, asked_at: Micros) -> PurgeReceipt:
        """Erase a subject, unless that was done since ``asked_at``; what was deleted."""
        return self._eraser.erase(tenant, subject, asked_at)

    def export(self, tenant: Tenant, subject: Subject, devices: Iterable[v1.Device]) -> Iterator[str]:
        """All that is held of a subject, line by line, each with its newline; the devices are given."""
        shard, key = self._router.shard(tenant), StreamKey(tenant.incarnation, subject.key)
        head: Line = {
            "format": FORMAT,
            "version": VERSION,
            "tenant_id": tenant.tenant_id,
            f"{subject.kind}_id": subject.name,
            "exported_at": _time(self._clock()),
        }
        yield from _sealed(head, _lines(shard, key, devices))


def _sealed(head: Line, lines: Iterable[Line]) -> Iterator[str]:
    """The lines as text, with the manifest behind them."""
    text = f"{canonical_json(head)}\n"
    counts, digest = Counter[str](), hashlib.sha256(text.encode())
    yield text
    for line in lines:
        counts[line["kind"]] += 1
        text = f"{canonical_json(line)}\n"
        digest.update(text.encode())
        yield text
    manifest: Line = {"kind": MANIFEST, "counts": dict(counts), "sha256": digest.hexdigest()}
    yield f"{canonical_json(manifest)}\n"


def _lines(shard: Shard, key: StreamKey, devices: Iterable[v1.Device]) -> Iterator[Line]:
    yield from _memories(shard, key)
    yield from _history(shard, key)
    yield from _deletions(shard, key)
    yield from _waiting(shard, key)
    yield from _recent_messages(shard, key)
    yield from _requests(shard, key)
    for device in devices:
        yield {"kind": "device", "device": _fields(device)}


def _memories(shard: Shard, key: StreamKey) -> Iterator[Line]:
    before: tuple[Micros, MemoryId] | None = None
    while page := shard.whole_memories(key, before):
        yield from map(_memory, page)
        last = page[-1].stored.memory
        before = (last.created_at, last.id)


def _memory(whole: WholeMemory) -> Line:
    stored, line = whole.stored, Line()
    if whole.accesses is not None:
        last_access_at = _time(whole.accesses.last_access_at)
        line["accesses"] = {"count": whole.accesses.total, "last_access_at": last_access_at}
    if whole.mentions:
        line["entities"] = [_own(asdict(one)) for one in whole.mentions]
    if whole.relations:
        line["relations"] = [_own(asdict(one)) for one in whole.relations]
    return {
        "kind": "memory",
        "memory": _fields(v1.Memory.FromString(stored.message)),
        "field_stamps": {field: str(stamp) for field, stamp in stored.state.stamps.items()},
        **line,
    }


def _own(row: Line) -> Line:
    """What a memory's mention or relation has of its own; its times as text."""
    times = {name: _time(row[name]) for name in ("valid_from", "valid_to") if row.get(name) is not None}
    return {name: value for name, value in row.items() if name != "memory_id" and value is not None} | times


def _history(shard: Shard, key: StreamKey) -> Iterator[Line]:
    before: CommitStamp | None = None
    while page := shard.whole_history(key, before):
        yield from map(_operation, page)
        before = page[-1].commit_stamp


def _operation(row: HistoryRow) -> Line:
    line: Line = {"kind": "history", "entry": _fields(history_entry(row))}
    if row.private_to:
        line["private_to"] = row.private_to
    if row.deleted:
        line["deleted"] = _fields(v1.Memory.FromString(row.deleted))
    return line


def _deletions(shard: Shard, key: StreamKey) -> Iterator[Line]:
    after = CommitStamp(0)
    while page := shard.graves(key, after):
        for grave in page:
            deleted_at = _time(commit_micros(grave.commit_stamp))
            yield {"kind": "deletion", "memory_id": grave.memory_id, "deleted_at": deleted_at}
        after = page[-1].commit_stamp


def _waiting(shard: Shard, key: StreamKey) -> Iterator[Line]:
    after = (NO_UUID, NO_UUID)
    while page := shard.waiting_after(key, after):
        for one in page:
            yield {
                "kind": "waiting",
                "memory_id": one.memory_id,
                "client_id": one.client_id,
                "operation": _fields(v1.Operation.FromString(one.operation)),
            }
        after = (page[-1].memory_id, page[-1].operation_id)


def _recent_messages(shard: Shard, key: StreamKey) -> Iterator[Line]:
    after = ("", "")
    while page := shard.recent_messages_after(key, after):
        for one in page:
            messages = [{**asdict(message), "at": _time(message.at)} for message in one.messages]
            place = {"scope": one.scope, "client_id": one.client_id}
            yield {"kind": "recent_messages", **place, "messages": messages}
        after = (page[-1].scope, page[-1].client_id)


def _requests(shard: Shard, key: StreamKey) -> Iterator[Line]:
    after = NO_UUID
    while page := shard.unread_after(key, after):
        for one in page:
            asked = _fields(v1.AddRequest.FromString(one.request))
            known = {"operation_id": one.job_id, "client_id": one.client_id}
            yield {"kind": "request", **known, "rpc": one.kind, "request": asked}
        after = page[-1].job_id


def _fields(message: Message) -> Line:
    fields: Line = MessageToDict(message, preserving_proto_field_name=True)
    return fields


def _time(time: Micros) -> str:
    return to_timestamp(time).ToJsonString()
