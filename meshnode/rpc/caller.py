"""The caller of the current call and the metadata of its answer, for handlers (interface 4.3).

A caller is known by its socket address, and by what its metadata says (decisions 0133, 0164).
Invariant: both functions refer to the call that the running task, or a parent task, serves; outside
a call they raise RuntimeError.
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
    """Its socket's IP address in canonical form, never an IPv4 address mapped into IPv6."""
    port: int
    """Its socket's port, which is not a port that it listens on."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Metadata of the request: lower-case keys, readable values, bounded in size."""
    here: str = ""
    """The address of this node at which the caller reached it."""


@dataclass(slots=True)
class Exchange:
    """The caller and the answer metadata of one call."""

    caller: Caller
    answer: dict[str, str]
    """Metadata to send with the status."""
    inside: int = 0
    """Calls that are being served inside this one (``line_server``)."""


_exchange: ContextVar[Exchange] = ContextVar("exchange")


def enter(exchange: Exchange) -> None:
    """Make this the call of the running task and of its children."""
    _exchange.set(exchange)


def caller() -> Caller:
    """The caller of the call that is being served."""
    return current().caller


def answer_metadata(key: str, value: str) -> None:
    """Send an entry with the call's status, success or failure; the last value for a key counts.

    Raises ValueError if the key or value is not valid metadata.
    """
    answer = current().answer
    sent_metadata({**answer, key: value})
    answer[key] = value


def current() -> Exchange:
    """The call that is being served."""
    try:
        return _exchange.get()
    except LookupError:
        raise RuntimeError("no call is being served here") from None
