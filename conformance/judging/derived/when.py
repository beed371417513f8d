"""Faults that show now and then: each derived fault under conditions on the request.

A fault that shows in every answer is the easy case. What users meet goes wrong for the second
account, on a connection that is used again, right after a refusal, once in five times, beside
another request, or for some values only. The conditions are about the requests that the fault
touches; every other one is served as it is.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from conformance.judging.derived.fault import Fault, Wrapper
from conformance.judging.derived.interface import BODIES, NODE_ROUTES, QUERIES
from conformance.judging.toy.answers import Asked, Response, Sent, named_operation
from conformance.judging.toy.node import ToyNode

BESIDE = "beside another request"
# So long requests take for it; else they would hardly meet.
TAKES_S = 0.01
# So long after a request that is no read its effects are new.
NEW_S = 0.2
LONG_BYTES, LARGE_BYTES = 100, 1000
FEW = 2
MANY_ENTRIES, MUCH = 10, 16


@dataclass(frozen=True)
class Moment:
    """What is known of a request before it is served.

    `number` counts the requests before it that the fault touches. `account` is that of its token,
    or None. `again` says that its connection was used before, `refused` that the answer before it
    was a refusal, `new` that something may have changed a moment ago; `beside` is how many others
    are being served.
    """

    number: int
    account: int | None = None
    again: bool = False
    refused: bool = False
    new: bool = False
    query: Mapping[str, Sequence[str]] = field(default_factory=dict)
    size: int = 0
    body: Any = None
    beside: int = 0


Holds = Callable[[Moment], bool]


def _numbers(body: Any) -> list[int | float]:
    values = body.values() if isinstance(body, dict) else ()
    return [value for value in values if type(value) in (int, float)]


def _members(body: Any) -> int:
    return len(body) if isinstance(body, dict) else 0


def _limit(moment: Moment) -> int:
    found = moment.query.get("limit", ["0"])[0]
    return int(found) if found.isdecimal() else 0


EVERY: dict[str, Holds] = {
    "every second time": lambda m: m.number % 2 == 1,
    "every fifth time": lambda m: m.number % 5 == 4,
    "the first time only": lambda m: m.number == 0,
    "from the second time on": lambda m: m.number > 0,
    "from the tenth time on": lambda m: m.number > 8,
}
ON_HTTP: dict[str, Holds] = {
    "on a connection that is used again": lambda m: m.again,
    "on a new connection": lambda m: not m.again,
    "right after a refusal": lambda m: m.refused,
    "right after a change": lambda m: m.new,
    "some time after a change": lambda m: not m.new,
    "with a query": lambda m: bool(m.query),
    BESIDE: lambda m: m.beside > 0,
}
OF_ACCOUNTS: dict[str, Holds] = {
    "for the first account": lambda m: m.account == 0,
    "for the second account": lambda m: m.account == 1,
    "without an account": lambda m: m.account is None,
}
OF_BODIES: dict[str, Holds] = {
    "to long bodies": lambda m: m.size > LONG_BYTES,
    "to short bodies": lambda m: 0 < m.size <= LONG_BYTES,
    "to bodies with decimals": lambda m: any(isinstance(v, float) for v in _numbers(m.body)),
    "to bodies of whole numbers": lambda m: all(isinstance(v, int) for v in _numbers(m.body)),
    "to bodies of few members": lambda m: 0 < _members(m.body) <= FEW,
    "to bodies of many members": lambda m: _members(m.body) > FEW,
    "to bodies beyond ASCII": lambda m: not json.dumps(m.body, ensure_ascii=False).isascii(),
    "to bodies with larger numbers": lambda m: max(_numbers(m.body), default=0) > MUCH,
    "to bodies of small numbers": lambda m: 0 < max(_numbers(m.body), default=0) <= MUCH,
}
OF_QUERIES: dict[str, Holds] = {"without a query": lambda m: not m.query}
OF_SEVERAL: dict[str, Holds] = {"with several parameters": lambda m: len(m.query) > 1}
OF_LIMITS: dict[str, Holds] = {
    "with a limit of many": lambda m: _limit(m) > MANY_ENTRIES,
    "with a limit of few": lambda m: 0 < _limit(m) <= MANY_ENTRIES,
}
OF_MESSAGES: dict[str, Holds] = {
    "to large messages": lambda m: m.size > LARGE_BYTES,
    "to smaller messages": lambda m: m.size <= LARGE_BYTES,
}
CONDITIONS = {
    **EVERY, **ON_HTTP, **OF_ACCOUNTS, **OF_BODIES, **OF_QUERIES, **OF_SEVERAL, **OF_LIMITS,
    **OF_MESSAGES,
}  # fmt: skip
# These parameters are required.
_NAMED = frozenset({"GET /api/account", "GET /api/inference/request"})
_LIMITED = frozenset(key for key, names in QUERIES.items() if "limit" in names)
_SEVERAL = frozenset(key for key, names in QUERIES.items() if len(names) > 1)
# Messages with tensors.
_LARGE = frozenset({"rpc PipelineForward", "rpc PipelineBackward", "rpc GossipGradient"})
_GUARDED_KEYS = frozenset(route.key for route in NODE_ROUTES if route.guarded)


def conditions_of(fault: Fault) -> dict[str, Holds]:
    """Return the conditions that requests can meet that the fault touches, by their names."""
    found, keys = dict(EVERY), fault.touches
    if any(not key.startswith("rpc ") for key in keys):
        found |= ON_HTTP
    if keys & _GUARDED_KEYS:
        found |= OF_ACCOUNTS
    if keys & BODIES.keys():
        found |= OF_BODIES
    if keys & (QUERIES.keys() - _NAMED):
        found |= OF_QUERIES
    if keys & _SEVERAL:
        found |= OF_SEVERAL
    if keys & _LIMITED:
        found |= OF_LIMITS
    if keys & _LARGE:
        found |= OF_MESSAGES
    return found


def conditional(fault: Fault, when: str) -> Fault:
    """Return the fault that shows only if the condition of this name holds."""

    def make(node: ToyNode) -> Wrapper:
        takes_s = TAKES_S if when == BESIDE else 0.0
        return _Now(node, fault, CONDITIONS[when], takes_s).wrapper()

    return Fault(when, f"{fault.kind}: {fault.name}", fault.touches, make)


class _Now:
    """Wears one fault whenever the condition holds."""

    def __init__(self, node: ToyNode, fault: Fault, holds: Holds, takes_s: float) -> None:
        self._node, self._fault, self._holds, self._takes_s = node, fault, holds, takes_s
        self._inner = fault.make(node)
        self._lock = threading.Lock()
        self._touched, self._served = 0, 0
        self._refused, self._changed = False, float("-inf")
        # A thread of the toy serves one connection, and one request at a time.
        self._thread = threading.local()

    def wrapper(self) -> Wrapper:
        """The hooks; where the service is found depends on no request."""
        found = self._inner.operation if self._inner.operation is not named_operation else None
        return Wrapper(self._http, self._grpc, self._request, self._call, found or named_operation)

    def _request(self, sent: Sent) -> Sent:
        with self._lock:
            self._served += 1
        time.sleep(self._takes_s)
        self._thread.now = now = self._decide(sent)
        return self._inner.request(sent) if now else sent

    def _decide(self, sent: Sent) -> bool:
        again = getattr(self._thread, "used", False)
        self._thread.used = True
        path, _, query = sent.target.partition("?")
        if not self._fits(f"{sent.method} {path}"):
            return True
        try:
            body = json.loads(sent.body) if sent.body else None
        except ValueError:
            body = None
        tokens = list(self._node.tokens)
        token = sent.header("Authorization").partition(" ")[2]
        moment = Moment(
            self._count(),
            tokens.index(token) if token in tokens else None,
            again,
            self._refused,
            time.monotonic() < self._changed + NEW_S,
            parse_qs(query),
            len(sent.body),
            body,
            self._served - 1,
        )
        return self._holds(moment)

    def _fits(self, key: str) -> bool:
        return any(key == one or (one.endswith("/") and key.startswith(one))
                   for one in self._fault.touches)  # fmt: skip

    def _count(self) -> int:
        with self._lock:
            self._touched += 1
            return self._touched - 1

    def _http(self, asked: Asked, response: Response) -> None:
        with self._lock:
            self._served -= 1
        if asked.method != "GET" and response.status == 200:
            self._changed = time.monotonic()
        self._refused = response.status >= 400
        if self._thread.now:
            self._inner.http(asked, response)

    def _call(self, operation: str, data: bytes) -> bytes:
        fits = self._fits(f"rpc {operation}")
        self._thread.now = now = not fits or self._holds(Moment(self._count(), size=len(data)))
        return self._inner.call(operation, data) if now else data

    def _grpc(self, operation: str, request: Any, answer: Any) -> Any:
        now = getattr(self._thread, "now", True)
        return self._inner.grpc(operation, request, answer) if now else answer
