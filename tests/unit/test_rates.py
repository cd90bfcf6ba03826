"""Token buckets: so many calls a second, a burst after a pause, and nothing taken by who is refused."""

from __future__ import annotations

from contextlib import suppress

import pytest

from scrubjay.errors import RateLimited
from scrubjay.memory import ClientId, Micros
from server import rates
from server.rates import BURST_SECONDS, CallLimits, Limit, Rates
from tenants.quotas import UNLIMITED, Quotas
from tenants.tenant import Caller, Incarnation, Role, Tenant, TenantState


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def bucket(clock: Clock) -> Rates:
    return Rates(clock)


def taken(bucket: Rates, *limits: Limit) -> int:
    """How many calls are let through in a row."""
    count = 0
    while bucket.wait_seconds(limits) == 0:
        count += 1
    return count


def test_who_was_quiet_may_call_a_burst_and_then_the_rate(bucket: Rates, clock: Clock) -> None:
    assert taken(bucket, Limit("key", 10)) == 10 * BURST_SECONDS
    clock.now += 0.5
    assert taken(bucket, Limit("key", 10)) == 5
    clock.now += 3600
    assert taken(bucket, Limit("key", 10)) == 10 * BURST_SECONDS


def test_the_wait_is_as_long_as_it_says(bucket: Rates, clock: Clock) -> None:
    taken(bucket, Limit("key", 4))
    wait = bucket.wait_seconds([Limit("key", 4)])
    assert wait == pytest.approx(0.25)
    clock.now += wait - 0.01
    assert bucket.wait_seconds([Limit("key", 4)]) > 0
    clock.now += 0.02
    assert bucket.wait_seconds([Limit("key", 4)]) == 0


def test_less_than_a_call_a_second_is_a_rate_too(bucket: Rates, clock: Clock) -> None:
    assert taken(bucket, Limit("key", 0.1)) == 1
    assert bucket.wait_seconds([Limit("key", 0.1)]) == pytest.approx(10)
    clock.now += 10.01
    assert taken(bucket, Limit("key", 0.1)) == 1


def test_who_is_refused_by_one_bucket_takes_nothing_from_the_other(bucket: Rates) -> None:
    assert taken(bucket, Limit("tenant", 5), Limit("one", 1)) == 2
    assert taken(bucket, Limit("tenant", 5), Limit("one", 1)) == 0
    assert taken(bucket, Limit("tenant", 5), Limit("two", 100)) == 8


def test_without_limits_nobody_waits(bucket: Rates) -> None:
    assert all(bucket.wait_seconds([]) == 0 for _ in range(1000))


def test_the_number_of_buckets_is_bounded(bucket: Rates, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "MAX_BUCKETS", 3)
    taken(bucket, Limit("first", 1))
    for n in range(3):
        bucket.wait_seconds([Limit(f"key {n}", 1)])
    assert len(bucket._buckets) == 3
    assert taken(bucket, Limit("first", 1)) == 2


# --- who calls ------------------------------------------------------------------------------------


def caller(
    name: str, role: Role = Role.SERVICE, shard: str = "shard-0", quotas: Quotas = UNLIMITED
) -> Caller:
    life = Incarnation(f"life of {name}")
    tenant = Tenant(name, name, life, TenantState.ACTIVE, shard, "", Micros(0), quotas=quotas)
    return Caller(role, f"key of {name}", ClientId(name), tenant)


def admitted(limits: CallLimits, who: Caller, calls: int = 1) -> int:
    """How many of the calls are let through."""
    count = 0
    for _ in range(calls):
        with suppress(RateLimited):
            limits.admit(who)
            count += 1
    return count


def test_a_shards_limit_is_that_of_all_its_tenants_together(bucket: Rates) -> None:
    limits = CallLimits(10, bucket)
    callers = [caller(f"t{n}") for n in range(4)]
    assert sum(admitted(limits, who, 10) for who in callers) == 10 * BURST_SECONDS
    assert admitted(limits, caller("elsewhere", shard="shard-1"), 5) == 5
    with pytest.raises(RateLimited) as caught:
        limits.admit(callers[0])
    assert 0 < (caught.value.retry_after_seconds or 0) <= 0.2
    assert admitted(limits, caller("admin", Role.TENANT_ADMIN), 5) == 5


def test_one_tenant_has_a_shard_for_itself_as_long_as_nobody_else_calls(bucket: Rates, clock: Clock) -> None:
    limits, busy = CallLimits(100, bucket), caller("busy")
    admitted(limits, busy, 1000)
    let_through = 0
    for _ in range(1000):
        clock.now += 0.01
        let_through += admitted(limits, busy, 5)
    assert let_through == pytest.approx(10 * 100, rel=0.1)


def test_a_noisy_tenant_takes_nothing_of_a_shard_from_a_quiet_one(bucket: Rates, clock: Clock) -> None:
    limits, noisy, quiet = CallLimits(100, bucket), caller("noisy"), caller("quiet")
    for step in range(1000):
        clock.now += 0.01
        admitted(limits, noisy, 50)
        if step % 10 == 0:
            assert admitted(limits, quiet, 3) == 3


def test_who_is_refused_by_a_shard_takes_nothing_of_its_own_quota(bucket: Rates, clock: Clock) -> None:
    limits, who = CallLimits(1, bucket), caller("one", quotas=Quotas(calls_per_second=10))
    let_through = admitted(limits, who, 100)
    assert let_through < 5
    open_limits = CallLimits(0, bucket)
    assert admitted(open_limits, who, 100) == 10 * BURST_SECONDS - let_through
