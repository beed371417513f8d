"""Mutants that several answers of a run show, and requests that are written or sent otherwise."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from conformance.judging.hooks import CONFIG, INFERENCE, Http, inference, on, put
from conformance.judging.toy.answers import Asked, Response, Sent, error
from conformance.judging.toy.node import SECOND, TOKEN

API, GLOBAL, VERIFY = "/api/v1", "/api/training/global", "/api/training/verify"
STATUS, METRICS, PEERS = f"{API}/status", f"{API}/metrics", f"{API}/peers"
NETWORK, HEALTH, LAYERS = f"{API}/network", f"{API}/health", f"{API}/layers"
MOST_IN_TWO_BYTES = 65535
VALID = f"Bearer {TOKEN}"
Rewriting = Callable[[Sent], Sent]


class Sending:
    """A node that takes some requests for others."""

    def __init__(self, rewrite: Rewriting) -> None:
        self.rewrite = rewrite

    def __call__(self, asked: Asked, response: Response) -> None:
        """Leave the answer as it is."""


class Turning:
    """A value that is another one in each second answer of a route."""

    def __init__(self, path: str, key: str, other: Any) -> None:
        self.path, self.change, self.looks = path, put(key, other), 0

    def __call__(self, asked: Asked, response: Response) -> None:
        """Count the answers."""
        if asked.path == self.path and asked.method == "GET" and response.status == 200:
            self.looks += 1
            if self.looks % 2:
                self.change(response)


class Falling:
    """A figure that falls with each answer of a route."""

    def __init__(self, path: str, key: str) -> None:
        self.path, self.key, self.left = path, key, 1_000_000

    def __call__(self, asked: Asked, response: Response) -> None:
        """Show one less than before."""
        if asked.path == self.path and response.status == 200:
            self.left -= 1
            put(self.key, self.left)(response)


def authorized(sent: Sent, **changes: Any) -> Sent:
    """Return a request as if it had the first token."""
    others = {k: v for k, v in sent.headers.items() if k.lower() != "authorization"}
    return replace(sent, headers={**others, "Authorization": VALID}, **changes)


def slash_open(sent: Sent) -> Sent:
    """Let everybody read the configuration under its path with a slash."""
    return authorized(sent, target=CONFIG) if sent.target == f"{CONFIG}/" else sent


def method_open(sent: Sent) -> Sent:
    """Let everybody read the layers with another method."""
    fits = sent.target == LAYERS and sent.method == "POST"
    return authorized(sent, method="GET") if fits else sent


def by_cookie(sent: Sent) -> Sent:
    """Take the token of a cookie."""
    return authorized(sent) if TOKEN in sent.header("Cookie") else sent


def by_ends(sent: Sent) -> Sent:
    """Compare the ends of a token only."""
    token = sent.header("Authorization")
    fits = len(token) == len(VALID) and token[:9] == VALID[:9] and token[-2:] == VALID[-2:]
    return authorized(sent) if fits else sent


def longer_on_inference(sent: Sent) -> Sent:
    """Take what begins with a token for it, where a text is generated."""
    longer = sent.header("Authorization").startswith(f"{VALID}-")
    return authorized(sent) if longer and sent.target == INFERENCE else sent


def any_method(sent: Sent) -> Sent:
    """Serve the status whatever the method is."""
    return replace(sent, method="GET") if sent.target == STATUS else sent


def no_capitals(sent: Sent) -> Sent:
    """Know only small letters of a media type."""
    kind = sent.header("Content-Type")
    return replace(sent, target=f"{API}/none") if kind != kind.lower() else sent


def no_query(sent: Sent) -> Sent:
    """Find no status with a query."""
    return replace(sent, target=f"{API}/none") if sent.target.startswith(f"{STATUS}?") else sent


def infinite(sent: Sent) -> Sent:
    """Take a number that is too large for none."""
    return replace(sent, body=sent.body.replace(b"1e999", b"1"))


def without_others(sent: Sent) -> Sent:
    """Look at a temperature only where nothing else says how tokens are drawn."""
    if sent.target != INFERENCE or not sent.body.startswith(b'{"prompt": "Hello", "top_p"'):
        return sent
    return replace(sent, body=json.dumps({"prompt": "Hello"}).encode())


def two_bytes(sent: Sent) -> Sent:
    """Keep sixteen bits of how many tokens are asked for."""
    most = re.search(rb'"max_tokens": (\d+)', sent.body)
    if most is None or int(most[1]) <= MOST_IN_TWO_BYTES:
        return sent
    kept = b"%d" % (int(most[1]) & MOST_IN_TWO_BYTES)
    return replace(sent, body=sent.body[: most.start(1)] + kept + sent.body[most.end(1) :])


class ForBrowsers:
    """A page of HTML for whoever prefers one."""

    def __init__(self) -> None:
        self.asked = False

    def rewrite(self, sent: Sent) -> Sent:
        """Remember what the request prefers."""
        self.asked = sent.header("Accept").startswith("text/html")
        return sent

    def __call__(self, asked: Asked, response: Response) -> None:
        """Answer with a page."""
        if self.asked and asked.path == STATUS:
            response.raw = b"<h1>A node</h1>"


class LastOfConnection:
    """A node that reads the balance for whoever has posted something on the connection."""

    def __init__(self) -> None:
        self.posted = set[int]()

    def __call__(self, asked: Asked, response: Response) -> None:
        """Remember the connection of a POST."""
        if asked.method == "POST" and asked.authorized:
            self.posted.add(asked.connection)
        if asked.path.endswith("/balance") and asked.connection in self.posted:
            response.status = 200


class Below:
    """A configuration in which each number may be below zero."""

    def __init__(self) -> None:
        self.size: int | None = None

    def __call__(self, asked: Asked, response: Response) -> None:
        """Take such a batch size, until it is set once more."""
        if asked.path != CONFIG:
            return
        body = asked.body if isinstance(asked.body, dict) else {}
        section = body.get("training") if asked.method == "PATCH" else None
        size = section.get("batch_size") if isinstance(section, dict) else None
        if isinstance(size, int):
            self.size = size if size < 0 else None
        if isinstance(size, int) and size < 0:
            made = {"success": True, "updated": ["training.batch_size"], "restart_required": False}
            response.__dict__.update(Response(json=made).__dict__)
        if self.size is not None and asked.method == "GET":
            put("training.batch_size", self.size)(response)


def no_object(answer: Response) -> Http:
    """Answer a change that is no object with this."""

    def hook(asked: Asked, response: Response) -> None:
        if asked.path == CONFIG and asked.method == "PATCH" and isinstance(asked.body, list):
            response.__dict__.update(replace(answer).__dict__)

    return hook


def of_error(**parts: Any) -> Http:
    """Give the error of each invalid body these parts."""
    return on(INFERENCE, lambda r: r.json["error"].update(parts), "POST", 400)


def more_for_second(asked: Asked, response: Response) -> None:
    """Count a token more for the second account."""
    if asked.path == INFERENCE and asked.authorization == f"Bearer {SECOND}" and response.json:
        usage = response.json.get("usage", {})
        usage.update(prompt_tokens=usage.get("prompt_tokens", 0) + 1)
        usage.update(total_tokens=usage.get("total_tokens", 0) + 1)


def counts_asked(body: Any, response: Response) -> None:
    """Let a stream that a stop sequence ends count what was asked for."""
    usage = (response.events or [{}])[-1].get("usage")
    if usage and body.get("stop"):
        usage.update(completion_tokens=body["max_tokens"])
        usage.update(total_tokens=usage["prompt_tokens"] + body["max_tokens"])


def enabled_unsaid(response: Response) -> None:
    """Leave training.enabled out of what is updated."""
    response.json["updated"] = [k for k in response.json["updated"] if k != "training.enabled"]


def with_token(asked: Asked, response: Response) -> None:
    """Refuse a token where none is needed."""
    if asked.path == NETWORK and asked.authorized:
        response.__dict__.update(error(401, "UNAUTHORIZED", "no token is needed").__dict__)


TAKEN = Response(json={"success": True, "updated": [], "restart_required": False})


class NoYaml(ForBrowsers):
    """Refuses a request for another kind of body than JSON."""

    def rewrite(self, sent: Sent) -> Sent:
        """Remember what the request accepts."""
        self.asked = sent.header("Accept").endswith("yaml")
        return sent

    def __call__(self, asked: Asked, response: Response) -> None:
        """Say that there is none."""
        if self.asked and asked.path == STATUS:
            response.__dict__.update(error(406, "NOT_ACCEPTABLE", "JSON only").__dict__)


HTTP: list[tuple[str, Http]] = [
    ("NA-SANE-060", Falling(METRICS, "inference.tokens_generated")),
    ("NA-SANE-061", Falling(METRICS, "network.bytes_sent")),
    ("NA-SANE-062", Turning(STATUS, "version", "0.9")),
    ("NA-SANE-063", Turning(STATUS, "role", "worker")),
    ("NA-SANE-069", on(METRICS, put("inference.requests_per_minute", 0))),
    ("NA-INF-060", more_for_second),
    ("NA-INF-007", Sending(infinite)),
    ("NA-INF-049", Sending(two_bytes)),
    ("NA-INF-007", Sending(without_others)),
    ("NA-SSE-030", inference(counts_asked, stream=True)),
    ("NA-SSE-031", inference(
        lambda body, r: (r.events or [{}])[-1].update(finish_reason="length"), stream=True)),
    ("NA-AUTH-005", with_token),
    ("NA-AUTH-021", Sending(by_ends)),
    ("NA-AUTH-050", Sending(slash_open)),
    ("NA-AUTH-050", Sending(method_open)),
    ("NA-AUTH-051", Sending(by_cookie)),
    ("NA-AUTH-054", Sending(longer_on_inference)),
    ("NA-ROUTE-019", LastOfConnection()),
    ("NA-ROUTE-030", Sending(no_query)),
    ("NA-ERR-060", of_error(details=["prompt"])),
    ("NA-ERR-061", of_error(code="INSUFFICIENT_BALANCE")),
    ("NA-ERR-062", of_error(code="")),
    ("NA-ERR-063", Sending(any_method)),
    ("NA-PATCH-101", on(CONFIG, enabled_unsaid, "PATCH")),
    ("NA-PATCH-130", Below()),
    ("NA-PATCH-131", no_object(TAKEN)),
    ("NA-PATCH-132", no_object(error(500, "INTERNAL", "no section"))),
    ("NA-PATCH-133", on(CONFIG, lambda r: r.json.update(updated=r.json["updated"] * 2), "PATCH")),
    ("GEN-030", ForBrowsers()),
    ("NA-ROUTE-037", NoYaml()),
    ("GEN-031", Sending(no_capitals)),
    ("TR-RULE-030", Falling(GLOBAL, "diloco.outer_step_count")),
]  # fmt: skip
