"""A remote that sends some requests twice, at once or much later, as a network that repeats does.

A request of HTTP/2 can't be repeated by a proxy that does not speak it; this does it one floor above.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import TypeVar

from client_sync.remote_sync import RemoteSync
from scrubjay import v1
from scrubjay.errors import ScrubjayError

_REMEMBERED = 20

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")


class Relay:
    """A ``RemoteSync`` before another one. ``twice`` and ``late`` are how often, 0 to 1."""

    def __init__(
        self, remote: RemoteSync, chance: random.Random, *, twice: float = 0.15, late: float = 0.1
    ) -> None:
        self._remote = remote
        self._chance = chance
        self._twice = twice
        self._late = late
        self._sent: list[Callable[[], object]] = []

    def sync(self, request: v1.SyncRequest) -> v1.SyncResponse:
        """See RemoteSync."""
        return self._call(self._remote.sync, request)

    def reconcile(self, request: v1.ReconcileRequest) -> v1.ReconcileResponse:
        """See RemoteSync."""
        return self._call(self._remote.reconcile, request)

    def reoffer(self, request: v1.ReofferRequest) -> v1.ReofferResponse:
        """See RemoteSync."""
        return self._call(self._remote.reoffer, request)

    def vectors(self, request: v1.VectorsRequest) -> v1.VectorsResponse:
        """See RemoteSync."""
        return self._call(self._remote.vectors, request)

    def snapshot(self, request: v1.SnapshotRequest) -> Iterator[v1.SnapshotResponse]:
        """See RemoteSync."""
        return self._remote.snapshot(request)

    def watch(self, request: v1.WatchRequest) -> Iterator[v1.WatchResponse]:
        """See RemoteSync."""
        return self._remote.watch(request)

    def _call(self, method: Callable[[_Request], _Response], request: _Request) -> _Response:
        if self._sent and self._chance.random() < self._late:
            self._lost(self._chance.choice(self._sent))
        self._sent = [*self._sent[-_REMEMBERED:], lambda: method(request)]
        if self._chance.random() < self._twice:
            self._lost(lambda: method(request))
        return method(request)

    def _lost(self, call: Callable[[], object]) -> None:
        """A request whose answer nobody gets."""
        try:
            call()
        except ScrubjayError:
            return
