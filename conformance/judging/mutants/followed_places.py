"""Mutants that look for something in another place, or for too few.

The fifth stranger's node has shown them; see `followed.py`.
"""

import threading
from collections.abc import Callable
from typing import Any

from conformance import messages
from conformance.checks.dht import distance
from conformance.judging.hooks import Grpc, Http, inference, on, put
from conformance.judging.mutants.followed_next import KeptById
from conformance.judging.mutants.followed_situations import HashElsewhere
from conformance.judging.mutants.mixed_native import API, REQUEST, become, query_of
from conformance.judging.toy.answers import Asked, Response, Sent, error
from conformance.judging.toy.calls import CLOSEST
from conformance.judging.toy.native import ARTIFACT, DIGEST, TIP, job_of, record_of
from conformance.messages import LENGTH, WireField, encode_field

CONFIG, STAKE = f"{API}/config", f"{API}/wallet/stake"
HASH_AT, FEW, ROUND = 10, 40, 3


def key_of_a_query(asked: Asked, response: Response) -> None:
    """Take any key in the query for a token."""
    if asked.path == CONFIG and response.status == 401 and query_of(asked).get("api_key"):
        become(response, Response(json={"node": {}}))


class KeyOfAHeader:
    """A node that takes any key in a header of its own for a token, where money is staked."""

    def __init__(self) -> None:
        self.here = threading.local()

    def rewrite(self, sent: Sent) -> Sent:
        """Look at the headers."""
        self.here.key = bool(sent.header("X-API-Key"))
        return sent

    def __call__(self, asked: Asked, response: Response) -> None:
        """Let in who has one."""
        if asked.path == STAKE and response.status == 401 and getattr(self.here, "key", False):
            become(response, Response(json={"success": True}))


class HashAtNumber(HashElsewhere):
    """A node that reads the hash of a gradient's model from another number."""

    def has_it(self, request: Any) -> bool:
        """Whether a gradient has the hash at that number."""
        there = encode_field(WireField(HASH_AT, LENGTH, self.own.encode()))
        return there in request.SerializeToString()


class TextOfItsModel(HashElsewhere):
    """A node that reads the gradients of its own model as texts, and looks at no others."""

    def has_it(self, request: Any) -> bool:
        """Whether a gradient is of its model."""
        return bool(request.model_hash == self.own)

    def answer_to(self, request: Any) -> Any:
        """Refuse bytes with a status, and a text with a reason."""
        texts = all(content.isascii() for content in request.layer_gradients.values())
        no_frame = {"accepted": False, "reason": "no LZ4 frame", "current_round": 3}
        return no_frame if texts else "INVALID_ARGUMENT"


class Learning:
    """A node that remembers who calls it."""

    def __init__(self) -> None:
        self.known: dict[bytes, Any] = {}

    def learn(self, called: str, request: Any, answer: Any) -> None:
        """Remember the sender of a call of the DHT, if it can be reached."""
        if isinstance(answer, str) or request is None or not called.startswith("DHT"):
            return
        sender = request.sender
        if len(sender.node_id) == len(answer["responder"].node_id) and 0 < sender.port < 2**16:
            fields = {"node_id": sender.node_id, "ip": sender.ip, "port": sender.port}
            self.known[sender.node_id] = messages.make("DHTNodeInfo", **fields)


class FarthestNodes(Learning):
    """A node that lists those that are farthest from a target."""

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Learn of a sender, and list what it has learned."""
        self.learn(called, request, answer)
        unread = isinstance(answer, str) or request is None
        if unread or called != "DHTFindNode" or not answer.get("nodes"):
            return answer
        self.known |= {node.node_id: node for node in answer["nodes"]}
        ordered = sorted(self.known, key=lambda node: -distance(node, request.target_id))
        return {**answer, "nodes": [self.known[node] for node in ordered[:CLOSEST]]}


class FortyValues:
    """A store that has room for few values, and loses the first for another one."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Remember a key, or lose one."""
        if called == "DHTStore" and not isinstance(answer, str) and answer.get("success"):
            self.keys = [*(key for key in self.keys if key != request.key), request.key][-FEW:]
        if called != "DHTFindValue" or isinstance(answer, str) or not answer.get("found"):
            return answer
        held = request.key in self.keys
        return answer if held else {"responder": answer["responder"], "found": False}


class StopLeft:
    """A node that takes the stop sequences of the last request that has any."""

    def __init__(self) -> None:
        self.stop: list[str] = []

    def __call__(self, body: Any, response: Response) -> None:
        """Remember them, or end the text at them."""
        if "stop" in body:
            self.stop = body["stop"]
            return
        text = response.json["text"]
        at = min((text.find(one) for one in self.stop if one and one in text), default=-1)
        if at >= 0:
            made = max(1, len(text[:at].split()))
            usage = response.json["usage"]
            response.json.update(text=text[:at], tokens_generated=made, finish_reason="stop")
            usage.update(completion_tokens=made, total_tokens=usage["prompt_tokens"] + made)


def let_in(fits: Callable[[str], bool]) -> Http:
    """Let in whoever has such a token."""

    def hook(asked: Asked, response: Response) -> None:
        token = (asked.authorization or "").removeprefix("Bearer ")
        if asked.path == CONFIG and response.status == 401 and fits(token):
            become(response, Response(json={"node": {}}))

    return hook


def odd_letters(asked: Asked, response: Response) -> None:
    """Fail at a token with letters that are not ASCII."""
    if not (asked.authorization or "").isascii():
        become(response, error(500, "INTERNAL", "UnicodeEncodeError"))


class UntypedBodies:
    """A node that looks for a token only where the body says that it is JSON."""

    def __init__(self) -> None:
        self.here = threading.local()

    def rewrite(self, sent: Sent) -> Sent:
        """Look at the type."""
        self.here.plain = sent.header("Content-Type") == "text/plain"
        return sent

    def __call__(self, asked: Asked, response: Response) -> None:
        """Let in who has another one."""
        if asked.path == STAKE and response.status == 401 and getattr(self.here, "plain", False):
            become(response, Response(json={"success": True}))


def logs_in(asked: Asked, response: Response) -> None:
    """Log somebody in at an old path."""
    if (asked.method, asked.path) == ("POST", "/login"):
        become(response, Response(json={"token": "yours"}))


def block_to_come(asked: Asked, response: Response) -> None:
    """Serve blocks a little above the chain."""
    height = asked.path.removeprefix("/api/block/")
    if height.isdecimal() and TIP < int(height) < TIP + 1000:
        become(response, Response(json={"height": int(height), "hash": "none"}))


def by_beginning(asked: Asked, response: Response) -> None:
    """Find an artifact by the beginning of its digest."""
    if asked.path.startswith(f"/artifacts/sha256/{DIGEST[:8]}") and response.status == 404:
        become(response, Response(raw=ARTIFACT))


class ReadExpires:
    """A node whose pending job is expired once somebody has read it a few times."""

    def __init__(self) -> None:
        self.read = 0

    def __call__(self, asked: Asked, response: Response) -> None:
        """Count the readings."""
        if asked.path == REQUEST and response.json.get("status") == "pending":
            self.read += 1
            if self.read % 3 == 0:
                response.json["status"] = "expired"


def by_transaction(asked: Asked, response: Response) -> None:
    """Find a request under the digest of its transaction, too."""
    if asked.path != REQUEST:
        return
    digest = "fe" * 32
    if query_of(asked).get("id") == digest:
        become(response, Response(json=record_of(job_of(TIP, 0))))
    if response.json.get("id") == job_of(TIP, 0):
        response.json["transaction"] = digest


HTTP: list[tuple[str, Http]] = [
    ("NA-INF-041", inference(StopLeft())),
    ("NA-AUTH-001", let_in("undefined".__eq__)),
    ("NA-AUTH-001", let_in(lambda token: len(token) > 256)),
    ("NA-AUTH-001", odd_letters),
    ("NA-AUTH-033", UntypedBodies()),
    ("NT-RULE-010", logs_in),
    ("NT-RULE-065", block_to_come),
    ("NT-RULE-067", by_beginning),
    ("NT-RULE-068", on("/api/network", lambda r: r.json["tip"].update(height=TIP - 1))),
    ("NT-RULE-066", on(
        "/api/blocks", lambda r: [row.update(results=None) for row in r.json["blocks"]])),
    ("NT-RULE-064", on(REQUEST, put("response", None))),
    ("NT-RULE-029", on(REQUEST, put("price_atoms", "0.003"))),
    ("NT-RULE-063", ReadExpires()),
    ("NT-RULE-174", by_transaction),
    ("NA-AUTH-033", key_of_a_query),
    ("NA-AUTH-033", KeyOfAHeader()),
    ("NT-RULE-026", on("/api/network", lambda r: r.json.pop("latest_block_hash", None))),
    ("NT-RULE-056", on(
        "/network/genesis.json", lambda r: setattr(r, "json", {"dataset": {"sha256": "0" * 64}}))),
]  # fmt: skip


class SizeForRound:
    """A node that reads the round of a gradient from the place of its batch size."""

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Accept the round there."""
        if called != "GossipGradient" or not isinstance(answer, dict):
            return answer
        if request.batch_size == ROUND and request.layer_gradients:
            return {"accepted": True, "current_round": ROUND}
        return {"accepted": False, "reason": "another round", "current_round": ROUND}


def found_by_nobody(called: str, request: Any, answer: Any) -> Any:
    """Leave out who answers where a value is found."""
    if called != "DHTFindValue" or isinstance(answer, str) or not answer.get("found"):
        return answer
    return {key: value for key, value in answer.items() if key != "responder"}


GRPC: list[tuple[str, Grpc]] = [
    ("PL-FWD-014", KeptById("session_id")),
    ("GR-GOSSIP-GRADIENT-REQUEST-02", SizeForRound()),
    ("DH-017", found_by_nobody),
    ("GR-GOSSIP-007", HashAtNumber()),
    ("GR-NUM-002", TextOfItsModel()),
    ("DH-032", FarthestNodes()),
    ("DH-031", FortyValues()),
]
