"""How often somebody may call: token buckets, filled with so many tokens a second."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from scrubjay.errors import RateLimited
from tenants.quotas import UNLIMITED
from tenants.tenant import Caller, Role, Tenant

BURST_SECONDS = 2.0
"""What a bucket holds: who was quiet may call so many seconds' calls at once."""
MAX_BUCKETS = 20_000
"""Some 4 MB. The least recently used one is forgotten, and is full when it comes again."""
SHARE = 0.5
"""Of a shard's bucket: what one tenant may always take, and what it leaves the others when it takes more."""


class Limit(NamedTuple):
    """A bucket's name, its tokens a second, and the part of it that this call leaves untouched."""

    name: str
    rate: float
    left: float = 0.0


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled_at: float
    most: float


class Rates:
    """The buckets of one server; safe for many threads. ``clock`` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def wait_seconds(self, limits: Iterable[Limit]) -> float:
        """Take a token from every bucket and return 0; or take none, and return in how many seconds all will
        have one."""
        with self._lock:
            now = self._clock()
            buckets = [(self._filled(limit, now), limit) for limit in limits]
            missing = ((1 + limit.left * b.most - b.tokens) / limit.rate for b, limit in buckets)
            wait = max(missing, default=0.0)
            if wait > 0:
                return wait
            for bucket, _ in buckets:
                bucket.tokens -= 1
            return 0.0

    def _filled(self, limit: Limit, now: float) -> _Bucket:
        most = max(1.0, limit.rate * BURST_SECONDS)
        bucket = self._buckets.setdefault(limit.name, _Bucket(most, now, most))
        self._buckets.move_to_end(limit.name)
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)
        bucket.tokens = min(most, bucket.tokens + (now - bucket.filled_at) * limit.rate)
        bucket.filled_at = now
        bucket.most = most
        return bucket


class CallLimits:
    """What limits the calls on tenants' memories: their quotas, and how often a shard may be called; 0 is no
    limit.

    What is left of a shard's bucket by one tenant alone is for the others: it may take SHARE of the rate
    whatever they do, and more only as long as SHARE of the bucket stays.
    """

    def __init__(self, shard_calls_per_second: float = 0, rates: Rates | None = None) -> None:
        self._shard_rate = shard_calls_per_second
        self._rates = rates or Rates()

    def admit(self, caller: Caller) -> None:
        """Count a call. Raises RateLimited, and then takes nothing. Admins' own calls are not counted."""
        tenant = caller.tenant
        if tenant is None or caller.role is Role.TENANT_ADMIN:
            return
        if tenant.quotas is UNLIMITED and not self._shard_rate:
            return
        own = list(_quotas_of(caller, tenant))
        wait = self._rates.wait_seconds([*own, *self._share_of(tenant)])
        if wait and self._shard_rate:
            wait = min(wait, self._rates.wait_seconds([*own, Limit(tenant.shard, self._shard_rate, SHARE)]))
        if wait:
            raise RateLimited(wait)

    def _share_of(self, tenant: Tenant) -> Iterator[Limit]:
        if self._shard_rate:
            yield Limit(tenant.shard, self._shard_rate)
            yield Limit(f"{tenant.shard} {tenant.incarnation}", self._shard_rate * SHARE)


def _quotas_of(caller: Caller, tenant: Tenant) -> Iterator[Limit]:
    if tenant.quotas.calls_per_second:
        yield Limit(tenant.incarnation, tenant.quotas.calls_per_second)
    if tenant.quotas.calls_per_second_per_key:
        yield Limit(caller.key_id, tenant.quotas.calls_per_second_per_key)
