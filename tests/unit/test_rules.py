"""What a conversation says that is worth remembering, by rules, in Chinese and English."""

from __future__ import annotations

import csv
import importlib
import pkgutil
import re
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrubjay.memory import MAX_MICROS, MIN_MICROS, Micros
from scrubjay.validity import MAX_CONTENT_BYTES, text_violation
from server.ingest import rules
from server.ingest.rules.cleaning import clean
from server.ingest.rules.extraction import extract, undecided
from server.ingest.rules.fact import Fact, Said
from server.ingest.rules.sentences import MAX_SENTENCE, sentences
from server.ingest.rules.template import Template
from server.recall.context import CLOSING, NOTE, OPENING

LABELLED = Path(__file__).parent.parent / "evals" / "sentences.tsv"
AT = Micros(int(datetime(2024, 5, 15, 12, tzinfo=UTC).timestamp()) * 1_000_000)
"""A Wednesday."""


def facts(text: str, role: str = "user", at: Micros = AT) -> list[Fact]:
    return extract([Said(text, role, at)])


def texts(text: str, role: str = "user") -> list[str]:
    return [fact.text for fact in facts(text, role)]


def only(text: str, role: str = "user", at: Micros = AT) -> Fact:
    found = facts(text, role, at)
    assert len(found) == 1, found
    return found[0]


def days(fact: Fact) -> tuple[str, str]:
    """First day, and the day after the last."""
    first, end = (
        "" if at is None else str(datetime.fromtimestamp(at // 1_000_000, UTC).date())
        for at in (fact.valid_from, fact.valid_to)
    )
    return first, end


class TestSentences:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("I run. You swim! Right?", ["I run.", "You swim!", "Right?"]),
            ("我跑步。你游泳！对吗？", ["我跑步。", "你游泳！", "对吗？"]),
            ("我跑步；她游泳……他睡觉", ["我跑步；", "她游泳……", "他睡觉"]),
            ("Dr. Lee met Mr. Ray at St. Ann's.", ["Dr. Lee met Mr. Ray at St. Ann's."]),
            ("It costs 3.50 in v1.2.3 here.", ["It costs 3.50 in v1.2.3 here."]),
            ("See https://a.org/b?c=d!e for it.", ["See https://a.org/b?c=d!e for it."]),
            ("At 5 p.m. I left. It rained.", ["At 5 p.m. I left.", "It rained."]),
            ("I was... late. Sorry", ["I was... late.", "Sorry"]),
            ("one\ntwo\r\nthree", ["one", "two", "three"]),
            ("1. I cook\n2) I bake\n- I eat\n• I rest", ["I cook", "I bake", "I eat", "I rest"]),
            ("I like it (a lot. Really!) now. Ok", ["I like it (a lot. Really!) now.", "Ok"]),
            ('She said "Go. Now!" and left. Fine', ['She said "Go. Now!" and left.', "Fine"]),
            ("他说：“走吧。快！”我走了。好", ["他说：“走吧。快！”我走了。", "好"]),
            ('5" is (small. I know. Yes', ['5" is (small.', "I know.", "Yes"]),
            ("I love it 😀 We moved.", ["I love it 😀", "We moved."]),
            ("我用VS Code。It is fast. 很好", ["我用VS Code。", "It is fast.", "很好"]),
            (" \n \t ", []),
        ],
    )
    def test_end_where_a_reader_ends_them(self, text: str, expected: list[str]) -> None:
        assert [text[start:end] for start, end in sentences(text)] == expected

    def test_are_cut_where_they_are_too_long(self) -> None:
        spans = sentences("word " * 1_000)
        assert all(0 < end - start <= MAX_SENTENCE for start, end in spans)
        assert sum(end - start + 1 for start, end in spans) == 5_000

    @given(st.text(alphabet='ab。.!？"“”()「」 \nA1…;', max_size=80))
    def test_hold_every_letter_once_and_in_order(self, text: str) -> None:
        spans = sentences(text)
        assert all(a.end <= b.start for a, b in pairwise(spans))
        kept = "".join(text[start:end] for start, end in spans)
        assert [c for c in kept if c in "abA"] == [c for c in text if c in "abA"]


class TestCleaning:
    BLOCK = (
        f'{OPENING}\n{NOTE}\nFacts and preferences:\n- 2024-05-01 "I live in Rome." #0123456789ab\n{CLOSING}'
    )

    @pytest.mark.parametrize(
        "text",
        [
            "{block}",
            "I said {block}",
            f"{OPENING} a {{block}} I like tea. {CLOSING}",
            f"{OPENING} I like tea. I live in Rome.",
            f"I live in Rome. {CLOSING}",
            f"I am Ann. {OPENING.upper()} I live in Rome. {CLOSING.upper()}",
            "```\n{block}\n```",
            "> {block}",
            "“{block}”",
            "&lt;scrubjay-memories&gt; I live in Rome. &lt;/scrubjay-memories&gt;",
            '- 2024-05-01 "I live in Rome." #0123456789ab',
            NOTE,
        ],
    )
    def test_what_came_from_here_is_not_learnt_again(self, text: str) -> None:
        learnt = texts(text.replace("{block}", self.BLOCK))
        assert not any("Rome" in one or "tea" in one for one in learnt)

    def test_what_stands_around_a_block_is_learnt(self) -> None:
        assert texts(f"I like tea. {self.BLOCK} I have a dog.") == ["I like tea.", "I have a dog."]

    def test_code_and_quoted_lines_are_cut_out(self) -> None:
        text = (
            "I like tea.\n```py\n# I live in Rome.\n```\n> I hate cats.\n~~~\nI am Ann.\n~~~\nI have a dog."
        )
        assert texts(text) == ["I like tea.", "I have a dog."]

    def test_an_unclosed_fence_reaches_to_the_end(self) -> None:
        assert texts("I like tea.\n```\nI live in Rome.") == ["I like tea."]

    @pytest.mark.parametrize("role", ["system", "tool", "function", "developer", "System"])
    def test_who_speaks_about_the_conversation_is_not_read(self, role: str) -> None:
        assert facts("I live in Rome.", role) == []


class TestCorrections:
    @pytest.mark.parametrize(
        ("text", "replaced"),
        [
            ("I no longer use Vim, VS Code now.", "Vim"),
            ("I no longer use Vim. I use VS Code now, because of its plugins.", "Vim"),
            ("Not Vim any more, VS Code now.", "Vim"),
            ("I switched from Vim to VS Code.", "Vim"),
            ("I don't drink coffee anymore because of my heart.", "coffee"),
            ("We replaced Jira with Linear.", "Jira"),
            ("My name is Ana, not Anna.", "Anna"),
            ("Actually, the meeting is not on Tuesday but on Thursday.", "Tuesday"),
            ("I use Emacs instead of Vim now.", "Vim"),
            ("我现在用Emacs，不用Vim。", "Vim"),
            ("我说错了，是周四不是周三。", "周三"),
            ("I used to live in Berlin. Now I live in Hamburg.", "Berlin"),
            ("我不再用Vim了，现在用VS Code。", "Vim"),
            ("我不再用Vim了。现在用VS Code，因为插件多。", "Vim"),
            ("我從Vim換成VS Code了", "Vim"),
            ("我不住北京了，搬到上海了。", "北京"),
            ("其实会议不是周二，是周四。", "周二"),
            ("我把手机从iPhone换成了小米。", "iPhone"),
            ("我已经戒酒了，因为医生让我戒。", "酒"),
        ],
    )
    def test_are_one_fact_with_both_parts_and_the_reason(self, text: str, replaced: str) -> None:
        fact = only(text)
        assert (fact.text, fact.replaces) == (text, replaced)
        assert "correction" in fact.tags

    @pytest.mark.parametrize(
        "text",
        [
            "I love not only jazz but blues.",
            "It's not just a hobby, it's a passion.",
            "It wasn't easy, but I moved to Rome.",
            "I would rather walk than drive.",
            "I went from Paris to Lyon by train.",
            "I can't take it anymore.",
            "我从北京转机到东京。",
            "从上个月开始我换了工作。",
            "我从小在北京长大。",
            "我受不了吵闹的音乐了。",
            "我从来不喝酒。",
            "是不是你拿了我的书？",
        ],
    )
    def test_are_not_seen_where_nothing_is_replaced(self, text: str) -> None:
        assert [fact.replaces for fact in facts(text)] in ([], [""])


class TestFacts:
    @pytest.mark.parametrize(
        "text", ["I don't eat meat.", "我不吃肉。", "I never drink coffee.", "我没有车。"]
    )
    def test_keep_negation_as_it_was_said(self, text: str) -> None:
        fact = only(text)
        assert fact.text == text
        assert "negation" in fact.tags

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("Hi there, I'm Oskar and I work in logistics.", ["I'm Oskar and I work in logistics."]),
            ("你好，我叫陈立，很高兴认识你。", ["我叫陈立"]),
            ("I love sushi, what about you?", ["I love sushi"]),
            ("我很喜欢绘画，你有什么书可以推荐吗？", ["我很喜欢绘画"]),
            ("Thanks! I live in Rome. How are you?", ["I live in Rome."]),
            ("Remember that my gate code is 4471.", ["my gate code is 4471."]),
            ("你能帮我记住我的车牌是京A123吗？", ["我的车牌是京A123"]),
        ],
    )
    def test_are_without_the_talk_around_them(self, text: str, expected: list[str]) -> None:
        assert texts(text) == expected

    @pytest.mark.parametrize(
        "text",
        [
            "I prefer aisle seats because I have long legs.",
            "I prefer aisle seats. Because I have long legs.",
            "我讨厌下雨天，因为会头痛。",
            "我討厭下雨天。因為會頭痛。",
        ],
    )
    def test_keep_their_reason(self, text: str) -> None:
        assert texts(text) == [text]

    def test_of_different_kinds_in_one_sentence_come_apart(self) -> None:
        found = facts("I'm allergic to nuts, and I need to see a doctor on 3 June.")
        assert [(f.category, f.text) for f in found] == [
            ("FACT", "I'm allergic to nuts"),
            ("TASK", "I need to see a doctor on 3 June."),
        ]

    def test_take_along_the_sentence_that_only_means_something_with_them(self) -> None:
        assert texts("I met Tom yesterday. He is a pilot.") == ["I met Tom yesterday. He is a pilot."]

    def test_never_reach_over_what_was_cut_out(self) -> None:
        assert texts(f"I met Tom yesterday. {OPENING} x {CLOSING} He is a pilot.") == ["I met Tom yesterday."]
        assert texts(f"I love {OPENING} x {CLOSING} because I am Ann.") == ["because I am Ann."]

    def test_name_their_message(self) -> None:
        said = [
            Said("I like tea.", "user", AT),
            Said("Noted!", "assistant", AT),
            Said("我住在北京。", "user", AT),
        ]
        assert [(f.message, f.text) for f in extract(said)] == [(0, "I like tea."), (2, "我住在北京。")]

    def test_are_found_in_mixed_language(self) -> None:
        assert only("我prefer dark mode。").category == "PREFERENCE"
        assert only("下周一之前我要finish这个report。").category == "TASK"

    def test_are_said_by_people_with_names_too(self) -> None:
        assert only("I adopted a dog.", "Caroline").category == "EVENT"

    def test_have_a_rule_of_their_language(self) -> None:
        assert only("I like tea.").rule.startswith("en.preference.")
        assert only("我喜欢茶。").rule.startswith("zh.preference.")

    @pytest.mark.parametrize(
        "text",
        [
            "",
            " \n ",
            "😀👍",
            "12345",
            "What is my name?",
            "I like tea, right?",
            "我不喜欢健身，对吗？",
            "Write me a poem about my dog.",
            "帮我写一首关于我的狗的诗。",
            "If I were rich, I would buy a boat.",
            "如果我有钱，我就买船。",
            'The song goes "I love you, I need you".',
            "歌词是：“我爱你，我住在海边。”",
            "Ok, got it, thanks!",
            "好的，知道了，谢谢！",
        ],
    )
    def test_are_not_found_where_there_is_nothing_to_remember(self, text: str) -> None:
        assert facts(text) == []


def test_what_no_rule_knows_is_told_apart_from_what_is_refused() -> None:
    said = [
        "The harbour freezes in January.",
        "Thanks!",
        "I like tea.",
        "What is tea?",
        "茶树怕冷。",
        "好的。",
        "Write a poem.",
    ]
    messages = [Said(text, "user", AT) for text in said]
    assert [said[index] for index in undecided(messages)] == [said[0], said[4]]
    assert undecided([Said(said[0], role, AT) for role in ("assistant", "system")]) == []


class TestAssistants:
    def test_tell_what_they_did_and_what_they_promised(self) -> None:
        assert only("I have booked your flight.", "assistant").category == "EVENT"
        assert only("我已经帮你订了机票。", "assistant").category == "EVENT"
        promised = only("I'll remind you tomorrow at nine.", "assistant")
        assert (promised.category, days(promised)) == ("TASK", ("2024-05-16", "2024-05-17"))

    @pytest.mark.parametrize(
        "text",
        [
            "I like tea.",
            "You live in Rome.",
            "I can book it if you like.",
            "我喜欢茶。",
            "如果你需要，我会提醒你。",
        ],
    )
    def test_say_nothing_else_that_is_remembered(self, text: str) -> None:
        assert facts(text, "assistant") == []


class TestDays:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("I have to call Ann tomorrow.", ("2024-05-16", "2024-05-17")),
            ("I have to call Ann by Friday.", ("", "2024-05-18")),
            ("I have an exam next Friday.", ("2024-05-24", "2024-05-25")),
            ("I have to leave in two weeks.", ("2024-05-29", "2024-05-30")),
            ("I have to leave on 3 March.", ("2025-03-03", "2025-03-04")),
            ("We met Ann yesterday.", ("2024-05-14", "2024-05-15")),
            ("We met Ann on Monday.", ("2024-05-13", "2024-05-14")),
            ("We met Ann on 3 June.", ("2023-06-03", "2023-06-04")),
            ("I went to Rome last month.", ("2024-04-01", "2024-05-01")),
            ("提醒我明天买牛奶", ("2024-05-16", "2024-05-17")),
            ("我下周三要去体检。", ("2024-05-22", "2024-05-23")),
            ("我必须在月底前交报告。", ("", "2024-06-01")),
            ("三天后我要去爬山。", ("2024-05-18", "2024-05-19")),
            ("昨天我去了医院。", ("2024-05-14", "2024-05-15")),
            ("上个月我去了日本。", ("2024-04-01", "2024-05-01")),
            ("I'm tired, I took a trip last Friday.", ("2024-05-10", "2024-05-11")),
            ("I still have to pay for last Friday.", ("", "")),
            ("我还要付上周五的钱。", ("", "")),
            ("I have to swim every Friday.", ("", "")),
            ("I have to swim on 30 February.", ("", "")),
        ],
    )
    def test_are_counted_from_the_day_of_the_message(self, text: str, expected: tuple[str, str]) -> None:
        assert days(only(text)) == expected

    @pytest.mark.parametrize("at", [MIN_MICROS, MAX_MICROS, Micros(2**70), Micros(-(2**70))])
    @pytest.mark.parametrize(
        "text",
        [
            "We met Ann yesterday.",
            "I have to go next year.",
            "I have to go in 999 years.",
            "去年我去了日本。",
            "后天我要考试。",
        ],
    )
    def test_stay_in_the_calendar(self, text: str, at: Micros) -> None:
        assert only(text, at=at).text == text


def labelled(split: str) -> list[dict[str, str]]:
    with LABELLED.open(encoding="utf-8", newline="") as lines:
        rows = csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [row for row in rows if row["split"] == split]


def named_days(fact: Fact) -> str:
    """The days of a fact as labels write them: ``first``, ``first..last`` or ``..last``."""
    if fact.valid_to is None:
        return ""
    first, _ = days(fact)
    last = str(datetime.fromtimestamp(fact.valid_to // 1_000_000 - 1, UTC).date())
    return first if first == last else f"{first}..{last}"


# How the splits came about, and what was measured, says bench/rules.py; the floors are a little below.
@pytest.mark.parametrize(
    ("split", "precision", "recall", "category", "term", "day"),
    [
        ("seen", 0.98, 0.98, 0.97, 0.95, 0.97),
        ("held", 0.98, 0.98, 0.97, 0.95, 0.97),
        ("fresh", 0.96, 0.94, 0.88, 0.80, 0.85),
        ("last", 0.96, 0.84, 0.88, 0.75, 0.85),
    ],
)
def test_labelled_sentences_are_judged_as_well_as_measured(
    split: str, precision: float, recall: float, category: float, term: float, day: float
) -> None:
    rows = [(row, facts(row["text"], row["role"])) for row in labelled(split)]
    memories = [(row, got) for row, got in rows if row["category"] != "NONE"]
    hits = [(row, got) for row, got in memories if got]
    assert share(row["category"] != "NONE" for row, got in rows if got) >= precision
    assert share(bool(got) for _, got in memories) >= recall
    assert share(any(f.category in row["category"].split("|") for f in got) for row, got in hits) >= category
    replaced = [any(f.replaces == row["replaces"] for f in got) for row, got in hits if row["replaces"]]
    assert share(iter(replaced)) >= term
    assert share(any(named_days(f) == row["days"] for f in got) for row, got in hits if row["days"]) >= day


def share(values: Iterable[bool]) -> float:
    counted = list(values)
    return sum(counted) / len(counted)


PHRASES = st.sampled_from(
    [
        *("I", "we", "my", "like", "not", "no longer", "any more", "use", "Vim", "from", "to", "because"),
        *("我", "我们", "喜欢", "不", "不再", "了", "用", "从", "换成", "因为", "记住", "叫", "请", "但"),
        *("yesterday", "by Friday", "3 May", "in 999 years", "昨天", "下周三", "5月2日", "10000年"),
        *("remember that", "name is", "please", "and", "\n", ">", "-", "`"),
        *'.。,，?？!"“”()',
    ]
)
CONVERSED = st.lists(PHRASES, max_size=25).map(" ".join) | st.text(max_size=60)


@given(CONVERSED, st.sampled_from(["user", "assistant", "Ann"]), st.integers(MIN_MICROS, MAX_MICROS))
def test_any_text_gives_valid_parts_of_itself(text: str, role: str, at: int) -> None:
    for fact in extract([Said(text, role, Micros(at))]):
        assert fact.text in clean(text)
        assert fact.replaces in fact.text
        assert text_violation("content", fact.text) is None
        assert fact.valid_from is None or fact.valid_to is None or fact.valid_from < fact.valid_to
        assert fact.category in {"FACT", "PREFERENCE", "TASK", "EVENT"}


@pytest.mark.parametrize("split", ["seen", "held", "fresh", "last"])
def test_a_fact_said_again_is_the_same_fact(split: str) -> None:
    for row in labelled(split):
        for fact in facts(row["text"], row["role"]):
            if ".remember." not in fact.rule:  # what was worth it because it was asked for
                assert texts(fact.text, row["role"]) == [fact.text]


HOSTILE = {
    "adverbs": "i really ",
    "Chinese adverbs": "我很真的刚刚",
    "sentences": "I. ",
    "quotes": '"“',
    "openings": OPENING,
    "half marks": "<  ",
    "clauses": "i like it, and i like it, but ",
    "letters": "a",
    "no longer": "i no longer use ",
    "from": "switched from a ",
    "不": "不用换从",
    "laughs": "haha嗯哈oh ",
    "facts": "昨天我去了北京。I went to Rome yesterday. ",
    "dates": "mar 3 三月五号",
    "manners": "from now on always ",
    "brackets": "([（「",
    "lines": "I like tea\n",
}


def steps(text: str) -> tuple[int, int]:
    """How many calls an extraction makes, and the longest text that is matched."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        found = facts(text)
    finally:
        sys.setprofile(None)
    return calls, max((len(fact.text.encode()) for fact in found), default=0)


@pytest.mark.parametrize("part", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_text_takes_few_steps_a_character(part: str) -> None:
    text = part * (50_000 // len(part))
    calls, longest = steps(text)
    assert calls <= 30 * len(text)
    assert longest <= MAX_CONTENT_BYTES


def patterns() -> Iterator[re.Pattern[str]]:
    """Every compiled pattern of the package."""
    for module in pkgutil.iter_modules(rules.__path__, f"{rules.__name__}."):
        values: list[Any] = list(vars(importlib.import_module(module.name)).values())
        while values:
            value = values.pop()
            if isinstance(value, re.Pattern):
                yield value
            elif isinstance(value, Template):
                values += [value.pattern, value.but]
            elif isinstance(value, tuple):
                values += value


def test_no_pattern_repeats_without_end_what_is_longer_than_a_character() -> None:
    # Then no text of a sentence's length can make one try exponentially many ways.
    group = re.compile(r"\)(?:[*+]|\{\d*,\})")
    checked = list(patterns())
    assert len(checked) > 100
    assert [one.pattern for one in checked if group.search(re.sub(r"\\.|\[[^\]]*\]", "x", one.pattern))] == []
