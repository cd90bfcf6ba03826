"""What a query says beside its words: its last line, whose words it is about, whether it asks for the past.

English and Chinese, by rules; where they see nothing, nothing is added.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from scrubjay.text import tokens

LAST_LINE_TERMS = 2.0
"""What a word of the last line counts beside other words."""
SHORT_TERMS = 32
"""Terms of a question, as opposed to a text or a dialogue."""

# A question's subject: "what did you recommend" asks for the assistant's words, 我喜欢什么 for the user's.
# A person who is asked ("can you", 你觉得) or told (给我, "tell me") says nothing about who spoke.
_SUBJECT = re.compile(
    r"(?<!can )(?<!could )(?<!would )(?<!will )(?<!should )(?<!do )\b(?P<you>you(?:'ve)?|your)\b"
    r"|(?P<ni>[你您妳](?!能|可以|[会會]|[觉覺]得|[还還]?[记記]得|知道|[认認][为為]|想))"
    r"|\bi\b|\bmy\b|(?<![给給诉訴向对對跟和帮幫让讓])我",
    re.IGNORECASE,
)
_PAST = re.compile(
    r"\b(?:did|was|were|had|ago|once|before|previously|used|earlier)\b"
    r"|[过過](?=[吗嗎呢的了什哪一几幾谁誰多我你他她]|$)|曾|以前|之前|[当當那][时時]|上次|的[时時]候|那天",
    re.IGNORECASE,
)


def last_line(text: str) -> str | None:
    """What was said last, where the query is a dialogue of several lines."""
    _, newline, last = text.strip().rpartition("\n")
    return last.strip() or None if newline else None


def query_terms(text: str, *, leaning: bool) -> dict[str, float]:
    """The distinct terms of a query and what each counts: more in the last line where it leans there."""
    terms = dict.fromkeys(tokens(text), 1.0)
    if leaning and (last := last_line(text)) is not None:
        terms.update(dict.fromkeys(tokens(last), LAST_LINE_TERMS))
    return terms


def asked_speaker(text: str) -> str | None:
    """The role, "user" or "assistant", whose words the question is about, by its first subject pronoun."""
    match = _SUBJECT.search(text)
    if match is None:
        return None
    return "assistant" if match["you"] or match["ni"] else "user"


def asks_for_present(text: str, terms: Mapping[str, float]) -> bool:
    """Whether it is a question about how things stand: short, and not in a past tense."""
    return len(terms) <= SHORT_TERMS and _PAST.search(text) is None
