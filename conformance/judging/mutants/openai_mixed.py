"""Mutants of OpenAI's routes that show only where parameters meet; see `followed.py`.

Each breaks a sentence for some choices, some lengths, some routes or the next request only. The
faults of a fourth stranger's node have shown most of them.
"""

import hashlib
import json
from collections.abc import Callable
from typing import Any

from conformance.judging.hooks import Http
from conformance.judging.mutants.openai import CHATS, TEXTS, made, streamed
from conformance.judging.toy.answers import Asked, Response
from conformance.judging.toy.openai import MODEL, WORDS

SHORTER = 64


def in_pieces(path: str, change: Callable[[Any, list[Any]], list[Any] | None]) -> Http:
    """Change the events of a stream of this route; `change` may return the new ones."""

    def hook(asked: Asked, response: Response) -> None:
        if asked.path == path and response.events is not None:
            response.events = change(asked.body, response.events) or response.events

    return hook


def serving(when: Callable[[Asked], bool]) -> Http:
    """Serve some of the requests that are to be refused."""

    def hook(asked: Asked, response: Response) -> None:
        if asked.path in (CHATS, TEXTS) and 400 <= response.status < 500 and when(asked):
            response.__dict__.update(Response(200, {"choices": []}).__dict__)

    return hook


def refused_without(key: str, when: Callable[[Asked, Response], bool]) -> Http:
    """Leave a member out of the error of some refusals."""

    def hook(asked: Asked, response: Response) -> None:
        if asked.path.startswith("/v1/") and when(asked, response):
            response.json["error"].pop(key)

    return hook


def body_of(asked: Asked) -> dict[str, Any]:
    """Return the object that was sent, if it is one."""
    return asked.body if isinstance(asked.body, dict) else {}


def stops_of(body: Any) -> list[str]:
    """Return the stop sequences of a request."""
    given = body.get("stop") or []
    return [given] if isinstance(given, str) else given


def text_of(choice: Any) -> str:
    """Return the text of a choice."""
    return str(choice["message"]["content"] if "message" in choice else choice["text"])


def say(choice: Any, text: Any) -> None:
    """Give a choice another text."""
    if "message" in choice:
        choice["message"]["content"] = text
    else:
        choice["text"] = text


def first_choice_only(body: Any, answer: Any) -> None:
    """Let stop sequences end the first choice only."""
    for choice in answer["choices"][1:]:
        say(choice, " ".join(WORDS[: body.get("max_tokens")]))


def goes_on(body: Any, answer: Any) -> None:
    """Take a stop sequence out of the text, and go on."""
    for choice in answer["choices"]:
        if text_of(choice) != " ".join(WORDS[: body.get("max_tokens")]):
            say(choice, f"{text_of(choice)}###")


def any_case(body: Any, answer: Any) -> None:
    """Look for stop sequences without regard to capitals."""
    for choice in answer["choices"]:
        text = text_of(choice)
        places = [text.lower().find(stop.lower()) for stop in stops_of(body)]
        say(choice, text[: min([at for at in places if at >= 0], default=len(text))])


class Kept:
    """A server whose next text ends where a stop sequence has ended the one before."""

    def __init__(self) -> None:
        self.end: int | None = None

    def __call__(self, body: Any, answer: Any) -> None:
        """Remember where a text has ended, once."""
        if body.get("stop"):
            self.end = len(text_of(answer["choices"][0]))
        elif self.end is not None:
            for choice in answer["choices"]:
                say(choice, text_of(choice)[: self.end])
            self.end = None


def null_when_empty(body: Any, answer: Any) -> None:
    """Have null for an empty text."""
    for choice in answer["choices"]:
        say(choice, text_of(choice) or None)


def read_for_each(body: Any, answer: Any) -> None:
    """Count the prompt once for each choice."""
    usage = answer["usage"]
    usage["prompt_tokens"] *= body.get("n") or 1
    usage["total_tokens"] = usage["prompt_tokens"] + usage["completion_tokens"]


def named_by_body(body: Any, answer: Any) -> None:
    """Make the id of the body alone."""
    answer["id"] = hashlib.sha256(json.dumps(body).encode()).hexdigest()


def cut_short(asked: Asked, response: Response) -> None:
    """End longer texts after 64 tokens, as if this were the maximum."""
    if asked.path != TEXTS or response.status != 200:
        return
    if (body_of(asked).get("max_tokens") or 0) <= SHORTER:
        return
    answers = [response.json] if response.events is None else response.events[:-1]
    for answer in answers:
        usage = answer.get("usage")
        if usage:
            usage.update(completion_tokens=SHORTER, total_tokens=usage["prompt_tokens"] + SHORTER)
        for choice in answer["choices"]:
            choice["finish_reason"] = choice["finish_reason"] and "length"


def counted_less(body: Any, events: list[Any]) -> None:
    """Leave a token out of the usage of a stream."""
    usage = events[-2].get("usage")
    if usage and usage["completion_tokens"]:
        usage["completion_tokens"] -= 1
        usage["total_tokens"] -= 1


def one_piece_less(body: Any, events: list[Any]) -> list[Any]:
    """Lose the last piece of a stream that has many."""
    said = [
        at
        for at, event in enumerate(events)
        if isinstance(event, dict)
        for choice in event["choices"]
        if choice.get("text") or choice.get("delta", {}).get("content")
    ]
    return events[: said[-1]] + events[said[-1] + 1 :] if len(said) > 8 else events


def of_another_kind(body: Any, events: list[Any]) -> None:
    """Begin a stream with other letters."""
    for event in events:
        for choice in event["choices"] if isinstance(event, dict) else ():
            if text := choice.get("delta", {}).get("content"):
                choice["delta"]["content"] = "#" * len(text)
                return


def late(body: Any, events: list[Any]) -> None:
    """Say with the first piece of each choice already why it ends."""
    listed = [event["choices"] for event in events if isinstance(event, dict)]
    chosen = [choice for choices in listed for choice in choices]
    for index in {choice["index"] for choice in chosen}:
        own = [choice for choice in chosen if choice["index"] == index]
        reason, own[-1]["finish_reason"] = own[-1]["finish_reason"], None
        own[0]["finish_reason"] = reason


def told_at_the_end(body: Any, events: list[Any]) -> list[Any] | None:
    """Send the stop sequence as well, before the end of a stream."""
    stops = stops_of(body)
    if not stops:
        return None
    first = events[0]
    choice = {"index": 0, "delta": {"content": stops[0]}, "finish_reason": None}
    return [first, {**first, "choices": [choice]}, *events[1:]]


def refused_nulls(asked: Asked, response: Response) -> None:
    """Refuse a parameter that is null."""
    if asked.path == CHATS and None in body_of(asked).values() and response.status == 200:
        error = {"message": "n", "type": "invalid_request_error", "param": "n", "code": None}
        response.__dict__.update(Response(400, {"error": error}).__dict__)


def refused_defaults(asked: Asked, response: Response) -> None:
    """Refuse a penalty of nothing."""
    if asked.path == CHATS and body_of(asked).get("presence_penalty") == 0:
        error = {"message": "0", "type": "invalid_request_error", "param": None, "code": None}
        response.__dict__.update(Response(400, {"error": error}).__dict__)


def only_the_last(body: Any, answer: Any) -> None:
    """Count the last message only."""
    usage = answer["usage"]
    usage["prompt_tokens"] = len(body["messages"][-1]["content"].split())
    usage["total_tokens"] = usage["prompt_tokens"] + usage["completion_tokens"]


def read_from_the_end(body: Any, answer: Any) -> None:
    """Say something about the last of several messages only."""
    for choice in answer["choices"] if len(body["messages"]) > 1 else ():
        said = body["messages"][-1]["content"].split()[: body.get("max_tokens")]
        say(choice, " ".join(said))


class Renamed:
    """Names another model from the second chat on."""

    def __init__(self) -> None:
        self.answers = 0

    def __call__(self, body: Any, answer: Any) -> None:
        """Count the answers."""
        self.answers += 1
        answer["model"] = answer["model"] if self.answers == 1 else "another-name"


def of_its_own_time(asked: Asked, response: Response) -> None:
    """Have another time for a model that is read by itself."""
    if asked.path == f"/v1/models/{MODEL}" and response.status == 200:
        response.json["created"] += 1


def many_in_streams(body: Any, events: list[Any]) -> None:
    """Count more tokens than the maximum by its newer name allows."""
    usage = events[-2].get("usage")
    if usage and "max_completion_tokens" in body:
        usage["completion_tokens"] += 99
        usage["total_tokens"] += 99


def shown_to_strangers(asked: Asked, response: Response) -> None:
    """Show one model to whoever asks."""
    if asked.path == f"/v1/models/{MODEL}" and response.status == 401:
        response.__dict__.update(Response(200, {"id": MODEL}).__dict__)


def listed_for_strangers(asked: Asked, response: Response) -> None:
    """Show the list of models to whoever asks."""
    if asked.path == "/v1/models" and response.status == 401:
        model = {"id": MODEL, "object": "model", "created": 1_700_000_000, "owned_by": "toy"}
        response.__dict__.update(Response(200, {"object": "list", "data": [model]}).__dict__)


def _is_text(asked: Asked) -> bool:
    return asked.path == TEXTS and asked.authorized


HTTP: list[tuple[str, Http]] = [
    ("OA-MIX-001", in_pieces(TEXTS, lambda body, events: events[:-1])),
    ("OA-MIX-002", in_pieces(TEXTS, lambda body, events: [
        {**event, "object": "text_completion.chunk"} if isinstance(event, dict) else event
        for event in events])),
    ("OA-MIX-003", in_pieces(TEXTS, lambda body, events: [
        event for event in events if isinstance(event, str) or not event["choices"]
        or event["choices"][0]["index"] == 0])),
    ("OA-MIX-004", in_pieces(TEXTS, late)),
    ("OA-MIX-005", in_pieces(TEXTS, one_piece_less)),
    ("OA-MIX-005", streamed(one_piece_less)),
    ("OA-MIX-006", made(CHATS, read_for_each)),
    ("OA-MIX-007", streamed(counted_less)),
    ("OA-MIX-007", in_pieces(TEXTS, counted_less)),
    ("OA-MIX-008", made(CHATS, goes_on)),
    ("OA-MIX-009", made(TEXTS, any_case)),
    ("OA-MIX-010", made(CHATS, Kept())),
    ("OA-MIX-011", refused_nulls),
    ("OA-MIX-012", refused_defaults),
    ("OA-MIX-013", made(CHATS, only_the_last)),
    ("OA-MIX-016", made(CHATS, read_from_the_end)),
    ("OA-MIX-014", made(CHATS, Renamed())),
    ("OA-MIX-015", streamed(of_another_kind)),
    ("OA-MODEL-105", of_its_own_time),
    ("OA-CHAT-114", streamed(many_in_streams)),
    ("OA-CHAT-102", made(CHATS, named_by_body)),
    ("OA-CHAT-110", made(CHATS, first_choice_only)),
    ("OA-CHAT-110", streamed(told_at_the_end)),
    ("OA-TEXT-018", made(TEXTS, null_when_empty)),
    ("OA-TEXT-109", cut_short),
    ("OA-AUTH-003", shown_to_strangers),
    ("OA-AUTH-004", listed_for_strangers),
    ("OA-ERROR-005", refused_without("type", lambda asked, response: (
        response.status == 404 and asked.method == "GET"))),
    ("OA-ERROR-007", refused_without("param", lambda asked, response: response.status == 401)),
    ("OA-REFUSE-008", serving(lambda asked: (
        _is_text(asked) and bool(body_of(asked)) and "model" not in body_of(asked)
        and not body_of(asked).get("stream")))),
    ("OA-REFUSE-009", serving(lambda asked: _is_text(asked) and body_of(asked).get("n") == 0
        and not body_of(asked).get("stream"))),
    ("OA-REFUSE-010", serving(lambda asked: _is_text(asked) and asked.body is None)),
    ("OA-REFUSE-011", serving(lambda asked: asked.authorized
        and body_of(asked).get("stream") is True and "model" not in body_of(asked))),
    ("OA-REFUSE-012", serving(lambda asked: _is_text(asked)
        and body_of(asked).get("model", MODEL) != MODEL)),
    ("OA-REFUSE-013", serving(lambda asked: body_of(asked).get("messages") == []
        and not body_of(asked).get("stream"))),
]  # fmt: skip
