"""An HnswIndex in a file, so that a start does not build its graph again.

    magic, version   8 bytes and 4
    header           4 bytes of length, JSON: space id, dimension, count, commit stamp, parameters, lengths
    parts            living, scales and codes of the rows; node labels, hnswlib's own file
    sha256           32 bytes, of everything before

Numbers are little-endian, as every machine this runs on has them. A snapshot is written beside its place,
flushed and renamed, so there is a whole one or the one before. It can always be thrown away: where
``load_snapshot`` raises, build the index from the store.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import struct
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from server.index.coded_rows import CodedRows
from server.index.hnsw import Graph, HnswParameters, SavedGraph, hnsw_available
from server.index.hnsw_index import HnswIndex
from server.index.hnsw_state import HnswState

MAGIC = b"SCRJYIDX"
VERSION = 1
_PREFIX = struct.Struct("<8sII")
_DIGEST_BYTES = 32
_PIECE_BYTES = 1 << 20


class SnapshotDamaged(Exception):
    """The file is not a whole snapshot of this index; the message says in what. Build the index again."""


@dataclass(frozen=True, slots=True)
class _Header:
    space_id: str
    dimension: int
    count: int
    commit_stamp: int
    end: int
    candidates: int
    measured: int
    parameters: dict[str, int]
    nodes: int
    """Nodes of the graph, dead ones too; 0: no graph, and nothing after the rows."""
    capacity: int
    graph_bytes: int


def save_snapshot(path: Path, index: HnswIndex, *, space_id: str, commit_stamp: int) -> None:
    """Write ``index`` to ``path``, as of ``commit_stamp``. One caller at a time for one ``path``.

    Rows that are not in the graph yet are saved too. Adding waits until everything is written, and searches
    that come after an add that waits do too; while hnswlib writes its part it even holds the interpreter.

    Raises:
        OSError: the file could not be written; the one before is still there.
    """
    new, graph_file = _beside(path, "new"), _beside(path, "graph")
    try:
        with new.open("wb") as file:
            with index.state.lock.shared:
                if index.state.graph is not None:
                    index.state.graph.save(graph_file)
                _write(file, index.state, graph_file, space_id, commit_stamp)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        _sync_folder(path.parent)
    finally:
        new.unlink(missing_ok=True)
        graph_file.unlink(missing_ok=True)


def load_snapshot(path: Path, *, space_id: str, dimension: int) -> tuple[HnswIndex, int]:
    """The index saved to ``path`` and its commit stamp. The caller closes the index.

    Raises:
        SnapshotDamaged: not a snapshot, of another version, space or dimension, or not whole.
        FileNotFoundError: there is none.
    """
    with path.open("rb") as file:
        header = _checked_header(file, space_id, dimension)
        rows = CodedRows(dimension, header.end)
        for part in rows.parts():
            _fill(file, part)
        rows.recount()
        graph = _read_graph(file, header, _beside(path, "graph")) if header.nodes else None
    state = HnswState(rows, HnswParameters(**header.parameters), graph, header.candidates, header.measured)
    return HnswIndex(dimension, state=state), header.commit_stamp


def space_of(path: Path) -> str | None:
    """The space of a snapshot's vectors; None where its header can't be read."""
    try:
        with path.open("rb") as file:
            _, version, length = _PREFIX.unpack(file.read(_PREFIX.size))
            return _header(file.read(length)).space_id if version == VERSION else None
    except (OSError, struct.error, SnapshotDamaged):
        return None


class _Hashed:
    """A file that is hashed while it is written."""

    def __init__(self, file: io.BufferedIOBase) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def write(self, data: bytes | memoryview) -> None:
        self.digest.update(data)
        self._file.write(data)


def _write(
    file: io.BufferedIOBase, state: HnswState, graph_file: Path, space_id: str, commit_stamp: int
) -> None:
    graph = state.graph
    header = _Header(
        space_id=space_id,
        dimension=state.rows.dimension,
        count=state.rows.count,
        commit_stamp=commit_stamp,
        end=state.rows.end,
        candidates=state.candidates,
        measured=state.measured,
        parameters=asdict(state.parameters),
        nodes=graph.used if graph else 0,
        capacity=len(graph.labels) if graph else 0,
        graph_bytes=graph_file.stat().st_size if graph else 0,
    )
    text = json.dumps(asdict(header)).encode()
    out = _Hashed(file)
    out.write(_PREFIX.pack(MAGIC, VERSION, len(text)))
    out.write(text)
    for part in state.rows.parts():
        out.write(_bytes(part))
    if graph is not None:
        out.write(_bytes(graph.labels[: graph.used]))
        for piece in _pieces(graph_file):
            out.write(piece)
    file.write(out.digest.digest())


def _checked_header(file: io.BufferedIOBase, space_id: str, dimension: int) -> _Header:
    """The header of a whole file, which is then positioned after it."""
    prefix = file.read(_PREFIX.size)
    if len(prefix) < _PREFIX.size or not prefix.startswith(MAGIC):
        raise SnapshotDamaged("not a snapshot of a vector index")
    _, version, length = _PREFIX.unpack(prefix)
    if version != VERSION:
        raise SnapshotDamaged(f"a snapshot of version {version}; this server reads version {VERSION}")
    _check_digest(file)
    file.seek(_PREFIX.size)
    header = _header(file.read(length))
    if (header.space_id, header.dimension) != (space_id, dimension):
        raise SnapshotDamaged(
            f"a snapshot of space {header.space_id!r} with {header.dimension} numbers, "
            f"not of {space_id!r} with {dimension}"
        )
    return header


def _header(text: bytes) -> _Header:
    """A header that names what this build's does, with parameters that this build knows."""
    try:
        header = _Header(**json.loads(text))
        HnswParameters(**header.parameters)
    except (TypeError, ValueError) as error:
        raise SnapshotDamaged(f"a snapshot of another build: {error}") from error
    return header


def _check_digest(file: io.BufferedIOBase) -> None:
    size = file.seek(0, os.SEEK_END)
    left = max(size - _DIGEST_BYTES, 0)
    file.seek(0)
    digest = hashlib.sha256()
    while left:
        piece = file.read(min(left, _PIECE_BYTES))
        if not piece:
            break
        digest.update(piece)
        left -= len(piece)
    if file.read() != digest.digest():
        raise SnapshotDamaged("the snapshot is cut short or changed: its checksum does not fit")


def _read_graph(file: io.BufferedIOBase, header: _Header, graph_file: Path) -> Graph:
    if not hnsw_available():
        raise SnapshotDamaged("the snapshot holds a graph, and hnswlib is not installed")
    parameters = HnswParameters(**header.parameters)
    labels = np.empty(header.nodes, np.int64)
    _fill(file, labels)
    try:
        with graph_file.open("wb") as out:
            left = header.graph_bytes
            while left:
                piece = file.read(min(left, _PIECE_BYTES))
                out.write(piece)
                left -= len(piece)
        saved = SavedGraph(graph_file, labels)
        return Graph(header.dimension, parameters, header.capacity, saved)
    except ValueError as error:
        raise SnapshotDamaged(f"the graph in the snapshot is of another kind: {error}") from error
    finally:
        graph_file.unlink(missing_ok=True)


def _fill(file: io.BufferedIOBase, array: NDArray[Any]) -> None:
    view = memoryview(_bytes(array))
    while len(view):
        read = file.readinto(view)
        if not read:
            raise SnapshotDamaged("the snapshot ends before its parts do")
        view = view[read:]


def _bytes(array: NDArray[Any]) -> memoryview:
    """The memory of a contiguous array, to be read or written."""
    return array.data.cast("B") if array.size else memoryview(b"")


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(f"{path.name}.{suffix}")


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
