"""Keys that reach some scopes alone: outside of them nothing exists, whatever is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.struct_pb2 import Value
from google.protobuf.timestamp_pb2 import Timestamp

from rpc.conftest import Serving, Tenant
from rpc.refusal import Refused, refused
from scrubjay import v1

UNKNOWN = "01890000-0000-7000-8000-000000000000"


@contextmanager
def told(reason: v1.ErrorReason.ValueType) -> Iterator[Refused]:
    """The block's call must be refused for this reason."""
    with refused() as found:
        yield found
    assert found.error.reason == reason


def scoped(serving: Serving, *scopes: str, **fields: object) -> Tenant:
    """A service key of the tenant dev that reaches these scopes."""
    request = v1.CreateApiKeyRequest(tenant_id="dev", role=v1.ROLE_SERVICE, scopes=scopes, **fields)  # type: ignore[arg-type]  # by name
    made = serving.admin.CreateApiKey(request)
    assert made.api_key.scopes == list(scopes)
    return serving.named("dev", made.secret)


@pytest.fixture
def work(serving: Serving) -> Tenant:
    return scoped(serving, "work")


@pytest.fixture
def inside(dev: Tenant) -> v1.Memory:
    (memory,) = dev.add("The invoice of the harbour is due.", scope="work/alpha")
    return memory


@pytest.fixture
def outside(dev: Tenant) -> v1.Memory:
    (memory,) = dev.add("The harbour swim was cold.", scope="home")
    return memory


def everything() -> v1.Filter:
    value = Value(string_value="alice")
    return v1.Filter(condition=v1.Condition(field="user_id", operator=v1.OPERATOR_EQ, value=value))


def edit(memory_id: str, **fields: object) -> v1.UpdateRequest:
    memory = v1.Memory(id=memory_id, **fields)  # type: ignore[arg-type]  # by name
    return v1.UpdateRequest(memory=memory, update_mask=FieldMask(paths=list(fields)))


def test_it_finds_what_it_reaches_alone(work: Tenant, inside: v1.Memory, outside: v1.Memory) -> None:
    stub = work.memories
    assert [one.id for one in stub.List(v1.ListRequest(user_id="alice")).memories] == [inside.id]
    asked = v1.SearchRequest(user_id="alice", query="harbour", inherit=True)
    assert [hit.memory.id for hit in stub.Search(asked).hits] == [inside.id]
    context = stub.Context(v1.ContextRequest(user_id="alice", query="harbour"))
    assert "invoice" in context.text
    assert "swim" not in context.text
    batch = stub.BatchGet(v1.BatchGetRequest(ids=[inside.id, outside.id]))
    assert ([one.id for one in batch.memories], batch.missing_ids) == ([inside.id], [outside.id])


@pytest.mark.parametrize(
    ("asked", "found"), [("work/alpha", 1), ("work/beta", 0), ("home", 0), ("wor", 0), ("work", 1)]
)
def test_what_is_asked_is_narrowed_to_what_it_reaches(
    work: Tenant, inside: v1.Memory, outside: v1.Memory, asked: str, found: int
) -> None:
    request = v1.SearchRequest(user_id="alice", query="harbour", scopes=[asked])
    assert len(work.memories.Search(request).hits) == found
    assert len(work.memories.List(v1.ListRequest(user_id="alice", scopes=[asked])).memories) == found


BY_ID: list[tuple[str, Callable[[Tenant, str], object]]] = [
    ("Get", lambda key, i: key.memories.Get(v1.GetRequest(id=i))),
    ("Update", lambda key, i: key.memories.Update(edit(i, content="other"))),
    ("Delete", lambda key, i: key.memories.Delete(v1.DeleteRequest(id=i))),
    ("History", lambda key, i: key.memories.History(v1.HistoryRequest(memory_id=i))),
    (
        "Feedback",
        lambda key, i: key.memories.Feedback(v1.FeedbackRequest(memory_id=i, kind=v1.FEEDBACK_KIND_WRONG)),
    ),
    (
        "ExplainMiss",
        lambda key, i: key.memories.ExplainMiss(
            v1.ExplainMissRequest(memory_id=i, search=v1.SearchRequest(user_id="alice", query="harbour"))
        ),
    ),
]


@pytest.mark.parametrize("call", [call for _, call in BY_ID], ids=[name for name, _ in BY_ID])
@pytest.mark.parametrize("living", [True, False], ids=["living", "deleted"])
def test_outside_of_it_a_memory_is_an_unknown_one(
    dev: Tenant, work: Tenant, outside: v1.Memory, call: Callable[[Tenant, str], object], living: bool
) -> None:
    before = dev.memories.Get(v1.GetRequest(id=outside.id)).memory
    if not living:
        dev.memories.Delete(v1.DeleteRequest(id=outside.id))
    with told(v1.ERROR_REASON_MEMORY_NOT_FOUND) as hidden:
        call(work, outside.id)
    with told(v1.ERROR_REASON_MEMORY_NOT_FOUND) as unknown:
        call(work, UNKNOWN)
    assert hidden.error.message.replace(outside.id, UNKNOWN) == unknown.error.message
    if living:
        assert dev.memories.Get(v1.GetRequest(id=outside.id)).memory == before


def test_within_it_all_is_as_with_any_key(dev: Tenant, work: Tenant, inside: v1.Memory) -> None:
    for _, call in BY_ID[:2] + BY_ID[3:]:
        call(work, inside.id)
    work.memories.Delete(v1.DeleteRequest(id=inside.id))
    work.memories.Delete(v1.DeleteRequest(id=inside.id))
    with told(v1.ERROR_REASON_MEMORY_DELETED):
        work.memories.Get(v1.GetRequest(id=inside.id))


def test_it_puts_nothing_outside(dev: Tenant, work: Tenant, inside: v1.Memory) -> None:
    for scope in ("home", "worker", ""):
        memory = v1.Memory(user_id="alice", content="Tea", scope=scope)
        with told(v1.ERROR_REASON_INVALID_FIELD) as error:
            work.memories.Add(v1.AddRequest(memories=[memory]))
        assert "outside of this key's scopes: work" in error.error.message
    template = v1.Memory(user_id="alice", scope="home")
    messages = [v1.ConversationMessage(role="user", content="I like tea.")]
    with told(v1.ERROR_REASON_INVALID_FIELD) as error:
        work.memories.Add(v1.AddRequest(template=template, messages=messages))
    assert "template.scope" in error.error.message
    with told(v1.ERROR_REASON_INVALID_FIELD) as error:
        work.memories.Update(edit(inside.id, scope="home"))
    assert "memory.scope" in error.error.message
    assert [one.id for one in dev.memories.List(v1.ListRequest(user_id="alice")).memories] == [inside.id]
    work.memories.Update(edit(inside.id, scope="work"))
    assert work.add("A second invoice.", scope="work/beta")


def test_it_deletes_what_it_reaches_alone(
    dev: Tenant, work: Tenant, inside: v1.Memory, outside: v1.Memory
) -> None:
    asked = v1.DeleteByFilterRequest(user_id="alice", filter=everything(), validate_only=True)
    assert work.memories.DeleteByFilter(asked).deleted_count == 1
    assert work.memories.DeleteAll(v1.DeleteAllRequest(user_id="alice")).deleted_count == 1
    assert [one.id for one in dev.memories.List(v1.ListRequest(user_id="alice")).memories] == [outside.id]


def test_it_hears_of_what_it_reaches_alone(work: Tenant, inside: v1.Memory, outside: v1.Memory) -> None:
    def heard(**fields: object) -> list[str]:
        request = v1.MemoryServiceWatchRequest(user_id="alice", include_existing=True, **fields)  # type: ignore[arg-type]  # by name
        stream = work.memories.Watch(request)
        try:
            return [change.memory.id for change in next(stream).changes]
        finally:
            stream.cancel()

    assert heard() == [inside.id]
    assert heard(scopes=["work/alpha", "home"]) == [inside.id]
    with told(v1.ERROR_REASON_INVALID_FIELD):
        heard(scopes=["home"])


@pytest.mark.parametrize(
    "call",
    [
        lambda stub: stub.Forget(v1.ForgetRequest(user_id="alice", validate_only=True)),
        lambda stub: stub.Restore(v1.RestoreRequest(memory_id=UNKNOWN)),
        lambda stub: stub.History(v1.HistoryRequest(user_id="alice")),
        lambda stub: stub.ListEntities(v1.ListEntitiesRequest(user_id="alice")),
        lambda stub: stub.ListRelations(v1.ListRelationsRequest(user_id="alice")),
        lambda stub: stub.Search(
            v1.SearchRequest(user_id="alice", query="x", as_of=Timestamp(seconds=1_700_000_000))
        ),
    ],
    ids=["Forget", "Restore", "History", "ListEntities", "ListRelations", "as_of"],
)
def test_what_is_of_all_scopes_is_for_other_keys(
    work: Tenant, call: Callable[[v1.MemoryServiceStub], object]
) -> None:
    with told(v1.ERROR_REASON_ROLE_NOT_ALLOWED):
        call(work.memories)


def test_it_may_search_across_subjects_within_them(serving: Serving, dev: Tenant) -> None:
    dev.add("Harbour tax", user_id="bob", scope="work")
    dev.add("Harbour dog", user_id="carol", scope="home")
    key = scoped(serving, "work", across_subjects=True)
    assert key.found("harbour", user_id="", across_subjects=True) == ["Harbour tax"]


def test_the_key_in_its_place_reaches_no_more(serving: Serving, dev: Tenant, outside: v1.Memory) -> None:
    made = serving.admin.CreateApiKey(
        v1.CreateApiKeyRequest(tenant_id="dev", role=v1.ROLE_READER, scopes=["work", "work"])
    )
    rotated = serving.admin.RotateApiKey(v1.RotateApiKeyRequest(tenant_id="dev", key_id=made.api_key.key_id))
    assert rotated.api_key.scopes == ["work"]
    with told(v1.ERROR_REASON_MEMORY_NOT_FOUND):
        serving.named("dev", rotated.secret).memories.Get(v1.GetRequest(id=outside.id))


@pytest.mark.parametrize(
    ("role", "scopes", "field"),
    [
        (v1.ROLE_TENANT_ADMIN, ["work"], "scopes"),
        (v1.ROLE_SERVICE, ["work", ""], "scopes[1]"),
        (v1.ROLE_SERVICE, ["a//b"], "scopes[0]"),
        (v1.ROLE_SERVICE, [f"s{n}" for n in range(33)], "scopes"),
    ],
)
def test_scopes_that_no_key_can_have(
    serving: Serving, role: v1.Role.ValueType, scopes: list[str], field: str
) -> None:
    with told(v1.ERROR_REASON_INVALID_FIELD) as error:
        serving.admin.CreateApiKey(v1.CreateApiKeyRequest(tenant_id="dev", role=role, scopes=scopes))
    assert error.error.message.startswith(f"{field}: ")


def test_a_named_client_does_not_widen_it(serving: Serving, dev: Tenant, outside: v1.Memory) -> None:
    made = serving.admin.CreateApiKey(
        v1.CreateApiKeyRequest(tenant_id="dev", role=v1.ROLE_SERVICE, scopes=["work"])
    )
    key = serving.named("dev", made.secret, client_id="another")
    with told(v1.ERROR_REASON_MEMORY_NOT_FOUND):
        key.memories.Get(v1.GetRequest(id=outside.id))
