"""What a device finds in its own file: by words, by meaning, behind its gates."""

from __future__ import annotations

import math
import random
import sqlite3
import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from client_sync.identity import Identity
from client_sync.replica_file import ReplicaFile
from client_sync.search import MAX_TOP_K, Hit, QueryVector, index_pending, packed_terms, search
from scrubjay.errors import InvalidField
from scrubjay.memory import (
    ClientId,
    Memory,
    MemoryId,
    Micros,
    PrivacyLevel,
    Subject,
    id_bytes,
    new_memory_id,
)
from scrubjay.merge import create
from scrubjay.stamp import CommitStamp, ReplicaId, Stamp, pack_field_stamps
from scrubjay.text import tokens
from scrubjay.wire import commit_micros, to_message
from server.recall.lexical import LexicalIndex

ME = Identity(b"p" * 8, ClientId("phone"), Subject("user", "ann"))
NOW = Micros(1_795_996_800_000_000)
WRITTEN = Stamp(NOW // 1000 << 16, ReplicaId(b"r" * 16))
SPACE = "test-1/4"


class Rows:
    """A replica's file with rows put in by hand."""

    def __init__(self, sql: sqlite3.Connection) -> None:
        self.sql = sql
        self._made = 0

    def add(self, content: str, *, indexed: bool = True, commit_stamp: int = 0, **fields: Any) -> MemoryId:
        """One row; each is a minute newer than the one before."""
        self._made += 1
        memory = Memory(
            id=new_memory_id(self._made, struct.pack(">IIH", 0, self._made, 0)),
            content=content,
            created_at=Micros(NOW - 10**12 + self._made * 60_000_000),
            user_id="ann",
            owner_client_id=ClientId("phone"),
        )
        memory = replace(memory, **fields)
        stamp = CommitStamp(commit_stamp or memory.created_at // 1000 << 16)
        self.sql.execute(
            "INSERT INTO rows (id, commit_stamp, created_at, message, field_stamps, terms)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (
                id_bytes(memory.id),
                stamp,
                memory.created_at,
                to_message(memory, CommitStamp(max(0, stamp))).SerializeToString(),
                pack_field_stamps(create(memory, WRITTEN).stamps),
                packed_terms(content) if indexed else None,
            ),
        )
        return memory.id

    def embed(
        self, memory_id: MemoryId, vector: Sequence[float], *, stamp: Stamp = WRITTEN, space: str = SPACE
    ) -> None:
        """The embedding of a memory as the lane delivers it."""
        scale = max(map(abs, vector)) / 127 or 1.0
        code = struct.pack(f"<{len(vector)}bf", *(round(value / scale) for value in vector), scale)
        self.sql.execute(
            "INSERT OR REPLACE INTO vectors (id, content_stamp, space, code) VALUES (?, ?, ?, ?)",
            (id_bytes(memory_id), stamp.pack(), space, code),
        )

    def search(self, query: str, **options: Any) -> list[Hit]:
        return search(self.sql, ME, query, **{"top_k": 10, "now": NOW} | options)

    def found(self, query: str, **options: Any) -> list[str]:
        """The contents of the hits, best first."""
        return [hit.memory.content for hit in self.search(query, **options)]


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[Rows]:
    file = ReplicaFile.create(tmp_path / "replica.db")
    with file.transaction(durable=False) as sql:
        yield Rows(sql)
    file.close()


# --- words ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("indexed", [True, False])
def test_english_and_chinese_are_found_by_their_words(rows: Rows, indexed: bool) -> None:
    rows.add("Ann prefers green tea", indexed=indexed)
    rows.add("我的牙医姓罗，在人民路", indexed=indexed)
    rows.add("她喜欢喝绿茶", indexed=indexed)
    assert rows.found("牙医") == ["我的牙医姓罗，在人民路"]
    assert rows.found("绿茶") == ["她喜欢喝绿茶"]
    assert rows.found("teas") == ["Ann prefers green tea"]
    assert rows.found("zeppelin") == []


def test_the_memory_with_the_rarer_words_comes_first(rows: Rows) -> None:
    for number in range(30):
        rows.add(f"note {number} about the weather")
    rows.add("the dentist is Dr Roy")
    rows.add("the weather in Paris")
    first, second = rows.search("weather at the dentist", top_k=2)
    assert first.memory.content == "the dentist is Dr Roy"
    assert 1 > first.score > second.score > 0


def test_all_words_are_one_and_equals_come_newest_first(rows: Rows) -> None:
    for number in range(5):
        rows.add(f"red bicycle {number}")
    hits = rows.search("red bicycle", top_k=3)
    assert [hit.memory.content for hit in hits] == ["red bicycle 4", "red bicycle 3", "red bicycle 2"]
    assert [hit.score for hit in hits] == [1, 1, 1]


def test_a_hit_says_what_it_shares_and_that_it_is_local(rows: Rows) -> None:
    rows.add("a red bicycle in Paris", commit_stamp=99 << 16)
    (hit,) = rows.search("Where is my red bicycle? Red!")
    assert hit.local
    assert hit.matched_terms == ("red", "bicycl")
    assert hit.updated_at == commit_micros(CommitStamp(99 << 16))
    assert [(each.arm, each.value) for each in hit.contributions] == [("lexical", hit.score)]


def test_a_query_without_a_word_finds_nothing(rows: Rows) -> None:
    rows.add("a red bicycle")
    assert rows.found("?!") == []


def test_terms_that_lie_astride_two_hashes_are_no_hit(rows: Rows) -> None:
    memory_id = rows.add("a red bicycle")
    inner = b"\0\0" + packed_terms("zeppelin") + b"\0\0"
    rows.sql.execute("UPDATE rows SET terms = ? WHERE id = ?", (inner, id_bytes(memory_id)))
    assert rows.found("zeppelin") == []


def test_a_memory_of_another_text_with_an_equal_hash_is_no_hit(rows: Rows) -> None:
    memory_id = rows.add("a red bicycle")
    rows.add("green tea")
    terms = packed_terms("zeppelin bicycle")
    rows.sql.execute("UPDATE rows SET terms = ? WHERE id = ?", (terms, id_bytes(memory_id)))
    assert rows.found("zeppelin") == []
    (hit,) = rows.search("zeppelin bicycle")
    assert hit.matched_terms == ("bicycl",)
    assert hit.score < 1


WORDS = [
    "tea",
    "red",
    "bicycle",
    "牙医",
    "绿茶",
    "姓罗",
    "the",
    "my",
    "的",
    "我",
    "C++",
    "3.11",
    "naïve",
    "ab-12",
]
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=40).map(" ".join)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(TEXTS, st.booleans()), min_size=1, max_size=12), TEXTS)
@example([("tea", True), ("red", False)], "tea red bicycle")
@example([(" ".join(WORDS), True)], " ".join(WORDS * 3))
def test_coverage_is_what_the_server_measures(contents: list[tuple[str, bool]], query: str) -> None:
    """On any texts, indexed or not, short queries and long ones."""
    server = LexicalIndex()
    sql = sqlite3.connect(":memory:")
    sql.execute("CREATE TABLE rows (id, commit_stamp, created_at, message, field_stamps, terms)")
    device = Rows(sql)
    ids = [device.add(content, indexed=indexed) for content, indexed in contents]
    for slot, (content, _) in enumerate(contents):
        server.add(slot, tokens(content))
    measured = server.coverage(dict.fromkeys(tokens(query), 1), len(ids))
    expected = [0.0] * len(ids) if measured is None else measured.tolist()
    hits = {hit.memory.id: hit.score for hit in device.search(query, top_k=len(ids))}
    sql.close()
    assert [hits.get(memory_id, 0.0) for memory_id in ids] == pytest.approx(expected, abs=1e-6)


# --- the packed terms ----------------------------------------------------------------------------


def test_terms_are_packed_once_each_and_sorted() -> None:
    packed = packed_terms("Tea, tea and 绿茶")
    hashes = [packed[at : at + 4] for at in range(0, len(packed), 4)]
    assert hashes == sorted(set(hashes))
    assert len(hashes) == len(set(tokens("Tea, tea and 绿茶")))
    assert packed_terms("") == packed_terms("?!") == b""
    assert len(packed_terms("\ud800 tea")) == 4 * len(set(tokens("\ud800 tea")))


def test_pending_rows_are_indexed_a_few_at_a_time_until_none_is_left(rows: Rows) -> None:
    for number in range(5):
        rows.add(f"note {number}", indexed=False)
    rows.add("indexed before")
    assert [index_pending(rows.sql, 2) for _ in range(4)] == [2, 2, 1, 0]
    for message_terms, content in (
        (terms, f"note {number}")
        for number, (terms,) in enumerate(
            rows.sql.execute("SELECT terms FROM rows ORDER BY created_at LIMIT 5")
        )
    ):
        assert message_terms == packed_terms(content)


def test_what_is_pending_is_found_without_a_look_at_the_rest(rows: Rows) -> None:
    rows.add("tea", indexed=False)
    asked: list[str] = []
    rows.sql.set_trace_callback(asked.append)
    assert index_pending(rows.sql, 2) == 1
    rows.sql.set_trace_callback(None)
    plans = [rows.sql.execute(f"EXPLAIN QUERY PLAN {one}").fetchall() for one in asked]
    assert [plan for plan in plans if any("SCAN rows" in step[3] for step in plan)] == []


def test_a_damaged_row_stops_neither_indexing_nor_search(rows: Rows) -> None:
    for where in ("message", "field_stamps"):
        bad = rows.add(f"tea with bad {where}", indexed=False)
        rows.sql.execute(f"UPDATE rows SET {where} = x'ff00' WHERE id = ?", (id_bytes(bad),))
    rows.add("tea", indexed=False)
    assert rows.found("tea") == ["tea"]
    assert index_pending(rows.sql, 10) == 3
    assert index_pending(rows.sql, 10) == 0
    assert rows.found("tea") == ["tea"]


# --- gates ---------------------------------------------------------------------------------------


def test_expired_rows_are_hidden_and_those_of_this_device_alone_are_shown(rows: Rows) -> None:
    rows.add("tea long ago", expires_at=NOW)
    rows.add("tea until soon", expires_at=Micros(NOW + 1))
    rows.add("tea for me", privacy_level=PrivacyLevel.PRIVATE)
    rows.add("tea on this phone", privacy_level=PrivacyLevel.LOCAL_ONLY, commit_stamp=-1)
    rows.add("tea of another", privacy_level=PrivacyLevel.PRIVATE, owner_client_id=ClientId("laptop"))
    assert set(rows.found("tea")) == {"tea until soon", "tea for me", "tea on this phone"}


def test_a_row_that_the_server_does_not_have_yet_changed_when_it_was_written(rows: Rows) -> None:
    rows.add("tea", commit_stamp=-1)
    assert rows.search("tea")[0].updated_at == NOW


def test_scopes_let_in_what_lies_below_them_and_a_hit_names_its_own(rows: Rows) -> None:
    rows.add("tea at work", scope="work/alpha")
    rows.add("tea with acme", scope="work-acme")
    rows.add("tea at home", scope="home")
    hits = rows.search("tea", scopes=("work", "home"))
    assert [(hit.memory.content, hit.scope) for hit in hits] == [
        ("tea at home", "home"),
        ("tea at work", "work"),
    ]
    assert rows.search("tea")[0].scope == ""


def test_a_filter_that_few_pass_finds_them_behind_thousands(rows: Rows) -> None:
    wanted = rows.add("tea", pinned=True)
    for _ in range(1_000):
        rows.add("tea")
    hits = rows.search("tea", matches=lambda memory, _: memory.pinned)
    assert [hit.memory.id for hit in hits] == [wanted]


def test_a_filter_sees_when_a_memory_changed(rows: Rows) -> None:
    rows.add("old tea", commit_stamp=1_000 << 16)
    rows.add("new tea", commit_stamp=2_000 << 16)
    assert rows.found("tea", matches=lambda _, changed_at: changed_at > 1_500_000) == ["new tea"]


@pytest.mark.parametrize(
    ("query", "options", "field"),
    [
        (" ", {}, "query"),
        ("tea\ud800", {}, "query"),
        ("tea", {"top_k": 0}, "top_k"),
        ("tea", {"top_k": MAX_TOP_K + 1}, "top_k"),
        ("tea", {"scopes": ("work", "a//b")}, "scopes"),
    ],
)
def test_a_wrong_request_is_refused_by_name(
    rows: Rows, query: str, options: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidField) as raised:
        rows.search(query, **options)
    assert [violation.field for violation in raised.value.field_violations] == [field]


# --- meaning -------------------------------------------------------------------------------------


def test_a_memory_without_a_shared_word_is_found_by_meaning(rows: Rows) -> None:
    tea, car = rows.add("green tea"), rows.add("a red car")
    rows.embed(tea, (1, 0, 0, 0))
    rows.embed(car, (0, 1, 0, 0))
    hits = rows.search("something to drink", vector=QueryVector(SPACE, (2.0, 0.0, 0.0, 0.0)))
    assert [hit.memory.id for hit in hits] == [tea]
    assert hits[0].score == pytest.approx(0.6)
    assert hits[0].matched_terms == ()


def test_contributions_of_words_and_meaning_add_up_to_the_score(rows: Rows) -> None:
    both, words = rows.add("green tea"), rows.add("green tea, again")
    rows.embed(both, (0.6, 0.8, 0, 0))
    hits = rows.search("green tea", vector=QueryVector(SPACE, (1.0, 0.0, 0.0, 0.0)))
    assert [hit.memory.id for hit in hits] == [both, words]
    for hit in hits:
        assert hit.score == pytest.approx(sum(each.value for each in hit.contributions), abs=1e-9)
    assert [(each.arm, each.measure) for each in hits[0].contributions] == [
        ("dense", pytest.approx(0.6, abs=0.01)),
        ("lexical", pytest.approx(1)),
    ]
    assert [each.measure for each in hits[1].contributions] == [0, pytest.approx(1)]


def test_an_embedding_of_an_earlier_text_or_another_space_counts_for_nothing(rows: Rows) -> None:
    stale, foreign, short, good = (rows.add(text) for text in ("stale", "foreign", "short", "good"))
    rows.embed(stale, (1, 0, 0, 0), stamp=Stamp(WRITTEN.time - 1, WRITTEN.replica))
    rows.embed(foreign, (1, 0, 0, 0), space="other-1/4")
    rows.embed(short, (1, 0, 0))
    rows.embed(good, (0.1, 1, 0, 0))
    vector = QueryVector(SPACE, (1.0, 0.0, 0.0, 0.0))
    assert rows.found("anything", top_k=1, vector=vector) == ["good"]
    assert rows.found("stale", vector=vector) == ["stale", "good"]
    assert rows.search("stale", vector=vector)[0].score == pytest.approx(0.4)


def test_an_embedding_without_its_memory_is_passed_over(rows: Rows) -> None:
    rows.embed(MemoryId("01939f2e-7a00-7000-8000-000000000001"), (1, 0, 0, 0))
    assert rows.found("tea", vector=QueryVector(SPACE, (1.0, 0.0, 0.0, 0.0))) == []


@pytest.mark.parametrize("values", [(0.0, 0.0, 0.0, 0.0), ()])
def test_a_vector_that_says_nothing_leaves_the_words(rows: Rows, values: tuple[float, ...]) -> None:
    rows.embed(rows.add("tea"), (1, 0, 0, 0))
    assert rows.search("tea", vector=QueryVector(SPACE, values))[0].score == pytest.approx(0.4)


def test_the_nearest_of_many_are_found_exactly(rows: Rows) -> None:
    draw = random.Random(7)
    size = 64

    def unit() -> list[float]:
        values = [draw.gauss(0, 1) for _ in range(size)]
        return [value / math.hypot(*values) for value in values]

    target = unit()
    cosines = {}
    for number in range(1_500):
        strength = draw.random()
        values = [
            strength * mine + (1 - strength) * other for mine, other in zip(target, unit(), strict=True)
        ]
        memory_id = rows.add(f"note {number}")
        rows.embed(memory_id, values)
        cosines[memory_id] = sum(map(lambda a, b: a * b, target, values))
    nearest = sorted(cosines, key=cosines.__getitem__, reverse=True)[:10]
    hits = rows.search("anything", vector=QueryVector(SPACE, target))
    assert len({hit.memory.id for hit in hits} & set(nearest)) >= 9
