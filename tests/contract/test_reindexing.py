"""Going over to another space step by step: killed anywhere and begun again, it comes to the same."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from scrubjay import v1
from scrubjay.errors import ModelUnavailable
from scrubjay.memory import JsonValue
from scrubjay.stamp import CommitStamp
from server.mending import Mender
from server.operations import filling, reindexing
from server.operations.conductor import Cancelled, Plan, Task
from server.operations.reindexing import Reindexer
from server.providers.embedder import Space, TextKind
from tenants.operation import Kind, OperationState, TenantOperation
from tenants.registry import Registry
from tenants.tenant import Tenant
from tests.devices import ACME, KEY, NOW, Device, Server
from tests.embedding_server import vector_of
from tests.killing import Killed

OLD, NEW = "hash-1/1024", "other-1/4"


class Other:
    """A model of another space, that may be gone."""

    space = Space(NEW, 4, True, {})

    def __init__(self) -> None:
        self.gone = False
        self.asked: list[str] = []

    def embed(self, texts: Sequence[str], kind: TextKind) -> NDArray[np.float32]:
        del kind
        if self.gone:
            raise ModelUnavailable("gone")
        self.asked += texts
        rows = np.array([vector_of(text, 4) for text in texts], np.float32).reshape(-1, 4)
        return cast("NDArray[np.float32]", rows / np.linalg.norm(rows, axis=1, keepdims=True))

    def self_test(self) -> None:
        """Nothing to compare with."""

    def close(self) -> None:
        """Nothing to give back."""


@pytest.fixture
def model() -> Other:
    return Other()


@pytest.fixture
def server(shard_url: str, tmp_path: Path, model: Other, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(filling, "AT_ONCE", 8)
    for name in ("SETTLE_SECONDS", "ALONE_SECONDS", "ROUND_SECONDS"):
        monkeypatch.setattr(reindexing, name, 0)
    with Server(shard_url, tmp_path, others={"other": model}) as server:
        yield server


def add(server: Server, *contents: str, user_id: str = "alice") -> list[v1.Memory]:
    memories = [v1.Memory(user_id=user_id, content=content) for content in contents]
    answer = server.memories.add(v1.AddRequest(memories=memories), server.service())
    return [result.memory for result in answer.results]


def found(server: Server, query: str, user_id: str = "alice", **fields: Any) -> list[str]:
    request = v1.SearchRequest(user_id=user_id, query=query, **fields)
    answer = v1.SearchResponse.FromString(server.memories.search(request, server.service()))
    return [hit.memory.content for hit in answer.hits]


def vectors(server: Server) -> dict[str, int]:
    """How many there are of each space, and of them how many are of contents that stand."""
    with server.store.read() as reading:
        counts = {space: reading.vector_keys(ACME, space, None, 1000) for space in (OLD, NEW)}
        standing = {space: reading.count_embedded(ACME, space)[0] for space in (OLD, NEW)}
    assert {space: len(keys) for space, keys in counts.items()} == standing
    return {space: count for space, count in standing.items() if count}


# --- killed anywhere ------------------------------------------------------------------------------


@dataclass
class Operation:
    """An operation as a task shows it to its phases; killed at its ``kill_at``-th sign of life."""

    server: Server
    notes: dict[str, JsonValue] = field(default_factory=dict)
    kill_at: int = 0
    cancel_at: int = 0
    signs: int = 0
    result: v1.TenantOperationResult = field(default_factory=v1.TenantOperationResult)

    @property
    def operation(self) -> TenantOperation:
        state = OperationState.RUNNING
        asked: dict[str, JsonValue] = {"space": NEW}
        values = ("operation", Kind.REINDEX, ACME, "acme", ACME, state, asked, "key", "", NOW, NOW)
        return TenantOperation(*values, notes=dict(self.notes))

    @property
    def tenant(self) -> Tenant:
        return self.server.tenant

    def report(self, done: int, total: int = 0) -> None:
        del done, total
        self.signs += 1
        if self.signs == self.kill_at:
            raise Killed
        if self.signs == self.cancel_at:
            raise Cancelled

    def note(self, **values: JsonValue) -> None:
        self.report(0)
        self.notes |= values

    def answer(self, result: v1.TenantOperationResult) -> None:
        self.result = result


@dataclass
class Catalogue:
    """What of a registry is asked: it names the space of the one tenant."""

    server: Server

    @property
    def reindexing(self) -> Catalogue:
        return self

    def switch(self, held: TenantOperation, space: str) -> None:
        del held
        self.server.tenant = replace(self.server.tenant, space=space)


def plan_of(server: Server) -> Plan:
    registry = cast("Registry", Catalogue(server))
    return Reindexer({"main": server.shard}, registry, server.embedders, lambda: server.now).plan()


def carry_out(operation: Operation, plan: Plan) -> None:
    """Do each phase until it is done, killed at most once."""
    for phase in plan.phases:
        with suppress(Killed):
            phase.run(cast("Task", operation))
            continue
        phase.run(cast("Task", operation))


def test_killed_at_any_point_it_comes_to_the_same(server: Server) -> None:
    texts = [f"fact {n} of {thing}" for n, thing in enumerate(("tea", "rain", "bread") * 7)]
    add(server, *texts)
    add(server, *(f"bob's {text}" for text in texts), user_id="bob")
    plan, kill_at, signs = plan_of(server), 0, 1
    while kill_at <= signs:
        kill_at += 1
        operation = Operation(server, kill_at=kill_at)
        carry_out(operation, plan)
        signs = operation.signs
        assert vectors(server) == {NEW: 2 * len(texts)}
        assert operation.result.reindex_tenant == v1.ReindexTenantResult(
            from_space=OLD, to_space=NEW, memory_count=2 * len(texts)
        )
        assert found(server, "rain", top_k=1)[0].endswith("rain")
        assert len(found(server, "nothing", top_k=50)) == len(texts)
        # back to where it began
        fill = filling.Filling(server.shard, ACME, OLD, filling.making(server.embedder))
        assert fill.round() == 2 * len(texts)
        server.tenant = replace(server.tenant, space=OLD)
        server.shard.drop_vectors(ACME, NEW, None)
    assert signs > 9


def test_taken_back_at_any_point_of_its_first_phase_nothing_is_left(server: Server) -> None:
    add(server, *(f"fact {n}" for n in range(30)))
    plan, cancel_at = plan_of(server), 0
    while True:
        cancel_at += 1
        operation = Operation(server, cancel_at=cancel_at)
        try:
            plan.phases[0].run(cast("Task", operation))
            break
        except Cancelled:
            killed = replace(operation, kill_at=operation.signs + 1)
            for _ in range(2):
                with suppress(Killed):
                    plan.roll_back(cast("Task", killed))
        assert vectors(server) == {OLD: 30}
    assert cancel_at > 4


# --- while others write ---------------------------------------------------------------------------


def test_what_is_written_between_the_rounds_is_embedded_too(server: Server, model: Other) -> None:
    first, second, _ = add(server, "black tea", "white tea", "rain")
    plan = plan_of(server)
    operation = Operation(server)
    plan.phases[0].run(cast("Task", operation))
    changed = v1.Memory(id=first.id, content="black coffee")
    server.memories.update(
        v1.UpdateRequest(memory=changed, update_mask={"paths": ["content"]}), server.service()
    )
    server.memories.delete(v1.DeleteRequest(id=second.id), server.service())
    add(server, "chess", user_id="bob")
    for phase in plan.phases[1:]:
        phase.run(cast("Task", operation))
    assert vectors(server) == {NEW: 3}
    assert model.asked.count("rain") == 1
    assert found(server, "coffee", top_k=1) == ["black coffee"]


def test_in_the_last_rounds_a_write_waits_for_both_models_and_is_embedded_once(
    server: Server, model: Other
) -> None:
    with server.embedders.ahead(ACME, NEW) as ahead:
        add(server, "black tea")
        assert model.asked == ["black tea"]
        fill = filling.Filling(server.shard, ACME, NEW, ahead.make)
        assert fill.round() == 1
        assert model.asked == ["black tea"]
        model.gone = True
        add(server, "white tea")
        model.gone = False
        assert fill.round() == 1
    add(server, "green tea")
    assert model.asked == ["black tea", "white tea"]


def test_a_model_that_is_gone_at_the_switch_does_not_hold_it_up(server: Server, model: Other) -> None:
    add(server, "black tea")
    plan, operation = plan_of(server), Operation(server)
    plan.phases[0].run(cast("Task", operation))
    add(server, "white tea with lemon")
    model.gone = True
    plan.phases[1].run(cast("Task", operation))
    assert server.tenant.space == NEW
    assert server.shard.take_bare() == {}
    with server.cache.reading(KEY, NEW) as resident:
        assert len(resident) == 2
    with pytest.raises(ModelUnavailable):
        plan.phases[2].run(cast("Task", operation))
    model.gone = False
    for phase in plan.phases[2:]:
        phase.run(cast("Task", operation))
    assert vectors(server) == {NEW: 2}


# --- what comes later -----------------------------------------------------------------------------


def mender(server: Server) -> Callable[[], int]:
    found = Mender([server.shard], lambda _: server.tenant, server.embedders)
    return lambda: found.run(threading.Event())


def test_an_edit_that_waited_since_before_the_switch_is_found_and_mended(server: Server) -> None:
    phone: Device = server.device("phone")
    laptop: Device = server.device("laptop")
    made = phone.create("black tea")
    assert laptop.sync(laptop.set(made.memory_id, {"content": "white tea"})).statuses == ["PENDING_CREATE"]
    server.tenant = replace(server.tenant, space=NEW)
    assert phone.sync(made).statuses == ["APPLIED"]
    (text,) = found(server, "tea")
    with server.store.read() as reading:
        has = set(reading.standing_vectors(ACME, NEW, [made.memory_id]))
    assert has == (set() if text == "white tea" else {made.memory_id})
    add(server, "rain")
    assert len(found(server, "nothing", top_k=5)) == 2
    mend = mender(server)
    assert mend() == len({made.memory_id} - has)
    assert mend() == 0
    assert vectors(server) == {NEW: 2}


def test_what_a_device_asks_for_and_is_not_there_is_mended(server: Server, model: Other) -> None:
    (memory,) = add(server, "black tea")
    server.tenant = replace(server.tenant, space=NEW)
    with server.store.read() as reading:
        stamp = reading.content_stamps(ACME, [memory.id])[memory.id]
    key = v1.VectorKey(memory_id=bytes.fromhex(memory.id.replace("-", "")), content_stamp=stamp.pack())
    phone, request = server.device("phone"), v1.VectorsRequest(keys=[key])
    answer = server.sync.vectors(request, phone.caller)
    assert (answer.space, list(answer.vectors)) == (NEW, [])
    mend = mender(server)
    model.gone = True
    assert mend() == 0
    model.gone = False
    assert mend() == 1
    assert len(server.sync.vectors(request, phone.caller).vectors) == 1


def test_vectors_of_contents_that_stand_no_longer_are_not_stored(server: Server) -> None:
    first, second = add(server, "black tea", "white tea")
    pages = server.shard.unembedded(ACME, NEW, ("", CommitStamp(0)), 10)
    server.memories.delete(v1.DeleteRequest(id=first.id), server.service())
    changed = v1.Memory(id=second.id, content="coffee")
    server.memories.update(
        v1.UpdateRequest(memory=changed, update_mask={"paths": ["content"]}), server.service()
    )
    server.shard.put_vectors(ACME, NEW, [(one, bytes(8)) for one in pages])
    with server.store.read() as reading:
        assert reading.vector_keys(ACME, NEW, None, 10) == []
