"""Prompts: the files beside this one, whose names carry their version."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a model is told, and the name of the file that it comes from."""

    name: str
    text: str


def extraction_prompt(*, of_agent: bool, custom_instructions: str) -> Prompt:
    """What says how memories are found in a conversation: the user's, or the agent's own."""
    name = "extract-agent-2" if of_agent else "extract-user-2"
    added = _text("instructions-1").replace("{instructions}", custom_instructions)
    return Prompt(name, _text(name).replace("{instructions}", added if custom_instructions else ""))


def reconcile_prompt(custom_prompt: str) -> Prompt:
    """What says how facts are compared with older memories; ``custom_prompt`` stands in for how to judge."""
    judgement = custom_prompt or _text("judgement-1")
    return Prompt("reconcile-1", _text("reconcile-1").replace("{judgement}", judgement))


def _text(name: str) -> str:
    return files(__package__).joinpath("prompts", f"{name}.txt").read_text("utf-8").strip()
