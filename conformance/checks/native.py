"""Interface 4.2 and 7.2: which routes the native API has, and what can be judged of their answers.

The document does not give the names and types of the fields. A target can declare more about
itself: paths in `[target.field_map]`, one public key, one request ID, one artifact.
"""

import hashlib
import re
from collections.abc import Iterator
from typing import Any

from conformance.checks.passes import FOUND_SINCE
from conformance.checks.reading import ABSENT, judge_route, served
from conformance.context import Context
from conformance.editions import FOURTH, SEVENTH
from conformance.findings import Skipped
from conformance.httpwire import Answer, Unanswered
from conformance.registry import requirement
from conformance.shapes import has_empty_list, lookup
from conformance.strictjson import Json, NotJson, brief, is_int

# The routes that can be read without knowing anything about the target, by their requirement.
READABLE: dict[str, tuple[str, dict[str, object]]] = {
    "NT-ROUTE-002": ("/api/network", {}),
    "NT-ROUTE-003": ("/api/model", {}),
    "NT-ROUTE-004": ("/api/model/checkpoint.json", {}),
    "NT-ROUTE-005": ("/api/training", {"limit": 3}),
    "NT-ROUTE-006": ("/api/blocks", {"limit": 3}),
    "NT-ROUTE-009": ("/api/validators", {}),
    "NT-ROUTE-010": ("/api/inference", {}),
    "NT-ROUTE-012": ("/network/genesis.json", {}),
    "NT-ROUTE-013": ("/network/dataset.json", {}),
    "NT-ROUTE-015": ("/work/status", {}),
}


OK = 200
# How the reading of an answer without end is reported.
# What clients of such paths have sent.
REGISTRATION: dict[str, Json] = {"name": "conformance", "email": "conformance@node.invalid"}
ENDLESS = ("cut: longer", "timeout: not finished")


def native_get(context: Context, path: str, query: dict[str, object] | None = None) -> Answer:
    """GET a native resource, a second time after an error of the server.

    What it says is compared with what the answers before have said of the same thing.
    """
    # Not `context.api`: the passive checks judge the node API, and native errors are not specified.
    answer = served(lambda: context.http.call("GET", path, query=query))
    context.service.heard.judge_native(context, context.target.field_map, path, query or {}, answer)
    return answer


def members_of(document: Json) -> Iterator[tuple[str, Json]]:
    """Yield every member of every object in a document, with its name."""
    if isinstance(document, dict):
        yield from document.items()
    inner = document.values() if isinstance(document, dict) else document
    for value in inner if isinstance(document, dict | list) else ():
        yield from members_of(value)


def judge_contents(context: Context, path: str, answer: Answer) -> None:
    """Rule on whether a resource has contents."""
    context.judge("NT-RULE-024", _has_contents(answer), f"{path}: {_shown(answer)}", answer)


def judge_strict(context: Context, answer: Answer) -> None:
    """Rule on whether what calls itself JSON is JSON, without a key twice in an object."""
    if not answer.media_type.endswith("json"):
        return
    try:
        repeated = answer.parsed().repeated_keys
    except NotJson as error:
        context.fails("NT-RULE-017", f"not JSON: {error}", answer)
    else:
        context.judge("NT-RULE-017", not repeated, f"duplicate keys: {repeated}", answer)


def _has_contents(answer: Answer) -> bool:
    """Return whether the body can be one of the documented resources, in whatever encoding."""
    if not answer.body.strip() or answer.media_type == "text/html":
        return False
    try:
        value = answer.json()
    except NotJson:
        # Another encoding is allowed.
        return answer.media_type != "application/json"
    # A list may have no entries yet; an object without members says nothing.
    return isinstance(value, list) or (isinstance(value, dict) and bool(value))


def _shown(answer: Answer) -> str:
    return f"{answer.media_type or 'no type'} {answer.body[:40]!r}"


@requirement(*READABLE, "NT-RULE-017", "NT-RULE-024", "NA-AUTH-013")
def native_routes(context: Context) -> None:
    """GET every route that takes no value from the target, without a token."""
    for ident, (path, query) in READABLE.items():
        try:
            answer = native_get(context, path, query)
        except Unanswered as reason:
            # A checkpoint may be too long to read in full. That its bytes arrive is enough.
            status = (reason.exchange.response or {}).get("status")
            if status != OK or not reason.why.startswith(ENDLESS):
                raise
            context.holds(ident, reason.exchange)
            context.holds("NA-AUTH-013", reason.exchange)
            continue
        if answer.status in (401, 403):
            # Requiring a key violates a sentence of its own; whether the route exists stays open.
            context.fails("NA-AUTH-013", f"{path}: status {answer.status} without a key", answer)
            continue
        if not judge_route(context, ident, answer, auth=False):
            continue
        context.holds("NA-AUTH-013", answer)
        judge_contents(context, path, answer)
        judge_strict(context, answer)


@requirement("NT-RULE-009", "NT-RULE-010")
def native_legacy(context: Context) -> None:
    """GET the legacy paths that the target declares."""
    for path in context.target.legacy_gone:
        answer = native_get(context, path)
        context.judge("NT-RULE-009", answer.status == 410, f"{path}: {answer.status}", answer)
    for path in context.target.legacy_redirected:
        answer = native_get(context, path)
        there = answer.header("Location").split("?")[0].rstrip("/")
        context.judge(
            "NT-RULE-010",
            300 <= answer.status < 400 and there.endswith("/join"),
            f"{path}: {answer.status} to {there!r}",
            answer,
        )


@requirement("NT-RULE-038", "NT-RULE-042", "NT-RULE-010")
def native_register(context: Context) -> None:
    """POST an empty object to the old registration, login and signup paths that are declared."""
    for path in context.target.legacy_redirected if context.edition >= FOURTH else ():
        answer = context.http.call("POST", path, json_body={})
        why = f"POST {path} with an empty object: status {answer.status}"
        context.judge("NT-RULE-010", not answer.ok, why, answer)
    for path in context.target.legacy_gone:
        answer = context.http.call("POST", path, json_body={})
        why = f"POST {path} with an empty object: status {answer.status}"
        context.judge("NT-RULE-038", not answer.ok, why, answer)
        if not answer.ok:
            context.judge("NT-RULE-042", answer.status == 410, why, answer)
        if context.edition >= SEVENTH:
            answer = context.http.call("POST", path, json_body=REGISTRATION)
            why = f"POST {path} with {brief(REGISTRATION)}: status {answer.status}"
            if context.judge("NT-RULE-038", not answer.ok, why, answer):
                context.judge("NT-RULE-042", answer.status == 410, why, answer)


# -- what needs a declaration ----------------------------------------------------------------------

# The first edition for which null at a declared place is nothing, and each place counts.
NULL_SINCE = 4
_ATOMS = re.compile(r"-?\d+\Z", re.ASCII)


def mapped(context: Context, name: str, document: Json) -> list[Json]:
    """Return the values at the paths that `[target.field_map]` declares, or raise `Skipped`."""
    paths = context.target.field_map.get(name)
    if paths is None:
        raise Skipped(f"[target.field_map] has no {name!r}")
    values = [value for path in paths for value in lookup(document, path)]
    # 7.0 is the integer 7, and must look like one in a request.
    return [int(value) if is_int(value) else value for value in values]


def judge_mapped(
    context: Context, name: str, document: Json, answer: Answer, ident: str = "NT-RULE-026"
) -> bool:
    """Rule on whether values are where the target says that they are."""
    paths = context.target.field_map[name]
    found = {path: lookup(document, path) for path in paths}
    if context.edition >= NULL_SINCE:
        found = {path: [v for v in values if v is not None] for path, values in found.items()}
    empty = [path for path in paths if not found[path]]
    held = len(empty) < len(paths)
    if context.edition >= NULL_SINCE:
        # A list may have no entries.
        empty = [path for path in empty if not has_empty_list(document, path)]
        held = not empty
    return context.judge(ident, held, f"{name}: nothing at {', '.join(empty)}", answer)


def document_at(context: Context, path: str, query: dict[str, object] | None = None) -> Any:
    """GET a resource; return the answer, and the object in it or None."""
    answer = native_get(context, path, query)
    document = answer.json_object() if answer.ok else None
    return answer, document


@requirement("NT-ROUTE-007", "NT-RULE-024", "NT-RULE-026")
def native_block(context: Context) -> None:
    """GET the first block of the block list, or the block at height 1."""
    height: Json = 1
    if "/api/blocks height" in context.target.field_map:
        answer, document = document_at(context, "/api/blocks", {"limit": 1})
        heights = mapped(context, "/api/blocks height", document)
        if answer.ok and not judge_mapped(context, "/api/blocks height", document, answer):
            return
        if not heights:
            raise Skipped(f"no block at the mapped path, status {answer.status}")
        height = heights[0]
    named = "/api/blocks height" in context.target.field_map
    if not named and context.edition >= FOUND_SINCE:
        _, document = document_at(context, "/api/blocks", {"limit": 1})
        heights = _called(document, "height")
        named, height = bool(heights), heights[0] if heights else height
    answer = native_get(context, f"/api/block/{height}")
    if answer.ok or named or answer.status in (405, 501):
        if judge_route(context, "NT-ROUTE-007", answer, auth=False):
            judge_contents(context, f"/api/block/{height}", answer)
    else:
        raise Skipped("no block at height 1, and no heights in [target.field_map]")


def _called(document: Json, name: str) -> list[int]:
    """Return the whole numbers, or the texts of such, under keys of this name at any depth."""
    found: list[int] = []
    if isinstance(document, dict):
        value = document.get(name)
        if is_int(value) or (isinstance(value, str) and value.isdecimal()):
            found.append(int(str(value).partition(".")[0]))
    inner = document.values() if isinstance(document, dict) else document
    for value in inner if isinstance(document, dict | list) else ():
        found += _called(value, name)
    return found


@requirement("NT-ROUTE-014", "NT-RULE-019")
def native_artifact(context: Context) -> None:
    """GET the declared artifact and compare its SHA-256 with the one in its path."""
    digest = context.target.artifact or ""
    answer = native_get(context, f"/artifacts/sha256/{digest}")
    if judge_route(context, "NT-ROUTE-014", answer, auth=False):
        _judge_digest(context, digest.lower(), answer)
        if context.edition >= NULL_SINCE:
            # What is not there does not take away what is.
            native_get(context, f"/artifacts/sha256/{digest[::-1]}")
            again = native_get(context, f"/artifacts/sha256/{digest}")
            judge_route(context, "NT-ROUTE-014", again, auth=False)
    for other in named_digests(context, digest.lower()):
        try:
            answer = native_get(context, f"/artifacts/sha256/{other}")
        except Unanswered:
            # It may be too long to read in full.
            continue
        if answer.ok:
            _judge_digest(context, other, answer)


def _judge_digest(context: Context, digest: str, answer: Answer) -> None:
    found = hashlib.sha256(answer.body).hexdigest()
    context.judge("NT-RULE-019", found == digest, f"{digest} has the digest {found}", answer)


def named_digests(context: Context, known: str) -> list[str]:
    """Return what may name further artifacts: digests in the resources of model and network."""
    found: dict[str, None] = {}
    paths = ["/api/model/checkpoint.json", "/api/model", "/api/network"]
    if context.edition >= NULL_SINCE:
        paths += ["/network/genesis.json", "/network/dataset.json"]
    for path in paths:
        answer = native_get(context, path)
        if answer.ok and len(answer.body) <= MAX_SEARCHED:
            text = answer.body.decode("utf-8", "replace").lower()
            found |= dict.fromkeys(_DIGEST.findall(text))
    return [digest for digest in found if digest != known][:MAX_ARTIFACTS]


@requirement("NT-ROUTE-019", "NT-RULE-020", "NT-RULE-024")
def native_reference(context: Context) -> None:
    """GET the declared views of the earlier chain, and POST to each, which must not succeed."""
    for path in context.target.reference:
        answer = native_get(context, path)
        if judge_route(context, "NT-ROUTE-019", answer, auth=False):
            judge_contents(context, path, answer)
        written = context.http.call("POST", path, json_body={"conformance": 1})
        context.judge(
            "NT-RULE-020", not written.ok, f"POST {path}: status {written.status}", written
        )


# Resources are searched for digests up to this length.
MAX_SEARCHED, MAX_ARTIFACTS = 1_000_000, 8
_DIGEST = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
MONEY = ("/api/network", "/api/account", "/api/validators", "/api/inference")


@requirement("NT-RULE-011", "NT-RULE-026")
def native_money(context: Context) -> None:
    """GET the resources with amounts of money, and judge the fields that the target declares."""
    for path in MONEY:
        if f"{path} money" not in context.target.field_map:
            continue
        if path == "/api/account" and not context.target.public_key:
            continue
        query: dict[str, object] = (
            {"public_key": context.target.public_key} if path == "/api/account" else {}
        )
        answer, document = document_at(context, path, query)
        values = mapped(context, f"{path} money", document)
        if answer.ok and path != "/api/validators":
            judge_mapped(context, f"{path} money", document, answer)
        if values:
            wrong = [
                value for value in values if not (isinstance(value, str) and _ATOMS.match(value))
            ]
            context.judge("NT-RULE-011", not wrong, f"{path}: {brief(wrong)}", answer)


@requirement("NT-RULE-037")
def native_pair_later(context: Context) -> None:
    """Compare height and hash in GET /api/network with the block, after what the run has spent."""
    answer, document = document_at(context, "/api/network")
    heights = mapped(context, "/api/network height", document)
    hashes = mapped(context, "/api/network hash", document)
    if not heights or not hashes:
        raise Skipped("no pair at the mapped paths")
    block_answer, block = document_at(context, f"/api/block/{heights[0]}")
    if found := mapped(context, "/api/block hash", block):
        same = str(found[0]).lower() == str(hashes[0]).lower()
        shown = f"/api/network has {brief(hashes[0])} at {heights[0]}, the block {brief(found[0])}"
        context.judge("NT-RULE-037", same, shown, answer, block_answer)


@requirement("NT-RULE-021", "NT-RULE-025", "NT-RULE-026")
def native_pair(context: Context) -> None:
    """Compare the height and hash in GET /api/network with the block at that height."""
    answer, document = document_at(context, "/api/network")
    heights = mapped(context, "/api/network height", document)
    if answer.ok and not judge_mapped(context, "/api/network height", document, answer):
        return
    hashes = mapped(context, "/api/network hash", document)
    if answer.ok and context.edition >= FOURTH:
        judge_mapped(context, "/api/network hash", document, answer)
    if not heights or not hashes:
        raise Skipped("no pair at the mapped paths")
    block_answer, block = document_at(context, f"/api/block/{heights[0]}")
    if "/api/block height" in context.target.field_map and block is not None:
        there = mapped(context, "/api/block height", block)
        shown = f"the block at {heights[0]} has the height {brief(there)}"
        held = [str(value) for value in there] == [str(heights[0])]
        context.judge("NT-RULE-025", held, shown, answer, block_answer)
    found = mapped(context, "/api/block hash", block)
    if not found and block is None and is_int(heights[0]):
        # The hash may show whose height it is.
        below_answer, below = document_at(context, f"/api/block/{int(heights[0]) - 1}")
        there = [str(value).lower() for value in mapped(context, "/api/block hash", below)]
        if str(hashes[0]).lower() in there:
            shown = f"/api/network has the height {heights[0]} with the hash of the block below"
            context.fails("NT-RULE-021", shown, answer, block_answer, below_answer)
        return
    if found:
        same = str(found[0]).lower() == str(hashes[0]).lower()
        shown = f"/api/network has {brief(hashes[0])}, the block has {brief(found[0])}"
        context.judge("NT-RULE-021", same, shown, answer, block_answer)


@requirement("NT-ROUTE-016", "NT-ROUTE-017")
def native_work(context: Context) -> None:
    """POST an empty object to the worker routes, whose bodies the document does not specify."""
    control = context.http.call("POST", "/work/no-such-route-of-the-document", json_body={})
    for ident, path in (("NT-ROUTE-016", "/work/poll"), ("NT-ROUTE-017", "/work/result")):
        answer = context.http.call("POST", path, json_body={})
        missing = (answer.status, answer.body) == (control.status, control.body)
        # A 404 may be about the worker instead of the route, but then it says something else.
        if answer.status in ABSENT and missing:
            context.wrong(ident, f"status {answer.status}, as for no route", answer, control)
        elif answer.status in (405, 501):
            context.fails(ident, f"status {answer.status} to a POST", answer)
        elif answer.status in (404, 410) or answer.status >= 500:
            context.observe(ident, f"status {answer.status}", answer)
        else:
            context.holds(ident, answer)


@requirement("NT-SILENT-006")
def native_errors(context: Context) -> None:
    """GET resources that cannot exist, to observe the body of a native error."""
    for path in ("/api/block/none", "/api/account", "/artifacts/sha256/none", "/api/no-such-path"):
        answer = native_get(context, path)
        context.observe("NT-SILENT-006", f"{path}: {answer.status} {brief(answer.body)}", answer)
