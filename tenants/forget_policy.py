"""What a tenant forgets: the rules by which memories that nobody uses go."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from scrubjay import v1
from scrubjay.errors import FieldViolation
from scrubjay.validity import name_violation, scope_violation

MAX_RULES = 32
"""Each is looked at for every memory that may go."""
MAX_UNUSED_DAYS = 36_500
"""A hundred years; whoever wants longer wants never, and leaves the rule out."""


@dataclass(frozen=True, slots=True)
class ForgetRule:
    """Memories of ``scope`` and below, of ``category``, that were not used for ``unused_days`` go.

    An empty scope or category stands for all. With ``below_confidence``, only those go whose confidence is
    below it.
    """

    scope: str
    category: str
    unused_days: int
    below_confidence: float | None

    def __str__(self) -> str:
        place = f" in {self.scope}" if self.scope else ""
        days = f"{self.unused_days} day{'' if self.unused_days == 1 else 's'}"
        doubt = "" if self.below_confidence is None else f", confidence below {self.below_confidence:g}"
        return f"{self.category or 'every category'}{place}, unused for {days}{doubt}"


@dataclass(frozen=True, slots=True)
class ForgetPolicy:
    """A memory goes as soon as one of the rules lets it; without rules, only what expired goes."""

    rules: tuple[ForgetRule, ...]


DEFAULT_POLICY = ForgetPolicy((ForgetRule("", "TASK", 60, 0.5),))
"""Of a tenant that never said what it forgets."""


def violations(field_path: str, policy: ForgetPolicy) -> Iterator[FieldViolation | None]:
    """What is wrong with a policy, if anything."""
    rules = f"{field_path}.rules"
    if len(policy.rules) > MAX_RULES:
        yield FieldViolation(rules, f"has {len(policy.rules)} rules; at most {MAX_RULES} are allowed")
        return
    for n, rule in enumerate(policy.rules):
        yield from _rule_violations(f"{rules}[{n}]", rule)


def _rule_violations(path: str, rule: ForgetRule) -> Iterator[FieldViolation | None]:
    if rule.scope:
        yield scope_violation(f"{path}.scope", rule.scope)
    yield name_violation(f"{path}.category", rule.category)
    if not 1 <= rule.unused_days <= MAX_UNUSED_DAYS:
        days = f"is {rule.unused_days}; give 1 to {MAX_UNUSED_DAYS}"
        yield FieldViolation(f"{path}.unused_days", days)
    if rule.below_confidence is not None and not 0 < rule.below_confidence <= 1:
        yield FieldViolation(
            f"{path}.below_confidence",
            f"is {rule.below_confidence}; give a number above 0, at most 1, or none for any confidence",
        )


# --- as JSON text, and as a message -----------------------------------------------------------------


def to_text(policy: ForgetPolicy | None) -> str | None:
    """The policy as the catalogue keeps it."""
    return None if policy is None else json.dumps([asdict(rule) for rule in policy.rules], ensure_ascii=False)


def from_text(text: str | None) -> ForgetPolicy | None:
    """The inverse of ``to_text``."""
    if text is None:
        return None
    rules: list[Mapping[str, Any]] = json.loads(text)
    return ForgetPolicy(tuple(ForgetRule(**rule) for rule in rules))


def to_message(policy: ForgetPolicy) -> v1.ForgetPolicy:
    """The policy as its message."""
    return v1.ForgetPolicy(rules=[v1.ForgetRule(**asdict(rule)) for rule in policy.rules])


def from_message(message: v1.ForgetPolicy) -> ForgetPolicy:
    """The inverse of ``to_message``; nothing is validated here: see ``violations``."""
    return ForgetPolicy(
        tuple(
            ForgetRule(
                rule.scope,
                rule.category,
                rule.unused_days,
                rule.below_confidence if rule.HasField("below_confidence") else None,
            )
            for rule in message.rules
        )
    )
