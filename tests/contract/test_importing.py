"""Export and import: what one server holds of a tenant is what another one holds after it, whatever database
each has; and an import is whole, or it never was."""

from __future__ import annotations

import json
import random
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.message import Message

from scrubjay import v1
from scrubjay.errors import (
    OperationUnderWay,
    Unavailable,
)
from scrubjay.memory import Micros, Viewer
from scrubjay.operation import OperationId
from server.feed import digests
from server.store.memory_store import StreamKey
from tests.archiving import Importing, another, export, lines_of, rows_of
from tests.devices import ALICE, Server
from tests.killing import Killed
from tests.life import CLIENTS, Life
from tests.planted import add, plant


@pytest.fixture
def elsewhere(other_url: str, tmp_path: Path) -> Iterator[Server]:
    with another(other_url, tmp_path / "elsewhere") as server:
        yield server


@pytest.fixture
def other_url(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database of the other kind."""
    if backend == "sqlite":
        return str(request.getfixturevalue("postgres_shard_url"))
    shutil.copyfile(request.getfixturevalue("shard_file"), tmp_path / "elsewhere.db")
    return f"sqlite:///{tmp_path / 'elsewhere.db'}"


ON_SQLITE = pytest.mark.parametrize("backend", ["sqlite"])
"""Where the database that is exported does not matter."""
VIEWERS = [Viewer(client, scopes) for client in CLIENTS for scopes in ((), ("work",))]


def told(server: Server, moments: Sequence[Micros] = ()) -> dict[str, Any]:
    """All that callers and devices are told, but for what is a tenant's own."""
    key, memories = StreamKey(server.tenant.incarnation, ALICE.key), server.memories
    with server.store.read() as reading:
        seen: dict[str, Any] = {f"digest of {one}": digests(reading, key, one) for one in VIEWERS}
    for client in CLIENTS:
        caller = server.service(client)
        listed = memories.list(v1.ListRequest(user_id="alice", page_size=1000), caller)
        history = memories.history(v1.HistoryRequest(user_id="alice", page_size=1000), caller)
        entities = memories.list_entities(v1.ListEntitiesRequest(user_id="alice"), caller)
        relations = memories.list_relations(v1.ListRelationsRequest(user_id="alice"), caller)
        seen[f"list of {client}"] = list(read(listed, v1.ListResponse).memories)
        seen[f"history of {client}"] = list(read(history, v1.HistoryResponse).entries)
        seen[f"entities of {client}"] = [
            (one.name, one.kind, one.memory_count) for one in read(entities, v1.ListEntitiesResponse).entities
        ]
        seen[f"relations of {client}"] = [
            (one.memory_id, one.subject.name, one.relation, one.object.name)
            for one in read(relations, v1.ListRelationsResponse).relations
        ]
        for moment in (None, *moments):
            request = v1.SearchRequest(user_id="alice", query="tea at home", top_k=200)
            if moment is not None:
                request.as_of.FromMicroseconds(moment)
            hits = read(memories.search(request, caller), v1.SearchResponse).hits
            seen[f"search of {client} at {moment}"] = [(one.memory, round(one.score, 6)) for one in hits]
    return seen


M = TypeVar("M", bound=Message)


def read(answer: Message | bytes, kind: type[M]) -> M:
    """An answer, which some RPCs give encoded."""
    return kind.FromString(answer if isinstance(answer, bytes) else answer.SerializeToString())


def test_what_is_exported_is_what_is_imported_on_another_database(
    server: Server, elsewhere: Server, tmp_path: Path
) -> None:
    life = Life(server, random.Random(7))
    moments = []
    for n in range(100):
        life.step()
        life.wait()
        if n % 30 == 20:
            moments.append(server.now)
    before = told(server, moments)
    elsewhere.now = server.now
    importing = Importing(elsewhere, tmp_path / "files")
    importing.run(export(server, tmp_path / "data").read_bytes())
    after = told(elsewhere, moments)
    assert any(before[f"list of {client}"] for client in CLIENTS)
    for name, value in before.items():
        assert after[name] == value, name
    assert importing.settled is not None
    assert not list((tmp_path / "files").rglob("*.gz"))


LEFT_BEHIND = ("replicas", "operations", "requests", "retractions", "unlinked")
"""What is between one server and its callers and devices, and what links memories that have links now."""


def test_every_kind_of_row_is_carried_over(
    server: Server, elsewhere: Server, shard_url: str, other_url: str, tmp_path: Path
) -> None:
    plant(server)
    add(server, "Bob works at Acme.", "My sister lives in Porto.")
    Importing(elsewhere, tmp_path / "files").run(export(server, tmp_path / "data").read_bytes())
    before, after = rows_of(server, shard_url), rows_of(elsewhere, other_url)
    assert {name: count for name, count in before.items() if name not in LEFT_BEHIND} == after
    assert after.keys() >= {"waiting", "recent_messages", "jobs", "access_counts", "relations", "stocks"}


@pytest.mark.parametrize(("backend", "seed"), [("sqlite", 0), ("postgresql", 1)])
def test_an_import_exported_again_is_the_same_file(
    seed: int, server: Server, elsewhere: Server, tmp_path: Path
) -> None:
    life = Life(server, random.Random(seed))
    for _ in range(60):
        life.step()
        life.wait()
    first = export(server, tmp_path / "first")
    elsewhere.now = server.now
    Importing(elsewhere, tmp_path / "files").run(first.read_bytes())
    second = export(elsewhere, tmp_path / "second")
    before, after = ([*map(carried, lines_of(path)[1:-1])] for path in (first, second))
    assert before == after


def carried(line: bytes) -> str:
    """A line without what is each tenant's own: the ids of entities."""
    found = json.loads(line)
    ids = {one["entity_id"]: one["normal"] for one in found.get("entities", ())}
    text = json.dumps(found, sort_keys=True)
    for entity_id, normal in ids.items():
        text = text.replace(entity_id, f"<{normal}>")
    return text


def test_what_was_deleted_or_changed_can_be_restored(
    server: Server, elsewhere: Server, tmp_path: Path
) -> None:
    (first, second) = add(server, "Likes tea.", "Lives in Porto.")
    caller = server.service()
    server.memories.delete(v1.DeleteRequest(id=first.id), caller)
    second.content = "Lives in Lisbon."
    mask = FieldMask(paths=["content"])
    server.memories.update(v1.UpdateRequest(memory=second, update_mask=mask), caller)
    Importing(elsewhere, tmp_path / "files").run(export(server, tmp_path / "data").read_bytes())
    caller = elsewhere.service()
    history = elsewhere.memories.history(v1.HistoryRequest(memory_id=second.id), caller)
    newest = read(history, v1.HistoryResponse).entries[0]
    back = elsewhere.memories.restore(v1.RestoreRequest(memory_id=first.id), caller)
    undone = elsewhere.memories.restore(
        v1.RestoreRequest(memory_id=second.id, operation_id=newest.operation_id), caller
    )
    assert (back.memory.content, undone.memory.content) == ("Likes tea.", "Lives in Porto.")


def test_a_device_that_enrols_loads_all_and_a_waiting_edit_meets_its_memory(
    server: Server, elsewhere: Server, tmp_path: Path
) -> None:
    phone = server.device("phone")
    made = phone.create("Likes tea.")
    phone.sync(phone.set(made.memory_id, {"content": "Likes green tea."}))
    add(server, "Lives in Porto.")
    Importing(elsewhere, tmp_path / "files").run(export(server, tmp_path / "data").read_bytes())
    other = elsewhere.device("phone")
    assert [one.change.memory.content for one in other.pull()] == ["Lives in Porto."]
    late = replace(made, operation_id=OperationId(str(uuid.uuid4())))
    other.sync(late)
    caller = elsewhere.service("phone")
    found = elsewhere.memories.get(v1.GetRequest(id=made.memory_id), caller)
    assert read(found, v1.GetResponse).memory.content == "Likes green tea."


# --- cut off ----------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in small parts, so that it can be killed in many places."""
    monkeypatch.setattr("server.operations.imported.LINES_AT_ONCE", 4)
    monkeypatch.setattr("server.operations.importing.EMBEDDED_AT_ONCE", 3)
    monkeypatch.setattr("server.operations.importing.OPENED_AT_ONCE", 1)
    monkeypatch.setattr("server.archive.file.MEMBER_BYTES", 1)
    monkeypatch.setattr("server.shard.importing.TAKEN_BACK_AT_ONCE", 5)


@pytest.fixture
def planted(server: Server) -> Server:
    for user_id in ("alice", "bob", "cy"):
        plant(server, user_id)
    return server


@ON_SQLITE
@pytest.mark.usefixtures("small")
def test_an_export_that_is_killed_anywhere_is_the_same(planted: Server, tmp_path: Path) -> None:
    whole = lines_of(export(planted, tmp_path / "whole"))
    steps = len(whole) * 2
    for dies_at in range(0, steps, max(1, steps // 12)):
        assert lines_of(export(planted, tmp_path / str(dies_at), dies_at)) == whole


@ON_SQLITE
@pytest.mark.usefixtures("small")
def test_an_import_that_is_killed_anywhere_stores_everything_once(
    planted: Server, shard_file: Path, tmp_path: Path
) -> None:
    data, before = export(planted, tmp_path / "data").read_bytes(), told(planted)

    def imported(name: str, dies_at: int | None) -> int:
        """How often an import reports, that is killed once."""
        path = shutil.copyfile(shard_file, tmp_path / f"{name}.db")
        with another(f"sqlite:///{path}", tmp_path / name) as elsewhere:
            doing = Importing(elsewhere, tmp_path / name).run(data, dies_at=dies_at)
            assert told(elsewhere) == before
            assert doing.result is not None
            assert doing.result.import_tenant.counts["memory"] == 18
        return doing.reports

    whole = imported("whole", None)
    stored = max(1, whole - 40)
    for dies_at in (0, 9, *range(stored, whole, 6)):
        imported(str(dies_at), dies_at)


@pytest.mark.usefixtures("small")
def test_an_import_that_is_taken_back_leaves_nothing(
    planted: Server, elsewhere: Server, other_url: str, tmp_path: Path
) -> None:
    data = export(planted, tmp_path / "data").read_bytes()
    for phases, stored in ((2, None), (2, 4), (3, None)):
        doing, plan = Importing(elsewhere, tmp_path / "files").begin(data)
        operation_id = str(uuid.uuid4())
        doing.operation = replace(doing.operation, operation_id=operation_id)
        task: Any = doing
        with suppress(Killed):
            for phase in plan.phases[:phases]:
                doing.dies_at = None if stored is None or phase.name == "check" else doing.reports + stored
                phase.run(task)
        with pytest.raises(OperationUnderWay) as refused:
            add(elsewhere, "of somebody else")
        assert refused.value.metadata["operation_id"] == operation_id
        doing.reports, doing.dies_at = 0, 3
        with suppress(Killed):
            plan.roll_back(task)
        doing.dies_at = None
        with pytest.raises(OperationUnderWay):
            add(elsewhere, "still of somebody else")
        plan.roll_back(task)
        assert rows_of(elsewhere, other_url) == {}
        with pytest.raises(Unavailable):
            plan.phases[1].run(task)  # by a server that has not heard of it
        assert rows_of(elsewhere, other_url) == {}
    Importing(elsewhere, tmp_path / "files").run(data)
    assert told(elsewhere) == told(planted)
