"""Hypothesis strategies for the values: few and colliding, so that edits meet."""

from __future__ import annotations

from hypothesis import strategies as st

from scrubjay.memory import ClientId, JsonValue, Memory, MemoryId, Micros, PrivacyLevel, Source
from scrubjay.merge import State, Write, apply
from scrubjay.stamp import ReplicaId, Stamp

OWNER = ClientId("phone")
ID = MemoryId("019ad1c0-0000-7000-8000-000000000001")
SUCCESSOR = MemoryId("019ad1c0-0000-7000-8000-000000000002")
REPLICAS = [ReplicaId(bytes([n]) * 16) for n in (1, 2, 255)]
EMPTY = State(Memory(ID, "", Micros(0), user_id="alice", owner_client_id=OWNER), {})
"""A memory in which nothing was ever written."""

replicas = st.sampled_from(REPLICAS)
stamps = st.builds(Stamp, st.integers(0, 5), replicas)
any_stamps = st.builds(
    Stamp,
    st.integers(0, 253_402_300_799_999 << 16 | 0xFFFF),
    st.binary(min_size=16, max_size=16).map(ReplicaId),
)

json_scalars: st.SearchStrategy[JsonValue] = st.sampled_from(
    [True, False, 0, 1, 1.0, -0.0, 1.5, 2**53 + 1, "", "a", "A", "b", "1"]
)
json_values: st.SearchStrategy[JsonValue] = st.recursive(
    json_scalars,
    lambda inner: st.lists(inner | st.none(), max_size=2) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=3,
)

micros = st.sampled_from([Micros(n) for n in (-1, 0, 1, 2**53 + 1)])
tags = st.sampled_from(["a", "b", "a.b"])
texts = st.sampled_from(["tea", "Tea", "绿茶"])
names = st.sampled_from(["", "a", "A", "ab"])
sources = st.builds(
    Source,
    client_id=names,
    conversation_id=names,
    message_ids=st.lists(st.sampled_from("mn"), max_size=2).map(tuple),
    role=names,
    trust_class=names,
)
memories = st.builds(
    Memory,
    id=st.just(ID),
    content=texts,
    created_at=micros,
    user_id=names,
    agent_id=names,
    run_id=names,
    owner_client_id=st.just(OWNER),
    scope=st.sampled_from(["general", "work", "work/a"]),
    category=st.sampled_from(["FACT", "TASK"]),
    tags=st.frozensets(tags),
    metadata=st.dictionaries(tags, json_values, max_size=2),
    source=sources,
    confidence=st.sampled_from([0, 0.5, 1, 1.0]),
    privacy_level=st.sampled_from([PrivacyLevel.PRIVATE, PrivacyLevel.SHARED]),
    pinned=st.booleans(),
    valid_from=st.none() | micros,
    valid_to=st.none() | micros,
    expires_at=st.none() | micros,
    superseded_by=st.none() | st.just(SUCCESSOR),
)

_source_values: st.SearchStrategy[JsonValue] = st.fixed_dictionaries(
    {}, optional={"role": names, "message_ids": st.lists(st.sampled_from("mn"), max_size=1)}
)
_values: dict[str, st.SearchStrategy[JsonValue]] = {
    "content": texts,
    "confidence": st.sampled_from([0, 0.5, 1, 1.0]),
    "valid_from": st.none() | micros,
    "superseded_by": st.none() | st.just(SUCCESSOR),
    "pinned": st.booleans() | st.none(),
    "source": st.none() | _source_values,
    "privacy_level": st.sampled_from(list(PrivacyLevel)).map(int),
    "tags.a": st.booleans() | st.none(),
    "tags.a.b": st.booleans(),
    "metadata.a": st.none() | json_values,
    "metadata.a.b": st.none() | json_values,
}


@st.composite
def writes(draw: st.DrawFn) -> Write:
    """One edit, its base any earlier stamp; two may share a stamp and differ, as only hostile ones do."""
    field = draw(st.sampled_from(sorted(_values)))
    value = draw(_values[field])
    stamp, other = draw(stamps), draw(st.none() | stamps)
    return Write(field, value, stamp, other if other is not None and other < stamp else None)


def written(edits: list[Write]) -> State:
    """What the owner's edits make of a memory in which nothing was written."""
    state, _ = apply(EMPTY, edits, OWNER)
    return state


states = st.lists(writes(), max_size=6).map(written)
