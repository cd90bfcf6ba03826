"""Search: what is found, in which order, and why."""

from __future__ import annotations

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.struct_pb2 import Struct, Value

from rpc.conftest import Serving, Tenant
from scrubjay import v1


def hits(tenant: Tenant, query: str, **fields: object) -> v1.SearchResponse:
    return tenant.memories.Search(v1.SearchRequest(user_id="alice", query=query, **fields))


def where(field: str, operator: v1.Operator.ValueType, value: Value) -> v1.Filter:
    return v1.Filter(condition=v1.Condition(field=field, operator=operator, value=value))


def test_contributions_add_up_and_the_sentence_names_the_words(dev: Tenant) -> None:
    dev.add("I take my coffee black", "The invoice is due on Friday", "我每天早上喝咖啡", scope="home")
    for query in ("black coffee", "早上的咖啡", "when is the invoice due?", "nothing of the kind"):
        for hit in hits(dev, query, explain=True).hits:
            total = sum(part.value for part in hit.explanation.contributions)
            assert abs(total - hit.score) < 1e-6
            assert 0 <= hit.score <= 1
            assert [part.arm for part in hit.explanation.contributions] == ["dense", "lexical"]
            assert hit.explanation.sentence
    best = hits(dev, "black coffee", explain=True, scopes=["home"]).hits[0].explanation
    assert set(best.matched_terms) == {"black", "coffee"}
    assert "coffee" in best.sentence
    assert best.scope == "home"


def test_explaining_changes_nothing_else(dev: Tenant) -> None:
    dev.add(*[f"fact {n} about topic {n % 5}" for n in range(50)])
    plain, explained = hits(dev, "topic 3"), hits(dev, "topic 3", explain=True)
    for hit in explained.hits:
        hit.ClearField("explanation")
    assert plain == explained


def test_a_keyword_only_match_is_never_lost(dev: Tenant) -> None:
    dev.add(*[f"the weather in city number {n} was fine" for n in range(200)])
    dev.add("ticket QX-7731 was closed")
    assert dev.found("QX-7731", top_k=1) == ["ticket QX-7731 was closed"]


def test_a_two_character_chinese_word_is_found(dev: Tenant) -> None:
    dev.add(*[f"第{n}天我去跑步了" for n in range(100)])
    dev.add("下周三要去医院复查")
    assert dev.found("医院", top_k=1) == ["下周三要去医院复查"]


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11])
@pytest.mark.parametrize("backend", ["sqlite"])
def test_as_many_come_back_as_there_are_up_to_k(dev: Tenant, count: int) -> None:
    if count:
        dev.add(*[f"fact {n}" for n in range(count)])
    for recipe in ("default", "semantic"):
        assert len(dev.found("fact", top_k=10, recipe=recipe)) == min(count, 10)


@pytest.mark.parametrize("backend", ["sqlite"])
def test_one_alive_among_the_deleted_is_found(dev: Tenant) -> None:
    added = dev.add(*[f"row {n}" for n in range(300)])
    (alive,) = dev.add("the survivor")
    assert len(dev.found("row", top_k=200)) == 200
    for memory in added:
        dev.memories.Delete(v1.DeleteRequest(id=memory.id))
    assert dev.found("row", top_k=1) == ["the survivor"]
    dev.memories.Delete(v1.DeleteRequest(id=alive.id))
    assert dev.found("row") == []


def test_scopes_are_compared_segment_by_segment(dev: Tenant) -> None:
    for scope in ("acme", "acme/sales", "acme-corp", "home"):
        dev.add(f"note of {scope}", scope=scope)
    response = hits(dev, "note", scopes=["acme"])
    assert {hit.memory.scope for hit in response.hits} == {"acme", "acme/sales"}
    assert list(response.scopes) == ["acme"]
    assert not hits(dev, "note", scopes=["nowhere"]).hits


def test_filters_never_starve_the_answer(dev: Tenant) -> None:
    metadata = Struct()
    metadata.update({"project": "alpha", "effort": 3})
    dev.add(*[f"task {n}" for n in range(100)])
    dev.add("the only alpha thing", category="TASK", tags=["urgent"], metadata=metadata)
    for chosen in (
        where("metadata.project", v1.OPERATOR_EQ, Value(string_value="alpha")),
        where("metadata.effort", v1.OPERATOR_GTE, Value(number_value=3)),
        where("category", v1.OPERATOR_EQ, Value(string_value="TASK")),
        where("tags", v1.OPERATOR_CONTAINS, Value(string_value="urgent")),
    ):
        assert dev.found("task", filter=chosen, top_k=5) == ["the only alpha thing"]
        negated = dev.found("task", filter=v1.Filter(negation=chosen), top_k=200)
        assert len(negated) == 100
        assert "the only alpha thing" not in negated


def test_an_update_changes_what_is_found_at_once(dev: Tenant) -> None:
    (memory,) = dev.add("I use Vim")
    dev.add("I like hiking")
    assert dev.found("Vim", top_k=1) == ["I use Vim"]
    change = v1.UpdateRequest(
        memory=v1.Memory(id=memory.id, content="I use Emacs", category="PREFERENCE"),
        update_mask=FieldMask(paths=["content", "category"]),
    )
    dev.memories.Update(change)
    assert dev.found("Emacs", top_k=1) == ["I use Emacs"]
    (hit,) = [hit for hit in hits(dev, "Vim", explain=True).hits if hit.memory.id == memory.id]
    assert hit.memory.category == "PREFERENCE"
    assert not hit.explanation.matched_terms


def test_recipes_are_named_with_their_version(dev: Tenant) -> None:
    assert hits(dev, "x").recipe == "default-1"
    assert hits(dev, "x", recipe="semantic").recipe == "semantic-1"


@pytest.mark.parametrize("backend", ["sqlite"])
def test_an_embedder_without_semantics_says_so(serving: Serving) -> None:
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    with grpc.insecure_channel(serving.app.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)

        def status(service: str) -> int:
            return stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=5).status

        assert status("") == status("scrubjay.v1.MemoryService") == health_pb2.HealthCheckResponse.SERVING
        assert status("scrubjay.semantics") == health_pb2.HealthCheckResponse.NOT_SERVING
