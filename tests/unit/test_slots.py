"""Handler slots: how many of them one tenant has, and whose turn it is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from scrubjay.errors import ServerBusy, Unavailable
from server.slots import HandlerSlots, StreamSlots

PATIENCE = 10


class Calls:
    """Calls under way, each in a thread of its own."""

    def __init__(self, slots: HandlerSlots) -> None:
        self._slots = slots
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self.begun: list[str] = []
        self.refused: list[str] = []

    def call(self, *tenants: str) -> None:
        """Let a call of each of these tenants come, one after the other."""
        for tenant in tenants:
            before = self._settled()
            thread = threading.Thread(target=self._call, args=(tenant,), daemon=True)
            self._threads.append(thread)
            thread.start()
            self._until(lambda before=before: self._settled() > before)

    def end(self, tenant: str) -> None:
        """Let a call of the tenant end."""
        self._slots.give_back(tenant)

    def begin(self, *tenants: str) -> None:
        """Wait until just these have begun so far."""
        self._until(lambda: len(self.begun) >= len(tenants))
        assert self.begun == [*tenants]

    def refuse(self, *tenants: str) -> None:
        """Wait until just these were refused so far."""
        self._until(lambda: len(self.refused) >= len(tenants))
        assert self.refused == [*tenants]

    def join(self) -> None:
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()

    def _call(self, tenant: str) -> None:
        try:
            self._slots.take(tenant)
            said = self.begun
        except (ServerBusy, Unavailable):
            said = self.refused
        with self._changed:
            said.append(tenant)
            self._changed.notify_all()

    def _settled(self) -> int:
        """How many calls have begun, wait, or were refused."""
        return len(self.begun) + len(self._slots._waiting) + len(self.refused)

    def _until(self, condition: object) -> None:
        assert callable(condition)
        waited = threading.Event()
        for _ in range(PATIENCE * 1000):
            if condition():
                return
            waited.wait(0.001)
        raise AssertionError((self.begun, self.refused))


@pytest.fixture
def calls() -> Iterator[Calls]:
    """Slots for 3 calls, 2 of them of one tenant, and a queue of 3."""
    calls = Calls(HandlerSlots(3, 2, 3))
    yield calls
    calls.join()


def test_a_tenant_has_its_own_slots_and_leaves_the_rest_to_others(calls: Calls) -> None:
    calls.call("acme", "acme", "acme", "other")
    calls.begin("acme", "acme", "other")
    calls.end("other")
    calls.call("other")
    calls.begin("acme", "acme", "other", "other")
    calls.end("acme")
    calls.begin("acme", "acme", "other", "other", "acme")


def test_tenants_that_wait_take_turns(calls: Calls) -> None:
    begun = ["acme", "acme", "other"]
    calls.call(*begun, "acme", "acme", "third")
    for done, next_one in (("other", "third"), ("acme", "acme"), ("acme", "acme")):
        calls.end(done)
        begun.append(next_one)
        calls.begin(*begun)


def test_who_has_most_calls_waiting_is_refused_for_others(calls: Calls) -> None:
    calls.call("acme", "acme", "other", "acme", "acme", "acme")
    calls.call("acme")
    calls.refuse("acme")
    calls.call("third")
    calls.refuse("acme", "acme")
    calls.call("fourth")
    calls.refuse("acme", "acme", "acme")
    calls.call("fifth")
    calls.refuse("acme", "acme", "acme", "fifth")
    begun = ["acme", "acme", "other"]
    for done, next_one in (("acme", "acme"), ("acme", "third"), ("other", "fourth")):
        calls.end(done)
        begun.append(next_one)
        calls.begin(*begun)


def test_a_slot_that_was_lent_is_had_again_at_once_whoever_waits(calls: Calls) -> None:
    calls.call("acme", "acme", "other", "third")
    with calls._slots.lent("acme"):
        calls.begin("acme", "acme", "other", "third")
        calls.call("third", "acme")
    for _ in range(2):
        calls.end("acme")
    calls.begin("acme", "acme", "other", "third", "third")
    calls.end("other")
    calls.begin("acme", "acme", "other", "third", "third", "acme")


def test_once_they_are_closed_who_waits_is_refused_and_who_comes_too(calls: Calls) -> None:
    calls.call("acme", "acme", "acme", "other", "other", "third")
    calls._slots.close()
    calls.call("fourth")
    calls._until(lambda: len(calls.refused) == 4)
    assert sorted(calls.refused) == ["acme", "fourth", "other", "third"]
    calls.end("acme")
    calls.begin("acme", "acme", "other")


def test_a_tenant_has_its_own_streams_and_leaves_the_rest_to_others() -> None:
    slots = StreamSlots(3, 2)
    with ExitStack() as open_ones:
        mine = open_ones.enter_context(ExitStack())
        for _ in range(2):
            mine.enter_context(slots.taken("acme"))
        with pytest.raises(ServerBusy, match="2 streams"), slots.taken("acme"):
            raise AssertionError("it is taken all the same")
        open_ones.enter_context(slots.taken("other"))
        with pytest.raises(ServerBusy, match="more streams"), slots.taken("third"):
            raise AssertionError("it is taken all the same")
        mine.close()
        with slots.taken("third"), slots.taken("acme"):
            pass
