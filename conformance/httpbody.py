"""The body of an HTTP answer, read piece by piece, with what may go wrong with it."""

import http.client
import time

# No answer of a node API is longer; a mirror of model data may be, and is then cut off.
MAX_BODY_BYTES = 64 * 1024 * 1024
OK = 2


def read_body(
    response: http.client.HTTPResponse,
    body: bytearray,
    arrivals: list[float],
    began: float,
    timeout_s: float,
) -> str | None:
    """Read the body piece by piece; return what went wrong, or None."""
    # http.client takes the end of the connection for the end of the headers.
    if response.msg.defects:
        return "garbage: malformed headers"
    # Where nothing is announced, the end of the connection is that of the body, which may have
    # nothing. Only an answer that has to have something looks cut then.
    announced = response.length is not None or response.chunked or response.status // 100 != OK
    while True:
        piece = response.read1(64 * 1024)
        arrivals.append(time.monotonic() - began)
        body += piece
        if not piece:
            # http.client does not detect a truncated body when it is read in pieces.
            if response.length or not (body or announced):
                return "cut: the body ended too early"
            return None
        if len(body) > MAX_BODY_BYTES:
            return f"cut: longer than {MAX_BODY_BYTES} bytes"
        # The socket's time-out restarts with every piece, so a trickle would never end.
        if arrivals[-1] > timeout_s:
            return f"timeout: not finished after {timeout_s:g} s"
