"""The access log: one line for each request that was understood as HTTP (decision 0114).

A line has the method, the route, the status, the time taken, the generated tokens and the request's
id. The route is the pattern that matched, never what the client wrote: paths, queries, headers and
bodies may hold secrets.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

log = logging.getLogger(__name__)

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"})


@dataclass(slots=True)
class RequestRecord:
    """What is known of a request that is being served. The exchange owns it."""

    id: str
    method: str
    began: float
    """Seconds of Trio's clock."""
    route: str | None = None
    """The pattern of the route; None if no route matched."""
    status: int | None = None
    """None while no answer has begun."""
    tokens: int | None = None
    """Generated so far; None before the first, and for a request that generates nothing."""
    complete: bool = False
    """Whether the whole answer was handed to the connection."""
    known: bool = False
    """Whether the client has shown a bearer token that is accepted here."""
    streamed: bool = False
    """Whether the client asked for the answer as it is made."""
    answered: float | None = None
    """When the answer began, in seconds of Trio's clock."""

    def count_token(self) -> None:
        """One more token was generated."""
        self.tokens = (self.tokens or 0) + 1


def log_request(record: RequestRecord, now: float) -> None:
    """Write the line of a request that has ended."""
    fields: dict[str, object] = {
        # The methods are few; any other text would be the client's own.
        "method": record.method if record.method in METHODS else "other",
        "route": record.route,
        "status": record.status,
        "ms": round((now - record.began) * 1000, 1),
        "request_id": record.id,
    }
    if record.tokens is not None:
        fields["tokens"] = record.tokens
    if not record.complete:
        fields["complete"] = False
    log.info("request", extra={"fields": fields})
