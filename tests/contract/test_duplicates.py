"""The same said again, on both databases, where devices take part."""

from __future__ import annotations

from typing import Any

from scrubjay import v1
from scrubjay.memory import PrivacyLevel, new_memory_id
from tests.devices import NOW, Device, Server, short


def add(server: Server, content: str, **fields: Any) -> v1.AddResult:
    memory = v1.Memory(user_id="alice", content=content, **fields)
    (result,) = server.memories.add(v1.AddRequest(memories=[memory]), server.service()).results
    return result


def test_what_a_device_made_is_found_by_a_backend_that_says_it_again(server: Server, phone: Device) -> None:
    made = phone.create("I like tea.")
    phone.sync(made)
    result = add(server, "i like TEA")
    assert (result.status, result.memory.id) == (v1.ADD_STATUS_DUPLICATE, made.memory_id)
    assert phone.pull() == []


def test_what_is_said_again_in_other_words_reaches_devices_as_an_edit(
    server: Server, phone: Device, laptop: Device
) -> None:
    made = phone.create("I like tea.")
    phone.sync(made)
    laptop.pull()
    assert add(server, "I really like tea").status == v1.ADD_STATUS_MERGED_INTO
    assert laptop.pull() == []
    assert add(server, "I like tea", tags=["drinks"]).status == v1.ADD_STATUS_MERGED_INTO
    for device in (phone, laptop):
        (told,) = device.pull()
        assert list(told.change.memory.tags) == ["drinks"]


def test_what_a_device_made_private_is_not_found_by_a_backend(server: Server, phone: Device) -> None:
    made = phone.create("I like tea.", privacy_level=PrivacyLevel.PRIVATE)
    phone.sync(made)
    for level in (v1.PRIVACY_LEVEL_SHARED, v1.PRIVACY_LEVEL_PRIVATE):
        result = add(server, "I like tea.", privacy_level=level)
        assert result.status == v1.ADD_STATUS_ADDED
        assert result.memory.id != made.memory_id


def test_an_id_that_an_edit_waits_for_is_made_though_its_text_is_known(
    server: Server, phone: Device, laptop: Device
) -> None:
    phone.sync(phone.create("I like tea."))
    laptop.pull()
    memory_id = new_memory_id(NOW // 1000, b"0123456789")
    server.wait()
    early = laptop.set(memory_id, {"content": "I like rice."}, stamp=laptop.stamp(30))
    assert laptop.sync(early).statuses == ["PENDING_CREATE"]
    result = add(server, "I like tea.", id=memory_id)
    assert (result.status, result.memory.content) == (v1.ADD_STATUS_ADDED, "I like rice.")
    assert short(laptop.pull()) == ["WHOLE I like rice."]
