"""Interface 2: timestamps are ISO 8601 strings in UTC, dates are YYYY-MM-DD.

The document does not choose among the formats of ISO 8601, so all of them are valid. A string
without a zone is valid too, since the document says that it is UTC. Only another offset is a
violation.
"""

import re
from datetime import date, datetime, timedelta

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}\Z", re.ASCII)
_LEAP_SECOND = re.compile(r"(\d\d:?\d\d:?)60(?=\D|\Z)", re.ASCII)
_HAS_DATE_AND_TIME = re.compile(r"\d{4}.*[Tt ]\d\d", re.ASCII)


def parse_timestamp(text: str) -> datetime | None:
    """Parse an ISO 8601 date and time; return None if it is invalid."""
    if not _HAS_DATE_AND_TIME.match(text):
        return None
    plain = _LEAP_SECOND.sub(r"\g<1>59", text.replace("t", "T").replace("z", "Z"))
    try:
        return datetime.fromisoformat(plain)
    except ValueError:
        return None


def timestamp_fault(text: str) -> str | None:
    """Return why the string is not an ISO 8601 time in UTC, or None."""
    moment = parse_timestamp(text)
    if moment is None:
        return "not an ISO 8601 date and time"
    if moment.utcoffset() not in (None, timedelta(0)):
        return "not in UTC"
    return None


def date_fault(text: str) -> str | None:
    """Return why the string is not a date YYYY-MM-DD, or None."""
    if not _DATE.match(text):
        return "not written YYYY-MM-DD"
    try:
        date.fromisoformat(text)
    except ValueError:
        return "no such day"
    return None
