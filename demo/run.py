"""Shows what Scrubjay does, with a server of its own: two tenants, a conversation each, both remembered, a
chat that is learnt from, and two devices of one user that work offline and sync.

Every step is checked as it is shown. Where one does not give what it promises, a line says which and the
exit code is 1.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import grpc
from google.protobuf.field_mask_pb2 import FieldMask
from learning import show_learning
from local_server import LocalServer, ServerFailed, local_server
from rich.console import Console
from rich.text import Text
from script import Change, Conversation, Removal, read_script
from stage import PromiseBroken, check, heading, new_table, row

from devices import show_devices
from scrubjay import connect, v1
from scrubjay.channel import from_rpc_error
from scrubjay.errors import ScrubjayError
from scrubjay.text import tokens

WIDTH = 100


@dataclass(frozen=True, slots=True)
class Home:
    """A tenant's memories through a key of its own, and the conversation that is to be remembered."""

    conversation: Conversation
    memories: v1.MemoryServiceStub

    def search(self, question: str, user_id: str = "") -> Sequence[v1.SearchHit]:
        """The hits for a question about a user, by default this conversation's."""
        user_id = user_id or self.conversation.user_id
        return self.memories.Search(v1.SearchRequest(user_id=user_id, query=question, top_k=3)).hits


def main() -> int:
    """Run the demo; the exit code."""
    console = Console(highlight=False, width=WIDTH)
    started = time.monotonic()
    try:
        with local_server() as server:
            seconds = time.monotonic() - started
            console.print(
                Text(
                    f"A server is up at {server.address} ({seconds:.1f} s): SQLite, no network, no model key."
                )
            )
            tell(console, server)
    except (PromiseBroken, ServerFailed, ScrubjayError, grpc.RpcError) as error:
        reason = from_rpc_error(error) if isinstance(error, grpc.RpcError) else error
        Console(stderr=True, highlight=False).print(Text(f"the demo failed: {reason}"), soft_wrap=True)
        return 1
    console.print(
        Text(f"\nAll of it held, in {time.monotonic() - started:.1f} s. The server and its data are gone.")
    )
    return 0


def tell(console: Console, server: LocalServer) -> None:
    """The whole story, step by step."""
    script = read_script()
    with connect(server.address, server.admin_key) as admin:
        keys = [create_tenant(admin, each.tenant_id) for each in script.conversations]
    with connect(server.address, keys[0]) as first, connect(server.address, keys[1]) as second:
        homes = [
            Home(conversation, v1.MemoryServiceStub(channel))
            for conversation, channel in zip(script.conversations, (first, second), strict=True)
        ]
        heading(console, "Two tenants, a user each: what they said is added")
        ids = add(console, homes)
        heading(console, "Found by questions that share no word with them, across languages")
        ask(console, homes)
        heading(console, "One is updated")
        update(console, homes[0], script.update, ids[script.update.old])
        heading(console, "One is deleted, for ever")
        delete(console, homes[0], script.delete, ids[script.delete.text])
        heading(console, "What happened to these two, newest first")
        show_history(console, homes[0], [ids[script.delete.text], ids[script.update.old]])
        heading(console, "The other tenant finds nothing of it")
        look_across(console, homes, ids[script.update.old])
        show_learning(console, homes[1].memories)
    show_devices(console, server, script)


def create_tenant(admin: grpc.Channel, tenant_id: str) -> str:
    """A new tenant; the secret of a key that reads and writes its memories."""
    stub = v1.TenantAdminServiceStub(admin)
    stub.CreateTenant(v1.CreateTenantRequest(tenant_id=tenant_id))
    return stub.CreateApiKey(v1.CreateApiKeyRequest(tenant_id=tenant_id, role=v1.ROLE_SERVICE)).secret


def add(console: Console, homes: Sequence[Home]) -> dict[str, str]:
    """Add what the users said; the memories' ids by text."""
    table = new_table("tenant / user", "memory")
    ids: dict[str, str] = {}
    for home in homes:
        said = home.conversation
        source = v1.Source(conversation_id=said.id, role="user")
        request = v1.AddRequest(
            memories=[
                v1.Memory(user_id=said.user_id, content=text, source=source) for text in said.remembered
            ]
        )
        results = home.memories.Add(request).results
        check(all(result.HasField("memory") for result in results), "every line is stored")
        for result in results:
            ids[result.memory.content] = result.memory.id
            row(table, f"{said.tenant_id} / {said.user_id}", result.memory.content)
    console.print(table)
    return ids


def ask(console: Console, homes: Sequence[Home]) -> None:
    """Ask every question; the right memory must be the first."""
    table = new_table("asked", "found first", "score")
    for home in homes:
        words = {word for text in home.conversation.remembered for word in tokens(text)}
        for question in home.conversation.questions:
            shared = words.intersection(tokens(question.text))
            check(not shared, f"{question.text!r} shares no word with what is remembered, not {shared}")
            best, *_ = home.search(question.text)
            found = best.memory.content
            check(found == question.answer, f"{question.text!r} finds {question.answer!r}, not {found!r}")
            row(table, question.text, found, f"{best.score:.2f}")
    console.print(table)


def update(console: Console, home: Home, change: Change, memory_id: str) -> None:
    """Change a memory's text; the question finds the new one where it found the old."""
    before = home.search(change.question)[0].memory
    check(before.content == change.old, f"{change.question!r} finds the old text before the update")
    answer = home.memories.Update(
        v1.UpdateRequest(
            memory=v1.Memory(id=memory_id, content=change.new),
            update_mask=FieldMask(paths=["content"]),
            etag=before.etag,
        )
    )
    check(answer.results[0].outcome == v1.OUTCOME_APPLIED, "the update is applied")
    found = home.search(change.question)
    check(found[0].memory.content == change.new, f"{change.question!r} finds the new text after the update")
    check(change.old not in [hit.memory.content for hit in found], "the old text is no longer found")
    table = new_table("", change.question)
    row(table, "before", before.content)
    row(table, "after", found[0].memory.content)
    console.print(table)


def delete(console: Console, home: Home, removal: Removal, memory_id: str) -> None:
    """Delete a memory; it is neither found nor there."""
    before = home.search(removal.question)[0].memory.content
    check(before == removal.text, f"{removal.question!r} finds the memory before it is deleted")
    home.memories.Delete(v1.DeleteRequest(id=memory_id))
    found = [hit.memory.content for hit in home.search(removal.question)]
    check(removal.text not in found, "a deleted memory is not found")
    answer = refusal(home, memory_id)
    check(answer.reason == v1.ERROR_REASON_MEMORY_DELETED, "a deleted memory is answered as deleted")
    table = new_table("", removal.question)
    row(table, "before", before)
    row(table, "after", "(nothing of it)")
    row(table, "asked by id", told(answer))
    console.print(table)


def show_history(console: Console, home: Home, memory_ids: Sequence[str]) -> None:
    """The operations on the memories, in plain words."""
    kinds = {
        v1.OPERATION_KIND_CREATE: "added",
        v1.OPERATION_KIND_SET: "changed",
        v1.OPERATION_KIND_DELETE: "deleted",
    }
    told_kinds = []
    table = new_table("when", "what", "before", "after")
    for memory_id in memory_ids:
        for entry in home.memories.History(v1.HistoryRequest(memory_id=memory_id)).entries:
            (change,) = [change for change in entry.changes if change.field == "content"]
            told_kinds.append(kinds[entry.kind])
            row(
                table,
                f"{entry.commit_time.ToDatetime():%H:%M:%S}",
                kinds[entry.kind],
                change.old_value.string_value,
                change.new_value.string_value,
            )
    check(told_kinds == ["deleted", "added", "changed", "added"], "each change has one entry in the history")
    console.print(table)


def look_across(console: Console, homes: Sequence[Home], memory_id: str) -> None:
    """The second tenant looks for the first one's memories: by id, by the same user's name, by meaning."""
    mine, other = homes
    user_id = mine.conversation.user_id
    made_up = str(uuid.uuid4())
    answer, unknown = refusal(other, memory_id), refusal(other, made_up)
    check(answer.reason == v1.ERROR_REASON_MEMORY_NOT_FOUND, "another tenant's id is not found")
    same = told(answer).replace(memory_id, made_up) == told(unknown)
    check(same, "another tenant's id is answered as an id that was never there")
    texts = {hit.memory.content for each in mine.conversation.questions for hit in other.search(each.text)}
    check(texts <= set(other.conversation.remembered), "a search stays in its own tenant")
    under_name = [hit for each in mine.conversation.questions for hit in other.search(each.text, user_id)]
    check(not under_name, "a user of the same name in another tenant has no memories")
    table = new_table(f"{other.conversation.tenant_id} asks", "answer")
    row(table, f"for {mine.conversation.tenant_id}'s memory by its id", told(answer))
    row(table, f"for a user {user_id!r} of its own", "0 hits")
    row(table, f"{mine.conversation.tenant_id}'s questions, of its own user", "its own memories only")
    console.print(table)


def refusal(home: Home, memory_id: str) -> ScrubjayError:
    """The error that Get answers for this id."""
    try:
        home.memories.Get(v1.GetRequest(id=memory_id))
    except grpc.RpcError as error:
        return from_rpc_error(error)
    raise PromiseBroken(f"memory {memory_id} can't be read")


def told(error: ScrubjayError) -> str:
    """An error's reason and message."""
    return f"{v1.ErrorReason.Name(error.reason).removeprefix('ERROR_REASON_')}: {error.message}"


if __name__ == "__main__":
    sys.exit(main())
