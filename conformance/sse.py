"""Interface 6: server-sent events, parsed as their standard frames them, without any library.

Terms: a blank line, or the end of the stream, ends an *event*. As in the standard, comments, other
fields, any of the three line endings, a byte order mark, and data over several lines are allowed.
"""

from dataclasses import dataclass

from conformance.strictjson import Json, NotJson, parse


@dataclass(frozen=True)
class Event:
    """The data of one event. `value` is its JSON value, or `fault` says why there is none."""

    data: str
    value: Json
    fault: str | None
    repeated_keys: tuple[str, ...]
    lines: int = 1
    """How many lines of data it has."""


@dataclass(frozen=True)
class Stream:
    """All events, what is wrong with the framing, and whether a blank line ends the last one."""

    events: tuple[Event, ...]
    fault: str | None
    ended: bool = True


def read(body: bytes) -> Stream:
    """Read a complete stream. Blank lines separate events, so the last event may lack one."""
    try:
        text = body.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        return Stream((), f"not UTF-8 at byte {error.start}")
    *lines, rest = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if rest:
        lines.append(rest)
    events: list[Event] = []
    data: list[str] = []
    fault: str | None = None
    for line in lines:
        if not line:
            if data:
                events.append(_event(data))
            data = []
            continue
        name, colon, value = line.partition(":")
        if name == "data":
            data.append(value.removeprefix(" "))
        elif colon and name == "":
            continue
        elif name not in ("event", "id", "retry"):
            # A reader of the standard skips such a line, but the document has no line except those
            # with ``data``: JSON without that name would be lost.
            fault = fault or f"a line that is not a field of an event: {line[:60]!r}"
    if data:
        events.append(_event(data))
    return Stream(tuple(events), fault, ended=not data)


def _event(lines: list[str]) -> Event:
    data = "\n".join(lines)
    try:
        parsed = parse(data.encode())
    except NotJson as error:
        return Event(data, None, str(error), (), len(lines))
    return Event(data, parsed.value, None, parsed.repeated_keys, len(lines))
