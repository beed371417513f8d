"""One HTTP exchange with a gateway: bounded in bytes and in time, whatever the other side does.

Terms: a *base* is a URL that paths are appended to. Redirects are not followed: a signed
transaction goes where it was sent, or nowhere.

Invariants: an exchange ends within its time, also when bytes drip in one by one; at most
``MAX_ANSWER`` bytes of an answer are held; a failure says whether anything can have been sent
(:class:`NotReached`: nothing has).
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urlsplit

from meshnode import __version__
from meshnode.client.errors import GatewayMisbehaves, GatewayUnavailable, Misused, NotReached

MAX_ANSWER: Final = 8 * 1024 * 1024
"""Bytes; what clients of the public network read at most. A page of full blocks stays below."""
CONNECT_SECONDS: Final = 10.0
_CHUNK = 65_536


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """Status and body of an answer, read whole; ``retry_after`` in seconds where it was given."""

    status: int
    body: bytes
    retry_after: int | None = None


def check_url(url: str) -> str:
    """A base without its trailing slash; Misused when it is not an http or https URL."""
    if any(ord(character) <= 0x20 or ord(character) >= 0x7F for character in url):
        raise Misused("a gateway's URL has neither white space nor characters beyond ASCII")
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.username is not None or parts.query or parts.fragment:
        raise Misused(f"{url!r} is not a gateway: give http://HOST:PORT or https://HOST")
    return url.rstrip("/")


def exchange(url: str, body: bytes | None, seconds: float) -> HttpAnswer:
    """GET ``url``, or POST ``body`` to it as JSON, within ``seconds`` after connecting."""
    parts = urlsplit(url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {
        "Host": parts.netloc,
        "Accept": "application/json",
        "User-Agent": f"meshnode/{__version__}",
    }
    if body is not None:
        headers["Content-Type"] = "application/json"
    port = parts.port or (443 if parts.scheme == "https" else 80)
    connection = http.client.HTTPConnection(parts.hostname or "", port)
    with (
        _connected(parts, port, min(seconds, CONNECT_SECONDS)) as raw,
        _watchdog(raw, seconds) as late,
    ):
        try:
            connection.sock = _secured(raw, parts)
            connection.request("GET" if body is None else "POST", path, body, headers)
            response = connection.getresponse()
            answer = HttpAnswer(response.status, _read(response), _retry_after(response))
        except (OSError, http.client.HTTPException) as error:
            if late.is_set():
                raise GatewayUnavailable(f"no answer within {seconds:g} s from {url}") from None
            if isinstance(error, ssl.SSLCertVerificationError):
                raise NotReached(f"{parts.netloc}: {error.verify_message}") from None
            raise GatewayUnavailable(f"the connection to {url} broke: {_name(error)}") from None
        finally:
            connection.close()
    # To the library, headers that were cut off are complete, and a body without a length too.
    if late.is_set():
        raise GatewayUnavailable(f"no answer within {seconds:g} s from {url}")
    return answer


@contextmanager
def _connected(parts: SplitResult, port: int, seconds: float) -> Iterator[socket.socket]:
    try:
        raw = socket.create_connection((parts.hostname, port), timeout=seconds)
    except (OSError, UnicodeError) as error:
        raise NotReached(f"cannot reach {parts.netloc}: {_name(error)}") from None
    with raw:
        yield raw


@contextmanager
def _watchdog(raw: socket.socket, seconds: float) -> Iterator[threading.Event]:
    """Cut the connection after ``seconds``: a socket's own timeout starts anew with every byte."""
    late = threading.Event()
    # A descriptor of its own: TLS takes the first one over.
    with raw.dup() as handle:

        def cut() -> None:
            late.set()
            try:
                handle.shutdown(socket.SHUT_RDWR)
            except OSError:
                # Already closed by the other side; whoever reads notices by itself.
                return

        timer = threading.Timer(seconds, cut)
        timer.daemon = True
        timer.start()
        try:
            yield late
        finally:
            timer.cancel()
            # The handle stays open until nobody uses it.
            timer.join()


def _secured(raw: socket.socket, parts: SplitResult) -> socket.socket:
    # From here on the watchdog measures.
    raw.settimeout(None)
    if parts.scheme == "http":
        return raw
    return ssl.create_default_context().wrap_socket(raw, server_hostname=parts.hostname)


def _read(response: http.client.HTTPResponse) -> bytes:
    announced = response.length
    if announced is not None and announced > MAX_ANSWER:
        raise GatewayMisbehaves(f"an answer of {announced} bytes is too large")
    body = bytearray()
    while chunk := response.read1(_CHUNK):
        body += chunk
        if len(body) > MAX_ANSWER:
            raise GatewayMisbehaves(f"an answer of more than {MAX_ANSWER} bytes is too large")
    # read1 ends quietly when the connection does.
    if announced is not None and len(body) != announced:
        raise GatewayUnavailable("the connection broke in the middle of an answer")
    return bytes(body)


def _retry_after(response: http.client.HTTPResponse) -> int | None:
    text = response.headers.get("Retry-After", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 4 else None


def _name(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
