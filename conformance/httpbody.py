"""The body of an HTTP answer, read piece by piece, with what may go wrong with it."""

import http.client
import re
import socket
import time
from contextlib import suppress

# No answer of a node API is longer; a mirror of model data may be, and is then cut off.
MAX_BODY_BYTES = 64 * 1024 * 1024
OK = 2
# How it is reported that a stream goes on behind its final event, and what such an event has. For
# so long it may go on.
UNENDED = "timeout: not ended"
ENDS_S = 8.0
_FINAL = re.compile(rb'"finish_reason"\s*:\s*"|"usage"\s*:\s*\{|\[DONE\]')
_LAST_BYTES = 4096


def read_body(
    response: http.client.HTTPResponse,
    body: bytearray,
    arrivals: list[float],
    began: float,
    timeout_s: float,
    sock: socket.socket | None = None,
) -> str | None:
    """Read the body piece by piece; return what went wrong, or None.

    On the socket, a stream is not waited for as long as others are once it has its final event.
    """
    streams = response.headers.get_content_type() == "text/event-stream"
    over = False
    # http.client takes the end of the connection for the end of the headers.
    if response.msg.defects:
        return "garbage: malformed headers"
    # Where nothing is announced, the end of the connection is that of the body, which may have
    # nothing. Only an answer that has to have something looks cut then.
    announced = response.length is not None or response.chunked or response.status // 100 != OK
    while True:
        try:
            piece = response.read1(64 * 1024)
        except TimeoutError:
            if not over:
                raise
            return f"{UNENDED} {ENDS_S:g} s after its final event"
        arrivals.append(time.monotonic() - began)
        body += piece
        if not piece:
            if over and sock is not None:
                # The connection may be asked for more, or have been closed.
                with suppress(OSError):
                    sock.settimeout(timeout_s)
            # http.client does not detect a truncated body when it is read in pieces.
            if response.length or not (body or announced):
                return "cut: the body ended too early"
            return None
        if len(body) > MAX_BODY_BYTES:
            return f"cut: longer than {MAX_BODY_BYTES} bytes"
        if streams and sock is not None and _is_over(body) is not over:
            over = not over
            sock.settimeout(min(ENDS_S, timeout_s) if over else timeout_s)
        # The socket's time-out restarts with every piece, so a trickle would never end.
        if arrivals[-1] > timeout_s:
            return f"timeout: not finished after {timeout_s:g} s"


def _is_over(body: bytearray) -> bool:
    """Return whether the last event of a stream is complete, and a final one."""
    *_, last = bytes(body[-_LAST_BYTES:]).replace(b"\r\n", b"\n").rstrip(b"\n").split(b"\n\n")
    return body.endswith((b"\n\n", b"\r\n\r\n")) and _FINAL.search(last) is not None
