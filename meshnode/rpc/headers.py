"""Parsing of the header blocks of gRPC requests and responses (gRPC over HTTP/2).

purerpc's own parser raises on unexpected headers, which ends the connection and all its calls. Here
only the bad request is refused: with an HTTP status when the peer does not speak gRPC, with a gRPC
status when it does.

Invariant: parsing any list of pairs returns a head or a refusal and never raises.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from urllib.parse import unquote

from meshnode.rpc.errors import HTTP_STATUS_CODES, Code
from meshnode.rpc.metadata import received_metadata

Headers = Iterable[tuple[str, str]]

# Eight digits and a unit, by the gRPC protocol.
_TIMEOUT = re.compile(r"([0-9]{1,8})([HMSmun])")
_SECONDS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_PATH = re.compile(r"/([^/]+)/([^/]+)")
# The message format is always protobuf; "application/grpc-web" and "+json" are other protocols.
_CONTENT_TYPE = re.compile(r"application/grpc(\+proto)?(\s*;.*)?", re.IGNORECASE)
MAX_MICROSECONDS = 10**8
"""A timeout has at most eight digits, so longer ones are sent in a larger unit."""


@dataclass(frozen=True, slots=True)
class RequestHead:
    """The parsed header block of a request."""

    service: str
    method: str
    timeout_s: float | None
    encoding: str
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BadHead:
    """The refusal of a request before a handler sees it: an HTTP or a gRPC status."""

    http_status: int
    code: Code
    message: str
    headers: tuple[tuple[str, str], ...] = ()
    """Further headers of an HTTP status."""


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """The header block of a response that has messages."""

    encoding: str
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ResponseEnd:
    """The end of a call."""

    code: Code
    message: str
    metadata: Mapping[str, str] = field(default_factory=dict)


def parse_request(headers: Headers) -> RequestHead | BadHead:
    """Check the header block of a request. If a header is repeated, the first one counts."""
    fields = _first(headers)
    if fields.get(":method") != "POST":
        text = "" if fields.get(":method") == "HEAD" else "gRPC calls use POST"
        return BadHead(405, Code.UNKNOWN, text, (("allow", "POST"),))
    if not _CONTENT_TYPE.fullmatch(fields.get("content-type", "")):
        return BadHead(415, Code.UNKNOWN, "the content type of a call is application/grpc")
    path = _PATH.fullmatch(fields.get(":path", ""))
    if path is None:
        return BadHead(200, Code.UNIMPLEMENTED, "the path of a call is /service/operation")
    timeout_s = None
    if "grpc-timeout" in fields:
        timeout = _TIMEOUT.fullmatch(fields["grpc-timeout"])
        if timeout is None:
            return BadHead(200, Code.INVALID_ARGUMENT, "malformed grpc-timeout")
        timeout_s = int(timeout[1]) * _SECONDS[timeout[2]]
    encoding = fields.get("grpc-encoding", "identity")
    return RequestHead(path[1], path[2], timeout_s, encoding, received_metadata(fields.items()))


def parse_response(headers: Headers, *, ended: bool = False) -> ResponseHead | ResponseEnd:
    """Check the first header block of a response; ``ended`` when nothing follows it."""
    fields = _first(headers)
    status = fields.get(":status", "")
    if status != "200":
        code = HTTP_STATUS_CODES.get(int(status), Code.UNKNOWN) if _is_number(status) else None
        return ResponseEnd(code or Code.UNKNOWN, f"the peer answered with HTTP status {status}")
    if not fields.get("content-type", "").startswith("application/grpc"):
        return ResponseEnd(Code.UNKNOWN, "the peer's answer is not gRPC")
    if ended:
        return parse_trailers(fields.items())
    encoding = fields.get("grpc-encoding", "identity")
    return ResponseHead(encoding, received_metadata(fields.items()))


def parse_response_end(headers: Headers) -> ResponseHead | ResponseEnd:
    """Check the header block of a response that nothing follows."""
    return parse_response(headers, ended=True)


def parse_trailers(headers: Headers) -> ResponseEnd:
    """Read the status at the end of a call."""
    fields = _first(headers)
    status = fields.get("grpc-status", "")
    if not _is_number(status):
        return ResponseEnd(Code.UNKNOWN, "the peer's answer has no status")
    code = Code(int(status)) if int(status) in Code._value2member_map_ else Code.UNKNOWN
    # Undecodable bytes become replacement characters: a message must never fail a call.
    message = unquote(fields.get("grpc-message", ""), errors="replace")
    return ResponseEnd(code, message, received_metadata(fields.items()))


def sent_timeout(seconds: float) -> timedelta:
    """Round a timeout up to two digits for sending: never shorter, at most a tenth longer.

    Two digits are enough, since the caller enforces its own deadline. Header compression can reuse
    a rounded value, while exact microseconds would differ in every call. purerpc then writes at
    most eight digits, as the protocol requires.
    """
    # The time left is minus infinity for a caller that is being cancelled.
    microseconds = math.ceil(max(seconds, 1e-6) * 1e6)
    grain = 10 ** max(0, len(str(microseconds)) - 2)
    microseconds = -(-microseconds // grain) * grain
    if microseconds < MAX_MICROSECONDS:
        return timedelta(microseconds=microseconds)
    return timedelta(seconds=min(-(-microseconds // 1_000_000), 99_999_999))


def _first(headers: Headers) -> dict[str, str]:
    fields: dict[str, str] = {}
    for name, value in headers:
        fields.setdefault(name, value)
    return fields


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 4
