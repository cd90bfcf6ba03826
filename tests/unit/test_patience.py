"""How calls wait: until shortly before their deadline, and in no handler's slot."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import pytest

from scrubjay.errors import ServerBusy, Unavailable
from server.patience import MOST_WITHOUT_DEADLINE_SECONDS, Patience
from server.slots import Slots

ACME = "acme"


@dataclass
class Call:
    """What gRPC knows of a call."""

    remaining: float | None = None
    over: bool = False
    callbacks: list[Callable[[], None]] = field(default_factory=list)

    def time_remaining(self) -> float | None:
        return self.remaining

    def add_callback(self, callback: Callable[[], None]) -> bool:
        self.callbacks.append(callback)
        return not self.over


@pytest.fixture
def slots() -> Slots:
    return Slots(handlers=1, queued=1, streams=2)


@contextmanager
def slot(slots: Slots) -> Iterator[None]:
    slots.handler.take(ACME)
    try:
        yield
    finally:
        slots.handler.give_back(ACME)


@pytest.fixture
def handled(slots: Slots) -> Iterator[None]:
    """Inside of a call, which has the tenant's only handler slot."""
    with slot(slots):
        yield


@pytest.mark.parametrize(
    ("remaining", "seconds"),
    [(None, MOST_WITHOUT_DEADLINE_SECONDS), (100, 99), (10, 9), (0.2, 0.15), (0.01, 0), (-1, 0)],
)
def test_an_answer_sets_out_before_the_deadline(slots: Slots, remaining: float, seconds: float) -> None:
    assert Patience(slots, Call(remaining), ACME).seconds == pytest.approx(seconds)


@pytest.mark.usefixtures("handled")
def test_a_wait_gives_its_handler_slot_to_others_and_takes_one_back(slots: Slots) -> None:
    with Patience(slots, Call(), ACME).waiting() as ending, slot(slots):
        assert not ending.over
    taken = threading.Event()

    def other() -> None:
        with slot(slots):
            taken.set()

    thread = threading.Thread(target=other)
    thread.start()
    assert not taken.wait(0.05)
    slots.handler.give_back(ACME)
    thread.join()
    assert taken.is_set()
    slots.handler.take(ACME)


@pytest.mark.usefixtures("handled")
def test_too_many_waits_are_refused(slots: Slots) -> None:
    with ExitStack() as stack:
        stack.enter_context(slots.stream(ACME))
        stack.enter_context(slots.stream(ACME))
        with pytest.raises(ServerBusy), Patience(slots, Call(), ACME).waiting():
            raise AssertionError("it waits all the same")
    with Patience(slots, Call(), ACME).waiting():
        pass


@pytest.mark.usefixtures("handled")
def test_a_wait_ends_with_its_caller(slots: Slots) -> None:
    call = Call()
    with Patience(slots, call, ACME).waiting() as ending:
        call.callbacks[0]()
        assert ending.over
    with Patience(slots, Call(over=True), ACME).waiting() as ending:
        assert ending.over


@pytest.mark.usefixtures("handled")
def test_a_server_that_stops_ends_waits_and_takes_no_more(slots: Slots) -> None:
    waiting = Patience(slots, Call(), ACME).waiting()
    ending = waiting.__enter__()
    slots.stop()
    assert ending.over
    with pytest.raises(Unavailable):
        waiting.__exit__(None, None, None)
    with pytest.raises(Unavailable), Patience(slots, Call(), ACME).waiting():
        raise AssertionError("it waits all the same")
