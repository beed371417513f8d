"""Requests and answers of the toy before they are encoded, and the hooks that change them."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from conformance import messages


@dataclass
class Response:
    """An answer before it is encoded: JSON, or events of a stream, or raw bytes."""

    status: int = 200
    json: Any = None
    events: list[Any] | None = None
    raw: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    # So long the connection of a body without a length is kept open behind it.
    held_s: float = 0.0
    # Whether the body follows the header of an answer to HEAD, too.
    with_head: bool = False
    cut: bool = False
    reset: bool = False


@dataclass(frozen=True)
class Asked:
    """A request as a hook sees it."""

    method: str
    path: str
    body: Any
    authorized: bool
    query: str = ""
    authorization: str | None = None
    connection: int = 0
    """The client's port, by which the requests of one connection are known."""


def read_json(body: bytes) -> Any:
    """Parse a body. Raises ValueError, also for NaN and what is infinite."""

    def refuse(name: str) -> Any:
        raise ValueError(name)

    def finite(number: str) -> float:
        return float(number) if math.isfinite(float(number)) else refuse(number)

    return json.loads(body, parse_constant=refuse, parse_float=finite)


def data_of(event: Any) -> str:
    """Return the data of an event of a stream.

    A string stands for data that is no JSON, such as the end of a stream of OpenAI's.
    """
    return event if isinstance(event, str) else json.dumps(event)


@dataclass(frozen=True)
class Sent:
    """A request as it came: its target has the query, its body is not parsed."""

    method: str
    target: str
    body: bytes
    headers: dict[str, str]

    def header(self, name: str) -> str:
        """Return the value of a header, whatever the case of its name, or an empty string."""
        return next((v for k, v in self.headers.items() if k.lower() == name.lower()), "")


HttpHook = Callable[[Asked, Response], None]
GrpcHook = Callable[[str, Any, Any], Any]


def no_http_hook(asked: Asked, response: Response) -> None:
    """Leave the answer as it is."""


def no_grpc_hook(operation: str, request: Any, answer: Any) -> Any:
    """Leave the answer as it is."""
    return answer


def same_request(sent: Sent) -> Sent:
    """Serve the request as it came."""
    return sent


def same_call(operation: str, data: bytes) -> bytes:
    """Serve the message as it came."""
    return data


def named_operation(path: str) -> str | None:
    """Return the operation of a call by its path, or None if the service has another name."""
    service, _, operation = path.removeprefix("/").partition("/")
    return operation if service == messages.SERVICE else None


def error(status: int, code: str, message: str, **details: Any) -> Response:
    """Make a documented error."""
    body: dict[str, Any] = {"code": code, "message": message}
    if details:
        body["details"] = details
    return Response(status, {"error": body})


def day(days: int) -> str:
    """Return the date that is `days` days from today."""
    return (datetime.now(UTC) + timedelta(days=days)).date().isoformat()


def now() -> str:
    """Return the current time in the document's format."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")
