"""Many writers at once: nothing is lost, nothing is doubled."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import grpc
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.struct_pb2 import Struct

from rpc.conftest import Serving, Tenant
from scrubjay import v1

PATIENCE = 60
MANY = 2500
"""gRPC's own queue holds 1 000."""
T = TypeVar("T")


def at_once(count: int, call: Callable[[int], T]) -> list[T]:
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(call, range(count)))


def test_64_equal_adds_with_one_request_id_are_one_memory(dev: Tenant) -> None:
    request = v1.AddRequest(request_id="the same", memories=[v1.Memory(user_id="alice", content="only once")])
    responses = at_once(64, lambda _: dev.memories.Add(request))
    assert all(response == responses[0] for response in responses)
    assert len(dev.memories.List(v1.ListRequest(user_id="alice")).memories) == 1
    assert len(dev.memories.History(v1.HistoryRequest(user_id="alice")).entries) == 1
    assert dev.found("once") == ["only once"]


def test_16_updates_of_16_metadata_keys_all_survive(dev: Tenant) -> None:
    (memory,) = dev.add("a profile")

    def write(n: int) -> v1.UpdateResponse:
        metadata = Struct()
        metadata.update({f"key{n}": n})
        return dev.memories.Update(
            v1.UpdateRequest(
                memory=v1.Memory(id=memory.id, metadata=metadata),
                update_mask=FieldMask(paths=[f"metadata.key{n}"]),
            )
        )

    at_once(16, write)
    read = dev.memories.Get(v1.GetRequest(id=memory.id)).memory
    assert dict(read.metadata) == {f"key{n}": n for n in range(16)}
    entries = dev.memories.History(v1.HistoryRequest(memory_id=memory.id)).entries
    edits = [entry for entry in entries if entry.kind == v1.OPERATION_KIND_SET]
    assert len(edits) == 16
    assert {change.field for entry in edits for change in entry.changes} == {
        f"metadata.key{n}" for n in range(16)
    }


def test_adds_searches_and_deletes_at_once_end_in_agreement(dev: Tenant) -> None:
    def work(n: int) -> str:
        kept, dead = dev.add(f"kept {n}", f"dead {n}")
        response = dev.memories.Delete(v1.DeleteRequest(id=dead.id))
        assert f"kept {n}" in dev.found(f"kept {n}", top_k=200, min_revision=response.revision)
        return kept.id

    kept = at_once(24, work)
    listed = dev.memories.List(v1.ListRequest(user_id="alice")).memories
    assert {m.id for m in listed} == set(kept)
    hits = dev.memories.Search(v1.SearchRequest(user_id="alice", query="kept", top_k=200)).hits
    assert {hit.memory.id for hit in hits} == set(kept)


def test_a_read_that_follows_a_write_sees_it(dev: Tenant) -> None:
    for n in range(20):
        response = dev.memories.Add(v1.AddRequest(memories=[v1.Memory(user_id="alice", content=f"fact {n}")]))
        assert dev.found(f"fact {n}", top_k=1, min_revision=response.revision) == [f"fact {n}"]


def test_calls_that_come_at_once_are_answered_by_the_server_and_not_cut_off(serving: Serving) -> None:
    key = (("authorization", f"Bearer {serving.dev.key}"),)
    request = v1.GetRequest(id=str(uuid.UUID(int=1)))
    with grpc.insecure_channel(serving.app.address) as channel:
        get = v1.MemoryServiceStub(channel).Get
        calls = [get.future(request, metadata=key, timeout=PATIENCE) for _ in range(MANY)]
        codes = {call.code() for call in calls}
    assert codes <= {grpc.StatusCode.NOT_FOUND, grpc.StatusCode.RESOURCE_EXHAUSTED}
