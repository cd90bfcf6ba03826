"""How a call waits for work that takes long: until its deadline at most, and in no handler's slot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from server.ending import Ending
from server.slots import Slots

MOST_WITHOUT_DEADLINE_SECONDS = 60.0
"""Proxies cut calls that are quiet for longer."""
SHARE = 0.1
MARGIN_SECONDS = (0.05, 1.0)
"""An answer sets out this share of the time before the deadline, so that it arrives; at least and at most
so long."""


class Call(Protocol):
    """What gRPC knows of a call."""

    def time_remaining(self) -> float | None:
        """Seconds until its deadline, if it has one."""

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Have ``callback`` called when it is over; False where it is already."""


class Patience:
    """The patience of one call, which has a handler slot of ``tenant``."""

    def __init__(self, slots: Slots, call: Call, tenant: str) -> None:
        self._slots = slots
        self._call = call
        self._tenant = tenant

    @property
    def seconds(self) -> float:
        """How long the call may wait from now on."""
        remaining = self._call.time_remaining()
        if remaining is None:
            return MOST_WITHOUT_DEADLINE_SECONDS
        least, most = MARGIN_SECONDS
        return max(0.0, remaining - min(max(remaining * SHARE, least), most))

    @contextmanager
    def waiting(self) -> Iterator[Ending]:
        """The block may wait, until the ending at most: the caller has gone, or the server stops, and then
        Unavailable is raised after the block. ServerBusy where too many wait."""
        ending = Ending()
        if not self._call.add_callback(ending.end):
            ending.end()
        with self._slots.aside(self._tenant, ending):
            yield ending
        if ending.error is not None:
            raise ending.error
