"""How a command can end other than well, and the exit status that scripts see (decision 0094).

====== ==========================================================================================
status meaning
====== ==========================================================================================
0      done
1      refused: by the network's rules, by a check made here, or because the gateway could not be
       asked; whatever was not sent can be tried again
2      usage or configuration: arguments, key file, descriptor, a gateway of another network
3      unknown: something signed may or may not have happened; ask by its id before paying again
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
    """The user can mend it: arguments, files, the choice of a gateway."""

    status = MISUSED


class Refused(ClientError):
    """The network, or a check made before signing, said no."""


class GatewayUnavailable(ClientError):
    """The gateway did not answer, or said that it cannot serve now. Asking again is harmless."""


class TooManyRequests(GatewayUnavailable):
    """Too many for the gateway, which relayed nothing; ``seconds`` until it counts anew."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"too many requests; the gateway wants {seconds} s of patience")
        self.seconds = seconds


class NotReached(GatewayUnavailable):
    """No connection came about: nothing has left this machine."""


class GatewayMisbehaves(ClientError):
    """An answer that no gateway of this network gives: too large, malformed, contradictory."""


class GatewayRefuses(Refused):
    """The gateway answered with an error; ``reason`` is its text."""

    def __init__(self, reason: str, http_status: int) -> None:
        super().__init__(f"the gateway refuses: {reason}")
        self.reason = reason
        self.http_status = http_status


class OutcomeUnknown(ClientError):
    """Something was signed, and what became of it could not be found out."""

    status = UNKNOWN
