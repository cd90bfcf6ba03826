"""Search across the subjects of a tenant: for keys that may, as exact and as private as a search of one."""

from __future__ import annotations

import time

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.struct_pb2 import Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp

from rpc.conftest import Serving, Tenant
from rpc.refusal import refused
from scrubjay import v1
from server.index import switch
from tenants.database import open_engine
from tests.waiting import patiently

BOUND_SECONDS = 20
DAY = 86_400
USERS = ("alice", "bob", "carol", "*")


def granted(serving: Serving, tenant_id: str = "dev", **options: object) -> Tenant:
    """A reader of the tenant that may search across its subjects."""
    request = v1.CreateApiKeyRequest(tenant_id=tenant_id, role=v1.ROLE_READER, across_subjects=True)
    created = serving.admin.CreateApiKey(request)
    assert created.api_key.across_subjects
    return serving.named(tenant_id, created.secret, **options)


def across(tenant: Tenant, query: str, **fields: object) -> list[str]:
    """The contents of the hits among all subjects, best first."""
    return tenant.found(query, user_id="", across_subjects=True, **fields)


def of_user(user_id: str) -> v1.Filter:
    value = Value(string_value=user_id)
    return v1.Filter(condition=v1.Condition(field="user_id", operator=v1.OPERATOR_EQ, value=value))


def scored(tenant: Tenant, **fields: object) -> dict[str, float]:
    """The score of each memory found, best first."""
    request = v1.SearchRequest(query="coffee in the morning", recipe="semantic", top_k=200, **fields)
    return {hit.memory.id: hit.score for hit in tenant.memories.Search(request).hits}


def test_all_subjects_are_searched_at_once_by_a_key_that_may(serving: Serving) -> None:
    for user in USERS:
        serving.dev.add(f"{user} drinks coffee", user_id=user)
    serving.dev.add("the barista knows coffee", user_id="", agent_id="barista")
    serving.dev.add("a run about coffee", user_id="", run_id="run-1")
    reader = granted(serving)
    expected = {f"{user} drinks coffee" for user in USERS} | {
        "the barista knows coffee",
        "a run about coffee",
    }
    assert set(across(reader, "coffee")) == expected
    assert across(reader, "run about", top_k=1) == ["a run about coffee"]
    assert reader.found("coffee", user_id="*") == ["* drinks coffee"]
    hits = reader.memories.Search(
        v1.SearchRequest(query="bob", across_subjects=True, top_k=1, explain=True)
    ).hits
    assert hits[0].memory.user_id == "bob"
    assert abs(sum(part.value for part in hits[0].explanation.contributions) - hits[0].score) < 1e-6


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_key_without_the_grant_is_refused(serving: Serving) -> None:
    serving.dev.add("alice drinks coffee")
    with refused() as answer:
        across(serving.dev, "coffee")
    assert answer.code is grpc.StatusCode.PERMISSION_DENIED
    assert answer.error.reason == v1.ERROR_REASON_ROLE_NOT_ALLOWED
    assert "across_subjects" in answer.error.message
    reader = granted(serving)
    with refused() as answer:
        reader.found("coffee", user_id="")
    assert answer.fields == ["user_id"]
    with refused() as answer:
        reader.found("coffee", user_id="alice", across_subjects=True)
    assert answer.fields == ["user_id"]
    with refused() as answer:
        across(reader, "coffee", as_of=Timestamp(seconds=1_700_000_000))
    assert answer.fields == ["as_of"]


@pytest.mark.parametrize("backend", ["sqlite"])
def test_only_keys_that_read_memories_can_be_given_the_grant(serving: Serving) -> None:
    for role in (v1.ROLE_TENANT_ADMIN, v1.ROLE_PLATFORM_ADMIN):
        tenant_id = "" if role == v1.ROLE_PLATFORM_ADMIN else "dev"
        with refused() as answer:
            serving.admin.CreateApiKey(
                v1.CreateApiKeyRequest(tenant_id=tenant_id, role=role, across_subjects=True)
            )
        assert answer.fields == ["across_subjects"]
    request = v1.CreateApiKeyRequest(
        request_id="one", tenant_id="dev", role=v1.ROLE_SERVICE, across_subjects=True
    )
    first = serving.admin.CreateApiKey(request)
    assert serving.admin.CreateApiKey(request) == first
    request.across_subjects = False
    with refused() as answer:
        serving.admin.CreateApiKey(request)
    assert answer.error.reason == v1.ERROR_REASON_REQUEST_ID_REUSED
    revoke = v1.RevokeApiKeyRequest(tenant_id="dev", key_id=first.api_key.key_id)
    assert serving.admin.RevokeApiKey(revoke).api_key.across_subjects


def test_what_is_written_is_found_by_the_next_search(serving: Serving) -> None:
    reader, dev = granted(serving), serving.dev
    assert across(reader, "note") == []
    _, edited, dead = dev.add("note kept", "note old", "note dead")
    assert sorted(across(reader, "note")) == ["note dead", "note kept", "note old"]
    dev.add("note of a new subject", user_id="dave")
    edit = v1.Memory(id=edited.id, content="note new")
    dev.memories.Update(v1.UpdateRequest(memory=edit, update_mask=FieldMask(paths=["content"])))
    dev.memories.Delete(v1.DeleteRequest(id=dead.id))
    assert sorted(across(reader, "note")) == ["note kept", "note new", "note of a new subject"]
    added = dev.memories.Add(v1.AddRequest(memories=[v1.Memory(user_id="erin", content="note last")]))
    assert across(reader, "last", top_k=1, min_revision=added.revision) == ["note last"]
    dev.memories.DeleteAll(v1.DeleteAllRequest(user_id="alice"))
    assert sorted(across(reader, "note")) == ["note last", "note of a new subject"]


def test_private_memories_of_other_clients_are_never_found(serving: Serving) -> None:
    phone = serving.named("dev", serving.dev.key, client_id="phone")
    phone.add("a private canary", privacy_level=v1.PRIVACY_LEVEL_PRIVATE)
    phone.add("a shared canary", user_id="bob")
    assert across(granted(serving), "canary") == ["a shared canary"]
    assert set(across(granted(serving, client_id="phone"), "canary")) == {
        "a private canary",
        "a shared canary",
    }
    assert across(granted(serving, client_id="laptop"), "canary") == ["a shared canary"]


def test_other_tenants_and_former_lives_are_never_found(serving: Serving) -> None:
    acme = serving.tenant("acme")
    serving.dev.add("canary of dev")
    acme.add("canary of the first acme")
    assert across(granted(serving), "canary") == ["canary of dev"]
    assert across(granted(serving, "acme"), "canary") == ["canary of the first acme"]
    end_life(serving, "acme")
    again = serving.tenant("acme")
    reader = granted(serving, "acme")
    assert across(reader, "canary") == []
    again.add("canary of the second acme")
    assert across(reader, "canary") == ["canary of the second acme"]


def end_life(serving: Serving, tenant_id: str) -> None:
    """Take a tenant out of the catalogue, with its keys; its memories stay where they are."""
    life = serving.admin.GetTenant(v1.GetTenantRequest(tenant_id=tenant_id)).tenant.incarnation
    engine = open_engine(serving.settings.catalogue_url())
    with engine.begin() as connection:
        for table in ("catalogue_api_keys", "catalogue_tenants"):
            connection.exec_driver_sql(f"DELETE FROM {table} WHERE incarnation = '{life}'")
    engine.dispose()


def test_filters_scopes_and_narrower_ids_hold_across_subjects(serving: Serving) -> None:
    for user in USERS[:3]:
        for team in ("red", "blue"):
            metadata = Struct()
            metadata["team"] = team
            serving.dev.add(f"{team} of {user}", user_id=user, metadata=metadata, agent_id=f"{team}-agent")
        serving.dev.add(f"work of {user}", user_id=user, scope="work/alpha", run_id="run-1")
    reader = granted(serving)
    red = v1.Condition(field="metadata.team", operator=v1.OPERATOR_EQ, value=Value(string_value="red"))
    assert set(across(reader, "of", filter=v1.Filter(condition=red))) == {
        f"red of {user}" for user in USERS[:3]
    }
    assert set(across(reader, "of", agent_id="blue-agent")) == {f"blue of {user}" for user in USERS[:3]}
    assert set(across(reader, "of", run_id="run-1")) == {f"work of {user}" for user in USERS[:3]}
    assert set(across(reader, "of", scopes=["work"])) == {f"work of {user}" for user in USERS[:3]}
    assert set(across(reader, "of", filter=of_user("bob"))) == {"red of bob", "blue of bob", "work of bob"}


@pytest.mark.parametrize("exact_rows", [switch.EXACT_ROWS, 60])
def test_of_one_subject_it_finds_what_its_own_search_finds(
    serving: Serving, monkeypatch: pytest.MonkeyPatch, exact_rows: int
) -> None:
    monkeypatch.setattr(switch, "EXACT_ROWS", exact_rows)
    words = ("coffee", "tea", "morning", "evening", "office", "garden")
    for user in USERS:
        serving.dev.add(
            *(f"{user} has {words[n % 6]} in the {words[n // 6 % 6]} on day {n}" for n in range(50)),
            user_id=user,
        )
    reader = granted(serving)
    for user in USERS:
        own = scored(reader, user_id=user)
        assert len(own) == 50
        assert scored(reader, across_subjects=True, filter=of_user(user)) == pytest.approx(own, abs=1e-6)
    everything = {i: score for user in USERS for i, score in scored(reader, user_id=user).items()}
    found = scored(reader, across_subjects=True)
    assert found == pytest.approx(everything, abs=1e-6)
    assert list(found.values()) == sorted(found.values(), reverse=True)
    assert list(found) == list(scored(reader, across_subjects=True))


def test_misses_and_neighbours_are_told_across_subjects(serving: Serving) -> None:
    reader, phone = granted(serving), serving.named("dev", serving.dev.key, client_id="phone")
    source = v1.Source(conversation_id="c-1")
    for said in ("asks for coffee", "gets an answer"):
        for user in ("alice", "bob"):
            serving.dev.add(f"{user} {said}", user_id=user, source=source)
    (hidden,) = phone.add("a private canary", privacy_level=v1.PRIVACY_LEVEL_PRIVATE)
    search = v1.SearchRequest(query="bob asks for coffee", across_subjects=True, top_k=1, neighbours=2)
    (hit,) = reader.memories.Search(search).hits
    # Of two subjects' conversations of one name, only the hit's own is around it.
    assert [hit.memory.content, *(one.content for one in (*hit.before, *hit.after))] == [
        "bob asks for coffee",
        "bob gets an answer",
    ]
    search.filter.CopyFrom(of_user("alice"))
    missed = reader.memories.ExplainMiss(v1.ExplainMissRequest(search=search, memory_id=hit.memory.id))
    assert missed.gate == v1.MISS_GATE_FILTER
    with refused() as answer:
        reader.memories.ExplainMiss(v1.ExplainMissRequest(search=search, memory_id=hidden.id))
    assert answer.error.reason == v1.ERROR_REASON_MEMORY_NOT_FOUND
    with refused() as answer:
        serving.dev.memories.ExplainMiss(v1.ExplainMissRequest(search=search, memory_id=hit.memory.id))
    assert answer.code is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize("backend", ["sqlite"])
def test_what_one_subject_says_now_replaces_nothing_of_another(serving: Serving) -> None:
    now = time.time()
    for user, then, said in (
        ("alice", now - 90 * DAY, "I live in Berlin"),
        ("bob", now - DAY, "I live in Lisbon since May"),
        ("carol", now - 90 * DAY, "I live in Rome"),
        ("carol", now - DAY, "I live in Porto since May"),
    ):
        serving.dev.add(said, user_id=user, created_at=Timestamp(seconds=int(then)))
    reader = granted(serving)
    lifted: list[set[str]] = []
    for users in (("alice", "bob"), ("carol",)):
        either = v1.Filter(any_of=v1.FilterList(filters=[of_user(user) for user in users]))
        search = v1.SearchRequest(query="Where do I live?", across_subjects=True, explain=True, filter=either)
        hits = reader.memories.Search(search).hits
        lifted.append(
            {
                h.memory.content
                for h in hits
                for c in h.explanation.contributions
                if c.arm == "newer" and c.value
            }
        )
    assert lifted == [set(), {"I live in Porto since May"}]


def test_a_look_across_subjects_counts_for_each_of_them(serving: Serving) -> None:
    reader = granted(serving)
    long_ago = Timestamp(seconds=1_600_000_000)
    for user in ("alice", "bob"):
        serving.dev.add(f"note of {user}", user_id=user, created_at=long_ago)
    recipe = "shared-memory"
    assert across(reader, "note of bob", top_k=1, recipe=recipe, count_access=True) == ["note of bob"]
    until(lambda: across(reader, "note", recipe=recipe) == ["note of bob", "note of alice"])
    assert across(reader, "note of alice", filter=of_user("alice"), recipe=recipe, count_access=True)
    until(lambda: across(reader, "note", recipe=recipe) == ["note of alice", "note of bob"])


until = patiently(BOUND_SECONDS)
