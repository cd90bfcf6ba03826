r"""Keyword tokens: the terms of a text, one function for the server and the device.

The rules, in order:

* **Normal form.** NFKC, then case folding. Typographic apostrophes, hyphens and minus signs are their
  ASCII forms; soft hyphens, joiners, direction marks and variation selectors are dropped.
* **Scripts written without spaces** (Han, kana, Hangul, bopomofo, Thai, Lao, Burmese, Khmer): every
  character, then every pair of neighbours, so that any word of two characters is a term of any
  sentence that holds it.
* **Words** of all other scripts, with their combining marks. English plurals, -ing and -ed are folded by
  ``stem``. Letters below U+0900 with accents or points are also a term without them.
* **Compounds** (``snake_case``, ``kebab-case``, ``a.b.c``, ``ABC-1234``, ``me@x.org``, ``AT&T``): whole,
  then each part. ``camelCase`` and ``iPhone15``: whole, then each part of two letters or more. A
  possessive or contracted ending is dropped (``Ann's``); other apostrophes close up (``O'Brien`` gives
  ``obrien`` and ``brien``).
* **Numbers** keep sign and decimals: ``-3.50`` gives ``-3.50`` and ``3.50``; ``1,000`` gives ``1000``; a
  version gives its beginnings too (``3.11.7``: ``3.11.7``, ``3.11``, ``3``); ``05`` is ``5``.
* **Short names with signs**: ``C++``, ``C#`` and ``A+`` are terms of their own, not ``c`` or ``a``.
* **Emoji**: each is a term, whatever its skin tone; a joined sequence also gives its members.

Punctuation and other symbols give nothing. Every ``str`` is accepted, lone surrogates included. No term
is empty or longer than ``MAX_TOKEN_LENGTH``. Terms repeat as often as the text does, in its order.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from operator import add

TOKENS_VERSION = "words-1"
"""Changes whenever some text gets other tokens; terms of two versions are never compared."""

MAX_TOKEN_LENGTH = 64
"""Longer words are cut and longer compounds give their parts alone: a blob is not a word."""

_MAX_CACHED_CHUNKS = 16_384
"""About 4 MB of English; in running text, nine words of ten have been seen before."""

_UNSPACED = re.compile(
    "(["
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ecd\u0edc-\u0edf\u1000-\u103f\u1050-\u109f\u1780-\u17d3"
    "\u1100-\u11ff\u3005-\u3007\u3041-\u309a\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u318e"
    "\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97c\uac00-\ud7fb\uf900-\ufaff"
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff"
    "]+)"
)
_MARKS = (
    "\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f"
    "\u0670\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed\u0711-\u07f3\u0816-\u082d\u0859-\u085b\u0898-\u08e1"
    "\u08e3-\u0963\u0981-\u09e3\u09fe-\u0a75\u0a81-\u0ae3\u0afa-\u0b63\u0b82-\u0bd7\u0c00-\u0c63"
    "\u0c81-\u0d63\u0d81-\u0df3\u0f18\u0f19\u0f71-\u0f84\u0f86-\u0fbc\u135d-\u135f\u1712-\u1734"
    "\u1752-\u1773\u180b-\u180f\u1920-\u193b\u1a17-\u1a1b\u1a55-\u1a7c\u1ab0-\u1b44\u1b80-\u1bf3"
    "\u1c24-\u1c37\u1cd0-\u1cfa\u1dc0-\u1dff\ua802-\ua827\ua880-\ua8f1\ua926-\ua92d\ua947-\ua953"
    "\ua980-\ua9c0\uaa29-\uaa4d\uaaeb-\uaaf6\uabe3-\uabed\ufb1e\ufe20-\ufe2f"
    "\U00010a01-\U00011eff\U0001e000-\U0001e94a"
)
_EMOJI = "\u2300-\u23ff\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001f1e5\U0001f200-\U0001faff"
_SKIN_TONES = "\U0001f3fb-\U0001f3ff"
_SKIN_TONE = re.compile(f"[{_SKIN_TONES}]")
_PIECE = re.compile(
    rf"""
    (?P<compound>
        (?: (?<! [\w.+-] ) [+-] (?= \d ) )?
        [\w{_MARKS}]+
        (?: (?: [.'@&+-] | (?<=\d) [,:/] (?=\d) ) [\w{_MARKS}]+ )*
        (?: \+\+ | [+\#] (?! \w ) )?
    )
    | [\U0001f1e6-\U0001f1ff]{{2}}
    | [{_EMOJI}] [{_SKIN_TONES}]* (?: \u200d [{_EMOJI}] [{_SKIN_TONES}]* ){{0,9}}
    """,
    re.VERBOSE,
)
_IGNORED = re.compile(
    "[\u00ad\u200b\u200c\u200e\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\U000e0000-\U000e0fff]"
    "|(?<![\u2300-\U0001faff])\u200d"
)
_ASCII_SIGNS = str.maketrans({"’": "'", "‘": "'", "ʼ": "'", "‐": "-", "‒": "-", "−": "-", "־": "-"})
_WIDE_SIGNS = (("，", ","), ("？", "?"), ("！", "!"), ("：", ":"), ("；", ";"), ("（", "("), ("）", ")"))

_THOUSANDS = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?:[.,]|$))")
_VERSION = re.compile(r"(?P<v>[vV]?)(?P<number>[+-]?[0-9]+(?:\.[0-9]+)*)")
_INITIALS = re.compile(r"[A-Za-z](?:\.[A-Za-z])+")
_SEPARATORS = re.compile(r"[.@&+:/_,-]+")
_CONTRACTED = frozenset(("s", "m", "re", "ve", "ll", "d"))
_FIRST_INDIC = "\u0900"

_PLAIN = re.compile(r"[A-Z]?[a-z]+|[A-Z]+s?|[0-9]+(?:st|nd|rd|th)")
_HUMPS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_HASH = re.compile(r"(?i)(?=[a-f]*[0-9]+[a-f]+[0-9]|[0-9]*[a-f]+[0-9]+[a-f])[0-9a-f]+")
_MAX_HUMPS = 6
"""A word of more humps is a key: its parts mean nothing."""

_VOWEL = re.compile(r"[aeiouy]")
_SHORT = re.compile(r"[^aeiou]*[aeiouy][^aeiouwxy]")
_SIBILANT_PLURALS = ("sses", "xes", "zzes", "ches", "shes", "oes")
_UNINFLECTED = frozenset(
    ("always", "during", "evening", "hundred", "lens", "news", "perhaps", "series", "species", "whereas")
)
_IRREGULAR_PAIRS = """
bought=buy broke=break broken=break brought=bring built=build caught=catch chose=choose chosen=choose
drank=drink drove=drive driven=drive ate=eat eaten=eat flew=fly flown=fly forgot=forget forgotten=forget
fought=fight grew=grow grown=grow heard=hear lost=lose met=meet paid=pay ran=run sang=sing sung=sing
sent=send sold=sell slept=sleep spent=spend spoke=speak spoken=speak swam=swim taught=teach threw=throw
thrown=throw understood=understand won=win wore=wear worn=wear wrote=write written=write children=child
feet=foot knives=knife men=man mice=mouse teeth=tooth wives=wife women=woman
"""
_IRREGULAR: dict[str, str] = dict(re.findall(r"(\w+)=(\w+)", _IRREGULAR_PAIRS))
"""Verbs and nouns that say what a text is about. Verbs of every text (go, have, make) are left alone: folding
them was measured to pull in unrelated texts."""


def tokens(text: str) -> list[str]:
    """The terms of ``text`` in its order, as often as they occur; see the module for the rules."""
    found: list[str] = []
    if text.isascii():
        for chunk in text.split():
            found += _chunk_tokens(chunk)
        return found
    pieces = iter(_UNSPACED.split(nfkc(text)))
    for spaced in pieces:
        for chunk in spaced.split():
            found += _chunk_tokens(chunk)
        characters = list(next(pieces, ""))
        found += characters
        found += map(add, characters, characters[1:])
    return found


def nfkc(text: str) -> str:
    """The text in NFKC."""
    if text.isascii():
        return text
    for sign, ascii_sign in _WIDE_SIGNS:  # in nearly every Chinese text; NFKC is slow where they are left
        text = text.replace(sign, ascii_sign)
    return unicodedata.normalize("NFKC", text)


def fold(text: str) -> str:
    """The text in NFKC without case: what two texts share that differ in case and width alone."""
    return unicodedata.normalize("NFKC", nfkc(text).casefold())


def _chunk_tokens(chunk: str) -> tuple[str, ...]:
    return _cached_tokens(chunk) if len(chunk) <= MAX_TOKEN_LENGTH else tuple(_compute_tokens(chunk))


@lru_cache(_MAX_CACHED_CHUNKS)
def _cached_tokens(chunk: str) -> tuple[str, ...]:
    return tuple(_compute_tokens(chunk))


def _compute_tokens(chunk: str) -> Iterator[str]:
    """The terms of a text in NFKC without white space or unspaced scripts."""
    if not chunk.isascii():
        chunk = _IGNORED.sub("", chunk.translate(_ASCII_SIGNS))
    for piece in _PIECE.finditer(chunk):
        if piece["compound"] is None:
            yield from _emoji_tokens(piece[0])
        else:
            yield from _compound_tokens(piece[0].strip("_"))


def _emoji_tokens(emoji: str) -> Iterator[str]:
    plain = emoji[0] + _SKIN_TONE.sub("", emoji[1:])
    yield plain
    if "\u200d" in plain:
        yield from filter(None, plain.split("\u200d"))


def _compound_tokens(compound: str) -> Iterator[str]:
    """The terms of words and numbers joined by signs."""
    name = compound.rstrip("+#")
    if name != compound and not name[-1:].isdigit():
        yield fold(compound)[:MAX_TOKEN_LENGTH]
        if len(name) == 1:
            return
    name = _THOUSANDS.sub("", name)
    if (version := _VERSION.fullmatch(name)) is not None:
        if version["v"]:
            yield name[:MAX_TOKEN_LENGTH].lower()
        yield from _number_tokens(version["number"])
        return
    unsigned = name.lstrip("+-")
    parts = [part for part in _SEPARATORS.split(unsigned) if part]
    if len(parts) > 1 and len(unsigned) <= MAX_TOKEN_LENGTH:
        yield fold(unsigned.replace("'", ""))[:MAX_TOKEN_LENGTH]
        if _INITIALS.fullmatch(unsigned):
            yield unsigned.replace(".", "").lower()
    for part in parts:
        yield from _apostrophe_tokens(part) if "'" in part else _word_tokens(part)


def _number_tokens(number: str) -> Iterator[str]:
    """A number or version, then what it is without its sign, then its beginnings."""
    number = number[:MAX_TOKEN_LENGTH]
    unsigned = number.lstrip("+-")
    if unsigned != number:
        yield number
    while unsigned:
        yield unsigned[1:] if len(unsigned) == 2 and unsigned[0] == "0" else unsigned
        unsigned = unsigned.rpartition(".")[0]


def _apostrophe_tokens(word: str) -> Iterator[str]:
    word = word.lower()
    head, _, ending = word.rpartition("'")
    if ending in _CONTRACTED:
        word, (head, _, ending) = head, head.rpartition("'")
    yield from _word_tokens(word.replace("'", ""))
    if head and len(ending) > 2:
        yield from _word_tokens(ending)


def _word_tokens(word: str) -> Iterator[str]:
    """A word of letters, digits and marks, then what it is made of."""
    if not word.isascii():
        yield from _marked_tokens(fold(word)[:MAX_TOKEN_LENGTH])
    elif word.isdigit():
        yield from _number_tokens(word)
    else:
        yield stem(word[:MAX_TOKEN_LENGTH].lower())
        yield from _hump_tokens(word)


def _marked_tokens(word: str) -> Iterator[str]:
    yield stem(word)
    letters = unicodedata.normalize("NFD", word)
    bare = "".join(c for c in letters if c >= _FIRST_INDIC or not unicodedata.combining(c))
    if bare and bare != letters:
        yield stem(unicodedata.normalize("NFC", bare))


def _hump_tokens(word: str) -> Iterator[str]:
    """The parts of ``camelCase`` and ``iPhone15``, if it is such a word."""
    if len(word) > MAX_TOKEN_LENGTH or _PLAIN.fullmatch(word) or _HASH.fullmatch(word):
        return
    humps = _HUMPS.findall(word)
    if 1 < len(humps) <= _MAX_HUMPS:
        for hump in humps:
            if hump.isdigit():
                yield from _number_tokens(hump)
            elif len(hump) > 1:
                yield stem(hump.lower())


def stem(word: str) -> str:
    """An English word in lower case without its plural, -ing or -ed ending; others as they are.

    Cautious: what remains has a vowel, ``care`` stays apart from ``car``, and only words of four or more
    ASCII letters change, besides some irregular ones: ``making`` and ``makes`` give ``make``, ``changed`` and
    ``change`` give ``chang``, ``bought`` gives ``buy``.
    """
    word = _IRREGULAR.get(word, word)
    if len(word) < 4 or not word.isascii() or not word.isalpha() or word in _UNINFLECTED:
        return word
    word = _without_tense(_without_plural(word))
    if word.endswith("ie") and len(word) > 4:
        return word[:-2] + "y"
    if len(word) > 3 and word[-1] == "e" and word[-2] != "e" and not _SHORT.fullmatch(word[:-1]):
        return word[:-1]
    return word


def _without_plural(word: str) -> str:
    if word[-1] != "s" or word[-2] in "sui":
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    return word[:-2] if word.endswith(_SIBILANT_PLURALS) else word[:-1]


def _without_tense(word: str) -> str:
    if word.endswith("ied"):
        return word[:-3] + "y" if len(word) > 4 else word[:-1]
    for ending in ("ing", "ed"):
        root = word.removesuffix(ending)
        if root != word and len(root) > 1 and root[-1:] != "e" * (ending == "ed") and _VOWEL.search(root):
            if len(root) > 3 and root[-1] == root[-2] and root[-1] not in "aeiouylsz":
                return root[:-1]
            return root + "e" if _SHORT.fullmatch(root) else root
    return word
