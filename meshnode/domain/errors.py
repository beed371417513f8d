"""Domain errors: one class for each failure that a client can meet (interface 7).

Each edge maps these in one table: ``meshnode.http.errors`` to status, code and details,
``meshnode.rpc.errors`` to gRPC status codes. Messages are shown to clients, so they never carry
secrets or internals.
"""

from __future__ import annotations

import re

_ABSOLUTE_PATH = re.compile(r"(?<![\w.])/\w")


class MeshnodeError(Exception):
    """Base of all failures that are reported to a client or an operator in plain words."""


def public_reason(error: Exception) -> str:
    """The text of an error for clients without a token, which names no folder of this machine."""
    if isinstance(error, OSError) and error.strerror:
        name = "" if error.filename is None else str(error.filename).rpartition("/")[2]
        return f"{name}: {error.strerror}" if name else error.strerror
    text = str(error)
    return "its files cannot be read" if _ABSOLUTE_PATH.search(text) else text


class InvalidRequest(MeshnodeError):
    """A request that can never succeed as it stands. Names the offending field and the reason."""

    def __init__(self, field: str | None, reason: str) -> None:
        super().__init__(f"{field}: {reason}" if field else reason)
        self.field = field
        self.reason = reason


class PromptTooLong(InvalidRequest):
    """The prompt leaves no room for a completion in the model's context."""


class Unsupported(InvalidRequest):
    """The parameter is known, and this node or its model does not have what it asks for."""


class ModelNotServed(MeshnodeError):
    """The request names a model that this node does not serve."""

    def __init__(self, served: str) -> None:
        super().__init__(f"there is no such model here; this node serves '{served}'")


class Unauthorized(MeshnodeError):
    """The bearer token is missing, unknown, expired or revoked (interface 7.1)."""

    def __init__(self, message: str = "invalid or expired token") -> None:
        # Every rejected token gets the same message, so a caller cannot learn which ones existed.
        super().__init__(message)


class MissingScope(MeshnodeError):
    """The bearer token is valid, but not for this (decision 0161)."""

    def __init__(self, scope: str) -> None:
        super().__init__(f"this token does not have the scope {scope}")
        self.scope = scope


class RateLimited(MeshnodeError):
    """Too many requests, or no room in the engine's queue. ``retry_after`` is in whole seconds."""

    def __init__(self, retry_after: int, message: str = "too many requests") -> None:
        super().__init__(message)
        self.retry_after = max(1, retry_after)


class InsufficientBalance(MeshnodeError):
    """The balance is too low for the operation. Amounts are in whole currency units."""

    def __init__(self, required: float, available: float) -> None:
        super().__init__("balance too low for the operation")
        self.required = required
        self.available = available


class FundsLocked(MeshnodeError):
    """Staked money cannot be moved before its unlock date, ``YYYY-MM-DD``."""

    def __init__(self, unlock_date: str) -> None:
        super().__init__(f"the stake is locked until {unlock_date}")
        self.unlock_date = unlock_date


class Unavailable(MeshnodeError):
    """The node cannot do this now: it is draining, or a service that it needs is down."""


class ForeignSite(MeshnodeError):
    """A browser may have sent the request for a page of another site (decision 0131)."""


class Overloaded(Unavailable):
    """The node is too busy: the request has waited for as long as any may."""


class LayersUnavailable(Unavailable):
    """No reachable node holds some of the model's layers."""


class LayerNotHeld(MeshnodeError):
    """The addressed layer is not on this node (gRPC NOT_FOUND, interface 7.3)."""


class ComputationFailed(MeshnodeError):
    """The model failed while computing. The cause is in the log, not in the message."""

    def __init__(self) -> None:
        super().__init__("the computation failed")


class FalseResults(ComputationFailed):
    """A holder gave false results, of which tokens have been sent; nothing is charged for them."""

    def __init__(self) -> None:
        MeshnodeError.__init__(self, "a node computed false results; this answer is not charged")


class StartupError(MeshnodeError):
    """The node cannot start: one line for the operator, and a non-zero exit status."""
