"""Watch on both databases: what a stream says, from where to where, and when it says nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from scrubjay import v1
from scrubjay.errors import CursorAhead, CursorInvalid
from scrubjay.feed import open_page
from scrubjay.memory import PrivacyLevel
from scrubjay.stamp import CommitStamp
from scrubjay.wire import to_timestamp
from server.cursor import Cursors
from server.ending import Ending
from server.feed import Position
from server.pull import Pull
from server.services import watching
from tests.devices import KEY, Device, Server, Told

PATIENCE = 20
PRIVATE = PrivacyLevel.PRIVATE


@dataclass
class Stream:
    """An open Watch, read in another thread so that a test that waits in vain fails."""

    responses: Iterator[v1.WatchResponse]
    ending: Ending
    pool: ThreadPoolExecutor

    def next(self) -> v1.WatchResponse:
        """The next response."""
        return self.pool.submit(next, self.responses).result(PATIENCE)

    def rest(self) -> list[v1.WatchResponse]:
        """All responses to the stream's end."""
        return self.pool.submit(list, self.responses).result(PATIENCE)


@contextmanager
def watched(device: Device, cursor: str | None = None) -> Iterator[Stream]:
    """A Watch of the device from where it stands."""
    ending = Ending()
    request = v1.WatchRequest(last_sync_at=device.cursor if cursor is None else cursor)
    with ThreadPoolExecutor(1) as pool:
        yield Stream(device.server.sync.watch(request, device.caller, ending), ending, pool)
        ending.end()


def short(response: v1.WatchResponse) -> list[str]:
    return [Told(*change).short for change in open_page(response.page)]


def cursor_at(device: Device, stamp: CommitStamp, epoch: int) -> str:
    position = Position(stamp, stamp, epoch)
    return Cursors(b"secret").text(KEY, device.client_id, position)


def test_a_stream_says_at_once_where_it_stands(server: Server, phone: Device) -> None:
    phone.sync(phone.create("tea"))
    with watched(phone) as stream:
        first = stream.next()
    assert (first.from_sync_at, first.last_sync_at) == (phone.cursor, phone.cursor)
    assert (short(first), first.more) == ([], False)
    assert first.server_time == to_timestamp(server.now)


def test_a_change_comes_with_the_cursor_that_sync_would_give(phone: Device, laptop: Device) -> None:
    made = phone.create("tea")
    phone.sync(made)
    laptop.pull()
    with watched(laptop) as stream:
        stream.next()
        phone.sync(phone.set(made.memory_id, {"content": "coffee"}, bases={"content": made.stamp}))
        edit = stream.next()
        assert (short(edit), edit.from_sync_at) == (["PART coffee"], laptop.cursor)
        phone.sync(phone.create("Moved to Lisbon."))
        new = stream.next()
        assert (short(new), new.from_sync_at) == (["WHOLE Moved to Lisbon."], edit.last_sync_at)
        phone.sync(phone.delete(made.memory_id))
        deleted = stream.next()
        assert (short(deleted), deleted.from_sync_at) == (["DELETED"], new.last_sync_at)
    laptop.pull()
    assert deleted.last_sync_at == laptop.cursor
    assert cursor_at(laptop, CommitStamp(deleted.commit_stamp), _epoch(laptop)) == laptop.cursor


def _epoch(device: Device) -> int:
    head = device.server.shard.head(KEY)
    assert head is not None
    return head.epoch


def test_a_change_wakes_a_stream_that_waits(phone: Device, laptop: Device) -> None:
    with watched(laptop) as stream:
        stream.next()
        waiting = stream.pool.submit(next, stream.responses)
        phone.sync(phone.create("tea"))
        assert short(waiting.result(PATIENCE)) == ["WHOLE tea"]


def test_a_backend_s_write_is_told_too(server: Server, phone: Device) -> None:
    with watched(phone) as stream:
        stream.next()
        server.memories.add(
            v1.AddRequest(memories=[v1.Memory(user_id="alice", content="Likes jazz.")]), server.service()
        )
        assert short(stream.next()) == ["WHOLE Likes jazz."]


def test_what_is_hidden_wakes_nobody_and_moves_the_place_where_the_next_page_ends(
    server: Server, phone: Device, laptop: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = threading.Semaphore(0)
    pull = server.shard.pull

    def counted(asked: Pull, *given: Any, **named: Any) -> object:
        pulled = pull(asked, *given, **named)
        if asked.viewer.client_id == laptop.client_id:
            looks.release()
        return pulled

    monkeypatch.setattr(server.shard, "pull", counted)
    with watched(laptop) as stream:
        first = stream.next()
        assert looks.acquire(timeout=PATIENCE)
        waiting = stream.pool.submit(next, stream.responses)
        phone.sync(phone.create("my pin", privacy_level=PRIVATE))
        assert looks.acquire(timeout=PATIENCE)
        phone.sync(phone.create("tea"))
        told = waiting.result(PATIENCE)
    assert (short(told), told.from_sync_at) == (["WHOLE tea"], first.last_sync_at)


def test_a_memory_that_becomes_private_is_taken_back(phone: Device, laptop: Device) -> None:
    made = phone.create("tea")
    phone.sync(made)
    laptop.pull()
    with watched(laptop) as stream:
        stream.next()
        hidden = phone.set(
            made.memory_id, {"privacy_level": int(PRIVATE)}, bases={"privacy_level": made.stamp}
        )
        assert phone.sync(hidden).statuses == ["APPLIED"]
        assert short(stream.next()) == ["RETRACTED"]


def test_scopes_are_kept(server: Server, phone: Device) -> None:
    with watched(server.device("desk", ("work",))) as stream:
        stream.next()
        phone.sync(phone.create("tea", scope="home"), phone.create("deadline", scope="work/alpha"))
        assert short(stream.next()) == ["WHOLE deadline"]


def test_a_quiet_stream_gives_signs_of_life_with_a_cursor_that_moves(
    server: Server, phone: Device, laptop: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "IDLE_SECONDS", 0.01)
    with watched(laptop) as stream:
        first = stream.next()
        server.wait(30)
        phone.sync(phone.create("my pin", privacy_level=PRIVATE))
        sign = stream.next()
        while sign.last_sync_at == first.last_sync_at:
            assert short(sign) == []
            sign = stream.next()
    assert (short(sign), sign.more) == ([], False)
    assert sign.from_sync_at == first.last_sync_at
    assert sign.server_time == to_timestamp(server.now)
    laptop.pull()
    assert sign.last_sync_at == laptop.cursor


def test_too_much_for_one_response_is_left_to_sync(phone: Device, laptop: Device) -> None:
    with watched(laptop) as stream:
        stream.next()
        phone.sync(*[phone.create(f"{n}" + "x" * 12_000) for n in range(4)])
        much = stream.next()
        assert (much.more, short(much)) == (True, [])
        assert much.from_sync_at == much.last_sync_at == laptop.cursor
        laptop.pull()
        phone.sync(phone.create("tea"))
        told = stream.next()
    assert (short(told), told.from_sync_at, told.more) == (["WHOLE tea"], laptop.cursor, False)


def test_who_is_in_the_middle_of_a_pull_is_told_to_go_on_with_it(phone: Device, laptop: Device) -> None:
    phone.sync(*[phone.create(f"{n} tea") for n in range(5)])
    synced = laptop.sync(max_bytes=1)
    assert synced.response.more
    with watched(laptop) as stream:
        first = stream.next()
        assert (first.more, short(first), first.last_sync_at) == (True, [], laptop.cursor)
        laptop.pull()
        phone.sync(phone.create("tea"))
        told = stream.next()
    assert (short(told), told.from_sync_at) == (["WHOLE tea"], laptop.cursor)


def test_a_reader_that_is_slow_gets_one_response_for_all_it_missed(phone: Device, laptop: Device) -> None:
    made = [phone.create(f"tea {n}") for n in range(3)]
    with watched(laptop) as stream:
        stream.next()
        for one in made:
            phone.sync(one)
        assert short(stream.next()) == [f"WHOLE tea {n}" for n in range(3)]
        phone.sync(phone.create("more"))
        assert short(stream.next()) == ["WHOLE more"]


@pytest.mark.parametrize("behind", ["another epoch", "the horizon"])
def test_who_must_do_something_first_hears_more_once_and_learns_it_from_sync(
    server: Server, phone: Device, behind: str
) -> None:
    made = phone.create("tea")
    phone.sync(made)
    head = server.shard.head(KEY)
    assert head is not None
    if behind == "another epoch":
        cursor = cursor_at(phone, head.head, head.epoch + 1)
    else:
        cursor = phone.cursor
        server.wait()
        phone.sync(phone.delete(made.memory_id))
        server.wait()
        assert server.shard.collect(CommitStamp(server.now // 1000 << 16), lambda: False) == 1
    with watched(phone, cursor) as stream:
        (only,) = stream.rest()
    assert (only.more, short(only), only.from_sync_at, only.last_sync_at) == (True, [], cursor, cursor)


def test_a_cursor_of_another_client_or_ahead_of_the_server_is_refused(phone: Device, laptop: Device) -> None:
    phone.sync(phone.create("tea"))
    with pytest.raises(CursorInvalid), watched(laptop, phone.cursor):
        pass
    head = phone.server.shard.head(KEY)
    assert head is not None
    ahead = cursor_at(phone, CommitStamp(head.head + 1), head.epoch)
    with watched(phone, ahead) as stream, pytest.raises(CursorAhead):
        stream.next()


def test_a_stream_ends_at_once_when_it_is_told_to(phone: Device) -> None:
    with watched(phone) as stream:
        stream.next()
        waiting = stream.pool.submit(list, stream.responses)
        stream.ending.end()
        assert waiting.result(PATIENCE) == []
    assert phone.server.shard.hub._subscriptions == {}
