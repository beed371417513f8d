"""Interface 4.2 and 7.2: which routes the native API has, and what can be judged of their answers.

The document does not give the names and types of the fields. A target can declare more about
itself: paths in `[target.field_map]`, one public key, one request ID, one artifact.
"""

import hashlib
import json
import re
from typing import Any

from conformance.checks.reading import ABSENT, judge_route
from conformance.context import Context
from conformance.findings import Skipped
from conformance.httpwire import Answer, Unanswered
from conformance.registry import requirement
from conformance.shapes import lookup
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
ENDLESS = ("cut: longer", "timeout: not finished")


def _get(context: Context, path: str, query: dict[str, object] | None = None) -> Answer:
    # Not `context.api`: the passive checks judge the node API, and native errors are not specified.
    return context.http.call("GET", path, query=query)


@requirement(*READABLE, "NT-RULE-017", "NA-AUTH-013")
def native_routes(context: Context) -> None:
    """GET every route that takes no value from the target, without a token."""
    for ident, (path, query) in READABLE.items():
        try:
            answer = _get(context, path, query)
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
        if not answer.media_type.endswith("json"):
            continue
        try:
            repeated = answer.parsed().repeated_keys
        except NotJson as error:
            context.fails("NT-RULE-017", f"not JSON: {error}", answer)
        else:
            context.judge("NT-RULE-017", not repeated, f"duplicate keys: {repeated}", answer)


@requirement("NT-ROUTE-001", "NT-RULE-001")
def native_healthz(context: Context) -> None:
    """GET /healthz."""
    answer = _get(context, "/healthz")
    if answer.status in ABSENT:
        context.fails("NT-ROUTE-001", f"the route does not exist: status {answer.status}", answer)
        return
    context.holds("NT-ROUTE-001", answer)
    context.judge(
        "NT-RULE-001", answer.ok or answer.status == 503, f"status {answer.status}", answer
    )


@requirement("NT-RULE-009", "NT-RULE-010")
def native_legacy(context: Context) -> None:
    """GET the legacy paths that the target declares."""
    for path in context.target.legacy_gone:
        answer = _get(context, path)
        context.judge("NT-RULE-009", answer.status == 410, f"{path}: {answer.status}", answer)
    for path in context.target.legacy_redirected:
        answer = _get(context, path)
        there = answer.header("Location").split("?")[0].rstrip("/")
        context.judge(
            "NT-RULE-010",
            300 <= answer.status < 400 and there.endswith("/join"),
            f"{path}: {answer.status} to {there!r}",
            answer,
        )


# -- what needs a declaration ----------------------------------------------------------------------

_ATOMS = re.compile(r"-?\d+\Z", re.ASCII)


def mapped(context: Context, name: str, document: Json) -> list[Json]:
    """Return the values at the paths that `[target.field_map]` declares, or raise `Skipped`."""
    paths = context.target.field_map.get(name)
    if paths is None:
        raise Skipped(f"[target.field_map] has no {name!r}")
    values = [value for path in paths for value in lookup(document, path)]
    # 7.0 is the integer 7, and must look like one in a request.
    return [int(value) if is_int(value) else value for value in values]


def _document(context: Context, path: str, query: dict[str, object] | None = None) -> Any:
    answer = _get(context, path, query)
    document = answer.json_object() if answer.ok else None
    return answer, document


@requirement("NT-ROUTE-007")
def native_block(context: Context) -> None:
    """GET the first block of the block list, or the block at height 1."""
    height: Json = 1
    if "/api/blocks height" in context.target.field_map:
        answer, document = _document(context, "/api/blocks", {"limit": 1})
        heights = mapped(context, "/api/blocks height", document)
        if not heights:
            raise Skipped(f"no block at the mapped path, status {answer.status}")
        height = heights[0]
    answer = _get(context, f"/api/block/{height}")
    if answer.ok or "/api/blocks height" in context.target.field_map:
        judge_route(context, "NT-ROUTE-007", answer, auth=False)
    else:
        raise Skipped("no block at height 1, and no heights in [target.field_map]")


@requirement("NT-ROUTE-008")
def native_account(context: Context) -> None:
    """GET the account of the declared public key."""
    answer = _get(context, "/api/account", {"public_key": context.target.public_key})
    judge_route(context, "NT-ROUTE-008", answer, auth=False)


@requirement("NT-ROUTE-011", "ST-003")
def native_request(context: Context) -> None:
    """GET the declared inference request, which was made recently."""
    answer = _get(context, "/api/inference/request", {"id": context.target.request_id})
    if judge_route(context, "NT-ROUTE-011", answer, auth=False):
        context.holds("ST-003", answer)


@requirement("NT-ROUTE-014", "NT-RULE-019")
def native_artifact(context: Context) -> None:
    """GET the declared artifact and compare its SHA-256 with the one in its path."""
    digest = context.target.artifact or ""
    answer = _get(context, f"/artifacts/sha256/{digest}")
    if judge_route(context, "NT-ROUTE-014", answer, auth=False):
        found = hashlib.sha256(answer.body).hexdigest()
        context.judge("NT-RULE-019", found == digest.lower(), f"its digest is {found}", answer)


@requirement("NT-ROUTE-019", "NT-RULE-020")
def native_reference(context: Context) -> None:
    """GET the declared views of the earlier chain, and POST to each, which must not succeed."""
    for path in context.target.reference:
        judge_route(context, "NT-ROUTE-019", _get(context, path), auth=False)
        written = context.http.call("POST", path, json_body={"conformance": 1})
        context.judge(
            "NT-RULE-020", not written.ok, f"POST {path}: status {written.status}", written
        )


MONEY = ("/api/network", "/api/account", "/api/validators", "/api/inference")


@requirement("NT-RULE-011")
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
        answer, document = _document(context, path, query)
        values = mapped(context, f"{path} money", document)
        if values:
            wrong = [
                value for value in values if not (isinstance(value, str) and _ATOMS.match(value))
            ]
            context.judge("NT-RULE-011", not wrong, f"{path}: {brief(wrong)}", answer)


@requirement("NT-PAGE-001", "NT-PAGE-002", "NT-PAGE-003")
def native_pages(context: Context) -> None:
    """GET short pages of blocks and of training updates, and pages that end before an entry."""
    for path, name, before in (
        ("/api/blocks", "/api/blocks height", "NT-PAGE-002"),
        ("/api/training", "/api/training round", "NT-PAGE-003"),
    ):
        if name not in context.target.field_map:
            continue
        for limit in (1, 2):
            answer, document = _document(context, path, {"limit": limit})
            listed = mapped(context, name, document)
            if document is not None:
                shown = f"{path}: {len(listed)} entries for limit={limit}"
                context.judge("NT-PAGE-001", len(listed) <= limit, shown, answer)
        answer, document = _document(context, path, {"limit": 5})
        numbers = [value for value in mapped(context, name, document) if is_int(value)]
        if len(numbers) < 2:
            continue
        bound = sorted(numbers)[len(numbers) // 2]
        page_answer, page = _document(context, path, {"limit": 5, "before": bound})
        if page is None:
            shown = f"{path}: status {page_answer.status} to before={bound}"
            context.fails(before, shown, answer, page_answer)
            continue
        # The document does not say whether the bound itself is on the page.
        later = [value for value in mapped(context, name, page) if is_int(value) and value > bound]
        shown = f"{path}: before={bound} lists {brief(later)}"
        context.judge(before, not later, shown, answer, page_answer)


@requirement("NT-RULE-021")
def native_pair(context: Context) -> None:
    """Compare the height and hash in GET /api/network with the block at that height."""
    answer, document = _document(context, "/api/network")
    heights = mapped(context, "/api/network height", document)
    hashes = mapped(context, "/api/network hash", document)
    if not heights or not hashes:
        raise Skipped("no pair at the mapped paths")
    block_answer, block = _document(context, f"/api/block/{heights[0]}")
    found = mapped(context, "/api/block hash", block)
    if found:
        same = str(found[0]).lower() == str(hashes[0]).lower()
        shown = f"/api/network has {brief(hashes[0])}, the block has {brief(found[0])}"
        context.judge("NT-RULE-021", same, shown, answer, block_answer)


# -- /rpc ------------------------------------------------------------------------------------------

PARAMETERS: tuple[dict[str, Json], ...] = ({}, {"height": "1"}, {"height": 1})
# Methods of consensus engines and others that would change a node or reveal its keys.
ADMINISTRATIVE = (
    "unsafe_flush_mempool", "dial_seeds", "dial_peers", "unsafe_start_cpu_profiler",
    "export_private_key", "priv_validator_key", "stop", "shutdown",
)  # fmt: skip


def _rpc(context: Context, method: str, params: Json) -> tuple[Answer, Json]:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    answer = context.http.call("POST", "/rpc", content=json.dumps(body).encode())
    document = answer.json_object()
    # A null result beside an error is a refusal.
    served = answer.ok and document is not None and not document.get("error")
    return answer, document.get("result") if served and document else None


def _served(context: Context, method: str) -> tuple[Answer, bool]:
    for params in PARAMETERS:
        answer, result = _rpc(context, method, params)
        if result is not None:
            return answer, True
    return answer, False


@requirement("NT-ROUTE-018", "NT-RULE-003", "NT-RULE-018", "NT-SILENT-003")
def native_rpc(context: Context) -> None:
    """POST /rpc with the methods status, block and validators, in a JSON-RPC 2.0 envelope."""
    answer, served = _served(context, "status")
    context.observe("NT-SILENT-003", f"JSON-RPC 2.0 is answered with {answer.status}", answer)
    if answer.status in ABSENT and context.target.rpc:
        context.fails("NT-ROUTE-018", f"the route does not exist: status {answer.status}", answer)
        return
    if not served and not context.target.rpc:
        # The document does not specify the envelope, so another one is allowed.
        raise Skipped("POST /rpc does not answer JSON-RPC 2.0, and the target declares no rpc")
    if context.judge("NT-RULE-003", served, f"status: {answer.status} without a result", answer):
        context.holds("NT-ROUTE-018", answer)
    for method in ("block", "validators"):
        answer, served = _served(context, method)
        shown = f"{method}: status {answer.status} without a result"
        context.judge("NT-RULE-018", served, shown, answer)


@requirement("NT-RULE-005")
def native_rpc_closed(context: Context) -> None:
    """POST /rpc with administrative methods, which must be refused, and with the method status."""
    control, served = _served(context, "status")
    for method in ADMINISTRATIVE:
        answer, result = _rpc(context, method, {})
        if result is not None:
            context.fails("NT-RULE-005", f"{method} returns {brief(result)}", control, answer)
        elif served:
            context.holds("NT-RULE-005", control, answer)


# "Method not found" of JSON-RPC 2.0.
NO_METHOD = -32601
RELAYED = {"NT-RULE-022": "abci_query", "NT-RULE-023": "broadcast_tx_sync"}


@requirement(*RELAYED)
def native_rpc_relay(context: Context) -> None:
    """POST /rpc with an empty query, an empty transaction and a method that does not exist."""
    # The parameters are not specified. A refusal that differs from that of a method that does not
    # exist is about the parameters, so the method is known.
    none = "no_such_method_of_the_document"
    control, _ = _rpc(context, none, {})
    for ident, method in RELAYED.items():
        answer, result = _rpc(context, method, {})
        if context.target.rpc and _error_code(answer) == NO_METHOD:
            context.fails(ident, f"{method}: there is no such method", answer)
        elif result is not None or _refusal(answer, method) != _refusal(control, none):
            context.holds(ident, control, answer)


def _error_code(answer: Answer) -> Json:
    error = (answer.json_object() or {}).get("error")
    return error.get("code") if isinstance(error, dict) else None


def _refusal(answer: Answer, method: str) -> tuple[int, str]:
    error = (answer.json_object() or {}).get("error")
    return answer.status, json.dumps(error, sort_keys=True).replace(method, "")


@requirement("NT-ROUTE-016", "NT-ROUTE-017")
def native_work(context: Context) -> None:
    """POST an empty object to the worker routes, whose bodies the document does not specify."""
    for ident, path in (("NT-ROUTE-016", "/work/poll"), ("NT-ROUTE-017", "/work/result")):
        answer = context.http.call("POST", path, json_body={})
        # A 404 may be about the worker instead of the route.
        if answer.status in (405, 501):
            context.fails(ident, f"status {answer.status} to a POST", answer)
        elif answer.status in (404, 410) or answer.status >= 500:
            context.observe(ident, f"status {answer.status}", answer)
        else:
            context.holds(ident, answer)


@requirement("NT-SILENT-006")
def native_errors(context: Context) -> None:
    """GET resources that cannot exist, to observe the body of a native error."""
    for path in ("/api/block/none", "/api/account", "/artifacts/sha256/none", "/api/no-such-path"):
        answer = _get(context, path)
        context.observe("NT-SILENT-006", f"{path}: {answer.status} {brief(answer.body)}", answer)
