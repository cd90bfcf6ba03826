"""Deleting by a filter: what List shows goes, and nothing else."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.struct_pb2 import ListValue, Value
from google.protobuf.timestamp_pb2 import Timestamp

from rpc.conftest import Serving, Tenant
from rpc.refusal import refused
from scrubjay import errors, v1


def condition(field: str, operator: v1.Operator.ValueType, value: object) -> v1.Filter:
    if isinstance(value, list):
        json = Value(list_value=ListValue(values=[Value(string_value=one) for one in value]))
    else:
        json = Value(number_value=value) if isinstance(value, float) else Value(string_value=str(value))
    return v1.Filter(condition=v1.Condition(field=field, operator=operator, value=json))


def category(name: str) -> v1.Filter:
    return condition("category", v1.OPERATOR_EQ, name)


TASKS = category("TASK")


def delete(tenant: Tenant, matching: v1.Filter, **fields: Any) -> v1.DeleteByFilterResponse:
    request = v1.DeleteByFilterRequest(**{"user_id": "alice", "filter": matching, **fields})
    return tenant.memories.DeleteByFilter(request)


def living(tenant: Tenant, user_id: str = "alice", **fields: Any) -> set[str]:
    listed = tenant.memories.List(v1.ListRequest(user_id=user_id, page_size=1000, **fields))
    return {memory.content for memory in listed.memories}


FILTERS: dict[str, tuple[v1.Filter, tuple[str, ...]]] = {
    "category": (TASKS, ()),
    "scope": (TASKS, ("work",)),
    "two scopes": (TASKS, ("work/a", "home")),
    "number": (condition("confidence", v1.OPERATOR_LT, 0.5), ()),
    "list": (condition("category", v1.OPERATOR_IN, ["TASK", "EVENT"]), ("work",)),
    "negation": (v1.Filter(negation=TASKS), ()),
    "any": (v1.Filter(any_of=v1.FilterList(filters=[TASKS, category("EVENT")])), ()),
    "all": (
        v1.Filter(
            all_of=v1.FilterList(filters=[TASKS, condition("content", v1.OPERATOR_ICONTAINS, "WORK/A ")])
        ),
        (),
    ),
    "nothing": (category("task"), ()),
}


def fill(tenant: Tenant, user_id: str) -> None:
    for scope in ("work", "work/a", "home"):
        for name in ("TASK", "EVENT", "FACT"):
            tenant.add(f"{scope} {name}", user_id=user_id, scope=scope, category=name, confidence=0.3)
    tenant.add("sure", user_id=user_id, confidence=0.9)


def test_what_list_shows_is_counted_and_then_gone(dev: Tenant) -> None:
    dev.add("bob's", user_id="bob", category="TASK", scope="work", confidence=0.1)
    for user_id, (matching, scopes) in FILTERS.items():
        fill(dev, user_id)
        before, shown = living(dev, user_id), living(dev, user_id, filter=matching, scopes=scopes)
        assert len(shown) < len(before)
        asked: dict[str, Any] = {"user_id": user_id, "scopes": scopes}
        counted = delete(dev, matching, validate_only=True, **asked)
        assert (counted.deleted_count, counted.revision) == (len(shown), "")
        assert living(dev, user_id) == before
        done = delete(dev, matching, **asked)
        assert done.deleted_count == len(shown)
        assert living(dev, user_id, min_revision=done.revision) == before - shown
        assert delete(dev, matching, **asked).deleted_count == 0
    assert living(dev, "bob") == {"bob's"}


def test_hundreds_go_in_one_call_and_history_has_each(dev: Tenant) -> None:
    dev.add(*(f"task {n}" for n in range(1_100)), category="TASK")
    dev.add("kept")
    done = delete(dev, TASKS)
    assert done.deleted_count == 1_100
    assert living(dev) == {"kept"}
    assert dev.found("task", min_revision=done.revision) == ["kept"]
    page = dev.memories.History(v1.HistoryRequest(user_id="alice", page_size=1000))
    kinds = [entry.kind for entry in page.entries]
    assert set(kinds) == {v1.OPERATION_KIND_DELETE}
    assert {entry.role for entry in page.entries} == {"SERVICE"}


def test_another_clients_private_and_expired_memories_stay_uncounted(serving: Serving) -> None:
    owner, other = serving.dev, serving.with_key("dev", v1.ROLE_SERVICE)
    private, pinned = owner.add("mine", "pinned", category="TASK", pinned=True)
    (expired,) = owner.add("expired", category="TASK", expires_at=Timestamp(seconds=5))
    owner.memories.Update(
        v1.UpdateRequest(
            memory=v1.Memory(id=private.id, privacy_level=v1.PRIVACY_LEVEL_PRIVATE),
            update_mask=FieldMask(paths=["privacy_level"]),
        )
    )
    assert delete(other, TASKS, validate_only=True).deleted_count == 1
    assert delete(other, TASKS).deleted_count == 1
    assert living(owner) == {"mine"}
    with refused() as gone:
        owner.memories.Get(v1.GetRequest(id=pinned.id))
    assert isinstance(gone.error, errors.MemoryDeleted)
    with refused() as hidden:
        owner.memories.Get(v1.GetRequest(id=expired.id))
    assert isinstance(hidden.error, errors.MemoryNotFound)
    assert delete(owner, TASKS).deleted_count == 1


def test_a_repeat_gets_the_first_answer(dev: Tenant) -> None:
    dev.add("one", "two", category="TASK")
    first = delete(dev, TASKS, request_id="r-1")
    dev.add("three", category="TASK")
    assert delete(dev, TASKS, request_id="r-1") == first
    assert living(dev) == {"three"}
    with refused() as reused:
        delete(dev, category("FACT"), request_id="r-1")
    assert isinstance(reused.error, errors.RequestIdReused)


def test_eight_at_once_delete_each_memory_once(dev: Tenant) -> None:
    dev.add(*(f"task {n}" for n in range(300)), category="TASK")
    with ThreadPoolExecutor(8) as pool:
        counts = [done.deleted_count for done in pool.map(lambda _: delete(dev, TASKS), range(8))]
    assert sum(counts) == 300
    page = dev.memories.History(v1.HistoryRequest(user_id="alice", page_size=1000))
    dead = [entry.memory_id for entry in page.entries if entry.kind == v1.OPERATION_KIND_DELETE]
    assert len(dead) == len(set(dead)) == 300


def test_an_agents_and_a_runs_memories_are_subjects_too(dev: Tenant) -> None:
    dev.memories.Add(
        v1.AddRequest(
            memories=[
                v1.Memory(agent_id="helper", content="agent's", category="TASK"),
                v1.Memory(run_id="r", content="run's", category="TASK"),
                v1.Memory(user_id="alice", agent_id="helper", content="alice's", category="TASK"),
            ]
        )
    )
    assert delete(dev, TASKS, user_id="", agent_id="helper").deleted_count == 1
    assert delete(dev, TASKS, user_id="", run_id="r").deleted_count == 1
    assert living(dev) == {"alice's"}


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_reader_may_not(serving: Serving) -> None:
    with refused() as answer:
        delete(serving.with_key("dev", v1.ROLE_READER), TASKS, validate_only=True)
    assert answer.code is grpc.StatusCode.PERMISSION_DENIED


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no filter": ({"filter": None}, "filter"),
    "no filter in a dry run": ({"filter": None, "validate_only": True}, "filter"),
    "empty filter": ({"filter": v1.Filter()}, "filter"),
    "unknown field": (
        {"filter": v1.Filter(negation=condition("colour", v1.OPERATOR_EQ, "x"))},
        "filter.negation.condition.field",
    ),
    "no subject": ({"user_id": ""}, "user_id"),
    "two subjects": ({"agent_id": "a"}, "agent_id"),
    "scope with an empty segment": ({"scopes": ["ok", "a//b"]}, "scopes[1]"),
    "33 scopes": ({"scopes": ["a"] * 33}, "scopes"),
    "long request id": ({"request_id": "r" * 129}, "request_id"),
}


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_wrong_request_names_its_field_and_deletes_nothing(dev: Tenant, case: str) -> None:
    dev.add("one", category="TASK")
    changes, field = WRONG[case]
    with refused() as answer:
        dev.memories.DeleteByFilter(
            v1.DeleteByFilterRequest(**{"user_id": "alice", "filter": TASKS, **changes})
        )
    assert answer.code is grpc.StatusCode.INVALID_ARGUMENT
    assert answer.fields == [field]
    assert living(dev) == {"one"}
