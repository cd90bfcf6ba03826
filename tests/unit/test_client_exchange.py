"""What a device does with answers that no server of the model gives: each is scripted here."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from client_sync import Replica, TransferBroken, UpgradeNeeded, Wiped, synchronize
from client_sync.exchange import bodies_of, next_request
from client_sync.identity import Identity
from client_sync.outbox import Outbox
from client_sync.replica_file import set_meta
from client_sync.sync import MAX_RECOVERIES, apply_watch
from scrubjay import v1
from scrubjay.feed import seal_page, whole
from scrubjay.memory import ClientId, Memory, Micros, Subject, id_bytes, new_memory_id
from scrubjay.merge import create
from scrubjay.operation import OperationKind
from scrubjay.stamp import CommitStamp, ReplicaId, Stamp, pack_field_stamps
from scrubjay.wire import to_message, to_timestamp

PHONE = Identity(b"principa", ClientId("phone"), Subject("user", "alice"))
NOW = Micros(1_796_000_000_000_000)
AT = (NOW // 1000) << 16

Answer = Callable[[v1.SyncRequest], v1.SyncResponse]


class Scripted:
    """A server that answers each Sync as the script says, then as if nothing had happened."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self.requests: list[v1.SyncRequest] = []

    def sync(self, request: v1.SyncRequest) -> v1.SyncResponse:
        self.requests.append(request)
        answer = self._answers.pop(0) if self._answers else quiet
        return answer(request)

    def snapshot(self, request: v1.SnapshotRequest) -> Iterator[v1.SnapshotResponse]:
        raise AssertionError("no snapshot is asked for here")

    def watch(self, request: v1.WatchRequest) -> Iterator[v1.WatchResponse]:
        raise AssertionError("nothing is watched here")

    def reconcile(self, request: v1.ReconcileRequest) -> v1.ReconcileResponse:
        return v1.ReconcileResponse(results=[v1.OperationResult() for _ in request.operation_ids])

    def reoffer(self, request: v1.ReofferRequest) -> v1.ReofferResponse:
        raise AssertionError("nothing is given back here")

    def vectors(self, request: v1.VectorsRequest) -> v1.VectorsResponse:
        raise AssertionError("no embeddings are asked for here")


def answered(*results: v1.OperationResult, page: v1.Page | None = None) -> v1.SyncResponse:
    return v1.SyncResponse(
        directive=v1.DIRECTIVE_OK,
        results=results,
        page=page,
        last_sync_at=f"cursor {AT}",
        commit_stamp=AT,
        server_time=to_timestamp(NOW),
    )


def quiet(request: v1.SyncRequest, page: v1.Page | None = None) -> v1.SyncResponse:
    """Nothing changed but what is in the page; what is sent is applied."""
    applied = v1.OperationResult(status=v1.OPERATION_STATUS_APPLIED, commit_stamp=AT)
    return answered(*(applied for _ in bodies_of(request)), page=page)


def directs(directive: v1.Directive.ValueType) -> Answer:
    return lambda _request: v1.SyncResponse(directive=directive, server_time=to_timestamp(NOW))


def done_one(_request: v1.SyncRequest) -> v1.SyncResponse:
    return answered(v1.OperationResult(status=v1.OPERATION_STATUS_APPLIED, commit_stamp=AT))


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Replica]:
    with Replica.create(tmp_path / "alice.db", PHONE, wall=lambda: NOW) as replica:
        yield replica


def test_a_memory_that_was_merged_into_another_takes_its_edits_along(replica: Replica) -> None:
    mine = replica.add("I like green tea.")
    other = replica.add("I like green tea!")
    synchronize(replica, Scripted())
    twin = replica.add("i like green tea")

    def merge(request: v1.SyncRequest) -> v1.SyncResponse:
        replica.update(twin.id, {"tags.drink": True})  # while the answer is on its way
        merged = v1.OperationResult(
            status=v1.OPERATION_STATUS_MERGED_INTO, commit_stamp=AT, merged_into=id_bytes(mine.id)
        )
        return answered(merged)

    remote = Scripted(merge)
    synchronize(replica, remote)
    assert {memory.id for memory in replica.list()} == {mine.id, other.id}
    assert replica.get(mine.id).tags == {"drink"}
    (edit,) = bodies_of(remote.requests[1])
    with replica.file.reading() as sql:
        operation = Outbox(sql, PHONE).read(edit)
    assert (operation.kind, operation.memory_id) == (OperationKind.SET, mine.id)


def test_a_refused_create_takes_its_later_edits_to_the_dead_letters(replica: Replica) -> None:
    synchronize(replica, Scripted())
    tea = replica.add("tea")

    def refuse(request: v1.SyncRequest) -> v1.SyncResponse:
        replica.update(tea.id, {"content": "green tea"})
        return answered(v1.OperationResult(status=v1.OPERATION_STATUS_REJECTED, reason="no more tea"))

    report = synchronize(replica, Scripted(refuse))
    assert report.refused == 2
    first, second = replica.dead_letters()
    assert (first.reason, first.memory and first.memory.content) == ("no more tea", "tea")
    assert (second.kind, second.values) == (OperationKind.SET, {"content": "green tea"})
    assert replica.list() == []
    replica.discard_dead_letter(first.position)
    assert replica.status().dead_letters == 1


def test_a_wiped_device_keeps_no_file(replica: Replica) -> None:
    replica.add("tea")
    with pytest.raises(Wiped):
        synchronize(replica, Scripted(directs(v1.DIRECTIVE_WIPE)))
    assert list(replica.file.path.parent.iterdir()) == []


@pytest.mark.parametrize("directive", [v1.DIRECTIVE_UPGRADE, v1.DIRECTIVE_UNSPECIFIED, 99])
def test_a_directive_that_is_not_understood_asks_for_a_newer_program(
    replica: Replica, directive: v1.Directive.ValueType
) -> None:
    tea = replica.add("tea")
    with pytest.raises(UpgradeNeeded):
        synchronize(replica, Scripted(directs(directive)))
    assert replica.list() == [tea]


def test_a_server_that_only_ever_directs_is_left_in_the_end(replica: Replica) -> None:
    tea = replica.add("tea")
    forks = [directs(v1.DIRECTIVE_FORK)] * (MAX_RECOVERIES + 1)
    remote = Scripted(*forks)
    with pytest.raises(TransferBroken):
        synchronize(replica, remote)
    assert synchronize(replica, Scripted()).pushed == 1
    assert replica.list() == [tea]


def test_an_answer_of_too_few_results_is_no_answer(replica: Replica) -> None:
    synchronize(replica, Scripted())
    replica.add("tea")
    with pytest.raises(TransferBroken):
        synchronize(replica, Scripted(lambda _request: answered()))
    assert replica.status().unsent == 1


def test_what_the_server_takes_later_stays_and_ends_the_run(replica: Replica) -> None:
    synchronize(replica, Scripted())
    replica.add("tea")
    later = v1.OperationResult(status=v1.OPERATION_STATUS_RETRY_LATER, reason="model")
    report = synchronize(replica, Scripted(*[lambda _request: answered(later)] * 5))
    assert (report.pushed, report.unsent) == (0, 1)
    assert synchronize(replica, Scripted()).pushed == 1


def test_a_clock_that_is_ahead_is_corrected_and_the_edit_stamped_anew(tmp_path: Path) -> None:
    ahead = Micros(NOW + 3600 * 1_000_000)
    with Replica.create(tmp_path / "ahead.db", PHONE, wall=lambda: ahead, monotonic=lambda: 0) as replica:
        tea = replica.add("tea")
        later = v1.OperationResult(status=v1.OPERATION_STATUS_RETRY_LATER, reason="clock")
        remote = Scripted(quiet, lambda _request: answered(later))
        assert synchronize(replica, remote).pushed == 1
        times = [v1.Operation.FromString(bodies_of(r)[0]).time >> 16 for r in remote.requests[1:]]
        assert times == [ahead // 1000, NOW // 1000]
        assert replica.list() == [tea]


def test_an_answer_is_dropped_where_another_process_sent_a_batch_meanwhile(replica: Replica) -> None:
    synchronize(replica, Scripted())

    def while_another_process_sends(request: v1.SyncRequest) -> v1.SyncResponse:
        with Replica.open(replica.file.path, wall=lambda: NOW) as other:
            other.add("tea")
            assert len(bodies_of(next_request(other))) == 1
        return quiet(request)

    server = Scripted(while_another_process_sends)
    report = synchronize(replica, server)
    assert (report.pushed, report.unsent) == (1, 0)
    assert [len(bodies_of(request)) for request in server.requests] == [0, 1]


def test_a_fork_that_another_process_on_the_file_brought_about_is_none(replica: Replica) -> None:
    synchronize(replica, Scripted())

    def meanwhile(request: v1.SyncRequest) -> v1.SyncResponse:
        assert not bodies_of(request)
        replica.add("tea")
        next_request(replica)  # as another process does before it sends
        return directs(v1.DIRECTIVE_FORK)(request)

    report = synchronize(replica, Scripted(meanwhile))
    assert (report.forked, report.pushed) == (False, 1)


def news(number: int) -> v1.Page:
    """One memory of another client's, new."""
    memory_id = new_memory_id(NOW // 1000, bytes([number] * 10))
    laptop = ClientId("laptop")
    memory = Memory(id=memory_id, user_id="alice", content="tea", created_at=NOW, owner_client_id=laptop)
    stamps = create(memory, Stamp(AT, ReplicaId(b"a laptop's file."))).stamps
    message = to_message(memory, CommitStamp(AT)).SerializeToString()
    change = whole(message, pack_field_stamps(stamps), PHONE.subject)
    return seal_page([(memory_id, CommitStamp(AT), change)])


def test_no_step_of_an_exchange_looks_through_all_memories(replica: Replica) -> None:
    synchronize(replica, Scripted())
    statements: set[str] = set()
    with replica.file.reading() as sql:
        sql.set_trace_callback(statements.add)
    tea = replica.add("tea")
    replica.touch(tea.id)
    synchronize(replica, Scripted())
    replica.update(tea.id, {"tags.drink": True})
    synchronize(replica, Scripted(lambda request: quiet(request, page=news(1))))
    response = v1.WatchResponse(from_sync_at=f"cursor {AT}", page=news(2), last_sync_at=f"cursor {AT}")
    assert apply_watch(replica, response) is not None
    replica.delete(tea.id)
    synchronize(replica, Scripted())
    with replica.file.reading() as sql:
        sql.set_trace_callback(None)
        asked = map(str.strip, statements)
        plans = {
            one: sql.execute(f"EXPLAIN QUERY PLAN {one}").fetchall()
            for one in asked
            if one.startswith(("SELECT", "INSERT", "UPDATE", "DELETE"))
        }
    assert [one for one, plan in plans.items() if any("SCAN rows" in step[3] for step in plan)] == []
    assert any("touches" in one and "SELECT" in one for one in plans)


def test_a_write_that_is_sent_at_once_has_its_number_when_it_is_on_disk(replica: Replica) -> None:
    synchronize(replica, Scripted())
    replica.on_write(lambda: None)
    replica.add("tea")
    with sqlite3.connect(replica.file.path) as other:
        (before,) = other.execute("PRAGMA data_version").fetchone()
        first = next_request(replica)
        (after,) = other.execute("PRAGMA data_version").fetchone()
    other.close()
    assert before == after, "sending wrote into the file again"
    replica.add("milk")
    assert bodies_of(next_request(replica)) == bodies_of(first) != [], "a batch changed while it was sent"
    assert synchronize(replica, Scripted(done_one, done_one)).pushed == 2


def test_nothing_is_numbered_before_a_first_load_and_while_a_replica_recovers(replica: Replica) -> None:
    replica.on_write(lambda: None)
    replica.add("tea")
    with replica.file.reading() as sql:
        assert Outbox(sql, PHONE).sent_bodies() == []
    synchronize(replica, Scripted(quiet, done_one))
    with replica.file.transaction(durable=True) as sql:
        set_meta(sql, reload=1)
    replica.add("milk")
    with replica.file.reading() as sql:
        assert Outbox(sql, PHONE).sent_bodies() == []
