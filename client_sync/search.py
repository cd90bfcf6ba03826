"""Search on a device: the union of the arms' candidates, fused as on the server, without it.

Keywords always; meanings too, where the caller brings a query's vector and embeddings were delivered.
"""

from __future__ import annotations

import sqlite3
from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from google.protobuf.message import DecodeError

from client_sync.copies import updated_at
from client_sync.dense import Meanings, QueryVector
from client_sync.identity import Identity
from client_sync.lexical import Coverage
from client_sync.lexical import index_pending as index_pending
from client_sync.lexical import packed_terms as packed_terms
from scrubjay.errors import FieldViolation, InvalidField, check
from scrubjay.feed import read_state
from scrubjay.filters import Matcher
from scrubjay.memory import Memory, Micros, PrivacyLevel, expired, within
from scrubjay.merge import State
from scrubjay.text import tokens
from scrubjay.validity import scope_violation, text_violation

MAX_TOP_K = 200
"""As on the server."""

_FUSED: Mapping[str, float] = {"dense": 0.6, "lexical": 0.4}
"""What meaning and words weigh here; the server's recipes have more arms."""
_WORDS_ALONE: Mapping[str, float] = {"lexical": 1.0}
_POOL = 10
"""Each arm's candidates per hit asked for, at first."""
_LEAST_POOL = 200
_POOL_GROWTH = 4


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one arm gave to a score: ``value`` is ``measure``, 0 to 1, times the arm's weight."""

    arm: str
    measure: float
    value: float


@dataclass(frozen=True, slots=True)
class Hit:
    """One memory found on this device. ``score`` is 0 to 1, the sum of its contributions' values.

    ``matched_terms`` are the query's terms that the memory holds; ``scope`` is the requested scope that
    let it in, empty where none was asked for.
    """

    memory: Memory
    updated_at: Micros
    score: float
    contributions: tuple[Contribution, ...]
    matched_terms: tuple[str, ...]
    scope: str = ""
    local: bool = True


def search(
    connection: sqlite3.Connection,
    identity: Identity,
    query: str,
    *,
    top_k: int,
    scopes: Sequence[str] = (),
    matches: Matcher | None = None,
    vector: QueryVector | None = None,
    now: Micros,
) -> list[Hit]:
    """The best ``top_k`` memories of a replica, best first and newest first among equals.

    Each shares a term with the query or, where there is a ``vector``, has an embedding of its space. All
    such that pass scopes and filter can be found: where fewer than ``top_k`` come back, there are no more.
    Put a transaction around it to read one moment. InvalidField as the server's Search.
    """
    check(
        text_violation("query", query),
        _top_k_violation(top_k),
        *(scope_violation("scopes", scope) for scope in scopes),
    )
    coverage = Coverage(connection, query)
    candidates = _Candidates(coverage, None if vector is None else Meanings(connection, vector))
    gate = _Gate(identity, tuple(scopes), matches, now)
    judge = _Judge(connection, gate, coverage, candidates)
    pool = max(_LEAST_POOL, _POOL * top_k)
    while True:
        hits = _best(candidates.ranked(pool), judge, top_k)
        if len(hits) == top_k or pool >= len(candidates):
            return hits
        pool *= _POOL_GROWTH


def _top_k_violation(top_k: int) -> FieldViolation | None:
    return None if 1 <= top_k <= MAX_TOP_K else FieldViolation("top_k", f"is {top_k}; give 1 to {MAX_TOP_K}")


class _Candidates:
    """What the arms found, by what they promise: a candidate's exact score is never higher."""

    def __init__(self, coverage: Coverage, meanings: Meanings | None) -> None:
        self.weights = _WORDS_ALONE if meanings is None else _FUSED
        self._coverages = dict(coverage.ranked())
        self._meanings = meanings
        self._alike = [] if meanings is None else meanings.ranked()

    def __len__(self) -> int:
        """The pool that holds all of them."""
        return max(len(self._coverages), len(self._alike))

    def ranked(self, pool: int) -> list[tuple[float, bytes]]:
        """Promised score and id of each arm's best ``pool``, highest first."""
        chosen = dict.fromkeys([*islice(self._coverages, pool), *self._alike[:pool]])
        promised = [(self._promise(memory_id), memory_id) for memory_id in chosen]
        promised.sort(key=lambda each: each[0], reverse=True)
        return promised

    def _promise(self, memory_id: bytes) -> float:
        measures = {"lexical": self._coverages.get(memory_id, 0.0), "dense": self.meaning(memory_id)[0]}
        return sum(weight * measures[arm] for arm, weight in self.weights.items())

    def meaning(self, memory_id: bytes) -> tuple[float, bytes]:
        """The cosine and the stamp of the content that it is of; 0 where there is none."""
        return (0.0, b"") if self._meanings is None else self._meanings.cosine(memory_id)


@dataclass(frozen=True, slots=True)
class _Gate:
    """What a memory must pass besides being alike."""

    identity: Identity
    scopes: tuple[str, ...]
    matches: Matcher | None
    now: Micros

    def entrance(self, memory: Memory, changed_at: Micros) -> str | None:
        """The requested scope that lets the memory in, empty where none was asked for; None: it stays out."""
        mine = memory.privacy_level is PrivacyLevel.LOCAL_ONLY or self.identity.viewer.sees(memory)
        if not mine or expired(memory, self.now):
            return None
        scope = next((each for each in self.scopes if within(memory.scope, each)), "")
        if self.scopes and not scope:
            return None
        return scope if self.matches is None or self.matches(memory, changed_at) else None


class _Judge:
    """Scores candidates by what the file holds of them, each one once."""

    def __init__(
        self, connection: sqlite3.Connection, gate: _Gate, coverage: Coverage, candidates: _Candidates
    ) -> None:
        self._connection = connection
        self._gate = gate
        self._coverage = coverage
        self._candidates = candidates
        self._judged: dict[bytes, Hit | None] = {}

    def hit(self, memory_id: bytes) -> Hit | None:
        """The candidate as a hit; None where it is kept out, or has nothing of the query after all."""
        if memory_id not in self._judged:
            self._judged[memory_id] = self._judge(memory_id)
        return self._judged[memory_id]

    def _judge(self, memory_id: bytes) -> Hit | None:
        row = self._connection.execute(
            "SELECT message, field_stamps, commit_stamp FROM rows WHERE id = ?", (memory_id,)
        ).fetchone()
        if row is None:
            return None
        try:
            state = read_state(row[0], row[1])
        except (DecodeError, InvalidField, ValueError):
            return None  # one damaged row must not end every search; verify finds it
        changed_at = updated_at(row[2], state)
        scope = self._gate.entrance(state.memory, changed_at)
        if scope is None:
            return None
        held = set(tokens(state.memory.content))
        matched = tuple(term for term in self._coverage.terms if term in held)
        cosine, content_stamp = self._candidates.meaning(memory_id)
        measures = {
            "dense": cosine if content_stamp == _content_stamp(state) else 0.0,
            "lexical": self._coverage.of(matched),
        }
        contributions = tuple(
            Contribution(arm, measures[arm], weight * measures[arm])
            for arm, weight in self._candidates.weights.items()
        )
        score = sum(each.value for each in contributions)
        return Hit(state.memory, changed_at, score, contributions, matched, scope) if score > 0 else None


def _content_stamp(state: State) -> bytes | None:
    stamp = state.stamps.get("content")
    return None if stamp is None else stamp.pack()


def _best(promised: Sequence[tuple[float, bytes]], judge: _Judge, top_k: int) -> list[Hit]:
    """The best hits; none is missed, since each scores at most what it promised."""
    hits: list[Hit] = []
    for promise, memory_id in promised:
        if len(hits) >= top_k and promise <= hits[top_k - 1].score:
            break
        if (hit := judge.hit(memory_id)) is not None:
            insort(hits, hit, key=lambda each: (-each.score, -each.memory.created_at))
    return hits[:top_k]
