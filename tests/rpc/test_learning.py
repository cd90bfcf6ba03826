"""Add with messages: what RAW and RULES make of a conversation."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from rpc.conftest import Serving, Tenant
from rpc.refusal import refused
from scrubjay import v1
from scrubjay.errors import ModelNotConfigured
from server.recall.context import CLOSING, OPENING

RAW, RULES = v1.WRITE_POLICY_RAW, v1.WRITE_POLICY_RULES
VS_CODE = "I no longer use Vim, I write code in VS Code now."
ALICE = v1.Memory(user_id="alice", source=v1.Source(conversation_id="c1"))


def at(day: str) -> Timestamp:
    time = Timestamp()
    time.FromJsonString(f"{day}T08:00:00Z")
    return time


def said(*texts: str, role: str = "user", **fields: Any) -> list[v1.ConversationMessage]:
    return [v1.ConversationMessage(role=role, content=text, **fields) for text in texts]


def learn(tenant: Tenant, messages: list[v1.ConversationMessage], **fields: Any) -> v1.AddResponse:
    given = {"template": ALICE, **fields}
    return tenant.memories.Add(v1.AddRequest(messages=messages, **given))


def stored(tenant: Tenant) -> list[v1.Memory]:
    return list(tenant.memories.List(v1.ListRequest(user_id="alice")).memories)


def test_raw_keeps_each_message_that_is_not_the_system_s(dev: Tenant) -> None:
    messages = [
        *said("You are a helpful assistant.", role="system"),
        *said("Hello!", id="m1", time=at("2026-03-01")),
        *said("你好，有什么可以帮你？", role="assistant", id="m2", time=at("2026-03-01")),
        *said("   "),
    ]
    response = learn(dev, messages, policy=RAW)
    assert [(one.memory.content, one.message_index) for one in response.results] == [
        ("Hello!", 1),
        ("你好，有什么可以帮你？", 2),
    ]
    first = response.results[0].memory
    assert (first.source.role, first.source.message_ids, first.source.conversation_id) == (
        "user",
        ["m1"],
        "c1",
    )
    assert (first.created_at, first.category) == (at("2026-03-01"), "FACT")
    assert {memory.id for memory in stored(dev)} == {one.memory.id for one in response.results}


def test_rules_keep_what_is_worth_it_and_say_by_which_rule(dev: Tenant) -> None:
    messages = said(
        "Hi! How are you?",
        "I prefer tea over coffee.",
        "明天提醒我给妈妈打电话。",
        "Can you write me a poem?",
        time=at("2026-03-01"),
    )
    response = learn(dev, messages)
    found = {one.message_index: one for one in response.results}
    assert sorted(found) == [1, 2]
    assert found[1].memory.category == "PREFERENCE"
    assert found[2].memory.category == "TASK"
    assert found[2].memory.valid_to.ToDatetime().date().isoformat() in ("2026-03-02", "2026-03-03")
    assert all(one.rule for one in found.values())
    entry = dev.memories.History(v1.HistoryRequest(memory_id=found[1].memory.id)).entries[0]
    assert entry.reason == f"rule: {found[1].rule}"


def test_nothing_worth_it_is_no_error_and_no_row(dev: Tenant) -> None:
    response = learn(dev, said("Thanks!", "ok", "你好"))
    assert not response.results
    assert stored(dev) == []


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
@pytest.mark.parametrize(
    ("old", "new", "question"),
    [
        (
            "I use Vim to write code.",
            "I no longer use Vim, I write code in VS Code now.",
            "what do I write code with?",
        ),
        ("我用Vim写代码。", "我不再用Vim了，现在用VS Code写代码。", "我用什么写代码？"),
    ],
    ids=["en", "zh"],
)
@pytest.mark.parametrize("at_once", [True, False], ids=["one call", "two calls"])
def test_what_is_true_no_more_ranks_under_what_is(
    dev: Tenant, old: str, new: str, question: str, at_once: bool
) -> None:
    if at_once:
        results = list(learn(dev, said(old, new)).results)
    else:
        results = [*learn(dev, said(old)).results, *learn(dev, said(new)).results]
        assert results[1].superseded_ids == [results[0].memory.id]
    older, newer = (one.memory.id for one in results)
    assert dev.found(question)[0] == new
    assert dev.memories.Get(v1.GetRequest(id=older)).memory.superseded_by == newer
    assert old in dev.found(question)


def test_what_holds_the_word_and_says_something_else_is_not_replaced(dev: Tenant) -> None:
    dev.add("The museum of old computers shows Vim beside a hundred other exhibits")
    dev.add("My sister uses Vim to write code.")
    dev.add("I gave a talk on how I use Vim to write code.", category="EVENT")
    response = learn(dev, said(VS_CODE))
    assert not response.results[0].superseded_ids
    assert not any(memory.superseded_by for memory in stored(dev))


def test_another_client_s_private_memory_is_not_replaced(serving: Serving) -> None:
    phone = serving.named("dev", serving.dev.key, client_id="phone")
    (secret,) = phone.add("I use Vim to write code.", privacy_level=v1.PRIVACY_LEVEL_PRIVATE)
    response = learn(serving.dev, said(VS_CODE))
    assert not response.results[0].superseded_ids
    assert not phone.memories.Get(v1.GetRequest(id=secret.id)).memory.superseded_by


def test_what_came_from_the_store_is_not_learnt_again(dev: Tenant) -> None:
    learn(dev, said("I prefer tea over coffee."))
    block = dev.memories.Context(v1.ContextRequest(user_id="alice", query="tea")).text
    assert block.startswith(OPENING)
    assert block.endswith(CLOSING)
    before = stored(dev)
    assert not learn(dev, said(f"{block}\nWhat should I drink?")).results
    assert stored(dev) == before


def test_an_early_fact_of_a_long_conversation_is_found(dev: Tenant) -> None:
    filler = "We talked about this and that for a while, and nothing came of it. " * 15
    messages = said("My sister Nora lives in Reykjavik.", *[filler] * 50)
    assert sum(len(message.content) for message in messages) > 50_000
    learn(dev, messages)
    assert "Nora" in dev.found("Where does Nora live?", top_k=1)[0]


def test_what_the_template_says_every_memory_has(dev: Tenant) -> None:
    template = v1.Memory(
        user_id="alice",
        scope="work/alpha",
        category="NOTE",
        tags=["imported"],
        privacy_level=v1.PRIVACY_LEVEL_PRIVATE,
        confidence=0.5,
    )
    for policy in (RAW, RULES):
        (one,) = learn(dev, said("I prefer tea over coffee."), policy=policy, template=template).results
        memory = one.memory
        assert (memory.scope, memory.category, memory.confidence) == ("work/alpha", "NOTE", 0.5)
        assert memory.privacy_level == v1.PRIVACY_LEVEL_PRIVATE
        assert "imported" in memory.tags


def test_a_repeat_gets_the_first_answer_and_stores_nothing(dev: Tenant) -> None:
    messages = said("I prefer tea over coffee.")
    first = learn(dev, messages, request_id="once")
    assert learn(dev, messages, request_id="once") == first
    assert len(stored(dev)) == 1


@pytest.mark.parametrize("backend", ["sqlite"])
@pytest.mark.parametrize("policy", [v1.WRITE_POLICY_APPEND, v1.WRITE_POLICY_RECONCILE])
def test_a_policy_that_needs_a_model_says_which_setting_is_missing(
    dev: Tenant, policy: v1.WritePolicy.ValueType
) -> None:
    with refused() as call:
        learn(dev, said("I prefer tea."), policy=policy)
    assert call.code == grpc.StatusCode.FAILED_PRECONDITION
    assert isinstance(call.error, ModelNotConfigured)
    assert "SCRUBJAY_CHAT_MODEL" in call.error.message
    assert stored(dev) == []


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "beside memories": ({"memories": [v1.Memory(user_id="a", content="x")]}, "messages"),
    "101 messages": ({"messages": said(*["x"] * 101)}, "messages"),
    "all blank": ({"messages": said("", "  ")}, "messages"),
    "no role": ({"messages": said("x", role="")}, "messages[0].role"),
    "a NUL": ({"messages": said("a", "x\0")}, "messages[1].content"),
    "too long": ({"messages": said("x" * (64 * 1024 + 1))}, "messages[0].content"),
    "no time": ({"messages": said("x", time=Timestamp(seconds=2**40))}, "messages[0].time"),
    "unknown policy": ({"policy": 99}, "policy"),
    "no subject": ({"template": v1.Memory()}, "template.user_id"),
    "an id": ({"template": v1.Memory(user_id="a", id="x")}, "template.id"),
    "a content": ({"template": v1.Memory(user_id="a", content="x")}, "template.content"),
    "a wrong scope": ({"template": v1.Memory(user_id="a", scope="/")}, "template.scope"),
    "local only": ({"template": v1.Memory(user_id="a", privacy_level=1)}, "template.privacy_level"),
    "raw and too long": ({"messages": said("x" * 20_000), "policy": RAW}, "messages[0].content"),
}


@pytest.mark.parametrize("backend", ["sqlite"])
@pytest.mark.parametrize("wrong", WRONG, ids=list(WRONG))
def test_what_is_wrong_is_named_and_nothing_is_stored(dev: Tenant, wrong: str) -> None:
    fields, where = WRONG[wrong]
    with refused() as call:
        learn(dev, **{"messages": said("I prefer tea."), **fields})
    assert (call.code, call.fields) == (grpc.StatusCode.INVALID_ARGUMENT, [where])
    assert stored(dev) == []
