"""How well the rules find entities and relations, on labelled sentences.

    python bench/entities.py              the labelled sentences of tests/evals
    python bench/entities.py --wrong      and those that were judged wrongly

Precision: the share of what was found that is labelled. Recall: the share of what is labelled that was found.
Names are compared in their normal form; kind is the share of the right names that got the right kind.
``seen`` was written beside the rules, ``last`` before they were tuned and never learnt from.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import NamedTuple

from bench.labelled import rows, share, table
from server.ingest.entities.entity import SUBJECT, Claim, Mention, Named, normal
from server.ingest.entities.extraction import extract

LABELLED = "entities.tsv"
"""Per line: split, language, role, names with kinds, claims (``!``: ended), text."""
SPLITS = ("seen", "last")
_SELF = "self"


class Label(NamedTuple):
    """One labelled sentence; ``kinds`` by normal name."""

    split: str
    language: str
    role: str
    kinds: dict[str, str]
    claims: frozenset[tuple[str, ...]]
    text: str


class Figures(NamedTuple):
    """Shares of 0 to 1, as the module says."""

    sentences: int
    precision: float
    recall: float
    kind: float
    claim_precision: float
    claim_recall: float


def labels() -> list[Label]:
    """The labelled sentences."""
    return [
        Label(split, language, role, _kinds(mentions), _claims(claims), text)
        for split, language, role, mentions, claims, text in rows(LABELLED)
    ]


def _kinds(mentions: str) -> dict[str, str]:
    pairs = (one.rpartition(":") for one in mentions.split("|") if one)
    return {normal(name): kind for name, _, kind in pairs}


def _claims(claims: str) -> frozenset[tuple[str, ...]]:
    found = set()
    for one in filter(None, claims.split("|")):
        subject, relation, thing = one.removesuffix("!").split(">")
        ended = "ended" if one.endswith("!") else "holds"
        found.add((_SELF if subject == _SELF else normal(subject), relation, normal(thing), ended))
    return frozenset(found)


def named(found: Named) -> dict[str, str]:
    """The kinds by normal name, without the subject."""
    return {one.normal: one.kind.name for one in found.mentions if one != SUBJECT}


def claimed(found: Named) -> frozenset[tuple[str, ...]]:
    """The claims as labels write them."""
    return frozenset(_claim(one) for one in found.claims)


def _claim(one: Claim) -> tuple[str, ...]:
    return _called(one.subject), one.relation, _called(one.object), "ended" if one.ended else "holds"


def _called(mention: Mention) -> str:
    return mention.normal or _SELF


def figures(chosen: Sequence[Label]) -> Figures:
    """The shares over ``chosen``."""
    right = found = wanted = kinds = claims = claims_found = claims_wanted = 0
    for label in chosen:
        result = extract(label.text, label.role)
        names, said = named(result), claimed(result)
        speaker = set() if label.role == "user" else {normal(label.role)}
        both = names.keys() & label.kinds.keys()
        right += len(both)
        kinds += sum(names[one] == label.kinds[one] for one in both)
        found += len(names.keys() - speaker)
        wanted += len(label.kinds)
        claims += len(said & label.claims)
        claims_found += len(said)
        claims_wanted += len(label.claims)
    return Figures(
        len(chosen),
        share(right, found),
        share(right, wanted),
        share(kinds, right),
        share(claims, claims_found),
        share(claims, claims_wanted),
    )


def report(wrong: bool) -> None:
    """Print the figures, and what is wrong."""
    every = labels()
    heads = "names: precision | recall | kind | relations: precision | recall"
    print(*table(heads, SPLITS, every, lambda chosen: figures(chosen)[1:]), sep="\n")
    for label in every if wrong else ():
        result = extract(label.text, label.role)
        names, said = named(result), claimed(result)
        if names != label.kinds or said != label.claims:
            print(f"\n{label.split}: {label.text}")
            print(f"  names missed {_less(label.kinds, names)}, wrong {_less(names, label.kinds)}")
            print(f"  claims missed {set(label.claims - said)}, wrong {set(said - label.claims)}")
    texts = [one.text for one in every] * 20
    began = time.perf_counter()
    for text in texts:
        extract(text)
    print(f"\n{(time.perf_counter() - began) / len(texts) * 1e6:.0f} µs a sentence")


def _less(one: dict[str, str], other: dict[str, str]) -> dict[str, str]:
    return {name: kind for name, kind in one.items() if other.get(name) != kind}


def main() -> None:
    """Run what the command line asks for and print it."""
    parser = argparse.ArgumentParser(description="How well the rules find entities and relations.")
    parser.add_argument("--wrong", action="store_true", help="also print what is judged wrongly")
    report(parser.parse_args().wrong)


if __name__ == "__main__":
    main()
