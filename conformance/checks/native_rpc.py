"""Interface 4.2, rules 1 and 2: what POST /rpc serves, and what it refuses.

The envelope and the parameters are not specified. The checks send JSON-RPC 2.0, and judge a target
that does not speak it only if the target declares that it does.
"""

import base64
import binascii
import contextlib
import json
import re
from collections.abc import Iterator

from conformance.checks.native import mapped, members_of, native_get
from conformance.checks.native_named import texts_in
from conformance.checks.passes import FOUND_SINCE
from conformance.checks.reading import ABSENT
from conformance.context import Context
from conformance.editions import FIFTH, SEVENTH
from conformance.findings import Skipped
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.shapes import lookup
from conformance.strictjson import Json, NotJson, brief, is_int

PARAMETERS: tuple[dict[str, Json], ...] = ({}, {"height": "1"}, {"height": 1})
# Methods of consensus engines and others that would change a node or reveal its keys.
ADMINISTRATIVE = (
    "unsafe_flush_mempool", "dial_seeds", "dial_peers", "unsafe_start_cpu_profiler",
    "export_private_key", "private_key", "priv_validator_key", "priv_validator", "stop", "shutdown",
)  # fmt: skip
# What else such engines serve, of their peers and of what they agree on.
PEERS = ("net_info", "consensus_state")
NO_SUCH_METHOD = "no_such_method_of_the_document"
# What consensus engines serve of their own inside, since this edition; and since then what is
# refused is refused in an array of calls too, and queries lead to no key.
INNER, INNER_SINCE = ("dump_consensus_state",), 4
KEY_PATHS = (
    "/node/key", "/node_key", "/key", "/keys", "/private_key", "/priv_validator_key", "/wallet/key",
    "/validator/key", "/config",
)  # fmt: skip
# So far apart are two blocks at most that are compared.
FARTHER = 100
# Blocks that are compared with those of the explorer's routes.
BESIDE = (2, 3, 5)
# Whether a block or the validators of no height in particular are served.
LATEST = "NT-RULE-099"
# What a chain is called in the network identity, and where a status names it.
CHAIN = ("chain_id", "chain")
CHAINS = ("chain_id", "node_info.network", "node_info.chain_id")
_PRIVATE = re.compile(rb"priv(ate)?_?(validator_?)?key|BEGIN [A-Z ]*PRIVATE KEY", re.IGNORECASE)


def _call(method: str, params: Json, ident: Json = 1) -> dict[str, Json]:
    return {"jsonrpc": "2.0", "id": ident, "method": method, "params": params}


def call_rpc(context: Context, method: str, params: Json) -> tuple[Answer, Json]:
    """POST a call; return its answer, and its result or None."""
    content = json.dumps(_call(method, params)).encode()
    answer = context.http.call("POST", "/rpc", content=content)
    document = answer.json_object()
    # A null result beside an error is a refusal.
    served = answer.ok and document is not None and not document.get("error")
    return answer, document.get("result") if served and document else None


def call_with(context: Context, ident: Json) -> Answer:
    """POST a call of the method status that has this id."""
    content = json.dumps(_call("status", {}, ident)).encode()
    return context.http.call("POST", "/rpc", content=content)


def _served(context: Context, method: str) -> tuple[Answer, bool]:
    for params in PARAMETERS:
        answer, result = call_rpc(context, method, params)
        if result is not None:
            return answer, True
    return answer, False


def _is_absent(context: Context, answer: Answer) -> bool:
    """Return whether the answer is that to a path that does not exist, or refuses any POST."""
    if context.edition < FOUND_SINCE or answer.status in (405, 501):
        return context.edition >= FOUND_SINCE
    content = json.dumps(_call("status", {})).encode()
    control = context.http.call("POST", "/no-such-route-of-the-document", content=content)
    return (control.status, control.body) == (answer.status, answer.body)


@requirement("NT-ROUTE-018", "NT-RULE-003", "NT-RULE-018", "NT-SILENT-003", LATEST)
def native_rpc(context: Context) -> None:
    """POST /rpc with the methods status, block and validators, in a JSON-RPC 2.0 envelope."""
    answer, served = _served(context, "status")
    context.observe("NT-SILENT-003", f"JSON-RPC 2.0 is answered with {answer.status}", answer)
    if answer.status in ABSENT and (context.target.rpc or _is_absent(context, answer)):
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
        if served and context.edition >= FIFTH:
            bare, result = call_rpc(context, method, {})
            why = f"{method} without a height: status {bare.status}, {brief(bare.body)}"
            context.judge(LATEST, result is not None, why, answer, bare)


@requirement("NT-RULE-057")
def native_rpc_heights(context: Context) -> None:
    """POST /rpc with the method block for pairs of heights, as usual engines take them."""
    if not _differ(context, 1, 2):
        raise Skipped("POST /rpc gives no block for height 1 or 2")
    tip = tip_of(context)
    if context.edition >= INNER_SINCE and tip > FARTHER:
        for apart in (1, 10, FARTHER):
            _differ(context, tip - apart, tip)


@requirement("NT-RULE-069")
def native_rpc_block(context: Context) -> None:
    """POST /rpc with the method block for heights, and GET these blocks; compare their hashes."""
    tip = tip_of(context)
    for height in (*BESIDE, *(tip - below for below in BESIDE if tip > FARTHER)):
        hashes = [hash_of(context, height + away) for away in (-1, 0)]
        answer, result = call_rpc(context, "block", {"height": str(height)})
        (_, before), (block, own) = hashes
        if result is None or not before or not own or before == own:
            continue
        texts = {text.lower() for text in texts_in(result)}
        # A block may name the one before it, beside itself.
        wrong = before.lower() in texts and own.lower() not in texts
        why = f"block {height} has the hash {brief(own)}; by /rpc there is only {brief(before)}"
        context.judge("NT-RULE-069", not wrong, why, block, answer)


@requirement("NT-RULE-070")
def native_rpc_chain(context: Context) -> None:
    """POST /rpc with the method status, and GET the network; compare the chains that they name."""
    network = native_get(context, "/api/network")
    known = {
        value
        for name, value in members_of(network.json_object() if network.ok else None)
        if name in CHAIN and isinstance(value, str)
    }
    answer, result = call_rpc(context, "status", {})
    named = [value for path in CHAINS for value in lookup(result, path) if isinstance(value, str)]
    if not known or not named:
        raise Skipped("one of the two names no chain")
    why = f"the status of /rpc names {brief(named)}, the network identity {brief(sorted(known))}"
    context.judge("NT-RULE-070", bool(known & set(named)), why, network, answer)


def tip_of(context: Context) -> int:
    """Return the height in the network identity, 0 without one."""
    answer = native_get(context, "/api/network")
    heights = [v for name, v in members_of(answer.json_object()) if name == "height" and is_int(v)]
    return int(heights[0]) if heights else 0


def hash_of(context: Context, height: int) -> tuple[Answer, str]:
    """Return a block and what it calls its hash, nothing if it calls several things so."""
    answer = native_get(context, f"/api/block/{height}")
    document = answer.json_object() if answer.ok else None
    found = mapped(context, "/api/block hash", document)
    if not found:
        found = [v for name, v in members_of(document) if name in ("hash", "block_hash")]
    texts = {text for text in found if isinstance(text, str)}
    return answer, texts.pop() if len(texts) == 1 else ""


def _differ(context: Context, lower: int, higher: int) -> bool:
    """Rule on the blocks of two heights; return whether there are both."""
    found = [call_rpc(context, "block", {"height": str(height)}) for height in (lower, higher)]
    if any(result is None for _, result in found):
        return False
    why = f"heights {lower} and {higher} have the same block"
    context.judge("NT-RULE-057", found[0][1] != found[1][1], why, *(answer for answer, _ in found))
    return True


@requirement("NT-RULE-005", "NT-RULE-088", "NT-RULE-091")
def native_rpc_closed(context: Context) -> None:
    """POST /rpc with administrative methods, which must be refused, and with the method status."""
    control, served = _served(context, "status")
    for method in ADMINISTRATIVE + (INNER if context.edition >= INNER_SINCE else ()):
        answer, result = call_rpc(context, method, {})
        if result is not None:
            context.fails("NT-RULE-005", f"{method} returns {brief(result)}", control, answer)
        elif served:
            context.holds("NT-RULE-005", control, answer)
    if served:
        answer, _ = call_rpc(context, NO_SUCH_METHOD, {})
        found = answer.json_object() if answer.ok else None
        silent = found is not None and "result" in found and not found.get("error")
        why = f"{NO_SUCH_METHOD} has the result {brief((found or {}).get('result'))}"
        context.judge("NT-RULE-088", not silent, why, control, answer)
        for method in PEERS:
            answer, result = call_rpc(context, method, {})
            why = f"{method} returns {brief(result)}"
            context.judge("NT-RULE-091", result is None, why, control, answer)
    if context.edition >= INNER_SINCE:
        _judge_array(context, (*ADMINISTRATIVE, *INNER))
        for path in KEY_PATHS:
            answer, result = call_rpc(context, "abci_query", {"path": path})
            shown = [text for text in _said(result) if _PRIVATE.search(text)]
            if shown:
                why = f"abci_query of {path} returns {brief(result)}"
                context.fails("NT-RULE-005", why, control, answer)


def _judge_array(context: Context, methods: tuple[str, ...]) -> None:
    """Rule on calls of these methods in an array, which need not be taken."""
    calls = [_call(method, {}, ident) for ident, method in enumerate(methods)]
    answer = context.http.call("POST", "/rpc", content=json.dumps(calls).encode())
    try:
        found = answer.json() if answer.ok else None
    except NotJson:
        return
    replies = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    served = [one for one in replies if one.get("result") is not None and not one.get("error")]
    if served:
        why = f"calls of {brief(methods)} in an array return {brief(served)}"
        context.fails("NT-RULE-005", why, answer)


def _said(result: Json) -> Iterator[bytes]:
    """Yield the names in a result, and what is written in base64 in it."""
    yield from (name.encode() for name, _ in members_of(result))
    for text in texts_in(result):
        with contextlib.suppress(binascii.Error, ValueError):
            yield base64.b64decode(text, validate=True)


# "Method not found" of JSON-RPC 2.0.
NO_METHOD = -32601
RELAYED = {"NT-RULE-022": "abci_query", "NT-RULE-023": "broadcast_tx_sync"}


@requirement(*RELAYED)
def native_rpc_relay(context: Context) -> None:
    """POST /rpc with an empty query, an empty transaction and a method that does not exist."""
    # The parameters are not specified. A refusal that differs from that of a method that does not
    # exist is about the parameters, so the method is known.
    control, _ = call_rpc(context, NO_SUCH_METHOD, {})
    for ident, method in RELAYED.items():
        answer, result = call_rpc(context, method, {})
        if context.target.rpc and error_code(answer) == NO_METHOD:
            context.fails(ident, f"{method}: there is no such method", answer)
        elif result is not None or _refusal(answer, method) != _refusal(control, NO_SUCH_METHOD):
            context.holds(ident, control, answer)


NO_PATH = "/no_such_path_of_the_document"
QUERY_PATHS = ("/job", "/jobs")
_NUMBER = re.compile(r"\d+")


@requirement("NT-RULE-044")
def native_rpc_paths(context: Context) -> None:
    """POST /rpc with queries for both documented paths, and for one that does not exist."""

    def ask(path: str) -> tuple[Answer, str]:
        answer, _ = call_rpc(context, "abci_query", {"path": path, "data": "6e6f6e65"})
        text = answer.body.decode("utf-8", "replace").replace(path, "")
        return answer, f"{answer.status} {_NUMBER.sub('', text)}"

    if context.edition >= FIFTH:
        _judge_paths(context)
    control, unknown = ask(NO_PATH)
    found = {path: ask(path) for path in QUERY_PATHS}
    lacking = [path for path, (_, outcome) in found.items() if outcome == unknown]
    # Where neither differs from an unknown one, queries are made in another way.
    if len(lacking) < len(QUERY_PATHS):
        why = f"{brief(lacking)} is answered like a path that does not exist, the other one is not"
        shown = (answer for answer, _ in found.values())
        context.judge("NT-RULE-044", not lacking, why, control, *shown)


def _judge_paths(context: Context) -> None:
    """Rule on a path that is refused, with whatever data, where the other one is served."""
    ident = (context.target.request_id or "none").encode().hex()
    found = dict[str, list[Answer]]()
    served = set[str]()
    for path in (NO_PATH, *QUERY_PATHS):
        for data in ({}, {"data": "6e6f6e65"}, {"data": ident}):
            answer, result = call_rpc(context, "abci_query", {"path": path, **data})
            found.setdefault(path, []).append(answer)
            served |= {path} if result is not None else set()
    # Others than a path that is refused may say within a result that they are not there.
    if served and (NO_PATH not in served or context.edition >= SEVENTH):
        lacking = set(QUERY_PATHS) - served
        why = f"{brief(sorted(lacking))} is refused with any data, {brief(sorted(served))} is not"
        shown = (answer for answers in found.values() for answer in answers)
        context.judge("NT-RULE-044", not lacking, why, *shown)


def error_code(answer: Answer) -> Json:
    """Return the code of an error in an answer of JSON-RPC, or None."""
    error = (answer.json_object() or {}).get("error")
    return error.get("code") if isinstance(error, dict) else None


def _refusal(answer: Answer, method: str) -> tuple[int, str]:
    error = (answer.json_object() or {}).get("error")
    return answer.status, json.dumps(error, sort_keys=True).replace(method, "")
