"""Whom and what a model says that a memory names, beside what the rules read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.ingest.chat.naming import named
from server.ingest.entities.entity import NOTHING, SUBJECT, Claim, EntityKind, Mention, Named
from server.ingest.entities.extraction import extract

TEXT = "My sister Zelda plays the viola in the Kestrel Quartet."
ZELDA = Mention("Zelda", EntityKind.PERSON)
QUARTET = Mention("Kestrel Quartet", EntityKind.ORGANISATION)
ENTITIES = [{"name": "Zelda", "kind": "PERSON"}, {"name": "Kestrel Quartet", "kind": "organisation"}]


def relation(subject: object, verb: object, thing: object, **more: object) -> dict[str, object]:
    return {"subject": subject, "relation": verb, "object": thing, **more}


def test_names_and_relations_are_those_of_the_text() -> None:
    told = [relation("self", "sister", "Zelda"), relation("Zelda", "plays in", "Kestrel Quartet")]
    found = named({"entities": ENTITIES, "relations": told}, TEXT)
    assert found.mentions == (ZELDA, QUARTET, SUBJECT)
    assert found.claims == (Claim(SUBJECT, "sister", ZELDA), Claim(ZELDA, "plays_in", QUARTET))


@pytest.mark.parametrize(
    "item",
    [
        {"entities": [{"name": "Anna", "kind": "PERSON"}]},
        {"entities": [{"name": "Zeld", "kind": "PERSON"}]},
        {"relations": [relation("self", "sister", "Anna")]},
        {"relations": [relation("Zelda", "sister", "Zelda")]},
        {"relations": [relation("self", "is the sister; of", "Zelda")]},
        {"relations": [relation("self", None, "Zelda"), relation(None, "sister", "Zelda"), "sister", 7]},
        {"entities": "Zelda", "relations": {"self": "Zelda"}},
    ],
)
def test_what_the_text_does_not_bear_out_is_dropped(item: dict[str, Any]) -> None:
    assert named(item, TEXT) == NOTHING


def test_a_chinese_name_and_one_that_is_told_alone() -> None:
    item = {"entities": ["小红"], "relations": [relation("我", "lives_in", "杭州", ended="true")]}
    found = named(item, "我和小红以前住在杭州。")
    place = Mention("杭州", EntityKind.THING)
    assert found.mentions == (Mention("小红", EntityKind.NAME), SUBJECT, place)
    assert found.claims == (Claim(SUBJECT, "lives_in", place, ended=True),)


def test_the_rules_and_the_model_are_joined() -> None:
    read = extract("My sister Anna lives in Boston.")
    told = Named(
        (Mention("anna", EntityKind.NAME), Mention("Boston", EntityKind.THING), QUARTET),
        (Claim(SUBJECT, "sister", Mention("anna", EntityKind.NAME)), Claim(SUBJECT, "misses", QUARTET)),
    )
    joined = read.joined(told, mentions=32, claims=16)
    assert joined.mentions == (*read.mentions, QUARTET)
    assert joined.claims == (*read.claims, Claim(SUBJECT, "misses", QUARTET))


def test_of_one_entity_the_surer_kind_stands_and_what_is_too_much_is_left_out() -> None:
    read = Named((Mention("Zelda", EntityKind.NAME),))
    told = Named(
        (ZELDA, QUARTET, SUBJECT), (Claim(ZELDA, "plays_in", QUARTET), Claim(SUBJECT, "likes", ZELDA))
    )
    joined = read.joined(told, mentions=2, claims=1)
    assert joined.mentions == (ZELDA, QUARTET)
    assert joined.claims == (Claim(ZELDA, "plays_in", QUARTET),)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(["Zelda", "self", "", "\0", "\ud800", "viola"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "kind", "subject", "relation", "object", "ended"]), inner)
    ),
    max_leaves=8,
)


@given(st.fixed_dictionaries({"entities": JSON, "relations": JSON}))
def test_whatever_a_model_says_each_claim_is_of_what_is_mentioned(item: dict[str, Any]) -> None:
    found = named(item, TEXT)
    assert all(mention == SUBJECT or mention.name in TEXT for mention in found.mentions)
    assert {one for claim in found.claims for one in (claim.subject, claim.object)} <= set(found.mentions)
