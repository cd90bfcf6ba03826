"""A bad network before a real server: lines that delay, cut, stall, throttle, fall silent or refuse.

What happens to a line's n-th connection is a function of n, so a plan made from a seed asks for the same
again. Every byte that passes is kept, so that it can be searched afterwards.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Self

_READ_BYTES = 16 * 1024
_UNDER_WAY = 512
"""Reads that may be on their way at once: 8 MiB, more than any link here holds."""


class Way(Enum):
    """A direction on a line: ``UP`` to the server, ``DOWN`` to the client."""

    UP = "up"
    DOWN = "down"


class Kind(Enum):
    """What happens to a connection once ``after_bytes`` have passed on ``Fault.way``.

    ``CUT`` resets it; ``HALF_OPEN`` forwards nothing more that way for ``seconds``, for ever where that is
    0, then resets it; ``STALL`` forwards nothing either way for ``seconds``, then everything; ``REFUSE``
    resets it at once; ``NONE`` nothing. ``after_bytes`` of CUT, HALF_OPEN and STALL is 1 or more.
    """

    NONE = "none"
    CUT = "cut"
    HALF_OPEN = "half-open"
    STALL = "stall"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Fault:
    """What a connection is like. ``delay_seconds`` and ``bits_per_second`` hold for each way."""

    kind: Kind = Kind.NONE
    way: Way = Way.UP
    after_bytes: int = 0
    seconds: float = 0.0
    delay_seconds: float = 0.0
    bits_per_second: float = 0.0


Plan = Callable[[int], Fault]
"""The fault of a line's n-th connection, from 0."""

CLEAN = Fault()


def clean(_number: int) -> Fault:
    """Nothing ever happens."""
    return CLEAN


def seeded(seed: int, name: str) -> Plan:
    """Every kind of fault, chosen by a seed and the line's name."""

    def plan(number: int) -> Fault:
        chance = random.Random(f"{seed} {name} {number}")
        kind = chance.choices(list(Kind), weights=[10, 45, 15, 15, 15])[0]
        return Fault(
            kind=kind,
            way=chance.choice(list(Way)),
            # Evenly over the orders of magnitude: some hit the first frames, some the middle of a page.
            after_bytes=int(10 ** chance.uniform(1, 4.3)),
            seconds=chance.uniform(0.1, 4),
            delay_seconds=chance.choice([0, 0, 0, 0.02, 0.1]),
            bits_per_second=chance.choice([0, 0, 0, 2e6]),
        )

    return plan


class Proxy:
    """Lines to one server, from construction to ``close``. ``target`` may change while they are in use.

    ``folder`` gets what passed: a file for each connection and way.
    """

    def __init__(self, target: str, folder: Path) -> None:
        self.target = target
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._lines: list[Line] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy")
        self._thread.start()

    def line(self, name: str, plan: Plan = clean) -> Line:
        """A line of its own for the client ``name``."""
        line = Line(self, name, plan)
        self.run(line.open())
        self._lines.append(line)
        return line

    def heal(self) -> None:
        """Faults end: connections that have one are reset, and new ones have none."""
        for line in self._lines:
            line.heal()

    def run(self, work: object) -> None:
        """Do ``work``, a coroutine, in the proxy's thread."""
        done: Future[None] = asyncio.run_coroutine_threadsafe(work, self._loop)  # type: ignore[arg-type]  # one
        done.result(30)

    def close(self) -> None:
        """Reset every connection and stop. May be called again."""
        if self._thread.is_alive():
            for line in self._lines:
                self.run(line.shut())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Line:
    """A port that leads to the server. ``address`` is where the client connects."""

    def __init__(self, proxy: Proxy, name: str, plan: Plan) -> None:
        self.name = name
        self.plan = plan
        self.address = ""
        self._proxy = proxy
        self._count = 0
        self._open: dict[asyncio.Task[None], Fault] = {}

    @property
    def connections(self) -> int:
        """How many there were."""
        return self._count

    def passed(self, way: Way) -> list[Path]:
        """The files of what passed one way, a connection each."""
        return sorted(self._proxy.folder.glob(f"{self.name}-*.{way.value}"))

    def bytes_passed(self, way: Way) -> int:
        """How many bytes passed one way."""
        return sum(file.stat().st_size for file in self.passed(way))

    def heal(self) -> None:
        """See Proxy."""
        self.plan = clean
        self._proxy.run(self._reset(lambda fault: fault != CLEAN))

    def cut(self) -> None:
        """Reset every connection now."""
        self._proxy.run(self._reset(lambda _: True))

    async def open(self) -> None:
        """Begin to listen."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=_READ_BYTES)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def shut(self) -> None:
        """Reset every connection and stop listening."""
        self._server.close()
        await self._reset(lambda _: True)
        await self._server.wait_closed()

    async def _reset(self, which: Callable[[Fault], bool]) -> None:
        chosen = [task for task, fault in self._open.items() if which(fault)]
        for task in chosen:
            task.cancel()
        await asyncio.gather(*chosen, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number, self._count = self._count, self._count + 1
        fault = self.plan(number)
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = fault
        try:
            if fault.kind is not Kind.REFUSE:
                await self._connect(number, fault, reader, writer)
        except asyncio.CancelledError:
            pass  # reset from outside: this task ends as any other
        finally:
            writer.transport.abort()
            del self._open[task]

    async def _connect(
        self, number: int, fault: Fault, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        host, _, port = self._proxy.target.rpartition(":")
        try:
            far_reader, far_writer = await asyncio.open_connection(host, int(port), limit=_READ_BYTES)
        except OSError:
            return  # the server is down: so is the connection to it
        try:
            connection = _Connection(fault)
            base = f"{self.name}-{number:05d}"
            await connection.carry(
                (reader, far_writer, self._proxy.folder / f"{base}.{Way.UP.value}"),
                (far_reader, writer, self._proxy.folder / f"{base}.{Way.DOWN.value}"),
            )
        finally:
            far_writer.transport.abort()


_Pipe = tuple[asyncio.StreamReader, asyncio.StreamWriter, Path]


class _Connection:
    """One connection and its fault."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._left = fault.after_bytes

    async def carry(self, up: _Pipe, down: _Pipe) -> None:
        """Forward both ways until one end closes or the fault ends it."""
        tasks = [
            asyncio.create_task(self._forward(way, *pipe)) for way, pipe in ((Way.UP, up), (Way.DOWN, down))
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _forward(
        self, way: Way, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: Path
    ) -> None:
        """Two halves: one reads and says when each piece is due, the other delivers it then."""
        link: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_UNDER_WAY)
        delivery = asyncio.create_task(self._deliver(way, link, writer, kept))
        reading = asyncio.create_task(self._read(link, reader))
        try:
            await asyncio.wait([delivery, reading], return_when=asyncio.FIRST_COMPLETED)
            if reading.done() and not delivery.done():
                await delivery  # what was read before the end still arrives
        finally:
            delivery.cancel()
            reading.cancel()
            await asyncio.gather(delivery, reading, return_exceptions=True)

    async def _read(self, link: asyncio.Queue[tuple[float, bytes]], reader: asyncio.StreamReader) -> None:
        loop = asyncio.get_running_loop()
        free_at = 0.0
        data = b"begin"
        while data:
            try:
                data = await reader.read(_READ_BYTES)
            except OSError:
                data = b""
            if self._fault.bits_per_second:
                free_at = max(free_at, loop.time()) + len(data) * 8 / self._fault.bits_per_second
            else:
                free_at = loop.time()
            await link.put((free_at + self._fault.delay_seconds, data))

    async def _deliver(
        self,
        way: Way,
        link: asyncio.Queue[tuple[float, bytes]],
        writer: asyncio.StreamWriter,
        kept: Path,
    ) -> None:
        loop = asyncio.get_running_loop()
        with kept.open("wb", buffering=0) as log:
            while True:
                due, data = await link.get()
                await asyncio.sleep(max(0.0, due - loop.time()))  # the line's own slowness
                await self._flowing.wait()
                passing = self._passing(way, data)
                log.write(passing)
                if writer.is_closing():
                    return
                writer.write(passing)
                with suppress(OSError):
                    await writer.drain()
                if not data or (way is self._fault.way and await self._struck(len(data))):
                    return

    def _passing(self, way: Way, data: bytes) -> bytes:
        ends = self._fault.kind in (Kind.CUT, Kind.HALF_OPEN) and way is self._fault.way
        return data[: self._left] if ends else data

    async def _struck(self, size: int) -> bool:
        """Do what the fault does once so many bytes have passed; whether the connection ends with it."""
        before, self._left = self._left, self._left - size
        if self._left > 0 or before <= 0:
            return False
        if self._fault.kind is Kind.HALF_OPEN:
            if not self._fault.seconds:
                await asyncio.Event().wait()
            await asyncio.sleep(self._fault.seconds)  # the line's own slowness
        elif self._fault.kind is Kind.STALL:
            self._flowing.clear()
            await asyncio.sleep(self._fault.seconds)  # the line's own slowness
            self._flowing.set()
        return self._fault.kind in (Kind.CUT, Kind.HALF_OPEN)
