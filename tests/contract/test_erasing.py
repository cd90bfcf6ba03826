"""The erasure of one subject, wherever it is cut, whoever writes meanwhile and whoever still asks."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scrubjay import v1
from scrubjay.errors import RequestIdReused, StorageUnavailable
from scrubjay.memory import Subject
from server.erasing import CLOCKS_MICROS, Eraser
from server.index import switch
from server.ingest import erasing
from server.shard.erasing import ShardErasing
from server.store.erasing import ERASED_TABLES
from server.store.memory_store import MemoryStore
from server.store.tables import metadata
from tenants.receipt import PurgeReceipt
from tests.devices import ACME, ALICE, KEY, SECOND, Device, Server
from tests.killing import Killed, killed_at
from tests.planted import MARK, add, counted, marked, plant

NEVER = threading.Event()
BOB = Subject("user", "bob")
OF_TENANTS = {"imports", "moves", "purges", "stocks", "touched"}
"""Tables that tell a tenant's subjects from each other nowhere."""
STAYS = {"streams", "graveyard", "erasures", "requests"}


def eraser(server: Server) -> Eraser:
    return Eraser({"main": server.shard}, server.snapshots, server.archives, lambda: server.now)


def erase(server: Server, subject: Subject = ALICE) -> PurgeReceipt:
    server.wait()
    return eraser(server).erase(server.tenant, subject, server.now)


def test_every_row_of_the_subject_goes_and_none_of_another(server: Server, shard_url: str) -> None:
    for user_id in ("alice", "bob"):
        plant(server, user_id)
    before, theirs = counted(shard_url), counted(shard_url, BOB)
    assert set(before) == {name for name, table in metadata.tables.items() if "stream" in table.c} - {
        "erasures"
    }
    receipt = erase(server)
    after = counted(shard_url)
    assert set(after) == {"streams", "graveyard", "erasures"}
    assert after["graveyard"] == before["memories"] + before["graveyard"]
    assert counted(shard_url, BOB) == theirs
    gone = {name: before[name] for name in ("memories", *ERASED_TABLES)}
    assert {name: receipt.swept[name] for name in gone} == gone
    assert (receipt.swept["device snapshots"], receipt.swept["index files"]) == (1, 0)
    assert receipt.swept["request answers"] == before["requests"]
    assert (receipt.started_at, receipt.finished_at) == (server.now, server.now)


def test_every_table_is_either_swept_or_known_to_stay() -> None:
    swept = {*ERASED_TABLES, "memories"}
    assert set(metadata.tables) - OF_TENANTS == swept | STAYS
    assert all("stream" in metadata.tables[name].c for name in swept | STAYS)


def test_no_byte_of_it_is_left_on_the_disk(server: Server, tmp_path: Path) -> None:
    for n in range(5):
        add(server, *(f"{MARK} {n} {m} " + f"{MARK} " * (m * 17 % 90) for m in range(40)))
        plant(server)
        add(server, *(f"bob's {n} {m} " + "other words " * (m * 7 % 60) for m in range(40)), user_id="bob")
        erase(server)
    if server.store.exclusive:
        assert marked(tmp_path) == []
    else:  # PostgreSQL takes back the space of what was deleted by itself
        assert marked(tmp_path / "snapshots") + marked(tmp_path / "index") == []


STEPS = ((MemoryStore, "write"), (MemoryStore, "compact"), (ShardErasing, "discard_stream"))
"""What an erasure does: it is killed before each one and after each one."""


def test_one_that_is_killed_at_any_moment_is_ended_by_the_next(
    server: Server, shard_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasing, "MEMORIES_AT_ONCE", 4)
    for moment in itertools.count(step=5):
        server.wait()
        plant(server)
        before = counted(shard_url)
        whole = False
        with killed_at(moment, STEPS), suppress(Killed):
            eraser(server).erase(server.tenant, ALICE, server.now)
            whole = True
        if whole:
            break
        receipt = eraser(server).erase(server.tenant, ALICE, server.now)
        assert set(counted(shard_url)) == {"streams", "graveyard", "erasures"}, moment
        assert {name: receipt.swept[name] for name in ("memories", "history", "vectors", "jobs")} == {
            name: before[name] for name in ("memories", "history", "vectors", "jobs")
        }, moment
    assert moment > 2 * len(ERASED_TABLES)


def test_another_erasure_counts_anew(server: Server) -> None:
    add(server, "one", "two")
    assert erase(server).swept["memories"] == 2
    add(server, "three")
    server.wait()
    receipt = erase(server)
    assert (receipt.swept["memories"], receipt.started_at) == (1, server.now)


def test_a_subject_that_nobody_knows_leaves_no_stream(server: Server, shard_url: str) -> None:
    receipt = erase(server, Subject("agent", "nobody"))
    assert not any(receipt.swept.values())
    assert counted(shard_url, Subject("agent", "nobody")) == {"erasures": 1}


def test_many_rows_go_in_small_transactions_and_are_all_counted(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasing, "MEMORIES_AT_ONCE", 7)
    monkeypatch.setattr("server.shard.erasing.MEMORIES_AT_ONCE", 7)
    add(server, *(f"fact {n}" for n in range(50)))
    assert erase(server).swept["memories"] == 50


# --- who still asks -------------------------------------------------------------------------------


def test_a_device_drops_what_it_holds_and_brings_nothing_back(server: Server, phone: Device) -> None:
    (made,) = add(server, "Likes tea.")
    phone.pull()
    erase(server)
    assert phone.call(phone.request()).directive == v1.DIRECTIVE_RESYNC
    phone.cursor = ""
    edited = phone.set(made.id, {"content": "Likes coffee."})
    again = phone.create("Likes tea.", memory_id=made.id)
    assert phone.sync(edited, again).statuses == ["GONE", "GONE"]
    assert phone.pull() == []


def test_a_repeated_call_does_not_bring_back_what_it_stored(server: Server) -> None:
    request = v1.AddRequest(memories=[v1.Memory(user_id="alice", content="Likes tea.")], request_id="r-1")
    both = v1.AddRequest(
        memories=[v1.Memory(user_id=user, content="Likes tea.") for user in ("alice", "bob")],
        request_id="r-2",
    )
    theirs = v1.AddRequest(memories=[v1.Memory(user_id="bob", content="Likes milk.")], request_id="r-3")
    first = [server.memories.add(one, server.service()) for one in (request, both, theirs)]
    erase(server)
    for one in (request, both):
        with pytest.raises(RequestIdReused):
            server.memories.add(one, server.service())
    assert server.memories.add(theirs, server.service()) == first[2]
    assert listed(server) == []
    assert len(listed(server, "bob")) == 2


def listed(server: Server, user_id: str = "alice") -> list[str]:
    """The contents of a subject's memories."""
    request = v1.ListRequest(user_id=user_id, page_size=1000)
    body = server.memories.list(request, server.service())
    return [memory.content for memory in v1.ListResponse.FromString(body).memories]


def found(server: Server, **asked: Any) -> list[str]:
    caller = replace(server.service(), across_subjects=True)
    body = server.memories.search(v1.SearchRequest(query="tea", **asked), caller)
    answer = body if isinstance(body, v1.SearchResponse) else v1.SearchResponse.FromString(body)
    return [hit.memory.content for hit in answer.hits]


def test_no_search_finds_it_any_more(server: Server) -> None:
    add(server, "Likes tea.")
    add(server, "Sells tea.", user_id="bob")
    ways: list[Mapping[str, Any]] = [{"user_id": "alice"}, {"across_subjects": True}]
    assert [len(found(server, **way)) for way in ways] == [1, 2]
    erase(server)
    assert [found(server, **way) for way in ways] == [[], ["Sells tea."]]
    add(server, "Likes green tea.")
    assert found(server, user_id="alice") == ["Likes green tea."]


def test_what_others_erased_leaves_this_ones_memory_and_disk(server: Server) -> None:
    add(server, "Likes tea.")
    found(server, across_subjects=True)
    other = eraser(server)
    other.run(NEVER)
    server.store.write([KEY], lambda writing: writing.begin_erasure(KEY, server.now))
    server.shard.finish_erasure(KEY, server.now)
    kept = server.cache._shelf._path(KEY)
    together = server.cache._shelf._path(ACME)
    old = (kept, together, kept.with_suffix(".slots"))
    for path in old:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"vectors")
        os.utime(path, (server.now // SECOND, server.now // SECOND))
    other.run(NEVER)
    assert not any(path.exists() for path in old)
    kept.write_bytes(b"later")
    later = (server.now + CLOCKS_MICROS) // SECOND + 1
    os.utime(kept, (later, later))
    other.run(NEVER)
    assert kept.exists()
    eraser(server).run(NEVER)
    assert kept.exists()


def test_the_graphs_that_its_vectors_are_in_go_from_memory_and_disk(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(switch, "EXACT_ROWS", 50)
    add(server, *(f"fact {n} of tea" for n in range(60)))
    add(server, *(f"bob's {n} of tea" for n in range(60)), user_id="bob")
    ways: list[Mapping[str, Any]] = [{"user_id": "alice"}, {"user_id": "bob"}, {"across_subjects": True}]
    for way in ways:
        found(server, **way)
    server.cache.close()
    assert {path.suffix for path in kept(tmp_path)} == {".hnsw", ".slots"}
    before = kept(tmp_path)
    assert len(before) == 6
    for way in ways:
        found(server, **way)
    assert erase(server).swept["index files"] == 4
    after = kept(tmp_path)
    assert len(after) == 2
    assert [len(found(server, **way)) for way in ways] == [0, 10, 10]
    server.cache.close()
    together = server.cache._shelf.take(ACME, server.tenant.space, server.embedder.space.dimension)
    assert together is not None
    together.index.close()
    assert together.size == len(together.slots) == 60


def kept(folder: Path) -> set[Path]:
    """The files that the index keeps."""
    return {path for path in (folder / "index").rglob("*") if path.is_file()}


def test_a_disk_that_is_in_the_way_is_told_of_and_the_next_call_ends_it(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(server, "Likes tea.")

    def fail(*_: object) -> None:
        raise StorageUnavailable

    with monkeypatch.context() as patch:
        patch.setattr(MemoryStore, "compact", fail)
        with pytest.raises(StorageUnavailable):
            erase(server)
    assert erase(server).swept["memories"] == 1


def test_who_writes_meanwhile_loses_nothing_that_came_after(server: Server) -> None:
    stopped = threading.Event()
    failed: list[BaseException] = []

    def write() -> None:
        for n in itertools.count():
            if stopped.is_set():
                return
            try:
                add(server, f"written {n} {threading.get_ident()}")
            except BaseException as error:
                failed.append(error)

    add(server, *(f"early {n}" for n in range(300)))
    writers = [threading.Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    receipt = erase(server)
    stopped.set()
    for writer in writers:
        writer.join()
    assert failed == []
    assert receipt.swept["memories"] >= 300
    assert not [content for content in listed(server) if content.startswith("early")]
