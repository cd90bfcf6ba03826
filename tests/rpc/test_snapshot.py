"""Snapshot through the whole server: a device loads everything, and goes on from there."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from rpc.conftest import Serving
from rpc.enrolment import enrolled
from rpc.refusal import refused
from scrubjay import v1
from scrubjay.errors import InvalidField, RoleNotAllowed, SnapshotGone
from scrubjay.feed import open_page, unpack

PATIENCE = 20
BODY = "x" * 3000


def loaded(path: Path, responses: list[v1.SnapshotResponse]) -> list[str]:
    """What the memories of a downloaded file say, in its order."""
    data = b"".join(one.chunk for one in responses)
    assert len(data) == responses[-1].total_bytes
    assert all(hashlib.sha256(one.chunk).digest() == one.chunk_digest for one in responses if one.chunk)
    path.write_bytes(data)
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT message FROM rows ORDER BY commit_stamp").fetchall()
    return [v1.Memory.FromString(message).content for (message,) in rows]


def test_a_device_loads_everything_and_syncs_from_there(serving: Serving, tmp_path: Path) -> None:
    facts = [f"fact {n} {BODY}" for n in range(200)]
    serving.dev.add(*facts)
    phone, _ = enrolled(serving, "phone")
    responses = list(phone.Snapshot(v1.SnapshotRequest(newest=3), timeout=PATIENCE))
    newest = open_page(unpack(v1.Page, "newest_page", responses[0].newest_page))
    assert [change.memory.content for _, _, change in newest] == facts[-3:]
    assert len(responses) > 2, "the file came in one part"
    assert loaded(tmp_path / "loaded.db", responses) == facts
    assert responses[-1].row_count == 200
    serving.dev.add("later")
    synced = phone.Sync(v1.SyncRequest(protocol=1, last_sync_at=responses[-1].last_sync_at))
    assert [change.memory.content for _, _, change in open_page(synced.page)] == ["later"]


def test_a_download_that_was_cut_goes_on(serving: Serving, tmp_path: Path) -> None:
    facts = [f"fact {n} {BODY}" for n in range(200)]
    serving.dev.add(*facts)
    phone, _ = enrolled(serving, "phone")
    stream = phone.Snapshot(v1.SnapshotRequest(), timeout=PATIENCE)
    first = next(stream)
    stream.cancel()
    request = v1.SnapshotRequest(resume_token=first.resume_token, offset=len(first.chunk))
    rest = list(phone.Snapshot(request, timeout=PATIENCE))
    assert rest[0].offset == len(first.chunk)
    assert loaded(tmp_path / "loaded.db", [first, *rest]) == facts


def test_a_token_is_of_no_use_to_another_device_or_once_a_memory_is_taken_back(serving: Serving) -> None:
    (made,) = serving.dev.add("Likes tea.")
    phone, _ = enrolled(serving, "phone")
    laptop, _ = enrolled(serving, "laptop")
    (only,) = phone.Snapshot(v1.SnapshotRequest(), timeout=PATIENCE)
    with refused() as answer:
        list(laptop.Snapshot(v1.SnapshotRequest(resume_token=only.resume_token), timeout=PATIENCE))
    assert (answer.code, type(answer.error)) == (grpc.StatusCode.INVALID_ARGUMENT, InvalidField)
    hidden = v1.Memory(id=made.id, privacy_level=v1.PRIVACY_LEVEL_PRIVATE)
    mask = FieldMask(paths=["privacy_level"])
    serving.dev.memories.Update(v1.UpdateRequest(memory=hidden, update_mask=mask))
    with refused() as answer:
        list(phone.Snapshot(v1.SnapshotRequest(resume_token=only.resume_token), timeout=PATIENCE))
    assert (answer.code, type(answer.error)) == (grpc.StatusCode.ABORTED, SnapshotGone)


def test_a_backend_may_not_load_a_snapshot(serving: Serving) -> None:
    stub = v1.SyncServiceStub(serving.dev.channel)
    with refused() as answer:
        list(stub.Snapshot(v1.SnapshotRequest(), timeout=PATIENCE))
    assert (answer.code, type(answer.error)) == (grpc.StatusCode.PERMISSION_DENIED, RoleNotAllowed)


@pytest.mark.parametrize("scopes", [["work"], []])
def test_a_device_of_one_scope_loads_that_alone(serving: Serving, tmp_path: Path, scopes: list[str]) -> None:
    serving.dev.add("deadline", scope="work/alpha")
    serving.dev.add("tea", scope="home")
    desk, _ = enrolled(serving, "desk", scopes=scopes)
    responses = list(desk.Snapshot(v1.SnapshotRequest(), timeout=PATIENCE))
    assert loaded(tmp_path / "loaded.db", responses) == ["deadline"] + ["tea"] * (not scopes)


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_file_that_changed_on_the_disk_is_made_anew(serving: Serving, tmp_path: Path) -> None:
    facts = [f"fact {n} {BODY}" for n in range(200)]
    serving.dev.add(*facts)
    phone, _ = enrolled(serving, "phone")
    stream = phone.Snapshot(v1.SnapshotRequest(), timeout=PATIENCE)
    first = next(stream)
    stream.cancel()
    (file,) = (serving.settings.data_dir / "snapshots").iterdir()
    body = bytearray(file.read_bytes())
    body[len(body) // 2] ^= 1
    file.write_bytes(body)
    request = v1.SnapshotRequest(resume_token=first.resume_token, offset=len(first.chunk))
    with refused() as answer:
        list(phone.Snapshot(request, timeout=PATIENCE))
    assert isinstance(answer.error, SnapshotGone)
    assert not list((serving.settings.data_dir / "snapshots").iterdir())
    anew = list(phone.Snapshot(v1.SnapshotRequest(), timeout=PATIENCE))
    assert loaded(tmp_path / "loaded.db", anew) == facts
