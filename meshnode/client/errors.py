"""How a command can fail, and the exit status that scripts see (decision 0094).

====== ==========================================================================================
status meaning
====== ==========================================================================================
0      done
1      refused: by the network's rules, by a check made here, or because the gateway could not be
       asked; anything that was not sent can be retried
2      usage or configuration: arguments, key file, descriptor, a gateway of another network
3      unknown: a signed transaction may or may not be carried out; query its id before paying again
====== ==========================================================================================
"""

from __future__ import annotations

from meshnode.domain.errors import MeshnodeError

DONE, REFUSED, MISUSED, UNKNOWN = 0, 1, 2, 3


class ClientError(MeshnodeError):
    """A command that failed; ``details`` are for ``--json``."""

    status = REFUSED

    def __init__(self, message: str, **details: str | int) -> None:
        super().__init__(message)
        self.details = details


class Misused(ClientError):
    """A mistake that the user can correct: arguments, files, the choice of a gateway."""

    status = MISUSED


class Declined(ClientError):
    """Refused by the network, or by a check before signing."""


class GatewayUnavailable(ClientError):
    """The gateway did not answer, or reported that it cannot serve now.

    Asking again is harmless, but a transaction that was sent may have arrived.
    """


class TooManyRequests(GatewayUnavailable):
    """The gateway's rate limit: it relayed nothing, and asks for a retry after ``seconds``."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"too many requests; the gateway asks to wait {seconds} s")
        self.seconds = seconds


class NotReached(GatewayUnavailable):
    """No connection was made, so no part of the request has left this machine."""


class GatewayMisbehaves(ClientError):
    """An answer that is too large, malformed or contradictory."""


class GatewayRefuses(Declined):
    """The gateway answered with an error; ``reason`` is its text."""

    def __init__(self, reason: str, http_status: int) -> None:
        super().__init__(f"the gateway refuses: {reason}")
        self.reason = reason
        self.http_status = http_status


class OutcomeUnknown(ClientError):
    """A transaction was signed, and its outcome could not be determined."""

    status = UNKNOWN
