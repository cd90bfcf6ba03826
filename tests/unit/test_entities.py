"""What texts name and say, by rules, and when what they say holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bench import entities as bench
from scrubjay.memory import ClientId, Memory, MemoryId, Micros, Source
from scrubjay.text import tokens
from server.ingest.entities.entity import NOTHING, SUBJECT, EntityKind, Mention, entity_id, normal
from server.ingest.entities.extraction import MOST_CLAIMS, MOST_MENTIONS, MOST_NAME, extract
from server.ingest.entities.linking import links_of, named_in, names_in
from server.ingest.entities.validity import Told, held_at, until
from server.recall.entities import EntityIndex, pieces, telling
from server.store.entities import RelationRow, ToldRow
from tests.stored import ALICE, BOB

# As measured, less a little: see bench/entities.py.
FLOORS = {"seen": (0.97, 0.97, 0.97, 0.97, 0.97), "last": (0.93, 0.85, 0.95, 0.92, 0.85)}


@pytest.mark.parametrize("split", bench.SPLITS)
def test_labelled_sentences_are_read_at_least_so_well(split: str) -> None:
    labels = [one for one in bench.labels() if one.split == split]
    found = bench.figures(labels)
    assert found.sentences >= 40
    assert all(share >= floor for share, floor in zip(found[1:], FLOORS[split], strict=True)), found


def test_there_are_labels_enough_in_both_languages() -> None:
    labels = bench.labels()
    assert len(labels) >= 100
    assert {one.language for one in labels} == {"en", "zh"}
    assert sum(not one.kinds for one in labels) >= 10


@pytest.mark.parametrize(
    "text",
    [
        "",
        "What a day!",
        "Thanks, Monday works for me.",
        "Do you live in the city?",
        "I like it.",
        "I love you.",
        "I work from home.",
        "我在家里工作。",
        "你叫什么名字？",
        "我很喜欢你。",
        "明天上午九点开会。",
        "小时候我很害羞。",
    ],
)
def test_what_names_nobody_gives_nothing(text: str) -> None:
    assert extract(text) == NOTHING


@pytest.mark.parametrize(
    "text",
    [
        "Do I work at Acme?",
        "If I lived in Rome, I would be happy.",
        "I wish I lived in Rome.",
        "Maybe I work at Acme.",
        'He said "I live in Rome".',
        "我想住在杭州。",
        "如果我在字节上班就好了。",
        "我在字节上班吗？",
    ],
)
def test_what_is_asked_wished_or_quoted_is_not_said(text: str) -> None:
    assert extract(text).claims == ()


def claims(text: str, role: str = "") -> list[tuple[str, str, str, bool]]:
    return [
        (one.subject.name, one.relation, one.object.name, one.ended) for one in extract(text, role).claims
    ]


def test_i_is_who_speaks() -> None:
    said = "I live in Oslo."
    assert claims(said) == claims(said, "user") == [("", "lives_in", "Oslo", False)]
    assert claims(said, "Caroline") == [("Caroline", "lives_in", "Oslo", False)]
    assert claims(f"Caroline: {said}", "Caroline") == claims(said, "Caroline")
    assert claims(said, "assistant") == claims(said, "system") == []
    assert [one.name for one in extract("Good morning!", "Caroline").mentions] == ["Caroline"]


def test_a_name_has_one_normal_form() -> None:
    for names in (
        ["VS Code", "vs code", "ＶＳ　Code", " VS  Code "],
        ["Dr. Chen", "Chen", "Prof. Chen", "CHEN"],
        ["小紅", "小红"],
        ["https://example.org/", "example.org", "http://www.example.org"],
        ["「猎鹰」", "猎鹰"],
    ):
        assert len({normal(name) for name in names}) == 1, names
    assert normal("C++") != normal("C#") != normal("C")
    anna = Mention("Anna", EntityKind.PERSON)
    assert entity_id(ALICE, anna) == entity_id(ALICE, Mention("ANNA", EntityKind.NAME))
    assert entity_id(ALICE, anna) != entity_id(BOB, anna)


@given(st.text(max_size=300), st.sampled_from(["", "user", "assistant", "Anna", "小红"]))
def test_reading_never_raises_and_is_bounded(text: str, role: str) -> None:
    named = extract(text, role)
    assert named == extract(text, role)
    assert len(named.mentions) <= MOST_MENTIONS
    assert len(named.claims) <= MOST_CLAIMS
    assert all(len(one.name) <= MOST_NAME for one in named.mentions)
    normals = [one.normal for one in named.mentions]
    assert len(set(normals)) == len(normals)
    assert all(one.normal or one == SUBJECT for one in named.mentions)
    ends = {end for one in named.claims for end in (one.subject, one.object)}
    assert ends <= set(named.mentions)
    assert not any("\n" in one for one in normals)


def test_a_long_text_is_read_in_little_time() -> None:
    text = "Anna met Tom at Acme in Oslo and I like tea, 我在字节上班。" * 250
    assert len(extract(text[:16_000]).mentions) <= MOST_MENTIONS


def memory(content: str, **fields: Any) -> Memory:
    source = Source(role=fields.pop("role", ""))
    given = {
        "created_at": Micros(5),
        "user_id": "alice",
        "owner_client_id": ClientId("web"),
        "source": source,
    }
    return Memory(MemoryId("00000000-0000-7000-8000-000000000001"), content, **{**given, **fields})


def test_links_say_since_when_and_until_when() -> None:
    said = memory("I work at Acme.", valid_from=Micros(3), valid_to=Micros(9))
    (row,) = links_of(ALICE, said, named_in(said)).relations
    assert (row.valid_from, row.valid_to) == (3, 9)
    over = memory("I no longer work at Acme.")
    (row,) = links_of(ALICE, over, named_in(over)).relations
    assert (row.valid_from, row.valid_to) == (None, 5)
    assert {one.name for one in links_of(ALICE, over, named_in(over)).mentions} == {"Acme", "alice"}
    assert names_in(over) == ("acme",)


# --- when a relation holds ------------------------------------------------------------------------


def told(number: int, relation: str, thing: str, since: int | None, to: int | None = None) -> ToldRow:
    row = RelationRow(
        MemoryId(str(number)),
        0,
        "me",
        relation,
        thing,
        None if since is None else Micros(since),
        None if to is None else Micros(to),
    )
    return ToldRow(row, None)


def ends(*rows: ToldRow) -> Sequence[Micros | None]:
    """Each one's end, which is the same whether all are asked or only those that may end it."""
    grouped = Told()
    grouped.add(rows)
    found = [until(row, rows) for row in rows]
    assert [grouped.until(row.relation) for row in rows] == found
    return found


def test_one_of_a_kind_ends_what_was_before() -> None:
    rows = told(1, "lives_in", "rome", 1), told(2, "lives_in", "oslo", 5), told(3, "lives_in", "rome", 9)
    assert ends(*rows) == [5, 9, None]
    assert ends(told(1, "sister", "anna", 1), told(2, "sister", "rosa", 5)) == [None, None]
    assert ends(told(1, "lives_in", "rome", 1), told(2, "lives_in", "rome", 5)) == [None, None]


def test_what_is_over_ends_what_began_before_it() -> None:
    rows = told(1, "uses", "vim", 1), told(2, "uses", "vim", None, 5), told(3, "uses", "vim", 7)
    assert ends(*rows) == [5, 5, None]


def test_the_opposite_and_a_successor_end_it_too() -> None:
    assert ends(told(1, "likes", "tea", 1), told(2, "dislikes", "tea", 5)) == [5, None]
    assert ends(told(1, "likes", "tea", 1), told(2, "dislikes", "coffee", 5)) == [None, None]
    replaced = ToldRow(told(1, "likes", "tea", 1).relation, Micros(4))
    assert until(replaced, [replaced]) == 4


def test_a_relation_held_from_its_beginning_to_before_its_end() -> None:
    row = told(1, "lives_in", "rome", 3).relation
    assert [held_at(row, Micros(6), Micros(at)) for at in (2, 3, 5, 6)] == [False, True, True, False]
    assert held_at(row, None, Micros(99))


# --- the arm --------------------------------------------------------------------------------------


def test_a_query_names_what_its_words_stand_side_by_side_for() -> None:
    index = EntityIndex()
    for slot, names in enumerate((("vs code", "anna"), ("anna",), ("小红",), ())):
        index.add(slot, names)
    for query, wanted in (
        ("Who taught Anna VS Code?", {0, 1}),
        ("Anna's car", {0, 1}),
        ("code", set()),
        ("小紅喜欢什么", {2}),
        ("annabel", set()),
    ):
        share = index.share(query, 4, None)
        found = set() if share is None else {slot for slot in range(4) if share[slot] > 0}
        assert found == wanted, query
    both = index.share("Anna and VS Code", 4, None)
    assert both is not None
    assert both[0] > both[1] > 0 == both[3]
    index.remove(0, ("vs code", "anna"))
    assert index.share("VS Code", 4, None) is None


def test_a_name_that_all_mention_says_nothing() -> None:
    assert telling(1, 100) == 1
    assert telling(100, 100) == 0
    assert 0 < telling(50, 100) < telling(2, 100) < 1
    assert telling(1, 1) == 1


@given(st.text(max_size=200))
@example("0 s")
def test_pieces_of_a_query_are_few_and_normal(text: str) -> None:
    found = list(pieces(text))
    assert len(found) <= 4000
    assert all(one == one.strip() for one in found)
    assert len(found) <= 12 * (len(text) * 4 + len(tokens(text)) + 1)
