"""The laws of the join, on few and colliding edits."""

from __future__ import annotations

from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrubjay.memory import ClientId, Memory, PrivacyLevel, Source, canonical_json, normal_metadata
from scrubjay.merge import (
    Outcome,
    State,
    Write,
    apply,
    create,
    get,
    is_register,
    join,
    join_counts,
    registers,
)
from scrubjay.stamp import Stamp
from tests.strategies import EMPTY, OWNER, REPLICAS, memories, replicas, stamps, states, writes, written

edits = st.lists(writes(), max_size=8)
counts = st.dictionaries(replicas, st.integers(0, 3))


def bytes_of(state: State) -> tuple[dict[str, str], dict[str, Stamp]]:
    """The state in a form in which 1, 1.0 and true differ."""
    values = {field: canonical_json(value) for field, value in registers(state.memory)}
    return values, dict(state.stamps)


@given(states, states)
def test_join_is_commutative(one: State, other: State) -> None:
    assert bytes_of(join(one, other)) == bytes_of(join(other, one))


@given(states, states, states)
def test_join_is_associative(one: State, two: State, three: State) -> None:
    assert bytes_of(join(join(one, two), three)) == bytes_of(join(one, join(two, three)))


@given(states, states)
def test_join_is_idempotent(one: State, other: State) -> None:
    assert bytes_of(join(one, one)) == bytes_of(one)
    joined = join(one, other)
    assert bytes_of(join(joined, other)) == bytes_of(joined)


@given(edits, st.data())
def test_any_order_and_repetition_of_edits_gives_one_state(found: list[Write], data: st.DataObject) -> None:
    repeated = data.draw(st.permutations([*found, *data.draw(st.lists(st.sampled_from(found or [None])))]))
    again = [write for write in repeated if write is not None]
    assert bytes_of(written(again)) == bytes_of(written(found))


@given(edits, st.integers(0, 8))
def test_batches_give_what_one_batch_gives(found: list[Write], cut: int) -> None:
    first, _ = apply(EMPTY, found[:cut], OWNER)
    second, _ = apply(first, found[cut:], OWNER)
    assert bytes_of(second) == bytes_of(written(found))


@given(edits)
def test_applying_edits_is_joining_what_each_makes_alone(found: list[Write]) -> None:
    alone = [written([write]) for write in found]
    assert bytes_of(reduce(join, alone, EMPTY)) == bytes_of(written(found))


@given(states, edits)
def test_a_joined_state_takes_edits_as_its_parts_do(state: State, found: list[Write]) -> None:
    applied, _ = apply(state, found, OWNER)
    assert bytes_of(applied) == bytes_of(join(state, written(found)))


@given(edits)
def test_a_value_never_stands_while_an_accepted_edit_has_it_as_base(found: list[Write]) -> None:
    state = written(found)
    assert [write for write in found if state.stamps[write.field] == write.base] == []


@given(edits)
def test_every_register_ends_with_its_highest_stamp(found: list[Write]) -> None:
    state = written(found)
    for write in found:
        assert state.stamps[write.field] == max(w.stamp for w in found if w.field == write.field)
    assert set(state.stamps) == {write.field for write in found}


@given(edits)
def test_results_tell_what_stands_after_each_edit(found: list[Write]) -> None:
    state = EMPTY
    _, results = apply(EMPTY, found, OWNER)
    for write, result in zip(found, results, strict=True):
        before = state
        state, _ = apply(state, [write], OWNER)
        assert result.write is write
        assert canonical_json(result.old_value) == canonical_json(get(before.memory, write.field))
        assert result.standing == state.stamps[write.field]
        if result.outcome is Outcome.SUPERSEDED:
            assert bytes_of(state) == bytes_of(before)
        else:
            assert result.standing == write.stamp
        if result.outcome is Outcome.APPLIED_CONCURRENT:
            assert write.base != before.stamps.get(write.field)


@given(edits)
def test_a_foreign_client_never_changes_privacy(found: list[Write]) -> None:
    state, results = apply(EMPTY, found, ClientId("laptop"))
    assert state.memory.privacy_level is EMPTY.memory.privacy_level
    assert "privacy_level" not in state.stamps
    refused = [r.outcome for r in results if r.write.field == "privacy_level"]
    assert set(refused) <= {Outcome.SUPERSEDED}


@given(stamps, st.permutations(list(PrivacyLevel)), st.integers(2, 3))
def test_on_equal_stamps_the_more_private_level_wins(
    stamp: Stamp, order: list[PrivacyLevel], count: int
) -> None:
    state = written([Write("privacy_level", int(level), stamp, None) for level in order[:count]])
    assert state.memory.privacy_level is min(order[:count])


@given(edits)
def test_every_value_stands_in_its_one_form(found: list[Write]) -> None:
    memory = written(found).memory
    assert isinstance(memory.confidence, float)
    assert canonical_json(memory.metadata) == canonical_json(normal_metadata(memory.metadata))


@given(states, states)
def test_what_never_changes_is_the_same_after_every_join(one: State, other: State) -> None:
    memory = join(one, other).memory
    fixed = ("id", "user_id", "agent_id", "run_id", "owner_client_id", "created_at")
    assert [getattr(memory, name) for name in fixed] == [getattr(EMPTY.memory, name) for name in fixed]


@given(st.permutations(range(16)), st.integers(1, 16))
def test_sixteen_edits_of_sixteen_keys_all_survive(order: list[int], batch: int) -> None:
    edits = [Write(f"metadata.k{n}", n, Stamp(1 + n % 3, REPLICAS[n % 3]), None) for n in order]
    state, outcomes = EMPTY, []
    for at in range(0, 16, batch):
        state, results = apply(state, edits[at : at + batch], OWNER)
        outcomes += [result.outcome for result in results]
    assert state.memory.metadata == {f"k{n}": n for n in range(16)}
    assert set(outcomes) == {Outcome.APPLIED}


@given(st.booleans(), stamps, stamps, st.sampled_from(["tags.a", "metadata.a"]))
def test_removal_and_return_are_decided_by_their_stamps(
    removed_first: bool, one: Stamp, other: Stamp, field: str
) -> None:
    set_at, removed_at = (other, one) if removed_first else (one, other)
    both = [Write(field, True, set_at, None), Write(field, None, removed_at, None)]
    there = set_at >= removed_at  # where the two stamps are one, the larger value stands
    for order in (both, both[::-1]):
        state = written(order)
        assert get(state.memory, field) == (True if there else None)
        assert state.stamps[field] == max(one, other)


@given(counts, counts, counts)
def test_join_of_counts_is_a_maximum_by_replica(
    one: dict[bytes, int], two: dict[bytes, int], three: dict[bytes, int]
) -> None:
    assert join_counts(one, two) == join_counts(two, one)
    assert join_counts(join_counts(one, two), three) == join_counts(one, join_counts(two, three))
    assert join_counts(one, one) == one
    for replica, count in join_counts(one, two).items():
        assert count == max(one.get(replica, 0), two.get(replica, 0))
    assert sum(join_counts(one, two).values()) >= max(sum(one.values()), sum(two.values()))


# --- what becomes of an edit, by example -------------------------------------------------------------

SEEN, MISSED, LATE = (Stamp(n, REPLICAS[0]) for n in (1, 2, 3))


@pytest.mark.parametrize(
    ("stamp", "base", "outcome"),
    [
        (LATE, MISSED, Outcome.APPLIED),
        (LATE, SEEN, Outcome.APPLIED_CONCURRENT),
        (LATE, None, Outcome.APPLIED_CONCURRENT),
        (SEEN, None, Outcome.SUPERSEDED),
    ],
)
def test_the_base_stamp_tells_an_overwrite_from_a_concurrent_edit(
    stamp: Stamp, base: Stamp | None, outcome: Outcome
) -> None:
    state = written([Write("content", "stands", MISSED, None)])
    edited, (result,) = apply(state, [Write("content", "new", stamp, base)], OWNER)
    assert (result.outcome, result.old_value) == (outcome, "stands")
    assert edited.memory.content == ("stands" if outcome is Outcome.SUPERSEDED else "new")
    assert result.standing == max(stamp, MISSED)


def test_the_first_edit_of_a_register_is_clean_and_its_repetition_too() -> None:
    write = Write("metadata.city", "Köln", LATE, None)
    _, results = apply(EMPTY, [write, write], OWNER)
    assert [(r.outcome, r.old_value) for r in results] == [(Outcome.APPLIED, None), (Outcome.APPLIED, "Köln")]


def test_a_clock_that_edits_a_state_advances_past_every_stamp_in_it() -> None:
    assert EMPTY.latest() is None
    assert written([Write("tags.a", True, LATE, None), Write("tags.b", True, SEEN, None)]).latest() == LATE


@pytest.mark.parametrize("base", [MISSED, LATE])
def test_a_stamp_is_later_than_its_base(base: Stamp) -> None:
    with pytest.raises(ValueError, match="not later"):
        Write("content", "x", MISSED, base)


@pytest.mark.parametrize(
    "field", ["", "colour", "tags", "tags.", "metadata.", "created_at", "content.x", "id"]
)
def test_what_is_no_register_is_neither_written_nor_read(field: str) -> None:
    with pytest.raises(ValueError, match="no register"):
        Write(field, "x", MISSED, None)
    with pytest.raises(KeyError):
        get(EMPTY.memory, field)
    assert not is_register(field)


@given(memories)
def test_a_new_memory_has_one_stamp_on_every_value(memory: Memory) -> None:
    state = create(memory, LATE)
    assert state.stamps == {field: LATE for field, _ in registers(state.memory)}
    assert {"content", "confidence", "pinned", "privacy_level"} <= state.stamps.keys()
    assert ("source" in state.stamps) is (memory.source != Source())
    assert bytes_of(join(state, EMPTY)) == bytes_of(state)
    assert isinstance(state.memory.confidence, float)
    assert canonical_json(state.memory.metadata) == canonical_json(normal_metadata(memory.metadata))


@given(memories)
def test_every_register_can_be_cleared(memory: Memory) -> None:
    state = create(memory, SEEN)
    cleared, results = apply(state, [Write(field, None, LATE, SEEN) for field in state.stamps], OWNER)
    assert {result.outcome for result in results} == {Outcome.APPLIED}
    assert bytes_of(cleared)[0] == bytes_of(EMPTY)[0]
