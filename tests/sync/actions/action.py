"""Actions: each is registered with the few values that its arguments may have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from scrubjay.memory import JsonValue, PrivacyLevel
from tests.sync.device import PLACES

Run = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Action:
    """Something that can happen, and the values of its arguments."""

    name: str
    run: Run
    arguments: Mapping[str, tuple[Any, ...]]
    weight: int
    fault: bool


ACTIONS: dict[str, Action] = {}


def action(weight: int = 1, *, fault: bool = False, **arguments: Iterable[Any]) -> Callable[[Run], Run]:
    """Register an action."""

    def registered(run: Run) -> Run:
        values = {name: tuple(choices) for name, choices in arguments.items()}
        ACTIONS[run.__name__] = Action(run.__name__, run, values, weight, fault)
        return run

    return registered


Step = tuple[str, Mapping[str, Any]]
"""An action by name, with its arguments."""


DEVICES = tuple(PLACES)
FIELDS: Mapping[str, tuple[JsonValue, ...]] = {
    "content": ("tea", "coffee", "cocoa"),
    "category": ("FACT", "TASK"),
    "tags.a": (True, None),
    "tags.b": (True, None),
    "metadata.k": (1, "1", None),
    "pinned": (True, False),
    "scope": ("general", "work", "work/desk"),
    "valid_from": (100, 900),
    "valid_to": (500, None),
    "privacy_level": (int(PrivacyLevel.PRIVATE), int(PrivacyLevel.SHARED)),
}
VALUES = tuple((field, value) for field, values in FIELDS.items() for value in values)
CRASHES = (*(None,) * 16, 1, 3, 4, 6, 9, 14, 20)
