"""Interface 2.2 and 4.2: what is read in the documents of the native API, which names no fields.

Heights and rounds are found by the target's declaration, or under keys of their own names.
"""

import re
from collections.abc import Iterator
from typing import Any

from conformance.checks.native import native_get
from conformance.context import Context
from conformance.httpwire import Answer
from conformance.shapes import lookup
from conformance.strictjson import Json, brief, is_int

# A whole number of atoms, as a text.
ATOMS = re.compile(r"-?\d+\Z", re.ASCII)


def read(context: Context, path: str, query: dict[str, object]) -> tuple[Answer, Any]:
    """GET a resource; return the answer and its document, None if it is refused."""
    answer = native_get(context, path, query)
    return answer, answer.json_object() if answer.ok else None


def numbers_of(context: Context, name: str, key: str, document: Json) -> list[int]:
    """Return the heights or rounds of the entries of a page."""
    paths = context.target.field_map.get(name)
    if paths is not None:
        return [int(v) for path in paths for v in lookup(document, path) if is_int(v)]
    lists = [v for v in document.values() if isinstance(v, list)] if document else []
    entries = lists[0] if len(lists) == 1 else []
    found = [entry.get(key) for entry in entries if isinstance(entry, dict)]
    return [int(value) for value in found if is_int(value)]


def entries_of(numbers: list[int], document: Json) -> Iterator[tuple[int, Json]]:
    """Yield the entries of a page with their numbers, where it has one list of as many."""
    lists = [v for v in document.values() if isinstance(v, list)] if document else []
    fitting = [some for some in lists if len(some) == len(numbers)]
    if len(fitting) == 1:
        yield from zip(numbers, fitting[0], strict=True)


def under(document: Json, name: str) -> Iterator[Json]:
    """Yield the values under keys of this name at any depth."""
    if isinstance(document, dict):
        if name in document:
            yield document[name]
        for value in document.values():
            yield from under(value, name)
    elif isinstance(document, list):
        for value in document:
            yield from under(value, name)


def atoms(document: Json, key: str = "") -> Iterator[tuple[str, Json]]:
    """Yield the values that call themselves atoms, with their keys."""
    if isinstance(document, dict):
        for name, value in document.items():
            yield from atoms(value, name)
    elif isinstance(document, list):
        for value in document:
            yield from atoms(value, key)
    elif re.search(r"(^|_)atoms$", key):
        yield key, document


def objects(document: Json) -> Iterator[dict[str, Json]]:
    """Yield the objects in a document, at any depth."""
    if isinstance(document, dict):
        yield document
    inner = document.values() if isinstance(document, dict) else document
    for value in inner if isinstance(document, dict | list) else ():
        yield from objects(value)


def judge_atoms(context: Context, answer: Answer, document: Json) -> None:
    """Rule on amounts whose names say that they are in atoms."""
    found = [(key, value) for key, value in atoms(document) if value is not None]
    if found:
        wrong = {k: v for k, v in found if not (isinstance(v, str) and ATOMS.match(v))}
        context.judge("NT-RULE-029", not wrong, brief(wrong), answer)
