"""Mutants that show beyond a size, or in the other of two places; see `followed.py`.

A second list of faults for the ninth stranger's node has shown them.
"""

import re
import uuid
from dataclasses import replace
from typing import Any

from conformance.judging.hooks import CONFIG, INFERENCE, Grpc, Http, events, on, put
from conformance.judging.mutants.followed_edges import Impatient
from conformance.judging.mutants.followed_refused import SEND, STAKE
from conformance.judging.mutants.followed_sizes import Dearer
from conformance.judging.mutants.mixed_native import API, become
from conformance.judging.toy.answers import Asked, Response, Sent, error, now
from conformance.judging.toy.node import SECOND

MEMO_BYTES, WRAPS_AT, LARGE, FEE = 100, 2, 30, 1.0
ALIKE_BYTES, LISTED, FEW = 4, 20, 7
BYTE, WORDS = 255, 2


def narrow_memos(asked: Asked, response: Response) -> None:
    """Take memos of so many bytes, which are fewer letters beyond ASCII."""
    if asked.path == SEND and response.status == 200:
        memo = asked.body.get("memo") or ""
        if not memo.isascii() and len(memo.encode()) > MEMO_BYTES:
            response.__dict__.update(error(400, "BAD_REQUEST", "too long a memo").__dict__)


def wrapped(response: Response) -> None:
    """Begin anew to count."""
    response.json["inference"]["requests_total"] %= WRAPS_AT


def bounded_otherwise(asked: Asked, response: Response) -> None:
    """Give a block the hash of the one before it, on pages with a bound."""
    if asked.path == "/api/blocks" and "before" in asked.query and response.status == 200:
        for block in response.json["blocks"]:
            block["hash"] = f"hash{block['height'] - 1}"


def rounded(response: Response) -> None:
    """Write the losses of updates with two decimals."""
    for record in response.json["records"]:
        record["loss"] = f"{float(record['loss']):.2f}"


class Table:
    """A table of the nodes that have pinged, each where it was first, listed in a wrong way."""

    def __init__(self) -> None:
        self.pinged: dict[bytes, Any] = {}

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Remember who pings, and list others than the toy does."""
        if called == "DHTPing" and request is not None:
            self.pinged.setdefault(request.sender.node_id, request.sender)
        if called != "DHTFindNode" or request is None or not isinstance(answer, dict):
            return answer
        return {**answer, "nodes": self.listed(request.target_id, answer["nodes"])}

    def listed(self, target: bytes, nodes: list[Any]) -> list[Any]:
        """Return what is listed for a target, where the toy lists these nodes."""
        raise NotImplementedError


class ByFourBytes(Table):
    """A table that compares the first four bytes of IDs, and lists no more than a few nodes."""

    def listed(self, target: bytes, nodes: list[Any]) -> list[Any]:
        """List those first that came first, where these bytes are the same."""

        def far(ident: bytes) -> list[int]:
            pairs = zip(ident, target, strict=False)
            return [one ^ other for one, other in list(pairs)[:ALIKE_BYTES]]

        known = sorted(self.pinged, key=lambda ident: (ident != target, far(ident)))
        return [self.pinged[ident] for ident in known[:LISTED]]


def in_a_byte(asked: Asked, response: Response) -> None:
    """Have the number of tokens in a byte."""
    if asked.path == INFERENCE and response.status == 200 and response.json:
        most = asked.body.get("max_tokens", 1)
        if most > BYTE:
            response.json["text"] = " ".join(response.json["text"].split()[: most % (BYTE + 1)])


def ended(asked: Asked, response: Response) -> None:
    """End a text by itself where there is no stop sequence."""
    whole = asked.path == INFERENCE and response.status == 200 and response.json
    if whole and "stop" not in asked.body:
        response.json["text"] = " ".join(response.json["text"].split()[:WORDS])


def batches_in_a_byte(response: Response) -> None:
    """Show the batch size as one byte."""
    response.json["training"]["batch_size"] %= BYTE + 1


def in_small_letters(response: Response) -> None:
    """Write the receiver of a transfer in small letters."""
    response.json["to"] = response.json["to"].lower()


def one_line(asked: Asked, response: Response) -> None:
    """Refuse memos of several lines."""
    if asked.path == SEND and response.status == 200 and "\n" in (asked.body.get("memo") or ""):
        response.__dict__.update(error(400, "BAD_REQUEST", "a memo is one line").__dict__)


def nothing_for_any(asked: Asked, response: Response) -> None:
    """Answer a method that does not exist with the result null."""
    if asked.path == "/rpc" and isinstance(asked.body, dict) and response.status == 400:
        become(response, Response(json={"jsonrpc": "2.0", "id": 1, "result": None}))


def peers_for_any(asked: Asked, response: Response) -> None:
    """Tell anybody of the peers of the engine."""
    if isinstance(asked.body, dict) and asked.body.get("method") == "net_info":
        become(response, Response(json={"jsonrpc": "2.0", "id": 1, "result": {"peers": []}}))


def spaced(values: list[Any]) -> list[Any]:
    """Put white space behind the last token."""
    *before, last, final = values
    return [*before, {**last, "token": f"{last['token']} "}, final]


def below_zero(asked: Asked, response: Response) -> None:
    """Take a number below zero for one that was left out."""
    body = asked.body if asked.path == INFERENCE and isinstance(asked.body, dict) else {}
    if body.get("max_tokens") == -1:
        become(response, Response(json={"text": "Hello"}))


def stake_backwards(asked: Asked, response: Response) -> None:
    """Make a stake for days that are over."""
    body = asked.body if asked.path == STAKE and isinstance(asked.body, dict) else {}
    if body.get("duration_days") == -1:
        become(response, Response(json={"success": True}))


def of_the_page(asked: Asked, response: Response) -> None:
    """Have the statistics of the proofs on the page."""
    if asked.path == f"{API}/proofs" and response.status == 200:
        response.json["stats"]["total_submitted"] += len(response.json["proofs"])


class Offended(Impatient):
    """A node that has had enough of generations for good, after a burst of them."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: Response | None = None

    def __call__(self, asked: Asked, response: Response) -> None:
        """Refuse whatever comes after the first refusal."""
        super().__call__(asked, response)
        if asked.path != INFERENCE:
            return
        if self.refused:
            become(response, self.refused)
        elif response.status == 429:
            response.json["error"]["details"]["retry_after"] = 1
            self.refused = replace(response)


class Lossy:
    """A node that reads bodies that are no UTF-8, with other letters in their place."""

    def rewrite(self, sent: Sent) -> Sent:
        """Replace what is no UTF-8."""
        return replace(sent, body=sent.body.decode("utf-8", "replace").encode())

    def __call__(self, asked: Asked, response: Response) -> None:
        """Leave the answers as they are."""


def heads_for_any(asked: Asked, response: Response) -> None:
    """Serve HEAD without a token."""
    if asked.method == "HEAD" and response.status == 401:
        become(response, Response(json={}))


def nowhere(response: Response) -> None:
    """Lose sight of what is unstaked."""
    balances = response.json["balances"]
    balances["total"] = round(balances["total"] - balances["pending"], 6)
    balances["pending"] = 0


def of_the_block(response: Response) -> None:
    """Name blocks where requests are meant."""
    for block in response.json["blocks"]:
        for result in block["results"]:
            result["request_id"] = block["hash"]


def by_the_first_byte(asked: Asked, response: Response) -> None:
    """Find accounts by the first byte of their keys."""
    if asked.path == "/api/account" and "public_key=02" in asked.query and response.json:
        response.json.update(balance="4", locked="1", total="5")


def hundreds_few(asked: Asked, response: Response) -> None:
    """Have a page with a limit of three digits as short as one of few entries."""
    pages = {f"{API}/wallet/transactions": "transactions", f"{API}/proofs": "proofs"}
    if asked.path in pages and re.search(r"limit=\d{3,}", asked.query) and response.status == 200:
        name = pages[asked.path]
        response.json[name] = response.json[name][:1]


def numbers_alone(asked: Asked, response: Response) -> None:
    """Have no texts as the ids of calls."""
    if asked.path == "/rpc" and isinstance(asked.body, dict) and "result" in (response.json or {}):
        ident = asked.body.get("id")
        become(response, Response(json={**response.json, "id": ident if ident == 1 else None}))


def cut_silently(response: Response) -> None:
    """Have a few entries on a page, whatever limit it tells."""
    response.json["transactions"] = response.json["transactions"][:1]


def of_five(asked: Asked, response: Response) -> None:
    """Have pages of five where there is an offset alone."""
    path = asked.path == f"{API}/wallet/transactions" and response.status == 200
    if path and "offset" in asked.query and "limit" not in asked.query:
        response.json["limit"] = 5


def by_chance(response: Response) -> None:
    """Have entries whose times fall and rise."""
    for at, entry in enumerate(response.json["transactions"]):
        entry["timestamp"] = f"2026-01-01T00:00:{7 * at % 10:02}Z"


def overdrawn(asked: Asked, response: Response) -> None:
    """Make transfers of little more than there is."""
    short = response.json["error"].get("details", {}) if response.status == 402 else {}
    if asked.path == SEND and short and short["required"] < short["available"] + 1:
        made = {
            "transaction_id": uuid.uuid4().hex,
            "from": "second",
            "to": "toy",
            "fee": FEE,
            "memo": "",
        }
        told = {"amount": asked.body["amount"], "status": "confirmed", "timestamp": now()}
        become(response, Response(json={**made, **told}))


def one_wallet(asked: Asked, response: Response) -> None:
    """Forbid stakes to the second account."""
    if asked.path == STAKE and SECOND in (asked.authorization or ""):
        become(response, error(403, "FORBIDDEN", "not with this token"))


HTTP: list[tuple[str, Http]] = [
    ("NA-ERR-035", overdrawn),
    ("NA-AUTH-039", one_wallet),
    ("NA-QUERY-025", on(f"{API}/wallet/transactions", by_chance)),
    ("NA-QUERY-024", of_five),
    ("NA-QUERY-023", on(f"{API}/wallet/transactions", cut_silently)),
    ("NA-QUERY-022", hundreds_few),
    ("NT-RULE-095", numbers_alone),
    ("NA-WALLET-069", on(f"{API}/wallet/balance", nowhere)),
    ("NT-RULE-093", on("/api/blocks", of_the_block)),
    ("NT-RULE-094", by_the_first_byte),
    ("NA-ERR-034", Offended()),
    ("NA-INF-052", Lossy()),
    ("NA-AUTH-038", heads_for_any),
    ("NA-INF-051", below_zero),
    ("NA-WALLET-067", stake_backwards),
    ("NA-PROOFS-023", of_the_page),
    ("NA-INF-049", in_a_byte),
    ("NA-INF-050", ended),
    ("NA-PATCH-123", on(CONFIG, batches_in_a_byte)),
    ("NA-WALLET-065", on(SEND, in_small_letters, "POST")),
    ("NA-WALLET-066", one_line),
    ("NT-RULE-088", nothing_for_any),
    ("NT-RULE-091", peers_for_any),
    ("NA-SSE-023", events(spaced)),
    ("NA-WALLET-061", narrow_memos),
    ("NA-COUNT-009", on(f"{API}/metrics", wrapped)),
    ("NA-WALLET-039", Dearer(LARGE, lambda _: FEE)),
    ("NT-PAGE-011", bounded_otherwise),
    (
        "NT-RULE-084",
        on("/api/model/checkpoint.json", put("adapter", f"/artifacts/sha256/{'5a' * 32}")),
    ),
    ("NT-RULE-087", on("/api/training", rounded)),
]


def weights_of_any(called: str, request: Any, answer: Any) -> Any:
    """Serve weights for whatever is not a range."""
    return {"weights_data": b"all of them"} if called == "GetWeights" else answer


def ascii_alone(called: str, request: Any, answer: Any) -> Any:
    """Refuse gradients that are no text of ASCII."""
    if called != "GossipGradient" or request is None:
        return answer
    if all(layer.isascii() for layer in request.layer_gradients.values()):
        return {"accepted": True, "current_round": 3}
    return {"accepted": False, "reason": "no LZ4 frame"}


class ByTwoBytes(Table):
    """A table that compares two bytes of IDs, and lists the latest of those that are alike."""

    def listed(self, target: bytes, nodes: list[Any]) -> list[Any]:
        """List a few of those whose IDs begin so."""
        alike = [one for ident, one in self.pinged.items() if ident[:2] == target[:2]]
        exact = [one for one in alike if one.node_id == target]
        return (exact + alike[::-1])[:FEW] or nodes


def parts_in_a_byte(called: str, request: Any, answer: Any) -> Any:
    """Have the number of a part in a byte."""
    if called != "PipelineForward" or request is None or request.target_shard <= BYTE:
        return answer
    return {"success": True, "request_id": request.request_id}


def final_alone(called: str, request: Any, answer: Any) -> Any:
    """Call a pass of several sequences no final one."""
    if called != "PipelineForward" or request is None or not isinstance(answer, dict):
        return answer
    several = len(request.hidden_shape) > 0 and request.hidden_shape[0] > 1
    return {**answer, "is_final": False} if several else answer


class StaysThere(Table):
    """A table that keeps the first address of a node."""

    def listed(self, target: bytes, nodes: list[Any]) -> list[Any]:
        """List each node where it was first."""
        return [self.pinged.get(one.node_id, one) for one in nodes]


def of_no_round(called: str, request: Any, answer: Any) -> Any:
    """Refuse gradients without a round."""
    refused = called == "GossipGradient" and isinstance(answer, dict) and not answer["accepted"]
    return {**answer, "current_round": 0} if refused else answer


def of_first_layers(called: str, request: Any, answer: Any) -> Any:
    """Compute otherwise what comes from another layer."""
    if called != "PipelineForward" or request is None or request.source_shard < 0:
        return answer
    part = "logits" if answer.get("logits") else "hidden_states"
    return {**answer, part: answer[part][::-1]}


def short_names(called: str, request: Any, answer: Any) -> Any:
    """Know passes by names that fit into a byte."""
    if called != "PipelineBackward" or request is None or len(request.request_id) <= BYTE:
        return answer
    return "NOT_FOUND"


def of_small_batches(called: str, request: Any, answer: Any) -> Any:
    """Refuse gradients of large batches."""
    if called != "GossipGradient" or request is None or request.batch_size <= BYTE:
        return answer
    return {"accepted": False, "reason": "too large a batch", "current_round": 3}


def first_of_two(called: str, request: Any, answer: Any) -> Any:
    """Serve the first layer where two are asked for."""
    named = getattr(request, "shard_range", "")
    if called != "GetWeights" or "," not in named or not isinstance(answer, dict):
        return answer
    return {"weights_data": f"weights of {named.partition(',')[0]}".encode()}


GRPC: list[tuple[str, Grpc]] = [
    ("GR-WEIGHT-007", first_of_two),
    ("PL-FWD-024", of_first_layers),
    ("PL-BWD-015", short_names),
    ("GR-GOSSIP-009", of_small_batches),
    ("GR-GOSSIP-008", of_no_round),
    ("PL-FWD-022", parts_in_a_byte),
    ("PL-FWD-023", final_alone),
    ("DH-034", StaysThere()),
    ("DH-030", ByFourBytes()),
    ("DH-030", ByTwoBytes()),
    ("GR-WEIGHT-006", weights_of_any),
    ("GR-NUM-002", ascii_alone),
]
