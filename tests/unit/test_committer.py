"""Group commit, on a real SQLite file."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from scrubjay.errors import DeadlineExceeded, MemoryNotFound, ServerBusy, StorageUnavailable, Unavailable
from server.store.committer import MIN_BATCH, Committer, _Pace
from server.store.memory_store import MemoryStore, StreamKey, Writing
from server.store.transaction import Transaction, Transactions
from tenants.database import open_engine
from tenants.tenant import Incarnation
from tests.stored import ACME, ALICE, BOB, NOW, NOW_MILLIS, add, insert, memory

PATIENCE = 10
QUIET = StreamKey(Incarnation("quiet"), ALICE.stream)


class Watched(Transactions):
    """Transactions that count themselves, and fail on demand when they commit."""

    def __init__(self, path: Path) -> None:
        super().__init__(open_engine(f"sqlite:///{path}"), read_only=False)
        self.count = 0
        self.fail: Exception | None = None

    @contextmanager
    def begin(self) -> Iterator[Transaction]:
        self.count += 1
        with super().begin() as transaction:
            yield transaction
            if self.fail:
                raise self.fail


@pytest.fixture
def path(shard_file: Path, tmp_path: Path) -> Path:
    path = tmp_path / "shard.db"
    path.write_bytes(shard_file.read_bytes())
    return path


@pytest.fixture
def transactions(path: Path) -> Iterator[Watched]:
    transactions = Watched(path)
    yield transactions
    transactions.close()


@pytest.fixture
def committer(transactions: Watched) -> Iterator[Committer]:
    committer = Committer(transactions, max_batch=8, max_queue=16)
    yield committer
    committer.close()
    assert not committer._thread.is_alive()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(32) as pool:
        yield pool


class Gate:
    """A unit that keeps the committer busy until it is opened."""

    def __init__(self, committer: Committer, pool: ThreadPoolExecutor) -> None:
        self.entered, self._opened = threading.Event(), threading.Event()
        self.answer = pool.submit(committer.write, [], self._unit)
        assert self.entered.wait(PATIENCE)

    def _unit(self, _writing: Writing) -> str:
        self.entered.set()
        assert self._opened.wait(PATIENCE)
        return "passed"

    def open(self) -> None:
        self._opened.set()
        assert self.answer.result(PATIENCE) == "passed"


def queued(committer: Committer, count: int) -> None:
    """Wait until ``count`` units wait."""
    reached = threading.Event()
    while len(committer._queue) < count:
        assert not reached.wait(0.001)


def advance(writing: Writing) -> int:
    (stamp,) = writing.stamps(ALICE, 1, NOW_MILLIS)
    return stamp


def head(path: Path) -> int:
    with MemoryStore(f"sqlite:///{path}") as store, store.read() as reading:
        found = reading.head(ALICE)
    return found.head - (NOW_MILLIS << 16) + 1 if found else 0


def test_what_gathers_shares_a_commit(
    committer: Committer, transactions: Watched, pool: ThreadPoolExecutor
) -> None:
    gate = Gate(committer, pool)
    answers = [pool.submit(committer.write, [ALICE], advance) for _ in range(16)]
    queued(committer, 16)
    before = transactions.count
    gate.open()
    stamps = sorted(answer.result(PATIENCE) for answer in answers)
    assert stamps == list(range(NOW_MILLIS << 16, (NOW_MILLIS << 16) + 16))
    assert transactions.count - before == 2


def test_units_see_what_the_ones_before_them_wrote(
    committer: Committer, pool: ThreadPoolExecutor, path: Path
) -> None:
    def once(writing: Writing) -> bytes:
        found = writing.request(ACME, "r", NOW)
        if found is None:
            number = str(advance(writing)).encode()
            writing.save_request(ACME, "r", b"digest", number, NOW)
            return number
        return found[1]

    gate = Gate(committer, pool)
    answers = [pool.submit(committer.write, [ALICE], once) for _ in range(12)]
    gate.open()
    assert len({answer.result(PATIENCE) for answer in answers}) == 1
    assert head(path) == 1


def test_a_unit_that_raises_is_undone_alone(
    committer: Committer, pool: ThreadPoolExecutor, path: Path
) -> None:
    hooks: list[str] = []

    def good(writing: Writing) -> int:
        writing.on_commit(lambda: hooks.append("good"))
        insert(writing, ALICE, [memory()])
        return writing.count(ALICE)

    def bad(writing: Writing) -> int:
        writing.on_commit(lambda: hooks.append("bad"))
        insert(writing, ALICE, [memory()])
        writing.save_request(ACME, "bad", b"", b"", NOW)
        raise MemoryNotFound("x")

    gate = Gate(committer, pool)
    answers = []
    for number, unit in enumerate([good, bad, good], 1):
        answers.append(pool.submit(committer.write, [ALICE], unit))
        queued(committer, number)
    gate.open()
    assert [answers[0].result(PATIENCE), answers[2].result(PATIENCE)] == [1, 2]
    with pytest.raises(MemoryNotFound):
        answers[1].result(PATIENCE)
    assert hooks == ["good", "good"]
    with MemoryStore(f"sqlite:///{path}") as store, store.read() as reading:
        assert len(reading.history(ACME, ALICE, None, 10)) == reading.count(ALICE) == 2
        assert reading.request(ACME, "bad", NOW) is None
    assert head(path) == 2


def test_a_stream_that_nothing_was_written_to_is_not_there(committer: Committer, path: Path) -> None:
    def fail(writing: Writing) -> None:
        advance(writing)
        raise MemoryNotFound("x")

    with pytest.raises(MemoryNotFound):
        committer.write([ALICE], fail)
    assert committer.write([ALICE, BOB], lambda writing: writing.head(ALICE)) is None
    with MemoryStore(f"sqlite:///{path}") as store, store.read() as reading:
        assert reading.head(ALICE) is reading.head(BOB) is None


def test_a_unit_writes_only_to_the_streams_it_named(committer: Committer) -> None:
    for write in (advance, lambda writing: writing.put_vectors(ALICE, "s", [])):
        with pytest.raises(ValueError, match="named"):
            committer.write([BOB], write)


@pytest.mark.parametrize("fault", [StorageUnavailable(), OSError("disk full")])
def test_a_commit_that_fails_fails_all_of_its_callers(
    committer: Committer, transactions: Watched, pool: ThreadPoolExecutor, path: Path, fault: Exception
) -> None:
    hooks: list[str] = []

    def unit(writing: Writing) -> int:
        writing.on_commit(lambda: hooks.append("published"))
        return advance(writing)

    gate = Gate(committer, pool)
    answers = [pool.submit(committer.write, [ALICE], unit) for _ in range(8)]
    queued(committer, 8)
    transactions.fail = fault
    gate._opened.set()
    waited: list[Future[Any]] = [gate.answer, *answers]
    for answer in waited:
        with pytest.raises(StorageUnavailable) as caught:
            answer.result(PATIENCE)
        assert "disk full" not in str(caught.value)
    assert hooks == []
    assert head(path) == 0
    transactions.fail = None
    committer.write([ALICE], unit)
    assert hooks == ["published"]
    assert head(path) == 1


def test_a_hook_runs_before_the_caller_is_answered_and_may_fail(committer: Committer) -> None:
    seen = []

    def unit(writing: Writing) -> int:
        writing.on_commit(lambda: 1 // 0)
        writing.on_commit(lambda: seen.append("second"))
        return advance(writing)

    assert committer.write([ALICE], unit)
    assert seen == ["second"]


def test_a_full_queue_refuses_more(committer: Committer, pool: ThreadPoolExecutor) -> None:
    gate = Gate(committer, pool)
    answers = [pool.submit(committer.write, [ALICE], advance) for _ in range(16)]
    queued(committer, 16)
    with pytest.raises(ServerBusy):
        committer.write([ALICE], advance)
    gate.open()
    assert len({answer.result(PATIENCE) for answer in answers}) == 16


def test_a_tenant_that_floods_neither_keeps_another_out_nor_makes_it_wait_for_a_second_turn(
    committer: Committer, transactions: Watched, pool: ThreadPoolExecutor
) -> None:
    gate, order = Gate(committer, pool), []

    def noted(tenant: str) -> Callable[[Writing], None]:
        return lambda _writing: order.append((transactions.count, tenant))

    flood = [pool.submit(committer.write, [ALICE], noted("flooding")) for _ in range(16)]
    queued(committer, 16)
    quiet = [pool.submit(committer.write, [QUIET], noted("quiet"))]
    quiet.append(pool.submit(committer.write, [], noted("quiet"), tenant=QUIET.incarnation))
    refused = list(islice(as_completed(flood, PATIENCE), 2))
    for answer in refused:
        with pytest.raises(ServerBusy) as caught:
            answer.result()
        assert caught.value.retry_after_seconds
    before = transactions.count
    gate.open()
    for answer in {*quiet, *flood} - {*refused}:
        answer.result(PATIENCE)
    assert [tenant for _, tenant in order[:4]] == ["flooding", "quiet"] * 2
    assert {batch for batch, tenant in order if tenant == "quiet"} == {before + 1}


def test_a_caller_whose_deadline_passes_before_its_turn_stores_nothing(
    committer: Committer, pool: ThreadPoolExecutor, path: Path
) -> None:
    gate = Gate(committer, pool)
    with pytest.raises(DeadlineExceeded, match="nothing was stored"):
        committer.write([ALICE], advance, timeout_seconds=0.01)
    gate.open()
    committer.write([ALICE], advance)
    assert head(path) == 1


def test_a_caller_that_leaves_during_its_turn_stops_nothing(
    committer: Committer, pool: ThreadPoolExecutor, path: Path
) -> None:
    left = threading.Event()

    def slow(writing: Writing) -> int:
        assert left.wait(PATIENCE)
        return advance(writing)

    with pytest.raises(DeadlineExceeded, match="may be stored"):
        committer.write([ALICE], slow, timeout_seconds=0.2)
    left.set()
    committer.write([ALICE], advance)
    assert head(path) == 2


def test_a_units_own_timeout_is_not_taken_for_a_deadline(committer: Committer) -> None:
    def unit(_writing: Writing) -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        committer.write([ALICE], unit, timeout_seconds=PATIENCE)


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_not_even_an_exit_in_a_unit_stops_the_committer(
    committer: Committer, error: type[BaseException]
) -> None:
    def unit(_writing: Writing) -> None:
        raise error

    with pytest.raises(error):
        committer.write([ALICE], unit)
    assert committer.write([ALICE], advance)


def test_closing_finishes_what_waits_and_refuses_the_rest(
    committer: Committer, pool: ThreadPoolExecutor, path: Path
) -> None:
    gate = Gate(committer, pool)
    answers = [pool.submit(committer.write, [ALICE], advance) for _ in range(10)]
    queued(committer, 10)
    closed = pool.submit(committer.close)
    refused = threading.Event()
    while not refused.is_set():
        try:
            answers.append(pool.submit(committer.write, [ALICE], advance, 0.001))
            answers.pop().result(PATIENCE)
        except DeadlineExceeded:
            pass
        except Unavailable:
            refused.set()
    gate.open()
    closed.result(PATIENCE)
    assert len({answer.result(PATIENCE) for answer in answers}) == 10
    assert head(path) == 10
    committer.close()


def test_a_closed_store_says_so(path: Path) -> None:
    store = MemoryStore(f"sqlite:///{path}")
    add(store, memory())
    store.close()
    with pytest.raises(Unavailable, match="shutting down"):
        add(store, memory())
    store.close()


def test_closing_leaves_one_file_without_a_log(path: Path) -> None:
    with MemoryStore(f"sqlite:///{path}") as store:
        add(store, memory())
        with store.read() as reading:
            assert reading.count(ALICE) == 1
        assert path.with_name("shard.db-wal").exists()
    assert [file.name for file in path.parent.iterdir()] == ["shard.db"]


def test_a_reader_keeps_its_moment_while_others_write(path: Path) -> None:
    with MemoryStore(f"sqlite:///{path}") as store:
        add(store, memory())
        with store.read() as reading:
            assert reading.count(ALICE) == 1
            add(store, memory())
            assert reading.count(ALICE) == 1
        with store.read() as reading:
            assert reading.count(ALICE) == 2


CHANGES: dict[str, Callable[[Transaction], object]] = {
    "write": lambda transaction: transaction.command("DELETE FROM streams"),
    "schema": lambda transaction: transaction.command("DROP TABLE streams"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_reading_connection_cannot_write(path: Path, change: str) -> None:
    reads = Transactions(open_engine(f"sqlite:///{path}", read_only=True), read_only=True)
    with pytest.raises(StorageUnavailable), reads.begin() as transaction:
        CHANGES[change](transaction)
    reads.close()


def sizes(pace: _Pace, unit_seconds: float, commit_seconds: float) -> list[int]:
    """How many units each of the next transactions takes."""
    found = []
    for _ in range(6):
        pace.learn(pace.units, pace.units * unit_seconds, commit_seconds)
        found.append(pace.units)
    return found


def test_a_transaction_takes_as_many_units_as_run_in_a_short_time_or_in_four_of_its_commit() -> None:
    pace = _Pace(64)
    assert sizes(pace, 0.002, 0.001) == [32, 16, 10, 10, 10, 10]
    assert sizes(pace, 0.1, 0.001)[-1] == MIN_BATCH
    assert sizes(pace, 0.002, 0.02) == [16, 32, 40, 40, 40, 40]
    assert sizes(pace, 0.0001, 0.001) == [64] * 6
