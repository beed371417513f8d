"""Plain requests, answered by the connection itself (interface 4.1 and 4.2; decision 0260).

Monitors and balancers ask for the node's state all day, and wallets send transfers. Parser, stream,
tasks, request context and router cost several times as much as such an answer. A *plain request* is
a GET or POST of HTTP/1.1 that is alone in what has been received, and whose headers are all known
to change nothing about how it is parsed or answered. A *prompt route* has a view that needs no more
than who asks and the body, and does not wait for long. Where the two meet, everything else is left
out.

Invariant: a client cannot tell the difference. Limits, log line, metrics, spans and errors are the
same; every other request, and whatever is malformed, goes the ordinary way as it came.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, cast

import trio
from quart.utils import encode_headers
from werkzeug.datastructures import Headers as TextHeaders

from meshnode.http.asked import Asked
from meshnode.http.exchange import Recorded, error_message, id_header, whole_body

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from hypercorn.typing import HTTPScope

    from meshnode.http.exchange import Headers, PromptRoute

MAX_BYTES = 2048
"""The longest head that is looked at; browsers' are about 600 bytes long."""
MAX_BODY_BYTES = 16_384
"""The longest body; a signed transfer has about 600 bytes."""
_HEADERS = (
    *("accept", "accept-encoding", "accept-language", "authorization", "cache-control"),
    *("content-length", "content-type", "host", "pragma", "traceparent", "tracestate"),
    *("user-agent", "x-real-ip"),
)
"""Of these, views look at Host, Content-Type and X-Real-IP, and the tracer at its own two; all of
them are passed on. ``Origin`` is not here, because answers depend on it, nor what concerns codings,
connections and conditions."""
_PLAIN = re.compile(
    rb"(GET|POST) (/[A-Za-z0-9/_-]*) HTTP/1\.1\r\n"
    rb"((?:(?i:" + "|".join(_HEADERS).encode() + rb"):[ -~]*\r\n|(?i:connection: keep-alive)\r\n)+)"
    rb"\r\n"
)
_ONCE = (b"host", b"content-length", b"content-type")
_LENGTH = re.compile(rb"0|[1-9][0-9]{0,4}")


class PlainRequest(NamedTuple):
    """What a plain request says."""

    method: str
    path: str
    headers: Headers
    """Names in lower case."""
    body: bytes
    missing: int
    """How many bytes of the body have not come yet."""


def plain_request(data: bytes) -> PlainRequest | None:
    """The request that ``data`` consists of or begins; None if it is not a plain one."""
    if len(data) > MAX_BYTES + MAX_BODY_BYTES:
        return None
    if (found := _PLAIN.match(data)) is None or found.end() > MAX_BYTES:
        return None
    headers = []
    for line in found[3].split(b"\r\n")[:-1]:
        name, _, value = line.partition(b":")
        headers.append((name.lower(), value.strip()))
    names = [name for name, _ in headers]
    if b"host" not in names or any(names.count(name) > 1 for name in _ONCE):
        return None
    length = dict(headers).get(b"content-length")
    # A POST says how long its body is, and a GET has none.
    if (length is None) != (found[1] == b"GET"):
        return None
    if length is not None and not _LENGTH.fullmatch(length):
        return None
    body = data[found.end() :]
    missing = int(length or b"0") - len(body)
    if missing < 0 or missing + len(body) > MAX_BODY_BYTES:
        return None
    return PlainRequest(found[1].decode(), found[2].decode(), headers, body, missing)


async def prompt_answer(
    route: PromptRoute,
    client: tuple[str, int] | None,
    plain: PlainRequest,
    more: Headers,
    send: Callable[[bytes], Awaitable[None]],
) -> None:
    """Answer a plain request for ``route`` with one send.

    ``client`` is who asks, and ``more`` are the headers that the server adds to every answer.
    """
    app = route.app
    with Recorded(app, route.method, plain.headers) as record:
        try:
            scope = {"method": route.method, "path": route.path, "client": client}
            app.admit(cast("HTTPScope", scope))
            record.route = route.path
            texts = TextHeaders([(name.decode(), text.decode()) for name, text in plain.headers])
            response = await route.view.answer(Asked(client, texts), plain.body)
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
