"""Sync on both databases: operations that devices send, and how each ends."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from scrubjay import v1
from scrubjay.errors import CursorAhead, InvalidField, ModelUnavailable, PrincipalMismatch
from scrubjay.feed import MAX_BATCH_BYTES, MAX_OPERATIONS, pack, unpack
from scrubjay.memory import PrivacyLevel, Subject, id_bytes, new_memory_id
from scrubjay.operation import Operation, derived_id
from scrubjay.stamp import ReplicaId
from server.providers.embedder import TextKind
from server.providers.hashed import HashEmbedder
from tenants.tenant import Role
from tests.devices import NOW, SECOND, Device, Server, short

PRIVATE = PrivacyLevel.PRIVATE


def unknown_id() -> str:
    return new_memory_id(NOW // 1000, b"0123456789")


# --- what can happen to an operation --------------------------------------------------------------


def test_a_create_reaches_the_other_devices_and_not_its_own(phone: Device, laptop: Device) -> None:
    sent = phone.sync(phone.create("Moved to Lisbon."))
    assert sent.statuses == ["APPLIED"]
    assert sent.short == []
    assert sent.response.results[0].commit_stamp == sent.response.commit_stamp
    assert short(laptop.pull()) == ["WHOLE Moved to Lisbon."]
    assert short(laptop.pull()) == []
    assert short(phone.pull()) == []


def test_an_edit_over_what_its_author_saw_is_applied(phone: Device, laptop: Device) -> None:
    made = phone.create("tea", tags=frozenset({"a"}))
    phone.sync(made)
    laptop.pull()
    edit = laptop.set(made.memory_id, {"content": "coffee"}, bases={"content": made.stamp})
    assert laptop.sync(edit).statuses == ["APPLIED"]
    (told,) = phone.pull()
    assert told.short == "PART coffee"
    assert told.change.memory.tags == []


def test_an_edit_over_another_ones_edit_is_concurrent(server: Server, phone: Device, laptop: Device) -> None:
    made = phone.create("tea")
    phone.sync(made)
    server.wait()
    laptop.sync(laptop.set(made.memory_id, {"content": "coffee"}, bases={"content": made.stamp}))
    server.wait()
    bases = {"content": made.stamp, "category": made.stamp}
    edit = phone.set(made.memory_id, {"content": "milk", "category": "TASK"}, bases=bases)
    (result,) = phone.sync(edit).response.results
    assert result.status == v1.OPERATION_STATUS_APPLIED_CONCURRENT
    assert [(one.field, one.outcome) for one in result.registers] == [("category", v1.OUTCOME_APPLIED)]


def test_an_older_edit_is_superseded_and_kept_in_history(
    server: Server, phone: Device, laptop: Device
) -> None:
    made = phone.create("tea")
    phone.sync(made)
    early = phone.set(made.memory_id, {"content": "milk"}, bases={"content": made.stamp})
    server.wait()
    laptop.sync(laptop.set(made.memory_id, {"content": "coffee"}, bases={"content": made.stamp}))
    answer = phone.sync(early)
    assert answer.statuses == ["SUPERSEDED"]
    assert answer.response.results[0].registers == []
    assert answer.short == ["PART coffee"]
    entries = server.memories.history(v1.HistoryRequest(memory_id=made.memory_id), server.service()).entries
    lost = entries[0]
    assert lost.outcome == v1.OUTCOME_SUPERSEDED
    assert lost.changes[0].new_value.string_value == "milk"


def test_part_of_an_edit_may_be_superseded(server: Server, phone: Device, laptop: Device) -> None:
    made = phone.create("tea")
    phone.sync(made)
    bases = {"content": made.stamp, "category": made.stamp}
    early = phone.set(made.memory_id, {"content": "milk", "category": "TASK"}, bases=bases)
    server.wait()
    laptop.sync(laptop.set(made.memory_id, {"content": "coffee"}, bases=bases))
    (result,) = phone.sync(early).response.results
    assert result.status == v1.OPERATION_STATUS_APPLIED_CONCURRENT
    assert [(one.field, one.outcome) for one in result.registers] == [
        ("content", v1.OUTCOME_SUPERSEDED),
        ("category", v1.OUTCOME_APPLIED),
    ]


def test_a_delete_is_for_ever_and_later_edits_are_gone(server: Server, phone: Device, laptop: Device) -> None:
    made = phone.create("tea")
    phone.sync(made)
    laptop.pull()
    assert phone.sync(phone.delete(made.memory_id)).statuses == ["APPLIED"]
    late = laptop.set(made.memory_id, {"content": "coffee"}, bases={"content": made.stamp})
    answer = laptop.sync(late, replace(made, operation_id="", stamp=laptop.stamp()))
    assert answer.statuses == ["GONE", "GONE"]
    assert answer.short == ["DELETED"]
    entries = server.memories.history(v1.HistoryRequest(memory_id=made.memory_id), server.service()).entries
    assert [entry.outcome for entry in entries] == [
        v1.OUTCOME_GONE,
        v1.OUTCOME_GONE,
        v1.OUTCOME_APPLIED,
        v1.OUTCOME_APPLIED,
    ]


def test_what_a_dead_memorys_owner_still_wrote_is_told_to_the_owner_alone(
    server: Server, phone: Device, laptop: Device
) -> None:
    made = phone.create("tea")
    phone.sync(made)
    laptop.pull()
    laptop.sync(laptop.delete(made.memory_id))
    hide = phone.set(made.memory_id, {"privacy_level": int(PRIVATE)})
    secret = phone.set(made.memory_id, {"content": "my diary"})
    assert phone.sync(hide, secret).statuses == ["GONE", "GONE"]
    request = v1.HistoryRequest(memory_id=made.memory_id)
    assert len(server.memories.history(request, server.service("laptop")).entries) == 2
    assert len(server.memories.history(request, server.service("phone")).entries) == 4


def test_a_delete_of_an_unknown_id_is_kept_against_its_create(
    server: Server, phone: Device, laptop: Device
) -> None:
    memory_id = unknown_id()
    assert phone.sync(phone.delete(memory_id)).statuses == ["APPLIED"]
    assert phone.sync(phone.create(memory_id=memory_id)).statuses == ["GONE"]
    (refused,) = laptop.sync(laptop.create(memory_id=memory_id)).response.results
    assert refused.status == v1.OPERATION_STATUS_REJECTED
    laptop.sync(laptop.create("something"))
    assert short(laptop.pull()) == []
    assert "DELETED" not in short(server.device("tablet").pull())


def test_an_edit_waits_for_its_create(server: Server, phone: Device, laptop: Device) -> None:
    made = phone.create("tea", metadata={"k": 1})
    server.wait()
    early = laptop.set(made.memory_id, {"content": "coffee"}, bases={"content": made.stamp})
    assert laptop.sync(early).statuses == ["PENDING_CREATE"]
    assert laptop.pull() == []
    answer = phone.sync(made)
    assert answer.statuses == ["APPLIED"]
    assert answer.short == ["WHOLE coffee"]
    assert short(laptop.pull()) == ["WHOLE coffee"]
    batch = v1.Batch(operations=laptop.encoded(early))
    again = laptop.call(laptop.request(first_number=1, chain=b"", batch=batch))
    assert again.results[0].status == v1.OPERATION_STATUS_DUPLICATE
    assert again.results[0].first_status == v1.OPERATION_STATUS_APPLIED
    found = server.memories.search(v1.SearchRequest(user_id="alice", query="coffee"), server.service())
    hits = v1.SearchResponse.FromString(found).hits
    assert [hit.memory.content for hit in hits] == ["coffee"]


def test_an_edit_may_come_before_its_create_in_one_batch(phone: Device, laptop: Device) -> None:
    made = phone.create("tea")
    edit = phone.set(made.memory_id, {"content": "coffee"}, bases={"content": made.stamp})
    answer = phone.sync(edit, made)
    assert answer.statuses == ["APPLIED", "APPLIED"]
    assert answer.short == []
    assert short(laptop.pull()) == ["WHOLE coffee"]


def test_an_edit_waits_for_a_memory_that_a_backend_makes(server: Server, laptop: Device) -> None:
    memory_id = unknown_id()
    server.wait()
    early = laptop.set(memory_id, {"content": "coffee"}, stamp=laptop.stamp(30))
    assert laptop.sync(early).statuses == ["PENDING_CREATE"]
    add = v1.AddRequest(memories=[v1.Memory(id=memory_id, user_id="alice", content="tea")])
    (result,) = server.memories.add(add, server.service()).results
    assert result.memory.content == "coffee"
    assert short(laptop.pull()) == ["WHOLE coffee"]


def test_what_waits_for_a_private_memory_never_reaches_it(
    server: Server, phone: Device, laptop: Device
) -> None:
    made = phone.create("tea", privacy_level=PRIVATE)
    assert laptop.sync(laptop.set(made.memory_id, {"content": "x"})).statuses == ["PENDING_CREATE"]
    phone.sync(made)
    assert laptop.pull() == []
    assert short(server.device("phone").pull()) == ["WHOLE tea"]


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"content": " "}, "memory.content: is blank; give a text"),
        ({"confidence": 2.0}, "memory.confidence: is 2.0; give a number from 0 to 1"),
        ({"scope": "a//b"}, "memory.scope: 'a//b' has an empty segment"),
        ({"privacy_level": 1}, "memory.privacy_level: LOCAL_ONLY never leaves its device"),
    ],
)
def test_one_bad_operation_stops_nothing(
    phone: Device, laptop: Device, values: dict[str, object], reason: str
) -> None:
    made = phone.create("tea")
    bad = phone.set(made.memory_id, values, bases={})  # type: ignore[arg-type]  # JSON, by the cases
    good = phone.set(made.memory_id, {"category": "TASK"}, bases={"category": made.stamp})
    answer = phone.sync(made, bad, good)
    assert answer.statuses == ["APPLIED", "REJECTED", "APPLIED"]
    assert answer.response.results[1].reason.startswith(reason)
    (told,) = laptop.pull()
    assert (told.change.memory.content, told.change.memory.category) == ("tea", "TASK")
    assert phone.number == 3


@pytest.mark.parametrize("junk", [b"\xff\xff", b"", b"x" * 70_000, v1.Operation(kind=9).SerializeToString()])
def test_bytes_that_are_no_operation_are_refused_once_and_for_all(phone: Device, junk: bytes) -> None:
    good = phone.encoded(phone.create("tea"))
    request = phone.request(batch=v1.Batch(operations=[junk, *good]))
    response = phone.call(request)
    assert [one.status for one in response.results] == [
        v1.OPERATION_STATUS_REJECTED,
        v1.OPERATION_STATUS_APPLIED,
    ]
    assert response.results[0].reason
    again = phone.call(request)
    assert [one.first_status for one in again.results] == [one.status for one in response.results]
    assert again.results[0].reason == response.results[0].reason


def test_only_the_owner_changes_privacy(server: Server, phone: Device, laptop: Device) -> None:
    made = phone.create("tea")
    phone.sync(made)
    laptop.pull()
    server.wait()
    bases = {"privacy_level": made.stamp, "category": made.stamp}
    hide = laptop.set(made.memory_id, {"privacy_level": int(PRIVATE), "category": "TASK"}, bases=bases)
    (result,) = laptop.sync(hide).response.results
    assert result.status == v1.OPERATION_STATUS_APPLIED_CONCURRENT
    assert {one.field: one.outcome for one in result.registers} == {
        "privacy_level": v1.OUTCOME_SUPERSEDED,
        "category": v1.OUTCOME_APPLIED,
    }


def test_an_id_that_is_another_ones_secret_looks_unknown(
    server: Server, phone: Device, laptop: Device
) -> None:
    secret = phone.create("secret", privacy_level=PRIVATE)
    phone.sync(secret)
    for memory_id in (secret.memory_id, unknown_id()):
        assert laptop.sync(laptop.set(memory_id, {"content": "x"})).statuses == ["PENDING_CREATE"]
        assert laptop.sync(laptop.delete(memory_id)).statuses == ["APPLIED"]
    (refused,) = laptop.sync(laptop.create("x", memory_id=secret.memory_id)).response.results
    assert refused.status == v1.OPERATION_STATUS_REJECTED
    assert "taken" in refused.reason
    assert short(server.device("phone").pull()) == ["WHOLE secret"]


def test_a_memory_of_another_subject_is_unknown(server: Server, phone: Device) -> None:
    bob = server.device("phone", subject=Subject("user", "bob"))
    made = bob.create("bob's")
    bob.sync(made)
    assert phone.sync(phone.set(made.memory_id, {"content": "x"})).statuses == ["PENDING_CREATE"]
    assert phone.sync(phone.delete(made.memory_id)).statuses == ["APPLIED"]
    assert short(server.device("web", subject=Subject("user", "bob")).pull()) == ["WHOLE bob's"]


def test_a_device_writes_within_its_scopes(server: Server, phone: Device) -> None:
    badge = server.device("badge", scopes=("work",))
    outside, inside = badge.create("x", scope="home"), badge.create("y", scope="work/a")
    move = badge.set(inside.memory_id, {"scope": "home"}, bases={"scope": inside.stamp})
    answer = badge.sync(outside, inside, move)
    assert answer.statuses == ["REJECTED", "APPLIED", "REJECTED"]
    assert "outside" in answer.response.results[0].reason
    assert phone.sync(phone.create("home", scope="home")).short == ["WHOLE y"]
    assert badge.pull() == []


def test_an_id_of_an_operation_is_used_once(server: Server, phone: Device, laptop: Device) -> None:
    operation_id = unknown_id()
    first = phone.create("tea", operation_id=operation_id)
    assert phone.sync(first, phone.create("x", operation_id=operation_id)).statuses == [
        "APPLIED",
        "DUPLICATE",
    ]
    assert laptop.sync(laptop.create("x", operation_id=operation_id)).statuses == ["DUPLICATE"]
    bob = server.device("phone", subject=Subject("user", "bob"))
    (taken,) = bob.sync(bob.create("x", operation_id=operation_id)).response.results
    assert taken.status == v1.OPERATION_STATUS_REJECTED
    assert short(server.device("web").pull()) == ["WHOLE tea"]


def test_an_edit_from_a_fast_clock_comes_again_later(server: Server, phone: Device) -> None:
    right, fast, after = phone.create("1"), phone.create("2", stamp=phone.stamp(61)), phone.create("3")
    fine = phone.create("0", stamp=phone.stamp(59))
    request = phone.request(fine, right, fast, after)
    response = phone.call(request)
    retry = v1.OPERATION_STATUS_RETRY_LATER
    assert [one.status for one in response.results] == [v1.OPERATION_STATUS_APPLIED] * 2 + [retry] * 2
    assert [one.reason for one in response.results] == ["", "", "clock", "clock"]
    phone.answered(request, response)
    assert phone.number == 2
    server.wait(2)
    assert phone.sync(fast, after).statuses == ["APPLIED", "APPLIED"]


class Sulking(HashEmbedder):
    """A model that answers when it likes to."""

    away = False

    def embed(self, texts: object, kind: TextKind) -> NDArray[np.float32]:
        if self.away:
            raise ModelUnavailable("the model is away")
        return super().embed(texts, kind)  # type: ignore[arg-type]  # texts, by its caller


def test_downloads_never_wait_for_uploads(shard_url: str, tmp_path: Path) -> None:
    embedder = Sulking()
    with Server(shard_url, tmp_path, embedder) as server:
        phone, laptop = server.device("phone"), server.device("laptop")
        made = laptop.create("tea")
        laptop.sync(made)
        embedder.away = True
        answer = phone.sync(phone.delete(unknown_id()), phone.create("x"), phone.delete(unknown_id()))
        assert answer.statuses == ["APPLIED", "RETRY_LATER", "RETRY_LATER"]
        assert answer.response.results[1].reason == "model"
        assert "WHOLE tea" in answer.short
        embedder.away = False
        assert phone.sync(phone.create("x")).statuses == ["APPLIED"]


# --- the chain ------------------------------------------------------------------------------------


def directive(response: v1.SyncResponse) -> str:
    """The directive, without its prefix."""
    return v1.Directive.Name(response.directive).removeprefix("DIRECTIVE_")


def test_a_repeat_is_answered_as_the_first_time(phone: Device, laptop: Device) -> None:
    made = phone.create("tea")
    request = phone.request(made, phone.set(made.memory_id, {"content": " x"}), phone.delete(unknown_id()))
    first, second = phone.call(request), phone.call(request)
    assert {one.status for one in second.results} == {v1.OPERATION_STATUS_DUPLICATE}
    assert [one.first_status for one in second.results] == [one.status for one in first.results]
    assert [one.commit_stamp for one in second.results] == [one.commit_stamp for one in first.results]
    phone.answered(request, second)
    assert phone.sync(phone.create("more")).statuses == ["APPLIED"]
    assert short(laptop.pull()) == ["WHOLE  x", "WHOLE more"]


def test_a_batch_may_begin_with_operations_that_were_answered(phone: Device) -> None:
    one, two, three = phone.create("1"), phone.create("2"), phone.create("3")
    phone.call(phone.request(one, two))
    answer = phone.call(phone.request(one, two, three))
    assert [v1.OperationStatus.Name(r.status)[17:] for r in answer.results] == [
        "DUPLICATE",
        "DUPLICATE",
        "APPLIED",
    ]


def test_two_files_of_one_replica_are_told_to_part(server: Server, phone: Device) -> None:
    clone = server.device("phone", replica=phone.replica)
    phone.sync(phone.create("1"))
    answer = clone.call(clone.request(clone.create("other 1")))
    assert directive(answer) == "FORK"
    assert list(answer.results) == []
    assert short(server.device("web").pull()) == ["WHOLE 1"]
    phone.sync(phone.create("2"))
    assert directive(clone.call(clone.request())) == "FORK"


def test_a_file_that_went_back_is_told_to_part(phone: Device) -> None:
    phone.sync(phone.create("1"))
    before = replace(phone)
    phone.sync(phone.create("2"))
    assert directive(before.call(before.request(before.create("3")))) == "FORK"
    assert directive(before.call(before.request())) == "FORK"


def test_a_replica_that_the_server_never_saw_begins_with_one(server: Server, phone: Device) -> None:
    phone.sync(phone.create("1"))
    stranger = replace(phone, replica=ReplicaId(b"s" * 16))
    assert directive(stranger.call(stranger.request())) == "FORK"
    assert directive(server.device("phone").call(server.device("phone").request())) == "OK"


def test_a_replica_that_was_answered_more_than_the_server_knows_shows_that_it_went_back(
    server: Server, phone: Device
) -> None:
    phone.sync(phone.create("1"))
    known = phone.number
    phone.number = known + 3
    with pytest.raises(CursorAhead):
        phone.call(phone.request(phone.create("5")))
    phone.number = known
    assert directive(phone.call(phone.request(phone.create("2")))) == "OK"


def test_a_replica_of_another_client_is_a_fork(server: Server, phone: Device) -> None:
    phone.sync(phone.create("1"))
    thief = replace(phone, client_id=server.device("laptop").client_id, cursor="")
    assert directive(thief.call(thief.request())) == "FORK"


def test_a_chain_that_does_not_follow_is_a_fork(phone: Device) -> None:
    phone.sync(phone.create("1"))
    answer = phone.call(phone.request(phone.create("2"), chain=b"x" * 16))
    assert directive(answer) == "FORK"


# --- the request ----------------------------------------------------------------------------------


def test_a_batch_may_travel_packed(phone: Device) -> None:
    batch = v1.Batch(operations=phone.encoded(*(phone.create(f"fact {n}") for n in range(20))))
    response = phone.call(phone.request(packed_batch=pack(batch)))
    assert {one.status for one in response.results} == {v1.OPERATION_STATUS_APPLIED}


def test_many_results_travel_packed_to_who_understands_them(phone: Device) -> None:
    creates = [phone.create(f"fact {n}") for n in range(100)]
    request = phone.request(*creates, accept_packed_results=True)
    response = phone.call(request)
    results = unpack(v1.Results, "packed_results", response.packed_results).results
    assert not response.results
    assert [one.status for one in results] == [v1.OPERATION_STATUS_APPLIED] * 100
    again = phone.call(phone.request(*creates))
    assert not again.packed_results
    assert [one.commit_stamp for one in again.results] == [one.commit_stamp for one in results]


def many(phone: Device, count: int) -> v1.Batch:
    return v1.Batch(operations=phone.encoded(phone.create("x")) * count)


def test_a_request_says_what_is_wrong_with_it(phone: Device) -> None:
    large = v1.Batch(operations=[b"x" * 1024] * (MAX_BATCH_BYTES // 1024 + 1))
    cases: list[tuple[dict[str, object], str, str]] = [
        ({"batch": many(phone, MAX_OPERATIONS + 1)}, "batch", "1001 operations; at most 1000"),
        ({"batch": large}, "batch", "at most 262144"),
        ({"packed_batch": b"junk"}, "packed_batch", "no zlib stream"),
        ({"packed_batch": pack(v1.Batch()), "batch": v1.Batch()}, "packed_batch", "beside batch"),
        ({"packed_batch": pack(many(phone, 1001))}, "packed_batch", "1001 operations"),
        ({"replica_id": b"", "batch": many(phone, 1)}, "replica_id", "is empty"),
        ({"replica_id": b"short"}, "replica_id", "5 bytes"),
        ({"first_number": 0}, "first_number", "begin with 1"),
        ({"first_number": 2}, "chain", "0 bytes"),
        ({"chain": b"x" * 16}, "chain", "none before number 1"),
        ({"touches": [v1.Touch(memory_id=b"x")]}, "touches[0].memory_id", "1 bytes"),
        ({"touches": [v1.Touch(memory_id=b"x" * 16, total=2**60)]}, "touches[0].total", "at most"),
        ({"touches": [v1.Touch(memory_id=b"x" * 16)] * 1001}, "touches", "1001"),
    ]
    for fields, path, words in cases:
        with pytest.raises(InvalidField) as caught:
            phone.call(phone.request(**fields))
        (violation,) = caught.value.field_violations
        assert (violation.field, words in violation.description) == (path, True), violation


def test_a_replica_of_another_principal_is_refused(phone: Device) -> None:
    with pytest.raises(PrincipalMismatch):
        phone.call(phone.request(principal=b"somebody"))
    assert directive(phone.call(phone.request(principal=b""))) == "OK"


def test_an_old_client_is_told_to_upgrade(phone: Device) -> None:
    assert directive(phone.call(phone.request(protocol=0))) == "UPGRADE"


def test_a_revoked_device_is_told_to_wipe(server: Server, phone: Device) -> None:
    caller = replace(phone.caller, role=Role.REVOKED_DEVICE, wiped=True)
    response = server.sync.sync(phone.request(phone.create("x")), caller)
    assert directive(response) == "WIPE"
    assert response.ByteSize() < 30


def test_server_time_is_in_every_answer(server: Server, phone: Device) -> None:
    for response in (phone.call(phone.request()), phone.call(phone.request(protocol=0))):
        assert response.server_time.seconds * SECOND + response.server_time.nanos // 1000 == server.now


# --- access counts --------------------------------------------------------------------------------


def counts(response: v1.SyncResponse) -> dict[bytes, int]:
    return {one.memory_id: one.count for one in response.counts}


def touch(operation: Operation, total: int) -> v1.Touch:
    touch = v1.Touch(memory_id=id_bytes(operation.memory_id), total=total)
    touch.last_access_at.FromMicroseconds(NOW + 5 * 3600 * SECOND)
    return touch


def test_access_counts_are_the_sum_of_what_replicas_counted(
    server: Server, phone: Device, laptop: Device
) -> None:
    made, secret = phone.create("tea"), phone.create("secret", privacy_level=PRIVATE)
    phone.sync(made, secret)
    laptop.pull()
    phone.sync(touches=[touch(made, 3), touch(secret, 9)])
    laptop.sync(touches=[touch(made, 2), touch(secret, 8)])
    phone.sync(touches=[touch(made, 2)])
    key = id_bytes(made.memory_id)
    first = laptop.sync(include_counts=True).response
    assert counts(first) == {key: 5}
    assert first.counts[0].last_access_at.ToMicroseconds() == server.now
    assert first.counts_after > 0
    assert short(laptop.pull()) == []
    assert counts(laptop.sync(include_counts=True, counts_after=first.counts_after).response) == {}
    phone.sync(touches=[touch(made, 4)])
    later = laptop.sync(include_counts=True, counts_after=first.counts_after).response
    assert counts(later) == {key: 6}
    assert set(counts(phone.sync(include_counts=True).response).values()) == {6, 9}
    phone.sync(phone.delete(made.memory_id))
    assert counts(laptop.sync(include_counts=True).response) == {}


def test_touches_of_a_memory_may_come_with_its_create(phone: Device) -> None:
    made = phone.create("tea")
    response = phone.sync(made, touches=[touch(made, 1)], include_counts=True).response
    assert counts(response) == {id_bytes(made.memory_id): 1}


def test_derived_ids_are_the_clients(phone: Device, server: Server) -> None:
    (encoded,) = phone.encoded(phone.create("tea"))
    phone.call(phone.request(batch=v1.Batch(operations=[encoded])))
    named = id_bytes(derived_id(phone.replica, 1, encoded))
    answer = server.sync.reconcile(v1.ReconcileRequest(operation_ids=[named]), phone.caller)
    assert [one.status for one in answer.results] == [v1.OPERATION_STATUS_APPLIED]


@pytest.mark.parametrize("number", [2**63 - 1, 2**63, 2**64 - 1])
def test_counts_after_what_no_answer_said_are_refused(phone: Device, number: int) -> None:
    phone.sync(phone.create("tea"))
    with pytest.raises(InvalidField) as caught:
        phone.sync(include_counts=True, counts_after=number)
    assert [violation.field for violation in caught.value.field_violations] == ["counts_after"]
    phone.sync(include_counts=True, counts_after=2**62)
