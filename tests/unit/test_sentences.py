"""What History says in one sentence."""

from __future__ import annotations

from typing import Any

import pytest

from scrubjay.memory import ClientId, JsonValue, MemoryId, Micros
from scrubjay.merge import Outcome
from scrubjay.operation import OperationKind
from scrubjay.stamp import CommitStamp, ReplicaId, Stamp
from server.ingest.forgetting import Forgotten
from server.services.sentences import sentence, why
from server.store.history import HistoryChange, HistoryRow
from tenants.forget_policy import ForgetRule
from tests.stored import ALICE, memory, stored

NOW = 1_796_000_000_000
STAMP = Stamp(NOW << 16, ReplicaId(b"r" * 16))
APPLIED, CONCURRENT = Outcome.APPLIED, Outcome.APPLIED_CONCURRENT
SUPERSEDED, GONE = Outcome.SUPERSEDED, Outcome.GONE
CREATE, SET, DELETE = OperationKind
MINUTE, HOUR, DAY = 60, 3600, 24 * 3600


def change(field: str, outcome: Outcome = APPLIED, new: JsonValue = "x") -> HistoryChange:
    return HistoryChange(field, None, new, STAMP, None, outcome)


def said(
    kind: OperationKind,
    outcome: Outcome,
    *changes: HistoryChange,
    late: int = 0,
    client_id: str = "phone",
    **fields: Any,
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
            outcome=outcome,
            claimed_at=Micros((NOW - late * 1000) * 1000),
            private_to=ClientId(""),
            **{"role": "DEVICE", **fields},
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


def test_why_it_was_done_stands_behind_what_was_done() -> None:
    outdated = said(SET, APPLIED, change("confidence"), change("valid_to"), reason="feedback: OUTDATED")
    assert outdated == "phone changed confidence and valid_to (feedback: OUTDATED)."
    swept = said(DELETE, APPLIED, client_id="", role="SWEEP", reason="forgotten: expired")
    assert swept == "The daily sweep deleted it (forgotten: expired)."


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"expires_at": Micros(NOW * 1000)}, "It expired on 2026-11-30."),
        ({"expires_at": Micros(-62_135_596_800_000_000)}, "It expired on 0001-01-01."),
        (
            {"rule": ForgetRule("work", "TASK", 1, None)},
            "It was last used on 2026-11-30, 1 day ago, and its confidence is 0.3; "
            "the rule is: TASK in work, unused for 1 day.",
        ),
        (
            {"rule": ForgetRule("", "", 30, 0.5), "days": 31},
            "It was last used on 2026-11-30, 31 days ago, and its confidence is 0.3; "
            "the rule is: every category, unused for 30 days, confidence below 0.5.",
        ),
    ],
)
def test_a_sweep_says_why_each_memory_goes(fields: dict[str, Any], words: str) -> None:
    used_at = Micros(NOW * 1000)
    one = memory(created_at=used_at, confidence=0.3, expires_at=fields.get("expires_at"))
    gone = Forgotten(ALICE, stored(one, CommitStamp(NOW << 16)), fields.get("rule"), used_at)
    assert why(gone, Micros(used_at + fields.get("days", 1) * DAY * 1_000_000)) == words
