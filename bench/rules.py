"""What the rules find: on labelled sentences, and on the dialogues of an evaluation harness.

    python bench/rules.py                      the labelled sentences of tests/evals
    python bench/rules.py --wrong              and those that were judged wrongly
    python bench/rules.py --evals FOLDER       and dialogues (see docs/evaluation.md); EVALS names it too

A sentence is found where at least one fact comes out of it. Precision: the share of found sentences that are
memories. Recall: the share of memories that are found. Category, term and days: the share of found memories
with such a label that got it right. Of dialogues there are no labels but the evidence of questions: a gold
turn is kept where a fact comes out of it (of what assistants say, the rules leave nearly all), and kept with
its answer where one fact has at least half of the answer's words that the turn has.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from bench.labelled import rows, share_of, table
from scrubjay.memory import Micros
from scrubjay.text import tokens
from server.ingest.rules.extraction import extract
from server.ingest.rules.fact import ASSISTANT, Fact, Said

LABELLED = "sentences.tsv"
"""Per line: split, language, role, categories or NONE, family, replaced term, days, text."""
SPLITS = ("seen", "held", "fresh", "last")
"""All by the author of the rules. ``seen``: written beside them. ``held``: before them, but known. ``fresh``:
after them and hard; when first judged 0.90 precision, 0.68 recall, 0.72 category, no term; learnt from since.
``last``: at the end, ordinary, never learnt from: what new sentences may be expected to give."""
TODAY = date(2024, 5, 15)
"""When every labelled sentence was said: a Wednesday."""
NOON = Micros(int(datetime(2024, 5, 15, 12, tzinfo=UTC).timestamp()) * 1_000_000)
DIALOGUES = ("locomo", "memorybank_zh", "memorybank_en")
_MICROS_A_DAY = 86_400_000_000


class Label(NamedTuple):
    """One labelled sentence; ``days`` is ``first``, ``first..last`` or ``..last``."""

    split: str
    language: str
    role: str
    categories: frozenset[str]
    family: str
    replaces: str
    days: str
    text: str

    @property
    def is_memory(self) -> bool:
        """Whether something of it is worth remembering."""
        return "NONE" not in self.categories


class Judged(NamedTuple):
    """What came out of a labelled sentence."""

    label: Label
    facts: list[Fact]

    @property
    def found(self) -> bool:
        """Whether anything did."""
        return bool(self.facts)

    @property
    def category_is_right(self) -> bool:
        """Whether a fact has one of the categories."""
        return any(fact.category in self.label.categories for fact in self.facts)

    @property
    def family_is_right(self) -> bool:
        """Whether a template of the expected family decided."""
        return any(fact.rule.split(".")[1] == self.label.family for fact in self.facts)

    @property
    def term_is_right(self) -> bool:
        """Whether a fact replaces the expected term."""
        return any(fact.replaces == self.label.replaces for fact in self.facts)

    @property
    def days_are_right(self) -> bool:
        """Whether a fact is of the expected days."""
        return any(_named(fact) == self.label.days for fact in self.facts)

    @property
    def is_right(self) -> bool:
        """Whether there is nothing to object to."""
        label = self.label
        if not label.is_memory:
            return not self.found
        return (
            self.category_is_right
            and (not label.replaces or self.term_is_right)
            and (not label.days or self.days_are_right)
        )


class Figures(NamedTuple):
    """Shares of 0 to 1, as the module says."""

    sentences: int
    precision: float
    recall: float
    category: float
    family: float
    term: float
    days: float


def labels() -> list[Label]:
    """The labelled sentences."""
    return [
        Label(split, language, role, frozenset(categories.split("|")), family, replaces, days, text)
        for split, language, role, categories, family, replaces, days, text in rows(LABELLED)
    ]


def judge(wanted: Sequence[Label]) -> list[Judged]:
    """What comes out of each."""
    return [Judged(label, extract([Said(label.text, label.role, NOON)])) for label in wanted]


def figures(judged: Sequence[Judged]) -> Figures:
    """The shares over ``judged``; 1 where there is nothing to count."""
    found = [one for one in judged if one.found]
    memories = [one for one in judged if one.label.is_memory]
    hits = [one for one in memories if one.found]
    return Figures(
        len(judged),
        share_of(one.label.is_memory for one in found),
        share_of(one.found for one in memories),
        share_of(one.category_is_right for one in hits),
        share_of(one.family_is_right for one in hits),
        share_of(one.term_is_right for one in hits if one.label.replaces),
        share_of(one.days_are_right for one in hits if one.label.days),
    )


def _named(fact: Fact) -> str:
    """The days of a fact as labels write them."""
    if fact.valid_to is None:
        return ""
    last = _day(fact.valid_to) - timedelta(days=1)
    if fact.valid_from is None:
        return f"..{last}"
    first = _day(fact.valid_from)
    return str(first) if first == last else f"{first}..{last}"


def _day(at: Micros) -> date:
    return date(1970, 1, 1) + timedelta(days=at // _MICROS_A_DAY)


def report(wrong: bool, split: str) -> None:
    """Print the figures of the labelled sentences, and those that are wrong."""
    every = [one for one in labels() if split in ("", one.split)]
    judged = dict(zip(every, judge(every), strict=True))
    heads = "precision | recall | category | family | replaced term | days"
    print(*table(heads, SPLITS, every, lambda chosen: figures([judged[one] for one in chosen])[1:]), sep="\n")
    for one in judged.values() if wrong else ():
        if not one.is_right:
            expected = ("|".join(sorted(one.label.categories)), one.label.replaces, one.label.days)
            print(f"\n{one.label.text}\n  expected {' '.join(filter(None, expected))}")
            for fact in one.facts:
                print(f"  got {fact.category} {fact.rule} {fact.replaces!r} {_named(fact)}: {fact.text}")


class Dialogues:
    """Dialogues of the harness, their questions' evidence, and what the rules make of them."""

    def __init__(self, folder: Path, name: str) -> None:
        sys.path.insert(0, str(folder))
        self._loaders = importlib.import_module("loaders")
        self.data = self._loaders.load(name)
        self.answers = self._answers() if name == "locomo" else {}
        began = time.process_time()
        self.facts = {user: extract(said) for user, said in self._said()}
        self.seconds = time.process_time() - began
        self._kept: dict[tuple[str, str], list[str]] = {}
        for user, found in self.facts.items():
            ids = [item.evidence_id for item in self.data.items if item.user_id == user]
            for fact in found:
                self._kept.setdefault((user, ids[fact.message]), []).append(fact.text)

    def _said(self) -> Iterator[tuple[str, list[Said]]]:
        for user in self.data.users():
            yield user, [_said(item) for item in self.data.items if item.user_id == user]

    def _answers(self) -> dict[str, str]:
        """Answers by question id; only this set has them."""
        samples = self._loaders.read_json(self._loaders.find("locomo/locomo10.json"))
        return {
            f"{sample['sample_id']}-{n}": str(asked.get("answer", ""))
            for sample in samples
            for n, asked in enumerate(sample["qa"])
        }

    def row(self) -> str:
        """One line of the table."""
        turns = {
            (query.user_id, gold, query.qid)
            for query in self.data.queries
            if not self.data.headline or query.category in self.data.headline
            for gold in query.gold
        }
        texts = {(item.user_id, item.evidence_id): item.text for item in self.data.items}
        kept = share_of((user, gold) in self._kept for user, gold, _ in turns)
        speakers = {(item.user_id, item.evidence_id): item.speaker for item in self.data.items}
        by_people = share_of(
            (user, gold) in self._kept for user, gold, _ in turns if speakers[user, gold] != ASSISTANT
        )
        answered = [
            _has_answer(self.answers[qid], texts[user, gold], self._kept.get((user, gold), []))
            for user, gold, qid in turns
            if qid in self.answers
        ]
        known = [one for one in answered if one is not None]
        count = sum(map(len, self.facts.values()))
        cells = [
            self.data.name,
            str(len(self.facts)),
            f"{count / len(self.facts):.0f}",
            f"{len(self._kept) / len(self.data.items):.2f}",
            f"{kept:.3f}",
            f"{by_people:.3f}",
            f"{share_of(known):.3f}" if known else "",
            f"{len(self.data.items) / self.seconds:,.0f}",
        ]
        return f"| {' | '.join(cells)} |"

    def lost(self, count: int) -> list[str]:
        """Gold turns of which nothing was kept."""
        texts = {(item.user_id, item.evidence_id): f"{item.speaker}: {item.text}" for item in self.data.items}
        gold = dict.fromkeys((query.user_id, one) for query in self.data.queries for one in query.gold)
        return [texts[one] for one in gold if one not in self._kept][:count]


def _said(item: Any) -> Said:
    at = datetime.fromisoformat(item.timestamp).replace(tzinfo=UTC)
    return Said(item.text, item.speaker, Micros(int(at.timestamp()) * 1_000_000))


def _has_answer(answer: str, turn: str, facts: Sequence[str]) -> bool | None:
    """Whether one fact has half of the answer's words that the turn has; None where the turn has none."""
    said = set(tokens(answer)) & set(tokens(turn))
    if not said:
        return None
    return any(2 * len(said & set(tokens(fact))) >= len(said) for fact in facts)


def main() -> None:
    """Run what the command line asks for and print it."""
    parser = argparse.ArgumentParser(description="What the rules find.")
    parser.add_argument(
        "--evals", type=Path, default=os.environ.get("EVALS"), help="folder of the harness, or EVALS"
    )
    parser.add_argument("--data", nargs="+", default=DIALOGUES, help="names of dialogue sets")
    parser.add_argument(
        "--wrong", action="store_true", help="also print the sentences that are judged wrongly"
    )
    parser.add_argument("--split", default="", help="only this split")
    parser.add_argument(
        "--lost", type=int, default=0, help="also print so many gold turns of which nothing is kept"
    )
    chosen = parser.parse_args()
    report(chosen.wrong, chosen.split)
    if not chosen.evals:
        return
    print(
        "\n| dialogue | n | facts each | turns kept | gold kept | of people's | with answer | texts/CPU s |"
    )
    print("|---" * 8 + "|")
    for name in chosen.data:
        dialogues = Dialogues(Path(chosen.evals), name)
        print(dialogues.row(), *dialogues.lost(chosen.lost), sep="\n")


if __name__ == "__main__":
    main()
