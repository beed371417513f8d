"""Refusals of the node API, reading of bodies, and the JSON of answers."""

import json
import math

from starlette.responses import Response

import core
import mutate
from core import fault, peculiar


class ApiError(Exception):
    def __init__(self, status, code, message, details=None, headers=None):
        super().__init__(message)
        self.status, self.code, self.message, self.details = status, code, message, details
        self.headers = headers or {}


def bad(message, field=None):
    code = "BAD_REQUEST" if not peculiar("bad-codes") else "E_SCHEMA"
    status = 422 if peculiar("bad-422") else 400
    details = {"field": field} if field else None
    return ApiError(status, code, message, details)


def dump(body, ascii_only=True):
    if peculiar("json-utf8"):
        return json.dumps(body, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
    if peculiar("json-indent"):
        return json.dumps(body, indent=2, sort_keys=True).encode()
    return json.dumps(body, allow_nan=fault("lim-nan-in-json"), separators=(",", ":")).encode()


def reply(route, body, status=200, headers=None):
    body = mutate.apply(route, body)
    media = "application/json"
    if peculiar("json-charset"):
        media = "application/json; charset=utf-8"
    if fault("rou-text-plain-metrics") and route == "metrics":
        media = "text/plain; version=0.0.4"
    data = dump(body)
    if fault("rou2-network-json-in-json") and route == "network":
        data = dump(data.decode())
    if fault("rou2-patch-204") and route == "patch":
        return Response(status_code=204)
    if fault("fld-duplicate-key-balance") and route == "balance":
        data = data[:-1] + b',"address":"' + str(body["address"]).encode() + b'"}'
    if fault("rou-bom-config") and route == "config":
        data = b"\xef\xbb\xbf" + data
    if fault("fld-nan-avg-latency") and route == "metrics":
        data = data.replace(b'"avg_latency_ms":', b'"avg_latency_ms":NaN,"_":', 1)
    return Response(data, status, headers=headers, media_type=media)


def error_reply(error):
    inner = {"code": error.code, "message": error.message}
    if error.details is not None:
        inner["details"] = error.details
    elif peculiar("empty-details-400") and error.status not in (401, 402, 429):
        inner["details"] = {}
    if peculiar("error-request-id"):
        inner["request_id"] = "rq-%d" % core.nth("rq")
    return reply("error", {"error": inner}, error.status, error.headers)


def _constant(name):
    raise ValueError("%s is not JSON" % name)


async def read_json(request):
    raw = await request.body()
    try:
        text = raw.decode("utf-8")
        return json.loads(text, parse_constant=_constant)
    except (ValueError, RecursionError):
        raise bad("the body is not JSON") from None


async def read_object(request):
    body = await read_json(request)
    if not isinstance(body, dict):
        raise bad("the body is not an object")
    return body


def is_number(value):
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return isinstance(value, int) or math.isfinite(value)


def is_int(value):
    return is_number(value) and (isinstance(value, int) or value == int(value))


def whole(params, name, default, least, most):
    """An integer query parameter."""
    text = params.get(name)
    if text is None:
        return default
    try:
        if not text.isascii() or len(text) > 18 or "_" in text or text != text.strip():
            raise ValueError
        value = int(text)
    except ValueError:
        raise bad("%s is not an integer" % name, name) from None
    if value < least:
        raise bad("%s is below %d" % (name, least), name)
    if value > most:
        if peculiar("limit-refused"):
            raise bad("%s is above %d" % (name, most), name)
        return most
    return value
