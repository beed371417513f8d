"""Faults of single fields of JSON answers, and of pairs of fields of one object."""

import copy
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from itertools import combinations
from typing import Any

from conformance.catalogue import FieldRule
from conformance.judging.derived.fault import Fault, HttpHook, http_fault
from conformance.judging.derived.interface import fields, key_of
from conformance.judging.mutants.fields import WRONG, documents, shows
from conformance.judging.toy.answers import Asked, Response
from conformance.shapes import parents
from conformance.times import parse_timestamp

FACTOR = 1000
NUMBERS = ("int", "number")
Change = Callable[[dict[str, Any], str], None]


def field_faults() -> Iterator[Fault]:
    """Yield each field missing, of another type, null, of another sign, off by a factor, empty."""
    for resource, rule in fields():
        for kind, change in _changes(rule):
            name = f"{key_of(resource)} {resource} {rule.path}"
            yield http_fault(kind, name, key_of(resource), _at(resource, rule.path, change))


def _at(resource: str, path: str, change: Change) -> HttpHook:
    def hook(asked: Asked, response: Response) -> None:
        if not shows(resource, response):
            return
        for document in documents(resource, response):
            for holder, key, _ in list(parents(document, path)):
                if key in holder:
                    change(holder, key)

    return hook


def _changes(rule: FieldRule) -> Iterator[tuple[str, Change]]:
    yield "field missing", lambda holder, key: holder.pop(key)
    yield "field of another type", lambda holder, key: holder.update({key: _other(rule.aspect)})
    if not rule.aspect.endswith("?"):
        yield "field null", lambda holder, key: holder.update({key: None})
    if rule.aspect in NUMBERS:
        yield "number of another sign", _opposite
        yield "number off by a factor", _multiplied
    if rule.aspect == "int":
        yield "number off by one", _one_more
    if rule.aspect in ("string", "array", "object", "ints", "strings"):
        yield "field empty", lambda holder, key: holder.update({key: type(holder[key])()})
    if rule.aspect == "bool":
        yield "bool inverted", lambda holder, key: holder.update({key: not holder[key]})
    if rule.aspect == "array":
        yield "list doubled", lambda holder, key: holder.update({key: holder[key] * 2})
        yield (
            "list without its first entry",
            lambda holder, key: holder.update({key: holder[key][1:]}),
        )
        yield "list reversed", lambda holder, key: holder.update({key: holder[key][::-1]})
    if rule.aspect == "ints":
        yield "list doubled", lambda holder, key: holder.update({key: holder[key] * 2})
        yield (
            "list without its first entry",
            lambda holder, key: holder.update({key: holder[key][1:]}),
        )
    if rule.format == "timestamp":
        for hours in (2, -7, 24 * 400):
            yield f"time off by {hours} hours", _shifted(timedelta(hours=hours))
        yield "time as a number", lambda holder, key: holder.update({key: "1767268800"})
    if rule.format == "date":
        yield (
            "date in another form",
            lambda holder, key: holder.update({key: "/".join(reversed(holder[key].split("-")))}),
        )
        yield "date off by 3 days", _later(timedelta(days=3))
        yield "date off by -60 days", _later(timedelta(days=-60))
        yield "date as a time", lambda holder, key: holder.update({key: f"{holder[key]}T00:00:00Z"})


def _other(aspect: str) -> Any:
    return copy.deepcopy(WRONG[aspect])


def _opposite(holder: dict[str, Any], key: str) -> None:
    value = holder[key]
    if isinstance(value, int | float):
        holder[key] = -value if value else -1


def _multiplied(holder: dict[str, Any], key: str) -> None:
    value = holder[key]
    if isinstance(value, int | float):
        holder[key] = value * FACTOR


def _one_more(holder: dict[str, Any], key: str) -> None:
    value = holder[key]
    if isinstance(value, int | float):
        holder[key] = value + 1


def _later(by: timedelta) -> Change:
    def change(holder: dict[str, Any], key: str) -> None:
        if isinstance(holder[key], str):
            holder[key] = (date.fromisoformat(holder[key]) + by).isoformat()

    return change


def _shifted(by: timedelta) -> Change:
    def change(holder: dict[str, Any], key: str) -> None:
        moment = parse_timestamp(holder[key]) if isinstance(holder[key], str) else None
        if moment is not None:
            holder[key] = (moment + by).isoformat().replace("+00:00", "Z")

    return change


def pair_faults() -> Iterator[Fault]:
    """Yield each pair of fields of one object that have one type, swapped."""
    siblings: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for resource, rule in fields():
        holder, _, last = rule.path.rpartition(".")
        kind = "number" if rule.aspect in NUMBERS else rule.aspect
        siblings[resource, holder][last] = kind
    for (resource, holder), kinds in siblings.items():
        for one, other in combinations(kinds, 2):
            if kinds[one] == kinds[other]:
                path = f"{holder}.{one}" if holder else one
                yield http_fault(
                    "pair swapped",
                    f"{key_of(resource)} {resource} {path} and {other}",
                    key_of(resource),
                    _at(resource, path, _swapped(other)),
                )


def _swapped(other: str) -> Change:
    def change(holder: dict[str, Any], key: str) -> None:
        if other in holder:
            holder[key], holder[other] = holder[other], holder[key]

    return change
