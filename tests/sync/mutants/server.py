"""Broken rules of the server: its feed, how it takes operations, and how it is restored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from client_sync import recovery
from scrubjay.memory import Viewer
from scrubjay.merge import Outcome
from scrubjay.stamp import CommitStamp
from server import feed
from server.ingest import counts, merging, offers
from server.store import feed_reading, memory_store, reading, replica_writing, replicas, writing
from server.store.memory_store import FeedRow
from server.store.rows import StoredMemory
from tests.sync.mutants.mutant import changed, mutant


@mutant("A page ends behind one commit stamp, not behind one millisecond.")
def page_edge_by_time_not_by_stamp() -> Iterator[None]:
    def change(read_page: Any) -> Any:
        def mutated(*args: Any, **kwargs: Any) -> Any:
            page = read_page(*args, **kwargs)
            if not page.more:
                return page
            return replace(page, position=replace(page.position, stamp=page.position.stamp | 0xFFFF))

        return mutated

    from server import pull

    with changed(pull, "read_page", change):
        yield


@mutant("The feed leaves nothing out because of who created it.")
def filter_by_creator() -> Iterator[None]:
    def change(tell: Any) -> Any:
        def mutated(item: Any, subject: Any, viewer: Viewer, *rest: Any) -> Any:
            mine = isinstance(item, FeedRow) and item.owner_client_id == viewer.client_id
            return None if mine else tell(item, subject, viewer, *rest)

        return mutated

    with changed(feed, "_change", change):
        yield


@mutant("A row is left out only where every change since the base came in this call.")
def left_out_by_newest_change_only() -> Iterator[None]:
    def change(tell: Any) -> Any:
        def mutated(row: Any, subject: Any, base: Any, own: Any) -> Any:
            newest_is_own = own is not None and own.commit_stamp == row.commit_stamp
            return None if newest_is_own else tell(row, subject, base, own)

        return mutated

    with changed(feed, "_living_change", change):
        yield


@mutant("A part is of what changed since the base, what the reader surely holds.")
def part_from_stamp_instead_of_base() -> Iterator[None]:
    def change(read_page: Any) -> Any:
        def mutated(reading: Any, key: Any, subject: Any, viewer: Any, position: Any, **kwargs: Any) -> Any:
            nearer = replace(position, base=position.stamp)
            page = read_page(reading, key, subject, viewer, nearer, **kwargs)
            if not page.more:
                return page
            return replace(page, position=replace(page.position, base=position.base))

        return mutated

    from server import pull

    with changed(pull, "read_page", change):
        yield


@mutant("What is taken back is told to whoever could see it.")
def retraction_not_sent() -> Iterator[None]:
    with patch.object(feed_reading.FeedReading, "retractions_after", lambda *_: []):
        yield


@mutant("A deletion is told to whoever could see the memory.")
def deletion_not_sent() -> Iterator[None]:
    with patch.object(feed_reading.FeedReading, "graves_after", lambda *_: []):
        yield


@mutant("Private memories are their owner's alone.")
def private_shown_to_all() -> Iterator[None]:
    with patch.object(Viewer, "sees", lambda viewer, memory: viewer.may_enter(memory.scope)):
        yield


@mutant("A device sees its scopes alone.")
def scopes_ignored() -> Iterator[None]:
    with patch.object(Viewer, "may_enter", lambda *_: True):
        yield


@mutant("A cursor is bound to its client.")
def cursor_not_bound_to_its_client() -> Iterator[None]:
    from server.cursor import Cursors

    def change(mac: Any) -> Any:
        return lambda self, key, _client_id, position: mac(self, replace(key, stream=""), "", position)

    with changed(Cursors, "_mac", change):
        yield


@mutant("Whoever is behind the horizon loads anew.")
def horizon_not_raised() -> Iterator[None]:
    with patch.object(writing.Writing, "raise_horizon", lambda *_: None):
        yield


@mutant("One number with other bytes is a fork.")
def no_chain_check() -> Iterator[None]:
    def mutated(upload: Any, mark: Any, _client_id: Any) -> Any:
        number = 0 if mark is None else mark.number
        return min(max(0, number - (upload.first_number - 1)), len(upload.encoded))

    from server import pull
    from server.ingest import taking

    with patch.object(taking, "answered_before", mutated), patch.object(pull, "answered_before", mutated):
        yield


@mutant("An operation that is known is answered as the first time, and not taken again.")
def duplicate_applied_twice() -> Iterator[None]:
    with (
        patch.object(replicas.ReplicaReading, "operation_results", lambda *_: {}),
        patch.object(replica_writing.ReplicaWriting, "save_operations", lambda *_: None),
    ):
        yield


@mutant("A deleted id never lives again.")
def grave_forgotten() -> Iterator[None]:
    with (
        patch.object(feed_reading.FeedReading, "graves", lambda *_: {}),
        patch.object(reading.Reading, "buried", lambda *_: {}),
    ):
        yield


@mutant("The higher stamp stands, whichever edit comes last.")
def last_to_come_stands() -> Iterator[None]:
    with patch("scrubjay.merge._wins", lambda *_: True):
        yield


@mutant("An edit of a value that its author had not seen is told to be concurrent.")
def base_ignored() -> Iterator[None]:
    def change(replay: Any) -> Any:
        def mutated(state: Any, operation: Any, author: Any) -> Any:
            after, results = replay(state, operation, author)
            clean = tuple(
                replace(result, outcome=Outcome.APPLIED)
                if result.outcome is Outcome.APPLIED_CONCURRENT
                else result
                for result in results
            )
            return after, clean

        return mutated

    with changed(merging, "replay", change):
        yield


@mutant("Only its owner's client writes a memory's privacy.")
def privacy_written_by_anybody() -> Iterator[None]:
    def change(replay: Any) -> Any:
        def mutated(state: Any, operation: Any, author: Any) -> Any:
            return replay(state, operation, author if state is None else state.memory.owner_client_id)

        return mutated

    with changed(merging, "replay", change):
        yield


@mutant("Beside an operation that nobody can read the others are taken.")
def poison_stops_the_batch() -> Iterator[None]:
    def change(hindrance: Any) -> Any:
        return lambda self, one: "clock" if one.operation is None else hindrance(self, one)

    with changed(merging.Merging, "hindrance", change):
        yield


@mutant("What waits for a memory is taken once it comes.")
def waiting_operations_forgotten() -> Iterator[None]:
    with patch.object(merging.Merging, "_end_wait", lambda *_: None):
        yield


@mutant("A stamp far ahead of the server's clock is not taken.")
def stamps_of_the_future_taken() -> Iterator[None]:
    with patch.object(merging, "MOST_AHEAD_MILLIS", 1 << 50):
        yield


@mutant("A shared memory that becomes private is noted as taken back.")
def retraction_not_written() -> Iterator[None]:
    with patch.object(writing, "_lost", lambda *_: False):
        yield


@mutant("A replica's total replaces the one before it; it is not added.")
def totals_added() -> Iterator[None]:
    def mutated(one: Any, other: Any) -> Any:
        return replace(one, total=one.total + other.total)

    with patch.object(counts, "_join", mutated):
        yield


@mutant("A register that changed has the commit stamp of its change.")
def register_keeps_its_old_commit() -> Iterator[None]:
    def change(edited: Any) -> Any:
        def mutated(self: StoredMemory, state: Any, commit_stamp: CommitStamp) -> StoredMemory:
            after: StoredMemory = edited(self, state, commit_stamp)
            return replace(after, field_commits=self.field_commits)

        return mutated

    with changed(StoredMemory, "edited", change):
        yield


@mutant("A restore begins a new epoch.")
def epoch_not_begun() -> Iterator[None]:
    with patch.object(memory_store.MemoryStore, "begin_epochs", lambda *_: 0):
        yield


@mutant("Nothing that is given back overrides a grave.")
def grave_forgotten_at_restore() -> Iterator[None]:
    def change(offer: Any) -> Any:
        def mutated(self: Any, offered: Any) -> Any:
            self._graves.pop(offered.memory_id, None)
            return offer(self, offered)

        return mutated

    with (
        changed(offers._Offers, "offer", change),
        patch.object(reading.Reading, "buried", lambda *_: {}),
    ):
        yield


@mutant("A device gives back what it holds.")
def nothing_given_back() -> Iterator[None]:
    with patch.object(recovery, "_held", lambda *_: []):
        yield
