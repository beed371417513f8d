"""Plain requests, answered by the connection itself (interface 4.1; decision 0260).

Monitors and balancers ask for the node's state all day. Parser, stream, task, request context and
router cost several times as much as such an answer. A *plain request* is a GET of HTTP/1.1 that is
alone in what has been received, has no body, and whose headers are all known to change nothing
about how it is parsed or answered. A *prompt route* has a handler that neither waits nor looks at
the request. Where the two meet, everything else is left out.

Invariant: a client cannot tell the difference. Limits, log line, metrics, spans and errors are the
same; every other request, and whatever is malformed, goes the ordinary way as it came.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, cast

import trio
from quart.utils import encode_headers

from meshnode.http.exchange import Recorded, error_message, id_header, whole_body

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from hypercorn.typing import HTTPScope

    from meshnode.http.exchange import Headers, PromptRoute

MAX_BYTES = 2048
"""The longest request that is looked at; browsers' are about 600 bytes long."""
_HEADERS = (
    *("accept", "accept-encoding", "accept-language", "authorization", "cache-control"),
    *("host", "pragma", "traceparent", "tracestate", "user-agent", "x-real-ip"),
)
"""Of these, the transport looks at X-Real-IP and the tracer at its own two; all of them are passed
on. ``Origin`` is not here, because answers depend on it, nor what concerns bodies, connections and
conditions."""
_PLAIN = re.compile(
    rb"GET (/[A-Za-z0-9/_-]*) HTTP/1\.1\r\n"
    rb"((?:(?i:" + "|".join(_HEADERS).encode() + rb"):[ -~]*\r\n)+)\r\n"
)


class PlainRequest(NamedTuple):
    """What a plain request says."""

    path: str
    headers: Headers
    """Names in lower case."""


def plain_request(data: bytes) -> PlainRequest | None:
    """The request that ``data`` consists of; None if it is not a plain one."""
    if len(data) > MAX_BYTES or (found := _PLAIN.fullmatch(data)) is None:
        return None
    headers = []
    for line in found[2].split(b"\r\n")[:-1]:
        name, _, value = line.partition(b":")
        headers.append((name.lower(), value.strip()))
    if [name for name, _ in headers].count(b"host") != 1:
        return None
    return PlainRequest(found[1].decode("ascii"), headers)


async def prompt_answer(
    route: PromptRoute,
    client: tuple[str, int] | None,
    asked: Headers,
    more: Headers,
    send: Callable[[bytes], Awaitable[None]],
) -> None:
    """Answer a plain request for ``route`` with one send.

    ``client`` is who asks, and ``more`` are the headers that the server adds to every answer.
    """
    app = route.app
    with Recorded(app, "GET", asked) as record:
        try:
            app.admit(cast("HTTPScope", {"path": route.path, "client": client}))
            record.route = route.path
            response = await route.view()
            response.headers.update(app.standing_headers)
            status, body = response.status_code, whole_body(response) or b""
            headers = [*encode_headers(response.headers), id_header(record.id)]
        except Exception as error:  # noqa: BLE001 - a guard of the HTTP edge, as in the exchange
            failure = app.errors.failure(error, record.id)
            status = failure.status
            headers, body = error_message(app.errors, failure, record.id)
        record.status, record.answered = status, trio.current_time()
        lines = [b"HTTP/1.1 %d \r\n" % status]
        lines += [b"%b: %b\r\n" % line for line in (*headers, *more)]
        await send(b"".join((*lines, b"\r\n", body)))
        record.complete = True
