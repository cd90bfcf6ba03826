"""What a search measures, adds up and puts in order, where it scores all rows and where it scores a few."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from scrubjay.memory import ClientId, Memory, MemoryId, Micros, PrivacyLevel, Source, parse_time
from server.index import switch
from server.index.hnsw_index import HnswIndex
from server.recall import candidates, newer
from server.recall.newer import AHEAD
from server.recall.query import Hit
from server.recall.recipes import RECIPES
from tests.residents import DAY, HOUR, Feed, ago, feeding
from tests.stored import NOW, memory, new_id


@pytest.fixture(params=["exact", "graph"])
def feed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Feed]:
    if request.param == "graph":
        monkeypatch.setattr(switch, "EXACT_ROWS", 0)
    with feeding() as opened:
        yield opened
        assert isinstance(opened.stream.vectors, HnswIndex) is (request.param == "graph")


def value(hit: Hit, arm: str) -> float:
    return hit.contributions[arm].value


def measured(feed: Feed, arm: str, recipe: str, text: str, **asked: Any) -> dict[str, float]:
    hits = feed.hits(text, recipe, **asked)
    return {hit.row.memory.content: hit.contributions[arm].measure for hit in hits}


# --- arms and recipes ------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", RECIPES)
def test_weights_add_up_to_one_and_contributions_to_the_score(feed: Feed, recipe: str) -> None:
    weights = dict(RECIPES[recipe].weights)
    assert weights.pop("neighbours", 0) < 1
    assert sum(weights.values()) - weights.pop("newer", 0) + (recipe == "default") * AHEAD == pytest.approx(1)
    old = memory("The report on tea is due", category="TASK", tags=frozenset(["report"]))
    new = memory("The tea report was moved", tags=frozenset(["tea", "work"]))
    feed.put(new, replace(old, superseded_by=new.id), memory("Milk", created_at=ago(40 * DAY)))
    for text in ("tea report", "when is the report due?", "milk", "nothing of this", "茶"):
        for hit in feed.hits(text, recipe):
            assert sum(part.value for part in hit.contributions.values()) == pytest.approx(
                hit.score, abs=1e-9
            )
            assert 0 <= hit.score <= 1
            assert all(0 <= part.measure <= 1 for part in hit.contributions.values())


def test_tags_count_by_the_share_of_the_terms_that_name_one(feed: Feed) -> None:
    feed.put(
        memory("one", tags=frozenset(["Budgets", "2026"])),
        memory("two", tags=frozenset(["预算"])),
        memory("three"),
    )
    shares = measured(feed, "tag", "shared-memory", "budget 2026")
    assert shares == pytest.approx({"one": 1, "two": 0, "three": 0})
    shares = measured(feed, "tag", "shared-memory", "budget of march")
    assert shares == pytest.approx({"one": 1 / 3, "two": 0, "three": 0})
    assert measured(feed, "tag", "shared-memory", "预算")["two"] == pytest.approx(1)


def test_a_tag_that_was_taken_off_is_no_tag_any_more(feed: Feed) -> None:
    one = memory("one", tags=frozenset(["budget", "work"]))
    feed.put(one)
    feed.put(replace(one, tags=frozenset(["work"])))
    assert measured(feed, "tag", "shared-memory", "budget") == {"one": 0}
    feed.put(replace(one, content="another", tags=frozenset(["budget"])))
    assert measured(feed, "tag", "shared-memory", "budget") == {"another": 1}
    feed.delete(one.id)
    assert feed.hits("budget", "shared-memory") == []
    assert feed.stream.tags.nbytes == 0


def test_what_is_recent_halves_each_week(feed: Feed) -> None:
    feed.put(
        memory("now"),
        memory("a week", created_at=ago(7 * DAY)),
        memory("two", created_at=ago(14 * DAY)),
        memory("to come", created_at=Micros(NOW + DAY)),
    )
    ages = measured(feed, "recent", "shared-memory", "x")
    assert ages == pytest.approx({"now": 1, "a week": 0.5, "two": 0.25, "to come": 1})


def test_open_tasks_are_those_of_three_days_that_nothing_replaced(feed: Feed) -> None:
    task = {"category": "TASK"}
    replaced = memory("replaced", superseded_by=new_id(), **task)
    begun = memory("begun", created_at=ago(90 * DAY), valid_from=ago(DAY), **task)
    to_come = memory("to come", created_at=ago(90 * DAY), valid_from=Micros(NOW + DAY), **task)
    feed.put(
        memory("open", created_at=ago(71 * HOUR), **task),
        memory("old", created_at=ago(73 * HOUR), **task),
        memory("a fact"),
        replaced,
        begun,
        to_come,
    )
    found = measured(feed, "open_tasks", "shared-memory", "x")
    assert {content for content, measure in found.items() if measure} == {"open", "begun"}


def test_scores_fade_with_the_days_since_the_last_access(feed: Feed) -> None:
    seen, unseen = memory("tea one", created_at=ago(100 * DAY)), memory("tea two", created_at=ago(10 * DAY))
    feed.put(seen, unseen)
    before = {hit.row.memory.content: hit.score for hit in feed.hits("tea", "shared-memory")}
    feed.stream.note_access(seen.id, ago(2 * DAY))
    after = {hit.row.memory.content: hit.score for hit in feed.hits("tea", "shared-memory")}
    assert after["tea one"] == pytest.approx(before["tea one"] * 0.95**-98)
    assert after["tea two"] == before["tea two"]
    feed.put(replace(seen, content="tea three", category="TASK"))
    again = {hit.row.memory.content: hit for hit in feed.hits("tea", "shared-memory")}
    assert value(again["tea three"], "lexical") == pytest.approx(1 / 3.9 * 0.95**2)


def test_hybrid_needs_a_tenth_and_gives_twenty(feed: Feed) -> None:
    feed.put(*[memory(f"tea number {n}") for n in range(30)], memory("something else entirely"))
    hits = feed.hits("tea", "hybrid-v3", top_k=RECIPES["hybrid-v3"].top_k)
    assert len(hits) == 20
    assert all(hit.score >= 0.1 for hit in hits)
    assert feed.hits("zebra", "hybrid-v3") == []


# --- turns, speakers and times ---------------------------------------------------------------------


def turns(
    *said: tuple[str, str], conversation: str = "c1", gap: int = HOUR // 60, end: int = 0
) -> list[Memory]:
    """A dialogue of (role, content), one turn after the other, the last one ``end`` + ``gap`` ago."""
    return [
        memory(
            content,
            created_at=ago(end + gap * (len(said) - n)),
            source=Source(conversation_id=conversation, role=role),
        )
        for n, (role, content) in enumerate(said)
    ]


def test_a_turn_is_also_about_what_is_said_beside_it(feed: Feed) -> None:
    question = "How long does Ann walk her dogs?"
    answer = "Yeah, about an hour"
    feed.put(
        *turns(("Bob", "Do you walk your dogs long, Ann?"), ("Ann", answer), ("Bob", "Fine weather today"))
    )
    feed.put(memory("An hour is sixty minutes"), *[memory(f"Something else {n}") for n in range(20)])
    first, second = feed.hits(question, top_k=2)
    assert second.row.memory.content == answer
    assert value(second, "neighbours") > 0
    assert value(first, "neighbours") == 0
    assert "neighbours" not in feed.hits(question, "semantic")[0].contributions


def test_the_second_turn_lends_less_than_the_next_one(feed: Feed) -> None:
    feed.put(*turns(("Ann", "dogs walk"), ("Ann", "an hour"), ("Ann", "fine weather"), ("Ann", "good night")))
    lifts = {
        hit.row.memory.content: hit.contributions["neighbours"].measure for hit in feed.hits("dogs walk")
    }
    (best,) = [hit.score for hit in feed.hits("dogs walk", top_k=1)]
    assert lifts == pytest.approx(
        {"dogs walk": 0, "an hour": best, "fine weather": 0.8 * best, "good night": 0}, abs=0.05
    )


def test_of_a_large_stream_the_turns_beside_the_best_are_looked_at_too(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "LEAST_POOL", 1)
    monkeypatch.setattr(candidates, "POOL", 0)
    feed.put(*[memory(f"we walk the dog of neighbour {n}") for n in range(40)])
    feed.put(*turns(("Ann", "zebra xylophone"), ("Ann", "an hour")))
    assert feed.found("zebra xylophone", top_k=2) == ["zebra xylophone", "an hour"]


def test_what_stands_alone_or_lies_apart_gets_nothing_from_beside(feed: Feed) -> None:
    feed.put(memory("dogs walk", created_at=ago(2)), memory("an hour", created_at=ago(1)))
    feed.put(*turns(("Ann", "dogs walk"), ("Ann", "an hour"), conversation="c2", gap=HOUR))
    assert all(value(hit, "neighbours") == 0 for hit in feed.hits("dogs walk"))
    feed.put(*turns(("Ann", "dogs walk"), ("Ann", "an hour"), conversation="c3", gap=HOUR // 2))
    assert sum(value(hit, "neighbours") > 0 for hit in feed.hits("dogs walk")) == 1


def test_hidden_turns_lend_nothing_and_part_nobody(feed: Feed) -> None:
    one, two, three = turns(("Ann", "dogs walk"), ("Ann", "secret dogs walk"), ("Ann", "an hour"))
    feed.put(one, three)
    before = feed.hits("secret dogs walk")
    feed.put(replace(two, privacy_level=PrivacyLevel.PRIVATE, owner_client_id=ClientId("phone")))
    assert feed.hits("secret dogs walk") == before


def test_a_question_names_whose_words_it_asks_for(feed: Feed) -> None:
    feed.put(*turns(("user", "The lake is nice"), ("assistant", "The lake is nice"), gap=2 * HOUR))
    feed.put(memory("The lake is nice"))
    for query, role in (
        ("what did you say of the lake", "assistant"),
        ("what did I say of the lake", "user"),
    ):
        best = feed.hits(query, top_k=1)[0]
        assert best.row.memory.source.role == role
        assert best.contributions["speaker"].measure == 1
    assert value(feed.hits("the lake")[0], "speaker") == 0
    named = turns(("Ann Lee", "A lake"), ("Bob", "A lake"), gap=2 * HOUR, conversation="c2")
    feed.put(*named)
    shares = {hit.row.memory.source.role: value(hit, "speaker") for hit in feed.hits("Ann at the lake")}
    assert shares["Ann Lee"] == pytest.approx(0.07 / 2)
    assert shares["Bob"] == 0


def test_where_one_speaks_alone_it_says_nothing(feed: Feed) -> None:
    feed.put(memory("The lake is nice", source=Source(role="user")), memory("The lake is far"))
    assert all(value(hit, "speaker") == 0 for hit in feed.hits("what did I say of the lake"))
    secret = {"privacy_level": PrivacyLevel.PRIVATE, "owner_client_id": ClientId("phone")}
    feed.put(memory("The lake is cold", source=Source(role="assistant"), **secret))
    assert all(value(hit, "speaker") == 0 for hit in feed.hits("what did I say of the lake"))
    assert any(value(hit, "speaker") > 0 for hit in feed.hits("what did I say of the lake", client="phone"))


def test_a_time_that_the_query_names_is_a_soft_signal(feed: Feed) -> None:
    then = parse_time("2026-05-02T23:30:00Z")
    day_after = parse_time("2026-05-03T00:00:00Z")
    assert then is not None
    assert day_after is not None
    feed.put(
        memory("We talked of boats", created_at=then), memory("We talked of boats", created_at=day_after)
    )
    feed.put(memory("Boats and boats", created_at=ago(DAY)))
    for query in ("What did we talk about on 2 May?", "5月2日我们聊了什么", "what was on 2026-05-02"):
        first, *others = feed.hits(query)
        assert first.row.memory.created_at == then
        assert value(first, "time") == pytest.approx(0.1)
        assert all(value(hit, "time") == 0 for hit in others)
    assert len(feed.hits("What did we talk about on 2 May?")) == 3
    feed.put(memory("The boats sail", valid_from=then))
    assert (
        feed.hits("boats on 2 May", matches=lambda m, _: bool(m.valid_from))[0].contributions["time"].measure
    )
    assert value(feed.hits("boats yesterday", top_k=1)[0], "time") > 0


def test_of_two_that_say_the_same_the_newer_one_comes_first(feed: Feed) -> None:
    old, new = (
        memory("I live in Berlin", created_at=ago(90 * DAY)),
        memory("I live in Lisbon since May", created_at=ago(DAY)),
    )
    feed.put(old, new, *[memory(f"Something about topic {n}", created_at=ago(40 * DAY)) for n in range(20)])
    query = "Where do I live?"
    assert feed.found(query, "semantic", top_k=1) == [old.content]
    first, second = feed.hits(query, top_k=2)
    assert (first.row.memory, second.row.memory) == (new, old)
    assert 0 < first.score - second.score <= AHEAD + 1e-9
    assert value(first, "newer") > 0
    assert feed.found("Where did I live before?", top_k=1) == [old.content]
    only_old = feed.hits(query, matches=lambda m, _: m.id == old.id)
    assert value(only_old[0], "newer") == 0


def lifted(later_score: float = 0.45, days: float = 2, voices: tuple[int, int] = (0, 0), **of: Any) -> float:
    """What the later of two memories gains; the earlier one scores 0.5."""
    terms = of.get("terms", [["i", "live", "in", "berlin"], ["i", "live", "in", "lisbon"]])
    gain = newer.lifts(
        np.array([0.5, later_score]),
        np.array([0, int(days * DAY)]),
        np.array(voices),
        np.array([False, of.get("is_turn", False)]),
        np.array([[1, 0], of.get("vector", [0.8, 0.6])], np.float32),
        lambda position: terms[position],
    )
    assert gain[0] == 0
    return float(gain[1])


def test_what_is_alike_as_good_and_a_day_newer_is_put_a_little_ahead() -> None:
    assert lifted() == pytest.approx(0.5 - 0.45 + AHEAD)
    assert lifted(0.52) == pytest.approx(AHEAD - 0.02)
    assert lifted(0.7) == 0
    assert 0 < lifted(0.35) < 0.25
    assert lifted(0.25) == 0
    assert lifted(days=1) == 0
    assert lifted(voices=(0, 1)) == 0
    assert lifted(is_turn=True) == 0
    assert lifted(vector=[0, 1], terms=[["a", "b"], ["c", "d"]]) == 0
    assert 0 < lifted(vector=[0.5, 0.866], terms=[["a", "b"], ["a", "d"]]) < lifted()


def test_the_last_line_of_a_dialogue_counts_most(feed: Feed) -> None:
    feed.put(memory("Trains go south"), memory("Tea is green"))
    for lines in (("about trains", "and green tea?"), ("green tea", "and the trains?")):
        best = feed.found("\n".join(lines), top_k=1)[0]
        assert best == ("Tea is green" if "tea" in lines[1] else "Trains go south")


# --- what replaced what ----------------------------------------------------------------------------


def chained(*contents: str) -> list[Memory]:
    """Memories each of which was replaced by the one behind it."""
    ids = [new_id() for _ in contents]
    return [
        memory(content, id=i, superseded_by=following)
        for content, i, following in zip(contents, ids, [*ids[1:], None], strict=True)
    ]


def test_a_newer_memory_takes_the_older_ones_score_and_place(feed: Feed) -> None:
    older, newer = chained("I live in Berlin since spring", "Moved south for the new job")
    feed.put(older, newer, *[memory(f"I live near tram stop {n}") for n in range(20)])
    first, second = (
        hit for hit in feed.hits("I live in Berlin", top_k=22) if hit.row.memory.id in (older.id, newer.id)
    )
    assert first.row.memory == newer
    assert value(first, "supersedes") > 0
    assert second.score == pytest.approx(0.9 * first.score)
    assert value(second, "superseded") < 0
    assert feed.found("I live in Berlin", top_k=1) == [newer.content]


def test_a_chain_ranks_from_the_newest_to_the_oldest(feed: Feed) -> None:
    chain = chained("weight 80 kg in May", "weight 78 in June", "it was measured again", "and again")
    alone = feed_of(chain[0], text="weight in May")[0].score
    feed.put(*reversed(chain))
    assert feed.hits("weight in May")[0].score >= alone
    assert feed.found("weight in May") == [one.content for one in reversed(chain)]
    scores = [hit.score for hit in feed.hits("weight in May")]
    assert all(under <= 0.9 * over + 1e-12 for over, under in pairwise(scores))


def test_an_older_memory_that_matches_less_keeps_its_score(feed: Feed) -> None:
    older, newer = chained("Something about trains", "Tea is what I drink")
    feed.put(older, newer)
    alone = {
        hit.row.memory.id: hit.score
        for hit in feed.hits("tea that I drink", matches=lambda m, _: m.id == older.id)
    }
    first, second = feed.hits("tea that I drink")
    assert (first.row.memory.id, second.row.memory.id) == (newer.id, older.id)
    assert second.score == alone[older.id]
    assert "superseded" not in second.contributions


def test_what_is_not_shown_replaces_nothing(feed: Feed) -> None:
    older, newer = chained("Tea is what I drink", "Something about trains")
    private = replace(newer, privacy_level=PrivacyLevel.PRIVATE, owner_client_id=ClientId("phone"))
    feed.put(older, private)
    plain = feed.hits("tea that I drink")
    assert [hit.row.memory for hit in plain] == [older]
    assert plain[0].contributions.keys() == RECIPES["default"].weights.keys()
    assert feed.found("tea that I drink", client="phone") == [newer.content, older.content]
    feed.put(replace(newer, expires_at=ago(1)))
    assert feed.found("tea that I drink") == [older.content]
    feed.put(newer)
    assert feed.found("tea that I drink") == [newer.content, older.content]
    (filtered,) = feed.hits("tea that I drink", matches=lambda m, _: m.id == older.id)
    assert filtered.row.memory == older
    assert "superseded" not in filtered.contributions
    feed.delete(newer.id)
    assert feed.found("tea that I drink") == [older.content]


def test_one_subjects_memory_replaces_none_of_another(feed: Feed) -> None:
    older, newer = chained("Tea is what I drink", "Something about trains")
    feed.put(older, replace(newer, user_id="bob"))
    assert all("supersed" not in " ".join(hit.contributions) for hit in feed.hits("tea that I drink"))


def test_a_circle_of_replacements_changes_nothing(feed: Feed) -> None:
    one, two = chained("Tea is what I drink", "Trains go south")
    before = memory("Tea before that", superseded_by=one.id)
    plain = {
        hit.row.memory.id: hit.score
        for hit in feed_of(replace(one, superseded_by=None), two, replace(before, superseded_by=None))
    }
    feed.put(one, replace(two, superseded_by=one.id), before)
    assert {hit.row.memory.id: hit.score for hit in feed.hits("tea that I drink")} == pytest.approx(plain)


def feed_of(*memories: Memory, text: str = "tea that I drink") -> list[Hit]:
    with feeding(memories) as feed:
        return feed.hits(text)


# --- who is let in ---------------------------------------------------------------------------------


def test_inherited_are_facts_and_preferences_of_general_alone(feed: Feed) -> None:
    feed.put(
        memory("sales", scope="work/sales", category="TASK"),
        memory("fact", scope="general"),
        memory("preference", scope="general/food", category="PREFERENCE"),
        memory("task", scope="general", category="TASK"),
        memory("elsewhere", scope="general-store"),
        memory("home", scope="home"),
    )
    assert set(feed.found("x", scopes=("work/sales",))) == {"sales"}
    assert set(feed.found("x", scopes=("work/sales",), inherit=True)) == {"sales", "fact", "preference"}
    assert len(feed.found("x", inherit=True)) == 6


def test_valid_at_takes_what_was_true_then(feed: Feed) -> None:
    feed.put(
        memory("always"),
        memory("from", valid_from=ago(DAY)),
        memory("until", valid_to=ago(DAY)),
        memory("between", valid_from=ago(3 * DAY), valid_to=ago(2 * DAY)),
    )
    assert set(feed.found("x")) == {"always", "from", "until", "between"}
    assert set(feed.found("x", valid_at=ago(DAY))) == {"always", "from"}
    assert set(feed.found("x", valid_at=ago(DAY + 1))) == {"always", "until"}
    assert set(feed.found("x", valid_at=ago(3 * DAY))) == {"always", "until", "between"}
    assert set(feed.found("x", valid_at=ago(2 * DAY))) == {"always", "until"}


def test_hidden_rows_change_no_number(feed: Feed) -> None:
    mine = [memory("tea and milk"), memory("a note on tea"), memory("trains")]
    feed.put(*mine)
    before = [(hit.row.memory.id, hit.score) for hit in feed.hits("tea notes", "default")]
    secret = {"privacy_level": PrivacyLevel.PRIVATE, "owner_client_id": ClientId("phone")}
    hidden = [memory(f"tea notes {n}", tags=frozenset(["tea"]), **secret) for n in range(5)]
    feed.put(*hidden, replace(memory("tea notes"), expires_at=ago(1)))
    assert [(hit.row.memory.id, hit.score) for hit in feed.hits("tea notes")] == before
    assert len(feed.hits("tea notes", client="phone")) == 8


# --- neighbours ------------------------------------------------------------------------------------


def around(hit: Hit) -> tuple[list[str], list[str]]:
    return [row.memory.content for row in hit.before], [row.memory.content for row in hit.after]


def said(*contents: str, gap: int = HOUR * 30, **fields: Any) -> list[Memory]:
    """Memories one after the other."""
    return [
        memory(one, created_at=ago(gap * (len(contents) - n)), **fields) for n, one in enumerate(contents)
    ]


def test_neighbours_are_those_of_the_conversation_in_the_order_of_time(feed: Feed) -> None:
    source = Source(conversation_id="c1")
    feed.put(*reversed(said("one", "two", "three", "four", "five", source=source)))
    feed.put(memory("other", source=Source(conversation_id="c2")), memory("none"))
    (hit,) = feed.hits("three", top_k=1, neighbours=1)
    assert around(hit) == (["two"], ["four"])
    (hit,) = feed.hits("three", top_k=1, neighbours=5)
    assert around(hit) == (["one", "two"], ["four", "five"])
    (hit,) = feed.hits("one", top_k=1, neighbours=2)
    assert around(hit) == ([], ["two", "three"])
    (hit,) = feed.hits("none", top_k=1, neighbours=2)
    assert around(hit) == ([], [])
    assert feed.hits("three", top_k=1)[0].before == ()


def test_neighbours_are_of_one_run_or_of_one_hour_in_a_scope(feed: Feed) -> None:
    feed.put(*said("run one", "run two", run_id="r1"), memory("run three", run_id="r2"))
    (hit,) = feed.hits("run two", top_k=1, neighbours=3)
    assert around(hit) == (["run one"], [])
    half = HOUR // 2
    feed.put(*said("at one", "at two", "at three", "at four", gap=half, scope="home"))
    feed.put(memory("at five", created_at=ago(half), scope="work"))
    (hit,) = feed.hits("at one", top_k=1, neighbours=5)
    assert around(hit) == ([], ["at two", "at three"])


def test_neighbours_are_what_the_caller_may_see_though_not_what_the_filter_lets_through(feed: Feed) -> None:
    source = Source(conversation_id="c1")
    one, two, three, four, five = said("one", "two", "three", "four", "five", source=source)
    secret = {"privacy_level": PrivacyLevel.PRIVATE, "owner_client_id": ClientId("phone")}
    feed.put(one, replace(two, **secret), three, replace(four, expires_at=ago(1)), five)
    (hit,) = feed.hits("three", neighbours=1, matches=lambda m, _: m.content == "three")
    assert around(hit) == (["one"], ["five"])
    (hit,) = feed.hits("three", neighbours=1, client="phone", matches=lambda m, _: m.content == "three")
    assert around(hit) == (["two"], ["five"])
    feed.delete(one.id, five.id)
    (hit,) = feed.hits("three", top_k=1, neighbours=1)
    assert around(hit) == ([], [])


def test_neighbours_stay_in_order_however_they_come(feed: Feed) -> None:
    source = Source(conversation_id="c1")
    turns = said(*(f"turn {n}" for n in range(100)), source=source)
    feed.put(*turns[::3])
    for turn in turns[1::3]:
        feed.put(turn)
        feed.hits("turn", neighbours=1, top_k=1)
    feed.put(*turns[2::3])
    feed.put(replace(turns[50], content="turn fifty again"))
    (hit,) = feed.hits("turn fifty again", top_k=1, neighbours=5)
    assert around(hit) == ([f"turn {n}" for n in range(45, 50)], [f"turn {n}" for n in range(51, 56)])


# --- order -----------------------------------------------------------------------------------------


def test_equal_scores_go_by_time_and_then_by_id_however_they_lie(feed: Feed) -> None:
    times = [NOW, NOW, ago(1), ago(1), ago(2)]
    same = [memory("the same", created_at=time) for time in times]
    feed.put(*same)
    for one in (same[0], same[3]):  # to other slots
        feed.put(replace(one, content="another"))
        feed.put(one)
    expected = sorted(same, key=lambda one: (-one.created_at, one.id))
    for count in range(1, 6):
        found = [hit.row.memory for hit in feed.hits("the same", top_k=count)]
        assert found == expected[:count]


@pytest.mark.parametrize("recipe", RECIPES)
def test_as_many_come_back_as_there_are_up_to_k(feed: Feed, recipe: str) -> None:
    for count in (1, 9, 10, 11):
        feed.put(*[memory(f"tea {uuid.uuid4()}") for _ in range(count - len(feed.stream))])
        assert len(feed.hits("tea", recipe)) == min(count, 10)


def test_what_is_expired_eats_no_place(feed: Feed) -> None:
    feed.put(*[memory(f"tea {n}", expires_at=ago(1)) for n in range(70)])
    assert feed.hits("tea", top_k=1) == []
    feed.put(memory("a survivor"))
    for recipe in ("default", "semantic", "shared-memory"):
        assert feed.found("tea", recipe, top_k=1) == ["a survivor"]


def test_a_ticket_number_is_found_among_much_of_the_same(feed: Feed) -> None:
    feed.put(*[memory(f"The printer on floor {n} was reported broken and repaired") for n in range(200)])
    feed.put(memory("Remember TCK-48213"))
    for recipe in ("default", "shared-memory", "hybrid-v3"):
        assert feed.found("was TCK-48213 about the printer reported broken?", recipe, top_k=1) == [
            "Remember TCK-48213"
        ]


def test_a_word_of_two_characters_is_found(feed: Feed) -> None:
    feed.put(*[memory(f"第{n}天我去跑步了") for n in range(150)], memory("下周三要去医院复查"))
    for recipe in ("default", "shared-memory", "hybrid-v3"):
        assert feed.found("医院", recipe, top_k=1) == ["下周三要去医院复查"]


def test_a_filter_is_asked_no_more_often_than_there_are_rows(feed: Feed) -> None:
    feed.put(*[memory(f"tea {n}") for n in range(150)], memory("the one", category="TASK"))
    asked: list[MemoryId] = []

    def matches(one: Memory, _: Micros) -> bool:
        asked.append(one.id)
        return one.category == "TASK"

    assert feed.found("tea", matches=matches) == ["the one"]
    assert len(asked) == len(set(asked)) <= 151


def test_of_a_large_stream_a_filter_that_lets_most_through_is_asked_of_few(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "LEAST_POOL", 10)
    monkeypatch.setattr(candidates, "POOL", 1)
    feed.put(*[memory(f"tea {n}", category="TASK" if n % 10 else "FACT") for n in range(600)])
    asked: list[MemoryId] = []

    def matches(one: Memory, _: Micros) -> bool:
        asked.append(one.id)
        return one.category == "TASK"

    assert len(feed.hits("tea 7", matches=matches)) == 10
    assert len(asked) == len(set(asked)) < 300
    asked.clear()
    assert len(feed.hits("tea 7", matches=lambda m, at: not matches(m, at), top_k=70)) == 60
