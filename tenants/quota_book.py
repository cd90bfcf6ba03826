"""The limits of tenants, known without a look at the catalogue for a while."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from scrubjay.errors import StorageUnavailable
from tenants.quotas import Allowance
from tenants.tenant import Incarnation, Tenant

CAPACITY = 10_000
SECONDS = 30.0
"""As long as a credential is known."""


class QuotaBook:
    """Limits by incarnation, safe for many threads. ``read`` gives the tenant of a life, None where that is
    over.

    What another server changed shows when an entry has aged ``SECONDS``, what this one did at once.
    """

    def __init__(
        self, read: Callable[[Incarnation], Tenant | None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._read = read
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: OrderedDict[Incarnation, tuple[Allowance, float]] = OrderedDict()

    def allowance(self, incarnation: Incarnation) -> Allowance:
        """The limits of a tenant; where the catalogue does not answer, those that were read last."""
        with self._lock:
            known, read_at = self._entries.get(incarnation, (Allowance(), None))
        now = self._clock()
        if read_at is not None and now - read_at < SECONDS:
            return known
        try:
            tenant = self._read(incarnation)
        except StorageUnavailable:
            return known
        allowance = Allowance() if tenant is None else Allowance(tenant.quotas, tenant.tenant_id)
        with self._lock:
            self._entries[incarnation] = allowance, now
            self._entries.move_to_end(incarnation)
            if len(self._entries) > CAPACITY:
                self._entries.popitem(last=False)
        return allowance

    def forget(self, incarnation: Incarnation) -> None:
        """A tenant was changed: its limits are read again."""
        with self._lock:
            self._entries.pop(incarnation, None)
