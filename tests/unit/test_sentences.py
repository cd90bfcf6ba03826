"""What History says in one sentence."""

from __future__ import annotations

import pytest

from scrubjay.memory import ClientId, JsonValue, MemoryId, Micros
from scrubjay.merge import Outcome
from scrubjay.operation import OperationKind
from scrubjay.stamp import CommitStamp, ReplicaId, Stamp
from server.services.sentences import sentence
from server.store.history import HistoryChange, HistoryRow

NOW = 1_796_000_000_000
STAMP = Stamp(NOW << 16, ReplicaId(b"r" * 16))
APPLIED, CONCURRENT = Outcome.APPLIED, Outcome.APPLIED_CONCURRENT
SUPERSEDED, GONE = Outcome.SUPERSEDED, Outcome.GONE
CREATE, SET, DELETE = OperationKind
MINUTE, HOUR, DAY = 60, 3600, 24 * 3600


def change(field: str, outcome: Outcome = APPLIED, new: JsonValue = "x") -> HistoryChange:
    return HistoryChange(field, None, new, STAMP, None, outcome)


def said(
    kind: OperationKind, outcome: Outcome, *changes: HistoryChange, late: int = 0, client_id: str = "phone"
) -> str:
    return sentence(
        HistoryRow(
            operation_id="",
            memory_id=MemoryId(""),
            commit_stamp=CommitStamp(NOW << 16),
            kind=kind,
            changes=changes,
            client_id=ClientId(client_id),
            replica_id=STAMP.replica,
            actor="key",
            role="DEVICE",
            outcome=outcome,
            claimed_at=Micros((NOW - late * 1000) * 1000),
            private_to=ClientId(""),
        )
    )


def test_a_plain_edit_says_who_did_what() -> None:
    assert said(CREATE, APPLIED, change("content")) == "phone created it."
    assert said(SET, APPLIED, change("content")) == "phone changed content."
    assert said(DELETE, APPLIED, change("content", new=None)) == "phone deleted it."
    both = said(SET, APPLIED, change("content"), change("pinned"), change("tags.a", new=None))
    assert both == "phone changed content and pinned and removed tags.a."
    assert said(SET, APPLIED, change("content"), client_id="") == "A client without a name changed content."


def test_a_delete_of_what_was_taken_back_says_so() -> None:
    assert said(DELETE, SUPERSEDED) == (
        "phone wanted to delete it, but the memory had been taken back from it."
    )


def test_many_fields_are_counted() -> None:
    fields = [change(f"tags.{n}") for n in range(7)]
    assert said(SET, APPLIED, *fields) == "phone changed tags.0, tags.1, tags.2, tags.3 and 3 more."


@pytest.mark.parametrize(
    ("late", "words"),
    [
        (-5, ""),
        (59, ""),
        (MINUTE, ", made 1 minute before it arrived"),
        (2 * HOUR + 5, ", made 2 hours before it arrived"),
        (3 * DAY, ", made 3 days before it arrived"),
    ],
)
def test_what_was_made_offline_says_how_long_before_it_arrived(late: int, words: str) -> None:
    assert said(SET, APPLIED, change("content"), late=late) == f"phone changed content{words}."


def test_a_concurrent_edit_says_what_it_replaced_and_what_it_lost_to() -> None:
    replaced = said(SET, CONCURRENT, change("content", CONCURRENT), change("pinned"), late=3 * DAY)
    assert replaced == (
        "phone changed content and pinned, made 3 days before it arrived, "
        "replacing an edit of content that it had not seen."
    )
    mixed = said(SET, CONCURRENT, change("content", SUPERSEDED), change("pinned"))
    assert mixed == "phone changed pinned; a later edit of content stands."


def test_a_lost_edit_says_why() -> None:
    lost = said(SET, SUPERSEDED, change("content", SUPERSEDED), late=HOUR)
    assert lost == (
        "phone wanted to change content, made 1 hour before it arrived, but a later edit of content stands."
    )
    foreign = said(SET, SUPERSEDED, change("privacy_level", SUPERSEDED))
    assert foreign == "phone wanted to change privacy_level, but who may see it stays as its owner says."


def test_an_edit_of_a_deleted_memory_says_so() -> None:
    gone = said(SET, GONE, change("content", GONE))
    assert gone == "phone wanted to change content, but the memory had been deleted."
    assert said(DELETE, GONE) == "phone wanted to delete it, but it had been deleted already."
    assert said(CREATE, GONE, change("content", GONE)) == (
        "phone wanted to create it, but the memory had been deleted."
    )
