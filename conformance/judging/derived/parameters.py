"""Faults of parameters: each one ignored, or read as another value."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, urlencode

from conformance.checks.config import CHANGEABLE
from conformance.judging.derived.fault import Fault, Wrapper
from conformance.judging.derived.interface import BODIES, QUERIES
from conformance.judging.hooks import CONFIG
from conformance.judging.toy.answers import Asked, Response, Sent
from conformance.judging.toy.node import ToyNode

# What a node that ignores a required member would use in its place.
INSTEAD: dict[str, Callable[[Any], Any]] = {
    "amount": lambda value: value * 2 if isinstance(value, int | float) else value,
    "duration_days": lambda value: 90,
    "memo": lambda value: "",
    "prompt": lambda value: "another prompt" if isinstance(value, str) else value,
}


def parameter_faults() -> Iterator[Fault]:
    """Yield each parameter of each route ignored."""
    for key, names in QUERIES.items():
        for name in names:
            yield _fault("parameter ignored", key, name, _without_query(key, name))
            yield _fault("parameter read as another", key, name, _other_query(key, name))
    for key, names in BODIES.items():
        for name in names:
            yield _fault("parameter ignored", key, name, _member(key, name, INSTEAD.get(name)))
    for path in CHANGEABLE:
        key = f"PATCH {CONFIG}"
        yield Fault("parameter ignored", f"{key} {path}", frozenset({key}), _unpatched(path))


def _fault(kind: str, key: str, name: str, request: Callable[[Sent], Sent]) -> Fault:
    touched = frozenset({key})
    return Fault(kind, f"{key} {name}", touched, lambda node: Wrapper(request=request))


def _split(sent: Sent) -> tuple[str, list[tuple[str, str]]]:
    path, _, query = sent.target.partition("?")
    return path, parse_qsl(query, keep_blank_values=True)


def _without_query(key: str, name: str) -> Callable[[Sent], Sent]:
    def request(sent: Sent) -> Sent:
        path, query = _split(sent)
        if f"{sent.method} {path}" != key or name not in dict(query):
            return sent
        rest = urlencode([pair for pair in query if pair[0] != name])
        return replace(sent, target=path + (f"?{rest}" if rest else ""))

    return request


def _other_query(key: str, name: str) -> Callable[[Sent], Sent]:
    """Read a number as the next one: the usual slip of a page."""

    def request(sent: Sent) -> Sent:
        path, query = _split(sent)
        if f"{sent.method} {path}" != key:
            return sent
        moved = [
            (found, str(int(value) + 1) if found == name and value.isdigit() else value)
            for found, value in query
        ]
        return sent if moved == query else replace(sent, target=f"{path}?{urlencode(moved)}")

    return request


def _member(key: str, name: str, instead: Callable[[Any], Any] | None) -> Callable[[Sent], Sent]:
    def request(sent: Sent) -> Sent:
        path, _ = _split(sent)
        try:
            body = json.loads(sent.body) if f"{sent.method} {path}" == key else None
        except ValueError:
            body = None
        if not isinstance(body, dict) or name not in body:
            return sent
        if instead is None:
            body.pop(name)
        else:
            body[name] = instead(body[name])
        return replace(sent, body=json.dumps(body).encode())

    return request


def _unpatched(dotted: str) -> Callable[[ToyNode], Wrapper]:
    """Ignore one key of a change, and report it as changed all the same."""
    section, _, last = dotted.partition(".")

    def make(node: ToyNode) -> Wrapper:
        dropped: list[str] = []

        def request(sent: Sent) -> Sent:
            dropped.clear()
            try:
                body = json.loads(sent.body) if sent.method == "PATCH" else None
            except ValueError:
                body = None
            inner = body.get(section) if isinstance(body, dict) else None
            if not isinstance(inner, dict) or last not in inner:
                return sent
            inner.pop(last)
            dropped.append(dotted)
            return replace(sent, body=json.dumps(body).encode())

        def hook(asked: Asked, response: Response) -> None:
            if asked.method == "PATCH" and dropped and response.status == 200:
                response.json["updated"] = [*response.json.get("updated", []), *dropped]

        return Wrapper(http=hook, request=request)

    return make
