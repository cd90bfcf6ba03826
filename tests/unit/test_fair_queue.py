"""Waiting in turns."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.fair_queue import FairQueue

Item = tuple[str, int]

owners = st.sampled_from("abcd")
sizes = st.integers(0, 12)


def drained(queue: FairQueue[Item]) -> list[Item]:
    items = []
    while (item := queue.take()) is not None:
        items.append(item)
    return items


def test_owners_take_turns_and_keep_their_order() -> None:
    queue: FairQueue[Item] = FairQueue(10)
    for item in (("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2), ("c", 1)):
        assert queue.put(item[0], item) is None
    assert drained(queue) == [("a", 1), ("b", 1), ("c", 1), ("a", 2), ("b", 2), ("a", 3)]


def test_who_comes_anew_waits_for_one_item_of_each_other_owner() -> None:
    queue: FairQueue[Item] = FairQueue(100)
    for owner in "ab":
        for n in range(20):
            queue.put(owner, (owner, n))
    queue.take()
    queue.put("c", ("c", 0))
    assert [queue.take() for _ in range(3)] == [("b", 0), ("a", 1), ("c", 0)]


def test_owners_that_may_not_are_passed_over_and_keep_their_turn() -> None:
    queue: FairQueue[Item] = FairQueue(10)
    for item in (("a", 1), ("b", 1), ("b", 2)):
        queue.put(item[0], item)
    assert queue.take(lambda owner: owner != "a") == ("b", 1)
    assert queue.take(lambda _: False) is None
    assert queue.take() == ("a", 1)
    assert drained(queue) == [("b", 2)]


def test_one_owner_may_fill_it_alone_and_then_makes_room_for_others() -> None:
    queue: FairQueue[Item] = FairQueue(4)
    for n in range(4):
        assert queue.put("a", ("a", n)) is None
    assert queue.put("a", ("a", 4)) == ("a", 4)
    assert queue.put("b", ("b", 0)) == ("a", 3)
    assert queue.put("b", ("b", 1)) == ("a", 2)
    assert queue.put("b", ("b", 2)) == ("b", 2)
    assert drained(queue) == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]


@pytest.mark.parametrize("size", [0, 2])
def test_where_nobody_has_more_the_last_to_come_is_turned_away(size: int) -> None:
    queue: FairQueue[Item] = FairQueue(size)
    for owner in "ab"[:size]:
        queue.put(owner, (owner, 0))
    assert queue.put("c", ("c", 0)) == ("c", 0)
    assert len(queue) == size


@given(sizes, st.lists(st.one_of(owners, st.none())))
def test_what_is_taken_or_turned_away_is_what_was_put(size: int, steps: list[str | None]) -> None:
    """An owner's items come out in their order; an owner is turned away only where none has two more."""
    queue: FairQueue[Item] = FairQueue(size)
    waiting: dict[str, list[int]] = defaultdict(list)
    for number, owner in enumerate(steps):
        if owner is None:
            item = queue.take()
            assert (item is None) == (not any(waiting.values()))
            if item is not None:
                assert waiting[item[0]].pop(0) == item[1]
        else:
            waiting[owner].append(number)
            full = sum(map(len, waiting.values())) > size
            away = queue.put(owner, (owner, number))
            assert (away is not None) == full
            if away is not None:
                assert waiting[away[0]].pop() == away[1]
                most = max(map(len, waiting.values()))
                assert len(waiting[away[0]]) + 1 >= most
                assert away[0] == owner or len(waiting[owner]) <= most
        assert len(queue) == sum(map(len, waiting.values())) <= size


@given(st.lists(owners, max_size=60))
def test_no_owner_is_served_twice_while_another_waits(put: list[str]) -> None:
    queue: FairQueue[Item] = FairQueue(60)
    for n, owner in enumerate(put):
        queue.put(owner, (owner, n))
    waiting, served = Counter(put), Counter[str]()
    for owner, _ in drained(queue):
        assert all(served[other] >= served[owner] for other in waiting if served[other] < waiting[other])
        served[owner] += 1
    assert served == waiting
