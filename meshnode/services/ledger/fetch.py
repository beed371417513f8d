"""One HTTP exchange with another node, bounded in bytes; the caller sets the deadline.

A connection serves one request. There are no redirects, no cookies and no compression, so the limit
on received bytes is also the limit on content.
"""

from __future__ import annotations

import ssl
from urllib.parse import urlsplit

import h11
import trio

from meshnode.domain.addresses import DEFAULT_PORT
from meshnode.domain.errors import RateLimited, Unavailable

CHUNK = 65_536
MAX_HEADER_BYTES = 32_768
MAX_SECOND_DIGITS = 9
"""How many digits of a Retry-After value are read; nine already allow thirty years."""


class AnswerTooLarge(Unavailable):
    """The answer is larger than any valid one."""


async def fetch(
    url: str,
    path: str,
    *,
    body: bytes | None = None,
    most_bytes: int,
    authorities: str = "",
) -> tuple[int, bytes]:
    """GET, or POST if there is a JSON ``body``. Returns the status and the answer's content.

    ``url`` is ``http[s]://HOST[:PORT]``; ``authorities`` is a PEM file of those who sign its
    certificate, unless the system knows them. Raises Unavailable when there is no valid HTTP
    answer, AnswerTooLarge above ``most_bytes``, RateLimited for a 429. The caller sets the
    deadline.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        secure = parts.scheme == "https"
        context = ssl.create_default_context(cafile=authorities or None) if secure else None
        stream = await _connect(host, parts.port, context)
        async with stream:
            return await _exchange(stream, _request(parts.netloc, path, body), body, most_bytes)
    except (OSError, trio.BrokenResourceError, ssl.SSLError) as error:
        raise Unavailable(f"no connection ({type(error).__name__})") from error
    except h11.RemoteProtocolError as error:
        raise Unavailable("the answer is not HTTP") from error


async def _connect(host: str, port: int | None, context: ssl.SSLContext | None) -> trio.abc.Stream:
    stream = await trio.open_tcp_stream(host, port or DEFAULT_PORT)
    if context is None:
        return stream
    return trio.SSLStream(stream, context, server_hostname=host, https_compatible=True)


def _request(authority: str, path: str, body: bytes | None) -> h11.Request:
    headers = [("Host", authority), ("Accept", "application/json"), ("Connection", "close")]
    if body is not None:
        headers += [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    return h11.Request(method="GET" if body is None else "POST", target=path, headers=headers)


async def _exchange(
    stream: trio.abc.Stream, request: h11.Request, body: bytes | None, most_bytes: int
) -> tuple[int, bytes]:
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEADER_BYTES)
    out = connection.send(request) or b""
    if body is not None:
        out += connection.send(h11.Data(data=body)) or b""
    await stream.send_all(out + (connection.send(h11.EndOfMessage()) or b""))
    status, retry_after, content = 0, "", bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(bytes(await stream.receive_some(CHUNK)))
        elif isinstance(event, h11.Response):
            status = event.status_code
            retry_after = dict(event.headers).get(b"retry-after", b"").decode("ascii", "replace")
        elif isinstance(event, h11.Data):
            content += event.data
            if len(content) > most_bytes:
                raise AnswerTooLarge("the answer is too large")
        elif isinstance(event, h11.EndOfMessage):
            break
    if status == 429:
        seconds = retry_after[:MAX_SECOND_DIGITS]
        raise RateLimited(int(seconds) if retry_after.isdecimal() else 2)
    return status, bytes(content)
