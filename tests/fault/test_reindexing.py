"""A server that is killed while a tenant goes over to another space: it goes on with it after its restart."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import grpc
import pytest

from fault.conftest import Start
from fault.load import Client
from fault.process import ServerProcess
from scrubjay import connect, v1
from server.config import Settings
from tests.databases import rows_of
from tests.embedding_server import EmbeddingServer
from tests.model_server import Answer

SECONDS = 60
MEMORIES = 400
DIMENSION = 8
NEW = f"openai-model-1/{DIMENSION}"


class Model(EmbeddingServer):
    """The model of the new space; its answers wait until it is ``open``."""

    def __init__(self) -> None:
        super().__init__(DIMENSION)
        self.open = threading.Event()
        self.open.set()
        right = self._right

        def held(texts: list[str]) -> Answer:
            self.open.wait(SECONDS)
            return right(texts)

        self._right = held


def begin(server: ServerProcess, admin_key: str) -> str:
    with connect(server.address, admin_key) as channel:
        request = v1.ReindexTenantRequest(tenant_id="dev", embedder=NEW)
        return v1.TenantAdminServiceStub(channel).ReindexTenant(request).operation.operation.id


def reached(
    server: ServerProcess, admin_key: str, operation_id: str, there: Callable[[v1.TenantOperation], bool]
) -> v1.TenantOperation:
    deadline = time.monotonic() + SECONDS
    with connect(server.address, admin_key) as channel:
        admin = v1.TenantAdminServiceStub(channel)
        while True:
            request = v1.GetTenantOperationRequest(operation_id=operation_id)
            found = admin.GetTenantOperation(request).operation
            if there(found):
                return found
            assert time.monotonic() < deadline, found
            time.sleep(0.02)  # between one look and the next


def in_phase(name: str) -> Callable[[v1.TenantOperation], bool]:
    return lambda found: found.operation.phase == name or found.operation.HasField("ended_at")


@pytest.mark.parametrize("phase", ["embed", "settle"])
def test_killed_in_a_phase_it_ends_in_the_new_space(start: Start, data_dir: Path, phase: str) -> None:
    with Model() as model:
        embedders = f"openai:model-1/{DIMENSION}@{model.base_url}"
        server = start(embedders=embedders)
        key, admin_key = server.service_key, server.admin_key
        acknowledged: list[str] = []

        def write(server: ServerProcess, over: threading.Event) -> None:
            with Client.opened(server.address, key) as client, suppress(grpc.RpcError):
                while not over.is_set():
                    n = len(acknowledged)
                    memory = v1.Memory(user_id="bob", content=f"{phase} {n}")
                    answer = client.send(v1.AddRequest(memories=[memory]))
                    acknowledged.append(answer.results[0].memory.id)

        with Client.opened(server.address, key) as client:
            for at in range(0, MEMORIES, 100):
                memories = [v1.Memory(user_id="alice", content=f"fact {at + n}") for n in range(100)]
                client.send(v1.AddRequest(memories=memories))
        over = threading.Event()
        writer = threading.Thread(target=write, args=(server, over))
        writer.start()
        if phase == "embed":
            model.open.clear()
        operation_id = begin(server, admin_key)
        reached(server, admin_key, operation_id, in_phase(phase))
        server.kill()
        model.open.set()
        writer.join()
        server = start(embedders=embedders)
        writer = threading.Thread(target=write, args=(server, over))
        writer.start()
        found = reached(server, admin_key, operation_id, lambda one: one.operation.HasField("ended_at"))
        over.set()
        writer.join()
        assert found.operation.state == v1.OPERATION_STATE_SUCCEEDED
        assert found.result.reindex_tenant.to_space == NEW
        with Client.opened(server.address, key) as client:
            for user, count in (("alice", MEMORIES), ("bob", len(acknowledged))):
                request = v1.SearchRequest(user_id=user, query="fact", top_k=200, recipe="semantic")
                hits = client.send(request).hits
                assert len(hits) >= min(200, count)
        assert server.stop() == 0
    settings = Settings(data_dir=data_dir)
    stored = [row[0] for row in rows_of(settings, "SELECT id FROM memories WHERE user_id = 'bob'")]
    assert set(acknowledged) <= set(stored)
    vectors = rows_of(settings, "SELECT space, memory_id FROM vectors")
    assert {space for space, _ in vectors} == {NEW}
    assert len(vectors) == MEMORIES + len(stored)
