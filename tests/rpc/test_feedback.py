"""Feedback: a memory's confidence follows from how it was, however many say so at once."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from rpc.conftest import Serving, Tenant
from rpc.refusal import refused
from scrubjay import errors, v1

HELPFUL, WRONG, OUTDATED = v1.FEEDBACK_KIND_HELPFUL, v1.FEEDBACK_KIND_WRONG, v1.FEEDBACK_KIND_OUTDATED
AHEAD = Timestamp(seconds=4_000_000_000)


def say(tenant: Tenant, memory: v1.Memory, kind: v1.FeedbackKind.ValueType, **fields: Any) -> v1.Memory:
    request = v1.FeedbackRequest(memory_id=memory.id, kind=kind, **fields)
    return tenant.memories.Feedback(request).memory


def newest(tenant: Tenant, memory: v1.Memory) -> v1.HistoryEntry:
    return tenant.memories.History(v1.HistoryRequest(memory_id=memory.id)).entries[0]


def test_confidence_rises_by_a_fifth_of_what_it_lacks_and_is_halved(dev: Tenant) -> None:
    (memory,) = dev.add("The office is in Lisbon", confidence=0.5)
    assert say(dev, memory, HELPFUL).confidence == pytest.approx(0.6)
    assert say(dev, memory, HELPFUL).confidence == pytest.approx(0.68)
    wrong = say(dev, memory, WRONG)
    assert wrong.confidence == pytest.approx(0.34)
    assert not wrong.HasField("valid_to")
    assert dev.memories.Get(v1.GetRequest(id=memory.id)).memory == wrong


def test_sixteen_at_once_all_count(dev: Tenant) -> None:
    (memory,) = dev.add("The train is at nine", confidence=0.5)
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda _: say(dev, memory, HELPFUL), range(16)))
    now = dev.memories.Get(v1.GetRequest(id=memory.id)).memory
    assert now.confidence == pytest.approx(1 - 0.5 * 0.8**16)
    entries = dev.memories.History(v1.HistoryRequest(memory_id=memory.id)).entries
    assert [entry.reason for entry in entries] == ["feedback: HELPFUL"] * 16 + [""]
    assert {entry.outcome for entry in entries} == {v1.OUTCOME_APPLIED}


def test_what_is_outdated_was_valid_until_now(dev: Tenant) -> None:
    (memory, closed, open_end) = dev.add("one", "two", "three", confidence=0.8)
    said = say(dev, memory, OUTDATED)
    assert said.confidence == pytest.approx(0.4)
    assert said.valid_to.ToDatetime(UTC).date() == datetime.now(UTC).date()
    again = say(dev, memory, OUTDATED)
    assert (again.valid_to, again.confidence) == (said.valid_to, pytest.approx(0.2))

    def until(memory: v1.Memory, **times: Timestamp) -> None:
        dev.memories.Update(
            v1.UpdateRequest(memory=v1.Memory(id=memory.id, **times), update_mask={"paths": list(times)})
        )

    until(closed, valid_to=Timestamp(seconds=5))
    assert say(dev, closed, OUTDATED).valid_to == Timestamp(seconds=5)
    until(open_end, valid_to=AHEAD)
    assert say(dev, open_end, OUTDATED).valid_to.seconds < AHEAD.seconds
    (planned,) = dev.add("The fair opens", valid_from=AHEAD, confidence=0.8)
    said = say(dev, planned, OUTDATED)
    assert (said.confidence, said.HasField("valid_to")) == (pytest.approx(0.4), False)


def test_history_says_who_found_it_how(dev: Tenant) -> None:
    (memory,) = dev.add("The office is in Lisbon", confidence=0.5)
    say(dev, memory, OUTDATED)
    entry = newest(dev, memory)
    assert (entry.kind, entry.reason) == (v1.OPERATION_KIND_SET, "feedback: OUTDATED")
    assert [change.field for change in entry.changes] == ["confidence", "valid_to"]
    assert entry.sentence.endswith(" changed confidence and valid_to (feedback: OUTDATED).")
    assert entry.role == "SERVICE"


def test_feedback_that_changes_no_value_is_in_history_too(dev: Tenant) -> None:
    (memory,) = dev.add("Certain")
    said = say(dev, memory, HELPFUL)
    assert said.confidence == 1
    assert said.etag != memory.etag
    assert newest(dev, memory).reason == "feedback: HELPFUL"
    (hopeless,) = dev.add("Hopeless", confidence=0)
    assert say(dev, hopeless, WRONG).confidence == 0


def test_a_repeat_counts_once_and_an_etag_refuses(dev: Tenant) -> None:
    (memory,) = dev.add("The train is at nine", confidence=0.5)
    first = say(dev, memory, HELPFUL, request_id="r-1")
    assert say(dev, memory, HELPFUL, request_id="r-1") == first
    with refused() as reused:
        say(dev, memory, WRONG, request_id="r-1")
    assert isinstance(reused.error, errors.RequestIdReused)
    with refused() as stale:
        say(dev, memory, WRONG, etag=memory.etag)
    assert stale.code is grpc.StatusCode.ABORTED
    assert say(dev, memory, WRONG, etag=first.etag).confidence == pytest.approx(0.3)


def test_what_a_caller_may_not_see_is_unknown(serving: Serving) -> None:
    dev = serving.dev
    (private, expired, dead) = dev.add("private", "expired", "dead", confidence=0.5)
    other = serving.with_key("dev", v1.ROLE_SERVICE)
    changes = {
        "privacy_level": v1.Memory(id=private.id, privacy_level=v1.PRIVACY_LEVEL_PRIVATE),
        "expires_at": v1.Memory(id=expired.id, expires_at=Timestamp(seconds=5)),
    }
    for field, memory in changes.items():
        dev.memories.Update(v1.UpdateRequest(memory=memory, update_mask={"paths": [field]}))
    dev.memories.Delete(v1.DeleteRequest(id=dead.id))

    unknown = v1.Memory(id=str(uuid.uuid4()))
    answers = []
    for tenant, memory in (
        (other, private),
        (dev, expired),
        (serving.tenant("rival"), dead),
        (dev, unknown),
    ):
        with refused() as answer:
            say(tenant, memory, HELPFUL)
        assert answer.code is grpc.StatusCode.NOT_FOUND
        answers.append(answer.details.replace(memory.id.encode(), b"?"))
    assert len(set(answers)) == 1
    with refused() as deleted:
        say(dev, dead, HELPFUL)
    assert isinstance(deleted.error, errors.MemoryDeleted)
    assert say(dev, private, HELPFUL).confidence == pytest.approx(0.6)


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_reader_may_not_say_anything(serving: Serving) -> None:
    (memory,) = serving.dev.add("x")
    with refused() as answer:
        say(serving.with_key("dev", v1.ROLE_READER), memory, HELPFUL)
    assert isinstance(answer.error, errors.RoleNotAllowed)


WRONG_REQUESTS: dict[str, tuple[Callable[[str], v1.FeedbackRequest], str]] = {
    "no kind": (lambda memory_id: v1.FeedbackRequest(memory_id=memory_id), "kind"),
    "unknown kind": (lambda i: v1.FeedbackRequest(memory_id=i, kind=9), "kind"),  # type: ignore[arg-type]  # open
    "no memory": (lambda _: v1.FeedbackRequest(kind=HELPFUL), "memory_id"),
    "no UUID": (lambda _: v1.FeedbackRequest(kind=HELPFUL, memory_id="x"), "memory_id"),
    "long request id": (
        lambda i: v1.FeedbackRequest(kind=HELPFUL, memory_id=i, request_id="r" * 129),
        "request_id",
    ),
}


@pytest.mark.parametrize("case", WRONG_REQUESTS)
@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_wrong_request_names_its_field(dev: Tenant, case: str) -> None:
    (memory,) = dev.add("x")
    request, field = WRONG_REQUESTS[case]
    with refused() as answer:
        dev.memories.Feedback(request(memory.id))
    assert answer.fields == [field]
    assert newest(dev, memory).kind == v1.OPERATION_KIND_CREATE
