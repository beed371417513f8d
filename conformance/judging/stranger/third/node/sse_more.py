"""Faults of the order of a stream's events, and of a stream that fails."""

import json

from starlette.responses import Response

from core import fault


def failed(error):
    """A refusal that comes when the stream has begun already."""
    inner = {"code": error.code, "message": error.message, "details": error.details}
    return Response("data: %s\n\n" % json.dumps({"error": inner}), media_type="text/event-stream")


def reordered(out):
    """The token events as they are sent."""
    if fault("rou2-sse-index-swapped") and len(out) > 3:
        out[2], out[3] = out[3], out[2]
    if fault("eff2-stream-last-lost") and len(out) > 1:
        out.pop()
    if fault("eff2-stream-second-lost") and len(out) > 8:
        del out[7]
    return out


def ended(out):
    """All events, with the final one at the end."""
    if fault("rou2-sse-final-early") and len(out) > 1:
        out[-2:] = out[:-3:-1]
    if fault("rou2-sse-two-finals"):
        out.append(out[-1])
    return out
