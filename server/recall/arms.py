"""The arms of a search that look at every row: what each measures of a memory, 0 to 1, by slot.

========== =========================================================================================
lexical    how much of the query's weight the memory's words cover, see ``server.recall.lexical``
bm25       BM25 of the words, through a logistic: 1/2 where half of the query's weight is held
tag        the share of the query's terms that name a tag of the memory
entity     how far it mentions whom or what the query names, see ``server.recall.entities``
recent     1 for what was made now, half of that for each ``HALF_LIFE``
open_tasks 1 for a task that nothing replaced, made or begun within ``OPEN`` before now
speaker    how far the query asks for what this speaker said, see ``server.recall.speakers``
time       1 where it was made or begun in a time that the query names, see ``server.recall.dates``
========== =========================================================================================

``server.recall.scoring`` adds the dense arm, for which the rows of large streams are too dear to be looked at
one and all, and what follows from other scores: ``server.recall.turns`` and ``server.recall.newer``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from scrubjay.memory import DAY_MICROS, Micros, midnight, utc_day
from server.index.columns import Mask
from server.index.resident import ResidentStream
from server.recall.dates import query_periods

Measure = NDArray[np.float32]

HALF_LIFE = 7 * DAY_MICROS
"""Of created_at, which is the time of what is told: the time of the last change is that of any new tag, or of
an import."""
OPEN = 3 * DAY_MICROS
LOGISTIC_SLOPE = 10
"""A memory with a quarter of the query's weight measures 0.08, with three quarters 0.92."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What arms measure against: the query, its terms with what each counts, and the time of asking.

    ``seen`` says which slots exist for the caller; None: all.
    """

    stream: ResidentStream
    text: str
    terms: Mapping[str, float]
    now: Micros
    seen: Mask | None

    @property
    def size(self) -> int:
        """How many slots there are."""
        return len(self.stream.rows)


def lexical(asked: Asked) -> Measure | None:
    """Coverage."""
    return asked.stream.words.coverage(asked.terms, asked.size, asked.seen)


def bm25(asked: Asked) -> Measure | None:
    """BM25 as a share of what a memory of middle length has that holds each term once, made steep."""
    found = asked.stream.words.bm25(asked.terms, asked.size, asked.seen)
    if found is None:
        return None
    scores, whole = found
    steep = 1 / (1 + np.exp(np.float32(LOGISTIC_SLOPE) * (np.float32(0.5) - scores / np.float32(whole))))
    measure: Measure = np.where(scores > 0, steep, np.float32(0))
    return measure


def tag(asked: Asked) -> Measure | None:
    """Terms that name a tag."""
    return asked.stream.tags.share(asked.terms, asked.size)


def entity(asked: Asked) -> Measure | None:
    """What the query names."""
    return asked.stream.entities.share(asked.text, asked.size, asked.seen)


def recent(asked: Asked) -> Measure | None:
    """Age, halving."""
    return _ages(asked.stream.columns.time("created_at"), asked.now, 0.5, HALF_LIFE).astype(np.float32)


def open_tasks(asked: Asked) -> Measure | None:
    """Tasks of these days."""
    columns, now = asked.stream.columns, asked.now
    begun = [columns.time(name) for name in ("created_at", "valid_from")]
    fresh = np.logical_or.reduce([(now - OPEN <= time) & (time <= now) for time in begun])
    found: Mask = columns.named("category", "TASK") & ~columns.superseded() & fresh
    return found.astype(np.float32)


def speaker(asked: Asked) -> Measure | None:
    """Who said it."""
    return asked.stream.speakers.share(asked.text, asked.terms, asked.size, asked.seen)


def time(asked: Asked) -> Measure | None:
    """When it was, in whole days of UTC."""
    created_at = asked.stream.columns.time("created_at")
    seen = created_at if asked.seen is None else created_at[asked.seen]
    if not len(seen):
        return None
    periods = query_periods(asked.text, utc_day(asked.now), utc_day(Micros(int(seen.min()))))
    if not periods:
        return None
    spans = [(midnight(one.start), midnight(one.end)) for one in periods]
    times = created_at, asked.stream.columns.time("valid_from")
    found: Mask = np.logical_or.reduce([(a <= time) & (time < b) for time in times for a, b in spans])
    return found.astype(np.float32)


ARMS: Mapping[str, Callable[[Asked], Measure | None]] = MappingProxyType(
    {arm.__name__: arm for arm in (lexical, bm25, tag, entity, recent, open_tasks, speaker, time)}
)
"""By name; an arm that finds nothing gives None."""


def decay(stream: ResidentStream, now: Micros, per_day: float) -> NDArray[np.float64]:
    """What is left of a score, by slot: ``per_day`` to the power of the days since the last access."""
    return _ages(stream.columns.last_access(), now, per_day, DAY_MICROS)


def _ages(times: NDArray[np.int64], now: Micros, base: float, unit: int) -> NDArray[np.float64]:
    """``base`` to the power of each time's age in ``unit``; what is to come is as of now."""
    found: NDArray[np.float64] = np.power(base, np.maximum(now - times, 0) / unit)
    return found
