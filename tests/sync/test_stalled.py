"""A peer that stalls costs the server next to nothing, however much is written meanwhile."""

from __future__ import annotations

import tracemalloc
from contextlib import ExitStack, closing

from scrubjay import v1
from scrubjay.memory import PrivacyLevel
from tests.sync.actions.backend import web_add, web_update
from tests.sync.line import Line
from tests.sync.runs import Places, new_world

READERS = 30
WRITES = 100
MOST_BYTES_OF_A_READER = 200
"""What it has not heard is one number, and the object around it."""


def test_memory_is_bounded_with_stalled_readers(places: Places) -> None:
    with new_world(places) as world, ExitStack() as stack:
        web_add(world, 0, PrivacyLevel.SHARED, "work")
        line = Line(world, world.device("phone"))
        readers = [line.watch(v1.WatchRequest()) for _ in range(READERS)]
        for reader in readers:
            stack.enter_context(closing(reader))
            next(reader)
        tracemalloc.start()
        stack.callback(tracemalloc.stop)
        before = _held_for_readers()
        for number in range(WRITES):
            web_update(world, 0, ("content", f"tea {number}"))
        assert _held_for_readers() - before < READERS * MOST_BYTES_OF_A_READER
        assert sum(map(len, world.server.shard.hub._subscriptions.values())) == READERS
    assert not world.server.shard.hub._subscriptions


def _held_for_readers() -> int:
    """The bytes that the rooms of Watch hold since tracing began."""
    rooms = [tracemalloc.Filter(True, f"*/server/{name}") for name in ("watch.py", "services/watching.py")]
    return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(rooms).traces)
