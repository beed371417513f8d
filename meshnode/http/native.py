"""What all answers of the native API have in common (interface 2.2, 4.2, 7.2; decision 0076).

Invariants: an answer is canonical JSON and is never cached, unless its handler says otherwise; the
body of a refusal is ``{"error": text}``, whichever layer found the fault; pages of every origin
may read the answers, since no answer depends on the client's identity.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import AsyncIterable, Mapping
from typing import TYPE_CHECKING, Any

import trio
from quart import request
from quart.wrappers.response import ResponseBody
from quart_trio.wrappers import TrioRequest
from quart_trio.wrappers import TrioResponse as Response
from werkzeug.exceptions import HTTPException

from meshnode.domain.chain.canonical import Json, JsonLimits, encode, parse
from meshnode.domain.chain.errors import Rejected
from meshnode.domain.connections import is_here
from meshnode.domain.errors import (
    ForeignSite,
    InvalidRequest,
    MeshnodeError,
    RateLimited,
    Unavailable,
)
from meshnode.domain.ratelimit import address_key
from meshnode.http.asked import Asked, current_asked
from meshnode.http.errors import ErrorForm, Failure, report
from meshnode.http.routes import IntegerParameter, TextParameter

if TYPE_CHECKING:
    from hypercorn.typing import HTTPScope

UNREACHABLE = "Native full node unavailable; query your request id before retrying"
"""The error text when the outcome of a request is not known."""

BODY_BYTES: Mapping[str, int] = {"/work/poll": 4096, "/work/result": 2_000_000, "/rpc": 32_768}
"""The largest body that each path takes."""


class NotThere(MeshnodeError):
    """There is nothing at this path."""


class NotAllowed(MeshnodeError):
    """The path can be read and nothing else."""


class NativeRequest(TrioRequest):
    """A request whose body is bounded by what its path takes."""

    def __init__(
        self,
        method: str,
        scheme: str,
        path: str,
        *more: Any,
        max_content_length: int | None = None,
        **named: Any,
    ) -> None:
        limit = BODY_BYTES.get(path, max_content_length)
        super().__init__(method, scheme, path, *more, max_content_length=limit, **named)


# Answers


def native_response(value: Json, status: int = 200) -> Response:
    """A canonical JSON answer."""
    return document_response(encode(value), status)


async def large_response(value: Json) -> Response:
    """A canonical JSON answer of some megabytes, which a thread encodes while others are served."""
    return document_response(await trio.to_thread.run_sync(encode, value))


def document_response(data: bytes, status: int = 200) -> Response:
    """An answer of JSON that is encoded already."""
    response = Response(data, status, content_type="application/json")
    response.headers["Cache-Control"] = "no-store"
    return response


class _Chunks(ResponseBody):
    """Passes pieces on as they are read. The exchange holds what they are read from."""

    def __init__(self, pieces: AsyncIterable[bytes]) -> None:
        self._pieces = pieces

    async def __aenter__(self) -> AsyncIterable[bytes]:
        return self._pieces

    async def __aexit__(self, *_: object) -> None:
        pass


def bytes_response(
    body: bytes | AsyncIterable[bytes], status: int, headers: Mapping[str, str]
) -> Response:
    """An answer of bytes; ``headers`` may state their length and type."""
    content = body if isinstance(body, bytes) else _Chunks(body)
    response = Response(content, status, content_type="application/octet-stream")
    response.timeout = None
    response.headers.update(dict(headers))
    return response


HEADERS: Mapping[str, str] = {
    "Access-Control-Allow-Origin": "*",
    "X-Content-Type-Options": "nosniff",
}
"""Pages of every origin may read the answer, and browsers must not guess its type."""


def native_failure(error: Exception, identifier: str) -> Failure:
    """The status and text for an exception. Unexpected exceptions go to the log."""
    for kind in type(error).__mro__:
        status = ERRORS.get(kind)
        if status is not None:
            headers = {}
            if isinstance(error, RateLimited):
                headers["Retry-After"] = str(error.retry_after)
            text = UNREACHABLE if kind is trio.TooSlowError else str(error)
            return Failure(status, "", _plain(text), None, headers)
    failure = report(error, identifier)
    if isinstance(error, HTTPException):
        return failure
    return Failure(500, "", "internal error")


ERRORS: Mapping[type[Exception], int] = {
    Rejected: 400,
    InvalidRequest: 400,
    ForeignSite: 403,
    NotAllowed: 403,
    NotThere: 404,
    RateLimited: 429,
    Unavailable: 503,
    trio.TooSlowError: 503,
}


NATIVE_ERRORS = ErrorForm(
    native_failure, lambda failure: encode({"error": failure.message}), HEADERS
)
"""The native API's form."""


def _plain(text: str) -> str:
    return text[:500].encode("utf-8", "replace").decode("utf-8")


# Questions


class Parameters:
    """The query of the current request. Parameters that no route reads are ignored."""

    def __init__(self) -> None:
        self._values = request.args

    def text(self, name: str) -> str | None:
        """A parameter as it was sent, or None. Raises InvalidRequest if it is given twice."""
        found = self._values.getlist(name)
        if len(found) > 1:
            raise InvalidRequest(name, "is given more than once")
        return found[0] if found else None

    def required(self, parameter: TextParameter) -> str:
        """A parameter that must be there. The error text for a missing one is its quoted name."""
        value = self.text(parameter.name)
        if value is None:
            raise InvalidRequest(None, repr(parameter.name))
        return value

    def integer(self, parameter: IntegerParameter) -> int:
        """A decimal number within bounds."""
        name, low, high = parameter.name, parameter.low, parameter.high
        value = self.text(name)
        if value is None:
            return parameter.default
        # Signs, blanks and digits of other scripts would give one number several spellings.
        if not re.fullmatch(r"(?:0|[1-9][0-9]{0,18})", value) or not low <= int(value) <= high:
            raise InvalidRequest(name, f"must be an integer from {low} to {high}")
        return int(value)


def variable(name: str) -> str:
    """The value of a variable in the route's path."""
    return str((request.view_args or {})[name])


async def read_body(name: str, limits: JsonLimits) -> Json:
    """The body as strict JSON.

    Raises InvalidRequest (``Invalid <name> request size``) if the length is missing or too large,
    and a :class:`Rejected` if the body is not JSON.
    """
    length = request.headers.get("Content-Length", "")
    sized = re.fullmatch(r"[0-9]{1,8}", length) and 1 <= int(length) <= limits.size
    # A length that is stated can be refused before a byte is read.
    if not sized or "Transfer-Encoding" in request.headers:
        raise InvalidRequest(None, f"Invalid {name} request size")
    data = await request.get_data(cache=False, as_text=False, parse_form_data=False)
    if len(data) != int(length):
        raise InvalidRequest(None, "Truncated request")
    if len(data) > 65_536:
        return await trio.to_thread.run_sync(parse, data, limits)
    return parse(data, limits)


# Clients


class WindowLimit:
    """At most ``count`` requests of a client in each window of ``window_s`` seconds."""

    def __init__(self, count: int, window_s: float = 60.0, max_keys: int = 16_384) -> None:
        self._count = count
        self._window_s = window_s
        self._max_keys = max_keys
        self._since = float("-inf")
        self._counts: dict[str, int] = {}

    def check(self, key: str, now: float) -> None:
        """Count a request, or raise RateLimited. ``now`` is in seconds of a monotonic clock."""
        if now - self._since >= self._window_s:
            # All windows end at the same time, so no key needs a window of its own.
            self._since, self._counts = now, {}
        self.require_room(key, now)
        used = self._counts.get(key, 0)
        # A client with more addresses than the table has rows gets past this limit anyway, and
        # refusing new keys would let such a client lock out everybody else.
        if key in self._counts or len(self._counts) < self._max_keys:
            self._counts[key] = used + 1

    def require_room(self, key: str, now: float) -> None:
        """Raise RateLimited if the client has used up its window. Counts nothing."""
        if self._counts.get(key, 0) >= self._count and now - self._since < self._window_s:
            wait = int(self._since + self._window_s - now) + 1
            raise RateLimited(wait, "Too many requests")


class NativeGate:
    """Runs before any native route: answers CORS preflights, and limits requests by address."""

    def __init__(self, requests_per_minute: int = 240, following_per_minute: int = 12_000) -> None:
        """``following_per_minute`` applies to programs on this machine, and to the calls with which
        a following node fetches one block after another.
        """
        self._limit = WindowLimit(requests_per_minute)
        self._following = WindowLimit(following_per_minute)

    def refuse_early(self, scope: HTTPScope) -> None:
        """Refuse a stranger who has used up its window, before the application sees the request.

        Raises RateLimited. Counts nothing, since what counts depends on the route.
        """
        method, client = scope["method"], scope["client"]
        uncounted = method == "OPTIONS" or (method, scope["path"]) in UNCOUNTED
        if client and not uncounted and not is_here(client[0]):
            self._limit.require_room(address_key(client[0]), trio.current_time())

    async def admit(self) -> Response | None:
        """The answer to a preflight; None for a request that may go on. Raises RateLimited."""
        if request.method == "OPTIONS":
            response = Response(b"", 204)
            response.headers["Access-Control-Allow-Headers"] = "Content-Type"
            response.headers["Access-Control-Allow-Methods"] = "GET, POST, OPTIONS"
            return response
        if (request.method, request.path) not in UNCOUNTED:
            self.count(current_asked())
        return None

    def count(self, asked: Asked, *, following: bool = False) -> None:
        """Count a request, or raise RateLimited."""
        address, forwarded = client_address(asked)
        # A request from this machine that no proxy forwarded is the operator's, or comes through a
        # proxy that does not name its clients, who would all share one client's allowance.
        generous = following or (not forwarded and address == LOCAL)
        limit = self._following if generous else self._limit
        limit.check(address, trio.current_time())


UNCOUNTED = frozenset({("GET", "/healthz"), ("HEAD", "/healthz"), ("POST", "/rpc")})
"""Health checks must pass under load; ``/rpc`` counts its requests itself, by their method."""


LOCAL = "this machine"


def client_address(asked: Asked) -> tuple[str, bool]:
    """The key that a request counts against, and whether a proxy stated it.

    Only a proxy on this machine is believed when it states the address of its client.
    """
    host = asked.client[0] if asked.client else "127.0.0.1"
    if not ipaddress.ip_address(host.partition("%")[0]).is_loopback:
        return address_key(host), False
    try:
        forwarded = ipaddress.ip_address(asked.headers.get("X-Real-IP", ""))
    except ValueError:
        return LOCAL, False
    return address_key(str(forwarded)), True
