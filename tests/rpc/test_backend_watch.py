"""MemoryService's Watch: a backend hears of every change, goes on where it was cut, and misses nothing."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from rpc.conftest import Serving, Tenant
from rpc.refusal import refused
from scrubjay import v1
from server.services import backend_watch

PATIENCE = 20
STORED, DELETED, HIDDEN = (
    v1.MEMORY_CHANGE_KIND_STORED,
    v1.MEMORY_CHANGE_KIND_DELETED,
    v1.MEMORY_CHANGE_KIND_HIDDEN,
)


def watch(tenant: Tenant, **fields: object) -> Any:
    return tenant.memories.Watch(v1.MemoryServiceWatchRequest(user_id="alice", **fields), timeout=PATIENCE)


def begun(tenant: Tenant, **fields: object) -> tuple[Any, str]:
    """A stream from now on that has said its first word, and where that is."""
    stream = watch(tenant, **fields)
    first = next(stream)
    assert not first.changes
    return stream, first.resume_token


def heard(stream: Any, count: int) -> list[tuple[str, int]]:
    """The next changes, as ids and kinds."""
    found: list[tuple[str, int]] = []
    while len(found) < count:
        found += [(change.memory_id, change.kind) for change in next(stream).changes]
    return found


def update(tenant: Tenant, memory: v1.Memory, *fields: str) -> None:
    tenant.memories.Update(v1.UpdateRequest(memory=memory, update_mask=FieldMask(paths=fields)))


def test_changes_are_told_as_they_happen_and_as_get_has_them(dev: Tenant) -> None:
    stream, _ = begun(dev)
    (memory,) = dev.add("tea", tags=["a"], metadata={"n": 1})
    (change,) = next(stream).changes
    assert change.memory == memory
    update(dev, v1.Memory(id=memory.id, content="绿茶 🍵"), "content")
    (change,) = next(stream).changes
    assert change.memory == dev.memories.Get(v1.GetRequest(id=memory.id)).memory
    dev.memories.Delete(v1.DeleteRequest(id=memory.id))
    assert heard(stream, 1) == [(memory.id, DELETED)]
    stream.cancel()


def test_a_stream_goes_on_where_it_was_cut(dev: Tenant) -> None:
    kept, edited, dead = dev.add("kept", "edited", "dead")
    stream, token = begun(dev)
    stream.cancel()
    update(dev, v1.Memory(id=edited.id, content="edited twice"), "content")
    update(dev, v1.Memory(id=edited.id, content="edited again"), "content")
    dev.memories.Delete(v1.DeleteRequest(id=dead.id))
    (new,) = dev.add("new")
    for _ in range(2):  # a token holds as often as it is used
        stream = watch(dev, resume_token=token)
        assert heard(stream, 3) == [(edited.id, STORED), (dead.id, DELETED), (new.id, STORED)]
        stream.cancel()
    assert kept.id not in [memory_id for memory_id, _ in heard(watch(dev, resume_token=token), 3)]


def test_what_is_there_is_told_first_where_asked_for(dev: Tenant) -> None:
    made = dev.add(*[f"tea {n}" for n in range(1500)])
    stream = watch(dev, include_existing=True)
    assert heard(stream, 1500) == [(memory.id, STORED) for memory in made]
    (new,) = dev.add("new")
    assert heard(stream, 1) == [(new.id, STORED)]
    stream.cancel()


def test_a_first_reading_that_is_cut_hears_of_what_died_meanwhile(dev: Tenant) -> None:
    made = dev.add(*[f"tea {n}" for n in range(1500)])
    stream = watch(dev, include_existing=True)
    first = next(stream)
    stream.cancel()
    assert first.more
    early, late = made[0], made[-1]
    for memory in (early, late):
        dev.memories.Delete(v1.DeleteRequest(id=memory.id))
    rest = heard(watch(dev, resume_token=first.resume_token), 1500 - len(first.changes) + 1)
    told = dict([(change.memory_id, change.kind) for change in first.changes] + rest)
    assert {memory_id for memory_id, kind in told.items() if kind == STORED} == {m.id for m in made[1:-1]}
    assert told[early.id] == told[late.id] == DELETED


def test_a_subject_without_memories_is_waited_for(dev: Tenant) -> None:
    stream, token = begun(dev)
    (memory,) = dev.add("tea")
    assert heard(stream, 1) == heard(watch(dev, resume_token=token), 1) == [(memory.id, STORED)]
    stream.cancel()


def test_scopes_let_in_and_what_leaves_them_is_hidden(dev: Tenant) -> None:
    stream, _ = begun(dev, scopes=["work"])
    dev.add("at home", scope="home")
    dev.add("no prefix", scope="workshop")
    (memory,) = dev.add("at work", scope="work/alpha")
    assert heard(stream, 1) == [(memory.id, STORED)]
    update(dev, v1.Memory(id=memory.id, scope="home"), "scope")
    assert heard(stream, 1) == [(memory.id, HIDDEN)]
    stream.cancel()


def test_a_private_memory_is_told_to_its_owner_alone(serving: Serving) -> None:
    phone = serving.named("dev", serving.dev.key, client_id="phone")
    (theirs, theirs_token), (ours, _) = begun(serving.dev), begun(phone)
    (secret,) = phone.add("my diary", privacy_level=v1.PRIVACY_LEVEL_PRIVATE)
    (shared,) = phone.add("tea")
    assert heard(ours, 2) == [(secret.id, STORED), (shared.id, STORED)]
    assert heard(theirs, 1) == [(shared.id, STORED)]
    update(phone, v1.Memory(id=shared.id, privacy_level=v1.PRIVACY_LEVEL_PRIVATE), "privacy_level")
    assert heard(theirs, 1) == [(shared.id, HIDDEN)]
    phone.memories.Delete(v1.DeleteRequest(id=secret.id))
    (last,) = phone.add("last")
    assert heard(theirs, 1) == [(last.id, STORED)]
    with refused() as call:  # a token is its client's alone
        next(watch(phone, resume_token=theirs_token))
    assert (call.code, call.fields) == (grpc.StatusCode.INVALID_ARGUMENT, ["resume_token"])


def test_others_subjects_and_tenants_are_not_heard(serving: Serving) -> None:
    stream, token = begun(serving.dev)
    other = serving.tenant("other")
    other.add("another alice's")
    serving.dev.add("bob's", user_id="bob")
    (memory,) = serving.dev.add("tea")
    assert heard(stream, 1) == [(memory.id, STORED)]
    stream.cancel()
    with refused() as call:
        next(watch(other, resume_token=token))
    assert (call.code, call.fields) == (grpc.StatusCode.INVALID_ARGUMENT, ["resume_token"])


def test_a_quiet_stream_gives_signs_of_life(dev: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend_watch, "IDLE_SECONDS", 0.01)
    stream, token = begun(dev)
    assert [next(stream).changes[:] for _ in range(3)] == [[], [], []]
    stream.cancel()
    assert token


@pytest.mark.parametrize("backend", ["sqlite"])
@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"agent_id": "a"}, "agent_id"),
        ({"scopes": ["/"]}, "scopes[0]"),
        ({"resume_token": "x"}, "resume_token"),
        ({"resume_token": "é" * 100}, "resume_token"),
    ],
)
def test_what_is_wrong_is_named(dev: Tenant, fields: dict[str, object], field: str) -> None:
    with refused() as call:
        next(watch(dev, **fields))
    assert (call.code, call.fields) == (grpc.StatusCode.INVALID_ARGUMENT, [field])
