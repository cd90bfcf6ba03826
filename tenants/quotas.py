"""How much a tenant may have and call."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import NamedTuple

from scrubjay import v1
from scrubjay.errors import FieldViolation

MAX_QUOTA = 10**15
"""Exact in every number that JSON readers know."""


@dataclass(frozen=True, slots=True)
class Quotas:
    """Limits of one tenant; 0 is none.

    ``memories`` counts those that live, ``bytes`` all that was written of them and their history until the
    tenant is purged, ``devices`` and ``api_keys`` those that have not ended. A server counts calls on its
    own: so many a second of all of the tenant's credentials together, and of each one.
    """

    memories: int = 0
    bytes: int = 0
    devices: int = 0
    api_keys: int = 0
    calls_per_second: float = 0
    calls_per_second_per_key: float = 0


UNLIMITED = Quotas()
"""Of a tenant that was given no limits."""


class Allowance(NamedTuple):
    """The limits of a tenant, and the id by which it is told of them."""

    quotas: Quotas = UNLIMITED
    tenant_id: str = ""


def violations(field_path: str, quotas: Quotas) -> Iterator[FieldViolation | None]:
    """What is wrong with the limits, if anything."""
    for field in fields(quotas):
        value = getattr(quotas, field.name)
        if not math.isfinite(value) or not 0 <= value <= MAX_QUOTA:
            yield FieldViolation(f"{field_path}.{field.name}", f"is {value}; give 0 for no limit, or a limit")


# --- as JSON text, and as a message -----------------------------------------------------------------


def to_text(quotas: Quotas) -> str | None:
    """The limits as the catalogue keeps them: None for none."""
    return None if quotas == UNLIMITED else json.dumps(asdict(quotas))


def from_text(text: str | None) -> Quotas:
    """The inverse of ``to_text``."""
    return UNLIMITED if text is None else Quotas(**json.loads(text))


def to_message(quotas: Quotas) -> v1.Quotas:
    """The limits as their message."""
    return v1.Quotas(**asdict(quotas))


def from_message(message: v1.Quotas) -> Quotas:
    """The inverse of ``to_message``; nothing is validated here: see ``violations``."""
    return Quotas(**{field.name: getattr(message, field.name) for field in fields(Quotas)})
