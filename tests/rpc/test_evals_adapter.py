"""The adapter that runs an evaluation harness through the server."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing

import grpc
import pytest

from bench.evals import PARTS, STEPS, Item, Server, Sums, trials, trying
from scrubjay import v1
from server.recall.recipes import RECIPES

TALK = [
    Item("ann", "I moved to Lisbon", "2023-05-08T13:56:00", "user", "D1:1"),
    Item("ann", "Lisbon is lovely in May", "2023-05-08T13:56:30", "Bea", "D1:2"),
    Item("ann", "The invoice is due on Friday", "2023-05-09T09:00:00", "user", "D2:1"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with closing(Server("hash")) as running:
        yield running


def test_evidence_ids_come_back_best_first(server: Server) -> None:
    system = server.system()
    system.add(TALK)
    assert system.search("ann", "when is the invoice due?", 1) == ["D2:1"]
    assert set(system.search("ann", "Lisbon", 20)) == {"D1:1", "D1:2", "D2:1"}
    assert system.asking("semantic").search("ann", "invoice due on Friday", 1) == ["D2:1"]


def test_a_named_speaker_is_part_of_what_is_remembered(server: Server) -> None:
    system = server.system()
    system.add(TALK)
    assert system.search("ann", "Bea", 1) == ["D1:2"]
    listed = system.memories.List(v1.ListRequest(user_id="ann")).memories
    assert [memory.content for memory in listed if memory.created_at.ToJsonString().endswith("30Z")] == [
        "Bea: Lisbon is lovely in May"
    ]


def test_systems_share_nothing(server: Server) -> None:
    one, other = server.system(), server.system()
    one.add(TALK)
    assert other.search("ann", "Lisbon", 20) == []


def test_the_past_is_what_is_dated_so(server: Server) -> None:
    system = server.system()
    system.add(TALK)
    assert set(system.search("ann", "Lisbon", 20, as_of="2023-05-08T14:00:00")) == {"D1:1", "D1:2"}
    assert system.search("ann", "Lisbon", 20, as_of="2023-05-08T13:55:00") == []


def test_what_several_say_is_a_conversation(server: Server) -> None:
    system = server.system()
    system.add(TALK)
    system.add([TALK[0]._replace(user_id="bob")])
    for user_id, conversation in (("ann", "ann"), ("bob", "")):
        listed = system.memories.List(v1.ListRequest(user_id=user_id)).memories
        assert {memory.source.conversation_id for memory in listed} == {conversation}
    assert {memory.source.role for memory in listed} == {"user"}


def test_an_item_that_the_server_refuses_is_an_error(server: Server) -> None:
    with pytest.raises(RuntimeError, match="not added"):
        server.system().add([TALK[0], TALK[1]._replace(text=" ", speaker="user")])


def test_the_contributions_of_every_hit_are_added_up(server: Server) -> None:
    system, before = server.system(), server.sums.hits
    system.add(TALK)
    system.search("ann", "Lisbon", 20)
    system.asking("semantic").search("ann", "Lisbon", 2)
    assert server.sums.hits == before + 5


def test_a_score_that_nothing_explains_is_an_error() -> None:
    parts = [v1.Contribution(arm="dense", value=0.25), v1.Contribution(arm="lexical", value=0.5)]
    sums, hit = Sums(), v1.SearchHit(score=0.75, explanation=v1.Explanation(contributions=parts))
    sums.check([hit])
    hit.score += 2e-6
    with pytest.raises(ArithmeticError, match=r"add up to 0\.75, not"):
        sums.check([hit])
    hit.score = float("nan")
    with pytest.raises(ArithmeticError, match="nan"):
        sums.check([hit])


def test_each_step_of_the_default_recipe_has_one_part_more() -> None:
    known = {**RECIPES, **trials()}
    parts = [{*known[name].weights, *(["last line"] if known[name].last_line else [])} for name in STEPS[1:]]
    assert all(less < more and len(more - less) == 1 for less, more in itertools.pairwise(parts))
    weights = known["default"].weights
    assert all(known[step].weights.items() <= weights.items() for step in STEPS[1:])
    assert known[STEPS[0]].weights.keys() == known[STEPS[1]].weights.keys()


def test_trial_recipes_answer_while_they_are_tried(server: Server) -> None:
    system = server.system()
    system.add(TALK)
    with trying():
        for recipe in PARTS + STEPS:
            assert set(system.asking(recipe).search("ann", "Lisbon", 20)) == {"D1:1", "D1:2", "D2:1"}
    with pytest.raises(grpc.RpcError, match=r"lexical.* is none of"):
        system.asking("lexical").search("ann", "Lisbon", 20)
