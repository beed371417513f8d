"""Short hooks for the toy: each changes one thing in its answers."""

import json
from collections.abc import Callable
from typing import Any

from conformance import messages
from conformance.judging.toy.answers import Asked, Response, data_of, error

Http = Callable[[Asked, Response], None]
Grpc = Callable[[str, Any, Any], Any]

INFERENCE = "/api/v1/inference"
CONFIG = "/api/v1/config"
HEALTH = "/api/v1/health"


def on(
    path: str, change: Callable[[Response], object], method: str = "GET", status: int = 200
) -> Http:
    """Change the answers of one route that have this status."""

    def hook(asked: Asked, response: Response) -> None:
        if (asked.method, asked.path, response.status) == (method, path, status):
            change(response)

    return hook


def put(key: str, value: Any) -> Callable[[Response], None]:
    """Set one value of a JSON answer, by its dotted path."""

    def change(response: Response) -> None:
        *steps, last = key.split(".")
        inner = response.json
        for step in steps:
            inner = inner[step]
        inner[last] = value

    return change


def gone(path: str, method: str = "GET") -> Http:
    """Remove a route."""

    def hook(asked: Asked, response: Response) -> None:
        if (asked.method, asked.path) == (method, path):
            response.__dict__.update(error(404, "NOT_FOUND", "no such path").__dict__)

    return hook


def refusal(change: Callable[[dict[str, Any]], None]) -> Http:
    """Change the body of every 401."""

    def hook(asked: Asked, response: Response) -> None:
        if response.status == 401:
            change(response.json)

    return hook


def letting_in(method: str, path: str) -> Http:
    """Accept every token on one route."""

    def hook(asked: Asked, response: Response) -> None:
        if (asked.method, asked.path, response.status) == (method, path, 401):
            response.status, response.json = 200, {}

    return hook


def events(change: Callable[[list[Any]], list[Any]]) -> Http:
    """Change the list of events of an inference; streams of OpenAI's form stay as they are."""

    def hook(asked: Asked, response: Response) -> None:
        if asked.path == INFERENCE and response.events is not None:
            response.events = change(response.events)

    return hook


def inference(change: Callable[[Any, Response], object], *, stream: bool = False) -> Http:
    """Change the answers to valid inference bodies; `change` also gets the body."""

    def hook(asked: Asked, response: Response) -> None:
        if asked.path != INFERENCE or asked.method != "POST" or response.status != 200:
            return
        if (response.events is not None) == stream:
            change(asked.body, response)

    return hook


def refusing(when: Callable[[Any], bool]) -> Http:
    """Refuse some of the valid inference bodies."""

    def hook(asked: Asked, response: Response) -> None:
        if asked.path == INFERENCE and response.status == 200 and when(asked.body):
            response.__dict__.update(error(400, "INVALID_REQUEST", "not accepted").__dict__)

    return hook


def serving(when: Callable[[Any], bool]) -> Http:
    """Serve some of the invalid inference bodies."""

    def hook(asked: Asked, response: Response) -> None:
        if asked.path == INFERENCE and response.status == 400 and when(asked.body):
            response.status, response.json = 200, {"text": "well"}

    return hook


def reindexed(values: list[Any], indices: Callable[[int], int]) -> list[Any]:
    """Give the token events new indices."""
    tokens = [{**value, "index": indices(i)} for i, value in enumerate(values[:-1])]
    return [*tokens, values[-1]]


def raw_events(frame: str, old: str = "", new: str = "") -> Http:
    """Frame the events with `frame`, in which `{}` is the data, and replace text in them."""

    def hook(asked: Asked, response: Response) -> None:
        if response.events is not None:
            text = "".join(frame.replace("{}", data_of(event)) for event in response.events)
            response.raw = (text.replace(old, new) if old else text).encode()
            response.headers = {"Content-Type": "text/event-stream"}

    return hook


def unended(asked: Asked, response: Response) -> None:
    """Frame the events as documented, but without a blank line after the last one."""
    if response.events is not None:
        frames = [f"data: {data_of(event)}\n" for event in response.events]
        response.raw = "\n".join(frames).encode()
        response.headers = {"Content-Type": "text/event-stream"}


def overrun(body: Any, response: Response) -> None:
    """Report one token more than requested; the text stays as it is."""
    many = body.get("max_tokens", 100) + 1
    shown = response.events[-1] if response.events is not None else response.json
    read = shown["usage"]["prompt_tokens"]
    usage = {"prompt_tokens": read, "completion_tokens": many, "total_tokens": many + read}
    if response.events is not None:
        response.events[-1]["usage"] = usage
    else:
        response.json.update(tokens_generated=many, usage=usage)


def overrun_by_default(body: Any, response: Response) -> None:
    """Report more tokens than the default allows, if the body names no maximum."""
    if "max_tokens" not in body:
        overrun(body, response)


def patched(change: Callable[[Any], None]) -> Http:
    """Change the answer to a valid PATCH."""

    def hook(asked: Asked, response: Response) -> None:
        if (asked.method, asked.path, response.status) == ("PATCH", CONFIG, 200):
            change(response.json)

    return hook


class Drifting:
    """A number that differs in every answer."""

    def __init__(self, path: str, key: str, step: int) -> None:
        self.path, self.key, self.step, self.value = path, key, step, 1000

    def __call__(self, asked: Asked, response: Response) -> None:
        """Change the number by one step."""
        if asked.path == self.path and response.status == 200 and asked.method == "GET":
            self.value += self.step
            put(self.key, self.value)(response)


def grpc_answer(operation: str, **fields: Any) -> Grpc:
    """Set fields in the answers of one operation."""

    def hook(called: str, request: Any, answer: Any) -> Any:
        return {**answer, **fields} if called == operation else answer

    return hook


def grpc_status(operation: str, status: str) -> Grpc:
    """End one operation with a status."""
    return lambda called, request, answer: status if called == operation else answer


def unknown_nodes(called: str, request: Any, answer: Any) -> Any:
    """List node IDs of 16 bytes."""
    if called != "DHTFindNode":
        return answer
    return {**answer, "nodes": [messages.make("DHTNodeInfo", node_id=b"x" * 16, port=9)]}


class OnlyTheLastChange:
    """Each change of the configuration undoes the previous one."""

    def __init__(self) -> None:
        self.original: Any = None
        self.last: Any = {}

    def __call__(self, asked: Asked, response: Response) -> None:
        """Note each change, and show only the last one."""
        if asked.path != CONFIG or response.status != 200:
            return
        if asked.method == "PATCH":
            self.last = asked.body
            return
        if self.original is None:
            self.original = json.loads(json.dumps(response.json))
        shown = json.loads(json.dumps(self.original))
        for section, changes in self.last.items():
            shown[section].update(changes)
        response.json = shown


class OnlyTheLastValue:
    """Each value in the DHT replaces the previous one, whatever its key."""

    def __init__(self) -> None:
        self.last = b""

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Note each key that is stored, and find only the last one."""
        if called == "DHTStore":
            self.last = request.key
        if called == "DHTFindValue" and request.key != self.last:
            return {"responder": answer["responder"], "found": False}
        return answer
