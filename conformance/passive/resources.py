"""Interface 2.1, 4.1 and 6: whatever a node API answer holds, judged whichever check asked for it.

A field that is there in a first answer may be missing in a later one: of a long text, on a second
page, in an account without money. So every resource in every answer is judged, if the request was
one of those that the document shows. Editions before judged the first answers only.
"""

from collections.abc import Callable
from functools import cache

from conformance.catalogue import fields_of
from conformance.editions import SIXTH
from conformance.findings import Findings
from conformance.httpwire import Answer
from conformance.passive import results
from conformance.passive.events import judge_stream, stream_ids, tokens_of
from conformance.passive.meaning import ids_for, judge_meaning
from conformance.shapes import FORMAT_IDS, judge_shape
from conformance.sse import read
from conformance.strictjson import TYPES, Json, NotJson, brief, is_int, is_number

SINCE = 4
API = "/api/v1"
# The resource in the answer of an operation.
RESOURCES: dict[tuple[str, str], str] = {
    ("GET", f"{API}/status"): "status",
    ("GET", f"{API}/metrics"): "metrics",
    ("GET", f"{API}/health"): "health",
    ("GET", f"{API}/network"): "network",
    ("GET", f"{API}/wallet/balance"): "balance",
    ("GET", f"{API}/wallet/transactions"): "transactions",
    ("GET", f"{API}/peers"): "peers",
    ("GET", f"{API}/layers"): "layers",
    ("GET", f"{API}/config"): "config",
    ("GET", f"{API}/proofs"): "proofs",
    ("GET", "/api/training/global"): "training-global",
    ("GET", "/api/training/verify"): "training-verify",
    ("POST", f"{API}/wallet/send"): "transfer",
    ("POST", f"{API}/wallet/stake"): "stake",
    ("POST", f"{API}/wallet/unstake"): "unstake",
    ("PATCH", f"{API}/config"): "patch",
}
# The routes that are not marked Auth.
OPEN = {path for _, path in RESOURCES if path.startswith("/api/training")} | {
    f"{API}/{name}" for name in ("status", "metrics", "health", "network")
}
# These say in a field whether there is a result. Where it is missing, that is judged too.
UPDATED, TWICE = "NA-PATCH-102", "NA-PATCH-133"
AN_OBJECT = "GEN-032"
SUCCEEDING = ("stake", "unstake", "patch")
_PARAMETERS = {
    "max_tokens": is_int, "temperature": is_number, "top_p": is_number, "top_k": is_int,
    "stream": TYPES["bool"],
}  # fmt: skip
# The other values of the bodies that move an amount.
_VALUES: dict[str, dict[str, Callable[[Json], bool]]] = {
    "transfer": {"to": TYPES["string"], "memo": TYPES["string"]},
    "stake": {"duration_days": lambda days: is_int(days) and days > 0},
    "unstake": {},
}


@cache
def ids() -> frozenset[str]:
    """Return the requirements that any answer may prove or violate."""
    names = (*RESOURCES.values(), "inference")
    found = {ident for name in names for ident in (*fields_of(name), *ids_for(name))}
    return (
        frozenset(found)
        | {UPDATED, TWICE, AN_OBJECT}
        | set(FORMAT_IDS)
        | results.IDS
        | stream_ids()
    )


def judge_resource(
    findings: Findings, operation: tuple[str, str], body: Json, answer: Answer, *, changed: bool
) -> None:
    """Rule on the resource in the answer of an operation, a method and a path, if it has one.

    ``body`` is that of the request: what becomes of one that the document does not allow is open.
    ``changed`` says that the steps of a round have been changed in this run.
    """
    name, document = RESOURCES.get(operation), answer.json_object() if answer.ok else None
    if name is None or not answer.ok or not _moves_money(name, body):
        return
    _judge_object(findings, answer)
    if document is None:
        return
    if name not in SUCCEEDING or document.get("success") is not False:
        judge_shape(findings, name, document, answer)
        judge_meaning(findings, name, document, answer, changed=changed)
    if name == "patch" and findings.edition >= SIXTH and document.get("success") is True:
        _judge_updated(findings, body, document.get("updated"), answer)


def _judge_object(findings: Findings, answer: Answer) -> None:
    """Rule on what the body of a success is; that it is JSON at all is judged of each answer."""
    if findings.edition < SIXTH:
        return
    try:
        value = answer.json()
    except NotJson:
        return
    fits = isinstance(value, dict)
    why = f"the body of a {answer.status} is {brief(value)}, not an object"
    findings.judge(AN_OBJECT, fits, why, answer)


def _judge_updated(findings: Findings, body: Json, updated: Json, answer: Answer) -> None:
    """Rule on the keys that a change is said to have changed: each was sent, and is there once."""
    if not isinstance(body, dict) or not isinstance(updated, list):
        return
    sent = {
        f"{section}.{key}"
        for section, inner in body.items()
        for key in (inner if isinstance(inner, dict) else ())
    }
    keys = [key for key in updated if isinstance(key, str)]
    surplus = sorted({*keys} - sent - {*body})
    findings.judge(UPDATED, not surplus, f"updated names {surplus}", answer)
    twice = sorted({key for key in keys if keys.count(key) > 1})
    findings.judge(TWICE, not twice, f"updated names {twice} more than once", answer)


def _moves_money(name: str, body: Json) -> bool:
    """Whether each value of a body that moves money has its documented type; others have none."""
    if name not in _VALUES:
        return True
    if not isinstance(body, dict) or not is_number(body.get("amount")) or body["amount"] <= 0:
        return False
    return all(fits(body[key]) for key, fits in _VALUES[name].items() if key in body)


def judge_inference(findings: Findings, body: Json, answer: Answer) -> None:
    """Rule on the result, or the events, for a body that the document allows."""
    if not answer.ok or not _is_documented(body):
        return
    limit, result = body.get("max_tokens"), answer.json_object()
    if body.get("stream") is True:
        stream = read(answer.body)
        if result is None and (stream.events or answer.media_type != "application/json"):
            judge_stream(findings, results.DEFAULT_MAX_TOKENS if limit is None else limit,
                         stream, answer)  # fmt: skip
            text = "".join(map(str, tokens_of(answer)))
            results.judge_stopped(findings, results.STREAM_STOPPED, body, text, answer)
    elif answer.media_type != "text/event-stream":
        _judge_object(findings, answer)
        if result is None:
            return
        judge_shape(findings, "inference", result, answer)
        judge_meaning(findings, "inference", result, answer)
        results.judge_result(findings, limit, result, answer)
        results.judge_stopped(findings, results.STOPPED, body, result.get("text"), answer)


def _is_documented(body: Json) -> bool:
    """Whether a body has a prompt, and each parameter the documented type and range."""
    if not isinstance(body, dict) or not isinstance(body.get("prompt"), str):
        return False
    stops = body.get("stop", [])
    fits = all(fits(body[key]) for key, fits in _PARAMETERS.items() if key in body)
    if not fits or not isinstance(stops, list) or not all(isinstance(one, str) for one in stops):
        return False
    return bool(0 <= body.get("temperature", 1) <= 2 and body.get("max_tokens", 1) > 0)
