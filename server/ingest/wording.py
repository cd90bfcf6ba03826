"""How two texts are compared: are they the same, or the same said again in other words?

*Normal form*: NFKC, case folded, simplified characters, without white space and punctuation. What tells two
things apart stays: a number's sign, its decimal point and what stands between its digits (``-3.5`` is not
``35``, ``10-12`` not ``1012``; of thousands the comma goes), ``++`` and ``#`` (``C++``, ``C#`` and ``C`` are
three), the point that begins ``.env``, currencies, ``%``, emoji.

*Near* are two texts whose words say the same (see ``words``), and two that are spelt nearly alike: of all the
pairs of characters in their first ``HEAD`` more than ``ALIKE`` are in both, so are those of the whole texts,
and word by word they differ in spelling alone. Pairs are not enough: "a red bike" and "a tan bike" share them
in a sentence, and so do a name and another, 3.11 and 3.12, "happy" and "unhappy".
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from operator import add

from scrubjay.text import fold
from server.ingest.simplified import simplified_characters
from server.ingest.words import misspelt, names, words

ALIKE = 0.85
"""The least Jaccard measure of what is near, itself excluded: one word of 50 characters misspelt."""
HEAD = 50
"""Characters of the normal form whose pairs are compared first."""


class Likeness(IntEnum):
    """How alike two texts are."""

    OTHER = 0
    NEAR = 1
    SAME = 2


@dataclass(frozen=True, slots=True)
class Wording:
    """A text as it is compared. ``words`` is what it says, ``names`` are those that have a capital."""

    normal: str
    words: tuple[str, ...]
    names: frozenset[str]

    @classmethod
    def of(cls, text: str) -> Wording:
        """The wording of a text; remembered for the last few texts."""
        return _wording(text)

    def likeness(self, other: Wording) -> Likeness:
        """How alike the two are; the same whichever is asked."""
        if self.normal == other.normal:
            return Likeness.SAME
        if self.words == other.words or self._is_spelt_like(other):
            return Likeness.NEAR
        return Likeness.OTHER

    def _is_spelt_like(self, other: Wording) -> bool:
        return (
            len(self.words) == len(other.words)
            and jaccard(pairs(self.normal[:HEAD]), pairs(other.normal[:HEAD])) > ALIKE
            and jaccard(pairs(self.normal), pairs(other.normal)) > ALIKE
            and all(
                mine == theirs
                or (misspelt(mine, theirs) and mine not in self.names and theirs not in other.names)
                for mine, theirs in zip(self.words, other.words, strict=True)
            )
        )


@lru_cache(512)
def _wording(text: str) -> Wording:
    return Wording(normal_form(text), words(text), names(text))


def pairs(text: str) -> frozenset[str]:
    """The distinct pairs of neighbours; of a shorter text the text itself."""
    return frozenset(map(add, text, text[1:])) or frozenset((text,))


def jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    """How much of all that is in either is in both, 0 to 1."""
    common = len(one & other)
    return common / (len(one) + len(other) - common)


def normal_form(text: str) -> str:
    """The normal form; of a text of punctuation alone the text without white space."""
    folded = fold(text)
    joined = _GAP.sub(_joined, _THOUSANDS.sub("", folded.translate(_KEPT)))
    return unicodedata.normalize("NFC", joined) or "".join(folded.split())


_POINTS = ".,:/-"
_MINUS = ord("−")
_GAP = re.compile(rf"[ {_POINTS}]+")
_THOUSANDS = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")


class _Kept(dict[int, "int | None"]):
    """For ``str.translate``: what a character is in the normal form, a space for what only parts words."""

    def __missing__(self, code: int) -> int | None:
        self[code] = kept = self._kept(code)
        return kept

    @staticmethod
    def _kept(code: int) -> int | None:
        character = chr(code)
        kind = unicodedata.category(character)
        if code == _MINUS:
            return ord("-")
        if character in _POINTS or character in "#%‰":
            return code
        if kind == "Cf" or character in "'’ʼ" or 0xFE00 <= code <= 0xFE0F:
            return None
        if kind[0] in "LNM" or (kind[0] == "S" and kind != "Sk"):
            return simplified_characters().get(code, code)
        return ord(" ")


_KEPT = _Kept()


def _joined(gap: re.Match[str]) -> str:
    """What stays of what lies between two parts of a text."""
    marks, text = gap[0], gap.string
    before, after = text[gap.start() - 1 : gap.start()], text[gap.end() : gap.end() + 1]
    if before.isdigit() and after.isdigit():
        return re.sub(" +", " ", marks)
    parted = not before or marks[-2:-1] == " "
    if parted and after and (marks[-1] == "." or (marks[-1] == "-" and after.isdigit())):
        return marks[-1]
    return ""
