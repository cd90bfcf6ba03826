"""What a tenant's policy lets go, said beforehand and done, through the real door."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.timestamp_pb2 import Timestamp

from rpc.conftest import Serving, Tenant
from rpc.refusal import refused
from scrubjay import errors, v1
from scrubjay.memory import Micros
from scrubjay.wire import from_timestamp, to_timestamp
from server import forgetting
from server.app import wall_clock

DAY = 24 * 3600 * 1_000_000
BOUND_SECONDS = 10


class Clock:
    """The wall clock, and some days."""

    def __init__(self) -> None:
        self.days = 0.0

    def __call__(self) -> Micros:
        return Micros(wall_clock() + int(self.days * DAY))


@pytest.fixture
def clock() -> Clock:
    return Clock()


def would_go(tenant: Tenant, **fields: Any) -> list[v1.Forgotten]:
    """What a dry run lists, over all of its pages."""
    request = v1.ForgetRequest(validate_only=True, **fields)
    page = tenant.memories.Forget(request)
    found = list(page.forgotten)
    while page.next_page_token:
        request.page_token = page.next_page_token
        page = tenant.memories.Forget(request)
        found += page.forgotten
    return found


def contents(found: list[v1.Forgotten]) -> set[str]:
    return {one.memory.content for one in found}


def living(tenant: Tenant, user_id: str = "alice") -> set[str]:
    return {memory.content for memory in tenant.memories.List(v1.ListRequest(user_id=user_id)).memories}


def set_policy(serving: Serving, *rules: dict[str, Any]) -> None:
    policy = v1.ForgetPolicy(rules=[v1.ForgetRule(**rule) for rule in rules])
    serving.admin.UpdateTenant(
        v1.UpdateTenantRequest(
            tenant=v1.Tenant(tenant_id="dev", forget_policy=policy),
            update_mask=FieldMask(paths=["forget_policy"]),
        )
    )


def make_private(tenant: Tenant, *memories: v1.Memory) -> None:
    for memory in memories:
        change = v1.Memory(id=memory.id, privacy_level=v1.PRIVACY_LEVEL_PRIVATE)
        tenant.memories.Update(
            v1.UpdateRequest(memory=change, update_mask=FieldMask(paths=["privacy_level"]))
        )


def test_a_tenant_without_a_policy_forgets_unsure_tasks_after_sixty_days(dev: Tenant, clock: Clock) -> None:
    (task,) = dev.add("call the plumber", category="TASK", confidence=0.4)
    dev.add("sure task", category="TASK", confidence=0.5)
    dev.add("unsure fact", confidence=0.1)
    clock.days = 59.9
    assert would_go(dev) == []
    assert dev.memories.Forget(v1.ForgetRequest()).deleted_count == 0
    clock.days = 60.1
    (one,) = would_go(dev)
    assert (one.memory, one.rule) == (task, "TASK, unused for 60 days, confidence below 0.5")
    used = from_timestamp(task.updated_at)
    day = to_timestamp(used).ToJsonString()[:10]
    assert one.sentence == (
        f"It was last used on {day}, 60 days ago, and its confidence is 0.4; "
        "the rule is: TASK, unused for 60 days, confidence below 0.5."
    )
    done = dev.memories.Forget(v1.ForgetRequest(user_id="alice"))
    assert (done.deleted_count, list(done.forgotten), done.next_page_token) == (1, [], "")
    assert done.revision
    assert living(dev) == {"sure task", "unsure fact"}
    assert "call the plumber" not in dev.found("plumber", min_revision=done.revision)
    with refused() as gone:
        dev.memories.Get(v1.GetRequest(id=task.id))
    assert isinstance(gone.error, errors.MemoryDeleted)
    assert would_go(dev) == []


def test_history_says_by_which_rule_a_memory_went(dev: Tenant, clock: Clock) -> None:
    dev.add("unsure task", category="TASK", confidence=0.4)
    clock.days = 61
    dev.memories.Forget(v1.ForgetRequest())
    entry = dev.memories.History(v1.HistoryRequest(user_id="alice")).entries[0]
    assert (entry.kind, entry.role) == (v1.OPERATION_KIND_DELETE, "SERVICE")
    assert entry.reason == "forgotten: TASK, unused for 60 days, confidence below 0.5"
    assert entry.sentence.endswith(f" deleted it ({entry.reason}).")
    assert entry.changes[0].old_value.string_value == "unsure task"


def test_what_expired_goes_and_what_is_pinned_stays(dev: Tenant, clock: Clock) -> None:
    soon = to_timestamp(Micros(clock() + DAY))
    (expiring,) = dev.add("ticket", expires_at=soon)
    (pinned,) = dev.add("pinned ticket", expires_at=soon, pinned=True)
    dev.add("pinned task", category="TASK", confidence=0.1, pinned=True)
    assert would_go(dev) == []
    clock.days = 61
    (one,) = would_go(dev)
    assert (one.memory.id, one.rule) == (expiring.id, "expired")
    assert one.sentence == f"It expired on {soon.ToJsonString()[:10]}."
    assert dev.memories.Forget(v1.ForgetRequest()).deleted_count == 1
    clear = v1.UpdateRequest(memory=v1.Memory(id=pinned.id), update_mask=FieldMask(paths=["expires_at"]))
    clock.days = 0
    assert dev.memories.Update(clear).memory.content == "pinned ticket"
    assert living(dev) == {"pinned ticket", "pinned task"}


def test_a_tenants_rules_hold_at_once_for_their_scopes_and_categories(serving: Serving, clock: Clock) -> None:
    dev = serving.dev
    for scope in ("work", "work/alpha", "work/alphabet", "home"):
        for category in ("TASK", "FACT"):
            dev.add(f"{scope} {category}", scope=scope, category=category, confidence=0.3)
    dev.add("sure", scope="home", confidence=0.9)
    set_policy(serving)
    clock.days = 400
    assert would_go(dev) == []
    set_policy(serving, {"scope": "work/alpha", "unused_days": 399})
    assert contents(would_go(dev)) == {"work/alpha TASK", "work/alpha FACT"}
    set_policy(
        serving,
        {"scope": "work", "category": "FACT", "unused_days": 30},
        {"scope": "home", "unused_days": 401},
        {"scope": "home", "unused_days": 30, "below_confidence": 0.31},
    )
    work = {"work FACT", "work/alpha FACT", "work/alphabet FACT"}
    assert contents(would_go(dev)) == work | {"home TASK", "home FACT"}
    assert {one.rule for one in would_go(dev)} == {
        "FACT in work, unused for 30 days",
        "every category in home, unused for 30 days, confidence below 0.31",
    }
    assert dev.memories.Forget(v1.ForgetRequest()).deleted_count == 5
    assert living(dev) == {"sure", "work TASK", "work/alpha TASK", "work/alphabet TASK"}


def test_whoever_looks_at_a_memory_or_edits_it_keeps_it(dev: Tenant, clock: Clock) -> None:
    (looked, found, edited, helpful, read, idle) = dev.add(
        *(f"{name} task" for name in ("looked", "zebra", "edited", "helpful", "read", "idle")),
        category="TASK",
        confidence=0.3,
    )
    clock.days = 30
    dev.memories.Get(v1.GetRequest(id=looked.id, count_access=True))
    dev.memories.Get(v1.GetRequest(id=read.id))
    assert dev.found("zebra", top_k=1, count_access=True) == ["zebra task"]
    dev.memories.Update(
        v1.UpdateRequest(
            memory=v1.Memory(id=edited.id, tags=["seen"]), update_mask=FieldMask(paths=["tags.seen"])
        )
    )
    dev.memories.Feedback(v1.FeedbackRequest(memory_id=helpful.id, kind=v1.FEEDBACK_KIND_HELPFUL))
    for memory in (looked, found):
        assert next(counted(dev, memory)) == 1
    clock.days = 61
    assert contents(would_go(dev)) == {"read task", "idle task"}
    assert idle.content in contents(would_go(dev))
    clock.days = 91
    assert len(would_go(dev)) == 6


def counted(tenant: Tenant, memory: v1.Memory) -> Iterator[int]:
    """The memory's access count, as soon as it has one."""
    deadline = time.monotonic() + BOUND_SECONDS
    while time.monotonic() < deadline:
        if count := tenant.memories.Get(v1.GetRequest(id=memory.id)).access_count:
            yield count
    raise AssertionError(f"{memory.content} is not counted")


def test_private_memories_go_too_and_nobody_else_is_told(serving: Serving, clock: Clock) -> None:
    owner, other = serving.dev, serving.with_key("dev", v1.ROLE_SERVICE)
    private = owner.add("mine 1", "mine 2", "mine 3", category="TASK", confidence=0.3)
    make_private(owner, *private)
    other.add("shared", category="TASK", confidence=0.3)
    clock.days = 61
    assert contents(would_go(owner)) == {"mine 1", "mine 2", "mine 3", "shared"}
    first = other.memories.Forget(v1.ForgetRequest(validate_only=True, page_size=1))
    assert (contents(list(first.forgotten)), first.next_page_token) == ({"shared"}, "")
    gone_by = Timestamp(seconds=5)
    owner.add("mine 4", expires_at=gone_by, privacy_level=v1.PRIVACY_LEVEL_PRIVATE)
    assert len(would_go(owner)) == 5
    assert other.memories.Forget(v1.ForgetRequest(validate_only=True, page_size=1)) == first
    assert other.memories.Forget(v1.ForgetRequest()).deleted_count == 1
    assert living(owner) == set()
    with refused() as theirs:
        owner.memories.Get(v1.GetRequest(id=private[0].id))
    assert isinstance(theirs.error, errors.MemoryDeleted)
    with refused() as hidden:
        other.memories.Get(v1.GetRequest(id=private[0].id))
    assert isinstance(hidden.error, errors.MemoryNotFound)
    told = other.memories.History(v1.HistoryRequest(user_id="alice")).entries
    assert not {entry.memory_id for entry in told if entry.reason} & {memory.id for memory in private}


@pytest.mark.parametrize("size", [1, 2, 7])
def test_a_dry_run_lists_in_pages_what_then_goes(dev: Tenant, clock: Clock, size: int) -> None:
    for user_id in ("alice", "bob", "*"):
        dev.add(*(f"{user_id} {n}" for n in range(3)), user_id=user_id, category="TASK", confidence=0.3)
        dev.add(f"{user_id} keeps this", user_id=user_id)
    clock.days = 61
    listed = [one.memory.content for one in would_go(dev, page_size=size)]
    assert sorted(listed) == sorted(f"{user_id} {n}" for user_id in ("alice", "bob", "*") for n in range(3))
    assert contents(would_go(dev, user_id="*", page_size=size)) == {"* 0", "* 1", "* 2"}
    assert dev.memories.Forget(v1.ForgetRequest(user_id="*")).deleted_count == 3
    assert living(dev, "bob") == {"bob 0", "bob 1", "bob 2", "bob keeps this"}
    assert dev.memories.Forget(v1.ForgetRequest()).deleted_count == 6
    assert {content for user_id in ("alice", "bob", "*") for content in living(dev, user_id)} == {
        f"{user_id} keeps this" for user_id in ("alice", "bob", "*")
    }


@pytest.fixture
def swept_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's sweep begins at once."""
    monkeypatch.setattr(forgetting, "INTERVAL_SECONDS", 0.05)


@pytest.mark.usefixtures("swept_often")
def test_a_server_sweeps_by_itself_by_the_policy_that_stands_then(serving: Serving, clock: Clock) -> None:
    rival = serving.tenant("rival")
    set_policy(serving, {"category": "EVENT", "unused_days": 1})
    for tenant in (serving.dev, rival):
        tenant.add("unsure task", category="TASK", confidence=0.3)
        tenant.add("event", category="EVENT")
    clock.days = 61
    for tenant, left in ((serving.dev, "unsure task"), (rival, "event")):
        deadline = time.monotonic() + BOUND_SECONDS
        while len(living(tenant)) > 1 and time.monotonic() < deadline:
            pass
        assert living(tenant) == {left}
        newest = tenant.memories.History(v1.HistoryRequest(user_id="alice")).entries[0]
        assert (newest.role, newest.kind) == ("SWEEP", v1.OPERATION_KIND_DELETE)


def test_what_went_can_be_brought_back_and_stays(dev: Tenant, clock: Clock) -> None:
    (task,) = dev.add("call the plumber", category="TASK", confidence=0.4)
    (ticket,) = dev.add("ticket", expires_at=to_timestamp(Micros(clock() + DAY)))
    clock.days = 61
    assert dev.memories.Forget(v1.ForgetRequest()).deleted_count == 2
    for memory in (task, ticket):
        back = dev.memories.Restore(v1.RestoreRequest(memory_id=memory.id)).memory
        assert (back.content, back.id == memory.id) == (memory.content, False)
    assert would_go(dev) == []
    assert living(dev) == {"call the plumber", "ticket"}


def test_another_tenants_memories_stay(serving: Serving, clock: Clock) -> None:
    rival = serving.tenant("rival")
    for tenant in (serving.dev, rival):
        tenant.add("unsure task", category="TASK", confidence=0.3)
    clock.days = 61
    assert serving.dev.memories.Forget(v1.ForgetRequest()).deleted_count == 1
    assert living(rival) == {"unsure task"}


def test_a_repeat_gets_the_first_answer(dev: Tenant, clock: Clock) -> None:
    dev.add("one", category="TASK", confidence=0.3)
    clock.days = 61
    request = v1.ForgetRequest(request_id=str(uuid.uuid4()), user_id="alice")
    first = dev.memories.Forget(request)
    assert first.deleted_count == 1
    assert dev.memories.Forget(request) == first
    request.ClearField("user_id")
    with refused() as reused:
        dev.memories.Forget(request)
    assert isinstance(reused.error, errors.RequestIdReused)


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_reader_may_not_even_ask(serving: Serving) -> None:
    reader = serving.with_key("dev", v1.ROLE_READER)
    with refused() as answer:
        reader.memories.Forget(v1.ForgetRequest(validate_only=True))
    assert answer.code is grpc.StatusCode.PERMISSION_DENIED


WRONG: dict[str, tuple[v1.ForgetRequest, str]] = {
    "two subjects": (v1.ForgetRequest(user_id="a", run_id="r"), "run_id"),
    "NUL in the user id": (v1.ForgetRequest(user_id="a\0"), "user_id"),
    "long request id": (v1.ForgetRequest(request_id="r" * 129), "request_id"),
    "page of 1001": (v1.ForgetRequest(validate_only=True, page_size=1001), "page_size"),
    "page of -1": (v1.ForgetRequest(validate_only=True, page_size=-1), "page_size"),
    "page size without pages": (v1.ForgetRequest(page_size=5), "page_size"),
    "page token without pages": (v1.ForgetRequest(page_token="x"), "page_token"),
    "page token that is none": (v1.ForgetRequest(validate_only=True, page_token="x"), "page_token"),
}


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_wrong_request_names_its_field_and_deletes_nothing(dev: Tenant, case: str, clock: Clock) -> None:
    dev.add("unsure task", category="TASK", confidence=0.3)
    clock.days = 61
    request, field = WRONG[case]
    with refused() as answer:
        dev.memories.Forget(request)
    assert answer.fields == [field]
    assert living(dev) == {"unsure task"}


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_page_token_belongs_to_its_subject(dev: Tenant, clock: Clock) -> None:
    dev.add("one", "two", category="TASK", confidence=0.3)
    clock.days = 61
    page = dev.memories.Forget(v1.ForgetRequest(validate_only=True, page_size=1, user_id="alice"))
    with refused() as answer:
        dev.memories.Forget(v1.ForgetRequest(validate_only=True, page_token=page.next_page_token))
    assert answer.fields == ["page_token"]


def test_accesses_are_counted_where_a_call_says_so(serving: Serving) -> None:
    dev = serving.dev
    (memory, other) = dev.add("tea at four", "something else")
    before = dev.memories.Get(v1.GetRequest(id=memory.id))
    assert (before.access_count, before.HasField("last_access_at")) == (0, False)
    reader = serving.with_key("dev", v1.ROLE_READER)
    for _ in range(3):
        reader.memories.Get(v1.GetRequest(id=memory.id, count_access=True))
        reader.found("tea at four", top_k=1, count_access=True)
        reader.found("tea at four", top_k=1)
    assert 6 in counted(dev, memory)
    after = dev.memories.Get(v1.GetRequest(id=memory.id))
    assert after.memory == before.memory
    assert from_timestamp(after.last_access_at) >= from_timestamp(memory.created_at)
    assert dev.memories.Get(v1.GetRequest(id=other.id)).access_count == 0
