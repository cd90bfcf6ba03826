"""What a wrong call gets: a code, a reason, the field, and nothing stored. Ordinary input that only looks
wrong is stored and found."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.struct_pb2 import Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp

from rpc.conftest import Serving, Tenant
from rpc.refusal import refused
from scrubjay import v1

INVALID = grpc.StatusCode.INVALID_ARGUMENT
SOME_ID = "0193f0c2-a5b1-7000-8000-000000000000"
LIMIT = 16 * 1024


def memory(**fields: Any) -> v1.AddRequest:
    return v1.AddRequest(memories=[v1.Memory(**{"user_id": "alice", "content": "x"} | fields)])


def struct(values: dict[str, Any]) -> Struct:
    message = Struct()
    message.update(values)
    return message


def condition(field: str, operator: v1.Operator.ValueType, value: Value | None = None) -> v1.Filter:
    return v1.Filter(
        condition=v1.Condition(field=field, operator=operator, value=value or Value(string_value="x"))
    )


def nested(depth: int) -> v1.Filter:
    node = condition("category", v1.OPERATOR_EQ)
    for _ in range(depth):
        node = v1.Filter(negation=node)
    return node


WRONG_ADDS: dict[str, tuple[v1.AddRequest, str]] = {
    "no memories": (v1.AddRequest(), "memories"),
    "101 memories": (v1.AddRequest(memories=[v1.Memory(user_id="a", content="x")] * 101), "memories"),
    "blank content": (memory(content=" \n\t　"), "memories[0].content"),
    "no content": (memory(content=""), "memories[0].content"),
    "16 KiB + 1": (memory(content="x" * (LIMIT + 1)), "memories[0].content"),
    "16 KiB + 1 in Chinese": (memory(content="记" * (LIMIT // 3 + 1)), "memories[0].content"),
    "NUL": (memory(content="a\0b"), "memories[0].content"),
    "NUL in the user id": (memory(user_id="a\0b"), "memories[0].user_id"),
    "long user id": (memory(user_id="u" * 257), "memories[0].user_id"),
    "blank user id": (memory(user_id="  "), "memories[0].user_id"),
    "no subject": (memory(user_id=""), "memories[0].user_id"),
    "malformed id": (memory(id="not-a-uuid"), "memories[0].id"),
    "upper-case id": (memory(id=SOME_ID.upper()), "memories[0].id"),
    "scope with an empty segment": (memory(scope="work//alpha"), "memories[0].scope"),
    "scope that ends in a slash": (memory(scope="work/"), "memories[0].scope"),
    "33 tags": (memory(tags=[f"t{n}" for n in range(33)]), "memories[0].tags"),
    "blank tag": (memory(tags=[" "]), "memories[0].tags"),
    "long tag": (memory(tags=["t" * 65]), "memories[0].tags"),
    "33 metadata keys": (memory(metadata=struct({f"k{n}": n for n in range(33)})), "memories[0].metadata"),
    "large metadata": (memory(metadata=struct({"k": "v" * 8192})), "memories[0].metadata"),
    "subject in metadata": (memory(metadata=struct({"user_id": "bob"})), "memories[0].metadata.user_id"),
    "NaN in metadata": (memory(metadata=struct({"k": float("nan")})), "memories[0].metadata.k"),
    "confidence above 1": (memory(confidence=1.5), "memories[0].confidence"),
    "confidence NaN": (memory(confidence=float("nan")), "memories[0].confidence"),
    "local only": (memory(privacy_level=v1.PRIVACY_LEVEL_LOCAL_ONLY), "memories[0].privacy_level"),
    "unknown privacy level": (memory(privacy_level=9), "memories[0].privacy_level"),
    "year 0": (memory(created_at=Timestamp(seconds=-62135596801)), "memories[0].created_at"),
    "year 10000": (memory(expires_at=Timestamp(seconds=253402300800)), "memories[0].expires_at"),
    "valid to before from": (
        memory(valid_from=Timestamp(seconds=2), valid_to=Timestamp(seconds=1)),
        "memories[0].valid_to",
    ),
    "long request id": (v1.AddRequest(request_id="r" * 129, memories=memory().memories), "request_id"),
}


@pytest.mark.parametrize("case", WRONG_ADDS)
@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_wrong_add_names_the_field_and_stores_nothing(dev: Tenant, case: str) -> None:
    request, field = WRONG_ADDS[case]
    with refused() as answer:
        dev.memories.Add(request)
    assert answer.code is INVALID
    assert answer.error.reason == v1.ERROR_REASON_INVALID_FIELD
    assert answer.fields == [field]
    assert answer.error.field_violations[0].description
    assert not dev.memories.List(v1.ListRequest(user_id="alice")).memories


def search(**fields: Any) -> Callable[[v1.MemoryServiceStub], Any]:
    request = v1.SearchRequest(**{"user_id": "alice", "query": "x"} | fields)
    return lambda stub: stub.Search(request)


def update(*paths: str, **fields: Any) -> Callable[[v1.MemoryServiceStub], Any]:
    values = v1.Memory(**{"id": SOME_ID} | fields)
    request = v1.UpdateRequest(memory=values, update_mask=FieldMask(paths=paths))
    return lambda stub: stub.Update(request)


WRONG_CALLS: dict[str, tuple[Callable[[v1.MemoryServiceStub], Any], str]] = {
    "search without a subject": (search(user_id=""), "user_id"),
    "search for nothing": (search(query=""), "query"),
    "search for blanks": (search(query=" \n"), "query"),
    "search for 16 KiB + 1": (search(query="x" * (LIMIT + 1)), "query"),
    "search for NUL": (search(query="\0"), "query"),
    "top_k 201": (search(top_k=201), "top_k"),
    "top_k -1": (search(top_k=-1), "top_k"),
    "unknown recipe": (search(recipe="magic"), "recipe"),
    "scope with an empty segment": (search(scopes=["ok", "a//b"]), "scopes[1]"),
    "33 scopes": (search(scopes=["a"] * 33), "scopes"),
    "filter on an unknown field": (
        search(filter=condition("colour", v1.OPERATOR_EQ)),
        "filter.condition.field",
    ),
    "filter without operator": (
        search(filter=condition("category", v1.OPERATOR_UNSPECIFIED)),
        "filter.condition.operator",
    ),
    "filter with an unknown operator": (
        search(filter=condition("category", 99)),
        "filter.condition.operator",
    ),  # type: ignore[arg-type] # a number the enum has not
    "filter with a bad time": (
        search(filter=condition("created_at", v1.OPERATOR_GT)),
        "filter.condition.value",
    ),
    "empty filter": (search(filter=v1.Filter()), "filter"),
    "filter 9 deep": (search(filter=nested(9)), "filter" + ".negation" * 8),
    "revision that is none": (search(min_revision="abc"), "min_revision"),
    "get without an id": (lambda stub: stub.Get(v1.GetRequest()), "id"),
    "get of no UUID": (lambda stub: stub.Get(v1.GetRequest(id="42")), "id"),
    "batch get of nothing": (lambda stub: stub.BatchGet(v1.BatchGetRequest()), "ids"),
    "batch get of 101": (lambda stub: stub.BatchGet(v1.BatchGetRequest(ids=[SOME_ID] * 101)), "ids"),
    "batch get of no UUID": (lambda stub: stub.BatchGet(v1.BatchGetRequest(ids=[SOME_ID, "x"])), "ids[1]"),
    "list without a subject": (lambda stub: stub.List(v1.ListRequest()), "user_id"),
    "page of 1001": (lambda stub: stub.List(v1.ListRequest(user_id="a", page_size=1001)), "page_size"),
    "page token that is none": (
        lambda stub: stub.List(v1.ListRequest(user_id="a", page_token="x")),
        "page_token",
    ),
    "empty mask": (update(), "update_mask"),
    "unknown field in the mask": (update("colour"), "update_mask"),
    "fixed field in the mask": (update("created_at"), "update_mask"),
    "subject in the mask": (update("user_id"), "update_mask"),
    "blank content in an update": (update("content", content=" "), "memory.content"),
    "local only in an update": (
        update("privacy_level", privacy_level=v1.PRIVACY_LEVEL_LOCAL_ONLY),
        "memory.privacy_level",
    ),
    "update of no UUID": (update("content", id="x", content="y"), "memory.id"),
    "base stamp that is none": (
        lambda stub: stub.Update(
            v1.UpdateRequest(
                memory=v1.Memory(id=SOME_ID, content="x"),
                update_mask=FieldMask(paths=["content"]),
                base_stamps=[v1.FieldStamp(field="content", stamp="yesterday")],
            )
        ),
        "base_stamps[0].stamp",
    ),
    "delete without an id": (lambda stub: stub.Delete(v1.DeleteRequest()), "id"),
    "delete all of nobody": (lambda stub: stub.DeleteAll(v1.DeleteAllRequest()), "user_id"),
    "delete all of two": (
        lambda stub: stub.DeleteAll(v1.DeleteAllRequest(user_id="a", agent_id="b")),
        "agent_id",
    ),
    "history of nothing": (lambda stub: stub.History(v1.HistoryRequest()), "user_id"),
    "history of two things": (
        lambda stub: stub.History(v1.HistoryRequest(memory_id=SOME_ID, user_id="a")),
        "memory_id",
    ),
}


@pytest.mark.parametrize("case", WRONG_CALLS)
@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_wrong_call_names_the_field(dev: Tenant, case: str) -> None:
    call, field = WRONG_CALLS[case]
    with refused() as answer:
        call(dev.memories)
    assert answer.code is INVALID
    assert answer.error.reason == v1.ERROR_REASON_INVALID_FIELD
    assert answer.fields == [field]


ORDINARY = {
    "Chinese": "我昨天在里斯本喝了一杯咖啡",
    "Traditional Chinese": "我昨天在里斯本喝了一杯咖啡，很好喝",
    "emoji": "👩‍👩‍👧‍👦 🇵🇹 🐦",
    "right to left": "أنا أحب القهوة في لشبونة",
    "mixed directions": "קפה coffee قهوة",
    "combining marks": "Z̸̢̛͓͚a̷l̶g̷o̴ e\u0301",
    "16 KiB": "x" * LIMIT,
    "16 KiB of Chinese": "记" * (LIMIT // 3),
    "one character": "x",
    "punctuation": "?!",
    "newlines": "one\ntwo\r\nthree",
    "JSON": '{"a": [1, 2]}',
    "SQL": "'; DROP TABLE memories; --",
    "percent and underscore": "100%_sure",
    "ten ligatures": "\ufdfa" * 10,
    "a noncharacter": "\uffff",
}


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_ordinary_texts_are_stored_found_and_updated(dev: Tenant) -> None:
    for name, text in ORDINARY.items():
        user_id = f"{name} {text[:40]}"
        (stored,) = dev.add(text, user_id=user_id)
        assert stored.content == text, name
        assert dev.found(text, user_id=user_id) == [text], name
        change = v1.Memory(id=stored.id, content=f"{text[:200]} again")
        dev.memories.Update(v1.UpdateRequest(memory=change, update_mask=FieldMask(paths=["content"])))
        assert dev.memories.Get(v1.GetRequest(id=stored.id)).memory.content == change.content, name


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_star_is_a_name_like_any_other(dev: Tenant) -> None:
    dev.add("alice's")
    dev.add("the star's", user_id="*")
    assert dev.found("star", user_id="*") == ["the star's"]
    assert dev.found("star", user_id="%") == []


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_lone_surrogate_on_the_wire_is_refused(dev: Tenant) -> None:
    body = memory(content="XXX").SerializeToString().replace(b"XXX", b"\xed\xa0\x80")
    call = dev.channel.unary_unary("/scrubjay.v1.MemoryService/Add")
    with refused() as answer:
        call(body, timeout=5)
    assert answer.code is INVALID
    assert "UTF-8" in answer.error.message


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_message_of_five_megabytes_is_too_large(dev: Tenant) -> None:
    call = dev.channel.unary_unary("/scrubjay.v1.MemoryService/Add")
    with refused() as answer:
        call(b"\0" * 5_000_000, timeout=10)
    assert answer.code is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_large_message_past_the_client_gets_a_reason(serving: Serving) -> None:
    with grpc.insecure_channel(
        serving.app.address, options=[("grpc.max_send_message_length", 16 * 1024 * 1024)]
    ) as channel:
        call = channel.unary_unary("/scrubjay.v1.MemoryService/Add")
        with refused() as answer:
            call(b"\0" * 5_000_000, timeout=10, metadata=[("authorization", f"Bearer {serving.dev.key}")])
    assert answer.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert answer.error.reason == v1.ERROR_REASON_MESSAGE_TOO_LARGE


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_a_request_id_with_another_body_is_refused(dev: Tenant) -> None:
    request_id = str(uuid.uuid4())
    dev.memories.Add(v1.AddRequest(request_id=request_id, memories=memory(content="one").memories))
    with refused() as answer:
        dev.memories.Add(v1.AddRequest(request_id=request_id, memories=memory(content="two").memories))
    assert answer.code is grpc.StatusCode.FAILED_PRECONDITION
    assert answer.error.reason == v1.ERROR_REASON_REQUEST_ID_REUSED
    assert dev.found("one") == ["one"]


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_page_tokens_go_on_in_their_own_list_only(serving: Serving) -> None:
    serving.dev.add("one", "two", "three")
    other = serving.tenant("other")
    other.add("one", "two", "three")
    page = serving.dev.memories.List(v1.ListRequest(user_id="alice", page_size=1))
    for stub, request in (
        (other.memories, v1.ListRequest(user_id="alice", page_size=1, page_token=page.next_page_token)),
        (serving.dev.memories, v1.ListRequest(user_id="bob", page_token=page.next_page_token)),
        (
            serving.dev.memories,
            v1.ListRequest(user_id="alice", scopes=["x"], page_token=page.next_page_token),
        ),
    ):
        with refused() as answer:
            stub.List(request)
        assert answer.fields == ["page_token"]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("backend", ["sqlite"])
def test_an_update_to_no_finite_number_is_refused_and_changes_nothing(dev: Tenant, number: float) -> None:
    (stored,) = dev.add("x", confidence=0.5)
    for path, values, field in (
        ("confidence", {"confidence": number}, "memory.confidence"),
        ("metadata", {"metadata": struct({"k": number})}, "memory.metadata.k"),
    ):
        changed = v1.Memory(id=stored.id, **values)
        with refused() as answer:
            dev.memories.Update(v1.UpdateRequest(memory=changed, update_mask=FieldMask(paths=[path])))
        assert (answer.code, answer.fields) == (INVALID, [field])
    assert dev.memories.Get(v1.GetRequest(id=stored.id)).memory == stored
