"""What all answers of the native API have in common (document, 2.2, 4.2, 7.2; decision 0076).

Terms: a path is *native* when it belongs to the public native API or to what is left of its older
editions; every other path is the node API's, with the node API's error body.

Invariants: an answer is canonical JSON and is never cached, unless its handler says otherwise; the
body of a refusal is ``{"error": text}``, whichever layer found the fault; any page of any origin
may read the answers, since none of them depends on who asks.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import AsyncIterable, Mapping
from typing import Any

import trio
from quart import request
from quart.wrappers.response import ResponseBody
from quart_trio.wrappers import TrioRequest
from quart_trio.wrappers import TrioResponse as Response
from werkzeug.exceptions import HTTPException

from meshnode.domain.chain.canonical import Json, JsonLimits, encode, parse
from meshnode.domain.chain.errors import Rejected
from meshnode.domain.errors import InvalidRequest, MeshnodeError, RateLimited, Unavailable
from meshnode.domain.ratelimit import address_key
from meshnode.http.errors import Failure, report

UNREACHABLE = "Native full node unavailable; query your request id before retrying"
"""What a client hears when the outcome of its request is not known."""

_NATIVE = re.compile(
    r"/(?:healthz|rpc|join)"
    r"|/(?:network|artifacts|work|reference)/.*"
    r"|/(?:signup|login|register|dashboard|download|token)/?"
    r"|/native-preview(?:/.*)?"
    # Not the node API's version prefix, nor its two routes without one.
    r"|/api/(?!v1(?:/|$)|training/(?:global|verify)(?:/|$)|/).+",
    re.DOTALL,
)

BODY_BYTES: Mapping[str, int] = {"/work/poll": 4096, "/work/result": 2_000_000, "/rpc": 32_768}
"""The largest body that each path takes."""


def is_native(path: str) -> bool:
    """Whether the native API answers for ``path``."""
    return _NATIVE.fullmatch(path) is not None


class NotThere(MeshnodeError):
    """There is nothing at this path."""


class NotAllowed(MeshnodeError):
    """The path can be read and nothing else."""


class NodeRequest(TrioRequest):
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
    """A canonical JSON answer of up to some megabytes, which other requests need not wait for."""
    return document_response(await trio.to_thread.run_sync(encode, value))


def document_response(data: bytes, status: int = 200) -> Response:
    """A JSON document that is bytes already."""
    response = Response(data, status, content_type="application/json")
    response.headers["Cache-Control"] = "no-store"
    return response


class _Chunks(ResponseBody):
    """Hands pieces on as they are read. It holds nothing: what they come from is the exchange's."""

    def __init__(self, pieces: AsyncIterable[bytes]) -> None:
        self._pieces = pieces

    async def __aenter__(self) -> AsyncIterable[bytes]:
        return self._pieces

    async def __aexit__(self, *_: object) -> None:
        pass


def bytes_response(
    body: bytes | AsyncIterable[bytes], status: int, headers: Mapping[str, str]
) -> Response:
    """Bytes of no particular kind; ``headers`` may say their length."""
    content = body if isinstance(body, bytes) else _Chunks(body)
    response = Response(content, status, content_type="application/octet-stream")
    response.timeout = None
    response.headers.update(dict(headers))
    return response


HEADERS: Mapping[str, str] = {
    "Access-Control-Allow-Origin": "*",
    "X-Content-Type-Options": "nosniff",
}
"""Pages of any origin may read the answer, and nobody guesses at its type."""


def add_native_headers(response: Response) -> Response:
    """What every native answer has."""
    response.headers.update(dict(HEADERS))
    return response


def native_failure(error: Exception, identifier: str) -> Failure:
    """What becomes of an exception: status and text. Unexpected ones go to the log."""
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
    NotAllowed: 403,
    NotThere: 404,
    RateLimited: 429,
    Unavailable: 503,
    trio.TooSlowError: 503,
}


def failure_body(failure: Failure) -> bytes:
    """The native error body."""
    return encode({"error": failure.message})


def failure_answer(failure: Failure) -> Response:
    """The native error answer."""
    response = document_response(failure_body(failure), failure.status)
    response.headers.update(dict(failure.headers))
    return response


def _plain(text: str) -> str:
    return text[:500].encode("utf-8", "replace").decode("utf-8")


# Questions


class Parameters:
    """The query of the current request. What is not asked for by name is ignored."""

    def __init__(self) -> None:
        self._values = request.args

    def text(self, name: str) -> str | None:
        """A parameter as it was sent; None without it. InvalidRequest when it is there twice."""
        found = self._values.getlist(name)
        if len(found) > 1:
            raise InvalidRequest(name, "is given more than once")
        return found[0] if found else None

    def required(self, name: str) -> str:
        """A parameter that must be there; its quoted name says that it is not."""
        value = self.text(name)
        if value is None:
            raise InvalidRequest(None, repr(name))
        return value

    def integer(self, name: str, default: int, low: int, high: int) -> int:
        """A decimal number within bounds."""
        value = self.text(name)
        if value is None:
            return default
        # No sign, no blanks, no digits of other scripts: one number has one spelling.
        if not re.fullmatch(r"(?:0|[1-9][0-9]{0,18})", value) or not low <= int(value) <= high:
            raise InvalidRequest(name, f"must be an integer from {low} to {high}")
        return int(value)


def variable(name: str) -> str:
    """A variable of the route's path."""
    return str((request.view_args or {})[name])


async def read_body(name: str, limits: JsonLimits) -> Json:
    """The body as strict JSON. InvalidRequest ``Invalid <name> request size`` unless it says its
    length, and the length is allowed; a :class:`Rejected` for what is not JSON.
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
            # All windows end together, so there is nothing to tidy key by key.
            self._since, self._counts = now, {}
        used = self._counts.get(key, 0)
        if used >= self._count:
            wait = int(self._since + self._window_s - now) + 1
            raise RateLimited(wait, "Too many requests")
        # Whoever has more addresses than the table has rows is not held up by this limit anyway,
        # and refusing newcomers would let them lock out everybody else.
        if key in self._counts or len(self._counts) < self._max_keys:
            self._counts[key] = used + 1


class NativeGate:
    """Before any native route: preflights, and the limits by address."""

    def __init__(self, requests_per_minute: int = 240, following_per_minute: int = 12_000) -> None:
        """``following_per_minute`` is for a node that follows this one, a block at a time, and for
        programs on this machine.
        """
        self._limit = WindowLimit(requests_per_minute)
        self._following = WindowLimit(following_per_minute)

    def admit(self) -> Response | None:
        """Answer the current request here, or let it go on. Raises RateLimited."""
        if request.method == "OPTIONS":
            response = Response(b"", 204)
            response.headers["Access-Control-Allow-Headers"] = "Content-Type"
            response.headers["Access-Control-Allow-Methods"] = "GET, POST, OPTIONS"
            return response
        if (request.method, request.path) not in UNCOUNTED:
            self.count()
        return None

    def count(self, *, following: bool = False) -> None:
        """Count the current request, or raise RateLimited."""
        address, forwarded = client_address()
        # Whom no proxy forwards is on this machine: its operator, or a proxy that says nothing of
        # its clients, who would all share one client's allowance.
        generous = following or (not forwarded and address == LOCAL)
        limit = self._following if generous else self._limit
        limit.check(address, trio.current_time())


UNCOUNTED = frozenset({("GET", "/healthz"), ("HEAD", "/healthz"), ("POST", "/rpc")})
"""A node under load must not be taken for a dead one; ``/rpc`` counts by what is asked of it."""


LOCAL = "this machine"


def client_address() -> tuple[str, bool]:
    """Whom the current request counts against, and whether a proxy says so.

    A proxy on this machine is believed about whom it forwards; anybody else speaks for themselves.
    """
    client = request.scope["client"]
    host = client[0] if client else "127.0.0.1"
    if not ipaddress.ip_address(host.partition("%")[0]).is_loopback:
        return address_key(host), False
    try:
        forwarded = ipaddress.ip_address(request.headers.get("X-Real-IP", ""))
    except ValueError:
        return LOCAL, False
    return address_key(str(forwarded)), True
