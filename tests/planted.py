"""A subject of whom a server holds something of every kind, and what is left of it."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

from google.protobuf.field_mask_pb2 import FieldMask
from sqlalchemy import func, select

from scrubjay import v1
from scrubjay.memory import ClientId, Subject
from server.ending import Ending
from server.store.jobs import Job
from server.store.memory_store import StreamKey, Writing
from server.store.recent_messages import RecentMessage
from server.store.tables import metadata, unlinked
from tenants.database import open_engine
from tests.devices import ACME, ALICE, NOW, Server

MARK = "Xylokarp"
"""A word that nothing but what is to be erased holds."""


def counted(url: str, subject: Subject = ALICE) -> dict[str, int]:
    """How many rows each table has of a subject, where it has any."""
    engine = open_engine(url)
    counts = {}
    with engine.begin() as connection:
        for name, table in metadata.tables.items():
            if "stream" in table.c:
                ours = table.c.incarnation == ACME, table.c.stream == subject.key
                count = select(func.count()).select_from(table).where(*ours)
                counts[name] = connection.execute(count).scalar_one()
    engine.dispose()
    return {name: count for name, count in counts.items() if count}


def add(server: Server, *contents: str, user_id: str = "alice", **fields: Any) -> list[v1.Memory]:
    """Memories as a backend adds them, each call under a request id of its own."""
    made: list[v1.Memory] = []
    for at in range(0, len(contents), 100):
        memories = [v1.Memory(user_id=user_id, content=text, **fields) for text in contents[at : at + 100]]
        request = v1.AddRequest(memories=memories, request_id=str(uuid.uuid4()))
        made += [one.memory for one in server.memories.add(request, server.service()).results]
    return made


def plant(server: Server, subject: str = "alice") -> None:
    """Something in every table, with the mark wherever words may be."""
    phone = server.device("phone", subject=Subject("user", subject))
    made = add(
        server,
        *(f"I live in {MARK} {n}." for n in range(6)),
        user_id=subject,
        tags=[MARK],
        metadata={"where": MARK},
    )
    private = v1.Memory(id=made[0].id, privacy_level=v1.PRIVACY_LEVEL_PRIVATE)
    changed = v1.Memory(id=made[1].id, content=f"{MARK} again")
    caller = server.service()
    for memory, path in ((private, "privacy_level"), (changed, "content")):
        mask = FieldMask(paths=[path])
        server.memories.update(v1.UpdateRequest(memory=memory, update_mask=mask), caller)
    server.memories.delete(v1.DeleteRequest(id=made[2].id), caller)
    server.memories.search(v1.SearchRequest(user_id=subject, query=MARK, count_access=True), caller)
    server.shard.accesses.write()
    unknown = phone.create(f"{MARK}, of a device").memory_id
    phone.sync(phone.create(f"{MARK}, of a device"), phone.set(unknown, {"content": f"{MARK} waits"}))
    list(server.sync.snapshot(v1.SnapshotRequest(), phone.caller, Ending()))
    server.store.write([key_of(subject)], lambda writing: plant_rest(writing, subject))


def key_of(user_id: str) -> StreamKey:
    return StreamKey(ACME, Subject("user", user_id).key)


def plant_rest(writing: Writing, user_id: str) -> None:
    """What only a model or an upgrade leaves."""
    key = key_of(user_id)
    told = RecentMessage("user", f"{MARK} was said", NOW, private=False)
    writing.keep_recent(key, "general", ClientId("web"), [told])
    job_id = f"0199aaaa-0000-7000-8000-{len(user_id):012d}"
    job = Job(job_id, key, "Add", ClientId("web"), "key", "SERVICE", "", "", NOW, NOW)
    message = v1.ConversationMessage(role="user", content=f"{MARK} to be read")
    request = v1.AddRequest(messages=[message], template=v1.Memory(user_id=user_id))
    writing.add_job(replace(job, request=request.SerializeToString()))
    row = {"incarnation": key.incarnation, "stream": key.stream}
    writing._transaction.run(unlinked.insert(), row)


def marked(folder: Path) -> list[str]:
    """Files that hold the mark anywhere in their bytes."""
    return [
        str(path.relative_to(folder))
        for path in sorted(folder.rglob("*"))
        if path.is_file() and MARK.lower().encode() in path.read_bytes().lower()
    ]
