"""The feed on both databases: what each device is told, and what it is never told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrubjay import v1
from scrubjay.errors import CursorAhead, CursorInvalid
from scrubjay.feed import MAX_CHANGES, bucket_digests, digest, open_page, seal_page
from scrubjay.memory import ClientId, PrivacyLevel, Subject, id_bytes
from scrubjay.stamp import CommitStamp
from server import feed
from server.cursor import Cursors
from server.feed import BEGINNING, Position
from server.store.memory_store import StreamKey
from tenants.tenant import Incarnation
from tests.devices import ACME, DAY, KEY, SECOND, Device, Server, opened, short

PRIVATE, SHARED = int(PrivacyLevel.PRIVATE), int(PrivacyLevel.SHARED)


@pytest.fixture
def badge(server: Server) -> Device:
    """A device that sees the scope work alone."""
    return server.device("badge", scopes=("work",))


# --- pages ----------------------------------------------------------------------------------------


def test_stopping_after_any_page_and_going_on_is_one_run(server: Server, phone: Device) -> None:
    made = [phone.create(f"fact {n}") for n in range(7)]
    phone.sync(*made)
    phone.sync(phone.delete(made[2].memory_id))
    whole = server.device("a").pull()
    paged = server.device("b").pull(max_bytes=1)
    assert short(paged) == short(whole) == [f"WHOLE fact {n}" for n in range(7) if n != 2]
    assert [one.commit_stamp for one in paged] == [one.commit_stamp for one in whole]


def test_a_page_of_its_most_changes_says_that_there_are_more(server: Server, phone: Device) -> None:
    for at in range(0, MAX_CHANGES, 250):
        phone.sync(*(phone.create(f"fact {n}") for n in range(at, at + 250)))
    laptop = server.device("laptop")
    first = laptop.sync()
    assert (len(first.told), first.response.more) == (MAX_CHANGES, False)
    phone.sync(phone.create("one more"))
    tablet = server.device("tablet")
    assert (len(tablet.sync().told), len(tablet.sync().told)) == (MAX_CHANGES, 1)


def test_pages_end_by_bytes_behind_the_first_change_that_reaches_them(server: Server, phone: Device) -> None:
    phone.sync(*(phone.create(f"{n}" + "x" * 999) for n in range(10)))
    laptop = server.device("laptop")
    sizes = []
    while True:
        answer = laptop.sync(max_bytes=3000)
        sizes.append(len(answer.told))
        if not answer.response.more:
            break
    assert sizes == [3, 3, 3, 1]


def test_a_page_that_looked_at_much_ends_early(
    server: Server, phone: Device, laptop: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    phone.sync(*(phone.create(f"secret {n}", privacy_level=PrivacyLevel.PRIVATE) for n in range(5)))
    phone.sync(phone.create("shared"))
    monkeypatch.setattr(feed, "MOST_LOOKED_AT", 2)
    pages = [laptop.sync() for _ in range(3)]
    assert [page.short for page in pages] == [[], [], ["WHOLE shared"]]
    assert [page.response.more for page in pages] == [True, True, False]


def test_chunks_read_from_the_database_never_lose_a_row(
    server: Server, phone: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [phone.create(f"fact {n}") for n in range(7)]
    phone.sync(*made)
    laptop, tablet = server.device("laptop"), server.device("laptop")
    laptop.pull()
    tablet.pull()
    hide = [phone.set(one.memory_id, {"privacy_level": PRIVATE}) for one in made[:4]]
    phone.sync(*hide, phone.delete(made[5].memory_id), phone.delete(made[6].memory_id))
    monkeypatch.setattr(feed, "_CHUNK", 2)
    told = short(laptop.pull(max_bytes=1))
    assert told == ["RETRACTED"] * 4 + ["DELETED"] * 2
    assert short(tablet.pull()) == told


def test_an_edit_moves_a_memory_to_the_end_of_the_feed(server: Server, phone: Device, laptop: Device) -> None:
    one, two = phone.create("one"), phone.create("two")
    phone.sync(one, two)
    phone.sync(phone.set(one.memory_id, {"pinned": True}))
    assert short(laptop.pull()) == ["WHOLE two", "WHOLE one"]


def test_a_memory_that_changed_in_the_middle_of_a_pull_comes_whole(
    server: Server, phone: Device, laptop: Device
) -> None:
    """The trap of the base: it was made behind where the pull began and never sent."""
    laptop.sync()
    phone.sync(phone.create("first"))
    laptop.pull()
    later = [phone.create(f"fact {n}") for n in range(3)]
    phone.sync(*later)
    assert laptop.sync(max_bytes=1).short == ["WHOLE fact 0"]
    phone.sync(
        phone.set(later[1].memory_id, {"pinned": True}), phone.set(later[0].memory_id, {"pinned": True})
    )
    assert sorted(short(laptop.pull())) == ["WHOLE fact 0", "WHOLE fact 1", "WHOLE fact 2"]


def test_a_part_holds_what_changed_since_the_last_whole_pull(
    server: Server, phone: Device, laptop: Device
) -> None:
    made, filler = phone.create("tea", metadata={"a": 1}), phone.create("filler")
    phone.sync(made, filler)
    laptop.pull()
    phone.sync(phone.set(made.memory_id, {"metadata.a": 2}), phone.set(filler.memory_id, {"pinned": True}))
    assert [one.change.memory.metadata["a"] for one in laptop.sync(max_bytes=1).told] == [2]
    phone.sync(phone.set(made.memory_id, {"tags.x": True, "metadata.a": None}))
    assert laptop.sync(max_bytes=1).short == ["PART"]
    (told,) = laptop.pull()
    assert told.kind == v1.CHANGE_KIND_PART
    assert told.change.memory == v1.Memory(tags=["x"])


def test_what_a_call_wrote_itself_is_left_out_and_anothers_edit_in_between_is_not(
    server: Server, phone: Device, laptop: Device
) -> None:
    made = phone.create("tea")
    phone.sync(made)
    laptop.pull()
    server.wait()
    laptop.sync(laptop.set(made.memory_id, {"category": "TASK"}))
    server.wait()
    answer = phone.sync(phone.set(made.memory_id, {"content": "coffee"}))
    (told,) = answer.told
    assert (told.short, told.change.memory.category) == ("PART coffee", "TASK")
    assert phone.sync(phone.set(made.memory_id, {"content": "milk"})).told == []


def test_a_write_that_another_one_overtook_comes_back(server: Server, phone: Device, laptop: Device) -> None:
    made = phone.create("tea")
    phone.sync(made)
    early = phone.set(made.memory_id, {"content": "milk", "category": "TASK"})
    server.wait()
    laptop.sync(laptop.set(made.memory_id, {"content": "coffee"}))
    assert phone.sync(early).short == ["PART coffee"]


def test_what_backends_do_is_in_the_feed(server: Server, phone: Device) -> None:
    web = server.service("web")
    added = server.memories.add(
        v1.AddRequest(memories=[v1.Memory(user_id="alice", content="from the web")]), web
    )
    memory = added.results[0].memory
    assert short(phone.pull()) == ["WHOLE from the web"]
    update = v1.UpdateRequest(memory=v1.Memory(id=memory.id, content="changed"))
    update.update_mask.paths.append("content")
    server.memories.update(update, web)
    assert short(phone.pull()) == ["PART changed"]
    hide = v1.UpdateRequest(memory=v1.Memory(id=memory.id, privacy_level=v1.PRIVACY_LEVEL_PRIVATE))
    hide.update_mask.paths.append("privacy_level")
    server.memories.update(hide, web)
    assert short(phone.pull()) == ["RETRACTED"]
    server.memories.delete(v1.DeleteRequest(id=memory.id), web)
    assert short(phone.pull()) == []
    assert short(server.device("web").pull()) == []


# --- who hears of what ----------------------------------------------------------------------------


def test_a_memory_that_becomes_private_is_taken_back(server: Server, phone: Device, laptop: Device) -> None:
    made = phone.create("tea")
    phone.sync(made)
    laptop.pull()
    phone.sync(phone.set(made.memory_id, {"privacy_level": PRIVATE}))
    assert short(laptop.pull()) == ["RETRACTED"]
    assert short(laptop.pull()) == []
    assert short(server.device("phone").pull()) == ["WHOLE tea"]
    assert short(server.device("laptop").pull()) == []
    late = laptop.sync(laptop.set(made.memory_id, {"content": "x"}), laptop.delete(made.memory_id))
    assert late.statuses == ["NOT_VISIBLE", "NOT_VISIBLE"]


def test_a_memory_that_becomes_shared_comes_whole(server: Server, phone: Device, laptop: Device) -> None:
    made = phone.create("tea", privacy_level=PrivacyLevel.PRIVATE)
    phone.sync(made)
    assert short(laptop.pull()) == []
    phone.sync(phone.set(made.memory_id, {"privacy_level": SHARED}))
    assert short(laptop.pull()) == ["WHOLE tea"]


def test_a_memory_that_was_hidden_and_shown_again_comes_whole(
    server: Server, phone: Device, laptop: Device
) -> None:
    made = phone.create("tea")
    phone.sync(made)
    laptop.pull()
    phone.sync(
        phone.set(made.memory_id, {"privacy_level": PRIVATE}),
        phone.set(made.memory_id, {"privacy_level": SHARED}),
    )
    assert short(laptop.pull()) == ["WHOLE tea"]
    phone.sync(phone.set(made.memory_id, {"privacy_level": PRIVATE}))
    phone.sync(phone.set(made.memory_id, {"privacy_level": SHARED}))
    phone.sync(phone.set(made.memory_id, {"privacy_level": PRIVATE}))
    assert short(laptop.pull()) == ["RETRACTED"]


def test_a_memory_that_moves_out_of_a_scope_is_taken_back(
    server: Server, phone: Device, laptop: Device, badge: Device
) -> None:
    made = phone.create("plan", scope="work/a")
    phone.sync(made)
    assert short(badge.pull()) == ["WHOLE plan"]
    laptop.pull()
    phone.sync(phone.set(made.memory_id, {"scope": "home"}))
    assert short(badge.pull()) == ["RETRACTED"]
    assert short(laptop.pull()) == ["WHOLE plan"]
    phone.sync(phone.set(made.memory_id, {"scope": "work/b"}))
    assert short(badge.pull()) == ["WHOLE plan"]
    phone.sync(phone.set(made.memory_id, {"scope": "work"}))
    assert short(badge.pull()) == ["WHOLE plan"]


def test_a_private_memory_that_moves_is_taken_back_from_its_owner_alone(
    server: Server, phone: Device, laptop: Device, badge: Device
) -> None:
    worker = server.device("phone", scopes=("work",))
    made = phone.create("secret plan", scope="work", privacy_level=PrivacyLevel.PRIVATE)
    phone.sync(made)
    assert short(worker.pull()) == ["WHOLE secret plan"]
    assert badge.pull() == laptop.pull() == []
    phone.sync(phone.set(made.memory_id, {"scope": "home"}))
    assert short(worker.pull()) == ["RETRACTED"]
    assert badge.pull() == laptop.pull() == []


@pytest.mark.parametrize("in_one_batch", [True, False])
@pytest.mark.parametrize("change", [{"privacy_level": PRIVATE}, {"scope": "home"}])
def test_what_is_hidden_and_then_deleted_is_taken_back(
    server: Server, phone: Device, badge: Device, change: dict[str, object], in_one_batch: bool
) -> None:
    made = phone.create("plan", scope="work")
    phone.sync(made)
    badge.pull()
    hide = phone.set(made.memory_id, change)  # type: ignore[arg-type]  # JSON, by the cases
    delete = phone.delete(made.memory_id)
    if in_one_batch:
        phone.sync(hide, delete)
    else:
        phone.sync(hide)
        phone.sync(delete)
    assert short(badge.pull()) == ["RETRACTED"]
    assert short(badge.pull()) == []


def test_a_shared_memory_that_is_deleted_is_heard_of_by_those_who_saw_it(
    server: Server, phone: Device, laptop: Device, badge: Device
) -> None:
    home, secret = phone.create("home"), phone.create("s", privacy_level=PrivacyLevel.PRIVATE, scope="work")
    filler = phone.create("filler", scope="work")
    phone.sync(home, secret, filler)
    for device in (laptop, badge):
        device.pull()
    phone.sync(phone.delete(home.memory_id), phone.delete(secret.memory_id))
    assert [one.memory_id for one in laptop.pull()] == [home.memory_id]
    assert badge.pull() == []
    assert short(server.device("phone").pull()) == ["WHOLE filler"]


def test_what_was_never_shared_is_in_no_byte_of_anothers_answers(
    server: Server, phone: Device, laptop: Device
) -> None:
    secret = phone.create("zqcanary", privacy_level=PrivacyLevel.PRIVATE, metadata={"zqkey": "zqvalue"})
    phone.sync(secret, phone.create("shared"))
    phone.sync(phone.set(secret.memory_id, {"content": "zqother"}))
    answers = [laptop.call(laptop.request(include_digest=True, include_counts=True)) for _ in range(2)]
    laptop.pull()
    phone.sync(phone.delete(secret.memory_id))
    answers.append(laptop.call(laptop.request(include_counts=True)))
    answers.append(server.device("laptop").call(server.device("laptop").request()))
    for answer in answers:
        told = seal_page([(one.memory_id, one.commit_stamp, one.change) for one in opened(answer)])
        body = answer.SerializeToString() + told.SerializeToString()
        assert b"zq" not in body
        assert id_bytes(secret.memory_id) not in body
        assert secret.memory_id.encode() not in body


# --- digests --------------------------------------------------------------------------------------


def test_the_digest_is_of_what_the_device_sees(server: Server, phone: Device, laptop: Device) -> None:
    secret = phone.create("secret", privacy_level=PrivacyLevel.PRIVATE)
    shared = [phone.create(f"fact {n}") for n in range(3)]
    phone.sync(secret, *shared)
    told = laptop.sync(include_digest=True, max_bytes=1)
    assert (told.response.digest, told.response.more) == (b"", True)
    held = {one.memory_id: one.commit_stamp for one in [*told.told, *laptop.pull()]}
    expected = digest(bucket_digests((id_bytes(i), stamp) for i, stamp in held.items()))
    assert laptop.sync(include_digest=True).response.digest == expected
    assert phone.sync(include_digest=True).response.digest != expected


# --- cursors --------------------------------------------------------------------------------------


def test_a_cursor_reads_as_a_time(server: Server, phone: Device) -> None:
    phone.sync(phone.create("tea"))
    assert phone.cursor.startswith("2026-11-30T00:53:20.000Z.0000.1796000000000.")


def test_a_cursor_of_another_place_is_refused(server: Server, phone: Device, laptop: Device) -> None:
    phone.sync(phone.create("tea"))
    cases = [
        laptop,
        server.device("phone", subject=Subject("user", "bob")),
        server.device("phone", subject=Subject("agent", "alice")),
    ]
    for other in cases:
        with pytest.raises(CursorInvalid):
            other.call(other.request(last_sync_at=phone.cursor))


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "2026-11-30",
        "2026-11-30T00:53:20",
        "2026-11-30T00:53:20.000Z.0000.1796000000000.AAAAAAAAAAAAAAAAAAAAAA",
        "2026-99-30T00:53:20.000Z.0000.1796000000000.AAAAAAAAAAAAAAAAAAAAAA",
        "2026-11-30T00:53:20.000Z.0000.",
    ],
)
def test_what_is_no_cursor_is_refused(phone: Device, text: str) -> None:
    with pytest.raises(CursorInvalid):
        phone.call(phone.request(last_sync_at=text))


def test_a_cursor_with_one_letter_changed_is_refused(server: Server, phone: Device) -> None:
    phone.sync(*(phone.create(f"fact {n}") for n in range(3)))
    laptop = server.device("laptop")
    laptop.sync(max_bytes=1)
    for cursor, device in ((phone.cursor, phone), (laptop.cursor, laptop)):
        for at in range(len(cursor)):
            changed = cursor[:at] + ("1" if cursor[at] != "1" else "2") + cursor[at + 1 :]
            with pytest.raises(CursorInvalid):
                device.call(device.request(last_sync_at=changed))


_stamps = st.integers(0, 2**62 - 1).map(CommitStamp)


@given(_stamps, _stamps, st.integers(0, 2**62), _stamps)
def test_a_cursor_comes_back_as_it_was_given(
    stamp: CommitStamp, base: CommitStamp, epoch: int, began: CommitStamp
) -> None:
    stamp, base = max(stamp, base) >> 6, min(stamp, base) >> 6
    position = Position(
        CommitStamp(stamp),
        CommitStamp(base),
        epoch,
        CommitStamp(began >> 6 if base == 0 and stamp else 0),
    )
    cursors, client = Cursors(b"secret"), ClientId("phone")
    text = cursors.text(KEY, client, position)
    assert cursors.read(KEY, client, text) == (position if position.stamp else BEGINNING)
    if text:
        for other in (
            lambda: Cursors(b"other").read(KEY, client, text),
            lambda: cursors.read(KEY, ClientId("laptop"), text),
            lambda: cursors.read(StreamKey(ACME, "user:bob"), client, text),
            lambda: cursors.read(StreamKey(Incarnation("x"), KEY.stream), client, text),
        ):
            with pytest.raises(CursorInvalid):
                other()


def test_a_cursor_ahead_of_the_server_is_refused(server: Server, phone: Device) -> None:
    phone.sync(phone.create("tea"))
    with server.store.read() as reading:
        head = reading.head(KEY)
    assert head is not None
    ahead = CommitStamp(head.head + 1)
    cursor = Cursors(b"secret").text(KEY, phone.client_id, Position(ahead, ahead, head.epoch))
    with pytest.raises(CursorAhead, match="restored"):
        phone.call(phone.request(phone.create("lost?"), last_sync_at=cursor))
    assert short(server.device("web").pull()) == ["WHOLE tea"]


def test_a_cursor_of_another_epoch_is_told_so(server: Server, phone: Device) -> None:
    phone.sync(phone.create("tea"))
    server.store.begin_epochs(server.now // 1000)
    response = phone.call(phone.request(phone.create("later")))
    assert response.directive == v1.DIRECTIVE_EPOCH_CHANGED
    assert list(response.results) == []


def test_a_simple_client_sends_a_plain_time(server: Server, phone: Device) -> None:
    phone.sync(phone.create("early"))
    server.wait(3600)
    phone.sync(phone.create("late"))
    cron = server.device("cron")

    def pulled(time: str) -> list[str]:
        plain = v1.SyncRequest(protocol=1, last_sync_at=time)
        response = server.sync.sync(plain, cron.caller)
        assert response.last_sync_at == cron.sync().response.last_sync_at
        return short(opened(response))

    assert pulled("2026-11-30T00:53:20Z") == ["WHOLE early", "WHOLE late"]
    assert pulled("2026-11-30T00:58:19Z") == ["WHOLE early", "WHOLE late"]
    assert pulled("2026-11-30T00:58:21Z") == ["WHOLE late"]
    assert pulled("2026-11-30T01:58:19Z") == ["WHOLE late"]
    assert pulled("2030-01-01T00:00:00+02:00") == []
    assert pulled("1902-01-01T00:00:00Z") == ["WHOLE early", "WHOLE late"]


def test_a_stream_that_nobody_wrote_to_has_nothing_and_no_cursor(server: Server, phone: Device) -> None:
    response = phone.sync().response
    assert (response.last_sync_at, response.commit_stamp, response.more) == ("", 0, False)
    plain = v1.SyncRequest(protocol=1, last_sync_at="2026-11-30T00:53:20Z")
    assert server.sync.sync(plain, phone.caller).last_sync_at == ""


# --- what the server forgets ----------------------------------------------------------------------


def collect(server: Server) -> int:
    """Forget everything that can be."""
    limit = CommitStamp((server.now // 1000) << 16)
    return server.shard.collect(limit, lambda: False)


def test_a_cursor_from_before_the_horizon_must_load_anew(
    server: Server, phone: Device, laptop: Device
) -> None:
    one, two = phone.create("one"), phone.create("two")
    phone.sync(one, two)
    laptop.pull()
    server.wait()
    phone.sync(phone.delete(one.memory_id))
    server.wait()
    assert collect(server) == 1
    assert collect(server) == 0
    assert laptop.call(laptop.request()).directive == v1.DIRECTIVE_RESYNC
    assert short(phone.pull()) == []
    assert short(server.device("laptop").pull()) == ["WHOLE two"]
    plain = v1.SyncRequest(protocol=1, last_sync_at="2026-11-30T00:53:20Z")
    assert server.sync.sync(plain, laptop.caller).directive == v1.DIRECTIVE_RESYNC


def test_what_is_forgotten_never_comes_back(server: Server, phone: Device, laptop: Device) -> None:
    one, secret = phone.create("one"), phone.create("two", privacy_level=PrivacyLevel.PRIVATE)
    phone.sync(one, secret, phone.create("other"))
    phone.sync(phone.delete(one.memory_id), phone.delete(secret.memory_id))
    server.wait()
    collect(server)
    again = [laptop.create("x", memory_id=made.memory_id) for made in (one, secret)]
    badge = server.device("badge", scopes=("work",))
    assert laptop.sync(*again).statuses == ["GONE", "GONE"]
    assert badge.sync(badge.set(one.memory_id, {"content": "x"})).statuses == ["GONE"]
    assert short(server.device("web").pull()) == ["WHOLE other"]


def test_a_first_pull_in_pages_outlives_a_horizon_that_was_there_before(
    server: Server, phone: Device
) -> None:
    made = [phone.create(f"fact {n}") for n in range(4)]
    phone.sync(*made)
    server.wait()
    phone.sync(phone.delete(made[3].memory_id))
    server.wait()
    collect(server)
    assert short(server.device("laptop").pull(max_bytes=1)) == [f"WHOLE fact {n}" for n in range(3)]


def test_a_first_pull_in_pages_hears_of_what_died_meanwhile(server: Server, phone: Device) -> None:
    made = [phone.create(f"fact {n}") for n in range(4)]
    phone.sync(*made)
    phone.sync(phone.delete(made[3].memory_id))
    laptop = server.device("laptop")
    assert laptop.sync(max_bytes=1).short == ["WHOLE fact 0"]
    server.wait()
    phone.sync(phone.delete(made[0].memory_id), phone.set(made[1].memory_id, {"privacy_level": PRIVATE}))
    before = laptop.cursor
    assert sorted(short(laptop.pull(max_bytes=1))) == ["DELETED", "RETRACTED", "WHOLE fact 2"]
    server.wait(91 * DAY / SECOND)
    collect(server)
    assert laptop.call(laptop.request(last_sync_at=before)).directive == v1.DIRECTIVE_RESYNC


def test_pages_travel_as_they_are_told(server: Server, phone: Device, laptop: Device) -> None:
    phone.sync(*(phone.create(f"fact {n}" * 20) for n in range(20)))
    response = laptop.call(laptop.request())
    assert response.packed_page
    assert not response.HasField("page")
    small = server.device("tablet").call(server.device("tablet").request(max_bytes=1))
    assert small.HasField("page")
    (told,) = open_page(small.page)
    memory = told[2].memory
    assert (memory.id, memory.user_id, memory.etag, memory.HasField("updated_at")) == ("", "", "", False)
    assert memory.owner_client_id == "phone"
