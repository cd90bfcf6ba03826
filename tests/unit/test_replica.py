"""A replica with no server in reach: everything works, and is on disk when it returns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from client_sync import Replica, ReplicaDamaged, ReplicaExists, ReplicaMissing
from client_sync.copies import Copies, apart_id
from client_sync.exchange import bodies_of, next_request
from client_sync.identity import Identity
from client_sync.outbox import Outbox
from client_sync.recovery import begin_fork
from client_sync.replica_file import is_whole, set_meta
from client_sync.salvage import salvage
from client_sync.sign_out import SignOut, sign_out
from scrubjay import v1
from scrubjay.errors import InvalidField, MemoryDeleted, MemoryExists, MemoryNotFound
from scrubjay.feed import open_page, seal_page
from scrubjay.memory import ClientId, Memory, Micros, PrivacyLevel, Subject
from scrubjay.operation import Operation, OperationKind
from scrubjay.stamp import CommitStamp, ReplicaId, Stamp, pack_field_stamps

PHONE = Identity(b"principa", ClientId("phone"), Subject("user", "alice"))


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Replica]:
    with Replica.create(tmp_path / "alice.db", PHONE) as replica:
        yield replica


def queued(replica: Replica) -> list[Operation]:
    with replica.file.reading() as sql:
        return [entry.operation for entry in Outbox(sql, replica.identity).unanswered()]


def test_what_is_written_is_read_at_once_and_after_opening_again(replica: Replica) -> None:
    tea = replica.add("喜欢绿茶 🍵", tags=["drink"], metadata={"city": "Hangzhou"})
    assert replica.get(tea.id) == tea
    replica.close()
    with Replica.open(replica.file.path) as again:
        assert again.identity == PHONE
        assert again.list() == [tea]
        assert [hit.memory for hit in again.search("绿茶")] == [tea]


def test_the_list_is_newest_first_and_goes_on_behind_a_memory(replica: Replica) -> None:
    memories = [replica.add(f"memory {n}", created_at=Micros(n // 2)) for n in range(6)]
    newest = sorted(memories, key=lambda m: (m.created_at, m.id), reverse=True)
    assert replica.list(limit=4) == newest[:4]
    last = newest[3]
    assert replica.list(before=(last.created_at, last.id)) == newest[4:]


def test_an_update_writes_registers_each_on_its_own(replica: Replica) -> None:
    tea = replica.add("tea", tags=["a", "b"], metadata={"k": 1})
    changed = replica.update(
        tea.id, {"content": "green tea", "tags.a": None, "metadata.k": None, "pinned": True}
    )
    assert (changed.content, changed.tags, changed.metadata, changed.pinned) == (
        "green tea",
        frozenset({"b"}),
        {},
        True,
    )
    assert replica.get(tea.id) == changed


def test_a_deleted_memory_is_gone_and_its_id_is_not_taken_again(replica: Replica) -> None:
    tea = replica.add("tea")
    replica.delete(tea.id)
    replica.delete(tea.id)
    assert replica.list() == []
    with pytest.raises(MemoryDeleted):
        replica.get(tea.id)
    with pytest.raises(MemoryDeleted):
        replica.update(tea.id, {"content": "x"})
    with pytest.raises(MemoryExists):
        replica.add("again", memory_id=tea.id)


def test_what_was_never_sent_is_folded(replica: Replica) -> None:
    tea = replica.add("tea")
    replica.update(tea.id, {"content": "green tea"})
    replica.update(tea.id, {"tags.drink": True})
    (operation,) = queued(replica)
    assert operation.kind is OperationKind.CREATE
    assert isinstance(operation.memory, Memory)
    assert (operation.memory.content, operation.memory.tags) == ("green tea", frozenset({"drink"}))
    replica.delete(tea.id)
    assert [operation.kind for operation in queued(replica)] == [OperationKind.DELETE]


def test_what_was_sent_is_not_folded_where_a_new_replica_id_took_its_number(replica: Replica) -> None:
    with replica.file.transaction(durable=True) as sql:
        set_meta(sql, cursor="a cursor")
    tea = replica.add("tea")
    assert len(bodies_of(next_request(replica))) == 1
    begin_fork(replica)
    replica.update(tea.id, {"content": "green tea"})
    assert [operation.kind for operation in queued(replica)] == [OperationKind.CREATE, OperationKind.SET]
    replica.delete(tea.id)
    assert [operation.kind for operation in queued(replica)] == [OperationKind.CREATE, OperationKind.DELETE]


def test_a_local_memory_is_found_and_never_queued(replica: Replica) -> None:
    secret = replica.add("my diary", privacy_level=PrivacyLevel.LOCAL_ONLY)
    assert [hit.memory for hit in replica.search("diary")] == [secret]
    replica.update(secret.id, {"content": "my other diary"})
    assert queued(replica) == []
    replica.update(secret.id, {"privacy_level": int(PrivacyLevel.PRIVATE)})
    (operation,) = queued(replica)
    assert operation.kind is OperationKind.CREATE
    with pytest.raises(InvalidField, match="has left this device"):
        replica.update(secret.id, {"privacy_level": int(PrivacyLevel.LOCAL_ONLY)})
    replica.delete(replica.add("other", privacy_level=PrivacyLevel.LOCAL_ONLY).id)
    assert len(replica.list()) == 1


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"content": " "}, "content"),
        ({"colour": "red"}, "colour"),
        ({"confidence": 2}, "confidence"),
        ({"privacy_level": 7}, "privacy_level"),
        ({"scope": "a//b"}, "scope"),
    ],
)
def test_a_wrong_value_names_its_field_and_changes_nothing(
    replica: Replica, values: dict[str, object], field: str
) -> None:
    tea = replica.add("tea")
    with pytest.raises(InvalidField, match=field):
        replica.update(tea.id, values)  # type: ignore[arg-type]  # wrong on purpose
    assert replica.get(tea.id) == tea


def test_scopes_bound_what_a_device_writes(tmp_path: Path) -> None:
    worker = Identity(b"principa", ClientId("work"), Subject("user", "alice"), ("work",))
    with Replica.create(tmp_path / "work.db", worker) as replica:
        memory = replica.add("plan", scope="work/alpha")
        with pytest.raises(InvalidField, match="outside the scopes"):
            replica.add("plan", scope="home")
        with pytest.raises(InvalidField, match="outside the scopes"):
            replica.update(memory.id, {"scope": "workshop"})


def test_history_tells_what_happened_here(replica: Replica) -> None:
    tea = replica.add("tea")
    replica.update(tea.id, {"content": "green tea"})
    replica.delete(tea.id)
    kinds = [entry.kind for entry in replica.history(tea.id)]
    assert kinds == [OperationKind.DELETE, OperationKind.SET, OperationKind.CREATE]
    with pytest.raises(MemoryNotFound):
        replica.history("019ad1c0-0000-7000-8000-000000000001")


def test_an_expired_memory_is_not_shown(replica: Replica) -> None:
    old = replica.add("old", expires_at=Micros(0))
    assert replica.list() == []
    assert list(replica.search("old")) == []
    with pytest.raises(MemoryNotFound):
        replica.get(old.id)


def test_files_that_are_there_missing_or_damaged_are_told_apart(replica: Replica, tmp_path: Path) -> None:
    with pytest.raises(ReplicaExists):
        Replica.create(replica.file.path, PHONE)
    with pytest.raises(ReplicaMissing):
        Replica.open(tmp_path / "none.db")
    (tmp_path / "noise.db").write_bytes(b"noise" * 1000)
    with pytest.raises(ReplicaDamaged):
        Replica.open(tmp_path / "noise.db")


def test_the_status_counts(replica: Replica) -> None:
    replica.add("tea")
    status = replica.status()
    assert (status.memories, status.unsent, status.dead_letters, status.synced_at) == (1, 1, 0, None)


def test_a_damaged_file_gives_back_what_no_server_has(replica: Replica, tmp_path: Path) -> None:
    tea = replica.add("tea")
    diary = replica.add("diary", privacy_level=PrivacyLevel.LOCAL_ONLY)
    path = replica.file.path
    replica.close()
    found = salvage(path)
    assert (found.unsent, found.local, found.incomplete) == (1, 1, ())
    assert found.damaged.exists()
    with Replica.open(path) as again:
        assert again.identity == PHONE
        assert [operation.memory_id for operation in queued(again)] == [tea.id]
        assert {memory.id for memory in again.list()} == {tea.id, diary.id}


def test_a_file_of_noise_is_replaced_where_the_caller_knows_whose_it_is(tmp_path: Path) -> None:
    path = tmp_path / "noise.db"
    path.write_bytes(b"noise" * 1000)
    assert not is_whole(path)
    with pytest.raises(ReplicaDamaged):
        salvage(path)
    assert salvage(path, PHONE).incomplete
    with Replica.open(path) as replica:
        assert replica.list() == []


def test_signing_out_keeps_or_wipes_and_says_how_many_were_not_sent(replica: Replica) -> None:
    replica.add("tea")
    path = replica.file.path
    assert sign_out(replica, SignOut.KEEP) == 1
    assert sign_out(Replica.open(path), SignOut.WIPE) == 1
    assert list(path.parent.iterdir()) == []


def test_a_local_memory_that_a_copy_of_the_file_shared_is_kept_apart(replica: Replica) -> None:
    diary = replica.add("diary", privacy_level=PrivacyLevel.LOCAL_ONLY)
    shared = v1.Change(
        kind=v1.CHANGE_KIND_WHOLE,
        memory=v1.Memory(
            content="diary for two", owner_client_id="phone", privacy_level=v1.PRIVACY_LEVEL_PRIVATE
        ),
        field_stamps=pack_field_stamps({"content": Stamp(1 << 16, ReplicaId(b"r" * 16))}),
    )
    with replica.file.transaction(durable=False) as sql:
        copies = Copies(sql, PHONE, Outbox(sql, PHONE))
        page = seal_page([(diary.id, CommitStamp(2 << 16), shared)])
        copies.apply_page(open_page(page))
        copies.settle()
    assert replica.get(diary.id).content == "diary for two"
    (mine,) = (memory for memory in replica.list() if memory.privacy_level is PrivacyLevel.LOCAL_ONLY)
    assert (mine.id, mine.content) == (apart_id(diary.id), "diary")
