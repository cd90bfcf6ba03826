"""The time on a device, corrected by the server's: a wrong clock must not decide whose edit stands."""

from __future__ import annotations

import time
from collections.abc import Callable

from scrubjay.memory import Micros


def wall_micros() -> Micros:
    """Microseconds since 1970, as the machine's clock has it."""
    return Micros(time.time_ns() // 1000)


def monotonic_micros() -> int:
    """Microseconds of a clock that nobody sets."""
    return time.monotonic_ns() // 1000


class DeviceClock:
    """The best guess of the server's time.

    ``offset`` is what an earlier run found between the server's clock and this machine's. The fastest
    exchange of this run then gives a better one, carried on by the monotonic clock.
    """

    def __init__(
        self,
        offset: int = 0,
        wall: Callable[[], Micros] = wall_micros,
        monotonic: Callable[[], int] = monotonic_micros,
    ) -> None:
        self.offset = offset
        self._wall = wall
        self._monotonic = monotonic
        self._anchor: tuple[int, int] | None = None
        self._fastest: int | None = None

    def now(self) -> Micros:
        """The server's time, as far as it is known here."""
        if self._anchor is None:
            return Micros(max(0, self._wall() + self.offset))
        server, monotonic = self._anchor
        return Micros(server + self._monotonic() - monotonic)

    def reading(self) -> int:
        """To be taken when a request is sent, and given to ``exchanged``."""
        return self._monotonic()

    def exchanged(self, server_time: Micros, sent: int) -> None:
        """A request sent at ``sent`` was just answered, with the server's time in the answer."""
        now = self._monotonic()
        took = max(0, now - sent)
        if self._fastest is None or took <= self._fastest:
            self._fastest = took
            self._anchor = (server_time + took // 2, now)
            self.offset = self._anchor[0] - self._wall()
