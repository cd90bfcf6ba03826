"""Synchronizing in the background, against a remote that does what a test says."""

from __future__ import annotations

import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import timestamp_pb2

from client_sync import replica_file
from client_sync.background import FIRST_SECONDS, LONGEST_SECONDS, BackgroundSync
from client_sync.identity import Identity
from client_sync.replica import Replica
from client_sync.sync import SyncReport
from scrubjay import v1
from scrubjay.errors import DeviceRevoked, InternalError, ScrubjayError, Unavailable
from scrubjay.feed import seal_page, whole
from scrubjay.memory import ClientId, Memory, MemoryId, Micros, Subject
from scrubjay.merge import create
from scrubjay.stamp import CommitStamp, ReplicaId, Stamp, pack_field_stamps
from scrubjay.wire import to_message
from tests.waiting import patiently

ME = Identity(b"p" * 8, ClientId("phone"), Subject("user", "ann"))
ID = MemoryId("01939f2e-7a00-7000-8000-000000000001")
SECONDS = 10.0
LONG = 60.0
"""Longer than any test goes on."""


eventually = patiently(SECONDS)


class Stream:
    """A Watch stream that a test feeds."""

    def __init__(self) -> None:
        self._coming: queue.Queue[v1.WatchResponse | Exception | None] = queue.Queue()
        self.closed = threading.Event()

    def send(self, response: v1.WatchResponse | Exception) -> None:
        self._coming.put(response)

    def close(self) -> None:
        self.closed.set()
        self._coming.put(None)

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> v1.WatchResponse:
        response = self._coming.get(timeout=SECONDS)
        if response is None:
            raise StopIteration
        if isinstance(response, Exception):
            raise response
        return response


@dataclass
class Server:
    """A remote. ``failures`` are raised by the next Syncs, ``refusals`` by the next Watches."""

    failures: list[Exception] = field(default_factory=list)
    refusals: list[Exception] = field(default_factory=list)
    requests: list[v1.SyncRequest] = field(default_factory=list)
    streams: list[Stream] = field(default_factory=list)
    watched_from: list[str] = field(default_factory=list)
    before_answer: Callable[[], None] = lambda: None
    head: int = 1
    result: v1.OperationStatus.ValueType = v1.OPERATION_STATUS_APPLIED
    cancelled: threading.Event = field(default_factory=threading.Event)

    def cancel(self) -> None:
        self.cancelled.set()

    def sync(self, request: v1.SyncRequest) -> v1.SyncResponse:
        self.requests.append(request)
        self.before_answer()
        if self.failures:
            raise self.failures.pop(0)
        results = [
            v1.OperationResult(status=self.result, commit_stamp=self.head) for _ in request.batch.operations
        ]
        return v1.SyncResponse(
            directive=v1.DIRECTIVE_OK,
            results=results,
            last_sync_at=f"cursor-{self.head}",
            commit_stamp=self.head,
            server_time=timestamp_pb2.Timestamp(seconds=int(time.time())),
        )

    def watch(self, request: v1.WatchRequest) -> Stream:
        self.watched_from.append(request.last_sync_at)
        if self.refusals:
            raise self.refusals.pop(0)
        self.streams.append(Stream())
        return self.streams[-1]

    def _refuse(self, _: object) -> Any:
        raise AssertionError("nobody asks for this here")

    snapshot = reconcile = reoffer = vectors = _refuse


@dataclass
class World:
    """A replica, its server, and what the background told."""

    replica: Replica
    server: Server
    reports: list[SyncReport] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)
    cut_before: list[bool] = field(default_factory=list)
    patience: float = 0.0

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.delays.append(seconds)
        self.cut_before.append(event.is_set())
        return event.wait(min(seconds, self.patience))

    def background(self, **options: Any) -> BackgroundSync:
        given = {
            "on_change": self.reports.append,
            "on_error": self.errors.append,
            "jitter": lambda: 1.0,
            "wait": self.wait,
        }
        return BackgroundSync(self.replica, self.server, **(given | options))

    @property
    def stream(self) -> Stream:
        """The stream that is open now."""
        eventually(lambda: self.server.streams)
        return self.server.streams[-1]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with Replica.create(tmp_path / "replica.db", ME) as replica:
        yield World(replica, Server())
        assert not [each for each in threading.enumerate() if each.name.startswith("scrubjay-")]


def news(content: str, since: int, until: int) -> v1.WatchResponse:
    """One new memory on the stream."""
    return told(_whole(content, until), since, until)


def taken_back(since: int, until: int) -> v1.WatchResponse:
    """The memory is private to somebody else now."""
    return told(v1.Change(kind=v1.CHANGE_KIND_RETRACTED), since, until)


def _whole(content: str, until: int) -> v1.Change:
    memory = Memory(id=ID, content=content, created_at=Micros(1), user_id="ann")
    stamps = create(memory, Stamp(until << 16, ReplicaId(b"s" * 16))).stamps
    message = to_message(memory, CommitStamp(until)).SerializeToString()
    return whole(message, pack_field_stamps(stamps), ME.subject)


def told(change: v1.Change, since: int, until: int) -> v1.WatchResponse:
    """One change on the stream."""
    return v1.WatchResponse(
        from_sync_at=f"cursor-{since}",
        page=seal_page([(ID, CommitStamp(until), change)]),
        last_sync_at=f"cursor-{until}",
        commit_stamp=until,
        server_time=timestamp_pb2.Timestamp(seconds=int(time.time())),
    )


# --- when it synchronizes ------------------------------------------------------------------------


def test_it_synchronizes_at_the_start_and_then_watches_from_there(world: World) -> None:
    with world.background():
        eventually(lambda: world.server.watched_from)
    assert len(world.server.requests) == 1
    assert world.server.watched_from == ["cursor-1"]
    assert world.reports == world.errors == []


def test_what_is_written_here_is_sent_at_once(world: World) -> None:
    with world.background():
        eventually(lambda: world.server.streams)
        world.replica.add("likes tea")
        eventually(lambda: world.reports)
    assert [report.pushed for report in world.reports] == [1]
    assert world.replica.status().unsent == 0


def test_what_is_written_during_an_exchange_is_sent_too(world: World) -> None:
    def write_once() -> None:
        world.server.before_answer = lambda: None
        world.replica.add("meanwhile")

    world.server.before_answer = write_once
    with world.background():
        eventually(lambda: world.reports)
    assert sum(report.pushed for report in world.reports) == 1
    assert world.replica.status().unsent == 0


def test_news_on_the_stream_are_taken_in_without_a_call(world: World) -> None:
    with world.background():
        world.stream.send(news("from elsewhere", 1, 2))
        eventually(lambda: world.reports)
        assert world.replica.get(ID).content == "from elsewhere"
        assert world.replica.status().last_sync_at == "cursor-2"
    assert [report.changed for report in world.reports] == [{ID}]
    assert len(world.server.requests) == 1


@pytest.mark.parametrize(
    "response", [news("of another place", 7, 8), v1.WatchResponse(from_sync_at="cursor-1", more=True)]
)
def test_news_that_do_not_fit_are_fetched(world: World, response: v1.WatchResponse) -> None:
    with world.background():
        world.stream.send(response)
        eventually(lambda: len(world.server.requests) == 2)
    assert world.errors == []


def test_a_write_that_was_taken_along_asks_for_nothing_more(world: World) -> None:
    with world.background() as background:
        world.replica.add("likes tea")
        eventually(lambda: world.reports and world.server.streams)
        sent = len(world.server.requests)
        for _ in range(5):  # as its own wake-up does, where it comes late
            background.wake()
            eventually(lambda: not background._wake.is_set())
    assert len(world.server.requests) == sent


def test_what_another_process_wrote_is_sent_with_the_next_sign_of_life(world: World) -> None:
    with world.background():
        stream = world.stream
        with Replica.open(world.replica.file.path) as other:
            other.add("from another process")
        assert len(world.server.requests) == 1
        stream.send(v1.WatchResponse(from_sync_at="cursor-1", last_sync_at="cursor-1", commit_stamp=1))
        eventually(lambda: world.reports)
    assert [report.pushed for report in world.reports] == [1]


def test_it_is_silent_while_nothing_happens(world: World) -> None:
    with world.background():
        stream = world.stream
        for _ in range(5):
            stream.send(v1.WatchResponse(from_sync_at="cursor-1", last_sync_at="cursor-1", commit_stamp=1))
        stream.send(news("the last", 1, 2))
        eventually(lambda: world.reports)
    assert len(world.server.requests) == 1
    assert world.delays[:-1] == []  # the last one was cut short by stopping


def test_what_the_stream_takes_back_is_overwritten_by_a_synchronization(world: World) -> None:
    with world.background():
        world.stream.send(news("from elsewhere", 1, 2))
        eventually(lambda: in_files(world, b"from elsewhere"))
        world.server.head = 3
        world.stream.send(taken_back(2, 3))
        eventually(lambda: not in_files(world, b"from elsewhere"))
    assert world.errors == []


def test_what_can_not_be_overwritten_yet_is_tried_again_after_a_wait(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_file, "FORGET_SECONDS", 0.0)
    with (
        world.background(),
        closing(sqlite3.connect(world.replica.file.path, isolation_level=None)) as reader,
    ):
        world.stream.send(news("from elsewhere", 1, 2))
        eventually(lambda: world.reports)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM rows").fetchone()
        world.server.head = 3
        world.stream.send(taken_back(2, 3))
        eventually(lambda: world.delays)
        assert in_files(world, b"from elsewhere")
        reader.execute("COMMIT")
        eventually(lambda: not in_files(world, b"from elsewhere"))
    assert world.errors == []


def in_files(world: World, text: bytes) -> bool:
    """Whether any byte of the replica's files tells of the text."""
    path = world.replica.file.path
    return any(text in each.read_bytes() for each in path.parent.glob(f"{path.name}*"))


# --- errors --------------------------------------------------------------------------------------


def test_it_backs_off_from_errors_longer_each_time_up_to_the_longest(world: World) -> None:
    world.server.failures = [Unavailable("away") for _ in range(14)]
    with world.background():
        eventually(lambda: not world.server.failures)
        eventually(lambda: world.server.streams)
        delays = list(world.delays)
    assert delays[:14] == [min(LONGEST_SECONDS, FIRST_SECONDS * 2**n) for n in range(14)]
    assert [str(error) for error in world.errors] == ["away"] * 14
    assert world.server.watched_from == ["cursor-1"]


def test_the_waits_are_spread_over_their_whole_length(world: World) -> None:
    draws = iter([0.25, 0.5, 0.0, 0.0, 0.0, 0.0])
    world.server.failures = [Unavailable("away"), Unavailable("away")]
    with world.background(jitter=lambda: next(draws)):
        eventually(lambda: world.server.streams)
        delays = list(world.delays)
    assert delays[:2] == [0.25 * FIRST_SECONDS, 0.5 * 2 * FIRST_SECONDS]


def test_after_a_success_the_waits_begin_anew(world: World) -> None:
    world.server.failures = [Unavailable("away") for _ in range(3)]
    with world.background():
        eventually(lambda: world.server.streams)
        world.server.failures = [Unavailable("again")]
        world.replica.add("likes tea")
        eventually(lambda: world.reports)
        delays = list(world.delays)
    assert delays[3:] == [FIRST_SECONDS]


def test_a_stream_that_began_long_ago_cuts_no_wait_short(world: World) -> None:
    with world.background():
        world.stream.send(news("from elsewhere", 1, 2))
        eventually(lambda: world.reports)
        world.server.failures = [Unavailable("away")]
        world.replica.add("likes tea")
        eventually(lambda: len(world.reports) == 2)
        assert world.cut_before == [False]


def test_local_writes_do_not_cut_a_wait_short(world: World) -> None:
    world.server.failures = [Unavailable("away")]
    world.patience = LONG
    with world.background(jitter=lambda: 1000.0):
        eventually(lambda: world.delays)
        for number in range(20):
            world.replica.add(f"note {number}")
        assert len(world.server.requests) == 1


def test_operations_that_the_server_takes_later_are_sent_again_after_a_wait(world: World) -> None:
    world.replica.add("likes tea")
    world.server.result = v1.OPERATION_STATUS_RETRY_LATER
    with world.background():
        eventually(lambda: world.delays)
        world.server.result = v1.OPERATION_STATUS_APPLIED
        eventually(lambda: world.reports)
    assert world.replica.status().unsent == 0


def test_a_cut_stream_is_opened_again_from_where_the_replica_stands(world: World) -> None:
    with world.background():
        first = world.stream
        first.send(news("from elsewhere", 1, 2))
        world.server.head = 2
        first.send(Unavailable("cut"))
        eventually(lambda: len(world.server.streams) == 2)
    assert first.closed.is_set()
    assert world.server.watched_from == ["cursor-1", "cursor-2"]
    assert [str(error) for error in world.errors] == ["cut"]


def test_a_stream_that_never_holds_is_tried_less_and_less_and_syncs_stand_in_for_it(world: World) -> None:
    world.server.refusals = [Unavailable("no streams here") for _ in range(6)]
    with world.background():
        eventually(lambda: world.server.streams)
        eventually(lambda: len(world.server.requests) > 1)
        delays = list(world.delays)
    assert delays[:6] == [FIRST_SECONDS * 2**n for n in range(6)]


def test_a_stream_that_holds_again_ends_the_wait_of_the_other_thread(world: World) -> None:
    with world.background(jitter=lambda: 1000.0):
        stream = world.stream
        world.patience = LONG
        world.server.failures = [Unavailable("away")]
        world.replica.add("likes tea")
        eventually(lambda: len(world.delays) == 1)
        world.patience = 0.0
        stream.send(Unavailable("cut"))
        eventually(lambda: len(world.server.streams) == 2)
        assert world.reports == []
        world.stream.send(v1.WatchResponse(from_sync_at="cursor-1", last_sync_at="cursor-1", commit_stamp=1))
        eventually(lambda: world.reports)
    assert world.replica.status().unsent == 0


def test_a_server_that_answers_again_ends_the_wait_for_a_stream(world: World) -> None:
    def wait(event: threading.Event, seconds: float) -> bool:
        if threading.current_thread().name == "scrubjay-sync":
            return event.wait(0)
        world.server.failures = [Unavailable("away")]
        world.replica.add("likes tea")
        return event.wait(LONG)

    world.server.refusals = [Unavailable("away")]
    with world.background(wait=wait):
        eventually(lambda: world.server.streams)
    assert len(world.server.watched_from) == 2


@pytest.mark.parametrize("error", [InternalError("a fault"), ValueError("a bug")])
def test_any_other_error_is_told_and_survived(world: World, error: Exception) -> None:
    world.server.failures = [error]
    with world.background() as background:
        eventually(lambda: world.server.streams)
        assert background.running
    assert world.errors == [error]


def test_an_error_that_no_waiting_heals_ends_it(world: World) -> None:
    world.server.failures = [DeviceRevoked()]
    background = world.background()
    background.start()
    eventually(lambda: not background.running)
    eventually(lambda: world.errors)
    background.stop()
    assert [type(error) for error in world.errors] == [DeviceRevoked]
    assert len(world.server.requests) == 1


def test_a_revocation_on_the_stream_ends_it(world: World) -> None:
    with world.background() as background:
        world.stream.send(DeviceRevoked())
        eventually(lambda: not background.running)
        eventually(lambda: world.errors)
    assert [type(error) for error in world.errors] == [DeviceRevoked]


# --- what it calls -------------------------------------------------------------------------------


def test_an_error_of_on_change_is_told_and_survived(world: World) -> None:
    calls: list[SyncReport] = []

    def fail(report: SyncReport) -> None:
        calls.append(report)
        raise RuntimeError("no window")

    with world.background(on_change=fail):
        eventually(lambda: world.server.streams)
        world.replica.add("one")
        eventually(lambda: len(calls) == 1)
        world.stream.send(news("from elsewhere", 1, 2))
        eventually(lambda: len(calls) == 2)
        world.replica.add("two")
        eventually(lambda: len(calls) == 3)
    assert [str(error) for error in world.errors] == ["no window"] * 3


def test_an_error_of_on_error_is_logged_and_survived(world: World, caplog: pytest.LogCaptureFixture) -> None:
    def fail(error: Exception) -> None:
        raise RuntimeError("no window")

    world.server.failures = [Unavailable("away")]
    with world.background(on_error=fail):
        eventually(lambda: world.server.streams)
    assert "no window" in caplog.text


def test_without_on_error_errors_are_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.server.failures = [Unavailable("the server is away")]
    with world.background(on_error=None):
        eventually(lambda: world.server.streams)
    assert "the server is away" in caplog.text


# --- how it ends ---------------------------------------------------------------------------------


def test_stopping_ends_the_stream_and_both_threads_at_once(world: World) -> None:
    background = world.background()
    background.start()
    stream = world.stream
    began = time.monotonic()
    background.stop()
    assert time.monotonic() - began < 1
    assert stream.closed.is_set()
    assert not background.running
    assert world.errors == []
    background.stop()


@pytest.mark.parametrize("error", [None, Unavailable("away")])
def test_stopping_cuts_waits_short(world: World, error: ScrubjayError | None) -> None:
    world.patience = LONG
    world.server.failures = [] if error is None else [error]
    world.server.refusals = [Unavailable("no streams here")]
    background = world.background(jitter=lambda: 1000.0)
    background.start()
    eventually(lambda: world.delays)
    began = time.monotonic()
    background.stop()
    assert time.monotonic() - began < 1


@pytest.mark.parametrize("failures", [[], [Unavailable("cancelled")]])
def test_stopping_ends_a_call_that_goes_on(world: World, failures: list[Exception]) -> None:
    started = threading.Event()

    def block() -> None:
        started.set()
        assert world.server.cancelled.wait(SECONDS)

    world.server.before_answer = block
    world.server.failures = list(failures)
    world.replica.add("likes tea")
    background = world.background()
    background.start()
    started.wait(SECONDS)
    background.stop()
    assert not background.running
    assert len(world.server.requests) == 1
    assert world.errors == []


def test_it_can_be_stopped_by_what_it_calls(world: World) -> None:
    background = world.background(on_change=lambda _: background.stop())
    background.start()
    eventually(lambda: world.server.streams)
    world.replica.add("likes tea")
    eventually(lambda: not background.running)
    background.stop()
    assert world.errors == []


def test_writes_after_the_end_are_kept_and_wake_nobody(world: World) -> None:
    with world.background():
        eventually(lambda: world.server.streams)
    world.replica.add("likes tea")
    assert world.replica.status().unsent == 1
    assert len(world.server.requests) == 1
