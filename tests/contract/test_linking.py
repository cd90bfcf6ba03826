"""Links of what devices write, and of what was stored before there were entities, on both databases."""

from __future__ import annotations

import threading
from typing import Any

from scrubjay import v1
from scrubjay.memory import PrivacyLevel
from server.linking import Linker
from server.store.memory_store import Writing
from server.store.tables import unlinked
from tests.devices import KEY, Device, Server


def names(server: Server, client_id: str = "web") -> dict[str, int]:
    """How many memories mention each entity but the subject, as a client sees it."""
    request = v1.ListEntitiesRequest(user_id="alice")
    found = server.memories.list_entities(request, server.service(client_id)).entities
    return {one.name: one.memory_count for one in found if one.kind != v1.ENTITY_KIND_SUBJECT}


def relations(server: Server, client_id: str = "web") -> set[tuple[str, str]]:
    request = v1.ListRelationsRequest(user_id="alice")
    found = server.memories.list_relations(request, server.service(client_id)).relations
    return {(one.relation, one.object.name) for one in found}


def test_what_a_device_creates_edits_and_deletes_is_linked(server: Server, phone: Device) -> None:
    made = phone.create("I work at Acme.")
    other = phone.create("I met Rosa.")
    phone.sync(made, other)
    assert names(server) == {"Acme": 1, "Rosa": 1}
    assert relations(server) == {("works_at", "Acme")}
    phone.sync(phone.set(made.memory_id, {"content": "I live in Oslo."}))
    assert names(server) == {"Oslo": 1, "Rosa": 1}
    assert relations(server) == {("lives_in", "Oslo")}
    phone.sync(phone.set(made.memory_id, {"pinned": True}))
    assert names(server) == {"Oslo": 1, "Rosa": 1}
    phone.sync(phone.delete(made.memory_id))
    assert names(server) == {"Rosa": 1}
    assert relations(server) == set()


def test_a_create_and_its_edit_and_delete_in_one_batch_leave_no_link(server: Server, phone: Device) -> None:
    edited, deleted = phone.create("I work at Acme."), phone.create("I work at Globex.")
    phone.sync(
        edited,
        deleted,
        phone.set(edited.memory_id, {"content": "I live in Oslo."}),
        phone.delete(deleted.memory_id),
    )
    assert names(server) == {"Oslo": 1}
    assert relations(server) == {("lives_in", "Oslo")}


def test_an_edit_that_waited_for_its_memory_is_linked(server: Server, phone: Device, laptop: Device) -> None:
    made = phone.create("I work at Acme.")
    laptop.sync(laptop.set(made.memory_id, {"content": "I live in Oslo."}, stamp=laptop.stamp(5)))
    server.wait(10)
    phone.sync(made)
    assert names(server) == {"Oslo": 1}


def test_a_device_s_private_memory_is_its_own(server: Server, phone: Device) -> None:
    phone.sync(phone.create("I work at Acme.", privacy_level=PrivacyLevel.PRIVATE))
    assert names(server, "phone") == {"Acme": 1}
    assert names(server) == {}
    assert relations(server) == set()


# --- from before ----------------------------------------------------------------------------------


def age(server: Server) -> None:
    """Make the stored what a version without entities left behind."""

    def unit(writing: Writing) -> None:
        ids = [stored.memory.id for stored in writing.page(KEY, None, 1000)]
        writing.unlink(KEY, ids)
        transaction: Any = writing._transaction
        transaction.run(unlinked.insert(), {"incarnation": KEY.incarnation, "stream": KEY.stream})

    server.store.write([KEY], unit)


def search(server: Server, query: str) -> dict[str, float]:
    """What the entity arm measures of each memory."""
    request = v1.SearchRequest(user_id="alice", query=query, recipe="hybrid-v3", explain=True)
    response = v1.SearchResponse.FromString(server.memories.search(request, server.service()))
    return {
        hit.memory.content: part.measure
        for hit in response.hits
        for part in hit.explanation.contributions
        if part.arm == "entity"
    }


def test_what_was_stored_before_is_linked_once(server: Server, phone: Device) -> None:
    phone.sync(*(phone.create(f"On day {n} I met Rosa.") for n in range(30)), phone.create("Tea is good."))
    age(server)
    assert names(server) == {}
    assert set(search(server, "Rosa").values()) == {0}
    head = server.shard.head(KEY)
    linker = Linker([server.shard])
    assert linker.run(threading.Event()) == 1
    assert names(server) == {"Rosa": 30}
    assert max(search(server, "Rosa").values()) > 0
    assert server.shard.head(KEY) == head
    assert linker.run(threading.Event()) == 0


def test_linking_stops_when_the_server_ends_and_goes_on_later(server: Server, phone: Device) -> None:
    phone.sync(phone.create("I met Rosa."))
    age(server)
    ending = threading.Event()
    ending.set()
    assert Linker([server.shard]).run(ending) == 0
    assert names(server) == {}
    assert Linker([server.shard]).run(threading.Event()) == 1
    assert names(server) == {"Rosa": 1}


def test_what_is_written_meanwhile_is_linked_once(server: Server, phone: Device) -> None:
    phone.sync(phone.create("I met Rosa."))
    age(server)
    phone.sync(phone.create("I met Rosa again."))
    assert names(server) == {"Rosa": 1}
    Linker([server.shard]).run(threading.Event())
    assert names(server) == {"Rosa": 2}
