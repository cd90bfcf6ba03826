"""Storing memories, in this device's replica or through a server; what is there already is left alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeAlias

from google.rpc import code_pb2

from client_sync.errors import ReplicaUnwritable
from client_sync.importing.patience import patiently
from client_sync.importing.skipping import Place, Reason, Skipped
from client_sync.importing.tally import Tally
from client_sync.local_memories import LocalMemories
from client_sync.session import Session
from scrubjay import v1
from scrubjay.errors import InvalidField, MemoryExists, NotFound

Placed: TypeAlias = tuple[Place, v1.Memory]

MAX_BATCH = 100
"""Memories in one Add, as the contract has it."""
ADD_SECONDS = 120.0
"""How long a server may take for one: a slow embedding model, and 100 of the longest texts."""


_ITS_PLACE = re.compile(r"memories\[\d+\]\.")
"""Where a memory stood in the request, which nobody saw."""


def store(session: Session, batch: Sequence[Placed], tally: Tally, dedup: v1.Dedup.ValueType) -> None:
    """Store at most ``MAX_BATCH`` memories whose ids are not there yet. ScrubjayError, ReplicaUnwritable.

    ``dedup`` says whether a server stores what another memory says too; a device always does.
    """
    unique: dict[str, Placed] = {}
    for place, memory in batch:
        unique.setdefault(memory.id, (place, memory))
    there = _present(session, list(unique))
    tally.already_there += len(batch) - len(unique) + len(there)
    new = [placed for memory_id, placed in unique.items() if memory_id not in there]
    if new:
        tally.leave_out(_added(session, new, tally, dedup))


def _present(session: Session, ids: Sequence[str]) -> set[str]:
    """Those of the ids of which there is a memory."""
    if session.local is not None:
        return {memory_id for memory_id in ids if _is_here(session.local, memory_id)}
    assert session.remote is not None
    get, request = session.remote.memories.BatchGet, v1.BatchGetRequest(ids=ids)
    response = patiently(lambda: session.call(get, request))
    return {memory.id for memory in response.memories}


def _is_here(local: LocalMemories, memory_id: str) -> bool:
    try:
        local.replica.get(memory_id)
    except NotFound:
        return False
    return True


def _added(
    session: Session, batch: Sequence[Placed], tally: Tally, dedup: v1.Dedup.ValueType
) -> Iterator[Skipped]:
    """Add the memories, and give what was refused."""
    request = v1.AddRequest(memories=[memory for _, memory in batch], dedup=dedup)
    try:
        results = patiently(lambda: session.call(_add_of(session), request)).results
    except (MemoryExists, InvalidField) as error:
        # None could be stored, and the error is of one or of all: half of them says more.
        if len(batch) == 1:
            yield _refused(batch[0][0], error.code, error.reason, error.message)
            return
        for half in (batch[: len(batch) // 2], batch[len(batch) // 2 :]):
            yield from _added(session, half, tally, dedup)
        return
    for (place, _), result in zip(batch, results, strict=True):
        if result.HasField("error"):
            yield _refused(place, result.error.code, result.error.reason, result.error.message)
        elif result.status > v1.ADD_STATUS_ADDED:
            tally.duplicates += 1
        else:
            tally.imported += 1


def _add_of(session: Session) -> Callable[[v1.AddRequest], v1.AddResponse]:
    if session.remote is None:
        return session.memories.Add
    return partial(session.remote.memories.Add, timeout=ADD_SECONDS)


def _refused(place: Place, code: int, reason: v1.ErrorReason.ValueType, message: str) -> Skipped:
    if reason == v1.ERROR_REASON_MEMORY_EXISTS:
        return Skipped(place, Reason.ID_TAKEN, "its id is that of a deleted memory, or of one not shown here")
    if code == code_pb2.UNAVAILABLE:  # the replica's file, of which no more can be written
        raise ReplicaUnwritable(message)
    return Skipped(place, Reason.REFUSED, _ITS_PLACE.sub("", message))
