"""Interface 2.2 and 4.2: the chain and its genesis, which several native resources name."""

import re
from collections.abc import Iterator

from conformance.checks.native import native_get
from conformance.context import Context
from conformance.findings import Skipped
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.strictjson import Json, brief

# These have the identity of the chain, or of its genesis.
NAMING = ("/api/network", "/api/model/checkpoint.json", "/api/inference")
_NAME = re.compile(r"(chain|genesis)(_?(id|hash|identity|name))?\Z", re.ASCII | re.IGNORECASE)


@requirement("NT-RULE-043")
def native_identity(context: Context) -> None:
    """GET the resources that name the chain, and compare the values under the same name."""
    found: dict[str, list[tuple[str, str, Answer]]] = {}
    for path in NAMING:
        answer = native_get(context, path)
        document = (answer.json_object() or {}) if answer.ok else {}
        # Not deeper: another chain may be named there, such as the earlier one.
        for name, value in document.items():
            if isinstance(value, str) and _NAME.match(name):
                found.setdefault(name, []).append((path, value, answer))
    several = {name: values for name, values in found.items() if len(values) > 1}
    if not several:
        raise Skipped("no two resources name the chain in the same way")
    for name, values in several.items():
        same = len({value for _, value, _ in values}) == 1
        shown = ", ".join(f"{path} {brief(value)}" for path, value, _ in values)
        answers = {id(answer): answer for _, _, answer in values}
        context.judge("NT-RULE-043", same, f"{name}: {shown}", *answers.values())


@requirement("NT-RULE-045")
def native_reference_apart(context: Context) -> None:
    """GET the blocks, and the declared views of the earlier chain, which has none of them."""
    answer = native_get(context, "/api/blocks", {"limit": 10})
    present = set(_hashes(answer.json_object() if answer.ok else None))
    for path in context.target.reference if present else ():
        view = native_get(context, path)
        shared = present & set(_hashes(view.json_object() if view.ok else None))
        why = f"{path} has blocks of the present chain: {brief(sorted(shared)[:2])}"
        context.judge("NT-RULE-045", not shared, why, answer, view)


def _hashes(document: Json) -> Iterator[str]:
    """Yield the hash of each block in the lists of a document."""
    if isinstance(document, dict):
        for value in document.values():
            rows = value if isinstance(value, list) else []
            yield from (
                row["hash"].lower()
                for row in rows
                if isinstance(row, dict) and isinstance(row.get("hash"), str)
            )
