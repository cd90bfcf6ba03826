"""The way of calls to a tenant that moves: those that meet its move wait, and go on where it is then.

Whoever calls hears of nothing but a pause. A call that was refused since its tenant moves has stored nothing,
so it is made again as it came; a stream ends, and is opened again by its client.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from types import TracebackType

from scrubjay.errors import ScrubjayError
from server.ending import Ending
from server.shard import Shard
from server.store.fence import TenantMoving
from tenants.tenant import Incarnation, Tenant

LOOK_SECONDS = 0.05
"""How often a call that waits looks whether its tenant has moved, where nobody in this process says so."""


class Passage:
    """The calls of one server on their way to ``shards``; safe for many threads. ``living`` gives the tenant
    of an incarnation as the catalogue has it."""

    def __init__(self, shards: Mapping[str, Shard], living: Callable[[Incarnation], Tenant | None]) -> None:
        self._shards = dict(shards)
        self._living = living
        self._lock = threading.Lock()
        self._moved = threading.Condition()
        self._under_way: dict[Incarnation, set[Crossing]] = {}

    def crossing(self, tenant: Tenant | None, ending: Ending | None = None) -> Crossing:
        """A call on the tenant's memories, for a block; with an ``ending``, a stream. TenantMoving where the
        tenant is elsewhere."""
        return Crossing(self, tenant, ending)

    def check(self, tenant: Tenant) -> None:
        """Raise TenantMoving where the tenant is not to be read on its shard any more, or not yet."""
        shard = self._shards.get(tenant.shard)
        if shard is not None:
            shard.check_here(tenant)

    def wait(self, incarnation: Incarnation, seconds: float) -> None:
        """Return once the shard that the catalogue names takes writes of the tenant. TenantMoving where that
        takes longer."""
        due = time.monotonic() + seconds
        while not self._is_open(incarnation):
            left = due - time.monotonic()
            if left <= 0:
                raise TenantMoving(incarnation)
            with self._moved:
                self._moved.wait(min(left, LOOK_SECONDS))

    def _is_open(self, incarnation: Incarnation) -> bool:
        tenant = self._living(incarnation)
        return tenant is None or self._shards[tenant.shard].is_open_for(incarnation)

    # --- for those who move a tenant ----------------------------------------------------------------

    def opened(self) -> None:
        """A tenant moved, or stays: those that wait look."""
        with self._moved:
            self._moved.notify_all()

    def under_way(self, incarnation: Incarnation) -> frozenset[Crossing]:
        """The calls on a tenant's memories that have not ended."""
        with self._lock:
            return frozenset(self._under_way.get(incarnation, ()))

    def are_over(self, calls: Collection[Crossing]) -> bool:
        """Whether these calls have ended."""
        return all(call.over for call in calls)

    def end_streams(self, incarnation: Incarnation) -> None:
        """End the streams of a tenant, to be opened again."""
        for call in self.under_way(incarnation):
            if call.ending is not None:
                call.ending.end(TenantMoving(incarnation))


class Crossing:
    """One call, while it is under way."""

    def __init__(self, passage: Passage, tenant: Tenant | None, ending: Ending | None) -> None:
        self._passage = passage
        self._tenant = tenant
        self.ending = ending
        self.over = False

    def __enter__(self) -> Crossing:
        if self._tenant is not None:
            with self._passage._lock:
                self._passage._under_way.setdefault(self._tenant.incarnation, set()).add(self)
            try:
                # Only now: a move that begins behind this finds the call under way.
                self._passage.check(self._tenant)
            except ScrubjayError:
                self._leave(self._tenant.incarnation)
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._tenant is not None:
            self._leave(self._tenant.incarnation)

    def _leave(self, incarnation: Incarnation) -> None:
        self.over = True
        with self._passage._lock:
            calls = self._passage._under_way[incarnation]
            calls.discard(self)
            if not calls:
                del self._passage._under_way[incarnation]
