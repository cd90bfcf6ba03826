"""A server that is killed while a tenant is exported and imported: in the end everything is there once."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from pathlib import Path

from fault.conftest import Start
from fault.process import ServerProcess
from scrubjay import connect, v1
from server.config import Settings
from tests.databases import rows_of
from tests.embedding_server import EmbeddingServer
from tests.model_server import Answer

SECONDS = 60
SUBJECTS = 8
EACH = 50
DIMENSION = 8
Reached = Callable[[v1.TenantOperation], bool]


class Model(EmbeddingServer):
    """Its answers wait until it is ``open``."""

    def __init__(self) -> None:
        super().__init__(DIMENSION)
        self.open = threading.Event()
        self.open.set()
        right = self._right

        def held(texts: list[str]) -> Answer:
            self.open.wait(SECONDS)
            return right(texts)

        self._right = held


def reached(server: ServerProcess, key: str, operation_id: str, there: Reached) -> v1.TenantOperation:
    deadline = time.monotonic() + SECONDS
    with connect(server.address, key) as channel:
        admin = v1.TenantAdminServiceStub(channel)
        while True:
            request = v1.GetTenantOperationRequest(operation_id=operation_id)
            found = admin.GetTenantOperation(request).operation
            if found.operation.HasField("ended_at") or there(found):
                return found
            assert time.monotonic() < deadline, found
            time.sleep(0.005)  # between one look and the next


def begun(found: v1.TenantOperation) -> bool:
    return found.operation.phase != ""


def ended(_found: v1.TenantOperation) -> bool:
    return False


def key_of(server: ServerProcess, tenant_id: str, role: v1.Role.ValueType) -> str:
    with connect(server.address, server.admin_key) as channel:
        admin = v1.TenantAdminServiceStub(channel)
        request = v1.CreateApiKeyRequest(tenant_id=tenant_id, role=role, client_id="web")
        return admin.CreateApiKey(request).secret


def everything(server: ServerProcess, key: str) -> list[object]:
    """All memories and their histories."""
    found: list[object] = []
    with connect(server.address, key) as channel:
        memories = v1.MemoryServiceStub(channel)
        for n in range(SUBJECTS):
            user = {"user_id": f"user-{n}"}
            found += memories.List(v1.ListRequest(**user, page_size=1000)).memories
            found += memories.History(v1.HistoryRequest(**user, page_size=1000)).entries
    return found


def test_a_tenant_is_taken_elsewhere_by_a_server_that_is_killed_again_and_again(
    start: Start, data_dir: Path
) -> None:
    with Model() as model:
        embedders = f"openai:model-1/{DIMENSION}@{model.base_url}"
        server = start(embedders=embedders)
        admin_key = server.admin_key
        keys = {"dev": key_of(server, "dev", v1.ROLE_SERVICE)}
        with connect(server.address, keys["dev"]) as channel:
            for n in range(SUBJECTS):
                memories = [v1.Memory(user_id=f"user-{n}", content=f"fact {n} {m}") for m in range(EACH)]
                v1.MemoryServiceStub(channel).Add(v1.AddRequest(memories=memories))
        before = everything(server, keys["dev"])
        with connect(server.address, admin_key) as channel:
            v1.TenantAdminServiceStub(channel).CreateTenant(v1.CreateTenantRequest(tenant_id="acme"))
        keys["acme"] = key_of(server, "acme", v1.ROLE_SERVICE)
        owners = {name: key_of(server, name, v1.ROLE_TENANT_ADMIN) for name in ("dev", "acme")}

        with connect(server.address, owners["dev"]) as channel:
            admin = v1.TenantAdminServiceStub(channel)
            exporting = admin.ExportTenant(v1.ExportTenantRequest(tenant_id="dev")).operation.operation.id
        reached(server, owners["dev"], exporting, begun)
        server.kill()
        server = start(embedders=embedders)
        written = reached(server, owners["dev"], exporting, ended)
        assert written.operation.state == v1.OPERATION_STATE_SUCCEEDED
        with connect(server.address, owners["dev"]) as channel:
            request = v1.DownloadExportRequest(tenant_id="dev", operation_id=exporting)
            chunks = v1.TenantAdminServiceStub(channel).DownloadExport(request)
            data = b"".join(one.chunk for one in chunks)
        assert hashlib.sha256(data).hexdigest() == written.result.export_tenant.sha256

        model.open.clear()
        with connect(server.address, owners["acme"]) as channel:
            admin, whole = v1.TenantAdminServiceStub(channel), {"tenant_id": "acme", "upload_id": "x"}
            admin.UploadImport(v1.UploadImportRequest(**whole, chunk=data))
            digest = hashlib.sha256(data).hexdigest()
            importing = admin.ImportTenant(v1.ImportTenantRequest(**whole, sha256=digest)).operation
        places: tuple[Reached, ...] = (
            lambda found: found.operation.phase == "write",
            lambda found: found.operation.phase == "embed",
        )
        for place in places:
            reached(server, owners["acme"], importing.operation.id, place)
            server.kill()
            model.open.set()
            server = start(embedders=embedders)
            model.open.clear()
        model.open.set()
        found = reached(server, owners["acme"], importing.operation.id, ended)
        assert found.operation.state == v1.OPERATION_STATE_SUCCEEDED, found
        assert found.result.import_tenant.counts["memory"] == SUBJECTS * EACH
        assert everything(server, keys["acme"]) == before
        assert server.stop() == 0
    lives = rows_of(
        Settings(data_dir=data_dir), "SELECT incarnation, count(*) FROM vectors GROUP BY incarnation"
    )
    assert [count for _, count in lives] == [SUBJECTS * EACH] * 2
