"""Mutants of the rules about OpenAI's routes (interface 10), by short hooks.

Those of the fields are made from the catalogue, in `fields.py`.
"""

import time
from collections.abc import Callable
from typing import Any

from conformance.judging.hooks import Http, gone
from conformance.judging.toy.answers import Asked, Response

CHATS, TEXTS = "/v1/chat/completions", "/v1/completions"
PROMPTED = {"CHAT": CHATS, "TEXT": TEXTS}


def made(path: str, change: Callable[[Any, Any], object]) -> Http:
    """Change the answers that have texts; `change` gets the request body and the answer."""

    def hook(asked: Asked, response: Response) -> None:
        good = response.status == 200 and response.events is None and response.json
        if (asked.method, asked.path) == ("POST", path) and good:
            change(asked.body, response.json)

    return hook


def streamed(change: Callable[[Any, list[Any]], list[Any] | None]) -> Http:
    """Change the events of a stream; `change` gets the request body and returns the new ones."""

    def hook(asked: Asked, response: Response) -> None:
        if asked.path == CHATS and response.events is not None:
            response.events = change(asked.body, response.events) or response.events

    return hook


def chunks(change: Callable[[Any, dict[str, Any]], object]) -> Http:
    """Change each chunk of a stream."""
    return streamed(lambda body, events: [
        change(body, event) for event in events if isinstance(event, dict)] and None)  # fmt: skip


def models(change: Callable[[Any], object], *, path: str = "/v1/models") -> Http:
    """Change the answers about models."""

    def hook(asked: Asked, response: Response) -> None:
        if asked.path.startswith(path) and response.status == 200:
            change(response.json)

    return hook


def becoming(status: int, when: Callable[[Asked], bool], body: Any = None) -> Http:
    """Answer some requests with another status."""

    def hook(asked: Asked, response: Response) -> None:
        if when(asked):
            response.__dict__.update(status=status, events=None)
            response.json = response.json if body is None else body

    return hook


def accepting(when: Callable[[Any], bool]) -> Http:
    """Serve some of the chats that are to be refused."""

    def hook(asked: Asked, response: Response) -> None:
        if asked.path == CHATS and 400 <= response.status < 500 and when(asked.body):
            response.status, response.json = 200, {"choices": []}

    return hook


def choices(change: Callable[[Any], object]) -> Callable[[Any, Any], object]:
    """Change each choice of an answer or a chunk."""
    return lambda body, answer: [change(choice) for choice in answer["choices"]]


def _told(body: Any, answer: Any) -> None:
    for choice in answer["choices"]:
        holder = choice.get("message", choice)
        key = "content" if "message" in choice else "text"
        stop = body.get("stop") or ""
        holder[key] += stop if isinstance(stop, str) else stop[0]


def _more(tokens: int) -> Callable[[Any, Any], None]:
    def change(body: Any, answer: Any) -> None:
        for name in ("completion_tokens", "total_tokens"):
            answer["usage"][name] += tokens

    return change


def _fewer(body: Any, answer: Any) -> None:
    if answer["usage"]["completion_tokens"]:
        _more(-1)(body, answer)
    for choice in answer["choices"]:
        choice["finish_reason"] = "length"


def _stopped(body: Any, answer: Any) -> None:
    if body.get("stop"):
        choices(lambda choice: choice.update(finish_reason="content_filter"))(body, answer)


def _if(key: str, change: Callable[[Any, Any], object]) -> Callable[[Any, Any], object]:
    return lambda body, answer: key in body and change(body, answer)


def _of_both() -> list[tuple[str, Http]]:
    """Return the mutants that chats and completions have alike."""
    rows: list[tuple[str, Http]] = []
    for name, path in PROMPTED.items():
        changes: dict[int, Callable[[Any, Any], object]] = {
            101: lambda body, answer: answer.update(object="completion"),
            102: lambda body, answer: answer.update(id="always the same"),
            103: lambda body, answer: answer.update(created=int(time.time() * 1000)),
            104: lambda body, answer: answer.update(model=""),
            105: lambda body, answer: answer.update(choices=answer["choices"][:1] * 3),
            106: choices(lambda choice: choice.update(index=choice["index"] + 1)),
            107: choices(lambda choice: choice.update(finish_reason="eos")),
            108: _if("n", _more(99)),
            109: _fewer,
            110: _told,
            111: _stopped,
            112: lambda body, answer: answer["usage"].update(total_tokens=1),
        }
        rows += [(f"OA-{name}-{n}", made(path, change)) for n, change in changes.items()]
    return rows


_LAST = {"usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}
ROWS: list[tuple[str, Http]] = [
    ("OA-ROUTE-001", gone("/v1/models")),
    ("OA-ROUTE-002", models(lambda model: model.update(id="another"), path="/v1/models/")),
    ("OA-ROUTE-003", becoming(500, lambda asked: asked.path == CHATS and asked.body is not None)),
    ("OA-ROUTE-004", becoming(400, lambda asked: asked.path == TEXTS)),
    ("OA-MODEL-101", models(lambda listed: listed.update(object="array"), path="/v1/models")),
    ("OA-MODEL-102", models(lambda listed: listed.update(data=listed.get("data", []) * 2))),
    ("OA-MODEL-103", models(lambda listed: [
        model.update(created=int(time.time() * 1000)) for model in listed.get("data", ())])),
    ("OA-MODEL-104", becoming(
        400, lambda asked: asked.path.endswith("no-such-model-of-the-suite"))),
    ("OA-AUTH-001", becoming(
        403, lambda asked: asked.path == "/v1/models" and not asked.authorized)),
    *_of_both(),
    ("OA-CHAT-113", made(CHATS, choices(lambda choice: choice["message"].update(role="bot")))),
    ("OA-CHAT-114", made(CHATS, _if("max_completion_tokens", _more(99)))),
    ("OA-CHAT-115", made(CHATS, _if("logprobs", choices(
        lambda choice: choice.update(logprobs={"content": []}))))),
    ("OA-TEXT-113", made(TEXTS, lambda body, answer: "max_tokens" in body or _more(99)(
        body, answer))),
    ("OA-STREAM-001", becoming(
        200, lambda asked: asked.path == CHATS and bool((asked.body or {}).get("stream")), {})),
    ("OA-STREAM-002", streamed(lambda body, events: [*events[:-1], "END", "[DONE]"])),
    ("OA-STREAM-003", streamed(lambda body, events: events[:-1])),
    ("OA-STREAM-003", streamed(lambda body, events: [*events, events[-1]])),
    ("OA-STREAM-004", chunks(lambda body, chunk: chunk.update(object="chat.completion"))),
    ("OA-STREAM-005", chunks(lambda body, chunk: chunk.update(id="always the same"))),
    ("OA-STREAM-005", chunks(lambda body, chunk: chunk.update(id=str(time.monotonic_ns())))),
    ("OA-STREAM-006", chunks(lambda body, chunk: chunk.update(created=1))),
    ("OA-STREAM-007", chunks(lambda body, chunk: chunk.update(model=""))),
    ("OA-STREAM-008", chunks(choices(
        lambda choice: choice["delta"].update(content=["a", "list"])))),
    ("OA-STREAM-009", chunks(choices(lambda choice: choice.update(finish_reason=None)))),
    ("OA-STREAM-009", chunks(choices(lambda choice: choice.update(finish_reason="length")))),
    ("OA-STREAM-010", chunks(choices(lambda choice: choice.update(index=7)))),
    ("OA-STREAM-011", chunks(lambda body, chunk: "stream_options" in body or chunk.update(_LAST))),
    ("OA-STREAM-012", streamed(
        lambda body, events: [*events[:-2], "[DONE]"] if "usage" in events[0] else None)),
    ("OA-STREAM-013", chunks(
        lambda body, chunk: chunk.get("usage", 0) is None and chunk.pop("usage"))),
    ("OA-STREAM-014", chunks(lambda body, chunk: chunk.get("usage") and chunk["usage"].update(
        total_tokens=1))),
    ("OA-STREAM-015", chunks(choices(lambda choice: choice["delta"].pop("role", None)))),
    ("OA-STREAM-016", chunks(choices(lambda choice: choice["delta"].pop("content", None)))),
    ("OA-REFUSE-001", accepting(lambda body: isinstance(body, dict) and "messages" not in body)),
    ("OA-REFUSE-002", accepting(lambda body: isinstance(body, dict) and "model" not in body)),
    ("OA-REFUSE-003", accepting(lambda body: isinstance(body, dict) and body.get("n") == 0)),
    ("OA-REFUSE-004", accepting(
        lambda body: isinstance(body, dict) and body.get("messages") == "Hello")),
    ("OA-REFUSE-005", accepting(lambda body: body is None)),
    ("OA-REFUSE-006", accepting(
        lambda body: isinstance(body, dict) and body.get("model") == "no-such-model-of-the-suite")),
]  # fmt: skip
# What the same answers violate too.
TOGETHER = {
    "OA-STREAM-008": {"OA-STREAM-016"},
    "OA-STREAM-010": {"OA-STREAM-009"},
    **{f"OA-{name}-105": {f"OA-{name}-106"} for name in PROMPTED},
    **{f"OA-{name}-107": {f"OA-{name}-111"} for name in PROMPTED},
    **{f"OA-{name}-109": {f"OA-{name}-111", "OA-MIX-007"} for name in PROMPTED},
    # A stream without text has not all of it.
    "OA-STREAM-016": {"OA-MIX-005"},
}
