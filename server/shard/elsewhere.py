"""Which tenants a server that is alone on a shard must not read there."""

from __future__ import annotations

import threading

from server.store.memory_store import MemoryStore
from tenants.tenant import Incarnation


class Elsewhere:
    """The tenants that left a shard, or have not arrived yet; safe for many threads."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._now: frozenset[Incarnation] | None = None

    @property
    def now(self) -> frozenset[Incarnation]:
        """Those of this moment; read when first asked for."""
        known = self._now
        if known is not None:
            return known
        with self._lock:
            self._now = self._known()
            return self._now

    def add(self, incarnation: Incarnation) -> None:
        """One more."""
        with self._lock:
            self._now = self._known() | {incarnation}

    def remove(self, incarnation: Incarnation) -> None:
        """One less."""
        with self._lock:
            self._now = self._known() - {incarnation}

    def _known(self) -> frozenset[Incarnation]:
        if self._now is None:
            with self._store.reading_moves() as reading:
                return reading.elsewhere()
        return self._now
