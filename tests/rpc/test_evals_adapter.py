"""The adapter that runs an evaluation harness through the server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from bench.evals import Item, Server
from scrubjay import v1

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
