"""Why a hit is there: one sentence, contributions that add up to the score, the words it shares."""

from __future__ import annotations

from scrubjay import v1
from scrubjay.memory import within
from scrubjay.text import tokens
from server.recall.search import Hit, Query


def explain(query: Query, hit: Hit) -> v1.Explanation:
    """The explanation of ``hit``; its contributions' values add up to the hit's score."""
    contributions = [
        v1.Contribution(arm=arm, measure=part.measure, value=part.value)
        for arm, part in hit.contributions.items()
    ]
    held = set(tokens(hit.row.memory.content))
    matched = [term for term in dict.fromkeys(tokens(query.text)) if term in held]
    scope = next((s for s in query.view.scopes if within(hit.row.memory.scope, s)), "")
    return v1.Explanation(
        sentence=_sentence(hit, matched),
        contributions=contributions,
        matched_terms=matched,
        scope=scope,
    )


def _sentence(hit: Hit, matched: list[str]) -> str:
    meaning = f"Its meaning is {hit.contributions['dense'].measure:.0%} like the query's"
    if "lexical" not in hit.contributions:
        return f"{meaning}."
    if not matched:
        return f"{meaning}; it shares no word with it."
    words = ", ".join(matched[:5]) + (" …" if len(matched) > 5 else "")
    share = hit.contributions["lexical"].measure
    return f"{meaning}; it shares {words}, {share:.0%} of the query's words by weight."
