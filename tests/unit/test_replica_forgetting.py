"""What was taken back is in no byte of a replica's files, wherever SQLite had moved it before."""

from __future__ import annotations

import random
import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from client_sync import Replica, replica_file, synchronize
from client_sync.exchange import bodies_of
from client_sync.identity import Identity
from client_sync.sync import SyncReport, apply_watch
from scrubjay import v1
from scrubjay.feed import seal_page, whole
from scrubjay.memory import ClientId, Memory, MemoryId, Micros, Subject, new_memory_id
from scrubjay.merge import create
from scrubjay.stamp import CommitStamp, ReplicaId, Stamp, pack_field_stamps
from scrubjay.wire import to_message, to_timestamp

PHONE = Identity(b"principa", ClientId("phone"), Subject("user", "alice"))
NOW = Micros(1_796_000_000_000_000)
BEGINNING = (NOW // 1000) << 16
MARK = re.compile(rb"mark[0-9]{6}")


class Feed:
    """A server whose feed is what the test says."""

    def __init__(self, seed: int) -> None:
        self.at = BEGINNING
        self._page = v1.Page()
        self._chance = random.Random(seed)
        self._marks = 0
        self.here: dict[MemoryId, str] = {}
        """The marks of what the device may see, by memory."""

    def brings(self, changes: Iterable[tuple[MemoryId, v1.Change]]) -> None:
        """What the next answer brings."""
        placed = []
        for memory_id, change in changes:
            self.at += 1
            placed.append((memory_id, CommitStamp(self.at), change))
        self._page = seal_page(placed)

    def written(self, memory_id: MemoryId) -> tuple[MemoryId, v1.Change]:
        """A memory with a new text of any length."""
        self._marks += 1
        self.here[memory_id] = f"mark{self._marks:06}"
        memory = Memory(
            id=memory_id,
            user_id="alice",
            content=self.here[memory_id] + " " + "." * self._chance.randrange(600),
            created_at=NOW,
            owner_client_id=ClientId("laptop"),
        )
        stamps = create(memory, Stamp(self.at, ReplicaId(b"a laptop's file."))).stamps
        message = to_message(memory, CommitStamp(self.at)).SerializeToString()
        return memory_id, whole(message, pack_field_stamps(stamps), PHONE.subject)

    def taken_back(self, memory_id: MemoryId) -> tuple[MemoryId, v1.Change]:
        """A memory that is private to somebody else now."""
        del self.here[memory_id]
        return memory_id, v1.Change(kind=v1.CHANGE_KIND_RETRACTED)

    def sync(self, request: v1.SyncRequest) -> v1.SyncResponse:
        assert not bodies_of(request)
        page, self._page = self._page, v1.Page()
        return v1.SyncResponse(
            directive=v1.DIRECTIVE_OK,
            page=page,
            last_sync_at=f"cursor {self.at}",
            commit_stamp=self.at,
            server_time=to_timestamp(NOW),
        )

    def watch_response(self, cursor: str) -> v1.WatchResponse:
        answer = self.sync(v1.SyncRequest())
        return v1.WatchResponse(
            from_sync_at=cursor,
            page=answer.page,
            last_sync_at=answer.last_sync_at,
            commit_stamp=answer.commit_stamp,
            server_time=answer.server_time,
        )

    def snapshot(self, request: v1.SnapshotRequest) -> Iterator[v1.SnapshotResponse]:
        raise AssertionError("no snapshot is asked for here")

    def watch(self, request: v1.WatchRequest) -> Iterator[v1.WatchResponse]:
        raise AssertionError("nothing is watched here")

    def reconcile(self, request: v1.ReconcileRequest) -> v1.ReconcileResponse:
        raise AssertionError("nothing is asked here")

    def reoffer(self, request: v1.ReofferRequest) -> v1.ReofferResponse:
        raise AssertionError("nothing is given back here")

    def vectors(self, request: v1.VectorsRequest) -> v1.VectorsResponse:
        raise AssertionError("no embeddings are asked for here")


@pytest.fixture
def feed() -> Feed:
    return Feed(seed=4)


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Replica]:
    with Replica.create(tmp_path / "alice.db", PHONE, wall=lambda: NOW) as replica:
        yield replica


def marks(replica: Replica) -> set[str]:
    """The marks in every byte of the replica's files."""
    files = replica.file.path.parent.glob(f"{replica.file.path.name}*")
    return {match.decode() for each in files for match in MARK.findall(each.read_bytes())}


def watched(replica: Replica, feed: Feed, *changes: tuple[MemoryId, v1.Change]) -> SyncReport:
    feed.brings(changes)
    report = apply_watch(replica, feed.watch_response(replica.status().last_sync_at))
    assert report is not None
    return report


def shuffle(replica: Replica, feed: Feed, seed: int = 4) -> None:
    """Let memories come, grow, shrink and be taken back until cells moved between the pages of the file."""
    synchronize(replica, feed)
    chance = random.Random(seed)
    for _ in range(400):
        deed = chance.random()
        if deed < 0.5 or not feed.here:
            watched(replica, feed, feed.written(new_memory_id(NOW // 1000, chance.randbytes(10))))
        elif deed < 0.8:
            watched(replica, feed, feed.written(chance.choice(list(feed.here))))
        else:
            watched(replica, feed, feed.taken_back(chance.choice(list(feed.here))))


def take_back_all_but(replica: Replica, feed: Feed, kept: int) -> SyncReport:
    feed.brings([feed.taken_back(each) for each in list(feed.here)[kept:]])
    return synchronize(replica, feed)


def told(replica: Replica) -> set[str]:
    """The marks in the replica's history, which keeps what was written over."""
    with replica.file.reading() as sql:
        (changes,) = sql.execute("SELECT group_concat(changes) FROM journal").fetchone()
    return {match.decode() for match in MARK.findall(str(changes).encode())}


@pytest.mark.parametrize("seed", [4, 5, 13])  # with these SQLite leaves copies in unused parts of pages
def test_no_byte_is_left_of_what_was_taken_back(replica: Replica, seed: int) -> None:
    feed = Feed(seed)
    shuffle(replica, feed, seed)
    assert not synchronize(replica, feed).to_forget
    assert marks(replica) == set(feed.here.values()) | told(replica)
    assert {memory.content.split()[0] for memory in replica.list(limit=500)} == set(feed.here.values())


def test_what_a_watch_takes_back_is_still_to_forget(replica: Replica, feed: Feed) -> None:
    synchronize(replica, feed)
    tea = feed.written(new_memory_id(NOW // 1000, bytes(10)))
    assert not watched(replica, feed, tea).to_forget
    assert watched(replica, feed, feed.taken_back(tea[0])).to_forget
    synchronize(replica, feed)
    assert marks(replica) == set()


def test_a_reader_of_the_file_delays_it_and_nothing_else(
    replica: Replica, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_file, "FORGET_SECONDS", 0.05)
    shuffle(replica, feed)
    log = replica.file.path.with_name(f"{replica.file.path.name}-wal")
    with closing(sqlite3.connect(replica.file.path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM rows").fetchone()
        assert take_back_all_but(replica, feed, 50).to_forget
        (pages,) = reader.execute("PRAGMA page_count").fetchone()
        size = log.stat().st_size
        for _ in range(3):
            assert take_back_all_but(replica, feed, 50).to_forget
        assert log.stat().st_size < size + pages * 4096  # nothing is written again and again
    assert len(replica.list()) == 50
    take_back_all_but(replica, feed, 0)
    assert marks(replica) == set()


def test_a_process_that_dies_before_it_forgot_does_so_when_it_synchronizes_again(
    replica: Replica, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    shuffle(replica, feed)

    def dies(*_: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr(replica_file, "_rewrite", dies)
        with pytest.raises(KeyboardInterrupt):
            take_back_all_but(replica, feed, 0)
    replica.close()
    with Replica.open(replica.file.path, wall=lambda: NOW) as again:
        assert not synchronize(again, feed).to_forget
        assert marks(again) == set()


def test_what_another_process_takes_back_meanwhile_is_still_to_forget(
    replica: Replica, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    shuffle(replica, feed)
    rewrite = replica_file._rewrite

    def meanwhile(*given: object) -> bool:
        with replica.file.transaction(durable=False) as sql:
            replica_file.must_forget(sql)
        return rewrite(*given)  # type: ignore[arg-type]  # what forget gave

    with monkeypatch.context() as racing:
        racing.setattr(replica_file, "_rewrite", meanwhile)
        replica.file.forget()
    with replica.file.reading() as sql:
        assert replica_file.get_meta(sql, "to_forget") is not None
    replica.file.forget()
    with replica.file.reading() as sql:
        assert replica_file.get_meta(sql, "to_forget") is None
