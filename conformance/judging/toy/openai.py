"""The toy's routes below /v1: a model that says the same words to everybody (interface 10)."""

import time
import uuid
from typing import Any

from conformance.judging.toy.answers import Asked, Response

MODEL = "toy"
CREATED = 1_700_000_000
WORDS = ("She", "went", "into", "the", "garden", "and", "found", "a", "small", "red", "fox.")
RANGES = {
    "temperature": (0, 2), "top_p": (0, 1), "n": (1, 128), "presence_penalty": (-2, 2),
    "frequency_penalty": (-2, 2), "max_tokens": (1, 4096), "max_completion_tokens": (1, 4096),
}  # fmt: skip
WHOLE = frozenset({"n", "max_tokens", "max_completion_tokens"})


def refused(status: int, message: str, param: str | None = None) -> Response:
    """Make an error body of OpenAI's form."""
    error = {"message": message, "type": "invalid_request_error", "param": param, "code": None}
    return Response(status, {"error": error})


def answer(asked: Asked) -> Response:
    """Answer one request below /v1."""
    if not asked.authorized:
        return refused(401, "the key is not valid")
    path = asked.path.removeprefix("/v1")
    if asked.method == "GET" and path == "/models":
        return Response(json={"object": "list", "data": [_model()]})
    if asked.method == "GET" and path == f"/models/{MODEL}":
        return Response(json=_model())
    if path in ("/chat/completions", "/completions"):
        if asked.method != "POST":
            return refused(405, "this route takes POST")
        body = asked.body
        if isinstance(body, dict):
            # A parameter that is null is one that is left out.
            body = {key: value for key, value in body.items() if value is not None}
        fault = _fault(body, "messages" if path.startswith("/chat") else "prompt")
        return fault or _made(body, chat=path.startswith("/chat"))
    return refused(404, "no such model or path")


def _model() -> dict[str, Any]:
    return {"id": MODEL, "object": "model", "created": CREATED, "owned_by": "nobody"}


def _fault(body: Any, asked: str) -> Response | None:
    if not isinstance(body, dict) or not isinstance(body.get("model"), str):
        return refused(400, "model is required", "model")
    given = body.get(asked)
    if asked == "messages":
        good = isinstance(given, list) and given and all(isinstance(m, dict) for m in given)
    else:
        good = isinstance(given, str)
    if not good:
        return refused(400, f"{asked} is missing or of the wrong type", asked)
    if body["model"] != MODEL:
        return refused(404, "no such model", "model")
    for key, (low, high) in RANGES.items():
        value = body.get(key, low)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return refused(400, f"{key} is not a number", key)
        if key in WHOLE and not float(value).is_integer():
            return refused(400, f"{key} is not an integer", key)
        if not low <= value <= high:
            return refused(400, f"{key} is out of range", key)
    if not isinstance(body.get("stream", False), bool):
        return refused(400, "stream is not a boolean", "stream")
    stops = body.get("stop", [])
    if not isinstance(stops, str | list) or not all(isinstance(stop, str) for stop in stops):
        return refused(400, "stop is neither a string nor an array of strings", "stop")
    return None


def _made(body: dict[str, Any], *, chat: bool) -> Response:
    limit = int(body.get("max_tokens", body.get("max_completion_tokens", 16)))
    words = WORDS[:limit]
    text = " ".join(words)
    stops = body.get("stop", [])
    cut = text
    for stop in [stops] if isinstance(stops, str) else stops:
        cut = cut.partition(stop)[0]
    count = len(cut.split()) if cut != text else len(words)
    reason = "stop" if cut != text or limit > len(WORDS) else "length"
    n = int(body.get("n", 1))
    shown = " ".join(m["content"] for m in body["messages"]) if chat else body["prompt"]
    usage = {"prompt_tokens": len(shown.split()), "completion_tokens": count * n}
    usage["total_tokens"] = sum(usage.values())
    heading = {
        "id": uuid.uuid4().hex,
        "object": "chat.completion" if chat else "text_completion",
        "created": int(time.time()),
        "model": MODEL,
    }
    if body.get("stream"):
        events = _chunks if chat else _completions
        return Response(events=events(heading, cut, reason, n, usage, body))
    choices = [_choice(index, cut, reason, body, chat=chat) for index in range(n)]
    return Response(json={**heading, "choices": choices, "usage": usage})


def _choice(
    index: int, text: str, reason: str, body: dict[str, Any], *, chat: bool
) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": index, "finish_reason": reason, "logprobs": None}
    if not chat:
        return {**choice, "text": text}
    if body.get("logprobs"):
        word: dict[str, Any] = {"logprob": -0.5, "bytes": None, "top_logprobs": []}
        choice["logprobs"] = {"content": [{"token": token, **word} for token in text.split()]}
    return {**choice, "message": {"role": "assistant", "content": text, "refusal": None}}


def _pieces(text: str) -> list[str]:
    """Cut a text before its spaces."""
    first, *others = text.split(" ")
    return [piece for piece in (first, *(f" {word}" for word in others)) if piece]


def _with_usage(body: dict[str, Any]) -> bool:
    return bool((body.get("stream_options") or {}).get("include_usage"))


def _chunks(
    heading: dict[str, Any], text: str, reason: str, n: int, usage: Any, body: dict[str, Any]
) -> list[Any]:
    deltas: list[tuple[dict[str, Any], str | None]] = [({"role": "assistant", "content": ""}, None)]
    deltas += [({"content": piece}, None) for piece in _pieces(text)]
    deltas.append(({}, reason))
    heading = {**heading, "object": "chat.completion.chunk"}
    shown = [
        {"index": index, "delta": dict(delta), "finish_reason": ends}
        for delta, ends in deltas
        for index in range(n)
    ]
    return _events(heading, shown, usage if _with_usage(body) else None)


def _completions(
    heading: dict[str, Any], text: str, reason: str, n: int, usage: Any, body: dict[str, Any]
) -> list[Any]:
    pieces: list[tuple[str, str | None]] = [(piece, None) for piece in _pieces(text)]
    shown = [
        {"index": index, "text": piece, "logprobs": None, "finish_reason": ends}
        for piece, ends in [*pieces, ("", reason)]
        for index in range(n)
    ]
    return _events(heading, shown, usage if _with_usage(body) else None)


def _events(heading: dict[str, Any], choices: list[Any], usage: Any) -> list[Any]:
    extra = {"usage": None} if usage else {}
    events = [{**heading, "choices": [choice], **extra} for choice in choices]
    if usage:
        events.append({**heading, "choices": [], "usage": usage})
    return [*events, "[DONE]"]
