"""Restoring: an operation undone is a new one, and what was deleted comes back under a new id."""

from __future__ import annotations

import threading
import uuid

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.struct_pb2 import Struct
from google.protobuf.timestamp_pb2 import Timestamp

from rpc.conftest import Serving, Tenant
from rpc.refusal import Refused, refused
from scrubjay import errors, v1

PRIVATE, SHARED = v1.PRIVACY_LEVEL_PRIVATE, v1.PRIVACY_LEVEL_SHARED


def update(tenant: Tenant, memory_id: str, *paths: str, **fields: object) -> v1.UpdateResponse:
    memory = v1.Memory(id=memory_id, **fields)  # type: ignore[arg-type]  # by name
    mask = FieldMask(paths=paths or list(fields))
    return tenant.memories.Update(v1.UpdateRequest(memory=memory, update_mask=mask))


def history(tenant: Tenant, memory_id: str) -> list[v1.HistoryEntry]:
    return list(tenant.memories.History(v1.HistoryRequest(memory_id=memory_id)).entries)


def restore(tenant: Tenant, memory_id: str, operation_id: str = "", **fields: object) -> v1.RestoreResponse:
    request = v1.RestoreRequest(memory_id=memory_id, operation_id=operation_id, **fields)  # type: ignore[arg-type]  # by name
    return tenant.memories.Restore(request)


def delete(tenant: Tenant, memory_id: str) -> None:
    tenant.memories.Delete(v1.DeleteRequest(id=memory_id))


def get(tenant: Tenant, memory_id: str) -> v1.Memory:
    return tenant.memories.Get(v1.GetRequest(id=memory_id)).memory


@pytest.fixture
def phone(serving: Serving) -> Tenant:
    """The first tenant through another client."""
    return serving.named("dev", serving.dev.key, client_id="phone")


# --- edits ----------------------------------------------------------------------------------------


def test_what_an_edit_replaced_is_written_back(dev: Tenant) -> None:
    metadata = Struct()
    metadata.update({"city": "Porto", "floor": 3})
    (memory,) = dev.add("The office is in Porto", tags=["office", "old"], metadata=metadata, confidence=0.5)
    update(dev, memory.id, "content", "tags", "metadata", "confidence", content="It is in Faro", tags=["new"])
    entry = history(dev, memory.id)[0]
    answer = restore(dev, memory.id, entry.operation_id)
    back = get(dev, memory.id)
    assert answer.memory == back
    assert back.updated_at.ToNanoseconds() > memory.updated_at.ToNanoseconds()
    for field in ("content", "tags", "metadata", "confidence", "created_at", "owner_client_id", "source"):
        assert getattr(back, field) == getattr(memory, field), field
    fields = {"content", "tags.new", "tags.office", "tags.old", "metadata.city", "metadata.floor"}
    assert {one.field for one in answer.results} == fields | {"confidence"}
    assert {one.outcome for one in answer.results} == {v1.OUTCOME_APPLIED}
    assert dev.found("Porto", min_revision=answer.revision) == ["The office is in Porto"]


def test_a_restore_is_an_operation_of_its_own(dev: Tenant, phone: Tenant) -> None:
    (memory,) = dev.add("tea", tags=["a"])
    update(dev, memory.id, "content", "tags", "pinned", content="coffee", pinned=True)
    first = history(dev, memory.id)[0]
    restore(phone, memory.id, first.operation_id, fields=["content", "tags"])
    entry, *before = history(dev, memory.id)
    assert before[0] == first
    assert (entry.kind, entry.client_id, entry.outcome) == (
        v1.OPERATION_KIND_SET,
        "phone",
        v1.OUTCOME_APPLIED,
    )
    assert entry.restores == first.operation_id
    assert entry.sentence == "phone changed content and tags.a, undoing an earlier edit."
    changes = {one.field: one for one in entry.changes}
    assert changes["content"].old_value.string_value == "coffee"
    assert changes["content"].new_value.string_value == "tea"
    standing = {one.field: one for one in first.changes}["content"].stamp
    assert changes["content"].base_stamp == standing
    assert changes["content"].stamp > standing
    assert get(dev, memory.id).pinned
    restore(dev, memory.id, entry.operation_id)  # undone in its turn
    assert get(dev, memory.id).content == "coffee"
    assert list(get(dev, memory.id).tags) == []


def test_only_the_fields_that_are_named_come_back(dev: Tenant) -> None:
    metadata = Struct()
    metadata.update({"a": 1, "b": 2})
    (memory,) = dev.add("tea", tags=["x", "y"], metadata=metadata, scope="work")
    update(dev, memory.id, "content", "tags", "metadata", "scope", content="coffee", scope="home")
    operation_id = history(dev, memory.id)[0].operation_id
    restore(dev, memory.id, operation_id, fields=["tags.x", "metadata"])
    back = get(dev, memory.id)
    assert (back.content, back.scope, list(back.tags)) == ("coffee", "home", ["x"])
    assert back.metadata == metadata
    with refused() as other:
        restore(dev, memory.id, operation_id, fields=["scope", "pinned"])
    assert other.fields == ["fields[1]"]
    assert "it changed" in other.error.message
    with refused() as many:
        restore(dev, memory.id, operation_id, fields=["tags.x"] * 129)
    assert many.fields == ["fields"]


def test_an_older_edit_is_undone_beneath_later_ones(dev: Tenant) -> None:
    (memory,) = dev.add("tea", category="FACT")
    update(dev, memory.id, category="TASK")
    operation_id = history(dev, memory.id)[0].operation_id
    update(dev, memory.id, content="coffee")
    update(dev, memory.id, category="EVENT")
    back = restore(dev, memory.id, operation_id).memory
    assert (back.category, back.content) == ("FACT", "coffee")


def test_undoing_what_stands_already_leaves_no_trace(dev: Tenant) -> None:
    (memory,) = dev.add("tea")
    update(dev, memory.id, content="coffee")
    operation_id = history(dev, memory.id)[0].operation_id
    first = restore(dev, memory.id, operation_id)
    entries = history(dev, memory.id)
    again = restore(dev, memory.id, operation_id)
    assert (again.memory, list(again.results)) == (first.memory, [])
    assert history(dev, memory.id) == entries


def test_a_time_that_was_cleared_comes_back(dev: Tenant) -> None:
    until = Timestamp(seconds=4_000_000_000)
    (memory,) = dev.add("tea", valid_to=until)
    update(dev, memory.id, "valid_to")
    assert not get(dev, memory.id).HasField("valid_to")
    assert restore(dev, memory.id, history(dev, memory.id)[0].operation_id).memory.valid_to == until


def test_what_does_not_fit_any_more_is_refused(dev: Tenant) -> None:
    (memory,) = dev.add("tea", valid_to=Timestamp(seconds=2_000))
    update(dev, memory.id, valid_to=Timestamp(seconds=9_000))
    operation_id = history(dev, memory.id)[0].operation_id
    update(dev, memory.id, valid_from=Timestamp(seconds=5_000))
    with refused() as unfit:
        restore(dev, memory.id, operation_id)
    assert unfit.fields == ["operation_id"]
    assert "valid_to" in unfit.error.message


def test_an_etag_guards_it(dev: Tenant) -> None:
    (memory,) = dev.add("tea")
    edited = update(dev, memory.id, content="coffee").memory
    operation_id = history(dev, memory.id)[0].operation_id
    with refused() as stale:
        restore(dev, memory.id, operation_id, etag=memory.etag)
    assert isinstance(stale.error, errors.EtagMismatch)
    assert restore(dev, memory.id, operation_id, etag=edited.etag).memory.content == "tea"
    delete(dev, memory.id)
    with refused() as dead:
        restore(dev, memory.id, etag=edited.etag)
    assert isinstance(dead.error, errors.EtagMismatch)


def test_operations_that_can_not_be_undone_are_refused(dev: Tenant) -> None:
    one, other = dev.add("tea", "coffee")
    update(dev, other.id, content="water")
    foreign, made = history(dev, other.id)
    for memory_id, operation_id in (
        (one.id, str(uuid.uuid4())),
        (one.id, foreign.operation_id),
        (one.id, ""),
        (one.id, "x"),
        (other.id, made.operation_id),
    ):
        with refused() as wrong:
            restore(dev, memory_id, operation_id)
        assert isinstance(wrong.error, errors.InvalidField)
        assert wrong.fields == ["operation_id"], operation_id
    for bad in ("", "x"):
        with refused() as nothing:
            restore(dev, bad)
        assert nothing.fields == ["memory_id"]


# --- deletions ------------------------------------------------------------------------------------


def test_a_deleted_memory_comes_back_whole_under_a_new_id(dev: Tenant) -> None:
    metadata = Struct()
    metadata.update({"城市": "里斯本", "nested": {"list": [1, 2.5, "x", True]}})
    (memory,) = dev.add(
        "我喜欢咖啡",
        agent_id="coach",
        scope="work/alpha",
        category="PREFERENCE",
        tags=["drinks"],
        metadata=metadata,
        source=v1.Source(conversation_id="c", message_ids=["m"], role="user", trust_class="high"),
        confidence=0.5,
        privacy_level=PRIVATE,
        pinned=True,
        created_at=Timestamp(seconds=-62135596800),
        valid_from=Timestamp(seconds=1),
        valid_to=Timestamp(seconds=2),
        expires_at=Timestamp(seconds=4_000_000_000),
        superseded_by=str(uuid.uuid4()),
    )
    update(dev, memory.id, tags=["drinks", "more"])
    last = get(dev, memory.id)
    delete(dev, memory.id)
    answer = restore(dev, memory.id)
    back = answer.memory
    assert back == get(dev, back.id)
    assert back.id != memory.id
    assert list(answer.results) == []
    for field in {*last.DESCRIPTOR.fields_by_name} - {"id", "updated_at", "etag"}:
        assert getattr(back, field) == getattr(last, field), field
    assert dev.found("咖啡", min_revision=answer.revision) == ["我喜欢咖啡"]
    (entry,) = history(dev, back.id)
    assert (entry.kind, entry.restores) == (v1.OPERATION_KIND_CREATE, memory.id)
    assert entry.sentence.endswith(f"brought back the deleted memory {memory.id}.")
    with refused() as dead:
        get(dev, memory.id)
    assert isinstance(dead.error, errors.MemoryDeleted)


def test_a_deletion_may_be_named_and_edits_of_the_dead_may_not(dev: Tenant) -> None:
    (memory,) = dev.add("tea")
    update(dev, memory.id, content="coffee")
    delete(dev, memory.id)
    deletion, edit, _ = history(dev, memory.id)
    assert restore(dev, memory.id, deletion.operation_id).memory.content == "coffee"
    with refused() as dead:
        restore(dev, memory.id, edit.operation_id)
    assert isinstance(dead.error, errors.MemoryDeleted)
    with refused() as unknown:
        restore(dev, memory.id, str(uuid.uuid4()))
    assert unknown.fields == ["operation_id"]
    with refused() as part:
        restore(dev, memory.id, fields=["content"])
    assert part.fields == ["fields"]


def test_what_came_back_is_a_memory_like_any_other(dev: Tenant) -> None:
    (memory,) = dev.add("tea")
    delete(dev, memory.id)
    back = restore(dev, memory.id).memory
    update(dev, back.id, content="coffee")
    restore(dev, back.id, history(dev, back.id)[0].operation_id)
    delete(dev, back.id)
    assert restore(dev, back.id).memory.content == "tea"
    assert dev.found("tea") == ["tea"]


def test_a_memory_that_expired_meanwhile_comes_back_without_its_end(serving: Serving, dev: Tenant) -> None:
    soon = Timestamp()
    soon.GetCurrentTime()
    soon.seconds -= 1
    (memory,) = dev.add("tea", expires_at=soon)
    delete(dev, memory.id)
    back = restore(dev, memory.id).memory
    assert not back.HasField("expires_at")
    assert get(dev, back.id) == back


def test_delete_all_can_be_undone_one_by_one(dev: Tenant) -> None:
    memories = dev.add(*(f"fact {n}" for n in range(5)))
    dev.memories.DeleteAll(v1.DeleteAllRequest(user_id="alice"))
    for memory in memories:
        restore(dev, memory.id)
    listed = dev.memories.List(v1.ListRequest(user_id="alice")).memories
    assert [one.content for one in listed] == [f"fact {n}" for n in reversed(range(5))]


# --- repeats --------------------------------------------------------------------------------------


def test_a_repeat_gets_the_first_answer(dev: Tenant) -> None:
    (memory,) = dev.add("tea")
    delete(dev, memory.id)
    first = restore(dev, memory.id, request_id="r1")
    assert restore(dev, memory.id, request_id="r1") == first
    assert dev.found("tea") == ["tea"]
    with refused() as other:
        restore(dev, memory.id, request_id="r1", etag="x")
    assert isinstance(other.error, errors.RequestIdReused)


def test_parallel_repeats_bring_back_one(dev: Tenant) -> None:
    (memory,) = dev.add("tea")
    delete(dev, memory.id)
    answers: list[v1.RestoreResponse] = []
    threads = [
        threading.Thread(target=lambda: answers.append(restore(dev, memory.id, request_id="r1")))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({answer.SerializeToString(deterministic=True) for answer in answers}) == 1
    assert len(answers) == 8
    assert dev.found("tea") == ["tea"]


# --- who may --------------------------------------------------------------------------------------


def unseen(tenant: Tenant, memory_id: str, operation_id: str = "") -> Refused:
    with refused() as found:
        restore(tenant, memory_id, operation_id)
    return found


def test_what_privacy_hides_is_unknown(dev: Tenant, phone: Tenant) -> None:
    living, dead = dev.add("tea", "coffee", privacy_level=PRIVATE)
    update(dev, living.id, content="water")
    operation_id = history(dev, living.id)[0].operation_id
    delete(dev, dead.id)
    unknown = str(uuid.uuid4())
    expected = unseen(phone, unknown)
    assert expected.code is grpc.StatusCode.NOT_FOUND
    for memory_id, operation in ((living.id, operation_id), (living.id, ""), (dead.id, "")):
        got = unseen(phone, memory_id, operation)
        assert got.code is expected.code
        assert got.details.replace(memory_id.encode(), unknown.encode()) == expected.details
    assert get(dev, living.id).content == "water"


def test_an_operation_of_private_days_is_no_operation_to_others(dev: Tenant, phone: Tenant) -> None:
    (memory,) = dev.add("tea", privacy_level=PRIVATE)
    update(dev, memory.id, content="my secret")
    update(dev, memory.id, content="water")
    secret = history(dev, memory.id)[0].operation_id
    update(dev, memory.id, privacy_level=SHARED)
    unknown = str(uuid.uuid4())
    expected, got = unseen(phone, memory.id, unknown), unseen(phone, memory.id, secret)
    assert got.details.replace(secret.encode(), unknown.encode()) == expected.details
    assert got.fields == ["operation_id"]
    assert restore(dev, memory.id, secret).memory.content == "my secret"


def test_only_its_owner_brings_privacy_back(dev: Tenant, phone: Tenant) -> None:
    (memory,) = dev.add("tea", privacy_level=PRIVATE)
    update(dev, memory.id, privacy_level=SHARED)
    operation_id = history(dev, memory.id)[0].operation_id
    assert unseen(phone, memory.id, operation_id).fields == ["operation_id"]
    restore(dev, memory.id, operation_id)
    assert unseen(phone, memory.id, operation_id).code is grpc.StatusCode.NOT_FOUND
    assert get(dev, memory.id).privacy_level == PRIVATE


def test_who_brings_a_memory_back_does_not_own_it(dev: Tenant, phone: Tenant) -> None:
    (memory,) = dev.add("tea")
    delete(phone, memory.id)
    back = restore(phone, memory.id).memory
    assert back.owner_client_id == memory.owner_client_id
    assert history(dev, back.id)[0].client_id == "phone"
    with refused() as not_mine:
        update(phone, back.id, privacy_level=PRIVATE)
    assert not_mine.fields == ["memory.privacy_level"]
    update(dev, back.id, privacy_level=PRIVATE)
    assert unseen(phone, back.id).code is grpc.StatusCode.NOT_FOUND


def test_another_tenants_memory_is_unknown(serving: Serving, dev: Tenant) -> None:
    (memory,) = dev.add("tea")
    delete(dev, memory.id)
    other = serving.tenant("globex")
    unknown = str(uuid.uuid4())
    expected, got = unseen(other, unknown), unseen(other, memory.id)
    assert got.details.replace(memory.id.encode(), unknown.encode()) == expected.details


def test_a_reader_may_not(serving: Serving, dev: Tenant) -> None:
    (memory,) = dev.add("tea")
    reader = serving.with_key("dev", v1.ROLE_READER)
    assert isinstance(unseen(reader, memory.id).error, errors.RoleNotAllowed)
