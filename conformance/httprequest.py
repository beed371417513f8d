"""HTTP requests of the suite before they are sent, and the credentials that they show."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from conformance.commands import curl
from conformance.strictjson import Json


@dataclass(frozen=True)
class Credential:
    """An Authorization header, and the form in which commands and records show it."""

    header: str | None
    shown: str | None


ANONYMOUS = Credential(None, None)


def bearer(token: str, shown_as: str | None = None) -> Credential:
    """Make the documented header; a token that is not a secret may be shown as it is."""
    return Credential(f"Bearer {token}", f"Bearer {shown_as or token}")


@dataclass(frozen=True)
class Written:
    """How a request is written, where HTTP leaves a choice."""

    accept: str = "*/*"
    content_type: str = "application/json"
    spelt: Callable[[str], str] = str
    """How the name of a header is written, given as it usually is."""
    chunked: bool = False
    """Whether the body comes in chunks, without a length."""
    others: tuple[tuple[str, str], ...] = ()
    """Other headers."""


USUAL = Written()


@dataclass(frozen=True)
class Request:
    """What is sent. `content` is the body as bytes; a JSON body is already encoded."""

    method: str
    path: str
    credential: Credential
    content: bytes | None
    content_type: str | None
    timeout_s: float
    kept: bool = False
    """Whether another request may follow on the same connection."""
    written: Written = USUAL

    def headers(self) -> dict[str, str]:
        """Return the headers that the suite sets."""
        headers = {
            **dict(self.written.others), "Accept": self.written.accept,
            "Connection": "keep-alive" if self.kept else "close",
        }  # fmt: skip
        if self.content_type:
            headers["Content-Type"] = self.content_type
        if self.credential.header is not None:
            headers["Authorization"] = self.credential.header
        if self.written.chunked:
            headers["Transfer-Encoding"] = "chunked"
        return {self.written.spelt(name): value for name, value in headers.items()}

    @property
    def can_follow(self) -> bool:
        """Whether one command can send it behind others: with a body of text, if with any."""
        try:
            text = (self.content or b"").decode()
        except UnicodeDecodeError:
            return False
        return "\0" not in text and self.written is USUAL

    @property
    def body(self) -> bytes | Iterable[bytes] | None:
        """The body as it is sent: a part after the other, if it is chunked."""
        if self.content is None or not self.written.chunked:
            return self.content
        half = len(self.content) // 2
        return [part for part in (self.content[:half], self.content[half:]) if part]

    def command(self, url: str) -> str:
        """Return a command that sends the request again; tokens are shell variables in it."""
        credential = self.credential
        # A token of the target is a shell variable; an invented one is quoted as it is.
        is_variable = credential.header != credential.shown
        authorization = None if credential.shown is None else (credential.shown, is_variable)
        others = self.written.others
        return curl(self.method, url, authorization, self.content_type, self.content, others)


# A request on a kept connection: method, path, credential and body, None for no body.
Asked = tuple[str, str, Credential, Json | bytes]


def encoded(body: Json) -> bytes:
    """Return a value as JSON."""
    return json.dumps(body, ensure_ascii=False).encode()
