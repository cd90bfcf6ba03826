"""Why a hit is there: one sentence, contributions that add up to the score, the words it shares."""

from __future__ import annotations

from collections.abc import Iterator

from scrubjay import v1
from scrubjay.memory import DAY_MICROS, utc_day, within
from scrubjay.text import tokens
from server.index.columns import INHERITED_SCOPE
from server.recall.query import Hit, Query

_MOST_WORDS = 5


def explain(query: Query, hit: Hit) -> v1.Explanation:
    """The explanation of ``hit``; its contributions' values add up to the hit's score."""
    contributions = [
        v1.Contribution(arm=arm, measure=part.measure, value=part.value)
        for arm, part in hit.contributions.items()
    ]
    held = set(tokens(hit.row.memory.content))
    matched = [term for term in dict.fromkeys(tokens(query.text)) if term in held]
    sentence = "; ".join(_clauses(query, hit, matched))
    return v1.Explanation(
        sentence=f"{sentence[:1].upper()}{sentence[1:]}.",
        contributions=contributions,
        matched_terms=matched,
        scope=_scope(query, hit),
    )


def _scope(query: Query, hit: Hit) -> str:
    scopes = query.view.scopes
    asked = next((scope for scope in scopes if within(hit.row.memory.scope, scope)), "")
    return asked or (INHERITED_SCOPE if scopes else "")


def _clauses(query: Query, hit: Hit, matched: list[str]) -> Iterator[str]:
    """What is worth saying of each arm, then of what else moved the score or let it in."""
    memory, view = hit.row.memory, query.view
    measures = {arm: part.measure for arm, part in hit.contributions.items()}
    if "dense" in measures:
        yield f"its meaning is {measures['dense']:.0%} like the query's"
    if "lexical" in measures or "bm25" in measures:
        yield _words(matched, measures.get("lexical"))
    if measures.get("tag"):
        yield f"{measures['tag']:.0%} of the query's words name a tag of it"
    if measures.get("entity"):
        yield "it mentions what the query names"
    if "recent" in measures:
        days = max(0, view.now - memory.created_at) / DAY_MICROS
        yield f"it is {days:.0f} days old" if days >= 1 else "it is of today"
    if measures.get("open_tasks"):
        yield "it is a task of these days"
    if measures.get("speaker"):
        yield f"it was said by {memory.source.role}, whom the query asks about"
    if measures.get("time"):
        begun = "" if memory.valid_from is None else f" and holds from {utc_day(memory.valid_from)}"
        yield f"it is of {utc_day(memory.created_at)}{begun}, a time that the query names"
    if measures.get("neighbours"):
        yield "what was said beside it matches better"
    if measures.get("newer"):
        yield "it is newer than one that says much the same"
    if query.recipe.decay_per_day < 1:
        yield "its score fades with the days since it was looked at last"
    if "supersedes" in measures:
        yield "it replaced a memory that matches better"
    if "superseded" in measures:
        yield f"it ranks under {memory.superseded_by}, which replaced it"
    if view.inherited_scopes and not any(within(memory.scope, scope) for scope in view.scopes):
        yield f"as a {memory.category} of {INHERITED_SCOPE} it is taken along"


def _words(matched: list[str], share: float | None) -> str:
    if not matched:
        return "it shares no word with it"
    words = ", ".join(matched[:_MOST_WORDS]) + (" …" if len(matched) > _MOST_WORDS else "")
    return f"it shares {words}" + ("" if share is None else f", {share:.0%} of the query's words by weight")
