"""Interface 2.1 and 6: whether a JSON object has the documented fields with the documented types.

The rules are the entries of the catalogue that have a `field`. A path names nested keys with dots,
every entry of an array with `[]`, and those entries of an array whose key has a value with
`[key=value]`.

Invariant: a field is judged only if the object around it exists and is an object, so that one fault
violates one requirement and not all those below it.
"""

import re
from collections.abc import Iterator
from functools import cache

from conformance.catalogue import Condition, FieldRule, fields_of, load
from conformance.editions import FIFTH
from conformance.findings import Findings, Shown
from conformance.strictjson import TYPES, Json, brief, is_number
from conformance.times import date_fault, timestamp_fault

# How a date and the time behind it are written; RFC 3339 also allows a space between them.
SEPARATED = "GEN-020"
# Every check of a shape may also rule on the requirements about formats.
FORMATS = {"timestamp": ("GEN-008", timestamp_fault), "date": ("GEN-009", date_fault)}
FORMAT_IDS = (*(ident for ident, _ in FORMATS.values()), SEPARATED)

_STEP = re.compile(r"(?P<key>[^\[\]]+)(?:\[(?P<where>[^\]]*)\])?\Z")
_Step = tuple[str, str | None]
"""A key; for an array also what its entries have to have, or nothing."""


def parents(document: Json, path: str) -> Iterator[tuple[dict[str, Json], str, str]]:
    """Yield each object that should hold the last key of the path, that key, and its full path."""
    steps, last = _parsed(path)
    yield from _descend(document, steps, last, "")


def is_path(text: str) -> bool:
    """Whether it is a path: keys with dots between them, of which some have [] for each entry."""
    *steps, last = text.split(".")
    return all(_STEP.match(step) for step in steps) and last != "" and "[" not in last


@cache
def _parsed(path: str) -> tuple[tuple[_Step, ...], str]:
    """Return the steps of a path up to its last key, and that key."""
    *steps, last = path.split(".")
    return tuple(map(_step, steps)), last


def _step(text: str) -> _Step:
    match = _STEP.match(text)
    if match is None:
        raise ValueError(f"not a step of a path: {text!r}")
    return match["key"], match["where"]


def _descend(
    value: Json, steps: tuple[_Step, ...], last: str, where: str
) -> Iterator[tuple[dict[str, Json], str, str]]:
    if not isinstance(value, dict):
        return
    if not steps:
        yield value, last, f"{where}{last}"
        return
    (key, condition), *_ = steps
    inner = value.get(key)
    if condition is None:
        yield from _descend(inner, steps[1:], last, f"{where}{key}.")
        return
    for index, entry in enumerate(inner if isinstance(inner, list) else ()):
        if condition and not _fits(entry, condition):
            continue
        yield from _descend(entry, steps[1:], last, f"{where}{key}[{index}].")


def _fits(entry: Json, condition: str) -> bool:
    key, _, wanted = condition.partition("=")
    return isinstance(entry, dict) and entry.get(key) == wanted


def lookup(document: Json, path: str) -> list[Json]:
    """Return every value at the path; an empty list if there is none."""
    return [holder[key] for holder, key, _ in parents(document, path) if key in holder]


def has_empty_list(document: Json, path: str) -> bool:
    """Whether one of the arrays on the way of a path has no entries."""
    ways = [path[: found.start()] for found in re.finditer(r"\[\]", path)]
    return any([] in lookup(document, way) for way in ways)


def _met(document: Json, condition: Condition) -> bool:
    for value in lookup(document, condition.path):
        if condition.above is not None:
            return is_number(value) and value > condition.above
        return bool(value is condition.equals)
    return False


def judge_shape(findings: Findings, resource: str, document: Json, *shown: Shown) -> None:
    """Rule on every field of the resource that the JSON document shows."""
    catalogue = load()
    lists = set[str]()
    for ident in fields_of(resource):
        rule = catalogue[ident].field
        if rule is None or (rule.when is not None and not _met(document, rule.when)):
            continue
        of_entries, _, _ = rule.path.rpartition("[].")
        if findings.edition >= FIFTH and of_entries and of_entries not in lists:
            lists.add(of_entries)
            _judge_entries(findings, ident, rule, document, shown)
        _judge_field(findings, ident, rule, document, shown)


def _judge_entries(
    findings: Findings, ident: str, rule: FieldRule, document: Json, shown: tuple[Shown, ...]
) -> None:
    """Rule on the entries of an array: what is no object has none of the fields of one.

    It is said of one of these fields only.
    """
    path, _, key = rule.path.rpartition("[].")
    for entries in lookup(document, path):
        listed = entries if isinstance(entries, list) else []
        bare = [entry for entry in listed if not isinstance(entry, dict)]
        if bare:
            why = f"an entry of {path} is {brief(bare[0])}, and has no {key}"
            findings.fails(ident, why, *shown)


def _judge_field(
    findings: Findings,
    ident: str,
    rule: FieldRule,
    document: Json,
    shown: tuple[Shown, ...],
) -> None:
    faults: list[str] = []
    looked_at = 0
    for holder, key, where in parents(document, rule.path):
        if rule.aspect == "present":
            looked_at += 1
            if key not in holder:
                faults.append(f"{where} is missing")
        elif key in holder:
            looked_at += 1
            value = holder[key]
            if not TYPES[rule.aspect](value):
                faults.append(f"{where} is {brief(value)}, not {rule.aspect}")
            elif rule.format is not None:
                format_ident, find_fault = FORMATS[rule.format]
                fault = find_fault(value)
                findings.judge(
                    format_ident, fault is None, f"{where} is {brief(value)}: {fault}", *shown
                )
                if rule.format == "timestamp" and fault is None:
                    why = f"{where} is {brief(value)}, with a space"
                    findings.judge(SEPARATED, " " not in value.strip(), why, *shown)
    if looked_at:
        findings.judge(ident, not faults, "; ".join(faults[:3]), *shown)
