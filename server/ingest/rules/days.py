"""The days that a sentence speaks of, counted from the day it was said: "by Friday", 下周三, "last week".

What lies behind is read as a query's days are (``server.recall.dates``); here is what lies ahead. Days are
UTC days, weeks begin on Monday. What is not understood is passed over.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta

from scrubjay.memory import MAX_MICROS, MIN_MICROS, Micros, midnight, utc_day
from server.recall.dates import Period, query_periods

_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Days:
    """From ``start`` to before ``end``; a deadline has no start."""

    start: date | None
    end: date

    @property
    def valid_from(self) -> Micros | None:
        """Its first instant."""
        return None if self.start is None else midnight(self.start)

    @property
    def valid_to(self) -> Micros:
        """The instant after its last."""
        return midnight(self.end)

    @property
    def is_short(self) -> bool:
        """Whether it is at most a month: a time at which something happens."""
        return self.start is None or (self.end - self.start).days <= 31


def day_of(at: Micros) -> date:
    """The UTC day of an instant, clamped to years 2 to 9998."""
    day = utc_day(min(max(at, MIN_MICROS), MAX_MICROS))
    return min(max(day, date(2, 1, 1)), date(9998, 12, 31))


def days_behind(text: str, today: date) -> Days | None:
    """When something was that ``text`` tells of; None where it names no day up to ``today``."""
    text = _RECURRING.sub(_APART, text)
    if (near := _near(_BEHIND, text, today)) is not None:
        return near
    periods = query_periods(text, today, date(today.year - 1, 1, 1))
    passed = [period for period in periods if period.start <= today]
    return _days(max(passed)) if passed else None


def days_ahead(text: str, today: date) -> Days | None:
    """When something is to be that ``text`` plans; None where it names no day from ``today`` on."""
    text = _RECURRING.sub(_APART, text)
    days = _near(_AHEAD, text, today) or _dated(text, today)
    if days is not None and _DEADLINE.search(text) is not None:
        return Days(None, days.end)
    return days


def _near(rules: _Rules, text: str, today: date) -> Days | None:
    """The days of the first rule that fits, if a calendar has them."""
    for pattern, rule in rules:
        match = pattern.search(text)
        if match is None:
            continue
        try:
            return rule(match, today)
        except (ValueError, OverflowError):
            return None
    return None


def _dated(text: str, today: date) -> Days | None:
    """A day or month of the calendar, the next one where no year is named."""
    for period in reversed(query_periods(text, today, date(today.year, 1, 1))):
        start, end = period
        if end > today:
            return _days(period)
        if start.year == today.year and _NAMES_YEAR.search(text) is None and _PASSED.search(text) is None:
            return Days(_next_year(start), _next_year(end))
    return None


def _next_year(day: date) -> date:
    last = calendar.monthrange(day.year + 1, day.month)[1]
    return date(day.year + 1, day.month, min(day.day, last))


def _days(period: Period) -> Days:
    return Days(period.start, period.end)


_Rule = Callable[[re.Match[str], date], Days]
_Rules = tuple[tuple[re.Pattern[str], _Rule], ...]

_COUNTS = {"a": 1, "an": 1, "one": 1, "two": 2, "couple": 2, "three": 3, "few": 3, "several": 4, "four": 4}
_COUNTS |= {"five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10}
_ZH_COUNTS = {name: n for n, name in enumerate("零一二三四五六七八九十")} | {"两": 2, "几": 3, "半": 0}
_NEAR_DAYS = {"today": 0, "tonight": 0, "tomorrow": 1, "day after tomorrow": 2}
_NEAR_DAYS |= {
    "今天": 0,
    "今晚": 0,
    "今日": 0,
    "明天": 1,
    "明早": 1,
    "明晚": 1,
    "明日": 1,
    "后天": 2,
    "大后天": 3,
}
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_ZH_WEEKDAYS = "一二三四五六日"
_UNITS = {"day": 1, "天": 1, "日": 1, "week": 7, "周": 7, "星期": 7, "礼拜": 7}


def _count(name: str) -> int:
    if name.isdigit():
        return int(name)
    return _COUNTS[name] if name in _COUNTS else _ZH_COUNTS[name]


def _one(day: date) -> Days:
    return Days(day, day + _DAY)


def _near_day(match: re.Match[str], today: date) -> Days:
    return _one(today + _NEAR_DAYS[match["day"]] * _DAY)


def _in_count(match: re.Match[str], today: date) -> Days:
    """ "In three days", 两周后."""
    count, unit = _count(match["count"]), match["unit"]
    if unit in _UNITS:
        return _one(today + count * _UNITS[unit] * _DAY)
    months = count * (12 if unit in ("year", "年") else 1)
    start, end = _month(today, months)
    return _one(min(start + (today.day - 1) * _DAY, end - _DAY))


def _ago(match: re.Match[str], today: date) -> Days:
    """ "Three days ago", 三天前: that day, where a day was counted."""
    return _one(today - _count(match["count"]) * _DAY)


def _yesterday(match: re.Match[str], today: date) -> Days:
    """A way to say it that is only spoken."""
    del match
    return _one(today - _DAY)


def _month(today: date, ahead: int) -> tuple[date, date]:
    """First days of the month that is ``ahead`` of today's, and of the one after it."""
    first, following = (divmod(12 * today.year + today.month - 1 + n, 12) for n in (ahead, ahead + 1))
    return date(first[0], first[1] + 1, 1), date(following[0], following[1] + 1, 1)


def _weekday_number(name: str) -> int:
    name = name.replace("天", "日")
    return _ZH_WEEKDAYS.index(name) if name in _ZH_WEEKDAYS else _WEEKDAYS.index(name[:3])


def _weekday(match: re.Match[str], today: date) -> Days:
    """The next such day, today's included; "next" and 下 say a day of next week."""
    which, number = match["which"] or "", _weekday_number(match["weekday"])
    monday = today - today.weekday() * _DAY
    if ahead := which.count("下") + (which == "next"):
        return _one(monday + (7 * ahead + number) * _DAY)
    return _one(today + (number - today.weekday()) % 7 * _DAY)


def _weekend(match: re.Match[str], today: date) -> Days:
    which = match["which"] or ""
    monday = today - today.weekday() * _DAY + 7 * (which.count("下") + (which == "next")) * _DAY
    return Days(monday + 5 * _DAY, monday + 7 * _DAY)


def _unit(match: re.Match[str], today: date) -> Days:
    """ "Next week", 下个月, 明年; what is left of this one."""
    which, unit = match["which"], match["unit"]
    ahead = 1 if which in ("next", "明") else 2 if which == "后" else which.count("下")
    if unit in ("week", "周", "星期", "礼拜"):
        monday = today + (7 * ahead - today.weekday()) * _DAY
        return Days(max(monday, today), monday + 7 * _DAY)
    if unit in ("month", "月"):
        start, end = _month(today, ahead)
    else:
        start, end = date(today.year + ahead, 1, 1), date(today.year + ahead + 1, 1, 1)
    return Days(max(start, today), end)


def _end_of(match: re.Match[str], today: date) -> Days:
    """ "By the end of the month", 月底, 年底: its last day."""
    unit = match["unit"]
    if unit in ("week", "周"):
        return _one(today + (6 - today.weekday()) * _DAY)
    end = date(today.year + 1, 1, 1) if unit in ("year", "年") else _month(today, 0)[1]
    return _one(end - _DAY)


def _day_of_month(match: re.Match[str], today: date) -> Days:
    """The 20th of this month, or of the next one; 下个月20号."""
    which, day = match["which"] or "", int(match["day"])
    ahead = which.count("下") or int(day < today.day)
    start, end = _month(today, ahead)
    if start + (day - 1) * _DAY >= end:
        raise ValueError(day)
    return _one(start + (day - 1) * _DAY)


def _compiled(*rules: tuple[str, _Rule]) -> _Rules:
    return tuple((re.compile(pattern), rule) for pattern, rule in rules)


_EN_COUNT = r"(?P<count>\d{1,3}|an?|one|two|three|four|five|six|seven|eight|nine|ten|couple|few|several)"
_EN_WEEKDAY = r"(?P<weekday>monday|tuesday|wednesday|thursday|friday|saturday|sunday)"
_NOT_LAST = r"(?<!last )(?<!past )(?<!previous )"
_ZH_COUNT = r"(?P<count>\d{1,3}|[一二三四五六七八九十两几])"
_DATE_BEFORE = r"(?<![月\d路街道巷弄区栋])"
_BEHIND = _compiled(
    (rf"\b{_EN_COUNT}(?: of)? days? ago\b", _ago),
    (rf"{_ZH_COUNT}天(?:之|以)?前", _ago),
    (r"昨儿", _yesterday),
)
_AHEAD = _compiled(
    (r"\b(?P<day>day after tomorrow)\b", _near_day),
    (r"\b(?P<day>tomorrow|tonight|today)\b", _near_day),
    (r"(?P<day>大后天|后天|明[天早晚日]|今[天晚日])", _near_day),
    (rf"\b(?:in|within) (?:a )?{_EN_COUNT}(?: of)? (?P<unit>day|week|month|year)s?\b", _in_count),
    (rf"{_ZH_COUNT}个?(?P<unit>天|日|周|星期|礼拜|月|年)(?:之|以)?[后内]", _in_count),
    (r"\bend of (?:the|this) (?P<unit>week|month|year)\b", _end_of),
    (r"(?<!\d)(?P<unit>周|月|年)(?:底|末之?前)", _end_of),
    (
        rf"\b(?:(?P<which>next|this|on|by|until|before|coming|this coming|due) )?{_NOT_LAST}{_EN_WEEKDAY}\b",
        _weekday,
    ),
    (r"(?<!上)(?<!上个)(?P<which>下+|这|本)?个?(?:周|星期|礼拜)(?P<weekday>[一二三四五六日天])", _weekday),
    (rf"\b(?:(?P<which>next|this|the|on the) )?{_NOT_LAST}weekend\b", _weekend),
    (r"(?<!上)(?<!上个)(?P<which>下+|这|本)?个?周末", _weekend),
    (
        rf"{_DATE_BEFORE}(?:(?P<which>下+|这|本)个?月)?(?P<day>3[01]|[12]\d"
        rf"|[1-9])[号日](?![楼线院门室])",
        _day_of_month,
    ),
    (r"\b(?P<which>)(?:on|by) the (?P<day>3[01]|[12]?\d)(?:st|nd|rd|th)\b(?! of)", _day_of_month),
    (r"\b(?P<which>next|this) (?P<unit>week|month|year)\b", _unit),
    (r"(?P<which>下+|这|本)个?(?P<unit>周|星期|礼拜|月)(?![一二三四五六日天末底])", _unit),
    (r"(?P<which>[明今后])(?P<unit>年)", _unit),
)
_APART = " ; "
_RECURRING = re.compile(
    r"\b(?:every|each) (?:other )?\w+|每个?(?:周|星期|礼拜|月|年|天)[一二三四五六日天末]?"
)
_DEADLINE = re.compile(
    r"\b(?:by|before|until|due|no later than|within|deadline)\b|[前内](?![天年面台])|截止"
    r"|到期|(?<!现)之前"
)
_NAMES_YEAR = re.compile(r"(?:19|20)\d\d")
_PASSED = re.compile(
    r"\b(?:last|past|ago|yesterday|previous|since)\b|上+个?(?:周|月|星期|礼拜)|去年|前年|昨"
    r"|[前后来]天"
)
