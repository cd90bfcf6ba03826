"""A memory's life, through the real door, on SQLite and on PostgreSQL."""

from __future__ import annotations

import uuid

import grpc
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.struct_pb2 import Struct
from google.protobuf.timestamp_pb2 import Timestamp

from rpc.conftest import Serving, Tenant
from rpc.refusal import refused
from scrubjay import errors, v1


def mask(*paths: str) -> FieldMask:
    return FieldMask(paths=paths)


def test_add_gives_back_what_is_stored_with_defaults(dev: Tenant) -> None:
    (memory,) = dev.add("I moved to Lisbon")
    assert memory.scope == "general"
    assert memory.category == "FACT"
    assert memory.privacy_level == v1.PRIVACY_LEVEL_SHARED
    assert memory.confidence == 1
    assert uuid.UUID(memory.id).version == 7
    assert memory.created_at.seconds > 0
    assert dev.memories.Get(v1.GetRequest(id=memory.id)).memory == memory


def test_every_field_survives_the_round_trip(dev: Tenant) -> None:
    metadata = Struct()
    metadata.update({"城市": "里斯本", "nested": {"list": [1, 2.5, "x", True]}, "emoji": "🐦"})
    given = v1.Memory(
        id=str(uuid.uuid4()),
        user_id="كريم",
        agent_id="agent",
        run_id="run",
        scope="work/alpha",
        category="PREFERENCE",
        content="אני אוהב קפה ☕ 我喜欢咖啡",
        tags=["drinks", "偏好"],
        metadata=metadata,
        source=v1.Source(conversation_id="c1", message_ids=["m1", "m2"], role="user", trust_class="high"),
        confidence=0.5,
        pinned=True,
        created_at=Timestamp(seconds=-62135596800),
        valid_from=Timestamp(seconds=1),
        valid_to=Timestamp(seconds=253402300799, nanos=999999000),
        expires_at=Timestamp(seconds=253402300799),
    )
    stored = dev.memories.Add(v1.AddRequest(memories=[given])).results[0].memory
    read = dev.memories.Get(v1.GetRequest(id=given.id)).memory
    assert read == stored
    for field in ("id", "user_id", "content", "tags", "metadata", "confidence", "pinned", "created_at"):
        assert getattr(read, field) == getattr(given, field), field
    assert (read.valid_from, read.valid_to, read.expires_at) == (
        given.valid_from,
        given.valid_to,
        given.expires_at,
    )
    assert read.source.message_ids == ["m1", "m2"]


def test_a_batch_stores_the_good_and_says_what_is_wrong_with_the_rest(dev: Tenant) -> None:
    results = dev.memories.Add(
        v1.AddRequest(
            memories=[
                v1.Memory(user_id="alice", content="good"),
                v1.Memory(user_id="alice", content="   "),
                v1.Memory(content="nobody's"),
            ]
        )
    ).results
    assert results[0].memory.content == "good"
    assert results[1].error.reason == v1.ERROR_REASON_INVALID_FIELD
    assert results[1].error.field_violations[0].field == "memories[1].content"
    assert results[2].error.field_violations[0].field == "memories[2].user_id"
    assert dev.found("good") == ["good"]


def test_a_batch_of_a_hundred_for_many_users_is_one_call(dev: Tenant) -> None:
    memories = [v1.Memory(user_id=f"user-{n % 7}", content=f"fact number {n}") for n in range(100)]
    response = dev.memories.Add(v1.AddRequest(memories=memories))
    assert [r.memory.content for r in response.results] == [m.content for m in memories]
    listed = dev.memories.List(v1.ListRequest(user_id="user-3", min_revision=response.revision))
    assert len(listed.memories) == 14


def test_an_id_is_taken_for_ever(dev: Tenant) -> None:
    (memory,) = dev.add("first")
    again = v1.AddRequest(memories=[v1.Memory(id=memory.id, user_id="bob", content="second")])
    with refused() as taken:
        dev.memories.Add(again)
    assert taken.code is grpc.StatusCode.ALREADY_EXISTS
    dev.memories.Delete(v1.DeleteRequest(id=memory.id))
    with refused() as dead:
        dev.memories.Add(again)
    assert isinstance(dead.error, errors.MemoryExists)


def test_batch_get_keeps_the_order_and_names_the_missing(dev: Tenant) -> None:
    one, two = dev.add("one", "two")
    unknown = str(uuid.uuid4())
    response = dev.memories.BatchGet(v1.BatchGetRequest(ids=[two.id, unknown, one.id]))
    assert [m.content for m in response.memories] == ["two", "one"]
    assert response.missing_ids == [unknown]


def test_update_writes_only_the_fields_of_its_mask(dev: Tenant) -> None:
    (memory,) = dev.add("I use Vim", tags=["editor", "old"])
    change = v1.Memory(id=memory.id, content="I use VS Code", category="ignored", tags=["editor", "new"])
    response = dev.memories.Update(v1.UpdateRequest(memory=change, update_mask=mask("content", "tags")))
    assert response.memory.content == "I use VS Code"
    assert response.memory.category == "FACT"
    assert response.memory.tags == ["editor", "new"]
    assert {r.field: r.outcome for r in response.results} == {
        "content": v1.OUTCOME_APPLIED,
        "tags.new": v1.OUTCOME_APPLIED,
        "tags.old": v1.OUTCOME_APPLIED,
    }
    assert response.memory.etag != memory.etag
    assert dev.found("VS Code", min_revision=response.revision) == ["I use VS Code"]


def test_clearing_and_single_keys(dev: Tenant) -> None:
    metadata = Struct()
    metadata.update({"city": "Lisbon", "note": "x", "dotted.key": 1})
    (memory,) = dev.add("fact", metadata=metadata, valid_to=Timestamp(seconds=5))
    wanted = Struct()
    wanted.update({"city": "Porto"})
    response = dev.memories.Update(
        v1.UpdateRequest(
            memory=v1.Memory(id=memory.id, metadata=wanted),
            update_mask=mask("metadata.city", "metadata.dotted.key", "valid_to", "tags.seen"),
        )
    )
    assert dict(response.memory.metadata) == {"city": "Porto", "note": "x"}
    assert not response.memory.HasField("valid_to")


def test_an_update_that_changes_nothing_leaves_no_trace(dev: Tenant) -> None:
    (memory,) = dev.add("same")
    response = dev.memories.Update(
        v1.UpdateRequest(memory=v1.Memory(id=memory.id, content="same"), update_mask=mask("content"))
    )
    assert response.memory == memory
    assert len(dev.memories.History(v1.HistoryRequest(memory_id=memory.id)).entries) == 1


def test_an_edit_of_what_was_not_seen_is_concurrent_and_keeps_the_loser_in_history(dev: Tenant) -> None:
    (memory,) = dev.add("one")
    seen = dev.memories.Get(v1.GetRequest(id=memory.id, include_field_stamps=True)).field_stamps
    base = [stamp for stamp in seen if stamp.field == "content"]

    def write(content: str) -> v1.UpdateResponse:
        return dev.memories.Update(
            v1.UpdateRequest(
                memory=v1.Memory(id=memory.id, content=content),
                update_mask=mask("content"),
                base_stamps=base,
            )
        )

    assert write("two").results[0].outcome == v1.OUTCOME_APPLIED
    assert write("three").results[0].outcome == v1.OUTCOME_APPLIED_CONCURRENT
    newest = dev.memories.History(v1.HistoryRequest(memory_id=memory.id)).entries[0]
    assert newest.outcome == v1.OUTCOME_APPLIED_CONCURRENT
    assert newest.changes[0].old_value.string_value == "two"
    assert newest.changes[0].base_stamp == base[0].stamp


def test_an_etag_refuses_to_overwrite_what_was_not_seen(dev: Tenant) -> None:
    (memory,) = dev.add("one")
    first = v1.UpdateRequest(
        memory=v1.Memory(id=memory.id, content="two"), update_mask=mask("content"), etag=memory.etag
    )
    dev.memories.Update(first)
    first.memory.content = "three"
    with refused() as update:
        dev.memories.Update(first)
    with refused() as delete:
        dev.memories.Delete(v1.DeleteRequest(id=memory.id, etag=memory.etag))
    assert update.code is delete.code is grpc.StatusCode.ABORTED
    assert dev.memories.Get(v1.GetRequest(id=memory.id)).memory.content == "two"


def test_a_deleted_memory_is_gone_for_every_call_but_history(dev: Tenant) -> None:
    kept, dead = dev.add("kept", "dead")
    first = dev.memories.Delete(v1.DeleteRequest(id=dead.id))
    assert dev.memories.Delete(v1.DeleteRequest(id=dead.id)).revision == first.revision
    with refused() as get:
        dev.memories.Get(v1.GetRequest(id=dead.id))
    with refused() as update:
        dev.memories.Update(
            v1.UpdateRequest(memory=v1.Memory(id=dead.id, content="back"), update_mask=mask("content"))
        )
    assert isinstance(get.error, errors.MemoryDeleted)
    assert isinstance(update.error, errors.MemoryDeleted)
    assert dev.found("dead") == ["kept"]
    assert [m.id for m in dev.memories.List(v1.ListRequest(user_id="alice")).memories] == [kept.id]
    entries = dev.memories.History(v1.HistoryRequest(memory_id=dead.id)).entries
    assert [entry.kind for entry in entries] == [v1.OPERATION_KIND_DELETE, v1.OPERATION_KIND_CREATE]


def test_delete_all_takes_one_subject_and_no_other(dev: Tenant) -> None:
    dev.add(*[f"fact {n}" for n in range(30)])
    dev.add("bob's", user_id="bob")
    dev.add("starred", user_id="*")
    response = dev.memories.DeleteAll(v1.DeleteAllRequest(user_id="*"))
    assert response.deleted_count == 1
    assert dev.memories.DeleteAll(v1.DeleteAllRequest(user_id="alice")).deleted_count == 30
    assert dev.memories.DeleteAll(v1.DeleteAllRequest(user_id="alice")).deleted_count == 0
    assert dev.found("fact") == []
    assert dev.found("bob", user_id="bob") == ["bob's"]


def test_history_tells_what_happened_newest_first_in_exact_pages(dev: Tenant) -> None:
    (memory,) = dev.add("version 0")
    for n in range(1, 25):
        dev.memories.Update(
            v1.UpdateRequest(
                memory=v1.Memory(id=memory.id, content=f"version {n}"), update_mask=mask("content")
            )
        )
    for request in (v1.HistoryRequest(memory_id=memory.id), v1.HistoryRequest(user_id="alice")):
        request.page_size = 10
        entries: list[v1.HistoryEntry] = []
        while True:
            page = dev.memories.History(request)
            entries += page.entries
            request.page_token = page.next_page_token
            if not page.next_page_token:
                break
        assert len(entries) == 25
        assert entries[0].changes[0].old_value.string_value == "version 23"
        assert entries[0].changes[0].new_value.string_value == "version 24"
        stamps = [entry.commit_stamp for entry in entries]
        assert stamps == sorted(stamps, reverse=True)


def test_list_pages_stay_exact_while_rows_change(dev: Tenant) -> None:
    added = [memory.id for n in range(5) for memory in dev.add(*[f"fact {n}-{m}" for m in range(10)])]
    request = v1.ListRequest(user_id="alice", page_size=7)
    seen: list[str] = []
    while True:
        page = dev.memories.List(request)
        seen += [memory.id for memory in page.memories]
        dev.memories.Update(
            v1.UpdateRequest(
                memory=v1.Memory(id=added[0], content=f"touched after {len(seen)}"),
                update_mask=mask("content"),
            )
        )
        dev.add(f"newer than page {len(seen)}")
        request.page_token = page.next_page_token
        if not page.next_page_token:
            break
    assert sorted(seen) == sorted(added)


def test_list_filters_and_scopes(dev: Tenant) -> None:
    for scope in ("work", "work/alpha", "workshop", "home"):
        dev.add(f"in {scope}", scope=scope)
    assert {
        m.content for m in dev.memories.List(v1.ListRequest(user_id="alice", scopes=["work"])).memories
    } == {
        "in work",
        "in work/alpha",
    }
    condition = v1.Condition(field="content", operator=v1.OPERATOR_CONTAINS)
    condition.value.string_value = "home"
    request = v1.ListRequest(user_id="alice", filter=v1.Filter(condition=condition))
    assert [m.content for m in dev.memories.List(request).memories] == ["in home"]


def test_a_private_memory_exists_for_its_owner_alone(serving: Serving) -> None:
    phone = serving.named("dev", serving.dev.key, client_id="phone")
    laptop = serving.named("dev", serving.dev.key, client_id="laptop")
    (secret,) = phone.add("my diary", privacy_level=v1.PRIVACY_LEVEL_PRIVATE)
    unknown = str(uuid.uuid4())
    assert phone.found("diary") == ["my diary"]
    assert laptop.found("diary") == []
    assert not laptop.memories.List(v1.ListRequest(user_id="alice")).memories
    assert not laptop.memories.History(v1.HistoryRequest(user_id="alice")).entries
    assert laptop.memories.BatchGet(v1.BatchGetRequest(ids=[secret.id])).missing_ids == [secret.id]
    for call in (
        lambda memory_id: laptop.memories.Get(v1.GetRequest(id=memory_id)),
        lambda memory_id: laptop.memories.Delete(v1.DeleteRequest(id=memory_id)),
        lambda memory_id: laptop.memories.History(v1.HistoryRequest(memory_id=memory_id)),
        lambda memory_id: laptop.memories.Update(
            v1.UpdateRequest(memory=v1.Memory(id=memory_id, content="x"), update_mask=mask("content"))
        ),
    ):
        with refused() as hidden:
            call(secret.id)
        with refused() as missing:
            call(unknown)
        assert hidden.details.replace(secret.id.encode(), unknown.encode()) == missing.details
    assert laptop.memories.DeleteAll(v1.DeleteAllRequest(user_id="alice")).deleted_count == 0
    assert phone.found("diary") == ["my diary"]


def test_only_the_owner_changes_privacy(serving: Serving) -> None:
    phone = serving.named("dev", serving.dev.key, client_id="phone")
    laptop = serving.named("dev", serving.dev.key, client_id="laptop")
    (memory,) = phone.add("shared")
    hide = v1.UpdateRequest(
        memory=v1.Memory(id=memory.id, privacy_level=v1.PRIVACY_LEVEL_PRIVATE),
        update_mask=mask("privacy_level"),
    )
    with refused() as foreign:
        laptop.memories.Update(hide)
    assert foreign.fields == ["memory.privacy_level"]
    phone.memories.Update(hide)
    assert laptop.found("shared") == []
    assert phone.found("shared") == ["shared"]


def test_expired_memories_are_not_returned(dev: Tenant) -> None:
    (memory,) = dev.add("stale", expires_at=Timestamp(seconds=1))
    dev.add("fresh", expires_at=Timestamp(seconds=253402300799))
    assert dev.found("stale") == ["fresh"]
    assert [m.content for m in dev.memories.List(v1.ListRequest(user_id="alice")).memories] == ["fresh"]
    with refused() as get:
        dev.memories.Get(v1.GetRequest(id=memory.id))
    assert isinstance(get.error, errors.MemoryNotFound)


def test_memories_without_a_user_belong_to_their_agent_or_run(dev: Tenant) -> None:
    dev.memories.Add(v1.AddRequest(memories=[v1.Memory(agent_id="planner", run_id="r1", content="plan A")]))
    dev.memories.Add(v1.AddRequest(memories=[v1.Memory(agent_id="planner", run_id="r2", content="plan B")]))
    dev.add("plan of alice", agent_id="planner")

    def found(**subject: str) -> list[str]:
        hits = dev.memories.Search(v1.SearchRequest(query="plan", **subject)).hits
        return sorted(hit.memory.content for hit in hits)

    assert found(agent_id="planner") == ["plan A", "plan B"]
    assert found(agent_id="planner", run_id="r2") == ["plan B"]
    assert found(user_id="alice", agent_id="planner") == ["plan of alice"]
    assert found(user_id="alice", agent_id="other") == []


def test_what_was_acknowledged_is_there_after_a_restart(serving: Serving) -> None:
    (memory,) = serving.dev.add("remember me")
    serving.app.close()
    from server.app import App

    with App(serving.settings) as again:
        assert again.first_credentials is None
        tenant = Tenant(
            "dev",
            serving.dev.key,
            channel := serving.open_channel(again.address, serving.dev.key),
            v1.MemoryServiceStub(channel),
        )
        assert tenant.memories.Get(v1.GetRequest(id=memory.id)).memory == memory
        assert tenant.found("remember") == ["remember me"]


def test_pages_of_large_memories_are_cut_to_what_a_client_takes(dev: Tenant) -> None:
    added = dev.add(*[f"{n} " + "记" * 5000 for n in range(260)])
    for stub, request in (
        (dev.memories.List, v1.ListRequest(user_id="alice", page_size=1000)),
        (dev.memories.History, v1.HistoryRequest(user_id="alice", page_size=1000)),
    ):
        seen, pages = [], 0
        while True:
            page = stub(request)
            assert page.ByteSize() < 4 * 1024 * 1024
            rows = page.memories if isinstance(page, v1.ListResponse) else page.entries
            seen += [row.id if isinstance(row, v1.Memory) else row.memory_id for row in rows]
            pages += 1
            request.page_token = page.next_page_token
            if not page.next_page_token:
                break
        assert pages > 1
        assert seen == [memory.id for memory in reversed(added)]
    assert len(dev.found("记", top_k=200)) == 200


def test_a_list_keeps_the_order_of_a_batch(dev: Tenant) -> None:
    dev.add(*[f"line {n}" for n in range(40)])
    listed = [memory.content for memory in dev.memories.List(v1.ListRequest(user_id="alice")).memories]
    assert listed == [f"line {n}" for n in reversed(range(40))]


def test_history_shows_values_as_people_write_them(dev: Tenant) -> None:
    (memory,) = dev.add(
        "x", valid_to=Timestamp(seconds=253402300799), valid_from=Timestamp(seconds=-62135596800)
    )
    (entry,) = dev.memories.History(v1.HistoryRequest(memory_id=memory.id)).entries
    values = {change.field: change.new_value.string_value for change in entry.changes}
    assert values["valid_to"] == "9999-12-31T23:59:59Z"
    assert values["valid_from"] == "0001-01-01T00:00:00Z"
    assert values["privacy_level"] == "SHARED"


def test_the_history_of_a_shared_memory_shows_nothing_of_when_it_was_private(serving: Serving) -> None:
    phone = serving.named("dev", serving.dev.key, client_id="phone")
    laptop = serving.named("dev", serving.dev.key, client_id="laptop")
    (memory,) = phone.add("my diary", privacy_level=v1.PRIVACY_LEVEL_PRIVATE)
    memory.content, memory.privacy_level = "our trip", v1.PRIVACY_LEVEL_SHARED
    phone.memories.Update(v1.UpdateRequest(memory=memory, update_mask=mask("content", "privacy_level")))
    memory.content = "our journey"
    phone.memories.Update(v1.UpdateRequest(memory=memory, update_mask=mask("content")))
    (entry,) = laptop.memories.History(v1.HistoryRequest(memory_id=memory.id)).entries
    assert [(change.old_value.string_value, change.new_value.string_value) for change in entry.changes] == [
        ("our trip", "our journey")
    ]
    assert len(phone.memories.History(v1.HistoryRequest(memory_id=memory.id)).entries) == 3


def test_a_deleted_private_memory_is_unknown_to_others(serving: Serving) -> None:
    phone = serving.named("dev", serving.dev.key, client_id="phone")
    laptop = serving.named("dev", serving.dev.key, client_id="laptop")
    (secret,) = phone.add("my diary", privacy_level=v1.PRIVACY_LEVEL_PRIVATE)
    phone.memories.Delete(v1.DeleteRequest(id=secret.id))
    with refused() as mine:
        phone.memories.Get(v1.GetRequest(id=secret.id))
    assert isinstance(mine.error, errors.MemoryDeleted)
    for call in (
        lambda: laptop.memories.Get(v1.GetRequest(id=secret.id)),
        lambda: laptop.memories.Delete(v1.DeleteRequest(id=secret.id)),
        lambda: laptop.memories.History(v1.HistoryRequest(memory_id=secret.id)),
    ):
        with refused() as theirs:
            call()
        assert isinstance(theirs.error, errors.MemoryNotFound)


def test_a_number_and_a_truth_value_are_different_metadata(dev: Tenant) -> None:
    was, wanted = Struct(), Struct()
    was.update({"flag": True})
    wanted.update({"flag": 1})
    (memory,) = dev.add("x", metadata=was)
    change = v1.Memory(id=memory.id, metadata=wanted)
    updated = dev.memories.Update(v1.UpdateRequest(memory=change, update_mask=mask("metadata"))).memory
    assert updated.metadata.fields["flag"].number_value == 1


def test_no_memory_is_created_after_it_was_updated(dev: Tenant) -> None:
    for memory in dev.add(*[f"fact {n}" for n in range(100)]):
        assert memory.created_at.ToMicroseconds() <= memory.updated_at.ToMicroseconds()
