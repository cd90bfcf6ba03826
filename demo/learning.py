"""A conversation is learnt from without a model, corrected, and made into a block for a prompt."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text
from stage import check, heading, new_table, row

from scrubjay import v1

USER_ID = "mo"
OLD, NEW = "我用Vim写代码。", "我不再用Vim了，现在用VS Code写代码。"
CHAT = (
    "Hi! How are you?",
    OLD,
    "I prefer meetings in the morning.",
    "Could you write me a poem about autumn?",
    "Remind me to renew my passport before the trip.",
    NEW,
)
KEPT = (OLD, CHAT[2], CHAT[4], NEW)
QUESTION = "我用什么写代码？"
PROMPT = "Plan my Tuesday, and set up my editor."


def show_learning(console: Console, memories: v1.MemoryServiceStub) -> None:
    """Three steps; every promise is checked."""
    heading(console, "A chat is learnt from: rules keep what is worth it, no model needed")
    learn(console, memories)
    heading(console, "What was corrected ranks under what corrected it, and stays")
    ask(console, memories)
    heading(console, f"A block for the prompt {PROMPT!r}")
    show_block(console, memories)


def learn(console: Console, memories: v1.MemoryServiceStub) -> None:
    """Add the chat; what is kept, and as what."""
    messages = [v1.ConversationMessage(role="user", content=text) for text in CHAT]
    template = v1.Memory(user_id=USER_ID, source=v1.Source(conversation_id="chat"))
    answer = memories.Add(v1.AddRequest(messages=messages, template=template))
    kept = {CHAT[result.message_index]: result.memory.category for result in answer.results}
    check(tuple(kept) == KEPT, f"the rules keep {', '.join(KEPT)}, not {', '.join(kept)}")
    table = new_table("said", "kept as")
    for text in CHAT:
        row(table, text, kept.get(text, "–"))
    console.print(table)


def ask(console: Console, memories: v1.MemoryServiceStub) -> None:
    """Ask what the correction is about."""
    found = memories.Search(v1.SearchRequest(user_id=USER_ID, query=QUESTION, top_k=2)).hits
    check([hit.memory.content for hit in found] == [NEW, OLD], f"{QUESTION!r} finds the new before the old")
    table = new_table("asked", "found, best first")
    for hit in found:
        row(table, QUESTION, hit.memory.content)
    console.print(table)


def show_block(console: Console, memories: v1.MemoryServiceStub) -> None:
    """What a prompt gets to know."""
    block = memories.Context(v1.ContextRequest(user_id=USER_ID, query=PROMPT))
    held = {item.memory.content for item in block.items}
    check(held == set(KEPT) - {OLD}, "the block has what holds, and not what was corrected")
    console.print(Text(block.text))
