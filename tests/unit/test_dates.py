"""The days that a question names, in English and Chinese."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.recall.dates import query_periods

TODAY = date(2024, 5, 15)
"""A Wednesday."""
SINCE = date(2023, 1, 1)


def named(text: str, today: date = TODAY) -> list[str]:
    """First and last day of each period, the last one left out where it is the first."""
    days = [
        (period.start, date.fromordinal(period.end.toordinal() - 1))
        for period in query_periods(text, today, SINCE)
    ]
    return [str(first) if first == last else f"{first}..{last}" for first, last in days]


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("What did we say on 2 May 2023?", ["2023-05-02"]),
        ("on May 2nd, 2023", ["2023-05-02"]),
        ("on 2 May", ["2023-05-02", "2024-05-02"]),
        ("on 29 February", ["2024-02-29"]),
        ("from May 2 to May 5, 2023", ["2023-05-02..2023-05-05"]),
        ("from December 30 to January 2, 2024", ["2024-12-30..2025-01-02"]),
        ("in May 2023", ["2023-05-01..2023-05-31"]),
        ("in 2023", ["2023-01-01..2023-12-31"]),
        ("2023-05-02", ["2023-05-02"]),
        ("yesterday", ["2024-05-14"]),
        ("the day before yesterday", ["2024-05-13"]),
        ("what did I do this morning", ["2024-05-15"]),
        ("last week", ["2024-05-06..2024-05-12"]),
        ("this month", ["2024-05-01..2024-05-31"]),
        ("last year", ["2023-01-01..2023-12-31"]),
        ("the past two weeks", ["2024-05-01..2024-05-15"]),
        ("three weeks ago", ["2024-04-18..2024-04-30"]),
        ("on Monday", ["2024-05-13"]),
        ("last Wednesday", ["2024-05-08"]),
        ("last weekend", ["2024-05-11..2024-05-12"]),
        ("2023年5月2日我们聊了什么", ["2023-05-02"]),
        ("五月二号", ["2023-05-02", "2024-05-02"]),
        ("去年5月", ["2023-05-01..2023-05-31"]),
        ("二〇二三年十二月", ["2023-12-01..2023-12-31"]),
        ("昨天", ["2024-05-14"]),
        ("上周三天气怎么样", ["2024-05-08"]),
        ("上上周", ["2024-04-29..2024-05-05"]),
        ("上個月", ["2024-04-01..2024-04-30"]),
        ("兩週前", ["2024-04-27..2024-05-05"]),
        ("三天前", ["2024-05-11..2024-05-13"]),
        ("上周末", ["2024-05-11..2024-05-12"]),
        ("最近三天", ["2024-05-12..2024-05-15"]),
    ],
)
def test_a_time_is_read(text: str, days: list[str]) -> None:
    assert named(text) == days


@pytest.mark.parametrize(
    "text",
    [
        "May I ask you something?",
        "on 30 February",
        "2月30日",
        "room 2023",
        "the second of the two",
        "What is my plan?",
        "我的计划是什么",
        "",
    ],
)
def test_what_names_no_day_gives_none(text: str) -> None:
    assert named(text) == []


def test_a_day_of_a_month_is_not_the_month_as_well() -> None:
    assert named("8 May 2023 and 9 May 2023") == ["2023-05-08", "2023-05-09"]
    assert named("5月2日 5月2日") == ["2023-05-02", "2024-05-02"]


PIECES = "last 3 weeks ago May 2 2023 年 月 五 十 上 周 日 前 - to"


@given(st.text(max_size=40) | st.lists(st.sampled_from(PIECES.split())).map("".join))
def test_any_text_is_read_without_an_error(text: str) -> None:
    for today in (TODAY, date(1, 1, 2), date(9999, 12, 31)):
        for period in query_periods(text, today, date(1, 1, 1)):
            assert period.start < period.end
