"""The past is what was: whatever happens to a stream, every moment of it can be had back."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from scrubjay import v1
from scrubjay.memory import ClientId, MemoryId, Micros, PrivacyLevel, Viewer
from scrubjay.operation import OperationKind
from scrubjay.stamp import CommitStamp
from server.past import read_past, retold
from server.store.history import HistoryRow
from tests.devices import ACME, ALICE, KEY, Server
from tests.life import CLIENTS, Life

STEPS = 80


@dataclass
class Moment:
    """What the stream held after an operation: the memories' messages, and what each client was listed."""

    stamp: CommitStamp
    memories: dict[MemoryId, v1.Memory]
    listed: dict[str, set[MemoryId]]
    at: Micros


def live(server: Server, seed: int) -> list[Moment]:
    """What was there after each thing that happened."""
    life = Life(server, random.Random(seed))
    moments = []
    for _ in range(STEPS):
        life.step()
        moments.append(note(server))
        life.wait()
    return moments


def note(server: Server) -> Moment:
    """What is there now."""
    with server.store.read() as reading:
        stamp = reading.newest_operation(KEY)
        rows = reading.page(KEY, None, 10_000)
    listed = {}
    for client_id in CLIENTS:
        request = v1.ListRequest(user_id="alice", page_size=1000)
        answer = server.memories.list(request, server.service(client_id))
        listed[client_id] = {MemoryId(one.id) for one in v1.ListResponse.FromString(answer).memories}
    memories = {row.memory.id: v1.Memory.FromString(row.message) for row in rows}
    return Moment(stamp, memories, listed, server.now)


@pytest.fixture
def server(shard_url: str, tmp_path: Path) -> Iterator[Server]:
    with Server(shard_url, tmp_path) as server:
        yield server


@pytest.mark.parametrize("seed", range(2))
def test_every_moment_is_what_it_was(server: Server, seed: int) -> None:
    moments = live(server, seed)
    space = server.embedder.space.id
    for moment in moments:
        with server.store.read() as reading:
            past = read_past(reading, KEY, moment.stamp, space)
        found = {one.memory_id: v1.Memory.FromString(one.message or b"") for one in past.changes}
        assert found == moment.memories
        for change in past.changes:
            assert change.memory is not None
            assert change.commit_stamp <= moment.stamp
        stamps = [change.commit_stamp for change in past.changes]
        assert stamps == sorted(set(stamps))
        for client_id, ids in moment.listed.items():
            assert ids == _visible(found, client_id, moment.at)
    assert _happened(server) >= {(1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (2, 4)}


def _happened(server: Server) -> set[tuple[int, int]]:
    """Which kinds of operation ended how."""
    with server.store.read() as reading:
        return {(row.kind, row.outcome) for row in reading.history(ACME, KEY, None, 10_000)}


def _visible(memories: dict[MemoryId, v1.Memory], client_id: str, now: Micros) -> set[MemoryId]:
    return {
        i
        for i, one in memories.items()
        if (one.privacy_level == v1.PRIVACY_LEVEL_SHARED or one.owner_client_id == client_id)
        and not (one.HasField("expires_at") and one.expires_at.ToMicroseconds() <= now)
    }


def test_who_may_see_the_past_today_is_who_may_see_the_memory_today(server: Server) -> None:
    moments = live(server, 100)
    deaths: dict[MemoryId, str] = {}
    with server.store.read() as reading:
        rows: list[HistoryRow] = reading.history(ACME, KEY, None, 10_000)
        living = {one.memory.id: one.memory for one in reading.page(KEY, None, 10_000)}
        for row in rows:
            if row.kind is OperationKind.DELETE:
                deaths.setdefault(row.memory_id, row.private_to)
        for moment in moments:
            past = read_past(reading, KEY, moment.stamp, server.embedder.space.id)
            for change in past.changes:
                memory = living.get(change.memory_id)
                if memory is None:
                    today = deaths[change.memory_id]
                else:
                    shared = memory.privacy_level is PrivacyLevel.SHARED
                    today = "" if shared else memory.owner_client_id
                assert change.memory is not None
                mine = change.memory.privacy_level is not PrivacyLevel.SHARED
                then = change.memory.owner_client_id if mine else ""
                assert past.confined.get(change.memory_id, then) == today


def test_what_changed_nothing_takes_nothing_back(server: Server) -> None:
    """A device deletes and edits what was taken back from it meanwhile."""
    phone, laptop = server.device("phone"), server.device("laptop")
    made = phone.create("tea")
    phone.sync(made)
    laptop.pull()
    server.wait()
    phone.sync(phone.set(made.memory_id, {"privacy_level": int(PrivacyLevel.PRIVATE)}))
    moment = note(server)
    server.wait()
    late = laptop.set(made.memory_id, {"content": "coffee"}), laptop.delete(made.memory_id)
    assert laptop.sync(*late).statuses == ["NOT_VISIBLE"] * 2
    with server.store.read() as reading:
        past = read_past(reading, KEY, moment.stamp, server.embedder.space.id)
    assert {
        one.memory_id: v1.Memory.FromString(one.message or b"") for one in past.changes
    } == moment.memories


def test_a_deletion_that_kept_nothing_is_told_from_what_was_written(server: Server) -> None:
    """As versions did that knew of no past."""
    phone = server.device("phone")
    made = phone.create("tea", scope="work", tags=frozenset({"a"}), privacy_level=PrivacyLevel.PRIVATE)
    phone.sync(made)
    server.wait()
    phone.sync(phone.set(made.memory_id, {"content": "green tea", "tags.a": None, "metadata.k": 1}))
    before = server.shard.get(ACME, made.memory_id, Viewer(ClientId("phone")), server.now, {}).memory
    phone.sync(phone.delete(made.memory_id))
    with server.store.read() as reading:
        rows = reading.history(ACME, made.memory_id, None, 10)
    assert retold(reversed(rows), ALICE) == before
    assert retold([], ALICE) is None
