"""Mutants that show in what comes next: after a refusal or a miss, or beside another session.

A second list of faults for the second stranger's node has shown them; see `followed.py`.
"""

import base64
import struct
from typing import Any

from conformance.judging.hooks import CONFIG, INFERENCE, Grpc, Http
from conformance.judging.mutants.mixed_native import ACCOUNT, API, SEND, become, query_of
from conformance.judging.toy.answers import Asked, Response
from conformance.judging.toy.native import PUBLIC_KEY
from conformance.judging.toy.node import EXPIRED

ARTIFACTS, PROOFS = "/artifacts/", f"{API}/proofs"
LONG_PAGE, SHORT_HASH, FEW = 25, 4, 4


def short_hashes(asked: Asked, response: Response) -> None:
    """Cut the hashes of the blocks on a long page."""
    if asked.path == "/api/blocks" and int(query_of(asked).get("limit", "0")) > LONG_PAGE:
        for block in response.json["blocks"]:
            block["hash"] = block["hash"][:SHORT_HASH]


def open_array(asked: Asked, response: Response) -> None:
    """Serve any method in an array of calls."""
    if asked.path == "/rpc" and isinstance(asked.body, list):
        answers = [{"id": call["id"], "result": {"peers": 4}} for call in asked.body]
        become(response, Response(json=answers))


def key_by_query(asked: Asked, response: Response) -> None:
    """Give the node's key for a query."""
    body = asked.body if asked.path == "/rpc" and isinstance(asked.body, dict) else {}
    if (body.get("params") or {}).get("path") == "/node/key":
        value = base64.b64encode(b'{"priv_key": "5a"}').decode()
        become(response, Response(json={"result": {"response": {"value": value}}}))


def expired_pages(asked: Asked, response: Response) -> None:
    """Show later pages for an expired token."""
    later = asked.path == f"{API}/wallet/transactions" and "offset" in asked.query
    if later and asked.authorization == f"Bearer {EXPIRED}":
        page = {"transactions": [], "total": 0, "limit": 20, "offset": 1}
        become(response, Response(json=page))


def password_taken(asked: Asked, response: Response) -> None:
    """Take the password of the scheme Basic for a token."""
    scheme, _, pair = (asked.authorization or "").partition(" ")
    if scheme == "Basic" and asked.path == f"{API}/proofs" and ":" in pair_of(pair):
        become(response, Response(json={"proofs": [], "stats": {}}))


def pair_of(text: str) -> str:
    """Return what base64 hides, or nothing."""
    try:
        return base64.b64decode(text, validate=True).decode()
    except ValueError:
        return ""


def single_precision(asked: Asked, response: Response) -> None:
    """Repeat the amount of a transfer as a number of four bytes."""
    if asked.path == SEND and response.status == 200:
        (response.json["amount"],) = struct.unpack("<f", struct.pack("<f", asked.body["amount"]))


def all_but_one(asked: Asked, response: Response) -> None:
    """Leave a proof out where the limit is the number of all."""
    found = response.json["proofs"] if asked.path == PROOFS and response.status == 200 else []
    if found and query_of(asked).get("limit") == str(len(found)):
        del found[-1]


def signs_alike(asked: Asked, response: Response) -> None:
    """Have one account for a key and its inverse."""
    if asked.path == ACCOUNT and query_of(asked).get("public_key") == f"03{PUBLIC_KEY[2:]}":
        become(response, Response(json={"balance": "4", "locked": "1", "total": "5"}))


def in_tenths(asked: Asked, response: Response) -> None:
    """Keep memory in whole tenths."""
    if asked.path == CONFIG and asked.method == "GET" and response.status == 200:
        here = response.json["resources"]
        here["max_memory_gb"] = int(here["max_memory_gb"] * 10) / 10


def array_in_stream(asked: Asked, response: Response) -> None:
    """Take a temperature out of its array where a stream is asked for."""
    body = asked.body if asked.path == INFERENCE and isinstance(asked.body, dict) else {}
    if body.get("stream") is True and isinstance(body.get("temperature"), list):
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        last = {"token": "[DONE]", "finish_reason": "stop", "usage": usage}
        become(response, Response(events=[{"token": "a", "index": 0}, last]))


class RefusedTakesBack:
    """Metrics from which a generation that is refused takes one."""

    def __init__(self) -> None:
        self.refused = 0

    def __call__(self, asked: Asked, response: Response) -> None:
        """Count what is refused."""
        if asked.path == INFERENCE and response.status == 400:
            self.refused += 1
        if asked.path == f"{API}/metrics" and response.status == 200:
            response.json["inference"]["requests_total"] -= self.refused


class GoneAfterMiss:
    """A mirror that finds nothing any more after it has not found something."""

    def __init__(self) -> None:
        self.missed = False

    def __call__(self, asked: Asked, response: Response) -> None:
        """Remember that something was not there."""
        if asked.path.startswith(ARTIFACTS):
            self.missed |= response.status == 404
            if self.missed:
                become(response, Response(404, {"error": "no such artifact"}))


class MadeByTheNext:
    """A configuration that makes the good keys of a refused change with the next one."""

    def __init__(self) -> None:
        self.left: dict[str, Any] = {}
        self.made: dict[str, Any] = {}

    def __call__(self, asked: Asked, response: Response) -> None:
        """Keep the numbers of each section."""
        if asked.path != CONFIG or not asked.authorized:
            return
        if asked.method == "GET" and response.status == 200:
            for section, values in self.made.items():
                response.json[section].update(values)
        elif response.status == 200:
            self.made, self.left = self.left, {}
        elif isinstance(asked.body, dict):
            sections = {name: one for name, one in asked.body.items() if isinstance(one, dict)}
            self.left = {
                name: {key: v for key, v in one.items() if isinstance(v, int | float)}
                for name, one in sections.items()
            }


class NoZeros:
    """A store for which zeros at the beginning of a key are nothing."""

    def __init__(self) -> None:
        self.stored: dict[bytes, str] = {}

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Keep values under what is left of their keys."""
        if called == "DHTStore" and not isinstance(answer, str) and answer.get("success"):
            self.stored[request.key.lstrip(bytes(1))] = request.value
        if called == "DHTFindValue" and not isinstance(answer, str) and answer.get("found"):
            return {**answer, "value": self.stored[request.key.lstrip(bytes(1))]}
        return answer


class SearchEvicts:
    """A store that forgets its oldest value with each search for nothing."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.gone: set[bytes] = set()

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Forget a key, or remember one."""
        if called == "DHTStore" and not isinstance(answer, str) and answer.get("success"):
            self.keys.append(request.key)
            self.gone.discard(request.key)
        if called != "DHTFindValue" or isinstance(answer, str):
            return answer
        if not answer.get("found") and self.keys:
            self.gone.add(self.keys.pop(0))
        lost = request.key in self.gone
        return {"responder": answer["responder"], "found": False} if lost else answer


def four_of_many(called: str, request: Any, answer: Any) -> Any:
    """Take batches, and answer the first four sequences of a larger one."""
    if called != "PipelineForward" or request is None or request.hidden_shape[0] < 2:
        return answer
    rows = min(request.hidden_shape[0], FEW)
    made = {"success": True, "is_final": True, "request_id": request.request_id}
    return {**made, "logits": bytes(8 * rows), "logits_shape": [rows, 1, 2]}


class KeptById:
    """A node that knows its results by one of their IDs alone."""

    def __init__(self, name: str) -> None:
        """``name`` is that of the ID."""
        self.name = name
        self.results: dict[str, Any] = {}

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Answer with the first result under this ID."""
        if called != "PipelineForward" or isinstance(answer, str) or not answer.get("logits"):
            return answer
        first = self.results.setdefault(getattr(request, self.name) or request.request_id, answer)
        return {**first, "request_id": request.request_id}


HTTP: list[tuple[str, Http]] = [
    ("NT-PAGE-011", short_hashes),
    ("NT-RULE-005", open_array),
    ("NT-RULE-005", key_by_query),
    ("NA-AUTH-033", expired_pages),
    ("NA-AUTH-033", password_taken),
    ("NA-WALLET-001", single_precision),
    ("NA-QUERY-019", all_but_one),
    ("NT-RULE-027", signs_alike),
    ("NA-SANE-026", RefusedTakesBack()),
    ("NT-ROUTE-014", GoneAfterMiss()),
    ("NA-PATCH-106", MadeByTheNext()),
    ("NA-PATCH-104", in_tenths),
    ("NA-INF-043", array_in_stream),
]
GRPC: list[tuple[str, Grpc]] = [
    ("DH-031", SearchEvicts()),
    ("DH-022", NoZeros()),
    ("PL-FWD-010", four_of_many),
    ("PL-FWD-014", KeptById("request_id")),
]
