"""Mutants that show beyond a size, or in the other of two places; see `followed.py`.

A second list of faults for the ninth stranger's node has shown them.
"""

from typing import Any

from conformance.judging.hooks import Grpc, Http, on, put
from conformance.judging.mutants.followed_refused import SEND
from conformance.judging.mutants.followed_sizes import Dearer
from conformance.judging.mutants.mixed_native import API
from conformance.judging.toy.answers import Asked, Response, error

MEMO_BYTES, WRAPS_AT, LARGE, FEE = 100, 2, 30, 1.0
ALIKE_BYTES, LISTED = 4, 20


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


class ByFourBytes:
    """A table that compares the first four bytes of IDs, and lists no more than a few nodes."""

    def __init__(self) -> None:
        self.pinged: dict[bytes, Any] = {}

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """List those first that came first, where these bytes are the same."""
        if called == "DHTPing" and request is not None:
            self.pinged.setdefault(request.sender.node_id, request.sender)
        if called != "DHTFindNode" or request is None or not isinstance(answer, dict):
            return answer
        target = request.target_id

        def far(ident: bytes) -> list[int]:
            pairs = zip(ident, target, strict=False)
            return [one ^ other for one, other in list(pairs)[:ALIKE_BYTES]]

        known = sorted(self.pinged, key=lambda ident: (ident != target, far(ident)))
        return {**answer, "nodes": [self.pinged[ident] for ident in known[:LISTED]]}


HTTP: list[tuple[str, Http]] = [
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
GRPC: list[tuple[str, Grpc]] = [("DH-030", ByFourBytes())]
