"""The chat model of the pages' server: it knows of editors, and finds nothing else worth remembering."""

from __future__ import annotations

from tests.chat_server import Asked

VIM = "我用 Vim 写代码。"
CHANGED = "我不再用 Vim 写代码了，现在用 VS Code。"
BOTH = "我以前用 Vim 写代码，现在改用 VS Code 了。"


def editors(asked: Asked) -> object:
    """What a model that behaves answers."""
    known = [one["id"] for one in asked.data["memories"]]
    if asked.compares:
        text = {"action": "UPDATE", "memory": known, "text": BOTH} if known else {"action": "ADD"}
        return {"decisions": [{"fact": n, **text} for n in range(len(asked.texts))]}
    found = []
    for message in asked.data["messages"]:
        if "VS Code" in message["text"]:
            found.append({"text": CHANGED, "category": "PREFERENCE", "supersedes": known})
        elif "Vim" in message["text"]:
            found.append({"text": VIM, "category": "PREFERENCE"})
    return {"memories": found}
