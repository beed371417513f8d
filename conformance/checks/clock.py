"""Interface 2: times are in UTC, which the Date header of the same answer shows.

The target's own clock may be wrong, but both times are its own. The Date header is in UTC by the
rules of HTTP. A time without a zone is in UTC too.
"""

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from conformance.context import Context
from conformance.editions import SIXTH
from conformance.httpwire import Answer
from conformance.strictjson import Json, brief
from conformance.times import parse_timestamp

IDENT = "GEN-019"
# Less than any zone's distance from UTC, and more than an answer takes.
APART = timedelta(minutes=10)
# So far ahead of the header no answer is that was kept, nor one whose header a proxy has written.
AHEAD = timedelta(minutes=1)
# By so much the clocks of two hosts may differ.
NEAR = timedelta(minutes=5)


def served_at(answer: Answer) -> datetime | None:
    """Return the time in the Date header, or None without a valid one."""
    try:
        return parsedate_to_datetime(answer.header("Date")).astimezone(UTC)
    except (TypeError, ValueError):
        return None


def moment(value: Json) -> datetime | None:
    """Return a timestamp as a time in UTC, or None if it is none."""
    found = parse_timestamp(value) if isinstance(value, str) else None
    if found is None:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def judge_now(context: Context, what: str, value: Json, answer: Answer) -> None:
    """Rule on a time that means now."""
    date, found = served_at(answer), moment(value)
    if date and found:
        why = f"{what} is {brief(value)}, the Date header is {answer.header('Date')!r}"
        ahead = AHEAD if context.edition >= SIXTH else APART
        context.judge(IDENT, -APART <= found - date <= ahead, why, answer)


def judge_past(context: Context, what: str, values: list[Json], answer: Answer) -> None:
    """Rule on times of what has happened already."""
    date = served_at(answer)
    moments = [(value, found) for value in values if (found := moment(value))]
    if date and moments:
        late = [value for value, found in moments if found - date > APART]
        why = f"{what} {brief(late)} is after the Date header {answer.header('Date')!r}"
        context.judge(IDENT, not late, why, answer)


def near_midnight() -> bool:
    """Whether it may be another day by the target's clock, in UTC."""
    now = datetime.now(UTC)
    return (now + NEAR).date() != (now - NEAR).date()
