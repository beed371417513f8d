"""Which bodies of POST /inference the toy accepts."""

from typing import Any


def inference_fault(body: Any) -> str | None:
    """Return why a body is refused, or None."""
    if not isinstance(body, dict) or not isinstance(body.get("prompt"), str):
        return "prompt is not a string"
    whole = {"max_tokens", "top_k"}
    for key in ("max_tokens", "top_k", "temperature", "top_p"):
        value = body.get(key, 1)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return f"{key} is not a number"
        if key in whole and not float(value).is_integer():
            return f"{key} is not an integer"
    if body.get("max_tokens", 1) < 0:
        return "max_tokens is below 0"
    if not 0 <= body.get("temperature", 1) <= 2:
        return "temperature is out of range"
    if not isinstance(body.get("stream", False), bool):
        return "stream is not a boolean"
    stop = body.get("stop", [])
    if not isinstance(stop, list) or not all(isinstance(item, str) for item in stop):
        return "stop is not an array of strings"
    return None
