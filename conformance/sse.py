"""Section 6: server-sent events as their standard frames them, without a line of other code.

Terms: an *event* is what a blank line, or the end of the stream, ends. Comments, other fields, any
of the three line ends, a byte order mark, and data over several lines are all allowed by the
standard, and so here.
"""

from dataclasses import dataclass

from conformance.strictjson import Json, NotJson, parse


@dataclass(frozen=True)
class Event:
    """The data of one event. `value` is its JSON, or `fault` says why there is none."""

    data: str
    value: Json
    fault: str | None
    repeated_keys: tuple[str, ...]


@dataclass(frozen=True)
class Stream:
    """All events, what is wrong with the framing, and whether a blank line ends the last one."""

    events: tuple[Event, ...]
    fault: str | None
    ended: bool = True


def read(body: bytes) -> Stream:
    """Read a whole stream. Blank lines stand between events, so the last may lack its own."""
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
                events.append(_event("\n".join(data)))
            data = []
            continue
        name, colon, value = line.partition(":")
        if name == "data":
            data.append(value.removeprefix(" "))
        elif colon and name == "":
            continue
        elif name not in ("event", "id", "retry"):
            # A reader skips it; but JSON on a line of its own is what the document excludes.
            fault = fault or f"a line that is no field of an event: {line[:60]!r}"
    if data:
        events.append(_event("\n".join(data)))
    return Stream(tuple(events), fault, ended=not data)


def _event(data: str) -> Event:
    try:
        parsed = parse(data.encode())
    except NotJson as error:
        return Event(data, None, str(error), ())
    return Event(data, parsed.value, None, parsed.repeated_keys)
