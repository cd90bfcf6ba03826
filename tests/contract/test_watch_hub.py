"""Wake-ups, in one process and between the servers of one PostgreSQL database."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import psycopg
import pytest

from scrubjay.memory import ClientId
from scrubjay.stamp import CommitStamp
from server.slots import STREAMS_AT_WORK
from server.store.listener import HeadListener
from server.store.memory_store import MemoryStore, StreamKey, Writing
from server.watch import ANY_HEAD, ECHO_SECONDS, NOBODY, Subscription, WatchHub
from tests.stored import ACME, ALICE, BOB, GLOBEX, add, insert, memory
from tests.waiting import patiently

PATIENCE = 20
AT_ONCE = 0
LONG = 10 * PATIENCE
NOTHING = CommitStamp(0)
PHONE, LAPTOP = ClientId("phone"), ClientId("laptop")
ONE, TWO, THREE = (CommitStamp(n) for n in (1, 2, 3))


@pytest.fixture
def hub() -> WatchHub:
    return WatchHub()


eventually = patiently(PATIENCE)


@contextmanager
def waiting(wait: Callable[[], CommitStamp | None]) -> Iterator[list[CommitStamp | None]]:
    """What a wait in another thread gave, once the block has ended it."""
    given: list[CommitStamp | None] = []
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(wait)
        yield given
        given.append(answer.result(PATIENCE))


def test_a_wait_ends_with_the_commit_it_waits_for(hub: WatchHub) -> None:
    with (
        hub.subscribe(ALICE) as subscription,
        waiting(lambda: subscription.wait(PATIENCE, NOTHING)) as given,
    ):
        hub.notify(ALICE, ONE)
    assert given == [ONE]


def test_a_commit_before_the_wait_is_not_missed(hub: WatchHub) -> None:
    with hub.subscribe(ALICE) as subscription:
        hub.notify(ALICE, ONE)
        assert subscription.wait(AT_ONCE, NOTHING) == ONE
        assert subscription.wait(AT_ONCE, NOTHING) is None


def test_many_commits_collapse_to_the_newest_head(hub: WatchHub) -> None:
    with hub.subscribe(ALICE) as subscription:
        for head in (ONE, THREE, TWO):
            hub.notify(ALICE, head)
        assert subscription.wait(AT_ONCE, NOTHING) == THREE
        assert subscription.wait(AT_ONCE, NOTHING) is None


def test_a_head_that_is_known_wakes_nobody(hub: WatchHub) -> None:
    with hub.subscribe(ALICE) as subscription:
        hub.notify(ALICE, ONE)
        assert subscription.wait(AT_ONCE, ONE) is None
        hub.notify(ALICE, TWO)
        assert subscription.wait(AT_ONCE, ONE) == TWO


def test_streams_and_tenants_do_not_wake_each_other(hub: WatchHub) -> None:
    with hub.subscribe(ALICE) as alice, hub.subscribe(ALICE) as also_alice, hub.subscribe(BOB) as bob:
        hub.notify(ALICE, ONE)
        assert bob.wait(AT_ONCE, NOTHING) is None
        assert alice.wait(AT_ONCE, NOTHING) == also_alice.wait(AT_ONCE, NOTHING) == ONE


def test_closing_ends_a_wait_and_the_hub_keeps_nothing(hub: WatchHub) -> None:
    subscription = hub.subscribe(ALICE)
    with waiting(lambda: subscription.wait(PATIENCE, NOTHING)) as given:
        subscription.close()
    assert given == [None]
    hub.notify(ALICE, ONE)
    assert subscription.wait(PATIENCE, NOTHING) is None
    subscription.close()
    assert hub._subscriptions == {}


def test_whoever_may_have_missed_something_is_woken(hub: WatchHub) -> None:
    with hub.subscribe(ALICE) as alice, hub.subscribe(BOB) as bob:
        hub.notify_all()
        assert alice.wait(AT_ONCE, THREE) == bob.wait(AT_ONCE, THREE) == ANY_HEAD


def test_a_device_hears_of_its_own_write_when_it_no_longer_hurries(hub: WatchHub) -> None:
    with hub.subscribe(ALICE, PHONE) as phone, hub.subscribe(ALICE, LAPTOP) as laptop:
        hub.notify(ALICE, ONE, PHONE)
        began = time.monotonic()
        assert phone.wait(AT_ONCE, NOTHING) == ONE
        assert time.monotonic() - began >= ECHO_SECONDS
        assert laptop.wait(AT_ONCE, NOTHING) == ONE


@pytest.mark.parametrize("by", [LAPTOP, NOBODY])
def test_what_others_write_is_heard_at_once_behind_an_own_write_too(
    hub: WatchHub, monkeypatch: pytest.MonkeyPatch, by: ClientId
) -> None:
    monkeypatch.setattr("server.watch.ECHO_SECONDS", LONG)
    with (
        hub.subscribe(ALICE, PHONE) as phone,
        waiting(lambda: phone.wait(PATIENCE, NOTHING)) as given,
    ):
        hub.notify(ALICE, ONE, PHONE)
        hub.notify(ALICE, TWO, by)
    assert given == [TWO]


def test_an_own_write_that_the_database_tells_too_is_still_an_own_one(hub: WatchHub) -> None:
    with hub.subscribe(ALICE, PHONE) as phone:
        hub.notify(ALICE, ONE, PHONE)
        hub.notify(ALICE, ONE)
        began = time.monotonic()
        assert phone.wait(AT_ONCE, NOTHING) == ONE
        assert time.monotonic() - began >= ECHO_SECONDS


def test_a_subscription_that_closes_waits_for_no_echo(hub: WatchHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.watch.ECHO_SECONDS", LONG)
    phone = hub.subscribe(ALICE, PHONE)
    with waiting(lambda: phone.wait(PATIENCE, NOTHING)) as given:
        hub.notify(ALICE, ONE, PHONE)
        phone.close()
    assert given == [None]


def test_few_streams_read_at_once_and_tenants_alternate(hub: WatchHub) -> None:
    inside: list[StreamKey] = []
    go = threading.Semaphore(0)

    def read(key: StreamKey) -> None:
        with hub.reading(key):
            inside.append(key)
            assert go.acquire(timeout=PATIENCE)

    with ThreadPoolExecutor(3 * STREAMS_AT_WORK) as pool:
        many = [pool.submit(read, ALICE) for _ in range(2 * STREAMS_AT_WORK)]
        eventually(lambda: len(inside) == STREAMS_AT_WORK and len(hub._readers._waiting) == STREAMS_AT_WORK)
        another = pool.submit(read, StreamKey(GLOBEX, ALICE.stream))
        eventually(lambda: len(hub._readers._waiting) == STREAMS_AT_WORK + 1)
        assert len(inside) == STREAMS_AT_WORK
        go.release(2)
        eventually(lambda: len(inside) == STREAMS_AT_WORK + 2)
        assert StreamKey(GLOBEX, ALICE.stream) in inside
        go.release(3 * STREAMS_AT_WORK)
        for one in (*many, another):
            one.result(PATIENCE)
    assert len(inside) == 2 * STREAMS_AT_WORK + 1


# --- between servers ------------------------------------------------------------------------------


class Heard:
    """A hub that is fed by a listener, and how often it may have missed something."""

    def __init__(self, url: str) -> None:
        self.hub = WatchHub()
        self.missed = 0
        self._changed = threading.Condition()
        self.listener = HeadListener(url, self.hub.notify, self._missed)

    def _missed(self) -> None:
        self.hub.notify_all()
        with self._changed:
            self.missed += 1
            self._changed.notify_all()

    def listening(self, times: int = 1) -> None:
        """Wait until it has begun to listen this often."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.missed >= times, PATIENCE)


@pytest.fixture
def heard(postgres_shard_url: str) -> Iterator[Heard]:
    heard = Heard(postgres_shard_url)
    with closing(heard.listener):
        heard.listening()
        yield heard


def told(subscription: Subscription, after: CommitStamp = NOTHING) -> CommitStamp | None:
    return subscription.wait(PATIENCE, after)


def test_a_commit_of_one_server_wakes_the_others(heard: Heard, postgres_shard_url: str) -> None:
    strange = StreamKey(ACME, "user:a|b|1|")
    with MemoryStore(postgres_shard_url) as other, heard.hub.subscribe(strange) as subscription:
        (row,) = add(other, memory(user_id="a|b|1|"), key=strange)
        assert told(subscription) == row.commit_stamp


def test_one_transaction_tells_of_all_its_streams(heard: Heard, postgres_shard_url: str) -> None:
    with (
        MemoryStore(postgres_shard_url) as other,
        heard.hub.subscribe(ALICE) as alice,
        heard.hub.subscribe(BOB) as bob,
    ):

        def unit(writing: Writing) -> tuple[CommitStamp, CommitStamp]:
            (a,) = insert(writing, ALICE, [memory()])
            (b,) = insert(writing, BOB, [memory(user_id="bob")])
            return a.commit_stamp, b.commit_stamp

        assert other.write([ALICE, BOB], unit) == (told(alice), told(bob))


def test_what_is_undone_is_not_told(heard: Heard, postgres_shard_url: str) -> None:
    with MemoryStore(postgres_shard_url) as other, heard.hub.subscribe(ALICE) as subscription:

        def unit(writing: Writing) -> None:
            writing.stamps(ALICE, 1, 5)
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            other.write([ALICE], unit)
        (row,) = add(other, memory())
        assert told(subscription) == row.commit_stamp


def test_after_a_broken_connection_everybody_is_woken_and_commits_are_heard_again(
    heard: Heard, postgres_shard_url: str
) -> None:
    with MemoryStore(postgres_shard_url) as other, heard.hub.subscribe(ALICE) as subscription:
        with psycopg.connect(postgres_shard_url, autocommit=True) as admin:
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND query LIKE 'LISTEN%'"
            )
        heard.listening(times=2)
        assert told(subscription) == ANY_HEAD
        (row,) = add(other, memory())
        assert told(subscription) == row.commit_stamp


def test_a_listener_closes_at_once_while_the_database_is_away() -> None:
    heard = Heard("postgresql://nobody@127.0.0.1:1/nothing")
    began = time.monotonic()
    heard.listener.close()
    heard.listener.close()
    assert time.monotonic() - began < 5
    assert heard.missed == 0
