"""Placement: stable, balanced, and a new shard takes only its own share."""

from __future__ import annotations

import random
import uuid
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenants.placement import place
from tenants.tenant import Incarnation

PLACED = ["shard-1", "shard-2", "shard-1", "shard-2", "shard-0", "shard-2", "shard-2", "shard-2"]

incarnations = st.uuids().map(lambda value: Incarnation(str(value)))
shard_names = st.sets(st.text(min_size=1, max_size=12), min_size=1, max_size=8)


def many_incarnations(count: int) -> list[Incarnation]:
    source = random.Random(7)
    return [Incarnation(str(uuid.UUID(int=source.getrandbits(128)))) for _ in range(count)]


@given(incarnations, shard_names, st.randoms())
def test_the_order_of_the_shards_does_not_matter(
    incarnation: Incarnation, names: set[str], source: random.Random
) -> None:
    shuffled = sorted(names)
    source.shuffle(shuffled)
    assert place(incarnation, shuffled) == place(incarnation, names)
    assert place(incarnation, names) in names


@given(incarnations, shard_names, st.text(min_size=1, max_size=12))
def test_another_shard_only_takes_over(incarnation: Incarnation, names: set[str], another: str) -> None:
    before = place(incarnation, names - {another} or {"first"})
    after = place(incarnation, (names - {another} or {"first"}) | {another})
    assert after in {before, another}


@given(incarnations, shard_names)
def test_a_tenant_stays_where_it_is_when_some_other_shard_leaves(
    incarnation: Incarnation, names: set[str]
) -> None:
    home = place(incarnation, names)
    for leaving in names - {home}:
        assert place(incarnation, names - {leaving}) == home


def test_shards_get_equal_shares_and_a_fifth_one_moves_a_fifth() -> None:
    tenants = many_incarnations(4_000)
    four = [f"shard-{number}" for number in range(4)]
    before = {tenant: place(tenant, four) for tenant in tenants}
    assert all(850 <= count <= 1_150 for count in Counter(before.values()).values())

    after = {tenant: place(tenant, [*four, "shard-4"]) for tenant in tenants}
    moved = [tenant for tenant in tenants if before[tenant] != after[tenant]]
    assert {after[tenant] for tenant in moved} == {"shard-4"}
    assert 650 <= len(moved) <= 950


def test_the_answer_is_the_same_in_every_release() -> None:
    names = ["shard-0", "shard-1", "shard-2", "shard-3"]
    found = [place(tenant, names) for tenant in many_incarnations(8)]
    assert found == PLACED


def test_no_shard_is_an_error() -> None:
    with pytest.raises(ValueError, match="configure one"):
        place(Incarnation("a"), [])
