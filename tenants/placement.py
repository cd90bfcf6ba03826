"""Where a new tenant's memories go: rendezvous hashing.

Every shard bids for every tenant and the highest bid wins. So the answer depends on names alone, not on
their order, and another shard takes over only the tenants it outbids the others for. The answer is stored
with the tenant when it is made; it is never asked again for a tenant that exists.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from tenants.tenant import Incarnation


def place(incarnation: Incarnation, shard_names: Iterable[str]) -> str:
    """The shard for ``incarnation``; ValueError where there is no shard."""
    names = set(shard_names)
    if not names:
        raise ValueError("there is no shard to place a tenant on; configure one")
    return max(names, key=lambda name: (_bid(name, incarnation), name))


def _bid(shard_name: str, incarnation: Incarnation) -> bytes:
    return hashlib.sha256(f"{incarnation}\0{shard_name}".encode()).digest()
