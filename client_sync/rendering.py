"""What the command shows a person: tables as wide as the terminal, local times, plain words."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from google.protobuf import timestamp_pb2
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from rich.console import Console
from rich.table import Table
from rich.text import Text

from client_sync.arguments import TIME_FIELDS
from scrubjay import v1
from scrubjay.memory import DEFAULT_CATEGORY, DEFAULT_SCOPE, JsonValue, Micros, PrivacyLevel
from scrubjay.wire import from_struct, from_timestamp, from_value

MAX_SHOWN_CHARACTERS = 280
"""Of a content in a table; ``get`` shows all of it."""

_ARROW = " → "
_CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = (("y", 31_557_600), ("mo", 2_629_800), ("d", 86_400), ("h", 3_600), ("min", 60))
_OUTCOMES = {
    v1.OUTCOME_APPLIED_CONCURRENT: "stored over an edit that its author had not seen",
    v1.OUTCOME_SUPERSEDED: "not stored: a later edit stands",
    v1.OUTCOME_GONE: "not stored: the memory is deleted",
}
_DEFAULTS: dict[str, JsonValue] = {
    "scope": DEFAULT_SCOPE,
    "category": DEFAULT_CATEGORY,
    "confidence": 1,
    "pinned": False,
    "privacy_level": PrivacyLevel.SHARED.name,
}
_LEVELS: dict[int, str] = {
    v1.PRIVACY_LEVEL_PRIVATE: "private",
    v1.PRIVACY_LEVEL_LOCAL_ONLY: "on this device only",
}
_KINDS = {
    v1.OPERATION_KIND_CREATE: "added",
    v1.OPERATION_KIND_SET: "changed",
    v1.OPERATION_KIND_DELETE: "deleted",
}


def json_line(message: Message, *, local: bool = False) -> str:
    """A message as one line of JSON with the contract's field names; ``local`` marks what was found on
    this device."""
    document = MessageToDict(message, preserving_proto_field_name=True)
    return json.dumps(document | {"local": True} if local else document, ensure_ascii=False)


def plain(text: str) -> str:
    """The text without control characters, which could move a terminal's cursor or colour it."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text.replace("\t", " "))


def local_time(at: Micros) -> str:
    """``2026-11-30 08:00`` in local time; in UTC where local time would leave the calendar."""
    moment = _EPOCH + timedelta(microseconds=at)
    with contextlib.suppress(OverflowError, ValueError):
        moment = moment.astimezone()
    return moment.isoformat(" ")[:16]


def relative_time(at: Micros, now: Micros) -> str:
    """``3 d ago``, ``in 2 h``, ``just now``."""
    seconds = (now - at) // 1_000_000
    for unit, length in _UNITS:
        if abs(seconds) >= length:
            count = abs(seconds) // length
            return f"{count} {unit} ago" if seconds > 0 else f"in {count} {unit}"
    return "just now"


class Tables:
    """Writes messages to a console. ``now`` is what relative times are relative to."""

    def __init__(self, console: Console, now: Micros) -> None:
        self._console = console
        self._now = now

    def say(self, line: str) -> None:
        """One line of plain words, however long: a terminal breaks it, a pipe gets it whole."""
        self._console.print(Text(plain(line)), soft_wrap=True)

    def memories(self, rows: Sequence[v1.Memory], *, header: bool = True) -> None:
        """A table of memories, one page of it; the first has the header."""
        if not rows:
            self._nothing(header)
            return
        table = _table("when", "memory", header=header)
        for memory in rows:
            table.add_row(self._when(memory.created_at), _summary(memory))
        self._console.print(table)

    def hits(self, hits: Sequence[v1.SearchHit]) -> None:
        """A table of what a search found, best first, with the reasons where they were asked for."""
        if not hits:
            self._nothing(header=True)
            return
        table = _table("score", "when", "memory", header=True)
        for hit in hits:
            summary = _summary(hit.memory)
            if hit.HasField("explanation"):
                summary.append(f"\n{plain(_reasons(hit.explanation))}", style="italic")
            table.add_row(Text(f"{hit.score:.3f}"), self._when(hit.memory.created_at), summary)
        self._console.print(table)

    def memory(self, memory: v1.Memory) -> None:
        """Every field of one memory that has a value, a line each."""
        lines = []
        for descriptor, value in memory.ListFields():
            if isinstance(value, timestamp_pb2.Timestamp):
                shown = self._time(value)
            elif descriptor.name == "metadata":
                shown = _value_text(from_struct(memory.metadata))
            elif descriptor.name == "source":
                shown = json_line(value)
            elif descriptor.name == "privacy_level":
                shown = PrivacyLevel(value).name
            else:
                shown = ", ".join(value) if descriptor.name == "tags" else str(value)
            lines.append((descriptor.name, shown))
        self.pairs(lines)

    def pairs(self, lines: Sequence[tuple[str, str]]) -> None:
        """Names and what is told of them, a line each."""
        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_column(style="bold", no_wrap=True)
        table.add_column(overflow="fold")
        for name, told in lines:
            table.add_row(name, Text(plain(told)))
        self._console.print(table)

    def history(self, rows: Sequence[v1.HistoryEntry], *, header: bool = True) -> None:
        """A table of what happened, in plain words; one page of it."""
        if not rows:
            self._nothing(header)
            return
        table = _table("when", "by", "what", header=header)
        table.columns[1].width = 16
        for entry in rows:
            by = Text(plain(entry.client_id or entry.actor or "elsewhere"))
            table.add_row(self._when(entry.commit_time), by, _story(entry))
        self._console.print(table)

    def results(self, results: Iterable[v1.FieldResult]) -> None:
        """What became of each field that was written."""
        for result in results:
            self.say(f"{result.field}: {_OUTCOMES.get(result.outcome, 'stored')}")

    def _nothing(self, header: bool) -> None:
        if header:
            self.say("nothing found")

    def _when(self, timestamp: timestamp_pb2.Timestamp) -> Text:
        at = from_timestamp(timestamp)
        return Text(local_time(at)).append(f"\n{relative_time(at, self._now)}", style="dim")

    def _time(self, timestamp: timestamp_pb2.Timestamp) -> str:
        at = from_timestamp(timestamp)
        return f"{local_time(at)} ({relative_time(at, self._now)})"


def _table(*columns: str, header: bool) -> Table:
    table = Table(box=None, show_header=header, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns[:-1]:
        table.add_column(column, width={"score": 5, "when": 16}.get(column), overflow="fold")
    table.add_column(columns[-1], overflow="fold")
    return table


def _summary(memory: v1.Memory) -> Text:
    """The content, and under it what names and sorts the memory."""
    content = plain(" ".join(memory.content.split()))
    if len(content) > MAX_SHOWN_CHARACTERS:
        content = content[: MAX_SHOWN_CHARACTERS - 1] + "…"
    labels = [memory.id, memory.scope, memory.category, *(f"#{tag}" for tag in memory.tags)]
    if memory.privacy_level in _LEVELS:
        labels.append(_LEVELS[memory.privacy_level])
    return Text(content).append(f"\n{plain('  '.join(labels))}", style="dim")


def _reasons(explanation: v1.Explanation) -> str:
    parts = " + ".join(f"{part.arm} {part.value:.3f}" for part in explanation.contributions)
    return f"{explanation.sentence} ({parts})" if parts else explanation.sentence


def _story(entry: v1.HistoryEntry) -> Text:
    kind = _KINDS.get(entry.kind, "changed")
    story = Text(f"{kind} ", style="bold").append(plain(entry.memory_id), style="not bold dim")
    for change in entry.changes:
        if entry.kind == v1.OPERATION_KIND_CREATE and _is_default(change):
            continue
        story.append(f"\n{plain(_change_text(change))}", style="not bold")
    if not entry.changes and entry.outcome in _OUTCOMES:
        story.append(f"\n{_OUTCOMES[entry.outcome]}", style="not bold")
    return story


def _is_default(change: v1.FieldChange) -> bool:
    """Whether a new memory has this value where its writer says nothing."""
    value = from_value(change.new_value)
    if change.field == "source":
        return isinstance(value, Mapping) and set(value) <= {"client_id"}
    return change.field in _DEFAULTS and value == _DEFAULTS[change.field]


def _change_text(change: v1.FieldChange) -> str:
    """``content: old → new``, and how it ended where it did not simply end well."""
    new = _field_text(change.field, from_value(change.new_value)) if change.HasField("new_value") else ""
    old = _field_text(change.field, from_value(change.old_value)) if change.HasField("old_value") else ""
    kind, dot, name = change.field.partition(".")
    if dot and kind == "tags":
        told = f"tag {name} {'added' if change.new_value.bool_value else 'removed'}"
    elif old:
        told = f"{change.field}: {old}{_ARROW}{new or 'nothing'}"
    else:
        told = f"{change.field}: {new or 'nothing'}"
    outcome = _OUTCOMES.get(change.outcome)
    return f"{told} ({outcome})" if outcome else told


def _field_text(field: str, value: JsonValue) -> str:
    if field in TIME_FIELDS and isinstance(value, str):
        moment = timestamp_pb2.Timestamp()
        moment.FromJsonString(value)
        return local_time(from_timestamp(moment))
    return _value_text(value)


def _value_text(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
