"""The suite's HTTP client: the standard library's, on connections that are used again.

Only `HttpClient.kept` does so by itself; since the sixth edition `Idle` chooses others.

It shares no parser with Python's common servers (decision 0040). Time-outs, resets and truncated
bodies raise `Unanswered`, which is never a verdict against the target. After a 429 it waits and
retries.
"""

import http.client
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlencode, urlsplit

from conformance.commands import in_turn
from conformance.gate import Gate
from conformance.httpbody import read_body
from conformance.httprequest import (
    ANONYMOUS,
    USUAL,
    Asked,
    Credential,
    Request,
    Written,
    encoded,
)
from conformance.idle import Idle, connection_to
from conformance.journal import Exchange, Journal, shown
from conformance.strictjson import Json, NotJson, Parsed, parse

MAX_ATTEMPTS = 5
# How an error says that it is a 429, whatever its status.
LIMITED = b"RATE_LIMITED"
BURST_CONNECTIONS = 6
CLOSED = "reset: the connection was closed"


class Unanswered(Exception):
    """There was no complete answer, so nothing was shown for or against the target."""

    def __init__(self, why: str, exchange: Exchange) -> None:
        """`why` begins with timeout, unreachable, reset, cut or garbage."""
        super().__init__(why)
        self.why = why
        self.exchange = exchange


@dataclass(frozen=True)
class Answer:
    """A complete HTTP answer. `arrivals` holds the seconds until each piece of the body arrived."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    exchange: Exchange
    arrivals: tuple[float, ...] = ()
    _parsed: list[Parsed] = field(default_factory=list, compare=False)

    @property
    def ok(self) -> bool:
        """Return whether the status means success."""
        return 200 <= self.status < 300

    def header(self, name: str) -> str:
        """Return the first header of this name, or an empty string."""
        wanted = name.lower()
        return next((value for key, value in self.headers if key.lower() == wanted), "")

    @property
    def media_type(self) -> str:
        """Return the Content-Type without its parameters, in lower case."""
        return self.header("Content-Type").split(";")[0].strip().lower()

    def parsed(self) -> Parsed:
        """Parse the body, or raise `NotJson`."""
        if not self._parsed:
            self._parsed.append(parse(self.body))
        return self._parsed[0]

    def json(self) -> Json:
        """Return the JSON value of the body, or raise `NotJson`."""
        return self.parsed().value

    def json_object(self) -> dict[str, Json] | None:
        """Return the JSON object in the body, or None if it is anything else."""
        try:
            value = self.json()
        except NotJson:
            return None
        return value if isinstance(value, dict) else None


class HttpClient:
    """Sends requests to one base URL and records every exchange."""

    def __init__(
        self,
        base_url: str,
        journal: Journal,
        *,
        timeout_s: float,
        max_wait_s: float,
        on_limited: Callable[[Answer], None] = lambda answer: None,
        idle: Idle | None = None,
    ) -> None:
        """`on_limited` sees every 429 before the wait; `max_wait_s` bounds all waits together.

        With ``idle`` a request may go on the connection of the one before it.
        """
        self.base_url = base_url.rstrip("/")
        self._parts = urlsplit(self.base_url)
        self._journal = journal
        self._timeout_s = timeout_s
        self._wait_left_s = max_wait_s
        self.on_limited = on_limited
        self.idle = idle
        self.check, self.gate = "", Gate()

    @property
    def exchanges_made(self) -> int:
        """Return the number of exchanges in the journal, including those over gRPC."""
        return len(self._journal.exchanges)

    def call(
        self,
        method: str,
        path: str,
        *,
        credential: Credential = ANONYMOUS,
        json_body: Json = None,
        content: bytes | None = None,
        query: Mapping[str, object] | None = None,
        timeout_s: float | None = None,
        written: Written = USUAL,
    ) -> Answer:
        """Send a request and return its answer; after a 429, wait and retry."""
        if json_body is not None:
            content = encoded(json_body)
        request = Request(
            method,
            path + (f"?{urlencode(query)}" if query else ""),
            credential,
            content,
            written.content_type if content is not None else None,
            timeout_s or self._timeout_s,
            written=written,
        )
        for _ in range(MAX_ATTEMPTS - 1):
            answer = self._once(request)
            if answer.status != http.client.TOO_MANY_REQUESTS:
                return answer
            self.on_limited(answer)
            wait_s = retry_after_s(answer)
            if wait_s > self._wait_left_s:
                break
            self._wait_left_s -= wait_s
            time.sleep(wait_s)
        else:
            answer = self._once(request)
            if answer.status != http.client.TOO_MANY_REQUESTS:
                return answer
        raise Unanswered("limited: still 429 after the requested waits", answer.exchange)

    def kept(self, asked: Iterable[Asked]) -> list[Answer]:
        """Send requests on one connection.

        Bytes are sent as they are. Fewer answers are returned where the target ends the connection,
        which it may do at any time, and where it asks to wait.
        """
        answers, before, connection = list[Answer](), list[str](), self._connection(self._timeout_s)
        try:
            for method, path, credential, body in asked:
                if answers and connection.sock is None:
                    break
                content = body if isinstance(body, bytes | None) else encoded(body)
                kind = "application/json" if content is not None else None
                request = Request(method, path, credential, content, kind, self._timeout_s, True)
                answers.append(self._ask(connection, request, before))
                before.append(request.command(self.base_url + path))
                if answers[-1].status == http.client.TOO_MANY_REQUESTS:
                    return answers[:-1]
        except Unanswered:
            if not answers:
                raise
        finally:
            connection.close()
        return answers

    def burst(
        self, path: str, *, max_requests: int, within_s: float, credential: Credential = ANONYMOUS,
        json_body: Json = None, at_once: int | None = None,
    ) -> Answer | None:  # fmt: skip
        """Ask repeatedly over a few connections until the first 429, and return that answer.

        An error that calls itself one is one, too. Only this answer is recorded, since the others
        show nothing new. Without a body it is a GET, otherwise a POST. ``at_once`` is another
        number of connections.
        """
        content = encoded(json_body) if json_body is not None else None
        method, kind = ("GET", None) if content is None else ("POST", "application/json")
        request = Request(method, path, credential, content, kind, self._timeout_s, kept=True)
        ends, left = time.monotonic() + within_s, iter(range(max_requests))
        found: list[tuple[float, int, list[tuple[str, str]], bytes]] = []

        def ask_often() -> None:
            connection = self._connection(self._timeout_s)
            headers = request.headers()
            try:
                while not found and time.monotonic() < ends and next(left, None) is not None:
                    began = time.monotonic()
                    connection.request(method, self._parts.path + path, content, headers)
                    response = connection.getresponse()
                    body = response.read()
                    refused = response.status >= 400 and LIMITED in body
                    if response.status == http.client.TOO_MANY_REQUESTS or refused:
                        found.append((began, response.status, response.getheaders(), body))
            except (OSError, http.client.HTTPException):
                # A server may also defend itself by closing connections.
                return
            finally:
                connection.close()

        threads = [threading.Thread(target=ask_often) for _ in range(at_once or BURST_CONNECTIONS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if not found:
            return None
        began, status, headers, body = found[0]
        seen = {"status": status, "headers": headers}
        exchange = self._record(request, seen, body, None, began)
        return Answer(status, tuple(headers), body, exchange)

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        return connection_to(self._parts, timeout_s)

    def _once(self, request: Request) -> Answer:
        idle = self.idle
        if idle is None or not request.can_follow:
            if idle is not None:
                # A target may serve one connection at a time.
                idle.close()
            return self._alone(request)
        request = replace(request, kept=idle.keeps())
        used = idle.take(reads=request.method == "GET", timeout_s=request.timeout_s)
        if used is None:
            return self._then_kept(self._connection(request.timeout_s), request, (), idle)
        try:
            return self._then_kept(used.connection, request, used.before, idle)
        except Unanswered as reason:
            if not reason.why.startswith(CLOSED):
                raise
            idle.end()
            if request.method != "GET":
                raise
            return self._alone(request)

    def _then_kept(
        self, connection: http.client.HTTPConnection, request: Request, before: tuple[str, ...],
        idle: Idle,
    ) -> Answer:  # fmt: skip
        """Send a request, and leave its connection for the next one if both sides want to."""
        with ExitStack() as closing:
            closing.callback(connection.close)
            answer = self._ask(connection, request, before)
            closing.pop_all()
        sent = (*before, request.command(self.base_url + request.path))
        idle.put(connection, sent, kept=request.kept)
        return answer

    def _alone(self, request: Request) -> Answer:
        connection = self._connection(request.timeout_s)
        try:
            return self._ask(connection, request)
        finally:
            connection.close()

    def _ask(
        self, connection: http.client.HTTPConnection, request: Request, before: Iterable[str] = ()
    ) -> Answer:
        """Send one request on a connection, on which the commands ``before`` were sent."""
        began = time.monotonic()
        seen: dict[str, Any] = {}
        body = bytearray()
        arrivals: list[float] = []
        fault: str | None = None
        try:
            self.gate.wait(connection)
            connection.request(
                request.method,
                self._parts.path + request.path,
                body=request.body,
                headers=request.headers(),
                encode_chunked=request.written.chunked,
            )
            # The connection forgets it where the response is to be the last one.
            sock = connection.sock
            response = connection.getresponse()
            seen = {"status": response.status, "headers": response.getheaders()}
            fault = read_body(response, body, arrivals, began, request.timeout_s, sock)
            # The connection is free for another request only then.
            response.close()
        except TimeoutError:
            fault = f"timeout: nothing for {request.timeout_s:g} s"
        except http.client.RemoteDisconnected:
            fault = f"{CLOSED} without an answer"
        except http.client.IncompleteRead:
            fault = "cut: the body ended too early"
        except http.client.HTTPException as error:
            fault = f"garbage: not HTTP ({type(error).__name__})"
        except ConnectionRefusedError:
            fault = "unreachable: connection refused"
        except OSError as error:
            closed = isinstance(error, ConnectionError) and not seen
            fault = CLOSED if closed else f"reset: {error.strerror or type(error).__name__}"
        exchange = self._record(request, seen, bytes(body), fault, began, before)
        if fault:
            raise Unanswered(fault, exchange)
        headers = tuple(seen["headers"])
        return Answer(seen["status"], headers, bytes(body), exchange, tuple(arrivals))

    def _record(
        self, request: Request, seen: dict[str, Any], body: bytes, fault: str | None, began: float,
        before: Iterable[str] = (),
    ) -> Exchange:  # fmt: skip
        url = self.base_url + request.path
        sent: dict[str, Any] = {"method": request.method, "url": url, "headers": request.headers()}
        if request.credential.header is not None:
            sent["headers"][request.written.spelt("Authorization")] = request.credential.shown
        if request.content is not None:
            sent["body"] = shown(request.content)
        return self._journal.write(
            check=self.check,
            kind="http",
            began=began,
            request=sent,
            response={**seen, "body": shown(body)} if seen else None,
            fault=fault,
            reproduce=in_turn([*before, request.command(url)]),
        )


def retry_after_s(answer: Answer) -> float:
    """Return the wait that a 429 asks for: in its details, else its header, else one second."""
    error = (answer.json_object() or {}).get("error")
    details = error.get("details") if isinstance(error, dict) else None
    wait_s = details.get("retry_after") if isinstance(details, dict) else None
    if isinstance(wait_s, int | float) and not isinstance(wait_s, bool) and wait_s >= 0:
        return float(wait_s)
    header = answer.header("Retry-After")
    return float(header) if header.isdecimal() else 1.0
