"""The same said again, on both databases, where devices take part."""

from __future__ import annotations

from typing import Any

from scrubjay import v1
from scrubjay.memory import PrivacyLevel, id_text, new_memory_id
from tests.devices import NOW, Device, Server, Synced, short


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


def merged_into(sent: Synced, place: int = 0) -> str:
    """The memory that stands for the one that an operation wanted to make."""
    return id_text(sent.response.results[place].merged_into)


def stored(server: Server) -> dict[str, list[str]]:
    """The ids of what the backend sees, with the tags."""
    listed = server.memories.list(v1.ListRequest(user_id="alice"), server.service())
    return {memory.id: sorted(memory.tags) for memory in v1.ListResponse.FromString(listed).memories}


def test_what_a_device_says_again_is_merged_into_what_it_sees(
    server: Server, phone: Device, laptop: Device
) -> None:
    first = phone.create("I like tea.", tags=frozenset({"drinks"}))
    phone.sync(first)
    again = laptop.create("i really LIKE tea", tags=frozenset({"hot"}))
    sent = laptop.sync(again)
    assert (sent.statuses, merged_into(sent)) == (["MERGED_INTO"], first.memory_id)
    assert "WHOLE I like tea." in sent.short
    assert stored(server) == {first.memory_id: ["drinks", "hot"]}
    (told,) = phone.pull()
    assert (told.memory_id, list(told.change.memory.tags)) == (first.memory_id, ["hot"])
    assert again.memory_id not in [one.memory_id for one in server.device("tablet").pull()]
    history = server.memories.history(v1.HistoryRequest(memory_id=first.memory_id), server.service())
    assert history.entries[0].reason == "said again"


def test_a_repeat_of_what_was_merged_gets_its_first_answer(phone: Device, laptop: Device) -> None:
    first, again = phone.create("I like tea."), laptop.create("I like tea.")
    phone.sync(first)
    laptop.sync(again)
    batch = v1.Batch(operations=laptop.encoded(again))
    (repeat,) = laptop.call(laptop.request(first_number=1, chain=b"", batch=batch)).results
    assert repeat.status == v1.OPERATION_STATUS_DUPLICATE
    assert repeat.first_status == v1.OPERATION_STATUS_MERGED_INTO
    assert id_text(repeat.merged_into) == first.memory_id


def test_edits_of_what_was_merged_go_to_what_stands_and_its_deletion_is_its_own(
    server: Server, phone: Device, laptop: Device
) -> None:
    first, again = phone.create("I like tea."), laptop.create("I like tea.")
    phone.sync(first)
    edit = laptop.set(again.memory_id, {"tags.hot": True})
    assert laptop.sync(again, edit).statuses == ["MERGED_INTO", "APPLIED"]
    assert stored(server) == {first.memory_id: ["hot"]}
    late = laptop.set(again.memory_id, {"tags.late": True})
    assert laptop.sync(late, laptop.delete(again.memory_id)).statuses == ["GONE", "GONE"]
    assert stored(server) == {first.memory_id: ["hot"]}


def test_whoever_edits_what_was_merged_is_told_of_it_where_it_went(phone: Device, laptop: Device) -> None:
    first, again = phone.create("I like tea."), laptop.create("I like tea.")
    phone.sync(first)
    laptop.pull()
    sent = laptop.sync(again, laptop.set(again.memory_id, {"tags.hot": True}))
    assert sent.statuses == ["MERGED_INTO", "APPLIED"]
    told = {one.memory_id: list(one.change.memory.tags) for one in sent.told}
    assert told[first.memory_id] == ["hot"], "its own copy is of another memory"


def test_two_of_one_batch_are_one(server: Server, phone: Device) -> None:
    first, again, other = (phone.create(text) for text in ("I like tea.", "I LIKE tea", "I like rice."))
    sent = phone.sync(first, again, other)
    assert sent.statuses == ["APPLIED", "MERGED_INTO", "APPLIED"]
    assert merged_into(sent, 1) == first.memory_id
    assert set(stored(server)) == {first.memory_id, other.memory_id}


def test_what_a_device_does_not_see_stands_for_nothing(server: Server, phone: Device) -> None:
    secret = phone.create("I like tea.", privacy_level=PrivacyLevel.PRIVATE)
    office = phone.create("I like rice.", scope="work")
    phone.sync(secret, office)
    home = server.device("tablet", scopes=("home",))
    creates = [
        home.create("I like tea.", scope="home"),
        home.create("I like tea.", scope="home", privacy_level=PrivacyLevel.PRIVATE),
        home.create("I like rice.", scope="home"),
    ]
    assert home.sync(*creates).statuses == ["APPLIED"] * 3


def test_a_memory_that_an_edit_waits_for_is_made_though_another_says_it(
    phone: Device, laptop: Device, server: Server
) -> None:
    phone.sync(phone.create("I like tea."))
    made = phone.create("I like tea.")
    laptop.pull()
    server.wait()
    early = laptop.set(made.memory_id, {"content": "I like rice."}, bases={"content": made.stamp})
    assert laptop.sync(early).statuses == ["PENDING_CREATE"]
    assert phone.sync(made).statuses == ["APPLIED"]
    assert "WHOLE I like rice." in short(laptop.pull())
