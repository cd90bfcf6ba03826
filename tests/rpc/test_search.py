"""Search: what is found, in which order, and why."""

from __future__ import annotations

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.struct_pb2 import Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp

from rpc.conftest import Serving, Tenant
from rpc.refusal import refused
from scrubjay import v1
from server.index import switch
from server.recall.recipes import RECIPES


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
            assert {"dense", "lexical"} <= {part.arm for part in hit.explanation.contributions}
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
@pytest.mark.parametrize("exact_rows", [switch.EXACT_ROWS, 5])
def test_as_many_come_back_as_there_are_up_to_k(
    dev: Tenant, count: int, exact_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(switch, "EXACT_ROWS", exact_rows)
    if count:
        dev.add(*[f"fact {n}" for n in range(count)])
    for recipe in RECIPES:
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
    for name in RECIPES:
        assert hits(dev, "x", recipe=name).recipe == f"{name}-{RECIPES[name].version}"
    assert hits(dev, "x").recipe == f"default-{RECIPES['default'].version}"


def test_a_recipe_says_how_many_hits_it_gives(dev: Tenant) -> None:
    dev.add(*[f"tea {n}" for n in range(25)])
    assert len(hits(dev, "tea").hits) == 10
    assert len(hits(dev, "tea", recipe="hybrid-v3").hits) == 20
    assert len(hits(dev, "tea", recipe="hybrid-v3", top_k=3).hits) == 3


def test_what_was_replaced_ranks_under_what_replaced_it(dev: Tenant) -> None:
    (newest,) = dev.add("Now we meet on another day")
    (newer,) = dev.add("The meeting moved to Friday", superseded_by=newest.id)
    (older,) = dev.add("The meeting is on Thursday at nine")
    dev.add("The meeting room is blue")
    query = "meeting on Thursday at nine"
    assert dev.found(query)[0] == older.content
    change = v1.Memory(id=older.id, superseded_by=newer.id)
    dev.memories.Update(v1.UpdateRequest(memory=change, update_mask=FieldMask(paths=["superseded_by"])))
    found = hits(dev, query, explain=True).hits
    assert [hit.memory.id for hit in found[:3]] == [newest.id, newer.id, older.id]
    assert [hit.explanation.contributions[-1].arm for hit in found[:2]] == ["supersedes", "supersedes"]
    assert found[2].explanation.contributions[-1].arm == "superseded"
    assert newer.id in found[2].explanation.sentence
    for hit in found:
        assert sum(part.value for part in hit.explanation.contributions) == pytest.approx(hit.score, abs=1e-6)


def test_what_is_inherited_is_told_with_what_was_searched(dev: Tenant) -> None:
    dev.add("the offer for Acme", scope="work/sales", category="TASK")
    dev.add("prefers short mails", category="PREFERENCE")
    dev.add("mails are answered tomorrow", category="TASK")
    dev.add("mails from the school", scope="home")
    plain = hits(dev, "mails", scopes=["work/sales"])
    assert [hit.memory.category for hit in plain.hits] == ["TASK"]
    assert list(plain.inherited_scopes) == []
    answer = hits(dev, "mails", scopes=["work/sales"], inherit=True, explain=True)
    assert {hit.memory.content for hit in answer.hits} == {"the offer for Acme", "prefers short mails"}
    assert (list(answer.scopes), list(answer.inherited_scopes)) == (["work/sales"], ["general"])
    first, second = answer.hits
    assert (first.memory.category, first.explanation.scope) == ("PREFERENCE", "general")
    assert "taken along" in first.explanation.sentence
    assert second.explanation.scope == "work/sales"
    assert list(hits(dev, "mails", inherit=True).inherited_scopes) == []


def test_valid_at_asks_what_was_true_then(dev: Tenant) -> None:
    dev.add("lived in Berlin", valid_to=Timestamp(seconds=1_700_000_000))
    dev.add("lives in Lisbon", valid_from=Timestamp(seconds=1_700_000_000))
    dev.add("likes tea")
    assert len(dev.found("lives")) == 3
    assert set(dev.found("lives", valid_at=Timestamp(seconds=1_699_999_999))) == {
        "lived in Berlin",
        "likes tea",
    }
    assert set(dev.found("lives", valid_at=Timestamp(seconds=1_700_000_000))) == {
        "lives in Lisbon",
        "likes tea",
    }


def test_neighbours_come_with_a_hit(dev: Tenant) -> None:
    turns = [
        v1.Memory(
            user_id="alice",
            content=content,
            created_at=Timestamp(seconds=1_700_000_000 + n),
            source=v1.Source(conversation_id="c1"),
        )
        for n, content in enumerate(
            ("Shall we eat?", "The risotto was best", "Yes, about nine", "Good night")
        )
    ]
    stored = [result.memory for result in dev.memories.Add(v1.AddRequest(memories=turns)).results]
    dev.add("The risotto of another day")
    (hit,) = hits(dev, "Yes, about nine", top_k=1, neighbours=2).hits
    assert list(hit.before) == stored[:2]
    assert list(hit.after) == stored[3:]
    (hit,) = hits(dev, "Yes, about nine", top_k=1).hits
    assert not hit.before
    assert not hit.after


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_private_memory_moves_nothing_for_others(serving: Serving) -> None:
    dev, phone = serving.dev, serving.named("dev", serving.dev.key, client_id="phone")
    source = v1.Source(conversation_id="c1")
    (old,) = dev.add("tea in the morning", "tea at noon", source=source)[:1]
    requests = [
        v1.SearchRequest(user_id="alice", query="tea", recipe=name, neighbours=2, explain=True)
        for name in RECIPES
        if name != "shared-memory"  # whose scores fade from one moment to the next
    ]
    before = [dev.memories.Search(request) for request in requests]
    private = v1.PRIVACY_LEVEL_PRIVATE
    phone.add("tea tea", "morning tea", "noon", source=source, privacy_level=private, tags=["tea"])
    phone.add("replaced", superseded_by=old.id, privacy_level=private)
    assert [dev.memories.Search(request) for request in requests] == before
    assert len(phone.found("tea")) == 6


@pytest.mark.parametrize("backend", ["sqlite"])
@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"neighbours": -1}, "neighbours"),
        ({"neighbours": 6}, "neighbours"),
        ({"recipe": "Default"}, "recipe"),
        ({"top_k": 201}, "top_k"),
        ({"valid_at": Timestamp(seconds=-(10**12))}, "valid_at"),
        ({"scopes": ["a//b"], "inherit": True}, "scopes[0]"),
    ],
)
def test_a_wrong_field_is_named(dev: Tenant, fields: dict[str, object], wrong: str) -> None:
    with refused() as answer:
        hits(dev, "x", **fields)
    assert answer.fields == [wrong]


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
