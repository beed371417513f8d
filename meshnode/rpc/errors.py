"""gRPC status codes, and the mapping of failures to them (interface 7.3).

Terms: a handler *refuses* a call by raising :class:`CallRefused` or a domain error of the table
below; a call that we made has *failed* with :class:`CallFailed`. They are two classes, so that
the failure of a call to a peer is never passed on to our own caller as if it were ours.

Invariant: an error that is not in the table reaches the caller as INTERNAL "internal error", with
none of its text; the log has the details.
"""

from __future__ import annotations

from enum import IntEnum

from meshnode.domain import errors as domain


class Code(IntEnum):
    """The status codes of gRPC; the document gives seven of them a meaning."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class RpcError(domain.MeshnodeError):
    """A status other than OK, and its message."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(f"{code.name}: {message}" if message else code.name)
        self.code = code
        self.message = message


class CallRefused(RpcError):
    """Raised by a handler to refuse a call; the caller gets the code and the message."""


class CallFailed(RpcError):
    """A call to a peer ended without success."""


NOT_IMPLEMENTED = (Code.UNIMPLEMENTED, "operation not implemented")

CODES: tuple[tuple[type[domain.MeshnodeError], Code], ...] = (
    (domain.InvalidRequest, Code.INVALID_ARGUMENT),
    (domain.Unauthorized, Code.UNAUTHENTICATED),
    (domain.MissingScope, Code.PERMISSION_DENIED),
    (domain.RateLimited, Code.RESOURCE_EXHAUSTED),
    # Not in the document's table. In gRPC it means that the same call may succeed later, after the
    # caller has changed something else: here the balance.
    (domain.InsufficientBalance, Code.FAILED_PRECONDITION),
    (domain.FundsLocked, Code.FAILED_PRECONDITION),
    (domain.Overloaded, Code.RESOURCE_EXHAUSTED),
    (domain.Unavailable, Code.UNAVAILABLE),
    (domain.LayerNotHeld, Code.NOT_FOUND),
)
"""Domain errors whose message is shown to the caller. All others become INTERNAL."""

INTERNAL_MESSAGE = "internal error"


def status_of(error: Exception) -> tuple[Code, str]:
    """The code and message that a caller gets for a handler's error."""
    # A nursery inside the handler wraps what its tasks raise.
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, CallRefused):
        return error.code, error.message
    for kind, code in CODES:
        if isinstance(error, kind):
            return code, str(error)
    return Code.INTERNAL, INTERNAL_MESSAGE


HTTP_STATUS_CODES = {
    400: Code.INTERNAL,
    401: Code.UNAUTHENTICATED,
    403: Code.PERMISSION_DENIED,
    404: Code.UNIMPLEMENTED,
    429: Code.UNAVAILABLE,
    502: Code.UNAVAILABLE,
    503: Code.UNAVAILABLE,
    504: Code.UNAVAILABLE,
}
"""The gRPC code for an HTTP status without a gRPC one, by the protocol. Others are UNKNOWN."""

RESET_CODES = {
    7: Code.UNAVAILABLE,  # REFUSED_STREAM: the peer has not processed the call
    8: Code.CANCELLED,  # CANCEL
    11: Code.RESOURCE_EXHAUSTED,  # ENHANCE_YOUR_CALM
    12: Code.PERMISSION_DENIED,  # INADEQUATE_SECURITY
}
"""The gRPC code for a stream reset, by HTTP/2 error code. All others are INTERNAL."""
