"""Trace contexts in W3C's form, as they come in and as they are passed on (decision 0200).

A *trace context* says of which trace a request is a part: the trace's id, the id of the span that
caused the request, and whether the trace is recorded. The sender chooses all of it, so it is
untrusted: whatever does not have the form of the recommendation is ignored as a whole.

Invariant: what is passed on is never longer than ``MAX_STATE`` characters beside the ids.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

TRACEPARENT, TRACESTATE = "traceparent", "tracestate"
"""Headers of HTTP and metadata of gRPC."""
MAX_TRACEPARENT = 128
"""Characters. Version 00 has 55; a later one may have more fields behind them."""
MAX_STATE = 512
"""Characters. The recommendation asks for at least so many to be passed on."""
MAX_STATE_ENTRIES = 32
SAMPLED = 1

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_ENTRY = re.compile(r"[a-z0-9][a-z0-9_*/@-]{0,255}=[!-+\--<>-~ ]{0,255}[!-+\--<>-~]")


@dataclass(frozen=True, slots=True)
class TraceContext:
    """The span that caused a request."""

    trace_id: int
    """128 bits, not 0."""
    span_id: int
    """64 bits, not 0."""
    sampled: bool
    state: str = ""
    """What the tracing systems on the way have added, in the form of ``tracestate``."""

    def headers(self) -> dict[str, str]:
        """The headers, or metadata, by which the context is passed on."""
        flags = SAMPLED if self.sampled else 0
        headers = {TRACEPARENT: f"00-{self.trace_id:032x}-{self.span_id:016x}-{flags:02x}"}
        if self.state:
            headers[TRACESTATE] = self.state
        return headers


def read_context(headers: Mapping[str, str]) -> TraceContext | None:
    """The context in headers whose names are in lower case; None if there is no valid one."""
    text = headers.get(TRACEPARENT, "")
    match = _TRACEPARENT.fullmatch(text) if len(text) <= MAX_TRACEPARENT else None
    if match is None:
        return None
    version, trace, span, flags, more = match.groups()
    if version == "ff" or (version == "00" and more):
        return None
    trace_id, span_id = int(trace, 16), int(span, 16)
    if not trace_id or not span_id:
        return None
    state = read_state(headers.get(TRACESTATE, ""))
    return TraceContext(trace_id, span_id, bool(int(flags, 16) & SAMPLED), state)


def read_state(text: str) -> str:
    """A ``tracestate`` in its shortest form; empty if it is malformed or too long."""
    if len(text) > MAX_STATE:
        return ""
    entries = [entry for part in text.split(",") if (entry := part.strip(" \t"))]
    keys = {entry.partition("=")[0] for entry in entries}
    if len(entries) > MAX_STATE_ENTRIES or len(keys) != len(entries):
        return ""
    return ",".join(entries) if all(map(_ENTRY.fullmatch, entries)) else ""
