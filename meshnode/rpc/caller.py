"""Who calls, and what is told to them beside the answer, for handlers (document, section 4.3).

gRPC carries no credentials here (document, 5), so the address of the socket is all that is known of
a caller. Invariant: both functions speak of the call in whose task they are used, or in whose
nursery; elsewhere they raise RuntimeError.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field

from meshnode.rpc.metadata import sent_metadata


@dataclass(frozen=True, slots=True)
class Caller:
    """The other end of a call."""

    ip: str
    """Of its socket, in canonical form: never an IPv4 address wrapped in an IPv6 one."""
    port: int
    """Of its socket, which is not a port that it listens on."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Of the request: lower-case keys, readable values, bounded."""
    here: str = ""
    """The address of this node at which the caller reached it."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A call as its handler may see it."""

    caller: Caller
    answer: dict[str, str]
    """Metadata to be sent with the status."""


_exchange: ContextVar[Exchange] = ContextVar("exchange")


def enter(exchange: Exchange) -> None:
    """Make this the call of the running task and of its children."""
    _exchange.set(exchange)


def caller() -> Caller:
    """Who made the call that is being served."""
    return _current().caller


def answer_metadata(key: str, value: str) -> None:
    """Send an entry with the status of the call, whatever that will be; the last value counts.

    Raises ValueError for what is not metadata.
    """
    answer = _current().answer
    sent_metadata({**answer, key: value})
    answer[key] = value


def _current() -> Exchange:
    try:
        return _exchange.get()
    except LookupError:
        raise RuntimeError("no call is being served here") from None
