"""What restoring means for devices, for History, and for deletions that kept nothing."""

from __future__ import annotations

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from sqlalchemy import text

from scrubjay import v1
from scrubjay.errors import InvalidField, ModelUnavailable
from scrubjay.memory import PrivacyLevel
from tenants.database import open_engine
from tests.devices import KEY, Device, Server, short

PRIVATE = PrivacyLevel.PRIVATE


def restore(server: Server, memory_id: str, operation_id: str = "", client: str = "web") -> v1.Memory:
    request = v1.RestoreRequest(memory_id=memory_id, operation_id=operation_id)
    return server.memories.restore(request, server.service(client)).memory


def history(server: Server, memory_id: str, client: str = "web") -> list[v1.HistoryEntry]:
    request = v1.HistoryRequest(memory_id=memory_id)
    return list(server.memories.history(request, server.service(client)).entries)


def test_devices_hear_of_what_is_restored_as_of_any_edit(server: Server, phone: Device) -> None:
    laptop = server.device("laptop")
    made = phone.create("tea")
    phone.sync(made, phone.set(made.memory_id, {"content": "coffee"}, bases={"content": made.stamp}))
    assert short(laptop.pull()) == ["WHOLE coffee"]
    server.wait()
    restore(server, made.memory_id, history(server, made.memory_id)[0].operation_id)
    assert short(laptop.pull()) == ["PART tea"]
    phone.sync(phone.delete(made.memory_id))
    assert short(laptop.pull()) == ["DELETED"]
    server.wait()
    back = restore(server, made.memory_id)
    told = laptop.pull()
    assert short(told) == ["WHOLE tea"]
    assert told[0].memory_id == back.id
    assert back.owner_client_id == "phone"
    server.wait()
    phone.pull()
    assert phone.sync(phone.set(back.id, {"content": "water"})).statuses == ["APPLIED_CONCURRENT"]


def test_a_device_that_edits_the_deleted_one_hears_that_it_is_gone(server: Server, phone: Device) -> None:
    made = phone.create("tea")
    phone.sync(made)
    phone.sync(phone.delete(made.memory_id))
    server.wait()
    restore(server, made.memory_id)
    assert phone.sync(phone.set(made.memory_id, {"content": "coffee"})).statuses == ["GONE"]


def test_what_an_owner_wanted_to_write_to_its_dead_secret_stays_its_own(
    server: Server, phone: Device
) -> None:
    """Though another client brought the memory back, and so stands in History as who created it."""
    made = phone.create("tea")
    phone.sync(made)
    phone.sync(phone.delete(made.memory_id))
    server.wait()
    back = restore(server, made.memory_id, client="web")
    server.wait()
    late = phone.set(back.id, {"content": "my secret"})
    server.memories.delete(v1.DeleteRequest(id=back.id), server.service("web"))
    assert phone.sync(late).statuses == ["GONE"]
    assert "my secret" not in str(history(server, back.id, "web"))
    assert "my secret" in str(history(server, back.id, "phone"))


def test_so_it_does_where_it_was_deleted_in_the_same_batch(server: Server, phone: Device) -> None:
    made = phone.create("tea")
    phone.sync(made)
    phone.sync(phone.delete(made.memory_id))
    server.wait()
    back = restore(server, made.memory_id, client="web")
    server.wait()
    late = phone.delete(back.id), phone.set(back.id, {"content": "my secret"})
    assert phone.sync(*late).statuses == ["APPLIED", "GONE"]
    assert "my secret" not in str(history(server, back.id, "web"))
    assert "my secret" in str(history(server, back.id, "phone"))


def test_a_deletion_that_kept_nothing_is_undone_from_what_was_written(
    server: Server, phone: Device, shard_url: str
) -> None:
    """As versions wrote them that could not bring anything back."""
    made = phone.create("tea", scope="work", tags=frozenset({"a"}), privacy_level=PRIVATE)
    phone.sync(made, phone.set(made.memory_id, {"content": "green tea", "tags.b": True}))
    phone.sync(phone.delete(made.memory_id))
    engine = open_engine(shard_url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE history SET deleted = NULL"))
    engine.dispose()
    server.wait()
    back = restore(server, made.memory_id, client="phone")
    assert (back.content, back.scope, list(back.tags)) == ("green tea", "work", ["a", "b"])
    assert (back.owner_client_id, back.privacy_level) == ("phone", v1.PRIVACY_LEVEL_PRIVATE)
    request = v1.SearchRequest(user_id="alice", query="tea")
    request.as_of.FromMicroseconds(server.now - 1_000_000)
    found = v1.SearchResponse.FromString(server.memories.search(request, server.service("phone")))
    assert [hit.memory.content for hit in found.hits] == []


def test_what_a_device_deleted_before_it_came_can_not_be_brought_back(server: Server, phone: Device) -> None:
    unknown = phone.create("never sent")
    phone.sync(phone.delete(unknown.memory_id))
    with pytest.raises(InvalidField, match="nothing to bring back"):
        restore(server, unknown.memory_id, client="phone")


def test_where_the_model_does_not_answer_nothing_is_restored(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = server.service()
    request = v1.AddRequest(memories=[v1.Memory(user_id="alice", content="tea", tags=["a"])])
    memory = server.memories.add(request, caller).results[0].memory
    server.wait()
    edit = v1.UpdateRequest(
        memory=v1.Memory(id=memory.id, content="coffee"), update_mask=FieldMask(paths=["content", "tags"])
    )
    server.memories.update(edit, caller)
    operation_id = history(server, memory.id)[0].operation_id

    def fail(*_: object) -> None:
        raise ModelUnavailable("the model sleeps")

    before = server.shard.head(KEY)
    with monkeypatch.context() as patched:
        patched.setattr(server.embedder, "embed", fail)
        with pytest.raises(ModelUnavailable):
            restore(server, memory.id, operation_id)
        assert server.shard.head(KEY) == before
        only_tags = v1.RestoreRequest(memory_id=memory.id, operation_id=operation_id, fields=["tags"])
        assert list(server.memories.restore(only_tags, caller).memory.tags) == ["a"]
    assert restore(server, memory.id, operation_id).content == "tea"
