"""Add: what is said again is not stored again, and nothing of it is lost."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from rpc.conftest import Serving, Tenant
from rpc.refusal import refused
from scrubjay import v1

ADDED, DUPLICATE, MERGED_INTO = v1.ADD_STATUS_ADDED, v1.ADD_STATUS_DUPLICATE, v1.ADD_STATUS_MERGED_INTO
PARALLEL = 64
BOUND_SECONDS = 20


def alice(content: str, **fields: Any) -> v1.Memory:
    return v1.Memory(**{"user_id": "alice", "content": content, **fields})


def add(tenant: Tenant, *memories: v1.Memory, **fields: Any) -> list[v1.AddResult]:
    return list(tenant.memories.Add(v1.AddRequest(memories=memories, **fields)).results)


def add_one(tenant: Tenant, content: str, **fields: Any) -> v1.AddResult:
    (result,) = add(tenant, alice(content, **fields))
    return result


def stored(tenant: Tenant) -> list[v1.Memory]:
    return list(tenant.memories.List(v1.ListRequest(user_id="alice", page_size=200)).memories)


def history(tenant: Tenant, memory: v1.Memory) -> list[v1.HistoryEntry]:
    return list(tenant.memories.History(v1.HistoryRequest(memory_id=memory.id)).entries)


def day(text: str) -> Timestamp:
    time = Timestamp()
    time.FromJsonString(f"{text}T00:00:00Z")
    return time


@pytest.mark.parametrize(
    ("first", "again"),
    [
        ("I like tea.", "  i LIKE tea!"),
        ("我喜歡綠茶。", "我喜欢绿茶"),
        ("It costs 1,000 euros", "it costs 1000 Euros."),
    ],
)
def test_the_same_again_is_answered_with_what_is_stored(dev: Tenant, first: str, again: str) -> None:
    standing = add_one(dev, first)
    result = add_one(dev, again)
    assert (standing.status, result.status) == (ADDED, DUPLICATE)
    assert result.memory == standing.memory
    assert stored(dev) == [standing.memory]
    assert len(history(dev, standing.memory)) == 1


def test_what_is_said_again_counts_as_an_access(dev: Tenant) -> None:
    memory_id = add_one(dev, "I like tea.").memory.id
    add_one(dev, "I like tea")
    add_one(dev, "I really like tea")
    deadline = time.monotonic() + BOUND_SECONDS
    while (count := dev.memories.Get(v1.GetRequest(id=memory_id)).access_count) < 2:
        assert time.monotonic() < deadline
    assert count == 2


@pytest.mark.parametrize(
    ("first", "other"),
    [("I write C++", "I write C#"), ("It is -3.5 degrees", "It is 35 degrees"), ("我吃辣", "我不吃辣")],
)
def test_what_only_looks_alike_is_stored(dev: Tenant, first: str, other: str) -> None:
    assert [add_one(dev, first).status, add_one(dev, other).status] == [ADDED, ADDED]


def test_another_wording_is_kept_in_history_and_its_tags_and_metadata_on_what_stands(dev: Tenant) -> None:
    standing = add_one(dev, "I prefer tea over coffee.", tags=["drinks"]).memory
    metadata = alice("").metadata
    metadata["mood"] = "sure"
    result = add_one(dev, "I really prefer tea to coffee.", tags=["drinks", "morning"], metadata=metadata)
    assert (result.status, result.memory.id) == (MERGED_INTO, standing.id)
    assert result.memory.content == "I prefer tea over coffee."
    assert (set(result.memory.tags), dict(result.memory.metadata)) == (
        {"drinks", "morning"},
        {"mood": "sure"},
    )
    assert stored(dev) == [result.memory]
    newest = history(dev, standing)[0]
    assert newest.reason == "said again"
    assert newest.sentence.endswith(
        "said it again in other words, which added tags.morning and metadata.mood."
    )
    wordings = [change for change in newest.changes if change.field == "content"]
    assert [(one.new_value.string_value, one.outcome) for one in wordings] == [
        ("I really prefer tea to coffee.", v1.OUTCOME_SUPERSEDED)
    ]
    assert dev.memories.Search(v1.SearchRequest(user_id="alice", query="tea")).hits[0].memory == result.memory


def test_tags_that_only_the_second_has_are_not_lost(dev: Tenant) -> None:
    standing = add_one(dev, "I like tea.").memory
    result = add_one(dev, "I like tea.", tags=["drinks"])
    assert (result.status, list(result.memory.tags)) == (MERGED_INTO, ["drinks"])
    assert [entry.reason for entry in history(dev, standing)] == ["said again", ""]


@pytest.mark.parametrize(
    "other",
    [
        {"scope": "work"},
        {"agent_id": "coder"},
        {"run_id": "r1"},
        {"user_id": "bob"},
        {"privacy_level": v1.PRIVACY_LEVEL_PRIVATE},
        {"category": "TASK"},
        {"valid_from": day("2026-03-01"), "valid_to": day("2026-03-02")},
        {"pinned": True},
        {"metadata": {"order": 2}},
        {"source": v1.Source(role="assistant")},
    ],
)
def test_another_place_or_day_is_another_memory(dev: Tenant, other: dict[str, Any]) -> None:
    valid = {"valid_from": day("2026-02-01"), "valid_to": day("2026-02-02")}
    first = alice("Call Mum.", source=v1.Source(role="user"), **(valid if "valid_from" in other else {}))
    first.metadata["order"] = 1
    (standing,) = add(dev, first)
    second = v1.Memory()
    second.CopyFrom(first)
    for name, value in other.items():
        if name == "metadata":
            second.metadata["order"] = value["order"]
        else:
            second.MergeFrom(v1.Memory(**{name: value}))
    (result,) = add(dev, second)
    assert (standing.status, result.status) == (ADDED, ADDED)


def test_within_one_request_the_second_is_a_duplicate_of_the_first(dev: Tenant) -> None:
    results = add(
        dev,
        alice("I like tea."),
        alice("I like TEA"),
        alice("I really like tea", tags=["hot"]),
        alice("I like rice"),
    )
    assert [one.status for one in results] == [ADDED, DUPLICATE, MERGED_INTO, ADDED]
    assert results[0].memory == results[1].memory == results[2].memory
    assert {memory.id: memory for memory in stored(dev)} == {
        one.memory.id: one.memory for one in (results[0], results[3])
    }


def test_what_is_superseded_or_deleted_is_true_again_once_said_again(dev: Tenant) -> None:
    first, newer = add_one(dev, "I live in Bonn.").memory, add_one(dev, "I live in Köln.").memory
    first.superseded_by = newer.id
    dev.memories.Update(v1.UpdateRequest(memory=first, update_mask={"paths": ["superseded_by"]}))
    again = add_one(dev, "I live in Bonn.")
    assert again.status == ADDED
    assert add_one(dev, "I live in Bonn").memory.id == again.memory.id
    dev.memories.Delete(v1.DeleteRequest(id=again.memory.id))
    assert add_one(dev, "I live in Bonn").status == ADDED


def test_an_edited_text_is_compared_as_it_is_now(dev: Tenant) -> None:
    memory = add_one(dev, "I like tea.").memory
    memory.content = "I like rice."
    dev.memories.Update(v1.UpdateRequest(memory=memory, update_mask={"paths": ["content"]}))
    assert add_one(dev, "I like rice!").memory.id == memory.id
    assert add_one(dev, "I like tea.").status == ADDED


def test_deduplication_can_be_turned_off(dev: Tenant) -> None:
    results = add(dev, alice("I like tea."), alice("I like tea."), dedup=v1.DEDUP_OFF)
    assert [one.status for one in results] == [ADDED, ADDED]
    with refused() as caught:
        add(dev, alice("I like tea."), dedup=7)
    assert (caught.code, caught.fields) == (grpc.StatusCode.INVALID_ARGUMENT, ["dedup"])


def test_a_chosen_id_of_a_duplicate_names_no_memory(dev: Tenant) -> None:
    standing = add_one(dev, "I like tea.").memory
    chosen = "019ad1c0-0000-7000-8000-000000000001"
    result = add_one(dev, "I like tea.", id=chosen)
    assert (result.status, result.memory.id) == (DUPLICATE, standing.id)
    with refused() as caught:
        dev.memories.Get(v1.GetRequest(id=chosen))
    assert caught.code is grpc.StatusCode.NOT_FOUND
    with refused() as caught:
        add_one(dev, "I like tea.", id=standing.id)
    assert caught.code is grpc.StatusCode.ALREADY_EXISTS


def test_a_repeated_request_gets_its_first_answer(dev: Tenant) -> None:
    first = dev.memories.Add(v1.AddRequest(memories=[alice("I like tea.")], request_id="one"))
    assert dev.memories.Add(v1.AddRequest(memories=[alice("I like tea.")], request_id="one")) == first
    assert first.results[0].status == ADDED


def learn(tenant: Tenant, *texts: str) -> list[v1.AddResult]:
    messages = [v1.ConversationMessage(role="user", content=text) for text in texts]
    return list(tenant.memories.Add(v1.AddRequest(messages=messages, template=alice(""))).results)


def test_a_correction_that_was_said_before_replaces_all_the_same(dev: Tenant) -> None:
    vim, vs_code = "I use Vim for writing code.", "I no longer use Vim, I write code in VS Code now."
    (first,) = learn(dev, vim)
    repeated, correction = learn(dev, vim, vs_code)
    assert [repeated.status, correction.status] == [DUPLICATE, ADDED]
    assert repeated.memory.id == first.memory.id
    assert repeated.memory.superseded_by == correction.memory.id
    again, known = learn(dev, vim, vs_code)
    assert [again.status, known.status] == [ADDED, DUPLICATE]
    assert known.memory.id == correction.memory.id
    assert again.memory.superseded_by == correction.memory.id
    (third,) = learn(dev, vim)
    (last,) = learn(dev, vs_code)
    assert [third.status, last.status] == [ADDED, DUPLICATE]
    assert list(last.superseded_ids) == [third.memory.id]
    living = {memory.id: memory.superseded_by for memory in stored(dev)}
    assert [memory_id for memory_id, successor in living.items() if not successor] == [correction.memory.id]
    assert set(living.values()) == {"", correction.memory.id}


TEA = (
    "I prefer tea over coffee.",
    "I like tea more than coffee.",
    "I prefer tea to coffee.",
    "I'd rather drink tea than coffee.",
    "Between tea and coffee, I prefer tea.",
    "I really do like tea better than coffee.",
    "Honestly, I prefer tea to coffee.",
    "Tea is my preference over coffee.",
    "I always choose tea over coffee.",
    "I'm more of a tea person than a coffee person.",
    "I love tea, much more than coffee.",
    "I would rather have tea than coffee.",
    "I definitely prefer tea rather than coffee.",
    "I enjoy tea more than I enjoy coffee.",
    "My preference is tea, not coffee.",
)
TEA_ZH = (
    "比起咖啡，我更喜欢茶。",
    "我更喜欢喝茶，不太喜欢喝咖啡。",
    "我喜欢茶胜过咖啡。",
    "我更爱喝茶而不是咖啡。",
    "相比咖啡，我更喜欢喝茶。",
    "和咖啡相比，我更喜欢茶。",
    "其实我更喜欢喝茶。",
    "我比较喜欢喝茶。",
    "我偏爱喝茶。",
    "我非常喜欢喝茶。",
    "我很喜欢喝茶。",
    "我更喜歡喝茶。",
    "我特别喜欢喝茶。",
    "茶和咖啡之间，我更喜欢茶。",
    "我觉得我更喜欢喝茶。",
)
DARK_MODE = (
    "I prefer dark mode in my editor.",
    "I like dark mode in my editor.",
    "I really love dark mode in my editor.",
    "I'm a big fan of dark mode in my editor.",
    "In my editor, I prefer dark mode.",
    "I always use dark mode in my editor.",
    "Dark mode in my editor is what I prefer.",
    "My editor has to be in dark mode.",
    "I enjoy dark mode in my editor.",
    "I like using dark mode in my editor.",
    "I just prefer dark mode in my editor, please.",
    "Honestly, I prefer dark mode in my editor.",
    "I'd rather have dark mode in my editor.",
    "Please use dark mode in my editor.",
    "I like my editor in dark mode.",
)
RUNNING = (
    "我喜欢在早上跑步。",
    "我很喜欢在早上跑步。",
    "其实我喜欢在早上跑步。",
    "我特别喜欢在早上跑步。",
    "我爱在早上跑步。",
    "早上跑步是我的爱好。",
    "我喜歡在早上跑步",
    "我喜欢早上跑步。",
    "我偏爱在早上跑步。",
    "我热爱在早上跑步。",
    "说实话，我喜欢在早上跑步。",
    "我觉得我喜欢在早上跑步。",
    "我平时喜欢在早上跑步。",
    "我非常喜欢在早上跑步！",
    "我更喜欢在早上跑步。",
)


@pytest.mark.parametrize(
    "paraphrases", [TEA, TEA_ZH, DARK_MODE, RUNNING], ids=["tea", "tea in Chinese", "dark mode", "running"]
)
def test_fifteen_paraphrases_make_at_most_six_memories(dev: Tenant, paraphrases: tuple[str, ...]) -> None:
    assert len(paraphrases) == 15
    for text in paraphrases:
        message = v1.ConversationMessage(role="user", content=text)
        dev.memories.Add(v1.AddRequest(messages=[message], template=v1.Memory(user_id="alice")))
    memories = stored(dev)
    assert 1 <= len(memories) <= 6, [memory.content for memory in memories]
    kept = {memory.content for memory in memories}
    for memory in memories:
        for entry in history(dev, memory):
            kept |= {change.new_value.string_value for change in entry.changes if change.field == "content"}
    assert len(kept) >= 14  # the words of each are there still; a wish to the assistant is no memory


def test_parallel_adds_of_the_same_make_one_row(serving: Serving) -> None:
    results = in_parallel([serving.dev] * PARALLEL)
    assert sorted(one.status for one in results) == [ADDED] + [DUPLICATE] * (PARALLEL - 1)
    assert len({one.memory.id for one in results}) == 1
    assert len(stored(serving.dev)) == 1


def in_parallel(tenants: list[Tenant]) -> list[v1.AddResult]:
    """What each gets that adds the same at once."""
    barrier = threading.Barrier(len(tenants))

    def one(tenant: Tenant) -> v1.AddResult:
        barrier.wait(30)
        return add_one(tenant, "I like tea.")

    with ThreadPoolExecutor(len(tenants)) as pool:
        return list(pool.map(one, tenants))
