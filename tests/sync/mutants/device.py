"""Broken rules of the device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from client_sync import copies, exchange, local_writing, outbox, recovery, replica_file
from client_sync.replica import Replica
from client_sync.replica_file import set_meta
from scrubjay import v1
from scrubjay.memory import PrivacyLevel
from scrubjay.operation import NO_ID, Operation, OperationKind
from tests.sync.mutants.mutant import changed, mutant


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
            if self.sent_bodies():
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

    with patch.object(exchange, "refuse", mutated):
        yield


@mutant("What is taken back goes with everything about it, what waits for the server too.")
def retraction_keeps_what_waits() -> Iterator[None]:
    def mutated(self: Any, memory_id: Any) -> None:
        self._changed[memory_id] = None

    with patch.object(copies.Copies, "retract", mutated):
        yield


@mutant("Of what is taken back no byte stays in the file or its log.")
def bytes_of_what_was_taken_back_stay() -> Iterator[None]:
    with patch.object(replica_file.ReplicaFile, "forget", lambda _: True):
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
