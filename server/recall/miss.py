"""Why a memory is no hit: the first gate that kept it out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum

import numpy as np

from scrubjay.memory import Memory, MemoryId, Micros
from server.index.columns import Mask
from server.index.resident import ResidentStream
from server.recall.query import Hit, Passing, Query
from server.recall.scoring import Scored, score
from server.recall.search import best, to_hit

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Gate(IntEnum):
    """What a memory must pass, in this order; the numbers are the contract's."""

    NONE = 1
    SCOPE = 2
    AGENT_OR_RUN = 3
    VALIDITY = 4
    EXPIRED = 5
    FILTER = 6
    POOL = 7
    SUPERSEDED = 8
    THRESHOLD = 9
    TOP_K = 10


@dataclass(frozen=True, slots=True)
class Miss:
    """The first gate that a memory did not pass, NONE for a hit.

    ``rank`` is its place, from 1, among all that reach the order, 0 where it does not; ``hit`` what it is, or
    would be, as a hit, where it was scored.
    """

    gate: Gate
    sentence: str
    rank: int = 0
    hit: Hit | None = None


def explain_miss(stream: ResidentStream, query: Query, memory_id: MemoryId) -> Miss:
    """The gate that keeps a memory of the stream, which the caller may see, out of the query's hits."""
    slot = stream.slot(memory_id)
    row = None if slot is None else stream.rows[slot]
    if slot is None or row is None:
        return Miss(Gate.POOL, "It was not there yet, or is there no more, where was searched.")
    for gate, mask, sentence in _gates(stream, query, row.memory):
        if mask is not None and not mask[slot]:
            return Miss(gate, sentence)
    passing = Passing(stream, query)
    if not passing(slot):
        return Miss(Gate.FILTER, "The filter is false of it.")
    scored = score(stream, query, passing)
    position = int(np.searchsorted(scored.slots, slot))
    if position == len(scored.slots) or scored.slots[position] != slot:
        seen = stream.columns.seen(query.view)
        count = len(stream) if seen is None else int(np.count_nonzero(seen))
        return Miss(Gate.POOL, f"Of {count} memories each arm chooses its best; none chose this one.")
    return _judged(stream, query, scored, position, passing)


def _gates(stream: ResidentStream, query: Query, memory: Memory) -> Iterator[tuple[Gate, Mask | None, str]]:
    """What decides before anything is scored: the gate, which slots pass it, and what to say of the rest."""
    view, columns = query.view, stream.columns
    searched = " and ".join(view.scopes)
    beside = "".join(f", and facts and preferences of {scope}" for scope in view.inherited_scopes)
    yield (
        Gate.SCOPE,
        columns.in_scope(view),
        f"Its scope is {memory.scope}; what was searched is {searched}{beside}.",
    )
    yield (
        Gate.AGENT_OR_RUN,
        columns.in_part(view),
        "It belongs to another agent or run than the one asked for.",
    )
    yield Gate.VALIDITY, columns.valid(view), f"It was not true at the time asked for, but {_span(memory)}."
    expired = "" if memory.expires_at is None else f"It expired at {_text(memory.expires_at)}."
    yield Gate.EXPIRED, columns.unexpired(view), expired


def _judged(stream: ResidentStream, query: Query, scored: Scored, position: int, passing: Passing) -> Miss:
    order = stream.columns.newest_first(scored.slots, scored.total)
    ahead = order[: int(np.flatnonzero(order == position)[0])]
    rank = 1 + int(np.count_nonzero(passing.mask(scored.slots[ahead])))
    hit = to_hit(stream, query, scored, position)
    if position in best(stream, query, scored, passing):
        return Miss(Gate.NONE, f"It is a hit, in place {rank}.", rank, hit)
    recipe, plain = query.recipe, scored.plain
    better = np.flatnonzero(plain > plain[position])
    if (
        scored.total[position] < plain[position] >= recipe.threshold
        and np.count_nonzero(passing.mask(scored.slots[better])) < query.top_k
    ):
        under = f"It ranks under {hit.row.memory.superseded_by}, which replaced it: in place {rank}."
        return Miss(Gate.SUPERSEDED, under, rank, hit)
    if hit.score < recipe.threshold:
        low = f"Its score is {hit.score:.3f}, and {recipe} returns nothing below {recipe.threshold}."
        return Miss(Gate.THRESHOLD, low, rank, hit)
    return Miss(Gate.TOP_K, f"It is in place {rank}, and the best {query.top_k} are returned.", rank, hit)


def _span(memory: Memory) -> str:
    begin = "" if memory.valid_from is None else f"from {_text(memory.valid_from)}"
    end = "" if memory.valid_to is None else f"until {_text(memory.valid_to)}"
    return " ".join(filter(None, (begin, end)))


def _text(time: Micros) -> str:
    return (_EPOCH + timedelta(microseconds=time)).isoformat().replace("+00:00", "Z")
