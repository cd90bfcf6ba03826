"""Counting what credentials do: per day, credential and RPC, in memory until it is written."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from scrubjay.memory import ClientId, Micros
from tenants import usage
from tenants.tenant import Caller, Incarnation, Role, Tenant, TenantState
from tenants.usage import STORING, Usage, UsageCounter, UsageKey, day_of, day_text, parse_day

LIFE = Incarnation("11111111-1111-4111-8111-111111111111")
ACME = Tenant("acme", "Acme", LIFE, TenantState.ACTIVE, "shard-0", "", Micros(0))
DAY_NANOS = 86_400 * 1_000_000_000


class Clock:
    now = 20_000 * DAY_NANOS + 5

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def counter(clock: Clock) -> UsageCounter:
    return UsageCounter(clock)


def caller(key_id: str = "key", role: Role = Role.SERVICE) -> Caller:
    tenant = None if role is Role.PLATFORM_ADMIN else ACME
    return Caller(role, key_id, ClientId(key_id), tenant)


def row(key_id: str = "key", rpc: str = "Add", day: int = 20_000) -> UsageKey:
    return UsageKey(LIFE, day, key_id, rpc)


def test_calls_are_counted_apart_by_key_rpc_and_day(counter: UsageCounter, clock: Clock) -> None:
    counter.count_call(caller(), "Add", 100, 10)
    counter.count_call(caller(), "Add", 50, 0, refused=1)
    counter.count_call(caller("phone", Role.DEVICE), "Add", 1, 2)
    counter.count_call(caller(), "Watch", 7, 0)
    counter.count_call(caller(), "Watch", 0, 30, calls=0)
    counter.count_memories(LIFE, "key", 3)
    clock.now += DAY_NANOS - 5
    counter.count_call(caller(), "Add", 1, 1)
    assert counter.take() == {
        row(): Usage(2, 1, 150, 10),
        row("phone"): Usage(1, 0, 1, 2),
        row(rpc="Watch"): Usage(1, 0, 7, 30),
        row(rpc=STORING): Usage(memories=3),
        row(day=20_001): Usage(1, 0, 1, 1),
    }
    assert counter.take() == {}


@pytest.mark.parametrize("role", [Role.TENANT_ADMIN, Role.PLATFORM_ADMIN])
def test_admins_are_not_counted(counter: UsageCounter, role: Role) -> None:
    counter.count_call(caller(role=role), "GetTenant", 1, 1)
    assert counter.take() == {}


def test_what_was_given_back_is_added_to_what_came_since(counter: UsageCounter) -> None:
    counter.count_call(caller(), "Add", 100, 10)
    counted = counter.take()
    counter.count_call(caller(), "Add", 1, 1)
    counter.give_back(counted)
    assert counter.take() == {row(): Usage(2, 0, 101, 11)}


def test_many_threads_lose_no_call(counter: UsageCounter) -> None:
    taken = []
    with ThreadPoolExecutor(8) as pool:
        for n in range(4000):
            pool.submit(counter.count_call, caller(f"key {n % 3}"), "Add", 1, 1)
            if n % 500 == 0:
                taken.append(counter.take())
    taken.append(counter.take())
    assert sum(one.calls for counted in taken for one in counted.values()) == 4000


def test_rows_that_wait_are_bounded_and_what_is_lost_is_said(
    counter: UsageCounter, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(usage, "MAX_ROWS", 2)
    for n in range(5):
        counter.count_call(caller(f"key {n}"), "Add", 1, 1)
    counter.count_call(caller("key 0"), "Add", 1, 1)
    assert counter.take() == {row("key 0"): Usage(2, 0, 2, 2), row("key 1"): Usage(1, 0, 1, 1)}
    assert "3 calls are in no usage row" in caplog.text


def test_days_are_written_as_people_write_them() -> None:
    assert day_text(0) == "1970-01-01"
    assert day_text(day_of(1_796_000_000_123_456)) == "2026-11-30"
    assert parse_day("2026-11-30") == day_of(1_796_000_000_123_456)
    for wrong in ("", "20261130", "2026-W49-1", "2026-11-31", "2026-11-30T00:00", "٢٠٢٦-١١-٣٠"):
        with pytest.raises(ValueError, match=r".+"):
            parse_day(wrong)
