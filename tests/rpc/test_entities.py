"""Whom and what memories mention, and what they say of these, through the real door on both databases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.timestamp_pb2 import Timestamp
from sqlalchemy import Engine, func, select

from rpc.conftest import Serving, Tenant
from rpc.refusal import refused
from scrubjay import v1
from server.ingest import adding
from server.providers.query_cache import QueryCache
from server.store import tables
from server.store.writing import Writing
from tenants.database import open_engine

SUBJECT, PERSON, PLACE = v1.ENTITY_KIND_SUBJECT, v1.ENTITY_KIND_PERSON, v1.ENTITY_KIND_PLACE
SHARED, PRIVATE = v1.PRIVACY_LEVEL_SHARED, v1.PRIVACY_LEVEL_PRIVATE


@pytest.fixture
def engines(serving: Serving) -> Iterator[list[Engine]]:
    """The databases of all shards."""
    engines = [open_engine(url, read_only=True) for url in serving.settings.shard_urls().values()]
    yield engines
    for engine in engines:
        engine.dispose()


@pytest.fixture
def desk(serving: Serving) -> Tenant:
    """Another client of the same tenant."""
    return serving.named("dev", serving.dev.key, client_id="desk")


def counts(engines: list[Engine], *names: str) -> dict[str, int]:
    """How many rows there are of what memories link to, or of the tables that are named."""
    found = dict.fromkeys(names or ("mentions", "relations"), 0)
    for engine in engines:
        with engine.connect() as connection:
            for name in found:
                counting = select(func.count()).select_from(getattr(tables, name))
                found[name] += connection.execute(counting).scalar_one()
    return found


def at(day: str) -> Timestamp:
    time = Timestamp()
    time.FromJsonString(f"{day}T08:00:00Z")
    return time


def entities(tenant: Tenant, user_id: str = "alice", **fields: Any) -> dict[str, v1.Entity]:
    """By name, without the subject itself."""
    request = v1.ListEntitiesRequest(user_id=user_id, **fields)
    found = tenant.memories.ListEntities(request).entities
    return {one.name: one for one in found if one.kind != SUBJECT}


def relations(tenant: Tenant, user_id: str = "alice", **fields: Any) -> dict[tuple[str, str, str], str]:
    """When each ended, in days; empty where it holds."""
    request = v1.ListRelationsRequest(user_id=user_id, **fields)
    return {
        (one.subject.name, one.relation, one.object.name): (
            one.valid_to.ToJsonString()[:10] if one.HasField("valid_to") else ""
        )
        for one in tenant.memories.ListRelations(request).relations
    }


def edit(tenant: Tenant, memory: v1.Memory, **fields: Any) -> v1.UpdateResponse:
    changed = v1.Memory(id=memory.id, **fields)
    request = v1.UpdateRequest(memory=changed, update_mask=FieldMask(paths=list(fields)))
    return tenant.memories.Update(request)


def test_an_add_lists_what_is_stored_of_what_it_says(dev: Tenant, engines: list[Engine]) -> None:
    said = v1.Memory(user_id="alice", content="My sister Anna lives in Boston.", created_at=at("2026-03-01"))
    (result,) = dev.memories.Add(v1.AddRequest(memories=[said])).results
    assert [(one.name, one.kind) for one in result.entities] == [
        ("Anna", PERSON),
        ("Boston", PLACE),
        ("alice", SUBJECT),
    ]
    told = [(one.subject.name, one.relation, one.object.name) for one in result.relations]
    assert told == [("alice", "sister", "Anna"), ("Anna", "lives_in", "Boston")]
    assert all(one.valid_from == at("2026-03-01") for one in result.relations)
    assert counts(engines) == {"mentions": 3, "relations": 2}
    listed = dev.memories.ListEntities(v1.ListEntitiesRequest(user_id="alice")).entities
    assert {(one.id, one.name, one.kind) for one in listed} == {
        (one.id, one.name, one.kind) for one in result.entities
    }
    assert {(one.memory_count, one.last_mentioned_at.seconds) for one in listed} == {
        (1, at("2026-03-01").seconds)
    }
    page = dev.memories.ListRelations(v1.ListRelationsRequest(user_id="alice"))
    assert list(page.relations) == list(reversed(result.relations))


def test_names_of_one_entity_differ_in_case_script_and_width(dev: Tenant) -> None:
    dev.add(
        "I use VS Code.",
        "We looked at ＶＳ　Code again.",
        "Her vs code is slow.",
        "我妹妹小紅住在上海。",
        "小红是我妹妹。",
    )
    found = entities(dev)
    assert {name: one.memory_count for name, one in found.items() if one.kind != PLACE} == {
        "vs code": 3,
        "小红": 2,
    }


def test_parallel_adds_link_to_one_entity(dev: Tenant, engines: list[Engine]) -> None:
    def add(n: int) -> v1.AddResult:
        memory = v1.Memory(user_id="alice", content=f"On day {n} I saw Anna at place number {n * 7919}.")
        return dev.memories.Add(v1.AddRequest(memories=[memory])).results[0]

    with ThreadPoolExecutor(16) as pool:
        results = list(pool.map(add, range(32)))
    assert len({one.id for result in results for one in result.entities}) == 1
    assert entities(dev)["Anna"].memory_count == 32
    assert counts(engines) == {"mentions": 32, "relations": 0}


def delete(tenant: Tenant, memory: v1.Memory) -> None:
    tenant.memories.Delete(v1.DeleteRequest(id=memory.id))


def delete_all(tenant: Tenant, memory: v1.Memory) -> None:
    tenant.memories.DeleteAll(v1.DeleteAllRequest(user_id=memory.user_id))


def delete_by_filter(tenant: Tenant, memory: v1.Memory) -> None:
    condition = v1.Condition(field="content", operator=v1.OPERATOR_CONTAINS)
    condition.value.string_value = "Anna"
    chosen = v1.Filter(condition=condition)
    tenant.memories.DeleteByFilter(v1.DeleteByFilterRequest(user_id=memory.user_id, filter=chosen))


def forget(tenant: Tenant, memory: v1.Memory) -> None:
    edit(tenant, memory, expires_at=Timestamp(seconds=1))
    tenant.memories.Forget(v1.ForgetRequest(user_id=memory.user_id))


@pytest.mark.parametrize("way", [delete, delete_all, delete_by_filter, forget])
def test_no_way_to_delete_leaves_a_link(
    dev: Tenant, engines: list[Engine], way: Callable[[Tenant, v1.Memory], None]
) -> None:
    (bob_s,) = dev.add("My brother Tom works at Acme.", user_id="bob")
    (memory,) = dev.add("My sister Anna lives in Boston and works at Google.")
    kept = {"mentions": 3, "relations": 2}
    assert counts(engines) == {"mentions": 7, "relations": 5}
    way(dev, memory)
    assert counts(engines) == kept
    assert entities(dev) == {}
    assert relations(dev) == {}
    way(dev, bob_s) if way is not delete_by_filter else delete(dev, bob_s)
    assert counts(engines) == {"mentions": 0, "relations": 0}


def test_an_edit_links_anew_and_undoing_it_too(dev: Tenant, engines: list[Engine]) -> None:
    (memory,) = dev.add("I work at Acme.")
    edit(dev, memory, content="I live in Oslo with Rosa.")
    assert set(entities(dev)) == {"Oslo", "Rosa"}
    assert relations(dev) == {("alice", "lives_in", "Oslo"): ""}
    changed = dev.memories.History(v1.HistoryRequest(memory_id=memory.id)).entries[0]
    dev.memories.Restore(v1.RestoreRequest(memory_id=memory.id, operation_id=changed.operation_id))
    assert relations(dev) == {("alice", "works_at", "Acme"): ""}
    edit(dev, memory, valid_to=at("2026-05-01"))
    assert relations(dev) == {("alice", "works_at", "Acme"): "2026-05-01"}
    delete(dev, memory)
    assert counts(engines) == {"mentions": 0, "relations": 0}
    dev.memories.Restore(v1.RestoreRequest(memory_id=memory.id))
    assert set(entities(dev)) == {"Acme"}


def test_a_contradicted_relation_is_closed_and_opens_when_what_closed_it_goes(dev: Tenant) -> None:
    dev.add("I work at Acme.", created_at=at("2026-01-01"))
    (newer,) = dev.add("I work at Globex.", created_at=at("2026-02-01"))
    (over,) = dev.add("I no longer work at Globex.", created_at=at("2026-03-01"))
    acme, globex = ("alice", "works_at", "Acme"), ("alice", "works_at", "Globex")
    assert relations(dev)[acme] == "2026-02-01"
    assert relations(dev)[globex] == "2026-03-01"
    assert relations(dev, valid_at=at("2026-01-15")) == {acme: "2026-02-01"} | {globex: "2026-03-01"}
    assert relations(dev, valid_at=at("2026-03-02")) == {}
    delete(dev, over)
    assert relations(dev) == {acme: "2026-02-01", globex: ""}
    delete(dev, newer)
    assert relations(dev) == {acme: ""}


def test_what_replaced_a_memory_closes_what_it_said(dev: Tenant) -> None:
    (old,) = dev.add("I like jazz.", created_at=at("2026-01-01"))
    (new,) = dev.add("Music is nothing to me these days.", created_at=at("2026-04-01"))
    edit(dev, old, superseded_by=new.id)
    assert relations(dev) == {("alice", "likes", "jazz"): "2026-04-01"}
    delete(dev, new)
    assert relations(dev) == {("alice", "likes", "jazz"): ""}


def test_a_correction_of_a_conversation_says_both(dev: Tenant) -> None:
    first = [v1.ConversationMessage(role="user", content="I write code in Vim.", time=at("2026-01-01"))]
    then = "I no longer use Vim, I write code in VS Code now."
    second = [v1.ConversationMessage(role="user", content=then, time=at("2026-02-01"))]
    for messages in (first, second):
        dev.memories.Add(v1.AddRequest(messages=messages, template=v1.Memory(user_id="alice")))
    assert relations(dev, valid_at=at("2026-03-01")) == {("alice", "uses", "VS Code"): ""}
    assert relations(dev)["alice", "uses", "Vim"] == "2026-02-01"


def test_of_a_private_memory_nobody_else_learns(dev: Tenant, desk: Tenant) -> None:
    phone = dev
    phone.add("I met anna in the park, and Anna smiled.", created_at=at("2026-01-01"))
    phone.add("I live in Rome.", created_at=at("2026-01-01"))
    before = (
        desk.memories.ListEntities(v1.ListEntitiesRequest(user_id="alice")),
        desk.memories.ListRelations(v1.ListRelationsRequest(user_id="alice")),
        desk.memories.Search(
            v1.SearchRequest(user_id="alice", query="Where is Anna?", recipe="hybrid-v3", explain=True)
        ),
    )
    secrets = ("My sister ANNA lives in Lagos.", "I live in Oslo.", "Mail me at x@example.org about Anna.")
    phone.add(*secrets, privacy_level=PRIVATE, created_at=at("2026-02-01"))
    after = (
        desk.memories.ListEntities(v1.ListEntitiesRequest(user_id="alice")),
        desk.memories.ListRelations(v1.ListRelationsRequest(user_id="alice")),
        desk.memories.Search(
            v1.SearchRequest(user_id="alice", query="Where is Anna?", recipe="hybrid-v3", explain=True)
        ),
    )
    assert before == after
    mine = entities(phone)
    assert (mine["Anna"].kind, mine["Anna"].memory_count) == (PERSON, 3)
    assert relations(phone)["alice", "lives_in", "Rome"] == "2026-02-01"
    lagos = mine["Lagos"]
    hidden = desk.memories.ListRelations(v1.ListRelationsRequest(user_id="alice", entity_id=lagos.id))
    assert hidden == v1.ListRelationsResponse()


def test_lists_come_in_pages_by_kind_and_by_entity(dev: Tenant) -> None:
    dev.add(*(f"I talked to Dr. {name} about my knee." for name in ("Okafor", "Lindt", "Marek")))
    dev.add("I live in Oslo.", "Anna is my sister.")
    request = v1.ListEntitiesRequest(user_id="alice", kind=PERSON, page_size=2)
    names = []
    while True:
        page = dev.memories.ListEntities(request)
        names += [one.name for one in page.entities]
        assert len(page.entities) <= 2
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    assert names == ["Anna", "Dr. Lindt", "Dr. Marek", "Dr. Okafor"]
    oslo = entities(dev)["Oslo"]
    assert relations(dev, entity_id=oslo.id) == {("alice", "lives_in", "Oslo"): ""}
    every = v1.ListRelationsRequest(user_id="alice", page_size=1)
    first = dev.memories.ListRelations(every)
    every.page_token = first.next_page_token
    second = dev.memories.ListRelations(every)
    assert {one.relation for page in (first, second) for one in page.relations} == {"lives_in", "sister"}
    assert not second.next_page_token


@pytest.mark.parametrize(
    ("call", "request_", "field"),
    [
        ("ListEntities", v1.ListEntitiesRequest(), "user_id"),
        ("ListEntities", v1.ListEntitiesRequest(user_id="a", run_id="r"), "run_id"),
        ("ListEntities", v1.ListEntitiesRequest(user_id="a", kind=77), "kind"),  # type: ignore[arg-type]  # of another version
        ("ListEntities", v1.ListEntitiesRequest(user_id="a", page_size=1001), "page_size"),
        ("ListEntities", v1.ListEntitiesRequest(user_id="a", page_token="no"), "page_token"),
        ("ListRelations", v1.ListRelationsRequest(user_id="a", entity_id="Anna"), "entity_id"),
        ("ListRelations", v1.ListRelationsRequest(user_id="a", page_size=-1), "page_size"),
    ],
)
def test_what_can_t_be_listed_is_named(dev: Tenant, call: str, request_: Any, field: str) -> None:
    with refused() as answer:
        getattr(dev.memories, call)(request_)
    assert (answer.code, answer.fields) == (grpc.StatusCode.INVALID_ARGUMENT, [field])


def test_a_search_counts_who_is_named_and_says_so(dev: Tenant) -> None:
    dev.add("Anna repaired the roof.", "The roof leaks again.", "Tom sold his car.", "I slept badly.")
    request = v1.SearchRequest(user_id="alice", query="Anna and the roof", recipe="hybrid-v3", explain=True)
    response = dev.memories.Search(request)
    assert response.recipe == "hybrid-v3-2"
    first = response.hits[0]
    assert first.memory.content == "Anna repaired the roof."
    parts = {part.arm: part for part in first.explanation.contributions}
    assert parts["entity"].measure == 1
    assert parts["entity"].value == pytest.approx(0.2)
    assert sum(part.value for part in parts.values()) == pytest.approx(first.score)
    assert "it mentions what the query names" in first.explanation.sentence
    others = {
        part.measure
        for hit in response.hits[1:]
        for part in hit.explanation.contributions
        if part.arm == "entity"
    }
    assert others == {0}


def test_the_past_finds_by_the_names_of_then(dev: Tenant) -> None:
    (memory, _) = dev.add("Rosa planted a tree.", "We ate at noon.")
    request = v1.SearchRequest(user_id="alice", query="Rosa", recipe="hybrid-v3", explain=True)
    then = dev.memories.Search(request)
    read = dev.memories.Get(v1.GetRequest(id=memory.id)).memory
    as_of = read.updated_at
    edit(dev, memory, content="Tom planted a tree.")
    assert dev.memories.Search(request) != then
    request.as_of.CopyFrom(as_of)
    again = dev.memories.Search(request)
    assert [(hit.memory.id, hit.score) for hit in again.hits] == [
        (hit.memory.id, pytest.approx(hit.score)) for hit in then.hits
    ]


def test_a_search_across_subjects_knows_the_names_of_all(serving: Serving) -> None:
    for user in ("alice", "bob"):
        serving.dev.add(f"My brother Theo helps {user}.", "I slept badly.", user_id=user)
    request = v1.CreateApiKeyRequest(tenant_id="dev", role=v1.ROLE_SERVICE, across_subjects=True)
    reader = serving.named("dev", serving.admin.CreateApiKey(request).secret)
    search = v1.SearchRequest(across_subjects=True, query="Theo", recipe="hybrid-v3", explain=True)
    measures = {
        hit.memory.content: part.measure
        for hit in reader.memories.Search(search).hits
        for part in hit.explanation.contributions
        if part.arm == "entity"
    }
    assert {content for content, measure in measures.items() if measure} == {
        "My brother Theo helps alice.",
        "My brother Theo helps bob.",
    }


ALL = ("memories", "history", "vectors", "mentions", "relations", "streams", "requests")


def broken(*args: object, **options: object) -> Any:
    raise ArithmeticError("injected")


STEPS: dict[str, tuple[object, str]] = {
    "embed": (QueryCache, "embed"),
    "insert": (Writing, "insert"),
    "vectors": (Writing, "put_vectors"),
    "entity": (Writing, "link"),
    "history": (Writing, "add_history"),
    "supersede": (adding, "supersede"),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_fails_leaves_nothing_of_its_add(
    dev: Tenant, engines: list[Engine], monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    dev.add("I live in Oslo.", user_id="bob")
    before = counts(engines, *ALL)
    owner, name = STEPS[step]
    memories = [
        v1.Memory(user_id=user, content=f"My sister {name} lives in Rome.")
        for user, name in (("alice", "Anna"), ("alice", "Rosa"), ("carol", "Ines"))
    ]
    request = v1.AddRequest(request_id="again", memories=memories)
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, broken)
        with pytest.raises(grpc.RpcError):
            dev.memories.Add(request)
    assert counts(engines, *ALL) == before
    response = dev.memories.Add(request)
    for user in ("alice", "carol"):
        stored = dev.memories.List(v1.ListRequest(user_id=user)).memories
        listed = [one for one in response.results if one.memory.user_id == user]
        assert {memory.id for memory in stored} == {one.memory.id for one in listed}
        assert set(entities(dev, user)) == {
            e.name for one in listed for e in one.entities if e.kind != SUBJECT
        }
        assert len(relations(dev, user)) == sum(len(one.relations) for one in listed)
    assert dev.memories.Add(request) == response


def test_the_result_lists_what_is_stored_where_some_are_refused(dev: Tenant) -> None:
    good, bad = v1.Memory(user_id="alice", content="I live in Oslo."), v1.Memory(content="I live in Rome.")
    response = dev.memories.Add(v1.AddRequest(memories=[bad, good]))
    assert [one.WhichOneof("result") for one in response.results] == ["error", "memory"]
    assert not response.results[0].entities
    assert set(entities(dev)) == {"Oslo"}
