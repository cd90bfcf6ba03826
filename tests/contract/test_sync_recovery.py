"""What sync does seldom, on both databases: reconciling, giving back after a restore, embeddings."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from scrubjay import connect, v1
from scrubjay.errors import CursorInvalid, InvalidField
from scrubjay.feed import bucket_digests, pack, seal_page, whole
from scrubjay.memory import ClientId, Memory, MemoryId, PrivacyLevel, id_bytes, new_memory_id
from scrubjay.merge import State, create
from scrubjay.operation import derived_id
from scrubjay.stamp import CommitStamp, ReplicaId, Stamp, pack_field_stamps
from scrubjay.wire import to_message
from server.app import App
from server.config import Settings
from server.heads import WentBack
from server.providers.embedder import TextKind
from tests.devices import ALICE, NOW, Device, Server, short

PRIVATE = PrivacyLevel.PRIVATE
ROOT = Path(__file__).parent.parent.parent
BEFORE = ReplicaId(b"b" * 16)


def new_id(n: int = 0) -> MemoryId:
    return new_memory_id(NOW // 1000, bytes([n]) * 10)


# --- Reconcile ------------------------------------------------------------------------------------


def test_operations_are_known_or_not(server: Server, phone: Device) -> None:
    laptop = server.device("laptop")
    made = phone.create("tea")
    bad = phone.set(made.memory_id, {"content": "x"}, bases={"content": made.stamp})
    encoded = phone.encoded(made, bad)
    phone.sync(made, bad)
    ids = [id_bytes(derived_id(phone.replica, n, one)) for n, one in enumerate(encoded, 1)]
    answer = server.sync.reconcile(
        v1.ReconcileRequest(operation_ids=[ids[1], b"x" * 16, ids[0]]), phone.caller
    )
    assert [v1.OperationStatus.Name(one.status)[17:] for one in answer.results] == [
        "APPLIED",
        "UNSPECIFIED",
        "APPLIED",
    ]
    assert answer.results[2].commit_stamp < answer.results[0].commit_stamp
    assert list(answer.differing_buckets) == []
    bob = server.device("phone", subject=replace(ALICE, name="bob"))
    foreign = server.sync.reconcile(v1.ReconcileRequest(operation_ids=ids), bob.caller)
    assert {one.status for one in foreign.results} == {v1.OPERATION_STATUS_UNSPECIFIED}
    assert laptop.pull()


def test_buckets_that_differ_are_named(server: Server, phone: Device) -> None:
    made = [
        phone.create(f"fact {n}", memory_id=f"{n:02x}000000-0000-7000-8000-000000000000") for n in range(3)
    ]
    secret = phone.create("s", privacy_level=PRIVATE)
    phone.sync(*made, secret)
    laptop = server.device("laptop")
    held = {one.memory_id: one.commit_stamp for one in laptop.pull()}

    def reconcile(rows: dict[MemoryId, CommitStamp]) -> v1.ReconcileResponse:
        digests = bucket_digests((id_bytes(i), stamp) for i, stamp in rows.items())
        request = v1.ReconcileRequest(
            last_sync_at=laptop.cursor, bucket_digests=[one.to_bytes(8, "big") for one in digests]
        )
        return server.sync.reconcile(request, laptop.caller)

    same = reconcile(held)
    assert (list(same.differing_buckets), same.behind) == ([], False)
    lost = {i: stamp for i, stamp in held.items() if i != made[1].memory_id}
    assert list(reconcile(lost).differing_buckets) == [1]
    stale = {**held, made[2].memory_id: CommitStamp(held[made[2].memory_id] - 1)}
    assert list(reconcile(stale).differing_buckets) == [2]
    phone.sync(phone.create("more"))
    assert reconcile(held).behind


def test_a_reconcile_says_what_is_wrong_with_it(server: Server, phone: Device) -> None:
    cases = [
        (v1.ReconcileRequest(operation_ids=[b"x" * 16] * 1001), "operation_ids"),
        (v1.ReconcileRequest(operation_ids=[b"x"]), "operation_ids[0]"),
        (v1.ReconcileRequest(bucket_digests=[b"x" * 8]), "bucket_digests"),
        (v1.ReconcileRequest(bucket_digests=[b"x"] * 256), "bucket_digests"),
    ]
    for request, field in cases:
        with pytest.raises(InvalidField) as caught:
            server.sync.reconcile(request, phone.caller)
        assert caught.value.field_violations[0].field == field


# --- Reoffer --------------------------------------------------------------------------------------


def held(content: str = "tea", n: int = 0, *, seconds: float = -60, **fields: object) -> State:
    """A memory as a replica holds it, written some time before now."""
    stamp = Stamp((NOW // 1000 + int(seconds * 1000)) << 16, BEFORE)
    given = {"owner_client_id": ClientId("phone"), "user_id": "alice"} | fields
    return create(Memory(new_id(n), content, NOW, **given), stamp)  # type: ignore[arg-type]  # by name


def offer(device: Device, *offered: State | MemoryId | v1.Change, cursor: str = "") -> int:
    """What the device gives back; how much of it was news."""
    changes = []
    for one in offered:
        if isinstance(one, State):
            message = to_message(one.memory, CommitStamp(1)).SerializeToString()
            change = whole(message, pack_field_stamps(one.stamps), device.subject)
            changes.append((one.memory.id, CommitStamp(1), change))
        elif isinstance(one, v1.Change):
            changes.append((new_id(), CommitStamp(1), one))
        else:
            changes.append((one, CommitStamp(0), v1.Change(kind=v1.CHANGE_KIND_DELETED)))
    request = v1.ReofferRequest(last_sync_at=cursor or device.cursor, packed_page=pack(seal_page(changes)))
    return device.server.sync.reoffer(request, device.caller).taken_count


@pytest.fixture
def restored(server: Server, phone: Device) -> Device:
    """A phone that was here before the server went back."""
    phone.sync(phone.create("base"))
    server.store.begin_epochs(server.now // 1000 + 1)
    return phone


def everything(server: Server, client_id: str = "web") -> list[str]:
    return sorted(short(server.device(client_id).pull()))


def test_what_a_server_lost_is_given_back(server: Server, restored: Device) -> None:
    assert restored.call(restored.request()).directive == v1.DIRECTIVE_EPOCH_CHANGED
    lost, secret = held("lost", 1), held("secret", 2, privacy_level=PRIVATE)
    assert offer(restored, lost, secret) == 2
    assert offer(restored, lost, secret) == 0
    assert everything(server) == ["WHOLE base", "WHOLE lost"]
    assert everything(server, "phone") == ["WHOLE base", "WHOLE lost", "WHOLE secret"]
    found = server.memories.search(v1.SearchRequest(user_id="alice", query="lost"), server.service())
    assert "lost" in [hit.memory.content for hit in v1.SearchResponse.FromString(found).hits]
    entries = server.memories.history(v1.HistoryRequest(memory_id=lost.memory.id), server.service()).entries
    assert [v1.OperationKind.Name(entry.kind) for entry in entries] == ["OPERATION_KIND_CREATE"]


def test_what_is_here_is_joined_with_what_is_given_back(server: Server, restored: Device) -> None:
    old, new = held("old", 1, seconds=-60, category="TASK"), held("new", 1, seconds=-30)
    assert offer(restored, new) == 1
    assert offer(restored, old) == 0
    assert offer(restored, held("newest", 1, seconds=-10, tags=frozenset({"a"}))) == 1
    memories = [told.change.memory for told in server.device("web").pull() if told.memory_id == new.memory.id]
    assert [(one.content, one.category, list(one.tags)) for one in memories] == [("newest", "FACT", ["a"])]


def test_nothing_given_back_overrides_a_grave(server: Server, restored: Device) -> None:
    laptop = server.device("laptop")
    laptop.pull()
    assert offer(restored, new_id(1)) == 1
    assert offer(restored, held("x", 1), new_id(1)) == 0
    assert offer(restored, held("y", 2)) == 1
    assert offer(restored, new_id(2), held("y", 2, seconds=-1)) == 1
    assert everything(server) == ["WHOLE base"]
    assert "DELETED" in short(laptop.pull())


def test_what_a_viewer_may_not_see_its_word_can_not_change(server: Server, restored: Device) -> None:
    laptop = server.device("laptop")
    laptop.pull()
    cursor = laptop.cursor
    server.store.begin_epochs(server.now // 1000 + 2)
    assert offer(restored, held("secret", 1, privacy_level=PRIVATE)) == 1
    shown = held("shown", 1, seconds=-1)
    foreign = held("foreign", 2, privacy_level=PRIVATE)
    assert offer(laptop, shown, foreign, new_id(1), cursor=cursor) == 0
    assert everything(server) == ["WHOLE base"]


def test_what_can_be_no_memory_is_left_out(server: Server, restored: Device) -> None:
    good = held("good", 1)
    fast = held("fast", 2, seconds=61)
    blank = held(" ", 3)
    foreign = held("bob's", 4, user_id="bob")
    local = held("local", 5, privacy_level=PrivacyLevel.LOCAL_ONLY)
    stampless = State(good.memory, {})
    assert (
        offer(restored, fast, blank, local, replace(stampless, memory=replace(good.memory, id=new_id(6))))
        == 0
    )
    assert offer(restored, foreign) == 1
    assert offer(restored, good, v1.Change(kind=v1.CHANGE_KIND_WHOLE, field_stamps=b"\xff")) == 1
    assert everything(server) == ["WHOLE base", "WHOLE bob's", "WHOLE good"]
    with pytest.raises(InvalidField, match="neither WHOLE nor DELETED"):
        offer(restored, v1.Change(kind=v1.CHANGE_KIND_PART))
    with pytest.raises(InvalidField, match="1001 changes"):
        offer(restored, *[new_id()] * 1001)


def test_only_an_earlier_epochs_cursor_may_give_back(server: Server, phone: Device) -> None:
    for cursor, error in (("", CursorInvalid), ("x", CursorInvalid), ("2026-11-30T00:00:00Z", CursorInvalid)):
        request = v1.ReofferRequest(last_sync_at=cursor, packed_page=pack(v1.Page()))
        with pytest.raises(error):
            server.sync.reoffer(request, phone.caller)
    phone.sync(phone.create("base"))
    with pytest.raises(InvalidField, match="epoch that stands"):
        offer(phone, held("x", 1))


def test_an_edit_that_waits_meets_its_memory_when_it_is_given_back(server: Server, restored: Device) -> None:
    laptop = server.device("laptop")
    lost = held("lost", 1)
    edit = laptop.set(lost.memory.id, {"content": "edited"}, bases={"content": lost.stamps["content"]})
    assert laptop.sync(edit).statuses == ["PENDING_CREATE"]
    assert offer(restored, lost) == 1
    assert everything(server) == ["WHOLE base", "WHOLE edited"]


# --- Vectors --------------------------------------------------------------------------------------


def test_vectors_come_by_id_and_content(server: Server, phone: Device) -> None:
    made, secret = phone.create("tea with milk"), phone.create("secret", privacy_level=PRIVATE)
    phone.sync(made, secret)
    laptop = server.device("laptop")
    laptop.pull()

    def key(memory_id: str, stamp: Stamp) -> v1.VectorKey:
        return v1.VectorKey(memory_id=id_bytes(memory_id), content_stamp=stamp.pack())

    keys = [key(made.memory_id, made.stamp), key(secret.memory_id, secret.stamp), key(new_id(9), made.stamp)]
    answer = server.sync.vectors(v1.VectorsRequest(keys=keys), laptop.caller)
    (vector,) = answer.vectors
    assert (answer.space, vector.key) == (server.embedder.space.id, keys[0])
    codes = np.frombuffer(vector.code[:-4], dtype=np.int8).astype(np.float32)
    decoded = codes * np.frombuffer(vector.code[-4:], dtype="<f4")[0]
    (expected,) = server.embedder.embed(["tea with milk"], TextKind.DOCUMENT)
    assert np.abs(decoded - expected).max() < 0.01
    phone.sync(phone.set(made.memory_id, {"content": "coffee"}))
    assert not server.sync.vectors(v1.VectorsRequest(keys=keys), laptop.caller).vectors
    with pytest.raises(InvalidField, match="1001"):
        server.sync.vectors(v1.VectorsRequest(keys=keys[:1] * 1001), laptop.caller)


# --- a restore, as an operator does it ------------------------------------------------------------


def test_a_server_on_an_older_database_refuses_to_serve_until_it_is_said(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    settings = Settings(listen="127.0.0.1:0", data_dir=data_dir, embedder="hash")

    def serve(key: str, content: str) -> str:
        with App(settings) as app:
            key = key or (app.first_credentials.service.secret if app.first_credentials else "")
            with connect(app.address, key) as channel:
                memory = v1.Memory(user_id="alice", content=content)
                v1.MemoryServiceStub(channel).Add(v1.AddRequest(memories=[memory]))
        return key

    key = serve("", "before the backup")
    shutil.copytree(data_dir, tmp_path / "backup")
    serve(key, "behind the backup")
    for file in (tmp_path / "backup").glob("shard-*.db"):
        shutil.copyfile(file, data_dir / file.name)
    with pytest.raises(WentBack, match="python -m server restored"):
        App(settings)
    environment = os.environ | {"SCRUBJAY_DATA_DIR": str(data_dir), "PYTHONPATH": f"{ROOT}:{ROOT / 'proto'}"}
    told = subprocess.run(
        [sys.executable, "-m", "server", "restored"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (told.returncode, told.stdout) == (0, "1 streams begin a new epoch; start the server again\n")
    serve(key, "later")
