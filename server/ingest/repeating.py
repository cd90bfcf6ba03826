"""Saying again, inside one unit: which new memories are stored already, and what those get of them."""

from __future__ import annotations

from collections.abc import Sequence

from scrubjay.memory import ClientId, Memory, Micros
from scrubjay.merge import Outcome, State, Write, apply, get
from scrubjay.operation import OperationKind
from scrubjay.stamp import Stamp
from scrubjay.validity import violations
from server.ingest.author import Author, written
from server.ingest.duplicates import Repeat, repeat_of
from server.ingest.edits import stamp_after
from server.ingest.wording import Likeness
from server.store.history import HistoryChange
from server.store.rows import StoredMemory, StreamKey
from server.store.writing import Writing

SAID_AGAIN = "said again"
"""The reason, in History, of what another wording left."""


def repeats(
    writing: Writing, key: StreamKey, new: Sequence[tuple[Memory, int]], client_id: ClientId, now: Micros
) -> list[Repeat | None]:
    """Of each new memory of the stream, given with the mark of its text, the one that says it already: a
    stored one, or one of ``new`` before it. What names a successor elsewhere is history, and stored as it
    is."""
    marks = {mark for _, mark in new}
    marked = writing.marked(key, marks)
    mine = {memory.id for memory, _ in new}
    fresh: dict[int, list[Memory]] = {}
    found: list[Repeat | None] = []
    for memory, mark in new:
        known = [one.memory for one in writing.alike(key, mark, memory)] if mark in marked else []
        known += fresh.get(mark, [])
        past = memory.superseded_by is not None and memory.superseded_by not in mine
        found.append(None if past else repeat_of(memory, known, client_id, now))
        if found[-1] is None:
            fresh.setdefault(mark, []).append(memory)
    return found


def say_again(
    writing: Writing, key: StreamKey, repeat: Repeat, new: Memory, author: Author, now: Micros
) -> tuple[StoredMemory, bool]:
    """Give the memory that stands what ``new`` has and it lacks: tags, keys of metadata, and in History the
    other wording. The memory, and whether it got anything."""
    old = writing.get_many(key.incarnation, [repeat.of])[repeat.of]
    if not lacking(old.memory, new) and repeat.likeness is Likeness.SAME:
        return old, False
    (commit_stamp,) = writing.stamps(key, 1, now // 1000)
    stamp = stamp_after(old, commit_stamp, author)
    state, changes = said_again(old, new, stamp, author.client_id)
    stored = old if state is old.state else old.edited(state, commit_stamp)
    if stored is not old:
        writing.replace(key, old, stored)
    row = author.history_row(old.memory, OperationKind.SET, changes, stamp, commit_stamp)
    writing.add_history(key, [row._replace(reason=SAID_AGAIN)])
    return stored, True


def said_again(
    old: StoredMemory, new: Memory, stamp: Stamp, client_id: ClientId
) -> tuple[State, list[HistoryChange]]:
    """The state of a memory with what ``new`` has and it lacks, where there is room for it, and what History
    keeps of it."""
    writes = [
        Write(field, get(new, field), stamp, old.state.stamps.get(field))
        for field in lacking(old.memory, new)
    ]
    state, results = apply(old.state, writes, client_id)
    if violations(state.memory) or all(result.outcome is Outcome.SUPERSEDED for result in results):
        state, results = old.state, ()
    return state, [*written(results), *_wording(old, new, stamp)]


def lacking(memory: Memory, new: Memory) -> list[str]:
    """The registers of tags and metadata that only ``new`` has."""
    tags = [f"tags.{tag}" for tag in sorted(new.tags - memory.tags)]
    return tags + [f"metadata.{name}" for name in sorted(new.metadata.keys() - memory.metadata.keys())]


def _wording(old: StoredMemory, new: Memory, stamp: Stamp) -> list[HistoryChange]:
    """The other wording, as an edit that did not stand."""
    content = old.memory.content
    if content == new.content:
        return []
    base = old.state.stamps.get("content")
    return [HistoryChange("content", content, new.content, stamp, base, Outcome.SUPERSEDED)]
