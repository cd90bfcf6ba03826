"""Snapshots on both databases: what the file holds, who gets it, how long it is kept, how a cut goes on."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import pytest

from scrubjay import v1
from scrubjay.errors import InvalidField, ServerBusy, SnapshotGone, Unavailable
from scrubjay.feed import open_page, read_state, unpack
from scrubjay.memory import ClientId, MemoryId, PrivacyLevel, Viewer, id_text
from scrubjay.operation import Operation
from scrubjay.stamp import CommitStamp
from server import snapshot_file
from server import snapshots as snapshots_module
from server.ending import Ending
from server.services import downloading
from server.services.downloading import CHUNK_BYTES
from server.snapshot_file import write_file
from server.snapshots import BLOCK_BYTES, KEPT_SECONDS, MOST_BUILDS, Snapshots
from server.store.memory_store import MemoryStore, StreamHead
from tests.devices import KEY, Device, Server, Told, short

PATIENCE = 20
PRIVATE = PrivacyLevel.PRIVATE
PHONE, LAPTOP = Viewer(ClientId("phone")), Viewer(ClientId("laptop"))


def asked(device: Device, **fields: object) -> list[v1.SnapshotResponse]:
    """Every response to a request."""
    request = v1.SnapshotRequest(**fields)
    return list(device.server.sync.snapshot(request, device.caller, Ending()))


class Loaded:
    """A whole file, as a device has it."""

    def __init__(self, path: Path, responses: Sequence[v1.SnapshotResponse]) -> None:
        data = b""
        for response in responses:
            assert (response.offset, response.total_bytes) == (len(data), responses[0].total_bytes)
            assert hashlib.sha256(response.chunk).digest() == response.chunk_digest
            data += response.chunk
        assert len(data) == responses[0].total_bytes
        self.data, self.said = data, responses[-1]
        path.write_bytes(data)
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            (self.version,) = connection.execute("PRAGMA user_version").fetchone()
            self.rows = connection.execute(
                "SELECT id, commit_stamp, created_at, message, field_stamps FROM rows"
            ).fetchall()
        path.unlink()

    @property
    def contents(self) -> list[str]:
        """What the memories say, in the file's order."""
        return [v1.Memory.FromString(row[3]).content for row in self.rows]


def load(device: Device, tmp_path: Path, **fields: object) -> Loaded:
    return Loaded(tmp_path / "loaded.db", asked(device, **fields))


def kept(folder: Path) -> list[Path]:
    """The files that the server in ``folder`` keeps."""
    return sorted((folder / "snapshots").iterdir())


# --- what is in it --------------------------------------------------------------------------------


def test_a_file_holds_each_memory_as_it_is_stored(server: Server, phone: Device, tmp_path: Path) -> None:
    made = phone.create("Likes tea.", tags=frozenset({"a"}), metadata={"city": "Lisbon"}, pinned=True)
    phone.sync(made, phone.create("Plays chess."))
    loaded = load(phone, tmp_path)
    assert (loaded.version, loaded.contents) == (1, ["Likes tea.", "Plays chess."])
    with server.store.read() as reading:
        stored = reading.get_many(KEY.incarnation, [MemoryId(id_text(row[0])) for row in loaded.rows])
    for memory_id, commit_stamp, created_at, message, field_stamps in loaded.rows:
        one = stored[MemoryId(id_text(memory_id))]
        assert (commit_stamp, created_at, message) == (one.commit_stamp, one.memory.created_at, one.message)
        assert read_state(message, field_stamps) == one.state


def test_its_cursor_goes_on_where_the_file_ends(phone: Device, laptop: Device, tmp_path: Path) -> None:
    made = phone.create("tea")
    phone.sync(made)
    loaded = load(laptop, tmp_path)
    assert loaded.said.row_count == 1
    laptop.cursor = loaded.said.last_sync_at
    assert short(laptop.pull()) == []
    assert laptop.cursor == loaded.said.last_sync_at
    phone.sync(phone.set(made.memory_id, {"content": "coffee"}, bases={"content": made.stamp}))
    assert short(laptop.pull()) == ["PART coffee"]


def test_only_what_the_viewer_may_see_is_in_any_byte_of_it(
    server: Server, phone: Device, tmp_path: Path
) -> None:
    canaries = [f"canary-{n}-" + os.urandom(8).hex() for n in range(4)]
    private, home, was_shared, deleted = canaries
    hidden = phone.create(f"{was_shared} x", scope="work")
    dead = phone.create(f"{deleted} x", scope="work")
    phone.sync(hidden, dead, *[phone.create(f"deadline {n}", scope="work/alpha") for n in range(300)])
    phone.sync(
        phone.create(f"{private} x", scope="work", privacy_level=PRIVATE),
        phone.create(f"{home} x", scope="home"),
        phone.set(hidden.memory_id, {"privacy_level": int(PRIVATE)}, bases={"privacy_level": hidden.stamp}),
        phone.delete(dead.memory_id),
    )
    loaded = load(server.device("desk", ("work",)), tmp_path)
    assert sorted(loaded.contents) == sorted(f"deadline {n}" for n in range(300))
    assert [one for one in canaries if one.encode() in loaded.data] == []
    assert bytes.fromhex(hidden.memory_id.replace("-", "")) not in loaded.data
    mine = load(phone, tmp_path)
    assert [one for one in canaries if one.encode() in mine.data] == [private, home, was_shared]


def test_a_stream_without_memories_is_an_empty_file(phone: Device, tmp_path: Path) -> None:
    loaded = load(phone, tmp_path)
    assert (loaded.rows, loaded.said.row_count, loaded.said.last_sync_at) == ([], 0, "")


def test_it_is_of_one_moment_while_others_write(server: Server, phone: Device, tmp_path: Path) -> None:
    phone.sync(*[phone.create(f"tea {n}") for n in range(10)])
    laptop = server.device("laptop")
    stop = threading.Event()

    def write() -> None:
        for n in takewhile(lambda _: not stop.is_set(), count()):
            phone.sync(phone.create(f"one {n}"), phone.create(f"other {n}"))

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        try:
            for _ in range(5):
                loaded = load(laptop, tmp_path)
                assert len(loaded.rows) % 2 == 0
                assert max(row[1] for row in loaded.rows) == loaded.said.commit_stamp
        finally:
            stop.set()
            writing.result(PATIENCE)


# --- the newest first -----------------------------------------------------------------------------


def newest(response: v1.SnapshotResponse) -> list[Told]:
    return [Told(*change) for change in open_page(unpack(v1.Page, "newest_page", response.newest_page))]


def test_the_newest_come_before_the_file_is_made(
    server: Server, phone: Device, laptop: Device, tmp_path: Path
) -> None:
    for n in range(5):
        phone.sync(phone.create(f"tea {n}", privacy_level=PRIVATE if n == 3 else PrivacyLevel.SHARED))
        server.wait()
    responses = laptop.server.sync.snapshot(v1.SnapshotRequest(newest=2), laptop.caller, Ending())
    first = next(responses)
    assert short(newest(first)) == ["WHOLE tea 2", "WHOLE tea 4"]
    assert (first.total_bytes, first.resume_token) == (0, "")
    assert kept(tmp_path) == []
    rest = list(responses)
    assert all(not one.newest_page for one in rest)
    assert rest[0].row_count == 4


def test_the_newest_end_with_a_page(phone: Device) -> None:
    for at in range(0, 40, 10):
        phone.sync(*[phone.create(f"{at + n}" + "x" * 15_000) for n in range(10)])
    page = newest(asked(phone, newest=1000)[0])
    assert 30 < len(page) < 40


# --- going on after a cut -------------------------------------------------------------------------


@pytest.fixture
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloading, "CHUNK_BYTES", 4096)
    monkeypatch.setattr(downloading, "QUICK_SECONDS", 0)


@pytest.mark.usefixtures("_small_chunks")
def test_a_download_goes_on_in_the_file_it_began_with(phone: Device, laptop: Device, tmp_path: Path) -> None:
    phone.sync(*[phone.create(f"tea {n} " + "x" * 400) for n in range(30)])
    responses = asked(laptop, newest=3)[1:]
    assert len(responses) > 3
    phone.sync(phone.create("later"))
    first, cut = responses[:2], responses[1].offset + 100
    data = b"".join(one.chunk for one in first)[:cut]
    rest = asked(laptop, resume_token=first[0].resume_token, offset=cut, newest=3)
    assert (rest[0].offset, rest[0].newest_page) == (cut, b"")
    data += b"".join(one.chunk for one in rest)
    assert data == b"".join(one.chunk for one in responses)
    assert rest[-1].last_sync_at == responses[0].last_sync_at
    (nothing,) = asked(laptop, resume_token=first[0].resume_token, offset=len(data))
    assert (nothing.offset, nothing.chunk) == (len(data), b"")


def hide(phone: Device, made: Operation) -> None:
    """Take a shared memory back from the others."""
    level = {"privacy_level": int(PRIVATE)}
    edit = phone.set(made.memory_id, level, bases={"privacy_level": made.stamp})
    assert phone.sync(edit).statuses == ["APPLIED"]


def test_nobody_goes_on_with_a_file_that_holds_what_was_taken_back(
    phone: Device, laptop: Device, tmp_path: Path
) -> None:
    made = phone.create("tea")
    phone.sync(made, phone.create("milk"))
    token, mine = asked(laptop)[0].resume_token, asked(phone)[0].resume_token
    hide(phone, made)
    with pytest.raises(SnapshotGone):
        asked(laptop, resume_token=token)
    assert asked(phone, resume_token=mine)[0].row_count == 2
    assert len(kept(tmp_path)) == 1
    assert asked(laptop)[0].row_count == 1


def test_what_was_taken_back_elsewhere_stops_nobody(server: Server, phone: Device) -> None:
    made = phone.create("tea", scope="home")
    phone.sync(made, phone.create("deadline", scope="work"))
    desk = server.device("desk", ("work",))
    token = asked(desk)[0].resume_token
    hide(phone, made)
    assert asked(desk, resume_token=token)[0].row_count == 1


@pytest.mark.usefixtures("_small_chunks")
def test_not_another_byte_comes_once_something_was_taken_back(phone: Device, laptop: Device) -> None:
    made = phone.create("tea")
    phone.sync(made, *[phone.create(f"{n} " + "x" * 400) for n in range(30)])
    responses = laptop.server.sync.snapshot(v1.SnapshotRequest(), laptop.caller, Ending())
    next(responses)
    phone.sync(phone.create("more"))
    next(responses)
    hide(phone, made)
    with pytest.raises(SnapshotGone):
        next(responses)


@pytest.mark.usefixtures("_small_chunks")
def test_what_was_deleted_meanwhile_goes_with_the_first_sync(
    phone: Device, laptop: Device, tmp_path: Path
) -> None:
    made = phone.create("tea")
    phone.sync(made, *[phone.create(f"{n} " + "x" * 400) for n in range(30)])
    responses = laptop.server.sync.snapshot(v1.SnapshotRequest(), laptop.caller, Ending())
    first = next(responses)
    phone.sync(phone.delete(made.memory_id))
    loaded = Loaded(tmp_path / "loaded.db", [first, *responses])
    assert "tea" in loaded.contents
    laptop.cursor = loaded.said.last_sync_at
    assert short(laptop.pull()) == ["DELETED"]


def test_a_token_is_good_for_its_own_client_and_scopes_alone(
    server: Server, phone: Device, tmp_path: Path
) -> None:
    phone.sync(phone.create("tea"))
    token = asked(phone)[0].resume_token
    assert asked(phone, resume_token=token)
    with pytest.raises(InvalidField, match="resume_token"):
        asked(server.device("laptop"), resume_token=token)
    with pytest.raises(SnapshotGone):
        asked(server.device("phone", ("work",)), resume_token=token)
    (file,) = kept(tmp_path)
    assert file.name not in token


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("newest", {"newest": 1001}),
        ("resume_token", {"resume_token": "nonsense"}),
        ("offset", {"offset": 1}),
    ],
)
def test_a_wrong_request_names_its_field(phone: Device, field: str, fields: dict[str, object]) -> None:
    with pytest.raises(InvalidField) as refused:
        asked(phone, **fields)
    assert [wrong.field for wrong in refused.value.field_violations] == [field]


def test_an_offset_behind_the_file_is_refused(phone: Device) -> None:
    first = asked(phone)[0]
    with pytest.raises(InvalidField, match="offset"):
        asked(phone, resume_token=first.resume_token, offset=first.total_bytes + 1)


@pytest.mark.parametrize(("seconds", "later"), [(0, CHUNK_BYTES), (60, BLOCK_BYTES)], ids=["slow", "quick"])
def test_chunks_are_no_longer_than_who_reads_them_takes_quickly(
    phone: Device, seconds: float, later: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for letter in "xyz":
        phone.sync(*[phone.create(f"{n}" + letter * 15_000) for n in range(16)])
    monkeypatch.setattr(downloading, "QUICK_SECONDS", seconds)
    sizes = [len(one.chunk) for one in asked(phone)]
    assert len(Loaded(tmp_path / "loaded.db", asked(phone)).rows) == 48
    assert sizes[0] == CHUNK_BYTES
    assert max(sizes) <= later
    assert len(sizes) == (2 if seconds else -(-sum(sizes) // CHUNK_BYTES))


# --- what is kept ---------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Files:
    """Snapshots of a server of their own, and a clock that tests move."""

    def __init__(self, server: Server, folder: Path, budget_bytes: int = 1 << 26) -> None:
        self.server = server
        self.folder = folder
        self.clock = Clock()
        self.snapshots = Snapshots(folder, b"s" * 32, budget_bytes=budget_bytes, clock=self.clock)

    def name(self, viewer: Viewer, ending: Ending | None = None) -> str:
        """The name of the viewer's file of this moment."""
        with self.snapshots.opened(self.server.store, KEY, viewer, ending or Ending()) as (snapshot, _):
            return snapshot.name

    def is_kept(self, name: str, viewer: Viewer) -> bool:
        try:
            with self.snapshots.reopened(self.server.store, name, KEY, viewer):
                return True
        except SnapshotGone:
            return False

    def on_disk(self) -> set[str]:
        return {path.name for path in self.folder.iterdir()}


@pytest.fixture
def files(server: Server, tmp_path: Path) -> Iterator[Files]:
    files = Files(server, tmp_path / "files")
    with closing(files.snapshots):
        yield files


def test_a_file_is_used_again_while_nothing_was_written(phone: Device, files: Files) -> None:
    phone.sync(phone.create("tea"))
    first = files.name(PHONE)
    assert files.name(PHONE) == first
    assert files.name(LAPTOP) != first
    assert files.name(Viewer(ClientId("phone"), ("work",))) != first
    phone.sync(phone.create("milk"))
    assert files.name(PHONE) != first
    assert len(files.on_disk()) == 4


def test_files_are_their_owner_s_alone(phone: Device, files: Files) -> None:
    phone.sync(phone.create("tea"))
    path = files.folder / files.name(PHONE)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(files.folder.stat().st_mode) == 0o700


def test_what_an_earlier_server_left_is_deleted(server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "left").write_bytes(b"x")
    (folder / "half.new").write_bytes(b"x")
    first = Files(server, folder)
    assert first.on_disk() == set()
    first.name(PHONE)
    first.snapshots.close()
    first.snapshots.close()
    assert first.on_disk() == set()


def test_files_beyond_the_budget_go_least_recently_used_first(
    server: Server, phone: Device, tmp_path: Path
) -> None:
    phone.sync(phone.create("tea"))
    size = asked(phone)[0].total_bytes
    files = Files(server, tmp_path / "files", budget_bytes=size * 2)
    with closing(files.snapshots):
        names = {}
        for n in range(2):
            names[n] = files.name(Viewer(ClientId(f"c{n}")))
            files.clock.now += 1
        assert files.is_kept(names[0], Viewer(ClientId("c0")))
        files.clock.now += 1
        names[2] = files.name(Viewer(ClientId("c2")))
        assert files.on_disk() == {names[0], names[2]}
        assert not files.is_kept(names[1], Viewer(ClientId("c1")))


def test_a_file_that_is_larger_than_the_budget_is_kept_alone(
    server: Server, phone: Device, tmp_path: Path
) -> None:
    phone.sync(phone.create("tea"))
    files = Files(server, tmp_path / "files", budget_bytes=1)
    with closing(files.snapshots):
        files.name(PHONE)
        files.clock.now += 1
        newest_one = files.name(LAPTOP)
        assert files.on_disk() == {newest_one}


def test_a_file_that_nobody_reads_goes_after_a_while(phone: Device, files: Files) -> None:
    phone.sync(phone.create("tea"))
    name = files.name(PHONE)
    files.clock.now += KEPT_SECONDS - 1
    assert files.is_kept(name, PHONE)
    files.clock.now += KEPT_SECONDS - 1
    later = files.name(LAPTOP)
    files.clock.now += 1
    files.snapshots._wake()
    deadline = threading.Event()
    while files.on_disk() != {later}:
        assert not deadline.wait(0.002)
    assert not files.is_kept(name, PHONE)


def test_a_file_that_goes_while_it_is_read_is_read_to_its_end(
    phone: Device, server: Server, files: Files
) -> None:
    phone.sync(phone.create("tea"))
    with files.snapshots.opened(server.store, KEY, PHONE, Ending()) as (snapshot, file):
        head = file.read(100)
        files.snapshots._drop(snapshot.name)
        assert files.on_disk() == set()
        assert len(head + file.read()) == snapshot.total_bytes


def test_a_damaged_disk_is_told_and_leaves_nothing(
    phone: Device, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_given: object) -> int:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(snapshots_module, "write_file", full)
        with pytest.raises(Unavailable) as refused:
            files.name(PHONE)
    assert "full" not in str(refused.value)
    assert files.on_disk() == set()
    assert files.name(PHONE)


# --- making them ----------------------------------------------------------------------------------


class Held:
    """Files whose making waits in the middle, and counts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go = threading.Event()
        self.changed = threading.Condition()
        self.count = 0
        copy = MemoryStore.copy_visible

        def held(*given: Any) -> tuple[StreamHead | None, int]:
            copied = copy(*given)
            with self.changed:
                self.count += 1
                self.changed.notify_all()
            assert self.go.wait(PATIENCE)
            return copied

        monkeypatch.setattr(MemoryStore, "copy_visible", held)

    def begun(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.count == count, PATIENCE)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    held = Held(monkeypatch)
    yield held
    held.go.set()


def test_one_view_s_file_is_made_once_however_many_ask(phone: Device, files: Files, held: Held) -> None:
    phone.sync(phone.create("tea"))
    with ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(files.name, PHONE) for _ in range(4)]
        held.begun(1)
        held.go.set()
        assert len({one.result(PATIENCE) for one in asking}) == 1
    assert held.count == 1


def test_few_are_made_at_once_and_writes_go_on_meanwhile(phone: Device, files: Files, held: Held) -> None:
    phone.sync(phone.create("tea"))
    viewers = [Viewer(ClientId(f"c{n}")) for n in range(MOST_BUILDS + 2)]
    with ThreadPoolExecutor(len(viewers)) as pool:
        asking = [pool.submit(files.name, viewer) for viewer in viewers]
        held.begun(MOST_BUILDS)
        assert phone.sync(phone.create("milk")).statuses == ["APPLIED"]
        assert held.count == MOST_BUILDS
        held.go.set()
        assert len({one.result(PATIENCE) for one in asking}) == len(viewers)


class LookedAt(Ending):
    """Tells when somebody who can be woken looked whether it has come."""

    def __init__(self) -> None:
        self.looked = threading.Event()
        self.hooked = False
        super().__init__()

    def on_end(self, hook: Callable[[], object]) -> None:
        super().on_end(hook)
        self.hooked = True

    def __getattribute__(self, name: str) -> object:
        found = super().__getattribute__(name)
        if name == "over" and self.hooked:
            self.looked.set()
        return found


def test_who_leaves_while_it_waits_for_its_turn_or_its_file_waits_no_more(
    phone: Device, files: Files, held: Held
) -> None:
    phone.sync(phone.create("tea"))
    maker, waiter = Ending(), LookedAt()
    with ThreadPoolExecutor(2) as pool:
        making = pool.submit(files.name, PHONE, maker)
        held.begun(1)
        waiting = pool.submit(files.name, PHONE, waiter)
        assert waiter.looked.wait(PATIENCE)
        waiter.end(ServerBusy("enough"))
        with pytest.raises(ServerBusy):
            waiting.result(PATIENCE)
        maker.end()
        held.go.set()
        with pytest.raises(Unavailable):
            making.result(PATIENCE)
    assert files.on_disk() == set()
    assert files.name(PHONE)


def test_making_one_ends_in_the_middle_where_nobody_waits_for_it(
    server: Server, phone: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    phone.sync(*[phone.create(f"tea {n}") for n in range(100)])
    monkeypatch.setattr(snapshot_file, "_LOOK_EVERY", 10)
    looks = count()
    with pytest.raises(sqlite3.OperationalError, match="interrupted"):
        write_file(tmp_path / "made.db", server.store, KEY, PHONE, lambda: next(looks) == 50)
    assert next(looks) == 51


def test_its_moment_is_that_of_its_turn(phone: Device, files: Files, held: Held, server: Server) -> None:
    phone.sync(phone.create("tea"))
    with ThreadPoolExecutor(2) as pool:
        making = pool.submit(files.name, PHONE)
        held.begun(1)
        phone.sync(phone.create("milk"))
        waiting = pool.submit(files.name, PHONE)
        held.go.set()
        assert making.result(PATIENCE) != waiting.result(PATIENCE)
    with files.snapshots.opened(server.store, KEY, PHONE, Ending()) as (snapshot, _):
        assert (snapshot.row_count, snapshot.name) == (2, waiting.result())
        head = server.shard.head(KEY)
        assert head is not None
        assert snapshot.position.stamp == CommitStamp(head.head)
