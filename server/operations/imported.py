"""What an import keeps of its file: rows that are stored together, and the notes that its phases share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scrubjay import v1
from scrubjay.memory import JsonValue, Micros
from scrubjay.stamp import CommitStamp
from scrubjay.wire import to_timestamp
from server.archive.reading import Findings, Record
from server.archive.records import ImportedMemory, Stream
from server.shard.importing import ImportedRows
from server.store.exporting import RecentMessages, Unread
from server.store.history import HistoryRow
from server.store.jobs import Job, Progress
from server.store.memory_store import Grave, StreamKey
from server.store.replicas import WaitingOperation
from tenants import forget_policy, retention, write_settings
from tenants.registry import TenantChanges

LINES_AT_ONCE = 200
BYTES_AT_ONCE = 1024 * 1024
"""Lines whose rows one transaction stores: other writers of a SQLite shard wait for some 20 ms."""

Notes = Mapping[str, JsonValue]


@dataclass(slots=True)
class Batch:
    """Lines of one subject, as the rows that they become; without a ``stream`` they become none."""

    stream: Stream | None = None
    rows: ImportedRows = field(default_factory=ImportedRows)
    lines: int = 0
    size: int = 0

    @property
    def is_full(self) -> bool:
        """Whether it is to be stored."""
        return self.lines >= LINES_AT_ONCE or self.size >= BYTES_AT_ONCE

    def take(self, record: Record, number: int, size: int) -> None:
        """The line of that number, of that many bytes."""
        self.lines, self.size = self.lines + 1, self.size + size
        match record:
            case Stream():
                self.stream = record
            case ImportedMemory():
                self._take_memory(record, number)
            case HistoryRow():
                self.rows.history.append(record)
            case Grave():
                self.rows.graves.append(record)
            case WaitingOperation():
                self.rows.waiting.append(record)
            case RecentMessages():
                self.rows.recent.append(record)

    def _take_memory(self, memory: ImportedMemory, number: int) -> None:
        self.rows.memories.append(memory.stored)
        self.rows.mentions += memory.links.mentions
        self.rows.relations += memory.links.relations
        # Each has a place of its own in the lane of counts, before all that come from now on.
        self.rows.accesses += [(one, CommitStamp(number << 16 | n)) for n, one in enumerate(memory.accesses)]


def job_of(request: Unread, key: StreamKey, now: Micros) -> Job:
    """A request that is not done as the work that it is."""
    asked = v1.AddRequest.FromString(request.request)
    return Job(
        id=request.job_id,
        key=key,
        kind=request.kind,
        client_id=request.client_id,
        actor=request.actor,
        role=request.role,
        request_id=request.request_id,
        private_to=request.private_to,
        created_at=request.created_at,
        updated_at=now,
        progress=Progress("", 0, len(asked.messages)),
        request=request.request,
    )


# --- what the phases note for each other ------------------------------------------------------------


def told(found: Findings) -> str:
    """What is wrong with a file, in a sentence."""
    line, what = found.problems[0]
    rest = len(found.problems) - 1
    more = f"; {rest} more lines are wrong at least, a dry run names them" if rest else ""
    return f"line {line}: {what}{more}"


def noted(found: Findings) -> dict[str, JsonValue]:
    """What is noted of a file that was judged."""
    head, settings = found.head, found.settings
    return {
        "counts": dict(found.seal.counts),
        "problems": [[line, what] for line, what in found.problems],
        "source": head.tenant_id if head else "",
        "exported_at": head.exported_at if head else 0,
        "forget_policy": forget_policy.to_text(settings.forget_policy) if settings else None,
        "write_settings": write_settings.to_text(settings.write_settings) if settings else None,
        "retention": retention.to_text(settings.retention) if settings else None,
        "settled": settings is not None,
    }


def counts(notes: Notes) -> dict[str, int]:
    """How many lines there are of each kind."""
    found: Any = notes.get("counts") or {}
    return dict(found)


def changes(notes: Notes) -> TenantChanges:
    """What a tenant is to settle as the one did that was exported: but for quotas, its operator's matter."""
    policy: Any = notes["forget_policy"]
    settings: Any = notes["write_settings"]
    kept: Any = notes["retention"]
    fields = {"forget_policy", "retention", "write_settings"} if notes["settled"] else set[str]()
    return TenantChanges(
        frozenset(fields),
        forget_policy=forget_policy.from_text(policy),
        write_settings=write_settings.from_text(settings),
        retention=retention.from_text(kept),
    )


def result(notes: Notes) -> v1.ImportTenantResult:
    """What came of it."""
    problems: Any = notes["problems"]
    exported_at: Any = notes["exported_at"]
    found = v1.ImportTenantResult(
        counts=counts(notes),
        problems=[v1.ImportProblem(line=line, description=what) for line, what in problems],
        source_tenant_id=str(notes["source"]),
    )
    if exported_at:
        found.exported_at.CopyFrom(to_timestamp(Micros(exported_at)))
    return found
