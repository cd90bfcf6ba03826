"""Conversations as ChatGPT exports them: a tree of messages, of which one path is what was shown last.

``current_node`` names the end of that path; what branches off was edited away or generated again. A message
is spoken where a user or the assistant wrote it for the other to read: what goes to tools and comes back
from them, thoughts, hidden messages and the system's are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from client_sync.importing.instants import instant
from client_sync.importing.skipping import Place, Reason, Skipped, Unfit, printable
from scrubjay.memory import Micros, hashed_id
from scrubjay.validity import name_violation

MAX_MESSAGE_BYTES = 64 * 1024
"""Of one message, as the contract has it."""

_SPEAKERS = ("user", "assistant")
_SILENT = {"system": Reason.SYSTEM, "tool": Reason.TOOL}
_SPOKEN_TYPES = ("text", "multimodal_text")
_MADE_BY = "scrubjay import"


@dataclass(frozen=True, slots=True)
class Message:
    """One message that was spoken. ``at`` is None where neither it nor one before says when."""

    place: Place
    id: str
    role: str
    text: str
    at: Micros | None


@dataclass(frozen=True, slots=True)
class Conversation:
    """What was spoken, oldest first, and what of it is left out."""

    id: str
    messages: tuple[Message, ...]
    skipped: tuple[Skipped, ...]


def from_chatgpt(document: object, place: Place) -> Conversation:
    """A conversation of ``conversations.json``. Unfit."""
    if not isinstance(document, dict) or not isinstance(document.get("mapping"), dict):
        raise Unfit(Reason.NO_CONVERSATION, "has no 'mapping' of messages")
    nodes = {name: node for name, node in document["mapping"].items() if isinstance(node, dict)}
    path = _path(nodes, document.get("current_node"))
    conversation_id = document.get("conversation_id") or document.get("id")
    if not isinstance(conversation_id, str) or name_violation("id", conversation_id):
        conversation_id = hashed_id("\n".join([_MADE_BY, *path]).encode(errors="replace"))
    messages: list[Message] = []
    skipped: list[Skipped] = []
    at = _time_or_none(document.get("create_time"))
    for name in path:
        for found in _read(name, nodes[name], place, at):
            if isinstance(found, Skipped):
                skipped.append(found)
            else:
                messages.append(found)
                at = found.at
    skipped += _branches(nodes, path, place)
    return Conversation(conversation_id, tuple(messages), tuple(skipped))


def _path(nodes: Mapping[str, dict[str, Any]], end: object) -> list[str]:
    """The names of the nodes from the root to ``end``, or to the newest leaf where that names none."""
    name = end if isinstance(end, str) and end in nodes else _newest_leaf(nodes)
    path: dict[str, None] = {}
    while isinstance(name, str) and name in nodes and name not in path:
        path[name] = None
        name = nodes[name].get("parent")
    return list(reversed(path))


def _newest_leaf(nodes: Mapping[str, dict[str, Any]]) -> str | None:
    parents = {str(node.get("parent")) for node in nodes.values()}
    leaves = [name for name in nodes if name not in parents]
    # Of equals the last one, which was written last.
    return max(reversed(leaves), key=lambda name: _node_time(nodes[name]), default=None)


def _node_time(node: Mapping[str, Any]) -> int:
    message = node.get("message")
    return (_time_or_none(message.get("create_time")) if isinstance(message, dict) else None) or 0


def _time_or_none(value: object) -> Micros | None:
    try:
        return instant(value) if value else None
    except Unfit:
        return None


def _branches(nodes: Mapping[str, dict[str, Any]], path: list[str], of: Place) -> Iterator[Skipped]:
    taken = set(path)
    for name, node in nodes.items():
        message = node.get("message")
        if name not in taken and isinstance(message, dict) and _role(message) in _SPEAKERS:
            yield Skipped(replace(of, message=printable(name)), Reason.BRANCH, "is on a branch that was left")


def _role(message: Mapping[str, Any]) -> str:
    author = message.get("author")
    role = author.get("role") if isinstance(author, dict) else None
    return role if isinstance(role, str) else ""


def _read(
    name: str, node: Mapping[str, Any], of: Place, before: Micros | None
) -> Iterator[Message | Skipped]:
    """What is spoken in the node, and what is left out. ``before``: when the message before was."""
    message = node.get("message")
    if not isinstance(message, dict):
        return
    place = replace(of, message=printable(name))
    try:
        text, dropped = _text(_spoken_content(message))
        if dropped:
            yield Skipped(
                place, Reason.ATTACHMENT, f"{dropped} of its parts can't be read: images, files, sound"
            )
        _check_text(text)
        if wrong := name_violation("id", name):
            raise Unfit(Reason.INVALID, f"its id {wrong.description}")
        at = instant(message["create_time"]) if message.get("create_time") else before
        yield Message(place, name, _role(message), text, at)
    except Unfit as error:
        yield error.at(place)


def _spoken_content(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """The content of what a user or an assistant said to the other; Unfit for all else."""
    role, content = _role(message), message.get("content")
    if role in _SILENT:
        raise Unfit(_SILENT[role], f"is of the role {role}")
    if role not in _SPEAKERS:
        raise Unfit(Reason.UNKNOWN_ROLE, f"is of the role {role[:60]!r}; known are user and assistant")
    metadata = message.get("metadata")
    if (isinstance(metadata, dict) and metadata.get("is_visually_hidden_from_conversation")) or (
        message.get("weight") == 0
    ):
        raise Unfit(Reason.HIDDEN, "is hidden in the conversation")
    if message.get("recipient") not in (None, "all"):
        raise Unfit(Reason.TOOL, f"goes to the tool {str(message['recipient'])[:60]!r}")
    kind = content.get("content_type", "text") if isinstance(content, dict) else None
    if not isinstance(content, dict) or kind not in _SPOKEN_TYPES:
        raise Unfit(Reason.NOT_SPOKEN, f"is no text but {str(kind)[:60]!r}")
    return content


def _text(content: Mapping[str, Any]) -> tuple[str, int]:
    """What is said, and how many parts of it are no text."""
    parts = content.get("parts")
    texts: list[str] = []
    dropped = 0
    for part in parts if isinstance(parts, list) else []:
        said = part.get("text") if isinstance(part, dict) else part
        if isinstance(said, str):
            texts.append(said)
        else:
            dropped += 1
    return "\n".join(text for text in texts if text.strip()), dropped


def _check_text(text: str) -> None:
    if not text:
        raise Unfit(Reason.EMPTY, "says nothing")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise Unfit(Reason.INVALID, "holds a lone surrogate, which is no valid Unicode") from error
    if "\0" in text:
        raise Unfit(Reason.INVALID, "holds a NUL character")
    if size > MAX_MESSAGE_BYTES:
        raise Unfit(Reason.TOO_LONG, f"has {size} bytes; at most {MAX_MESSAGE_BYTES} are allowed")
