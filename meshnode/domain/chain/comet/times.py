"""Times as CometBFT writes them in JSON: RFC 3339 in UTC, up to nine digits after the second.

Times are converted with integers only, because a float cannot hold nanoseconds.
"""

from __future__ import annotations

import re

from meshnode.domain.chain.errors import MalformedBlock
from meshnode.domain.units import DAY_S, SECOND_NS

_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?Z", re.ASCII)
_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_YEARS_400 = 146_097
"""Days in four centuries."""
_EPOCH_DAY = 719_468
"""Days from the first of March of the year 0 to 1970."""


def format_time(time_ns: int) -> str:
    """``2026-01-31T12:00:00.5Z`` for nanoseconds since 1970, from the year 1 to 9999."""
    seconds, fraction = divmod(time_ns, SECOND_NS)
    days, second = divmod(seconds, DAY_S)
    year, month, day = _date(days)
    if not 1 <= year <= 9999:
        raise ValueError("a year has four digits")
    clock = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
    decimals = f".{fraction:09}".rstrip("0") if fraction else ""
    return f"{year:04}-{month:02}-{day:02}T{clock}{decimals}Z"


def parse_time(text: str) -> int:
    """Nanoseconds since 1970; MalformedBlock for any other text."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise MalformedBlock
    year, month, day, hour, minute, second = map(int, match.groups()[:6])
    # The day must exist in its month, and block times have no leap seconds.
    if not 1 <= month <= 12 or not 1 <= day <= _month_days(year, month) or year < 1:
        raise MalformedBlock
    if hour > 23 or minute > 59 or second > 59:
        raise MalformedBlock
    seconds = _day_number(year, month, day) * DAY_S + hour * 3600 + minute * 60 + second
    return seconds * SECOND_NS + int((match[7] or "").ljust(9, "0"))


def _month_days(year: int, month: int) -> int:
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return 29 if month == 2 and leap else _DAYS[month - 1]


def _day_number(year: int, month: int, day: int) -> int:
    # Years begin in March here, so that the leap day is the last.
    year -= month <= 2
    century4, year_of = divmod(year, 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    day_of = year_of * 365 + year_of // 4 - year_of // 100 + day_of_year
    return century4 * _YEARS_400 + day_of - _EPOCH_DAY


def _date(days: int) -> tuple[int, int, int]:
    century4, day_of = divmod(days + _EPOCH_DAY, _YEARS_400)
    leap_days = day_of // 1460 - day_of // 36_524 + day_of // 146_096
    year_of = (day_of - leap_days) // 365
    day_of_year = day_of - (365 * year_of + year_of // 4 - year_of // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    day = day_of_year - (153 * shifted + 2) // 5 + 1
    return century4 * 400 + year_of + (month <= 2), month, day
