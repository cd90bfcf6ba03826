"""How a tenant's memories are written: what becomes of messages, and what the model is told beside them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from scrubjay import v1
from scrubjay.errors import FieldViolation

MAX_PROMPT_BYTES = 8 * 1024
"""Each goes with every call of the model; some 2 000 tokens."""


@dataclass(frozen=True, slots=True)
class WriteSettings:
    """What Add does for a tenant where its request does not say otherwise.

    ``policy`` is the contract's WritePolicy, 0 where the tenant never said. ``custom_instructions`` are added
    to what the model is told of extracting memories, ``custom_reconcile_prompt`` replaces what it is told of
    comparing them with older ones; an empty one changes nothing.
    """

    policy: int = 0
    custom_instructions: str = ""
    custom_reconcile_prompt: str = ""


DEFAULT_SETTINGS = WriteSettings()
"""Of a tenant that never said how it writes."""


def violations(field_path: str, settings: WriteSettings) -> Iterator[FieldViolation | None]:
    """What is wrong with the settings, if anything."""
    if settings.policy not in v1.WritePolicy.values():
        yield FieldViolation(f"{field_path}.policy", f"is {settings.policy}; name a policy of the contract")
    for name in ("custom_instructions", "custom_reconcile_prompt"):
        yield _prompt_violation(f"{field_path}.{name}", getattr(settings, name))


def _prompt_violation(field_path: str, text: str) -> FieldViolation | None:
    if "\0" in text:
        return FieldViolation(field_path, "holds a NUL character; remove it")
    if (size := len(text.encode())) > MAX_PROMPT_BYTES:
        return FieldViolation(field_path, f"has {size} bytes; at most {MAX_PROMPT_BYTES} are allowed")
    return None


# --- as JSON text, and as a message -----------------------------------------------------------------


def to_text(settings: WriteSettings) -> str | None:
    """The settings as the catalogue keeps them: None for those of a tenant that never said."""
    return None if settings == DEFAULT_SETTINGS else json.dumps(asdict(settings), ensure_ascii=False)


def from_text(text: str | None) -> WriteSettings:
    """The inverse of ``to_text``."""
    return DEFAULT_SETTINGS if text is None else WriteSettings(**json.loads(text))


def to_message(settings: WriteSettings) -> v1.WriteSettings:
    """The settings as their message."""
    return v1.WriteSettings(
        policy=v1.WritePolicy.ValueType(settings.policy),
        custom_instructions=settings.custom_instructions,
        custom_reconcile_prompt=settings.custom_reconcile_prompt,
    )


def from_message(message: v1.WriteSettings) -> WriteSettings:
    """The inverse of ``to_message``; nothing is validated here: see ``violations``."""
    return WriteSettings(message.policy, message.custom_instructions, message.custom_reconcile_prompt)
