"""The daily sweep, and the counting of accesses it goes by, on both databases."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scrubjay import v1
from scrubjay.errors import StorageUnavailable
from scrubjay.memory import (
    ClientId,
    Memory,
    MemoryId,
    Micros,
    PrivacyLevel,
    id_bytes,
    permitted,
    within,
)
from scrubjay.stamp import CommitStamp
from scrubjay.wire import commit_micros, to_timestamp
from server.counting import AccessCounter
from server.forgetting import Sweeper, sweep_author, sweep_of, swept
from server.ingest.accesses import Accesses, PendingAccesses
from server.ingest.forgetting import Forgotten, Sweep
from server.router import Router
from server.shard import Shard
from server.store.memory_store import MemoryStore, StreamKey, Writing
from server.store.use_reading import FIRST
from tenants.forget_policy import DEFAULT_POLICY, ForgetPolicy, ForgetRule
from tenants.tenant import Incarnation, Tenant, TenantState
from tests.devices import ACME, DAY, KEY, NOW, Server
from tests.stored import add, delete, memory, stored

NEVER = threading.Event()
BOB = StreamKey(ACME, "user:bob")
ENDED = threading.Event()
ENDED.set()


def task(content: str = "Call the plumber.", **fields: object) -> Memory:
    return memory(content, **{"category": "TASK", "confidence": 0.3, **fields})


def sweeper(server: Server, *tenants: Tenant) -> Sweeper:
    found = tenants or (server.tenant,)
    return Sweeper(Router({"main": server.shard}), lambda: found, lambda: server.now)


def living(store: MemoryStore, key: StreamKey = KEY) -> set[str]:
    with store.read() as reading:
        return {stored.memory.content for stored in reading.page(key, None, 10_000)}


def days(server: Server, count: float) -> None:
    server.now = Micros(NOW + int(count * DAY))


# --- the daily one --------------------------------------------------------------------------------


def test_it_says_in_history_that_no_caller_did_it(server: Server) -> None:
    add(server.store, task())
    days(server, 61)
    assert sweeper(server).run(NEVER) == 1
    request = v1.HistoryRequest(user_id="alice")
    entry = server.memories.history(request, server.service()).entries[0]
    assert (entry.kind, entry.role, entry.actor, entry.client_id) == (
        v1.OPERATION_KIND_DELETE,
        "SWEEP",
        "",
        "",
    )
    assert entry.reason == "forgotten: TASK, unused for 60 days, confidence below 0.5"
    assert entry.sentence == f"The daily sweep deleted it ({entry.reason})."


def test_devices_are_told(server: Server) -> None:
    (one, _) = add(server.store, task(), memory("A fact."))
    phone = server.device()
    assert len(phone.pull()) == 2
    days(server, 61)
    sweeper(server).run(NEVER)
    (told,) = phone.pull()
    assert (told.memory_id, told.kind) == (one.memory.id, v1.CHANGE_KIND_DELETED)


def test_it_comes_once_a_day(server: Server) -> None:
    daily = sweeper(server)
    add(server.store, task("first"))
    days(server, 61)
    assert daily.run(NEVER) == 1
    add(server.store, task("second", user_id="bob"), key=BOB)
    days(server, 61.9)
    assert daily.run(NEVER) == 0
    days(server, 62)
    assert daily.run(NEVER) == 1


def test_a_tenant_that_is_not_active_forgets_nothing(server: Server) -> None:
    add(server.store, task())
    days(server, 61)
    for state in set(TenantState) - {TenantState.ACTIVE}:
        assert sweeper(server, replace(server.tenant, state=state)).run(NEVER) == 0
    assert sweeper(server).run(NEVER) == 1


def test_every_tenant_forgets_by_its_own_policy(server: Server) -> None:
    keeps = replace(server.tenant, forget_policy=ForgetPolicy(()))
    add(server.store, task("unsure"), memory("ticket", expires_at=Micros(NOW + DAY)))
    days(server, 61)
    assert sweeper(server, keeps).run(NEVER) == 1
    assert living(server.store) == {"unsure"}
    all_go = replace(server.tenant, forget_policy=ForgetPolicy((ForgetRule("", "", 1, None),)))
    assert sweeper(server, all_go).run(NEVER) == 1
    assert living(server.store) == set()


def test_a_shard_that_does_not_answer_is_swept_in_an_hour_and_the_others_now(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    away = replace(server.tenant, tenant_id="away", shard="away")
    shards = {"main": server.shard, "away": Shard("away", server.store, server.cache)}
    daily = Sweeper(Router(shards), lambda: [away, server.tenant], lambda: server.now)
    add(server.store, task())
    days(server, 61)

    def fail(*_: object) -> None:
        raise StorageUnavailable

    with monkeypatch.context() as patch:
        patch.setattr(shards["away"], "to_forget", fail)
        assert daily.run(NEVER) == 1
    assert "away is swept in an hour again" in caplog.text
    add(server.store, task(user_id="bob"), key=BOB)
    days(server, 61.05)
    assert daily.run(NEVER) == 1


def test_it_ends_when_it_should_and_goes_on_the_next_time(server: Server) -> None:
    add(server.store, *(task(f"task {n}") for n in range(3)))
    for name in ("bob", "carol"):
        add(server.store, task(user_id=name), key=StreamKey(ACME, f"user:{name}"))
    days(server, 61)
    daily = sweeper(server)
    assert daily.run(ENDED) == 0
    after_one = iter([False, False, True])
    sweep = sweep_of(server.tenant, None, server.now)
    parts = list(swept(server.shard, sweep, sweep_author(ACME), lambda: next(after_one)))
    assert [len(part) for part in parts] == [3]
    assert (living(server.store), len(living(server.store, BOB))) == (set(), 1)
    assert daily.run(NEVER) == 2


def test_two_servers_that_sweep_at_once_delete_nothing_twice(server: Server, shard_url: str) -> None:
    add(server.store, *(task(f"task {n}") for n in range(1_200)))
    days(server, 61)
    with MemoryStore(shard_url) as store, ThreadPoolExecutor(2) as pool:
        other = Shard("main", store, server.cache)
        two = [
            Sweeper(Router({"main": shard}), lambda: [server.tenant], lambda: server.now)
            for shard in (server.shard, other)
        ]
        counts = list(pool.map(lambda one: one.run(NEVER), two))
    assert sum(counts) == 1_200
    with server.store.read() as reading:
        graves = reading.graves_after(KEY, CommitStamp(0), 2_000)
        deletions = [row.memory_id for row in reading.history(ACME, KEY, None, 2_000)]
    assert len(graves) == 1_200
    assert len(set(deletions[:1_200])) == 1_200


def test_what_is_used_or_pinned_before_it_goes_stays(server: Server) -> None:
    looked, edited, idle = add(server.store, task("looked"), task("edited"), task("idle"))
    days(server, 61)
    sweep = sweep_of(server.tenant, None, server.now)
    found = server.shard.to_forget(sweep, FIRST, 10)
    assert len(found) == 3
    server.shard.accesses.add(ACME, [looked.memory], server.now)
    server.shard.accesses.write()
    change = v1.Memory(id=edited.memory.id, pinned=True)
    update = v1.UpdateRequest(memory=change, update_mask=FieldMask(paths=["pinned"]))
    server.memories.update(update, server.service())
    gone = server.shard.forget(KEY, [one.memory.id for one in found], sweep, sweep_author(ACME))
    assert [one.memory for one in gone] == [idle.memory]
    assert living(server.store) == {"looked", "edited"}


def test_a_device_that_looked_at_it_keeps_it_too(server: Server) -> None:
    (one,) = add(server.store, task())
    phone = server.device()
    phone.pull()
    days(server, 30)
    touch = v1.Touch(memory_id=id_bytes(one.memory.id), total=2, last_access_at=to_timestamp(server.now))
    phone.sync(touches=[touch])
    days(server, 61)
    assert sweeper(server).run(NEVER) == 0
    days(server, 91)
    assert sweeper(server).run(NEVER) == 1


def test_an_event_that_lies_ahead_is_in_use(server: Server) -> None:
    add(server.store, task(created_at=Micros(NOW + 100 * DAY)))
    days(server, 159)
    assert sweeper(server).run(NEVER) == 0
    days(server, 160)
    assert sweeper(server).run(NEVER) == 1


# --- what is told is what goes --------------------------------------------------------------------

SCOPES = ("general", "work", "work/a", "work/ab")
ages = st.integers(0, 5)
unsure = st.sampled_from([0.0, 0.25, 0.5, 1.0])


@st.composite
def memories(draw: st.DrawFn) -> tuple[Memory, int, int | None]:
    """A memory, the day it was written, and the day it was looked at last."""
    one = memory(
        draw(st.sampled_from("abc")),
        scope=draw(st.sampled_from(SCOPES)),
        category=draw(st.sampled_from(["FACT", "TASK"])),
        confidence=draw(unsure),
        pinned=draw(st.booleans()),
        privacy_level=draw(st.sampled_from([PrivacyLevel.PRIVATE, PrivacyLevel.SHARED])),
        owner_client_id=ClientId(draw(st.sampled_from(["web", "phone"]))),
        user_id=draw(st.sampled_from(["alice", "bob"])),
        created_at=Micros(NOW + draw(ages) * DAY),
        expires_at=draw(st.none() | ages.map(lambda age: Micros(NOW + age * DAY))),
    )
    return one, draw(ages), draw(st.none() | ages)


rules = st.builds(
    ForgetRule,
    st.sampled_from(["", "work", "work/a"]),
    st.sampled_from(["", "TASK"]),
    st.integers(1, 5),
    st.none() | st.sampled_from([0.25, 0.5, 1.0]),
)
policies = st.just(DEFAULT_POLICY) | st.lists(rules, max_size=3).map(lambda some: ForgetPolicy(tuple(some)))


def goes(one: Memory, written: Micros, looked_at: Micros | None, policy: ForgetPolicy, now: Micros) -> bool:
    """The law in other words than the code's."""
    if one.pinned:
        return False
    if one.expires_at is not None and one.expires_at <= now:
        return True
    uses = [one.created_at, written] + ([looked_at] if looked_at is not None else [])
    return any(
        (rule.scope == "" or within(one.scope, rule.scope))
        and (rule.category == "" or rule.category == one.category)
        and (rule.below_confidence is None or rule.below_confidence > one.confidence)
        and all(now - use >= rule.unused_days * DAY for use in uses)
        for rule in policy.rules
    )


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(memories(), max_size=12), policies, ages, st.integers(1, 4))
def test_a_dry_run_names_what_a_sweep_then_takes(
    server: Server, made: list[tuple[Memory, int, int | None]], policy: ForgetPolicy, day: int, size: int
) -> None:
    tenant = Incarnation(str(uuid.uuid4()))  # a life of its own, so that its clock begins anew
    looked_at: dict[MemoryId, Micros] = {}
    for one, written, looked in sorted(made, key=lambda each: each[1]):
        write(server.store, StreamKey(tenant, one.subject.key), one, Micros(NOW + written * DAY))
        if looked is not None:
            looked_at[one.id] = Micros(NOW + looked * DAY)
            server.shard.accesses.add(tenant, [one], looked_at[one.id])
    server.shard.accesses.write()
    sweep = Sweep(tenant, None, policy, Micros(NOW + day * DAY))
    with server.store.read() as reading:
        before = reading.get_many(tenant, [one.id for one, _, _ in made])
    expected = {
        memory_id
        for memory_id, one in before.items()
        if goes(one.memory, commit_micros(one.commit_stamp), looked_at.get(memory_id), policy, sweep.now)
    }
    told = walk(server.shard, sweep, size)
    assert len(told) == len(expected)
    assert {one.memory.id for one in told} == expected
    for client_id in (ClientId("web"), ClientId("phone")):
        shown = {one.memory.id for one in walk(server.shard, sweep, size, client_id)}
        assert shown == {i for i in expected if permitted(before[i].memory, client_id)}
    taken = [one for part in swept(server.shard, sweep, sweep_author(tenant), lambda: False) for one in part]
    assert {(one.memory.id, one.why) for one in taken} == {(one.memory.id, one.why) for one in told}
    assert walk(server.shard, sweep, size) == []


def write(store: MemoryStore, key: StreamKey, one: Memory, at: Micros) -> None:
    def unit(writing: Writing) -> None:
        (stamp,) = writing.stamps(key, 1, at // 1000)
        writing.insert(key, [stored(one, stamp)])

    store.write([key], unit)


def walk(shard: Shard, sweep: Sweep, size: int, client_id: ClientId | None = None) -> list[Forgotten]:
    found: list[Forgotten] = []
    after = FIRST
    while page := shard.to_forget(sweep, after, size, client_id):
        found += page
        after = page[-1].place
    return found


# --- counting accesses ----------------------------------------------------------------------------


def totals(store: MemoryStore, *ids: MemoryId) -> dict[MemoryId, tuple[int, Micros]]:
    with store.read() as reading:
        found = reading.accesses(KEY, ids)
    return {memory_id: (total.total, total.last_access_at) for memory_id, total in found.items()}


def test_servers_and_devices_add_up(server: Server, shard_url: str) -> None:
    (one, other) = add(server.store, memory("one"), memory("other"))
    phone = server.device()
    phone.pull()
    phone.sync(
        touches=[v1.Touch(memory_id=id_bytes(one.memory.id), total=5, last_access_at=to_timestamp(NOW))]
    )
    with MemoryStore(shard_url) as store:
        counters = [server.shard.accesses, AccessCounter(store)]
        for n in range(4):
            for counter in counters:
                counter.add(ACME, [one.memory, other.memory] if n else [one.memory], Micros(NOW + n))
            counters[n % 2].write()
        for counter in counters:
            counter.write()
    assert totals(server.store, one.memory.id, other.memory.id) == {
        one.memory.id: (5 + 8, NOW + 3),
        other.memory.id: (6, NOW + 3),
    }


def test_two_servers_that_count_at_once_lose_nothing(server: Server, shard_url: str) -> None:
    (one,) = add(server.store, memory())
    with MemoryStore(shard_url) as store, ThreadPoolExecutor(2) as pool:

        def look(counter: AccessCounter) -> None:
            for n in range(25):
                counter.add(ACME, [one.memory], Micros(NOW + n))
                counter.write()

        list(pool.map(look, [server.shard.accesses, AccessCounter(store)]))
    assert totals(server.store, one.memory.id) == {one.memory.id: (50, NOW + 24)}


def test_counting_sends_no_memory_again(server: Server) -> None:
    (one,) = add(server.store, memory())
    phone = server.device()
    phone.pull()
    with server.store.read() as reading:
        head = reading.head(KEY)
    server.shard.accesses.add(ACME, [one.memory], NOW)
    server.shard.accesses.write()
    assert phone.pull() == []
    with server.store.read() as reading:
        after = reading.head(KEY)
        assert reading.get(ACME, one.memory.id) == one
    assert head is not None
    assert after is not None
    assert (after.head, after.counts_head > head.counts_head) == (head.head, True)


def test_what_was_deleted_meanwhile_is_not_counted(server: Server) -> None:
    (dead, alive) = add(server.store, memory("dead"), memory("alive"))
    server.shard.accesses.add(ACME, [dead.memory, alive.memory], NOW)
    delete(server.store, dead.memory.id)
    server.shard.accesses.write()
    assert totals(server.store, dead.memory.id, alive.memory.id) == {alive.memory.id: (1, NOW)}
    server.shard.accesses.add(ACME, [dead.memory], NOW)
    server.shard.accesses.write()
    assert totals(server.store, dead.memory.id) == {}


def test_counts_wait_for_a_database_that_does_not_answer(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (one,) = add(server.store, memory())

    def refuse(*_: object) -> None:
        raise StorageUnavailable

    server.shard.accesses.add(ACME, [one.memory], NOW)
    with monkeypatch.context() as patch:
        patch.setattr(server.store, "write", refuse)
        server.shard.accesses.write()
    assert "access counts of 1 streams wait" in caplog.text
    server.shard.accesses.add(ACME, [one.memory], Micros(NOW + 1))
    server.shard.accesses.write()
    assert totals(server.store, one.memory.id) == {one.memory.id: (2, NOW + 1)}


def test_many_streams_are_written_by_few_transactions(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = []
    for n in range(150):
        key = StreamKey(ACME, f"user:{n}")
        (one,) = add(server.store, memory(user_id=str(n)), key=key)
        ids.append((key, one.memory.id))
        server.shard.accesses.add(ACME, [one.memory], NOW)
    written: list[int] = []
    write = server.store.write

    def counted(keys: Sequence[StreamKey], unit: Callable[[Writing], None]) -> None:
        written.append(len(keys))
        write(keys, unit)

    monkeypatch.setattr(server.store, "write", counted)
    server.shard.accesses.write()
    assert written == [64, 64, 22]
    with server.store.read() as reading:
        assert all(reading.accesses(key, [memory_id]) for key, memory_id in ids)


def test_what_waits_is_bounded() -> None:
    pending = PendingAccesses(most=2)
    first, second, third = memory(), memory(), memory()
    pending.add(ACME, [first, second, third], NOW)
    pending.add(ACME, [first, third], Micros(NOW + 1))
    counted = pending.take()
    assert counted == {KEY: {first.id: Accesses(2, Micros(NOW + 1)), second.id: Accesses(1, NOW)}}
    assert pending.take() == {}
    pending.add(ACME, [third], NOW)
    pending.give_back(counted)
    assert set(pending.take()[KEY]) == {third.id, first.id}


def test_accesses_that_are_counted_at_once_all_count(server: Server) -> None:
    (one,) = add(server.store, memory())
    counter = server.shard.accesses

    def look(n: int) -> None:
        counter.add(ACME, [one.memory], Micros(NOW + n))
        if n % 5 == 0:
            counter.write()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(look, range(200)))
    counter.write()
    assert totals(server.store, one.memory.id) == {one.memory.id: (200, NOW + 199)}
