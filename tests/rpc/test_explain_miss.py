"""ExplainMiss: the first gate that kept a memory out, and nothing of what the caller may not see."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

import grpc
import pytest
from google.protobuf.struct_pb2 import Value
from google.protobuf.timestamp_pb2 import Timestamp

from rpc.conftest import Serving, Tenant
from rpc.refusal import refused
from scrubjay import v1
from server.index import switch
from server.recall import candidates


def missed(tenant: Tenant, memory_id: str, query: str = "tea", **fields: object) -> v1.ExplainMissResponse:
    asked = v1.SearchRequest(user_id="alice", query=query, **fields)
    return tenant.memories.ExplainMiss(v1.ExplainMissRequest(search=asked, memory_id=memory_id))


def from_now(**span: float) -> Timestamp:
    time = Timestamp()
    time.FromDatetime(datetime.now(UTC) + timedelta(**span))
    return time


def test_a_hit_is_kept_out_by_nothing(dev: Tenant) -> None:
    dev.add("milk and honey")
    (tea,) = dev.add("tea with milk")
    answer = missed(dev, tea.id)
    assert (answer.gate, answer.rank) == (v1.MISS_GATE_NONE, 1)
    hit = dev.memories.Search(v1.SearchRequest(user_id="alice", query="tea", explain=True)).hits[0]
    assert (answer.score, answer.explanation) == (hit.score, hit.explanation)
    assert "place 1" in answer.sentence


def test_each_gate_is_named_and_the_first_one_wins(dev: Tenant) -> None:
    task = v1.Filter(
        condition=v1.Condition(field="category", operator=v1.OPERATOR_EQ, value=Value(string_value="TASK"))
    )
    (tea,) = dev.add(
        "tea", scope="home", agent_id="a", valid_from=from_now(days=-1), expires_at=from_now(days=-0.5)
    )
    gates = (
        (v1.MISS_GATE_SCOPE, "home", {"scopes": ["work"], "inherit": True}),
        (v1.MISS_GATE_AGENT_OR_RUN, "agent", {"agent_id": "b"}),
        (v1.MISS_GATE_VALIDITY, "from", {"valid_at": from_now(days=-2)}),
        (v1.MISS_GATE_EXPIRED, "expired", {"filter": task}),
    )
    for n, (gate, word, fields) in enumerate(gates):
        for _, _, later in gates[n + 1 :]:
            fields = later | fields
        answer = missed(dev, tea.id, **fields)
        assert answer.gate == gate
        assert word in answer.sentence
        assert (answer.rank, answer.score, answer.HasField("explanation")) == (0, 0, False)
    (tea,) = dev.add("tea", scope="home", agent_id="a")
    assert missed(dev, tea.id, filter=task).gate == v1.MISS_GATE_FILTER
    assert missed(dev, tea.id, scopes=["home"], agent_id="a").gate == v1.MISS_GATE_NONE


def test_the_rank_counts_what_the_filter_lets_through(dev: Tenant) -> None:
    dev.add("tea tea", "tea time", "my tea", category="TASK")
    (tea,) = dev.add("something about tea and a hundred other things")
    answer = missed(dev, tea.id, top_k=2)
    assert (answer.gate, answer.rank) == (v1.MISS_GATE_TOP_K, 4)
    assert "place 4" in answer.sentence
    assert sum(part.value for part in answer.explanation.contributions) == pytest.approx(answer.score)
    fact = v1.Condition(field="category", operator=v1.OPERATOR_EQ, value=Value(string_value="FACT"))
    answer = missed(dev, tea.id, top_k=2, filter=v1.Filter(condition=fact))
    assert (answer.gate, answer.rank) == (v1.MISS_GATE_NONE, 1)


def test_what_was_replaced_and_what_scores_too_low(dev: Tenant) -> None:
    (newer,) = dev.add("We drink another thing now")
    (older,) = dev.add("tea", superseded_by=newer.id)
    (other,) = dev.add("coffee")
    answer = missed(dev, older.id, top_k=1)
    assert answer.gate == v1.MISS_GATE_SUPERSEDED
    assert newer.id in answer.sentence
    assert missed(dev, older.id, top_k=2).gate == v1.MISS_GATE_NONE
    answer = missed(dev, other.id, query="zebra", recipe="hybrid-v3")
    assert answer.gate == v1.MISS_GATE_THRESHOLD
    assert "0.08" in answer.sentence


@pytest.mark.parametrize("backend", ["sqlite"])
def test_among_very_many_no_arm_may_choose_it(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    dev, phone = serving.dev, serving.named("dev", serving.dev.key, client_id="phone")
    monkeypatch.setattr(switch, "EXACT_ROWS", 8)
    monkeypatch.setattr(candidates, "LEAST_POOL", 5)
    monkeypatch.setattr(candidates, "POOL", 1)
    dev.add(*[f"tea number {n}" for n in range(40)])
    phone.add("tea of mine", privacy_level=v1.PRIVACY_LEVEL_PRIVATE)
    (other,) = dev.add("zebra")
    answer = missed(dev, other.id, top_k=1)
    assert answer.gate == v1.MISS_GATE_POOL
    assert "41" in answer.sentence


def test_it_explains_what_was_as_well(dev: Tenant) -> None:
    (tea,) = dev.add("tea")
    answer = missed(dev, tea.id, as_of=from_now(seconds=5))
    assert answer.gate == v1.MISS_GATE_NONE
    with refused() as before:
        missed(dev, tea.id, as_of=from_now(days=-1))
    assert before.code == grpc.StatusCode.NOT_FOUND


def test_what_the_caller_may_not_see_is_unknown(serving: Serving) -> None:
    phone = serving.named("dev", serving.dev.key, client_id="phone")
    (secret,) = phone.add("tea", privacy_level=v1.PRIVACY_LEVEL_PRIVATE)
    (of_bob,) = serving.dev.add("tea", user_id="bob")
    (of_globex,) = serving.tenant("globex").add("tea")
    (gone,) = serving.dev.add("tea", user_id="bob")
    serving.dev.memories.Delete(v1.DeleteRequest(id=gone.id))
    with refused() as unknown:
        missed(serving.dev, str(uuid.uuid4()))
    assert unknown.error.reason == v1.ERROR_REASON_MEMORY_NOT_FOUND
    for memory in (secret, of_bob, of_globex, gone):
        with refused() as hidden:
            missed(serving.dev, memory.id)
        expected = unknown.details.replace(unknown_id(unknown.details), memory.id.encode())
        assert (hidden.code, hidden.details) == (unknown.code, expected)
    assert missed(phone, secret.id).gate == v1.MISS_GATE_NONE


def unknown_id(details: bytes) -> bytes:
    """The id that a refusal names; empty where it names none."""
    import re

    found = re.search(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", details)
    return found[0] if found else b"\xff\xff no id"


def test_a_deleted_memory_is_told_to_be_deleted(dev: Tenant) -> None:
    (tea,) = dev.add("tea")
    dev.memories.Delete(v1.DeleteRequest(id=tea.id))
    with refused() as answer:
        missed(dev, tea.id)
    assert answer.error.reason == v1.ERROR_REASON_MEMORY_DELETED


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_wrong_field_is_named(dev: Tenant) -> None:
    (tea,) = dev.add("tea")
    for request, field in (
        (v1.ExplainMissRequest(memory_id=tea.id), "search"),
        (
            v1.ExplainMissRequest(search=v1.SearchRequest(user_id="alice", query="x"), memory_id="x"),
            "memory_id",
        ),
        (v1.ExplainMissRequest(search=v1.SearchRequest(user_id="alice"), memory_id=tea.id), "search.query"),
        (v1.ExplainMissRequest(search=v1.SearchRequest(query="x"), memory_id=tea.id), "search.user_id"),
    ):
        with refused() as answer:
            dev.memories.ExplainMiss(request)
        assert answer.fields == [field]
