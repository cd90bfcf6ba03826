"""The receipt of a purge: what was swept of a tenant, and when."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from scrubjay import v1
from scrubjay.memory import Micros
from scrubjay.wire import to_timestamp


@dataclass(frozen=True, slots=True)
class PurgeReceipt:
    """``swept`` counts what was deleted, by place: the rows of each table, and files by their kind.

    ``finished_at`` is None while the purge goes on.
    """

    started_at: Micros
    finished_at: Micros | None = None
    swept: Mapping[str, int] = field(default_factory=dict)


def to_text(receipt: PurgeReceipt | None) -> str | None:
    """The receipt as the catalogue keeps it."""
    return None if receipt is None else json.dumps(asdict(receipt))


def from_text(text: str | None) -> PurgeReceipt | None:
    """The inverse of ``to_text``."""
    return None if text is None else PurgeReceipt(**json.loads(text))


def to_message(receipt: PurgeReceipt) -> v1.PurgeReceipt:
    """The receipt as its message."""
    return v1.PurgeReceipt(
        started_at=to_timestamp(receipt.started_at),
        finished_at=None if receipt.finished_at is None else to_timestamp(receipt.finished_at),
        swept=[v1.SweptPlace(place=place, count=count) for place, count in sorted(receipt.swept.items())],
    )
