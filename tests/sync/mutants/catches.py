"""What catches each mutant: the fewest actions that the broken rule shows in, and the promise it breaks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scrubjay.memory import PrivacyLevel
from tests.sync.actions import Step
from tests.sync.world import MINUTE, SECOND

SHARED, PRIVATE, LOCAL_ONLY = PrivacyLevel.SHARED, PrivacyLevel.PRIVATE, PrivacyLevel.LOCAL_ONLY


def add(device: str, slot: int = 0, level: PrivacyLevel = SHARED, scope: str = "work") -> Step:
    return "add", {"device": device, "slot": slot, "level": level, "scope": scope}


def update(device: str, field: str, value: Any, slot: int = 0) -> Step:
    return "update", {"device": device, "slot": slot, "value": (field, value)}


def delete(device: str, slot: int = 0) -> Step:
    return "delete", {"device": device, "slot": slot}


def sync(device: str, *faults: str, crash: int | None = None) -> Step:
    return "sync", {"device": device, "faults": faults, "crash": crash}


def web_add(slot: int = 0, level: PrivacyLevel = SHARED, scope: str = "work") -> Step:
    return "web_add", {"slot": slot, "level": level, "scope": scope}


def web_update(field: str, value: Any, slot: int = 0) -> Step:
    return "web_update", {"slot": slot, "value": (field, value)}


def strange(device: str, *kinds: str, anew: bool = True, lag: int = 0) -> Step:
    return "strange_batch", {"device": device, "slot": 0, "kinds": kinds, "lag": lag, "anew": anew}


def pull(device: str, max_bytes: int = 1, pages: int | None = None) -> Step:
    return "simple_pull", {"device": device, "max_bytes": max_bytes, "pages": pages, "by_time": False}


def of(name: str, device: str) -> Step:
    return name, {"device": device}


def wrong(name: str, device: str, other: str) -> Step:
    return name, {"device": device, "other": other}


WEB_DELETE: Step = ("web_delete", {"slot": 0})
BACKUP: Step = ("backup", {})
RESTORE: Step = ("restore", {"index": 0, "early": None})
COLLECT: Step = ("collect", {})
ONE_BY_ONE: Step = ("limits", {"page_bytes": 1, "operations": 500, "chunk_bytes": 1 << 18})


@dataclass(frozen=True, slots=True)
class Catch:
    """What catches a mutant: the steps, and the check that fails."""

    check: str
    steps: Sequence[Step]


CATCHES = {
    "page edge by time not by stamp": Catch(
        "stop_after_any_page_equals_one_run",
        [strange("phone", "create", "create", "create"), web_add(3), pull("phone")],
    ),
    "filter by creator": Catch(
        "cursor_misses_nothing",
        [add("phone"), sync("phone"), sync("tablet"), web_update("content", "cocoa"), sync("phone")],
    ),
    "left out by newest change only": Catch(
        "cursor_misses_nothing",
        [
            *(add("phone"), sync("phone"), sync("laptop")),
            *(update("laptop", "category", "TASK"), sync("laptop")),
            *(update("phone", "pinned", True), sync("phone")),
        ],
    ),
    "part from stamp instead of base": Catch(
        "a_part_is_of_what_is_there",
        [web_add(0), web_add(1), web_add(2), web_update("pinned", True, 1), pull("phone")],
    ),
    "retraction not sent": Catch(
        "loads_anew_only_where_told",
        [add("phone"), sync("phone"), sync("laptop"), update("phone", "privacy_level", 2), sync("phone")],
    ),
    "retraction not written": Catch(
        "loads_anew_only_where_told",
        [add("phone"), sync("phone"), sync("laptop"), update("phone", "privacy_level", 2), sync("phone")],
    ),
    "deletion not sent": Catch("loads_anew_only_where_told", [web_add(), sync("phone"), WEB_DELETE]),
    "private shown to all": Catch("private_never_leaks", [web_add(level=PRIVATE), pull("phone", 0)]),
    "scopes ignored": Catch("private_never_leaks", [web_add(scope="general"), pull("badge", 0)]),
    "cursor not bound to its client": Catch(
        "tenants_never_meet",
        [web_add(), sync("phone"), sync("laptop"), wrong("wrong_cursor", "phone", "laptop")],
    ),
    "horizon not raised": Catch(
        "loads_anew_only_where_told",
        [
            *(add("phone"), sync("phone"), sync("laptop"), update("phone", "privacy_level", 2)),
            *(sync("phone"), COLLECT, sync("laptop")),
        ],
    ),
    "no chain check": Catch(
        "no_lost_acknowledged_operation",
        [
            *(web_add(3), sync("phone"), of("save_file", "phone"), add("phone"), sync("phone")),
            *(of("roll_back", "phone"), add("phone", 1)),
        ],
    ),
    "duplicate applied twice": Catch(
        "answered_as_the_law_says",
        [add("phone"), sync("phone"), update("phone", "pinned", True), sync("phone"),
         ("repeated_request", {"index": 0})],
    ),
    "grave forgotten": Catch(
        "answered_as_the_law_says",
        [add("phone"), sync("phone"), sync("tablet"), WEB_DELETE, update("tablet", "pinned", True)],
    ),
    "last to come stands": Catch(
        "answered_as_the_law_says",
        [
            *(web_add(), sync("phone"), sync("laptop"), update("phone", "category", "TASK")),
            *(update("laptop", "category", "TASK"), sync("laptop"), sync("phone")),
        ],
    ),
    "base ignored": Catch(
        "answered_as_the_law_says",
        [
            *(web_add(), sync("phone"), sync("laptop"), update("phone", "pinned", True), sync("phone")),
            *(update("laptop", "pinned", True), sync("laptop")),
        ],
    ),
    "privacy written by anybody": Catch(
        "answered_as_the_law_says",
        [web_add(), strange("laptop", "set privacy", anew=False)],
    ),
    "poison stops the batch": Catch(
        "answered_as_the_law_says", [strange("phone", "garbage", "create", "create")]
    ),
    "waiting operations forgotten": Catch(
        "no_lost_field_update",
        [strange("phone", "set"), strange("phone", "create what waits", lag=-MINUTE)],
    ),
    "stamps of the future taken": Catch("answered_as_the_law_says", [web_add(), strange("phone", "future")]),
    "totals added": Catch(
        "replay_changes_nothing",
        [web_add(), sync("phone"), ("touch", {"device": "phone", "slot": 0, "times": 3}), sync("phone"),
         ("repeated_request", {"index": 0})],
    ),
    "register keeps its old commit": Catch(
        "cursor_misses_nothing", [web_add(), sync("phone"), web_update("pinned", True), sync("phone")]
    ),
    "epoch not begun": Catch(
        "cursor_misses_nothing", [web_add(), BACKUP, web_update("pinned", True), sync("phone"), RESTORE]
    ),
    "grave forgotten at restore": Catch(
        "no_resurrection", [web_add(), sync("phone"), WEB_DELETE, BACKUP, RESTORE, sync("phone")]
    ),
    "nothing given back": Catch(
        "restore_brings_all_back_and_nothing_deleted", [web_add(1), BACKUP, web_add(), sync("phone"), RESTORE]
    ),
    "cursor before rows": Catch(
        "cursor_misses_nothing", [web_add(), sync("phone"), web_add(1), sync("phone", crash=9)]
    ),
    "writes not durable": Catch(
        "no_lost_acknowledged_operation",
        [web_add(1), sync("phone"), add("phone"), ("kill", {"device": "phone", "power": True})],
    ),
    "sent operations stamped anew": Catch(
        "directive_has_a_reason",
        [web_add(1), sync("phone"), add("phone"), sync("phone", "answer lost"), sync("phone")],
    ),
    "sent operations folded": Catch(
        "directive_has_a_reason",
        [
            *(web_add(1), sync("phone"), add("phone"), sync("phone", "answer lost")),
            *(update("phone", "pinned", True), sync("phone")),
        ],
    ),
    "overlay dropped at the answer": Catch(
        "never_flickers_back",
        [
            *(web_add(), sync("phone"), ONE_BY_ONE, web_add(1), web_add(2)),
            *(update("phone", "pinned", True), sync("phone", "ok", "request lost")),
        ],
    ),
    "edits of a fast clock kept": Catch(
        "faults_end_then_outboxes_empty_and_digests_equal",
        [("clock_jumps", {"device": "phone", "jump": 30 * MINUTE}), add("phone")],
    ),
    "clock not observed": Catch(
        "an_app_is_told_yes_or_no",
        [
            *(("clock_jumps", {"device": "phone", "jump": 30 * SECOND}), add("phone"), sync("phone")),
            *(sync("laptop"), update("laptop", "content", "cocoa")),
        ],
    ),
    "refusals forgotten": Catch(
        "never_flickers_back",
        [
            *(web_add(), sync("phone"), sync("laptop"), update("phone", "valid_from", 900)),
            *(update("laptop", "valid_to", 500), sync("phone"), sync("laptop")),
        ],
    ),
    "retraction keeps what waits": Catch(
        "retraction_complete",
        [
            *(add("phone"), sync("phone"), sync("laptop"), update("laptop", "pinned", True)),
            *(update("phone", "privacy_level", 2), sync("phone")),
        ],
    ),
    "bytes of what was taken back stay": Catch(
        "retraction_complete",
        [add("phone"), sync("phone"), sync("laptop"), update("phone", "privacy_level", 2), sync("phone")],
    ),
    "local only sent": Catch("local_only_never_leaves", [add("phone", level=LOCAL_ONLY)]),
    "old rows dropped before the load": Catch(
        "never_flickers_back",
        [web_add(), web_add(1), sync("phone"), WEB_DELETE, COLLECT, sync("phone", "ok", "request lost")],
    ),
    "principal not said": Catch("tenants_never_meet", [web_add(), wrong("wrong_user", "phone", "laptop")]),
}  # fmt: skip
