"""Mutants: switches that each break one rule of sync in the real code. The suite must catch every one.

``python -m tests.sync.mutants`` looks for runs that catch each, and prints by which check: the shortest ones
lie in ``test_mutants.py``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from client_sync import copies, exchange, local_writing, outbox, recovery, replica_file
from client_sync.replica import Replica
from client_sync.replica_file import set_meta
from scrubjay import v1
from scrubjay.memory import PrivacyLevel, Viewer
from scrubjay.merge import Outcome
from scrubjay.operation import NO_ID, Operation, OperationKind
from scrubjay.stamp import CommitStamp, unpack_field_stamps
from server import feed
from server.ingest import batch, counts, offers
from server.store import feed_reading, memory_store, reading, replica_writing, replicas, writing
from server.store.memory_store import FeedRow
from server.store.rows import StoredMemory
from tests.sync.runs import failure, script, sqlite_places

Switch = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A broken rule: its name, the rule in words, and the switch that breaks it while it is entered."""

    name: str
    rule: str
    switch: Switch


MUTANTS: dict[str, Mutant] = {}


def mutant(rule: str) -> Callable[[Callable[[], Iterator[None]]], Callable[[], Iterator[None]]]:
    """Register a switch under its function's name."""

    def registered(switch: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
        name = switch.__name__.replace("_", " ")
        MUTANTS[name] = Mutant(name, rule, contextmanager(switch))
        return switch

    return registered


@contextmanager
def changed(owner: Any, name: str, change: Callable[[Any], Any]) -> Iterator[None]:
    """For the block ``owner.name`` is what ``change`` makes of it."""
    with patch.object(owner, name, change(getattr(owner, name))):
        yield


# --- the feed -------------------------------------------------------------------------------------


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
            stamps = unpack_field_stamps(row.field_stamps)
            if own is not None and own.get(max(stamps, key=lambda name: stamps[name])) == max(
                stamps.values()
            ):
                return None
            return tell(row, subject, base, own)

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


# --- taking operations ----------------------------------------------------------------------------


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

    with changed(batch, "replay", change):
        yield


@mutant("Only its owner's client writes a memory's privacy.")
def privacy_written_by_anybody() -> Iterator[None]:
    def change(replay: Any) -> Any:
        def mutated(state: Any, operation: Any, author: Any) -> Any:
            return replay(state, operation, author if state is None else state.memory.owner_client_id)

        return mutated

    with changed(batch, "replay", change):
        yield


@mutant("Beside an operation that nobody can read the others are taken.")
def poison_stops_the_batch() -> Iterator[None]:
    def change(hindrance: Any) -> Any:
        return lambda self, one: "clock" if one.operation is None else hindrance(self, one)

    with changed(batch.Batch, "hindrance", change):
        yield


@mutant("What waits for a memory is taken once it comes.")
def waiting_operations_forgotten() -> Iterator[None]:
    with patch.object(batch.Batch, "_end_wait", lambda *_: None):
        yield


@mutant("A stamp far ahead of the server's clock is not taken.")
def stamps_of_the_future_taken() -> Iterator[None]:
    with patch.object(batch, "MOST_AHEAD_MILLIS", 1 << 50):
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


# --- restoring ------------------------------------------------------------------------------------


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


# --- the device -----------------------------------------------------------------------------------


@mutant("A page's rows and its cursor land together.")
def cursor_before_rows() -> Iterator[None]:
    def change(apply_response: Any) -> Any:
        def mutated(replica: Any, request: v1.SyncRequest, response: v1.SyncResponse) -> Any:
            with replica.file.transaction(durable=False) as sql:
                set_meta(sql, cursor=response.last_sync_at)
            moved = v1.SyncRequest()
            moved.CopyFrom(request)
            moved.last_sync_at = response.last_sync_at
            return apply_response(replica, moved, response)

        return mutated

    from client_sync import sync

    with changed(sync, "apply_response", change):
        yield


@mutant("What an app saved survives a power failure.")
def writes_not_durable() -> Iterator[None]:
    def change(writing: Any) -> Any:
        @contextmanager
        def mutated(self: Any) -> Iterator[Any]:
            with (
                changed(
                    replica_file.ReplicaFile,
                    "transaction",
                    lambda kept: lambda f, durable: kept(f, durable=False),
                ),
                writing(self) as write,
            ):
                yield write

        return mutated

    with changed(Replica, "_writing", change):
        yield


@mutant("A batch that was sent keeps its bytes until it is answered.")
def sent_operations_stamped_anew() -> Iterator[None]:
    def change(next_batch: Any) -> Any:
        def mutated(self: Any, *, new: bool) -> Any:
            if self._numbered():
                self.restamp(1_796_000_000_000)
            return next_batch(self, new=new)

        return mutated

    with changed(outbox.Outbox, "next_batch", change):
        yield


@mutant("Only operations that were never sent are folded.")
def sent_operations_folded() -> Iterator[None]:
    def change(add: Any) -> Any:
        def mutated(self: Any, operation: Operation, after: Any) -> Any:
            of = type(self).of

            def unsent(self: Any, memory_id: Any) -> Any:
                return [
                    replace(each, number=0, operation=replace(each.operation, operation_id=NO_ID))
                    for each in of(self, memory_id)
                ]

            with patch.object(type(self), "of", unsent):
                return add(self, operation, after)

        return mutated

    with changed(outbox.Outbox, "add", change):
        yield


@mutant("An answered operation stays on top until the cursor has passed it.")
def overlay_dropped_at_the_answer() -> Iterator[None]:
    def change(overlaid: Any) -> Any:
        def mutated(self: Any, *args: Any) -> Any:
            of = type(self._outbox).of

            def unanswered(box: Any, each: Any) -> Any:
                return [entry for entry in of(box, each) if entry.result is None]

            with patch.object(type(self._outbox), "of", unanswered):
                return overlaid(self, *args)

        return mutated

    with changed(copies.Copies, "_overlaid", change):
        yield


@mutant("An edit that is refused for its time is stamped anew.")
def edits_of_a_fast_clock_kept() -> Iterator[None]:
    with patch.object(outbox.Outbox, "restamp", lambda *_: set()):
        yield


@mutant("A device's clock advances past every stamp that it sees.")
def clock_not_observed() -> Iterator[None]:
    def change(stamp: Any) -> Any:
        return lambda self, _state: stamp(self, None)

    with changed(local_writing.LocalWriting, "stamp", change):
        yield


@mutant("What is refused for good is kept where its user sees it.")
def refusals_forgotten() -> Iterator[None]:
    def mutated(_sql: Any, box: Any, entry: Any, *_: Any) -> int:
        box.drop([entry])
        return 0

    with patch.object(exchange, "_bury_letters", mutated):
        yield


@mutant("What is taken back goes with everything about it, what waits for the server too.")
def retraction_keeps_what_waits() -> Iterator[None]:
    def mutated(self: Any, memory_id: Any) -> None:
        self._changed[memory_id] = None

    with patch.object(copies.Copies, "retract", mutated):
        yield


@mutant("LOCAL_ONLY never leaves its device.")
def local_only_sent() -> Iterator[None]:
    def mutated(self: Any, state: Any) -> Any:
        memory = replace(state.memory, privacy_level=PrivacyLevel.PRIVATE)
        stamp = state.latest()
        return self.queue(Operation(NO_ID, memory.id, OperationKind.CREATE, stamp, memory=memory), None)

    with patch.object(local_writing.LocalWriting, "keep_local", mutated):
        yield


@mutant("What is here stays until what is loaded anew is here.")
def old_rows_dropped_before_the_load() -> Iterator[None]:
    def change(load: Any) -> Any:
        def mutated(replica: Any, *rest: Any) -> Any:
            with replica.file.transaction(durable=True) as sql:
                sql.execute("DELETE FROM rows WHERE commit_stamp > 0")
            return load(replica, *rest)

        return mutated

    with changed(recovery, "load", change):
        yield


@mutant("A queue is never sent under another principal.")
def principal_not_said() -> Iterator[None]:
    def change(next_request: Any) -> Any:
        def mutated(*args: Any, **kwargs: Any) -> Any:
            request = next_request(*args, **kwargs)
            request.principal = b""
            return request

        return mutated

    from client_sync import sync

    with changed(sync, "next_request", change):
        yield


def catch(name: str, first: int, runs: int) -> tuple[int, str] | None:
    """The first seed from ``first`` on whose run catches the mutant, and the check that does."""
    with sqlite_places() as places:
        for seed in range(first, first + runs):
            with MUTANTS[name].switch():
                error = failure(script(seed), places, seed)
            if error is not None:
                return seed, check_of(error)
    return None


_CHECKS = ("invariants.py", "occasions.py")


def check_of(error: BaseException) -> str:
    """The invariant that an error comes from, else the error's own name."""
    trace, name = error.__traceback__, type(error).__name__
    while trace is not None:
        code = trace.tb_frame.f_code
        if Path(code.co_filename).name in _CHECKS and not code.co_name.startswith("<"):
            return code.co_name
        trace = trace.tb_next
    return name


def main() -> int:
    """Look for a run that catches each mutant; how many none was found for, at most 1."""
    left = 0
    for name in MUTANTS:
        found = catch(name, 0, 300)
        left += found is None
        print(f"{name}: {found}", flush=True)
    return min(left, 1)


if __name__ == "__main__":
    sys.exit(main())
