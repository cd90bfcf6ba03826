"""What a shelf kept and cannot be used: the stream is loaded without it, and nothing else happens."""

from __future__ import annotations

import hashlib
import json
import struct
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scrubjay.memory import MemoryId
from scrubjay.stamp import CommitStamp
from server.index import hnsw
from server.index.hnsw import HnswParameters
from server.index.hnsw_index import HnswIndex
from server.index.shelf import Shelf, Shelved
from server.store.memory_store import StreamKey
from tenants.tenant import Incarnation
from tests.vectors import clustered

D = 24
COUNT = 200
STREAM = StreamKey(Incarnation(str(uuid.UUID(int=1))), "user:alice")
PARAMETERS = HnswParameters(rows_per_candidate=0, scanned_survivors=0, graph_dimension=16)
PREFIX = struct.Struct("<8sII")
SLOTS = struct.Struct("<8sQQ")


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    """A shelf that holds the graph of one stream."""
    shelf = Shelf(tmp_path)
    index = HnswIndex(D, PARAMETERS)
    index.add(np.arange(COUNT), clustered(COUNT, D))
    assert index.drain(30)
    slots = {MemoryId(str(uuid.UUID(int=n + 1))): n for n in range(COUNT)}
    shelf.put(STREAM, "lite", Shelved(index, slots, COUNT, {STREAM.stream: CommitStamp(7)}))
    index.close()
    return shelf


def graph_file(shelf: Shelf) -> Path:
    return next(path for path in shelf.files_of(STREAM) if path.suffix == ".hnsw")


def signed(body: bytes) -> bytes:
    """The file of another build, whole as far as that build is concerned."""
    return body + hashlib.sha256(body).digest()


def rewrite_header(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    body = path.read_bytes()[:-32]
    magic, version, length = PREFIX.unpack_from(body)
    header = json.loads(body[PREFIX.size : PREFIX.size + length])
    change(header)
    text = json.dumps(header).encode()
    rest = body[PREFIX.size + length :]
    path.write_bytes(signed(PREFIX.pack(magic, version, len(text)) + text + rest))


def test_what_was_put_is_taken(shelf: Shelf) -> None:
    taken = shelf.take(STREAM, "lite", D)
    assert taken is not None
    assert (taken.size, taken.latest, len(taken.index)) == (COUNT, 7, COUNT)
    taken.index.close()


OTHER_BUILDS: dict[str, Callable[[dict[str, Any]], object]] = {
    "a field that this one lacks": lambda header: header.update(quantised=True),
    "a field less": lambda header: header.pop("measured"),
    "a parameter that this one lacks": lambda header: header["parameters"].update(levels=3),
    "no parameters": lambda header: header.update(parameters=None),
    "more nodes than there are": lambda header: header.update(nodes=10**6),
    "an older layout of hnswlib": lambda header: header.update(graph_bytes=header["graph_bytes"] // 2),
}


@pytest.mark.parametrize("change", OTHER_BUILDS.values(), ids=OTHER_BUILDS)
def test_the_graph_of_another_build_is_left_alone(
    shelf: Shelf, change: Callable[[dict[str, Any]], object], caplog: pytest.LogCaptureFixture
) -> None:
    rewrite_header(graph_file(shelf), change)
    assert shelf.take(STREAM, "lite", D) is None
    assert "built anew" in caplog.text


@pytest.mark.parametrize("applied", ["[]", "null", '{"user:alice": "soon"}', '{"user:alice": null}', "{"])
def test_the_slots_of_another_build_are_left_alone(shelf: Shelf, applied: str) -> None:
    path = graph_file(shelf).with_suffix(".slots")
    body = path.read_bytes()[:-32]
    magic, length, size = SLOTS.unpack_from(body)
    ids = body[SLOTS.size + length :]
    path.write_bytes(signed(SLOTS.pack(magic, len(applied), size) + applied.encode() + ids))
    assert shelf.take(STREAM, "lite", D) is None


def test_a_graph_is_left_alone_where_hnswlib_is_not_there_any_more(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hnsw, "hnswlib", None)
    assert shelf.take(STREAM, "lite", D) is None
