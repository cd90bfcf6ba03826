"""Cleaning: a message without what it only shows: our own context blocks, code, quotations."""

from __future__ import annotations

import re

from server.recall.context import NOTE, OPENING

UNREAD_ROLES = frozenset({"system", "developer", "tool", "function"})
"""Who speaks about the conversation, not in it."""

_NAME = re.escape(OPENING.strip("<>"))
_MARK = re.compile(rf"(?i)(?:<|&lt;|\\u003c)\s?(?P<closes>/?)\s?{_NAME}\s?(?:>|&gt;|\\u003e)")
"""Both marks, also as HTML or JSON write them."""
_BLOCK_LINE = re.compile(r'- \d{4}-\d\d-\d\d ".*" #[0-9a-f]{12}')
_FENCE = re.compile(r"^[ \t>]{0,9}(```|~~~)")
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_BREAK = "\n\n"


def clean(text: str) -> str:
    """The text without context blocks, code and quoted lines; what was cut out leaves an empty line.

    A block that nothing closes reaches to the end, one that nothing opens from the start. Inline code is
    left, as it often is the name of a thing; NUL and lone surrogates become spaces.
    """
    return _without_shown_lines(_UNSTORABLE.sub(" ", without_blocks(text)))


def without_context(text: str) -> str:
    """The text without context blocks and without lines copied from one; as it is where it has none."""
    outside = without_blocks(text)
    lines = [
        line
        for line in outside.splitlines(keepends=True)
        if line.strip() != NOTE and _BLOCK_LINE.fullmatch(line.strip()) is None
    ]
    return "".join(lines)


def without_blocks(text: str) -> str:
    """The text outside of all context blocks, nested ones included."""
    kept: list[str] = []
    depth = start = 0
    for mark in _MARK.finditer(text):
        if not mark["closes"]:
            if depth == 0:
                kept.append(text[start : mark.start()])
            depth += 1
        elif depth == 0:
            kept.clear()
            start = mark.end()
            continue
        else:
            depth -= 1
        start = mark.end()
    if depth == 0:
        kept.append(text[start:])
    return _BREAK.join(kept)


def _without_shown_lines(text: str) -> str:
    """The text without fenced code, lines quoted with ``>`` and lines copied from a context block."""
    kept: list[str] = []
    fence = ""
    for line in text.splitlines():
        opened = _FENCE.match(line)
        if opened is not None and fence in ("", opened[1]):
            fence = "" if fence else opened[1]
            kept.append("")
        elif not fence and not _is_shown(line.strip()):
            kept.append(line)
        else:
            kept.append("")
    return "\n".join(kept)


def _is_shown(line: str) -> bool:
    return (
        line.startswith((">", "＞", "$ ", ">>>")) or line == NOTE or _BLOCK_LINE.fullmatch(line) is not None
    )
