"""What an import makes of files: their documents, memories and conversations, and what is left out."""

from __future__ import annotations

import json
import re
import sqlite3
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client_sync.errors import ReplicaUnwritable
from client_sync.importing import documents as reading
from client_sync.importing.chatgpt import Conversation, from_chatgpt
from client_sync.importing.documents import documents
from client_sync.importing.formats import Format, looks_like
from client_sync.importing.marks import digest, mark, marks_of
from client_sync.importing.memories import Whom, finish, from_line, from_mem0
from client_sync.importing.patience import patiently
from client_sync.importing.skipping import ON_PURPOSE, Place, Reason, Skipped, Unfit, Unreadable
from client_sync.importing.tally import MAX_SHOWN, Tally
from client_sync.rendering import json_line
from scrubjay import v1
from scrubjay.errors import CredentialInvalid, InternalError, StorageUnavailable
from scrubjay.memory import Memory, Micros, Subject
from scrubjay.stamp import CommitStamp
from scrubjay.validity import MAX_CONTENT_BYTES, is_memory_id, violations
from scrubjay.wire import from_stored, to_message
from tests.strategies import memories

ID = "01939f2e-7a00-7000-8000-000000000001"
OTHER_ID = "01939f2e-7a00-7000-8000-000000000002"
NOW = Micros(1_800_000_000_000_000)
ALICE = Whom(Subject("user", "alice"))


# --- documents -----------------------------------------------------------------------------------


def read(path: Path) -> list[tuple[str, Any]]:
    """Each place in words with its document, or with the reason why it is skipped."""
    return [
        (str(place), found.reason if isinstance(found, Skipped) else found)
        for place, found in documents(path, lambda read, size: None)
    ]


def file(tmp_path: Path, content: bytes | str) -> Path:
    path = tmp_path / "file"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_a_broken_line_stops_no_other(tmp_path: Path) -> None:
    lines = b'\xef\xbb\xbf{"a": 1}\n\n  \nno json\n{"b": 2}\r\n{"c": "\xff"}\n[NaN]\n{"d": 3'
    deep = b"\n" + b"[" * 200_000
    assert read(file(tmp_path, lines + deep + b'\n{"e": 4}')) == [
        ("line 1", {"a": 1}),
        ("line 4", Reason.NOT_JSON),
        ("line 5", {"b": 2}),
        ("line 6", Reason.NOT_JSON),
        ("line 7", Reason.NOT_JSON),
        ("line 8", Reason.NOT_JSON),
        ("line 9", Reason.NOT_JSON),
        ("line 10", {"e": 4}),
    ]


def test_a_line_too_long_to_hold_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_LINE_BYTES", 16)
    monkeypatch.setattr(reading, "_READ_AT_ONCE", 5)
    content = '{"a": 1}\n' + '"' + "x" * 40 + '"\n{"b": 2}\n"' + "y" * 14 + "\n" + '"' + "x" * 99
    assert read(file(tmp_path, content)) == [
        ("line 1", {"a": 1}),
        ("line 2", Reason.TOO_LONG),
        ("line 3", {"b": 2}),
        ("line 4", Reason.NOT_JSON),
        ("line 5", Reason.TOO_LONG),
    ]


json_documents = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.text('a"\\]},[ é\n', max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("k]", max_size=2), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.lists(json_documents, max_size=6), st.integers(1, 20), st.sampled_from([None, 1]), st.booleans())
def test_a_list_is_read_element_by_element_however_it_is_cut_and_laid_out(
    tmp_path_factory: pytest.TempPathFactory,
    elements: list[Any],
    at_once: int,
    indent: int | None,
    escaped: bool,
) -> None:
    path = tmp_path_factory.getbasetemp() / "list.json"
    path.write_text(f" \n{json.dumps(elements, indent=indent, ensure_ascii=escaped)}\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "_READ_AT_ONCE", at_once)
        found = read(path)
    assert found == [(f"item {n}", element) for n, element in enumerate(elements, 1)]


@pytest.mark.parametrize("end", ["", ",", ', {"b"', "} 5", ' {"c": 1}]', ", [NaN]]"])
def test_a_list_that_is_cut_or_broken_gives_what_stands_before(tmp_path: Path, end: str) -> None:
    assert read(file(tmp_path, f'[{{"a": 1}}, {{"b": 2}}{end}')) == [
        ("item 1", {"a": 1}),
        ("item 2", {"b": 2}),
        ("item 3", Reason.NOT_JSON),
    ]


def test_an_element_too_long_to_hold_ends_the_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_ELEMENT_CHARACTERS", 50)
    monkeypatch.setattr(reading, "_READ_AT_ONCE", 10)
    elements = json.dumps([{"a": 1}, "x" * 1000, {"b": 2}])
    assert read(file(tmp_path, elements)) == [("item 1", {"a": 1}), ("item 2", Reason.NOT_JSON)]


def test_bytes_that_are_no_text_spoil_their_element_alone(tmp_path: Path) -> None:
    found = read(file(tmp_path, b'[{"content": "a\xffb"}, {"content": "c"}]'))
    assert found[1] == ("item 2", {"content": "c"})
    with pytest.raises(Unfit, match="surrogate"):
        from_line(found[0][1])


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("name", ["results", "memories"])
def test_an_answer_of_many_rows_gives_each(tmp_path: Path, name: str, indent: int | None) -> None:
    answer = {name: [{"a": 1}, {"b": 2}], "relations": [{"source": "x"}]}
    assert read(file(tmp_path, json.dumps(answer, indent=indent))) == [
        ("item 1", {"a": 1}),
        ("item 2", {"b": 2}),
        ("item 1", Reason.RELATION),
    ]


def test_a_page_of_a_longer_list_says_that_more_is_missing(tmp_path: Path) -> None:
    page = {"count": 200, "next": "https://example.com/?page=2", "previous": None, "results": [{"a": 1}]}
    assert read(file(tmp_path, json.dumps(page))) == [("item 1", {"a": 1}), ("item 2", Reason.MORE_PAGES)]


def test_one_document_over_many_lines_is_one(tmp_path: Path) -> None:
    assert read(file(tmp_path, '{\n  "content": "tea"\n}\n')) == [("item 1", {"content": "tea"})]
    assert read(file(tmp_path, '{\n  "content": "tea"\n')) == [("item 1", Reason.NOT_JSON)]


def test_a_document_too_large_to_hold_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_WHOLE_BYTES", 10)
    with pytest.raises(Unreadable, match="a memory a line"):
        read(file(tmp_path, '{\n  "content": "tea"\n}\n'))


def archive(path: Path, **members: object) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, content in members.items():
            opened.writestr(name.replace("__", "/") + ".json", json.dumps(content))
    return path


def test_an_archive_gives_its_conversations_in_order_and_says_how_far_it_is(tmp_path: Path) -> None:
    members = {"x__conversations-001": [{"b": 2}], "x__conversations-000": [{"a": 1}], "user": {"c": 3}}
    path = archive(tmp_path / "export.zip", **members, x__shared_conversations=[{"d": 4}])
    heard: list[tuple[int, int]] = []
    found = [document for _, document in documents(path, lambda read, size: heard.append((read, size)))]
    assert found == [{"a": 1}, {"b": 2}]
    assert read(path)[1][0] == "x/conversations-001.json, item 1"
    assert heard == [(10, 20), (20, 20)]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"PK\x03\x04 and no more", "no whole archive"),
        ('[{"a": 1}]'.encode("utf-16"), "UTF-16"),
    ],
)
def test_what_can_not_be_read_at_all_says_why(tmp_path: Path, content: bytes, said: str) -> None:
    with pytest.raises(Unreadable, match=said):
        read(file(tmp_path, content))


def test_an_archive_without_conversations_and_a_file_that_is_not_there_say_so(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match=r"no conversations\.json"):
        read(archive(tmp_path / "export.zip", user={}))
    with pytest.raises(Unreadable, match="can't be read"):
        read(tmp_path / "missing")
    with pytest.raises(Unreadable, match="can't be read"):
        read(tmp_path)


def test_a_damaged_archive_is_told(tmp_path: Path) -> None:
    path = archive(tmp_path / "export.zip", conversations=[{"text": "x" * 5000}] * 50)
    raw = bytearray(path.read_bytes())
    raw[60:90] = bytes(30)
    path.write_bytes(raw)
    with pytest.raises(Unreadable, match="no whole archive"):
        read(path)


@pytest.mark.parametrize("content", ['{"a": 1}\n\nno\n{"b": 2}', '[{"a": 1},\n {"b": 2}\n]\n'])
def test_how_far_it_is_goes_up_to_the_end(tmp_path: Path, content: str) -> None:
    heard: list[tuple[int, int]] = []
    found = documents(file(tmp_path, content), lambda read, size: heard.append((read, size)))
    assert len(list(found)) >= 2
    assert heard == sorted(heard)
    assert heard[-1] == (len(content), len(content))


@pytest.mark.parametrize(
    ("content", "looks"),
    [
        ("", Format.JSONL),
        ("[]", Format.JSONL),
        ('no\n{"x": 1}\n{"id": "1", "content": ""}', Format.JSONL),
        ('[{"content": "tea"}]', Format.JSONL),
        ('{"memory": "tea", "id": "1"}', Format.MEM0),
        ('[{"id": "1", "memory": "tea"}]', Format.MEM0),
        ('{"results": [{"id": "1", "memory": "tea"}]}', Format.MEM0),
        ('{\n "memories": [{"memory": "tea"}]\n}', Format.MEM0),
        ('[{"title": null, "mapping": {}}]', Format.CHATGPT),
        ('{\n "title": "a", "mapping": {}\n}', Format.CHATGPT),
        ('{"title": "a", "mapping": {}}', Format.CHATGPT),
    ],
)
def test_a_file_is_known_by_what_it_holds(tmp_path: Path, content: str, looks: Format) -> None:
    assert looks_like(file(tmp_path, content)) is looks


@pytest.mark.parametrize(
    "content", ["no\n", "[1, 2]", '{"colour": "green"}', '{"x": 1}\n' * 100 + '{"content": "a"}']
)
def test_a_file_that_is_known_by_nothing_says_so(tmp_path: Path, content: str) -> None:
    with pytest.raises(Unreadable, match="--format"):
        looks_like(file(tmp_path, content))


# --- memories of scrubjay and mem0 ---------------------------------------------------------------


def finished(memory: v1.Memory, whom: Whom = ALICE, **options: Any) -> v1.Memory:
    finish(memory, whom, NOW, **options)
    return memory


@settings(deadline=None)
@given(memories)
def test_what_an_export_writes_comes_back(memory: Memory) -> None:
    if violations(memory) or (memory.expires_at is not None and memory.expires_at <= NOW):
        return
    line = json_line(to_message(memory, CommitStamp(77 << 16)))
    back = finished(from_line(json.loads(line)), Whom(None))
    expected = to_message(memory, CommitStamp(0))
    for name in ("etag", "updated_at", "owner_client_id"):
        expected.ClearField(name)  # type: ignore[arg-type]  # by name
    expected.source.ClearField("client_id")
    if expected.source == v1.Source():
        expected.ClearField("source")
    assert from_stored(back) == from_stored(expected)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (["a"], Reason.NO_MEMORY),
        ("text", Reason.NO_MEMORY),
        ({}, Reason.NO_TEXT),
        ({"content": " \n"}, Reason.NO_TEXT),
        ({"content": None}, Reason.NO_TEXT),
        ({"content": "x" * (MAX_CONTENT_BYTES + 1)}, Reason.TOO_LONG),
        ({"content": "茶" * (MAX_CONTENT_BYTES // 3 + 1)}, Reason.TOO_LONG),
        ({"content": "a\0b"}, Reason.INVALID),
        ({"content": "\ud83d"}, Reason.INVALID),
        ({"content": 5}, Reason.INVALID),
        ({"content": "tea", "colour": "green"}, Reason.UNKNOWN_FIELD),
        ({"content": "tea", "created_at": "yesterday"}, Reason.BAD_DATE),
        ({"content": "tea", "created_at": "2026-13-01T00:00:00Z"}, Reason.BAD_DATE),
        ({"content": "tea", "created_at": 1e20}, Reason.BAD_DATE),
        ({"content": "tea", "created_at": True}, Reason.BAD_DATE),
        ({"content": "tea", "validTo": {"at": 1}}, Reason.BAD_DATE),
        (
            {"content": "tea", "valid_from": "2026-01-02T00:00:00Z", "valid_to": "2026-01-01T00:00:00Z"},
            Reason.BAD_DATE,
        ),
        ({"content": "tea", "confidence": 2}, Reason.INVALID),
        ({"content": "tea", "confidence": "high"}, Reason.INVALID),
        ({"content": "tea", "privacy_level": "PRIVACY_LEVEL_SECRET"}, Reason.INVALID),
        ({"content": "tea", "privacy_level": "\ud83d"}, Reason.INVALID),
        ({"content": "tea", "scope": "a//b"}, Reason.INVALID),
        ({"content": "tea", "tags": "x"}, Reason.INVALID),
        ({"content": "tea", "tags": ["x" * 65]}, Reason.INVALID),
        ({"content": "tea", "metadata": {"user_id": "bob"}}, Reason.INVALID),
        ({"content": "tea", "metadata": {"n": 10**400}}, Reason.INVALID),
        ({"content": "tea", "metadata": [1]}, Reason.INVALID),
        ({"content": "tea", "metadata": {"\ud83d": "\ud83d"}}, Reason.INVALID),
        ({"content": "tea", "\ud83d": 1}, Reason.UNKNOWN_FIELD),
        ({"content": "tea", "superseded_by": "no id"}, Reason.INVALID),
        ({"content": "tea", "source": {"colour": 1}}, Reason.INVALID),
        ({"content": "tea", "expires_at": "2026-01-01T00:00:00Z"}, Reason.EXPIRED),
        ({"content": "tea", "user_id": "bob"}, Reason.OTHER_USER),
    ],
)
def test_a_row_that_is_no_memory_says_why(row: Any, reason: Reason) -> None:
    with pytest.raises(Unfit) as refused:
        finished(from_line(row))
    assert refused.value.reason is reason
    assert refused.value.why.encode()


def test_a_row_may_use_either_spelling_of_names_and_any_iso_time() -> None:
    row = {
        "content": "tea",
        "createdAt": "2026-11-30 08:00:00",
        "agent_id": None,
        "valid_from": 1_796_025_600,
    }
    memory = finished(from_line(row))
    assert memory.created_at.ToJsonString() == "2026-11-30T08:00:00Z"
    assert memory.valid_from.ToJsonString() == "2026-11-30T08:00:00Z"
    assert memory.user_id == "alice"


MEM0 = {
    "id": "3C90C3CC-0D44-4B50-8888-8DD25736052A",
    "memory": "Likes hiking",
    "hash": "0f1e",
    "metadata": {"source": "chat", "nothing": None},
    "score": None,
    "created_at": "2024-07-26T08:48:00.123456-07:00",
    "updated_at": "2024-07-27T00:00:00+00:00",
    "user_id": "alice",
    "agent_id": None,
    "run_id": "r1",
    "role": "user",
    "actor_id": "ann",
    "categories": ["hobbies", "sport"],
    "immutable": False,
    "expiration_date": "2030-01-31",
}


def test_a_row_of_mem0_keeps_all_that_it_knows() -> None:
    memory = finished(from_mem0(MEM0))
    assert memory.id == MEM0["id"].lower()
    assert (memory.content, memory.user_id, memory.agent_id, memory.run_id) == (
        "Likes hiking",
        "alice",
        "",
        "r1",
    )
    assert memory.created_at.ToJsonString() == "2024-07-26T15:48:00.123456Z"
    assert list(memory.tags) == ["hobbies", "sport"]
    assert dict(memory.metadata) == {"source": "chat", "actor_id": "ann"}
    assert memory.source == v1.Source(role="user")
    # It is shown all through its last day.
    assert memory.expires_at.ToJsonString() == "2030-02-01T00:00:00Z"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"memory": None}, Reason.NO_MEMORY),
        ({"memory": ""}, Reason.NO_TEXT),
        ({"created_at": "soon"}, Reason.BAD_DATE),
        ({"expiration_date": "never"}, Reason.BAD_DATE),
        ({"expiration_date": "2020-01-01"}, Reason.EXPIRED),
        ({"metadata": "x"}, Reason.INVALID),
        ({"metadata": {str(n): n for n in range(33)}}, Reason.INVALID),
        ({"categories": [1]}, Reason.INVALID),
        ({"user_id": 7}, Reason.INVALID),
    ],
)
def test_a_row_of_mem0_that_is_no_memory_says_why(changed: dict[str, Any], reason: Reason) -> None:
    with pytest.raises(Unfit) as refused:
        finished(from_mem0(MEM0 | changed))
    assert refused.value.reason is reason


def test_a_row_without_an_id_always_gets_the_same_one_and_another_row_another() -> None:
    row = {"content": "tea", "created_at": "2026-11-30T08:00:00Z"}
    first = finished(from_line(row))
    assert is_memory_id(first.id)
    assert int(first.id.replace("-", "")[:12], 16) == 1_796_025_600_000
    assert first.id[14] == "7"
    assert finished(from_line(dict(row))).id == first.id
    assert finished(from_line(row | {"user_id": "alice"})).id == first.id
    # What the import itself adds is no part of what the row says.
    assert finished(from_line(row), scope="work", tags=("x",)).id == first.id
    others = [row | {"content": "coffee"}, row | {"created_at": "2026-11-30T08:00:01Z"}, {"content": "tea"}]
    others += [row | {"id": "7"}, row | {"tags": ["x"]}]
    ids = {finished(from_line(other)).id for other in others} | {finished(from_line(row), Whom(BOB)).id}
    assert len(ids - {first.id}) == 6


BOB = Subject("user", "bob")


@pytest.mark.parametrize(
    ("whom", "row", "named"),
    [
        (Whom(None), {"user_id": "bob"}, "bob"),
        (Whom(None), {"agent_id": "a"}, ""),
        (Whom(None), {}, Reason.NOBODY),
        (Whom(None, "bob"), {"user_id": "bob"}, "bob"),
        (Whom(None, "bob"), {"user_id": "ann"}, Reason.NOT_CHOSEN),
        (ALICE, {}, "alice"),
        (ALICE, {"agent_id": "a"}, "alice"),
        (ALICE, {"user_id": "alice"}, "alice"),
        (ALICE, {"user_id": "bob"}, Reason.OTHER_USER),
        (Whom(Subject("user", "alice"), "bob"), {"user_id": "bob"}, "alice"),
        (Whom(Subject("user", "alice"), "bob"), {"user_id": "alice"}, Reason.NOT_CHOSEN),
        (Whom(Subject("user", "alice"), "bob"), {}, Reason.NOT_CHOSEN),
        (Whom(Subject("agent", "a")), {}, ""),
        (Whom(Subject("agent", "a")), {"user_id": "bob"}, Reason.OTHER_USER),
        (Whom(Subject("agent", "a")), {"agent_id": "b"}, Reason.OTHER_USER),
    ],
)
def test_whom_a_row_is_about(whom: Whom, row: dict[str, str], named: str | Reason) -> None:
    row = {"content": "tea"} | row
    if isinstance(named, Reason):
        with pytest.raises(Unfit) as refused:
            finished(from_line(row), whom)
        assert refused.value.reason is named
    else:
        memory = finished(from_line(row), whom)
        assert memory.user_id == named
        assert memory.user_id or memory.agent_id == "a"


def test_another_users_memory_gets_an_id_of_its_own_and_its_links_follow() -> None:
    whom = Whom(BOB, "alice")
    old = {"id": ID, "content": "Vim", "user_id": "alice", "superseded_by": OTHER_ID}
    new = {"id": OTHER_ID, "content": "Emacs", "user_id": "alice", "created_at": "2026-11-30T08:00:00Z"}
    first, second = finished(from_line(old), whom), finished(from_line(new), whom)
    assert {first.id, second.id}.isdisjoint({ID, OTHER_ID})
    assert first.superseded_by == second.id
    assert finished(from_line(old), ALICE).id == ID
    assert finished(from_line(old), ALICE).superseded_by == OTHER_ID


def test_the_import_gives_a_scope_to_what_has_none_and_tags_to_all() -> None:
    memory = finished(from_line({"content": "tea", "tags": ["x"]}), scope="old/notes", tags=("y", "x"))
    assert (memory.scope, sorted(set(memory.tags))) == ("old/notes", ["x", "y"])
    assert finished(from_line({"content": "tea", "scope": "work"}), scope="old").scope == "work"


# --- conversations -------------------------------------------------------------------------------


def node(
    parent: str | None, role: str = "user", *parts: Any, at: Any = None, **message: Any
) -> dict[str, Any]:
    content = {"content_type": "text", "parts": list(parts)}
    return {
        "parent": parent,
        "children": [],
        "message": {"author": {"role": role}, "create_time": at, "content": content} | message,
    }


def conversation(current: str | None = None, **nodes: Any) -> Conversation:
    document = {"conversation_id": "c1", "create_time": 1000.5, "mapping": nodes, "current_node": current}
    return from_chatgpt(document, Place(item=1))


def said(found: Conversation) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in found.messages]


def left_out(found: Conversation) -> dict[str, Reason]:
    return {one.place.message: one.reason for one in found.skipped}


ROOT = {"parent": None, "children": [], "message": None}


def test_only_the_path_that_was_shown_last_is_taken() -> None:
    found = conversation(
        "d",
        root=ROOT,
        a=node("root", "user", "first try"),
        b=node("a", "assistant", "answer to it"),
        c=node("root", "user", "second try", at=2000),
        d=node("c", "assistant", "answer", at=2001.25),
        e=node("c", "tool", "not told"),
    )
    assert said(found) == [("user", "second try"), ("assistant", "answer")]
    assert [message.id for message in found.messages] == ["c", "d"]
    assert [message.at for message in found.messages] == [2_000_000_000, 2_001_250_000]
    assert left_out(found) == {"a": Reason.BRANCH, "b": Reason.BRANCH}


def test_without_a_current_node_the_newest_branch_is_taken() -> None:
    nodes = {
        "root": ROOT,
        "a": node("root", "user", "old", at=5),
        "b": node("root", "user", "new", at=9),
        "c": node("root", "user", "older", at=3),
    }
    for current in (None, "gone", 7):
        found = from_chatgpt({"mapping": nodes, "current_node": current}, Place(item=1))
        assert said(found) == [("user", "new")]
    assert is_memory_id(found.id)


def test_an_id_that_is_no_text_is_left_out_and_can_be_told() -> None:
    found = conversation("\ud83d", **{"\ud83d": node(None, "user", "x")})
    assert left_out(found) == {"\\ud83d": Reason.INVALID}
    assert json.dumps(found.skipped[0].to_json(), ensure_ascii=False).encode()


def test_a_tree_that_is_no_tree_ends() -> None:
    found = conversation("b", a=node("b", "user", "x"), b=node("a", "assistant", "y"), c=7)
    assert said(found) == [("user", "x"), ("assistant", "y")]
    assert conversation().messages == ()


def test_what_nobody_said_to_the_other_is_left_out_and_counted() -> None:
    found = conversation(
        "n",
        root=ROOT,
        a=node("root", "system", "You are helpful."),
        b=node(
            "a", "user", "profile", content={"content_type": "user_editable_context", "user_profile": "x"}
        ),
        c=node("b", "user", "hidden", metadata={"is_visually_hidden_from_conversation": True}),
        d=node("c", "assistant", "weightless", weight=0),
        e=node("d", "assistant", 'search("x")', recipient="browser"),
        f=node("e", "tool", "result"),
        g=node("f", "assistant", content={"content_type": "thoughts", "thoughts": []}),
        h=node("g", "assistant", ""),
        i=node("h", "critic", "hm"),
        j=node("i", "user", "late", at="soon"),
        k=node("j", "user", "x" * 65_537),
        l=node("k", "user", "\ud83d"),
        m=node("l", "user", "a\0b"),
        n=node("m", "user", {"content_type": "image_asset_pointer"}, " ", "and", {"text": "spoken"}),
    )
    assert said(found) == [("user", "and\nspoken")]
    assert left_out(found) == {
        "a": Reason.SYSTEM,
        "b": Reason.NOT_SPOKEN,
        "c": Reason.HIDDEN,
        "d": Reason.HIDDEN,
        "e": Reason.TOOL,
        "f": Reason.TOOL,
        "g": Reason.NOT_SPOKEN,
        "h": Reason.EMPTY,
        "i": Reason.UNKNOWN_ROLE,
        "j": Reason.BAD_DATE,
        "k": Reason.TOO_LONG,
        "l": Reason.INVALID,
        "m": Reason.INVALID,
        "n": Reason.ATTACHMENT,
    }


def test_a_message_without_a_time_was_said_with_the_one_before() -> None:
    found = conversation(
        "c",
        a=node(None, "user", "one"),
        b=node("a", "assistant", "two", at=3000),
        c=node("b", "user", "three", at=0),
    )
    assert [message.at for message in found.messages] == [1_000_500_000, 3_000_000_000, 3_000_000_000]


@pytest.mark.parametrize("document", [7, {}, {"mapping": []}, {"mapping": None}])
def test_what_is_no_conversation_says_so(document: Any) -> None:
    with pytest.raises(Unfit) as refused:
        from_chatgpt(document, Place(item=1))
    assert refused.value.reason is Reason.NO_CONVERSATION


# --- the report, marks, patience -----------------------------------------------------------------


def test_the_report_has_every_line_and_the_screen_the_first_faults() -> None:
    lines: list[str] = []
    tally = Tally("memories", lines.append)
    tally.leave_out(Skipped(Place(line=n), Reason.NOT_JSON, "is no JSON") for n in range(1, MAX_SHOWN + 11))
    tally.leave_out([Skipped(Place(item=3, message="m"), Reason.TOOL, "is of the role tool")])
    assert len(lines) == MAX_SHOWN + 11
    assert json.loads(lines[-1]) == {
        "item": 3,
        "message": "m",
        "reason": "tool",
        "why": "is of the role tool",
    }
    assert (len(tally.faults), tally.fault_count) == (MAX_SHOWN, MAX_SHOWN + 10)
    assert tally.line() == "imported 0, already there 0, skipped 31 (not_json 30, tool 1)"
    assert set(ON_PURPOSE) < set(Reason)


def test_marks_stay_and_a_call_that_was_cut_is_known(tmp_path: Path) -> None:
    one, two, three = (mark("c", name) for name in "123")
    with marks_of(tmp_path / "home", "server", "alice") as marks:
        marks.send([one], "r1", NOW)
        marks.arrived("r1")
        marks.send([two, three], "r2", NOW)
    with marks_of(tmp_path / "home", "server", "alice") as marks:
        assert marks.taken([one, two, three]) == {one}
        doubtful = marks.sending([one, two, three])
        assert doubtful is not None
        assert (doubtful.marks, doubtful.request_id, doubtful.began_at) == ({two, three}, "r2", NOW)
        marks.refused("r2")
        assert marks.sending([two, three]) is None
        assert marks.taken([two, three]) == set()
    with marks_of(tmp_path / "home", "server", "bob") as marks:
        assert marks.taken([one]) == set()


def test_marks_are_one_imports_at_a_time_and_hold_no_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("client_sync.importing.marks._LOCK_SECONDS", 0.0)
    with marks_of(tmp_path, "server", "sj_live_key") as marks:
        marks.send([mark("conversation", "message")], "r1", NOW)
        with (
            pytest.raises(ReplicaUnwritable, match="another program"),
            marks_of(tmp_path, "server", "sj_live_key"),
        ):
            pass
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not any(re.search(rb"conversation|message|sj_live", path.read_bytes()) for path in files)


def test_a_damaged_file_of_marks_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "imports" / f"{digest('x').hex()}.progress"
    path.parent.mkdir()
    path.write_bytes(b"no database" * 100)
    with pytest.raises(ReplicaUnwritable, match="delete it to begin anew"), marks_of(tmp_path, "x"):
        pass
    assert issubclass(sqlite3.DatabaseError, sqlite3.Error)


def test_marks_of_texts_that_join_alike_differ() -> None:
    assert len({digest("ab", "c"), digest("a", "bc"), digest("abc"), digest("ab", "c", "")}) == 4


def failing(*errors: Exception) -> Callable[[], str]:
    left = list(errors)

    def call() -> str:
        if left:
            raise left.pop(0)
        return "done"

    return call


def test_a_server_that_asks_for_time_gets_it_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    assert patiently(failing(StorageUnavailable(), StorageUnavailable())) == "done"
    assert pauses == [1.0, 2.0]
    with pytest.raises(StorageUnavailable):
        patiently(failing(*[StorageUnavailable()] * 50))
    assert sum(pauses[2:]) <= 60
    for error in (CredentialInvalid(), InternalError("x")):
        with pytest.raises(type(error)):
            patiently(failing(error))


# --- whatever a file holds -----------------------------------------------------------------------

anything = st.recursive(
    st.sampled_from(
        [
            None,
            True,
            False,
            0,
            -1,
            1e300,
            10**400,
            1.5,
            "",
            " ",
            "x",
            "a\0b",
            "\ud83d",
            "a",
            ID,
            "2026-01-01",
            "user",
        ]
    ),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["", "id", "a", "role"]), inner)
    ),
    max_leaves=4,
)
TALK = {
    "conversation_id": "c",
    "create_time": 1000,
    "current_node": "b",
    "mapping": {
        "root": ROOT,
        "a": node("root", "user", "x", at=1),
        "b": node("a", "assistant", "y", {"text": "z"}),
    },
}
LINE = {
    "id": ID,
    "user_id": "alice",
    "content": "tea",
    "tags": ["x"],
    "metadata": {"k": [1]},
    "source": {"role": "user", "message_ids": ["m"]},
    "confidence": 0.5,
    "privacy_level": "PRIVACY_LEVEL_SHARED",
    "created_at": "2026-01-01T00:00:00Z",
}


@st.composite
def spoilt(draw: st.DrawFn, document: Any) -> Any:
    """The document, with something of it become anything."""
    if not isinstance(document, dict | list) or not document or draw(st.integers(0, 3)) == 0:
        return draw(anything)
    keys = list(document) if isinstance(document, dict) else range(len(document))
    changed = draw(st.sampled_from(keys))
    copy = dict(document) if isinstance(document, dict) else list(document)
    copy[changed] = draw(spoilt(document[changed]))
    return copy


@settings(deadline=None, max_examples=200)
@given(spoilt(TALK))
def test_whatever_a_conversation_holds_is_read_or_told(document: Any) -> None:
    try:
        found = from_chatgpt(document, Place(item=1))
    except Unfit as error:
        told = [error.at(Place(item=1))]
    else:
        told = list(found.skipped)
        for message in found.messages:
            assert message.text.encode()
            assert message.id.encode()
        assert found.id.encode()
    assert all(json.dumps(one.to_json(), ensure_ascii=False).encode() for one in told)


@settings(deadline=None, max_examples=200)
@given(
    spoilt(LINE) | spoilt(MEM0), st.sampled_from([from_line, from_mem0]), st.sampled_from([ALICE, Whom(None)])
)
def test_whatever_a_row_holds_is_read_or_told(
    row: Any, parse: Callable[[object], v1.Memory], whom: Whom
) -> None:
    try:
        memory = finished(parse(row), whom)
    except Unfit as error:
        told = error.at(Place(line=1))
        json.dumps(told.to_json(), ensure_ascii=False).encode()
    else:
        assert is_memory_id(memory.id)
        assert v1.Memory.FromString(memory.SerializeToString()) == memory
