"""Interface 8: what the pings of a connection say about its keepalive.

Only time in which a connection rests is judged, because a library may send pings of its own while
data flows. A connection *rests* between two frames of the caller's or the peer's that are no pings.
The document has a ping every 30 s and 10 s for its answer. How exactly a clock keeps these is left
open: by a third.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from conformance.peer.tap import ACK, PING, Link, Mark

TIME_S, TIMEOUT_S = 30.0, 10.0
SLACK = 1 / 3
LATEST_S, EARLIEST_S = TIME_S * (1 + SLACK), TIME_S * (1 - SLACK)


@dataclass(frozen=True)
class Rest:
    """A time in which only pings passed. `calls` is the number of calls in flight."""

    begins: float
    ends: float
    pings: tuple[float, ...]
    calls: int


def rests(link: Link, now: float) -> Iterator[Rest]:
    """Return the times in which the connection rested, so far."""
    end = now if link.closed_at is None else link.closed_at
    at, pings, open_calls = link.opened_at, [], 0
    live: set[int] = set()
    for mark in list(link.marks):
        if mark.kind == PING:
            if _is_ping(mark):
                pings.append(mark.at)
            continue
        yield Rest(at, mark.at, tuple(pings), open_calls)
        _follow(live, mark)
        at, pings, open_calls = mark.at, [], len(live)
    yield Rest(at, end, tuple(pings), open_calls)


def _is_ping(mark: Mark) -> bool:
    return mark.kind == PING and mark.from_caller and not mark.flags & ACK


def _follow(live: set[int], mark: Mark) -> None:
    shadow = Link(("", 0), 0.0, streams=live)
    shadow.note(mark)


def fault(rest: Rest) -> str | None:
    """Return what is wrong with the interval of the pings, or None."""
    first = rest.pings[0] - rest.begins if rest.pings else rest.ends - rest.begins
    if first > LATEST_S:
        return f"no ping on a connection that rested for {first:.0f} s"
    for before, after in pairwise((*rest.pings, rest.ends)):
        if after - before > LATEST_S:
            return f"no ping for {after - before:.0f} s after the one before"
    for before, after in pairwise(rest.pings):
        if after - before < EARLIEST_S:
            return f"pings {after - before:.1f} s apart on a connection that rested"
    return None


def proof(rest: Rest) -> bool:
    """Return whether the rest shows that a ping came when it was due."""
    if fault(rest) is not None or not rest.pings:
        return False
    # One ping soon after a frame may be the first of many.
    return len(rest.pings) > 1 or rest.pings[0] - rest.begins >= EARLIEST_S


def regular(link: Link) -> bool:
    """Return whether three pings came as far apart as they should, whatever passed between them.

    Pings by which a library measures its data would have come between them.
    """
    pings = [mark.at for mark in list(link.marks) if _is_ping(mark)]
    gaps = [after - before for before, after in pairwise(pings)]
    return len(gaps) > 1 and all(EARLIEST_S <= gap <= LATEST_S for gap in gaps)
