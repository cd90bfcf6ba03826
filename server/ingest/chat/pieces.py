"""Pieces: a long conversation in parts that a model reads well."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from server.ingest.conversations import Conversation
from server.ingest.rules.cleaning import UNREAD_ROLES
from server.ingest.rules.fact import Said
from server.ingest.rules.sentences import sentences

PIECE_CHARACTERS = 12_000
"""Some 3 000 tokens of English, 9 000 of Chinese: what small models still read to the end."""
MAX_PIECES = 64
"""Calls of the model that one Add may cost; 768 000 characters."""


@dataclass(frozen=True, slots=True)
class Part:
    """A message of the conversation, or a part of a long one; ``message`` is its place."""

    message: int
    said: Said


Piece = Sequence[Part]
"""Parts of one conversation, oldest first."""


def pieces(conversation: Conversation, places: Sequence[int]) -> list[Piece]:
    """The messages at these places in pieces, cut between messages, and long ones between sentences."""
    found: list[list[Part]] = []
    size = PIECE_CHARACTERS
    for part in _parts(conversation, places):
        length = len(part.said.text)
        if size + length > PIECE_CHARACTERS:
            found.append([])
            size = 0
        found[-1].append(part)
        size += length
    return list(found)


def told(conversation: Conversation) -> list[int]:
    """The places of the messages in which somebody says something."""
    return [
        place
        for place, said in enumerate(conversation.said)
        if said.text.strip() and said.role.lower() not in UNREAD_ROLES
    ]


def _parts(conversation: Conversation, places: Sequence[int]) -> Iterator[Part]:
    for place in places:
        said = conversation.messages[place].said
        for text in _cut(said.text):
            yield Part(place, replace(said, text=text))


def _cut(text: str) -> Iterator[str]:
    if len(text) <= PIECE_CHARACTERS:
        yield text
        return
    start = 0
    for span in sentences(text):
        if span.end - start > PIECE_CHARACTERS:
            yield text[start : span.start]
            start = span.start
    yield text[start:]
