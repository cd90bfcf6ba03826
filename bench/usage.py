"""What counting a call costs it, and what asking does whether it may be made: microseconds of processor time.

    python bench/usage.py

In one process, without a call around it, the loop included. The kinds are made in turn, A B C A B C, and of
each the fastest round is printed: what is slower is the machine's other work.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from scrubjay.errors import RateLimited
from scrubjay.memory import ClientId, Micros
from server.rates import CallLimits
from tenants.quotas import Quotas
from tenants.tenant import Caller, Incarnation, Role, Tenant, TenantState
from tenants.usage import UsageCounter

CALLS = 100_000
ROUNDS = 7
KEYS = 100
OFTEN = 1e9
"""A rate that nobody reaches: the limit is looked at and lets all through."""


def callers(quotas: Quotas) -> list[Caller]:
    """One caller for each key of a tenant."""
    life = Incarnation("11111111-1111-4111-8111-111111111111")
    tenant = Tenant("acme", "Acme", life, TenantState.ACTIVE, "shard-0", "", Micros(0))
    limited = replace(tenant, quotas=quotas) if quotas != Quotas() else tenant
    return [Caller(Role.SERVICE, f"key-{n}", ClientId(f"key-{n}"), limited) for n in range(KEYS)]


def admitting(limits: CallLimits, quotas: Quotas) -> Callable[[], None]:
    """A round of calls that ask whether they may be made."""
    who = callers(quotas)

    def run() -> None:
        for n in range(CALLS):
            with suppress(RateLimited):
                limits.admit(who[n % KEYS])

    return run


def counting() -> Callable[[], None]:
    """A round of calls that are counted."""
    who, counter = callers(Quotas()), UsageCounter()

    def run() -> None:
        for n in range(CALLS):
            counter.count_call(who[n % KEYS], "Search", 100, 1000)

    return run


def main() -> None:
    """Print a line for each kind."""
    both = Quotas(calls_per_second=OFTEN, calls_per_second_per_key=OFTEN)
    kinds: dict[str, Callable[[], None]] = {
        "counted": counting(),
        "admitted, no limits": admitting(CallLimits(), Quotas()),
        "admitted, limits of tenant and key": admitting(CallLimits(), both),
        "admitted, limits of tenant, key and shard": admitting(CallLimits(OFTEN), both),
    }
    fastest = dict.fromkeys(kinds, float("inf"))
    for _ in range(ROUNDS):
        for name, run in kinds.items():
            began = time.process_time()
            run()
            fastest[name] = min(fastest[name], (time.process_time() - began) / CALLS * 1e6)
    for name, micros in fastest.items():
        print(f"{name:45} {micros:6.2f} µs")


if __name__ == "__main__":
    main()
