"""What happened to a memory, in one sentence for a person."""

from __future__ import annotations

from collections.abc import Sequence

from scrubjay.memory import DAY_MICROS, Micros, utc_day
from scrubjay.merge import Outcome
from scrubjay.operation import OperationKind
from scrubjay.wire import commit_micros
from server.ingest.forgetting import SWEEP_ROLE, Forgotten
from server.ingest.repeating import SAID_AGAIN
from server.store.history import HistoryChange, HistoryRow

MOST_NAMED = 4
"""Fields that a sentence names; it counts the others."""
_NOBODY = "A client without a name"
_NAMELESS = {SWEEP_ROLE: "The daily sweep"}
_UNITS = ((24 * 3600, "day"), (3600, "hour"), (60, "minute"))


def sentence(row: HistoryRow) -> str:
    """Who did what to which fields, how long before it arrived, and how it ended."""
    who, late = row.client_id or _NAMELESS.get(row.role, _NOBODY), _late(row)
    if row.reason == SAID_AGAIN:
        return f"{who} said it again{_more(row.changes)}."
    if row.outcome is Outcome.GONE:
        deleting = row.kind is OperationKind.DELETE
        end = "it had been deleted already" if deleting else "the memory had been deleted"
        return f"{who} wanted to {_wish(row)}{late}, but {end}."
    if row.outcome is Outcome.SUPERSEDED:
        return f"{who} wanted to {_wish(row)}{late}, but {_stands(row.changes)}."
    done = f"{who} {_deed(row)}{late}"
    if unseen := _of(row.changes, Outcome.APPLIED_CONCURRENT):
        done += f", replacing an edit of {_named(unseen)} that it had not seen"
    if lost := _of(row.changes, Outcome.SUPERSEDED):
        done += f"; {_stands(lost)}"
    return f"{done} ({row.reason})." if row.reason else f"{done}."


def _more(changes: Sequence[HistoryChange]) -> str:
    """What was new when it was said again."""
    added = [change for change in changes if change.outcome is not Outcome.SUPERSEDED]
    wording = " in other words" if len(added) < len(changes) else ""
    return f"{wording}, which added {_named(added)}" if added else wording


def why(one: Forgotten, now: Micros) -> str:
    """Why a memory goes in a sweep."""
    memory = one.memory
    if one.rule is None and memory.expires_at is not None:
        return f"It expired on {utc_day(memory.expires_at)}."
    days = (now - one.used_at) // DAY_MICROS
    used = f"It was last used on {utc_day(one.used_at)}, {days} day{'' if days == 1 else 's'} ago"
    return f"{used}, and its confidence is {memory.confidence:g}; the rule is: {one.rule}."


def _late(row: HistoryRow) -> str:
    """How long it was under way; nothing for less than a minute."""
    seconds = Micros(commit_micros(row.commit_stamp) - row.claimed_at) // 1_000_000
    for size, unit in _UNITS:
        if seconds >= size:
            count = seconds // size
            return f", made {count} {unit}{'' if count == 1 else 's'} before it arrived"
    return ""


def _wish(row: HistoryRow) -> str:
    match row.kind:
        case OperationKind.CREATE:
            return "create it"
        case OperationKind.DELETE:
            return "delete it"
    return _both("change", "remove", row.changes)


def _deed(row: HistoryRow) -> str:
    match row.kind:
        case OperationKind.CREATE:
            return f"brought back the deleted memory {row.restores}" if row.restores else "created it"
        case OperationKind.DELETE:
            return "deleted it"
    stored = [change for change in row.changes if change.outcome is not Outcome.SUPERSEDED]
    return _both("changed", "removed", stored) + (", undoing an earlier edit" if row.restores else "")


def _both(change: str, remove: str, changes: Sequence[HistoryChange]) -> str:
    written = [one for one in changes if one.new is not None]
    cleared = [one for one in changes if one.new is None]
    parts = [f"{verb} {_named(some)}" for verb, some in ((change, written), (remove, cleared)) if some]
    return " and ".join(parts) or f"{change} nothing"


def _stands(changes: Sequence[HistoryChange]) -> str:
    """What stands in place of the writes that were not stored."""
    if not changes:  # a delete is stored wherever the memory can be seen
        return "the memory had been taken back from it"
    if [change.field for change in changes] == ["privacy_level"]:
        return "who may see it stays as its owner says"
    return f"a later edit of {_named(changes)} stands"


def _of(changes: Sequence[HistoryChange], outcome: Outcome) -> list[HistoryChange]:
    return [change for change in changes if change.outcome is outcome]


def _named(changes: Sequence[HistoryChange]) -> str:
    names = [change.field for change in changes[:MOST_NAMED]]
    if len(changes) > MOST_NAMED:
        names.append(f"{len(changes) - MOST_NAMED} more")
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
