"""Runs that broke a promise once: each is the fewest actions that did, and what it was."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from scrubjay import v1
from scrubjay.memory import Memory, MemoryId, Micros, PrivacyLevel
from scrubjay.operation import NO_ID, Operation, OperationKind, encode
from scrubjay.stamp import ReplicaId, Stamp
from tests.sync.actions import Step
from tests.sync.device import ACME
from tests.sync.runs import Places, new_world, play
from tests.sync.world import World

SHARED, PRIVATE = PrivacyLevel.SHARED, PrivacyLevel.PRIVATE

REGRESSIONS: dict[str, Sequence[Step]] = {
    "a repeated create told to a pull from the beginning brings nothing dead back": [
        ("add", {"device": "badge", "slot": 2, "level": SHARED, "scope": "work"}),
        ("sync", {"device": "badge", "faults": ("ok", "device dies before the answer")}),
        ("web_delete", {"slot": 2}),
    ],
    "looks at a memory that was never sent are counted": [
        ("add", {"device": "phone", "slot": 1, "level": SHARED, "scope": "general"}),
        ("touch", {"device": "phone", "slot": 1, "times": 3}),
    ],
    "a file that is to load anew loads nothing of another client": [
        ("limits", {"page_bytes": 1, "operations": 1, "chunk_bytes": 1 << 18}),
        ("add", {"device": "phone", "slot": 0, "level": SHARED, "scope": "work"}),
        ("add", {"device": "phone", "slot": 1, "level": SHARED, "scope": "work"}),
        ("sync", {"device": "phone"}),
        ("sync", {"device": "tablet", "faults": ("ok", "request lost")}),
        ("wrong_user", {"device": "tablet", "other": "laptop"}),
    ],
    "a file that goes back to when a memory was local loads it as it was shared": [
        ("web_add", {"slot": 1, "level": SHARED, "scope": "general"}),
        ("backup", {}),
        ("sync", {"device": "tablet"}),
        ("add", {"device": "tablet", "slot": 0, "level": PrivacyLevel.LOCAL_ONLY, "scope": "work"}),
        ("save_file", {"device": "tablet"}),
        ("restore", {"index": 0, "early": None}),
        ("update", {"device": "tablet", "slot": 0, "value": ("privacy_level", 3)}),
        ("sync", {"device": "tablet"}),
        ("roll_back", {"device": "tablet"}),
    ],
    "a file that is used with the token of a device that is to be wiped stays": [
        ("revoke", {"device": "phone"}),
        ("wrong_user", {"device": "bob", "other": "phone"}),
    ],
    "two processes of one device may hear of a restore at once": [
        ("web_add", {"slot": 0, "level": SHARED, "scope": "general"}),
        ("sync", {"device": "phone"}),
        ("backup", {}),
        ("restore", {"index": 0, "early": None}),
        ("sync", {"device": "phone", "faults": ("another process synchronizes meanwhile",)}),
    ],
    "nothing is noted of an edit of what was taken back meanwhile": [
        ("add", {"device": "laptop", "slot": 1, "level": SHARED, "scope": "work"}),
        ("sync", {"device": "laptop"}),
        ("sync", {"device": "tablet"}),
        ("web_update", {"slot": 1, "value": ("metadata.k", 1)}),
        ("update", {"device": "laptop", "slot": 1, "value": ("privacy_level", 2)}),
        ("update", {"device": "tablet", "slot": 1, "value": ("metadata.k", "1")}),
        ("clone", {"device": "tablet"}),
        ("sync", {"device": "tablet"}),
        ("backup", {}),
        ("restore", {"index": 2, "early": None}),
    ],
    "nothing is left of what was taken back while it was deleted here": [
        ("add", {"device": "tablet", "slot": 1, "level": SHARED, "scope": "work"}),
        ("sync", {"device": "tablet"}),
        ("sync", {"device": "laptop"}),
        ("backup", {}),
        ("update", {"device": "tablet", "slot": 1, "value": ("privacy_level", 2)}),
        ("restore", {"index": 0, "early": None}),
        ("delete", {"device": "laptop", "slot": 1}),
    ],
    "nothing is left of what was taken back before its create was told": [
        ("add", {"device": "badge", "slot": 1, "level": SHARED, "scope": "work"}),
        ("sync", {"device": "badge", "faults": ("ok", "answer lost")}),
        ("web_update", {"slot": 1, "value": ("scope", "general")}),
    ],
    "an edit that is answered again stays shown until the page that has it": [
        ("add", {"device": "tablet", "slot": 0, "level": SHARED, "scope": "work"}),
        ("sync", {"device": "tablet"}),
        ("update", {"device": "tablet", "slot": 0, "value": ("metadata.k", 1)}),
        ("sync", {"device": "tablet", "faults": ("answer lost",)}),
        ("limits", {"page_bytes": 1, "operations": 500, "chunk_bytes": 4096}),
        ("web_add", {"slot": 1, "level": SHARED, "scope": "work"}),
        ("web_update", {"slot": 0, "value": ("scope", "general")}),
        ("sync", {"device": "tablet", "faults": ("ok", "request lost")}),
    ],
    "an edit that was refused is kept, though the refusal was lost until the server forgot it": [
        ("add", {"device": "badge", "slot": 0, "level": SHARED, "scope": "work"}),
        ("sync", {"device": "badge"}),
        ("web_update", {"slot": 0, "value": ("valid_to", 500)}),
        ("update", {"device": "badge", "slot": 0, "value": ("valid_from", 900)}),
        ("sync", {"device": "badge", "faults": ("answer lost",)}),
        ("collect", {}),
        ("sync", {"device": "badge"}),
    ],
    "nothing is left of what was taken back after the server forgot its create": [
        ("add", {"device": "badge", "slot": 0, "level": SHARED, "scope": "work"}),
        ("sync", {"device": "badge", "faults": ("ok", "answer lost")}),
        ("collect", {}),
        ("web_update", {"slot": 0, "value": ("scope", "general")}),
        ("sync", {"device": "badge"}),
    ],
    "a server that is restored twice gets back what it got back the first time": [
        ("backup", {}),
        ("web_add", {"slot": 1, "level": SHARED, "scope": "work"}),
        ("sync", {"device": "badge"}),
        ("restore", {"index": 0, "early": None}),
        ("sync", {"device": "badge", "faults": ("ok", "ok", "request lost")}),
        ("restore", {"index": 0, "early": None}),
    ],
    "a tag is taken off that a create gave of which the file knows no more that it was sent": [
        ("add", {"device": "phone", "slot": 2, "level": SHARED, "scope": "work"}),
        ("update", {"device": "phone", "slot": 2, "value": ("tags.b", True)}),
        ("save_file", {"device": "phone"}),
        ("sync", {"device": "phone"}),
        ("roll_back", {"device": "phone"}),
        ("update", {"device": "phone", "slot": 2, "value": ("tags.b", None)}),
    ],
    "a tag is taken off that others gave a memory whose create waits here again": [
        ("add", {"device": "phone", "slot": 2, "level": SHARED, "scope": "work"}),
        ("save_file", {"device": "phone"}),
        ("sync", {"device": "phone"}),
        ("roll_back", {"device": "phone"}),
        ("web_update", {"slot": 2, "value": ("tags.b", True)}),
        ("watch", {"device": "phone", "writes": 1}),
        ("update", {"device": "phone", "slot": 2, "value": ("tags.b", None)}),
    ],
    "a tag is taken off of a memory that is here twice, from the server and as a create that waits": [
        ("add", {"device": "phone", "slot": 2, "level": PrivacyLevel.LOCAL_ONLY, "scope": "work"}),
        ("update", {"device": "phone", "slot": 2, "value": ("tags.b", True), "other": ("privacy_level", 2)}),
        ("save_file", {"device": "phone"}),
        ("sync", {"device": "phone", "faults": (), "crash": 17, "power": True, "vectors": True}),
        ("roll_back", {"device": "phone"}),
        ("watch", {"device": "phone", "writes": 2}),
        ("update", {"device": "phone", "slot": 2, "value": ("tags.b", None), "other": ("category", "TASK")}),
    ],
    "what died after a backup and is private since the restore its old readers can't bury": [
        ("web_add", {"slot": 0, "level": SHARED, "scope": "general"}),
        ("sync", {"device": "laptop"}),
        ("backup", {}),
        ("web_delete", {"slot": 0}),
        ("sync", {"device": "laptop"}),
        ("restore", {"index": 0, "early": None}),
        ("web_update", {"slot": 0, "value": ("privacy_level", 2)}),
    ],
    "what died after a backup and lives again is not dead for those who get it again": [
        ("web_add", {"slot": 0, "level": SHARED, "scope": "general"}),
        ("sync", {"device": "laptop"}),
        ("backup", {}),
        ("web_delete", {"slot": 0}),
        ("sync", {"device": "laptop"}),
        ("restore", {"index": 0, "early": None}),
        ("web_update", {"slot": 0, "value": ("privacy_level", 2)}),
        ("sync", {"device": "laptop"}),
        ("web_update", {"slot": 0, "value": ("privacy_level", 3)}),
    ],
    "a file that goes back to when a memory was local deletes that one alone": [
        ("add", {"device": "phone", "slot": 0, "level": PrivacyLevel.LOCAL_ONLY, "scope": "general"}),
        ("save_file", {"device": "phone"}),
        ("update", {"device": "phone", "slot": 0, "value": ("privacy_level", 3)}),
        ("sync", {"device": "phone", "faults": ("ok", "ok", "the app writes meanwhile"), "vectors": True}),
        ("roll_back", {"device": "phone"}),
        ("delete", {"device": "phone", "slot": 0}),
    ],
    "a deletion that overtakes the page of an answered create is not shown over": [
        ("add", {"device": "phone", "slot": 3, "level": SHARED, "scope": "work"}),
        ("web_add", {"slot": 1, "level": PrivacyLevel.PRIVATE, "scope": "general"}),
        ("limits", {"page_bytes": 1, "operations": 2, "chunk_bytes": 4096}),
        ("sync", {"device": "phone", "faults": ("ok", "ok", "the app writes meanwhile"), "power": True}),
        ("web_delete", {"slot": 3}),
        ("watch", {"device": "phone", "writes": 1, "crash": 4}),
        ("web_update", {"slot": 1, "value": ("valid_to", 500)}),
        ("sync", {"device": "phone", "faults": ("ok", "ok", "request lost"), "crash": 30, "power": True}),
    ],
    "an edit of what was merged is told to its sender, who made it of another memory": [
        (
            "strange_batch",
            {
                "device": "phone",
                "slot": 2,
                "kinds": ("set", "create private", "create"),
                "lag": 0,
                "anew": False,
            },
        ),
        ("watch", {"device": "tablet", "writes": 0, "crash": None}),
        ("say_again", {"device": "tablet", "slot": 2, "of": 3, "crash": None}),
        (
            "sync",
            {
                "device": "tablet",
                "faults": ("ok", "request lost"),
                "crash": None,
                "power": True,
                "vectors": False,
            },
        ),
        ("backup", {}),
        ("say_again", {"device": "tablet", "slot": 2, "of": 3, "crash": None}),
        (
            "update",
            {
                "device": "tablet",
                "slot": 2,
                "value": ("metadata.k", 1),
                "other": ("metadata.k", "1"),
                "crash": 20,
            },
        ),
        ("restore", {"index": 2, "early": "phone"}),
    ],
}


@pytest.mark.parametrize("name", REGRESSIONS)
def test_it_does_not_break_again(name: str, places: Places) -> None:
    play(REGRESSIONS[name], places)


def test_a_restored_server_gets_back_what_a_first_load_showed_that_was_cut(places: Places) -> None:
    steps: Sequence[Step] = [
        ("limits", {"page_bytes": 1, "operations": 500, "chunk_bytes": 4096}),
        ("web_add", {"slot": 0, "level": SHARED, "scope": "work"}),
        ("backup", {}),
        ("web_add", {"slot": 1, "level": SHARED, "scope": "work"}),
        ("sync", {"device": "phone", "faults": ("ok", "answer garbled")}),
        ("restore", {"index": 0, "early": None}),
    ]
    living: list[int] = []
    play(steps, places, look=lambda world: living.append(len(world.oracle.living)))
    assert living == [2]


def test_a_snapshot_that_passes_an_answered_deletion_leaves_its_grave(places: Places) -> None:
    steps: Sequence[Step] = [
        ("add", {"device": "phone", "slot": 0, "level": SHARED, "scope": "work"}),
        ("sync", {"device": "phone"}),
        ("limits", {"page_bytes": 1, "operations": 500, "chunk_bytes": 4096}),
        ("web_add", {"slot": 1, "level": SHARED, "scope": "work"}),
        ("web_add", {"slot": 2, "level": SHARED, "scope": "work"}),
        ("delete", {"device": "phone", "slot": 0}),
        ("sync", {"device": "phone", "faults": ("ok", "request lost")}),
        ("collect", {}),
        ("sync", {"device": "phone"}),
    ]
    graves: list[bool] = []

    def look(world: World) -> None:
        (memory_id,) = world.ids(ACME, 0)
        graves.append(memory_id in world.held(world.device("phone")).graves)

    play(steps, places, look=look)
    assert graves == [True]


def test_who_creates_what_is_there_already_is_told_how_it_is(places: Places) -> None:
    with new_world(places) as world:
        memory_id = world.new_id(ACME, 0)
        _create(world, memory_id, replica=1, created_at=100)
        second = _create(world, memory_id, replica=2, created_at=200)
        (change,) = second.page.changes
        assert change.memory.created_at.nanos == 100_000


def _create(world: World, memory_id: MemoryId, *, replica: int, created_at: int) -> v1.SyncResponse:
    device, sender = world.device("phone"), ReplicaId(replica.to_bytes(16, "big"))
    memory = Memory(
        memory_id, "tea", Micros(created_at), user_id="alice", owner_client_id=device.place.client_id
    )
    stamp = Stamp(world.micros // 1000 << 16, sender)
    operation = Operation(NO_ID, memory_id, OperationKind.CREATE, stamp, memory=memory)
    batch = v1.Batch(operations=[encode(operation, sender)])
    request = v1.SyncRequest(protocol=1, replica_id=sender, first_number=1, batch=batch)
    return world.serve_sync(device, device.caller, request)
