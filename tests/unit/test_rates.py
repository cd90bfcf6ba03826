"""Token buckets: so many calls a second, a burst after a pause, and nothing taken by who is refused."""

from __future__ import annotations

import pytest

from server import rates
from server.rates import BURST_SECONDS, Rates


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


def taken(bucket: Rates, *wanted: tuple[str, float]) -> int:
    """How many calls are let through in a row."""
    count = 0
    while bucket.wait_seconds(wanted) == 0:
        count += 1
    return count


def test_who_was_quiet_may_call_a_burst_and_then_the_rate(bucket: Rates, clock: Clock) -> None:
    assert taken(bucket, ("key", 10)) == 10 * BURST_SECONDS
    clock.now += 0.5
    assert taken(bucket, ("key", 10)) == 5
    clock.now += 3600
    assert taken(bucket, ("key", 10)) == 10 * BURST_SECONDS


def test_the_wait_is_as_long_as_it_says(bucket: Rates, clock: Clock) -> None:
    taken(bucket, ("key", 4))
    wait = bucket.wait_seconds([("key", 4)])
    assert wait == pytest.approx(0.25)
    clock.now += wait - 0.01
    assert bucket.wait_seconds([("key", 4)]) > 0
    clock.now += 0.02
    assert bucket.wait_seconds([("key", 4)]) == 0


def test_less_than_a_call_a_second_is_a_rate_too(bucket: Rates, clock: Clock) -> None:
    assert taken(bucket, ("key", 0.1)) == 1
    assert bucket.wait_seconds([("key", 0.1)]) == pytest.approx(10)
    clock.now += 10.01
    assert taken(bucket, ("key", 0.1)) == 1


def test_who_is_refused_by_one_bucket_takes_nothing_from_the_other(bucket: Rates) -> None:
    assert taken(bucket, ("tenant", 5), ("one", 1)) == 2
    assert taken(bucket, ("tenant", 5), ("one", 1)) == 0
    assert taken(bucket, ("tenant", 5), ("two", 100)) == 8


def test_without_limits_nobody_waits(bucket: Rates) -> None:
    assert all(bucket.wait_seconds([]) == 0 for _ in range(1000))


def test_the_number_of_buckets_is_bounded(bucket: Rates, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "MAX_BUCKETS", 3)
    taken(bucket, ("first", 1))
    for n in range(3):
        bucket.wait_seconds([(f"key {n}", 1)])
    assert len(bucket._buckets) == 3
    assert taken(bucket, ("first", 1)) == 2
