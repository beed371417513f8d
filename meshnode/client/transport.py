"""One HTTP exchange with a gateway, bounded in bytes and in time whatever the gateway does.

Terms: a *base* is a URL that paths are appended to. Redirects are not followed: a signed
transaction goes only to the gateway that the user chose.

Each exchange is one ``trio.run``. Commands are synchronous and ask one thing after another, so
nothing is gained from a loop that outlives an exchange. The library's synchronous client would be
simpler, but its timeouts begin anew with every byte; only a cancel scope is a deadline for name
resolution, TLS and a body that drips in alike.

Invariants: an exchange ends within its deadline; at most ``MAX_ANSWER`` bytes of an answer are
held; a failure says whether anything can have been sent (:class:`NotReached`: nothing has). The
library reports failures to connect, TLS included, by exceptions of their own. After any other
failure, and at the deadline, the request may have been sent.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import httpx2
import trio

from meshnode import __version__
from meshnode.client.errors import GatewayMisbehaves, GatewayUnavailable, Misused, NotReached

MAX_ANSWER: Final = 8 * 1024 * 1024
"""Bytes; the limit of the public network's clients. A page of full blocks is smaller."""
CONNECT_SECONDS: Final = 10.0
"""To connect, and again for TLS; at most a third of the exchange's deadline."""
NODE_API: Final = "/api/v1"
MAX_HEADERS: Final = 100
"""Header lines of an answer; a gateway sends about ten."""


_NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Trusts no certificate; for plain http, which does not use any."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """Status and whole body of an answer; ``retry_after`` is in seconds, if it was given.

    ``date`` is the header of this name, or empty.
    """

    status: int
    body: bytes
    retry_after: int | None = None
    date: str = ""


def check_url(url: str) -> str:
    """The base that ``url`` names; Misused when it is not an http or https URL.

    A node shows its URL with ``/api/v1`` at the end, where the node API is. The native API is
    beside it, so that ending is left out, as is a trailing slash.
    """
    if any(ord(character) <= 0x20 or ord(character) >= 0x7F for character in url):
        raise Misused("a gateway's URL has neither white space nor characters beyond ASCII")
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.username is not None or parts.query or parts.fragment:
        raise Misused(f"{url!r} is not a gateway: give http://HOST:PORT or https://HOST")
    return url.rstrip("/").removesuffix(NODE_API).rstrip("/")


def exchange(
    url: str,
    body: bytes | None,
    seconds: float,
    token: str = "",
    context: ssl.SSLContext | None = None,
) -> HttpAnswer:
    """GET ``url``, or POST ``body`` to it as JSON, within ``seconds``, with a bearer token.

    ``context`` decides which certificates are believed; without it, those of the machine.
    """
    try:
        with _failures_of(url):
            return trio.run(_exchange, url, body, seconds, token, context)
    except trio.TooSlowError:
        raise GatewayUnavailable(f"no answer within {seconds:g} s from {url}") from None


async def _exchange(
    url: str, body: bytes | None, seconds: float, token: str, context: ssl.SSLContext | None
) -> HttpAnswer:
    headers = {
        "Accept": "application/json",
        # Nothing is unpacked here, so that a small answer cannot become a large one.
        "Accept-Encoding": "identity",
        "User-Agent": f"meshnode/{__version__}",
    }
    if body is not None:
        headers["Content-Type"] = "application/json"
    if token:
        headers["Authorization"] = f"Bearer {token}"
    client = _client(url, min(CONNECT_SECONDS, seconds / 3), context)
    with trio.fail_after(seconds):
        async with client:
            method = "GET" if body is None else "POST"
            async with client.stream(method, url, content=body, headers=headers) as response:
                content = await _read(response)
                date = response.headers.get("Date", "")
                return HttpAnswer(response.status_code, content, _retry_after(response), date)


def _client(url: str, connect_seconds: float, context: ssl.SSLContext | None) -> httpx2.AsyncClient:
    https = urlsplit(url).scheme == "https"
    # Reading the machine's certificates, or those that SSL_CERT_FILE names, is slow.
    if context is None:
        context = ssl.create_default_context() if https else _NO_CERTIFICATES
    return httpx2.AsyncClient(
        verify=context,
        # Everything else has the exchange's deadline. Connecting and TLS have shorter timeouts of
        # their own, after which it is certain that nothing was sent. A handshake that is cancelled
        # would also leave its socket open (httpcore2 2.16 closes it after exceptions only).
        timeout=httpx2.Timeout(None, connect=connect_seconds),
        follow_redirects=False,
        # No proxy, and no password file: the gateway is the host that the user named.
        trust_env=False,
    )


async def _read(response: httpx2.Response) -> bytes:
    if len(response.headers) > MAX_HEADERS:
        raise GatewayUnavailable("an answer with too many headers")
    announced = response.headers.get("Content-Length", "")
    if announced.isdigit() and int(announced) > MAX_ANSWER:
        raise GatewayMisbehaves(f"an answer of {announced} bytes is too large")
    body = bytearray()
    with trio.CancelScope() as reading:
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > MAX_ANSWER:
                # This makes the next read end. Leaving the loop in another way would keep the
                # library's generators open, and trio warns about open generators.
                reading.cancel()
    if len(body) > MAX_ANSWER:
        raise GatewayMisbehaves(f"an answer of more than {MAX_ANSWER} bytes is too large")
    return bytes(body)


@contextmanager
def _failures_of(url: str) -> Iterator[None]:
    """Translate the library's exceptions into those of :mod:`meshnode.client.errors`."""
    host = urlsplit(url).netloc
    try:
        yield
    except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.InvalidURL) as error:
        raise NotReached(f"cannot reach {host}: {_reason(error)}") from None
    except httpx2.HTTPError as error:
        raise GatewayUnavailable(f"the connection to {url} broke: {_reason(error)}") from None


def _retry_after(response: httpx2.Response) -> int | None:
    text = response.headers.get("Retry-After", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 4 else None


def _reason(error: BaseException) -> str:
    """The message of the innermost cause, which comes from the system or from TLS.

    Of several addresses that were tried, it is that of the last.
    """
    while (cause := error.__cause__ or error.__context__ or _last(error)) is not None:
        error = cause
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _last(error: BaseException) -> BaseException | None:
    return error.exceptions[-1] if isinstance(error, BaseExceptionGroup) else None
