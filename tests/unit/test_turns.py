"""Turns at the processor: one call of a tenant computes at a time, and none waits for one that is long."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from server.turns import NOBODY, Turns
from tests.waiting import patiently

PATIENCE = 10
ACME, OTHER = "acme", "other"


class Call:
    """A call in a thread of its own, which does what it is told, step by step."""

    def __init__(self, turns: Turns, tenant: str) -> None:
        self._turns, self._tenant = turns, tenant
        self.begun, self.ended = threading.Event(), threading.Event()
        self._go = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Let it end, and wait until it has."""
        self._go.set()
        assert self.ended.wait(PATIENCE)
        self._thread.join()

    def _run(self) -> None:
        self._turns.begin(self._tenant)
        self.begun.set()
        assert self._go.wait(PATIENCE)
        self._turns.end()
        self.ended.set()


@contextmanager
def turn(turns: Turns, tenant: str) -> Iterator[None]:
    turns.begin(tenant)
    try:
        yield
    finally:
        turns.end()


until = patiently(PATIENCE)


def waiting(turns: Turns, tenant: str) -> Call:
    """A call of the tenant that waits for its turn."""
    before = len(turns._waiting)
    call = Call(turns, tenant)
    until(lambda: len(turns._waiting) == before + 1)
    return call


@pytest.fixture
def forever(monkeypatch: pytest.MonkeyPatch) -> None:
    """No turn is long."""
    monkeypatch.setattr("server.turns.LONG_SECONDS", 60.0)


@pytest.mark.usefixtures("forever")
def test_a_tenant_has_one_turn_at_a_time_and_others_have_theirs_beside_it() -> None:
    turns = Turns()
    with turn(turns, ACME):
        second = waiting(turns, ACME)
        other = Call(turns, OTHER)
        assert other.begun.wait(PATIENCE)
        assert not second.begun.is_set()
    assert second.begun.wait(PATIENCE)
    second.end()
    other.end()


@pytest.mark.usefixtures("forever")
def test_tenants_that_wait_alternate() -> None:
    turns, order = Turns(at_once=1), []
    with turn(turns, "first"):
        calls = [waiting(turns, tenant) for tenant in (ACME, ACME, ACME, OTHER)]
    while calls:
        until(lambda: any(call.begun.is_set() for call in calls))
        (call,) = [call for call in calls if call.begun.is_set()]
        order.append(call._tenant)
        calls.remove(call)
        call.end()
    assert order == [ACME, OTHER, ACME, ACME]


@pytest.mark.usefixtures("forever")
def test_who_waits_for_something_else_leaves_its_turn_and_waits_for_another() -> None:
    turns = Turns()

    def end_when_we_wait() -> None:
        until(lambda: len(turns._waiting) == 1)
        second.end()

    with turn(turns, ACME):
        assert turns.tenant == ACME
        with turns.aside():
            assert turns.tenant == NOBODY
            second = Call(turns, ACME)
            assert second.begun.wait(PATIENCE)
            ending = threading.Thread(target=end_when_we_wait)
            ending.start()
        ending.join()
        assert second.ended.is_set()
        assert turns.tenant == ACME
    assert turns.tenant == NOBODY


def test_who_has_no_turn_waits_without_one() -> None:
    turns = Turns()
    with turns.aside():
        pass
    with pytest.raises(ValueError, match="no turn"):
        turns.end()


def test_a_long_turn_is_over_for_those_who_wait_and_ends_once() -> None:
    turns = Turns()
    with turn(turns, ACME):
        second = Call(turns, ACME)
        assert second.begun.wait(PATIENCE)
        third = Call(turns, ACME)
        assert third.begun.wait(PATIENCE)
        second.end()
        third.end()
    assert turns._short == []
    with turn(turns, ACME):
        assert turns.tenant == ACME


def test_whoever_watches_for_long_turns_leaves_when_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.turns.WATCHED_SECONDS", 0.0)
    turns = Turns()
    for _ in range(2):
        with turn(turns, ACME):
            second = Call(turns, ACME)
            assert second.begun.wait(PATIENCE)
            second.end()
        until(lambda: not turns._is_watched)
