"""The days that a question speaks of: "on 2 May", "last week", 5月2日, 上周三.

English and Chinese, by rules. What is not understood is passed over: a wrong day costs more than a missing
one. A day without a year is that day of every year that memories are from; relative words count from
``today``. Weeks begin on Monday. Days to come are not looked for.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import date, timedelta
from typing import NamedTuple

MOST_YEARS = 20
"""A day without a year is looked for in so many years, today's included."""


class Period(NamedTuple):
    """Whole days, from ``start`` to before ``end``."""

    start: date
    end: date


class _Calendar(NamedTuple):
    today: date
    years: range


_Rule = Callable[[re.Match[str], _Calendar], Iterator[Period]]

_DAY = timedelta(days=1)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_ZH_WEEKDAYS = "一二三四五六日"
_COUNTS = {
    "a": 1,
    "an": 1,
    "one": 1,
    "two": 2,
    "couple": 2,
    "three": 3,
    "few": 4,
    "four": 4,
    "five": 5,
    "six": 6,
    "几": 4,
}
_ZH_DIGITS = {digit: number for number, digit in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}
_SIMPLIFIED = str.maketrans("週號個禮兩幾這過", "周号个礼两几这过")
_ZH_NUMBER = re.compile(r"(?<![周期拜])[〇零一二两三四五六七八九十]+(?=个?(?:年|月|日|号|天|周|星期|礼拜))")
_UNITS = {"天": "day", "日": "day", "周": "week", "星期": "week", "礼拜": "week", "月": "month", "年": "year"}
_LENGTH = {"day": 1.0, "week": 7.0, "month": 30.44, "year": 365.25}
_AROUND = 0.3
"""By what share of the distance "two weeks ago" may be off."""
_YEARS_AGO = {"今年": 0, "去年": 1, "前年": 2}
_DAYS_AGO = {"today": 0, "tonight": 0, "this morning": 0, "this afternoon": 0, "this evening": 0}
_DAYS_AGO |= {"the day before yesterday": 2, "yesterday": 1, "last night": 1}
_DAYS_AGO |= {"今天": 0, "今早": 0, "今晚": 0, "昨天": 1, "昨日": 1, "昨晚": 1, "前天": 2, "大前天": 3}


def query_periods(text: str, today: date, since: date) -> list[Period]:
    """The periods that ``text`` names, none twice; ``since`` is the day of the oldest memory."""
    text = unicodedata.normalize("NFKC", text).lower().translate(_SIMPLIFIED)
    if _HINT.search(text) is None:
        return []
    text = _ZH_NUMBER.sub(_arabic, text)
    calendar = _Calendar(today, range(max(since.year, today.year - MOST_YEARS + 1), today.year + 1))
    found: dict[Period, None] = {}
    for pattern, rule in _RULES:
        matches = list(pattern.finditer(text))
        for match in matches:
            with suppress(ValueError, OverflowError):  # before the year 1, or after 9999
                found.update(dict.fromkeys(rule(match, calendar)))
        if matches:
            text = pattern.sub(" ; ", text)  # the May of "2 May" is not the month as well
    return list(found)


def _arabic(match: re.Match[str]) -> str:
    """A Chinese number below 100, or a year digit by digit."""
    tens, ten, ones = match[0].partition("十")
    if ten:
        return str(10 * _ZH_DIGITS.get(tens, 1) + _ZH_DIGITS.get(ones, 0))
    return "".join(str(_ZH_DIGITS[digit]) for digit in tens)


def _month_number(name: str) -> int:
    return int(name) if name.isdigit() else _MONTHS.index(name[:3]) + 1


def _years(match: re.Match[str], calendar: _Calendar) -> range:
    """The year that is named; else all."""
    named = match["year"]
    if not named:
        return calendar.years
    year = int(named) if named.isdigit() else calendar.today.year - _YEARS_AGO[named]
    return range(year, year + 1)


def _days_of_month(match: re.Match[str], calendar: _Calendar) -> Iterator[Period]:
    """ "2 May", "May 2 to June 3, 2024", 5月2日到6日."""
    named = match.groupdict()
    month, day = _month_number(match["month"]), int(match["day"])
    last_month = _month_number(named.get("last_month") or match["month"])
    last_day = int(named.get("last") or day)
    for year in _years(match, calendar):
        with suppress(ValueError):  # 30 February, and 29 February in most years
            start = date(year, month, day)
            yield Period(start, max(start, date(year + (last_month < month), last_month, last_day)) + _DAY)


def _month(match: re.Match[str], calendar: _Calendar) -> Iterator[Period]:
    """ "In May", "May 2024", 去年5月."""
    month = _month_number(match["month"])
    for year in _years(match, calendar):
        yield Period(date(year, month, 1), date(year + month // 12, month % 12 + 1, 1))


def _year(match: re.Match[str], calendar: _Calendar) -> Iterator[Period]:
    for year in _years(match, calendar):
        yield Period(date(year, 1, 1), date(year + 1, 1, 1))


def _unit(match: re.Match[str]) -> str:
    return _UNITS.get(match["unit"], match["unit"])


def _span(match: re.Match[str]) -> float:
    count = match["count"]
    return (int(count) if count.isdigit() else _COUNTS[count]) * _LENGTH[_unit(match)]


def _ago(match: re.Match[str], calendar: _Calendar) -> Iterator[Period]:
    """ "Two weeks ago": about then."""
    span = _span(match)
    day, reach = calendar.today - timedelta(days=round(span)), timedelta(days=round(_AROUND * span))
    yield Period(day - reach, day + reach + _DAY)


def _past(match: re.Match[str], calendar: _Calendar) -> Iterator[Period]:
    """ "The past two weeks"."""
    yield Period(calendar.today - timedelta(days=round(_span(match))), calendar.today + _DAY)


def _back(match: re.Match[str]) -> int:
    """How many weeks, months or years back "last" or 上上 points."""
    which = match["which"] or ""
    return which.count("上") or int(which in ("last", "previous"))


def _this_or_last(match: re.Match[str], calendar: _Calendar) -> Iterator[Period]:
    """ "Last week", 上上周, 这个月."""
    today, back = calendar.today, _back(match)
    if _unit(match) == "week":
        monday = today - timedelta(days=today.weekday() + 7 * back)
        yield Period(monday, monday + 7 * _DAY)
    elif _unit(match) == "month":
        year, month = divmod(12 * today.year + today.month - 1 - back, 12)
        yield Period(date(year, month + 1, 1), date(year + (month + 1) // 12, (month + 1) % 12 + 1, 1))
    else:
        yield Period(date(today.year - back, 1, 1), date(today.year - back + 1, 1, 1))


def _weekday(match: re.Match[str], calendar: _Calendar) -> Iterator[Period]:
    """The latest such day; 上周二 is last week's, "last Tuesday" not today."""
    name, today = match["weekday"].replace("天", "日"), calendar.today
    if name in _ZH_WEEKDAYS:
        monday = today - timedelta(days=today.weekday() + 7 * _back(match))
        start = monday + _ZH_WEEKDAYS.index(name) * _DAY
        start -= 7 * _DAY * (start > today)
    else:
        start = today - timedelta(
            days=(today.weekday() - _WEEKDAYS.index(name[:3]) - _back(match)) % 7 + _back(match)
        )
    yield Period(start, start + _DAY)


def _weekend(match: re.Match[str], calendar: _Calendar) -> Iterator[Period]:
    """The latest one; last week's where "last" is said."""
    today = calendar.today
    saturday = today - timedelta(days=(today.weekday() - 5) % 7)
    if _back(match) and saturday + 2 * _DAY > today:
        saturday -= 7 * _DAY
    yield Period(saturday, saturday + 2 * _DAY)


def _near_day(match: re.Match[str], calendar: _Calendar) -> Iterator[Period]:
    day = calendar.today - _DAYS_AGO[match[0]] * _DAY
    yield Period(day, day + _DAY)


_M = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_YEAR = r"(?P<year>(?:19|20)\d\d)\b"
_N31, _N12 = r"(?:3[01]|[12]\d|0?[1-9])", r"(?:1[0-2]|0?[1-9])"
_TH = r"(?:st|nd|rd|th)?\b"
_TO = r"\s*(?:-|–|to|until|through|and)\s*"
_COUNT = (
    r"(?P<count>\d{1,3}|an?|one|two|three|four|five|six|few|couple)(?:\s+of)?"
    r"\s+(?P<unit>day|week|month|year)s?"
)
_ZH_YEAR = r"(?:(?P<year>(?:19|20)\d\d(?=年)|今年|去年|前年)年?的?)"
_ZH_TO = r"\s*(?:-|–|~|—+|至|到)\s*"
_ZH_COUNT = r"(?P<count>\d{1,3}|几)个?(?P<unit>天|日|周|星期|礼拜|月|年)"
_ZH_WHICH = r"(?P<which>上{1,3}|这|本)个?"
_HINT = re.compile(
    rf"\d|\b{_M}\b|\b(?:ago|before|last|past|previous|this|today|tonight|yesterday|weekend|on \w+day)\b"
    r"|[今昨周月年前]|[近去].{1,3}[天日]|星期|礼拜"
)
"""What every text has that names a day. Most questions have none of it and cost one look."""
_RULES: tuple[tuple[re.Pattern[str], _Rule], ...] = tuple(
    (re.compile(pattern), rule)
    for pattern, rule in (
        (rf"(?<!\d)(?P<year>(?:19|20)\d\d)[-/.](?P<month>{_N12})[-/.](?P<day>{_N31})(?!\d)", _days_of_month),
        (
            rf"\b(?P<month>{_M})\b\.?\s*(?P<day>{_N31}){_TH}"
            rf"(?:{_TO}(?:(?P<last_month>{_M})\s*)?(?P<last>{_N31}){_TH})?(?:,?\s*{_YEAR})?",
            _days_of_month,
        ),
        (
            rf"\b(?P<day>{_N31}){_TH}(?:{_TO}(?P<last>{_N31}){_TH})?"
            rf"\s*(?:of\s+)?(?P<month>{_M})\b\.?(?:,?\s*{_YEAR})?",
            _days_of_month,
        ),
        (
            rf"(?<!\d){_ZH_YEAR}?(?P<month>{_N12})月(?P<day>{_N31})[日号]"
            rf"(?:{_ZH_TO}(?:(?P<last_month>{_N12})月)?(?P<last>{_N31})[日号])?",
            _days_of_month,
        ),
        (rf"\b(?P<month>{_M})\b\.?,?\s+(?:of\s+)?{_YEAR}", _month),
        (
            rf"\b(?:in|during|since|early|mid|late|last|this|by|until)[\s-]+(?P<month>{_M})\b(?P<year>)?",
            _month,
        ),
        (rf"(?<!\d){_ZH_YEAR}?(?P<month>{_N12})月(?!\d)", _month),
        (rf"\b(?:in|during|since|of|year)\s+{_YEAR}", _year),
        (rf"{_ZH_YEAR}", _year),
        (rf"\b{_COUNT}\s+(?:ago|before)\b", _ago),
        (rf"{_ZH_COUNT}(?:之|以)?前", _ago),
        (rf"\b(?:last|past|previous)\s+{_COUNT}\b", _past),
        (rf"(?:最近|过去|近|这|前)的?{_ZH_COUNT}", _past),
        (r"\b(?P<which>last|this|previous|past)\s+(?P<unit>week|month|year)\b", _this_or_last),
        (rf"{_ZH_WHICH}(?P<unit>周|星期|礼拜|月)(?![一二三四五六日天末])", _this_or_last),
        (
            r"\b(?P<which>last|on|this|previous)\s+"
            r"(?P<weekday>monday|tuesday|wednesday|thursday|friday|saturday|sunday)\b",
            _weekday,
        ),
        (rf"(?:{_ZH_WHICH})?(?:周|星期|礼拜)(?P<weekday>[一二三四五六日天])", _weekday),
        (r"\b(?P<which>last|this|previous|the)\s+weekend\b", _weekend),
        (rf"(?:{_ZH_WHICH})?周末", _weekend),
        ("|".join(sorted(_DAYS_AGO, key=len, reverse=True)), _near_day),
    )
)
