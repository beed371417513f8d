"""Interface 2.2, 4.2 and 7.2: the readiness of a node, and the chain and genesis that it names."""

import hashlib
import re
from collections.abc import Iterator

from conformance.checks.native import members_of, native_get
from conformance.checks.native_named import texts_in
from conformance.checks.reading import ABSENT
from conformance.context import Context
from conformance.editions import FOURTH, SIXTH
from conformance.findings import Skipped
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.strictjson import Json, brief

# These have the identity of the chain, or of its genesis.
NAMING = ("/api/network", "/api/model/checkpoint.json", "/api/inference")
_NAME = re.compile(
    r"(chain|genesis)(_?(id|hash|identity|name|sha256|digest))?\Z", re.ASCII | re.IGNORECASE
)

# The states of interface 7.2 in which /healthz has status 503.
NOT_READY = ("unavailable", "catching up", "stalled")


@requirement("NT-ROUTE-001", "NT-RULE-001", "NT-RULE-002", "NT-RULE-024")
def native_healthz(context: Context) -> None:
    """GET /healthz."""
    answer = native_get(context, "/healthz")
    if answer.status in ABSENT:
        context.fails("NT-ROUTE-001", f"the route does not exist: status {answer.status}", answer)
        return
    context.holds("NT-ROUTE-001", answer)
    context.judge(
        "NT-RULE-001", answer.ok or answer.status == 503, f"status {answer.status}", answer
    )
    page = answer.media_type == "text/html" and answer.body.lstrip()[:1] == b"<"
    if context.edition >= SIXTH and answer.ok and page:
        # It may be empty, or a word, since its status says it all; a page is that of another.
        context.fails("NT-RULE-024", "/healthz is a page of HTML", answer)
    if context.edition >= FOURTH:
        words = {re.sub(r"[_-]+", " ", text).strip().lower() for text in texts_in(_read(answer))}
        told = sorted(words.intersection(NOT_READY))
        if told and (answer.ok or answer.status == 503):
            why = f"it says that the node is {', '.join(told)}, with status {answer.status}"
            context.judge("NT-RULE-002", not answer.ok, why, answer)


def _read(answer: Answer) -> Json:
    return answer.json_object() or answer.body.decode("utf-8", "replace")


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


_PART = re.compile(r"(owner|power|voting_power|bond)(_atoms)?\Z", re.ASCII | re.IGNORECASE)
_DIGEST = re.compile(r"[0-9a-f]{64}\Z", re.ASCII | re.IGNORECASE)


@requirement("NT-RULE-055")
def native_validators_whole(context: Context) -> None:
    """GET the validators: what is called owner, power or bond of one of them is not null."""
    answer = native_get(context, "/api/validators")
    named = [
        (name, value)
        for name, value in members_of(answer.json_object() if answer.ok else None)
        if _PART.match(name)
    ]
    if not named:
        raise Skipped("nothing of a validator is called owner, power or bond")
    empty = sorted({name for name, value in named if value is None})
    context.judge("NT-RULE-055", not empty, f"{brief(empty)} is null", answer)


@requirement("NT-RULE-056")
def native_dataset_bound(context: Context) -> None:
    """GET the genesis and the dataset, and compare the digest that the genesis names."""
    genesis = native_get(context, "/network/genesis.json")
    named = [
        digest
        for name, value in members_of(genesis.json_object() if genesis.ok else None)
        if "dataset" in name.lower()
        for digest in _digests(value, deep=context.edition >= FOURTH)
    ]
    dataset = native_get(context, "/network/dataset.json")
    if not named or not dataset.ok:
        raise Skipped("the genesis names no digest of a dataset, or none is served")
    digest = hashlib.sha256(dataset.body).hexdigest()
    why = f"the genesis names {brief(named)}, and what is served has {digest}"
    held = digest in (value.lower() for value in named)
    context.judge("NT-RULE-056", held, why, genesis, dataset)


def _digests(value: Json, *, deep: bool) -> list[str]:
    """Return the digest that a value is, or those that are in it."""
    inner = [one for _, one in members_of(value)] if deep else []
    return [one for one in (value, *inner) if isinstance(one, str) and _DIGEST.match(one)]


@requirement("NT-RULE-045")
def native_reference_apart(context: Context) -> None:
    """GET the blocks, and the declared views of the earlier chain, which has none of them."""
    answer = native_get(context, "/api/blocks", {"limit": 10})
    present = set(_hashes(answer.json_object() if answer.ok else None))
    # And the older ones, as far as a page goes, and the first.
    for query in ({"limit": 100}, {"limit": 10, "before": 11}) if context.edition >= FOURTH else ():
        more = native_get(context, "/api/blocks", {**query})
        present |= set(_hashes(more.json_object() if more.ok else None))
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
