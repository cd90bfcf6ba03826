"""SyncService on both databases: devices that send operations and pull pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scrubjay import v1
from tests.devices import Server, short


@pytest.fixture
def server(shard_url: str, tmp_path: Path) -> Iterator[Server]:
    with Server(shard_url, tmp_path) as server:
        yield server


def test_a_create_reaches_the_other_devices_and_not_its_own(server: Server) -> None:
    phone, laptop = server.device("phone"), server.device("laptop")
    sent = phone.sync(phone.create("Moved to Lisbon."))
    assert sent.statuses == ["APPLIED"]
    assert sent.short == []
    assert short(laptop.pull()) == ["WHOLE Moved to Lisbon."]
    assert short(laptop.pull()) == []
    assert short(phone.pull()) == []


def test_an_edit_reaches_the_others_as_a_part(server: Server) -> None:
    phone, laptop = server.device("phone"), server.device("laptop")
    made = phone.create("tea", tags=frozenset({"a"}))
    phone.sync(made)
    laptop.pull()
    edit = laptop.set(made.memory_id, {"content": "coffee"}, bases={"content": made.stamp})
    assert laptop.sync(edit).statuses == ["APPLIED"]
    (told,) = phone.pull()
    assert told.short == "PART coffee"
    assert told.change.memory.tags == []
    assert told.kind == v1.CHANGE_KIND_PART
