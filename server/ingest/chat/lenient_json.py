"""JSON as models write it: with commas too many, with line breaks inside of strings, and cut off anywhere.

Of a text that ends too early, what is whole counts: a list keeps its whole elements, an object its whole
members and a list that was being written.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

MAX_DEPTH = 32

_SPACE = re.compile(r"[\s,]*")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_WORD = re.compile(r"[^\s,:\]\[{}\"]+")
_OPENER = re.compile(r"[\[{]")
_CONSTANTS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}

Json = dict[str, object] | list[object] | str | int | float | bool | None


class Parsed(NamedTuple):
    """A value, where the text behind it begins, and whether the value was written to its end."""

    value: Json
    end: int
    whole: bool


class Found(NamedTuple):
    """The values of a text, and how many places that began like one were none."""

    values: list[Parsed]
    broken: int


class _NoJson(Exception):
    """There is no JSON; what begins before ``after`` need not be tried either."""

    def __init__(self, after: int = 0) -> None:
        super().__init__(after)
        self.after = after


def parse(text: str) -> Found:
    """Every object and list that stands in the text, outside of each other, in order. Never raises.

    Where one is broken those inside of it count. Takes time in proportion to the text.
    """
    found: list[Parsed] = []
    at = broken = 0
    while (opener := _OPENER.search(text, at)) is not None:
        try:
            parsed = _value(text, opener.start(), 0)
        except _NoJson as error:
            at = max(opener.end(), error.after)
            broken += 1
            continue
        found.append(parsed)
        at = parsed.end
    return Found(found, broken)


def _value(text: str, at: int, depth: int) -> Parsed:
    if at >= len(text):
        return Parsed(None, at, False)
    if depth > MAX_DEPTH:
        raise _NoJson(at)
    if text[at] == "[":
        return _list(text, at + 1, depth)
    if text[at] == "{":
        return _object(text, at + 1, depth)
    if text[at] == '"':
        return _string(text, at)
    return _scalar(text, at)


def _list(text: str, at: int, depth: int) -> Parsed:
    elements: list[object] = []
    while True:
        at = _skip(text, at)
        if at >= len(text):
            return Parsed(elements, at, False)
        if text[at] == "]":
            return Parsed(elements, at + 1, True)
        value, at, whole = _value(text, at, depth + 1)
        if not whole:
            return Parsed(elements, at, False)
        elements.append(value)


def _object(text: str, at: int, depth: int) -> Parsed:
    members: dict[str, object] = {}
    while True:
        at = _skip(text, at)
        if at >= len(text):
            return Parsed(members, at, False)
        if text[at] == "}":
            return Parsed(members, at + 1, True)
        if text[at] != '"':
            raise _NoJson
        name, at, whole = _string(text, at)
        at = _skip(text, at)
        if not whole or at >= len(text):
            return Parsed(members, len(text), False)
        if text[at] != ":":
            raise _NoJson
        value, at, whole = _value(text, _skip(text, at + 1), depth + 1)
        if whole or isinstance(value, list):
            members[str(name)] = value
        if not whole:
            return Parsed(members, at, False)


def _string(text: str, at: int) -> Parsed:
    match = _STRING.match(text, at)
    if match is None:
        return Parsed("", len(text), False)
    try:
        return Parsed(json.loads(match[0], strict=False), match.end(), True)
    except ValueError:  # an escape that there is not
        return Parsed(match[0][1:-1], match.end(), True)


def _scalar(text: str, at: int) -> Parsed:
    match = _WORD.match(text, at)
    if match is None:
        raise _NoJson
    if match.end() == len(text):  # 12 of 123, perhaps
        return Parsed(None, match.end(), False)
    if match[0] in _CONSTANTS:
        return Parsed(_CONSTANTS[match[0]], match.end(), True)
    try:
        number = int(match[0]) if match[0].lstrip("-").isdecimal() else float(match[0])
    except ValueError:
        raise _NoJson from None
    return Parsed(number, match.end(), True)


def _skip(text: str, at: int) -> int:
    """Past spaces and commas, of which models write one too few or too many."""
    match = _SPACE.match(text, at)
    return at if match is None else match.end()
