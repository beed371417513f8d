"""Mutants that look for something in another place, or for too few.

The fifth stranger's node has shown them; see `followed.py`.
"""

import threading
from typing import Any

from conformance import messages
from conformance.checks.dht import distance
from conformance.judging.hooks import Grpc, Http, on
from conformance.judging.mutants.mixed_native import API, become, query_of
from conformance.judging.toy.answers import Asked, Response, Sent
from conformance.judging.toy.calls import CLOSEST
from conformance.messages import LENGTH, WireField, encode_field

CONFIG, STAKE = f"{API}/config", f"{API}/wallet/stake"
HASH_AT, FEW = 10, 40


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


class HashAtNumber:
    """A node that reads the hash of a gradient's model from another number."""

    def __init__(self) -> None:
        self.own = b""

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Remember the node's own hash, and accept what has it there."""
        if called == "GetCheckpointInfo" and isinstance(answer, dict):
            self.own = answer["model_hash"].encode()
        if called != "GossipGradient" or not isinstance(answer, dict):
            return answer
        there = encode_field(WireField(HASH_AT, LENGTH, self.own))
        if self.own and there in request.SerializeToString():
            return {"accepted": True, "current_round": 3}
        return {"accepted": False, "reason": "another model", "current_round": 3}


class TextOfItsModel:
    """A node that reads the gradients of its own model as texts, and looks at no others."""

    def __init__(self) -> None:
        self.own = ""

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Remember the node's own hash, and refuse bytes."""
        if called == "GetCheckpointInfo" and isinstance(answer, dict):
            self.own = answer["model_hash"]
        if called != "GossipGradient" or not isinstance(answer, dict):
            return answer
        if not self.own or request.model_hash != self.own:
            return {"accepted": False, "reason": "another model", "current_round": 3}
        texts = all(content.isascii() for content in request.layer_gradients.values())
        no_frame = {"accepted": False, "reason": "no LZ4 frame", "current_round": 3}
        return no_frame if texts else "INVALID_ARGUMENT"


class FarthestNodes:
    """A node that lists those that are farthest from a target."""

    def __init__(self) -> None:
        self.known: dict[bytes, Any] = {}

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Learn of a sender, and list what it has learned."""
        if isinstance(answer, str) or request is None or not called.startswith("DHT"):
            return answer
        sender = request.sender
        if len(sender.node_id) == len(answer["responder"].node_id) and 0 < sender.port < 2**16:
            fields = {"node_id": sender.node_id, "ip": sender.ip, "port": sender.port}
            self.known[sender.node_id] = messages.make("DHTNodeInfo", **fields)
        if called != "DHTFindNode" or not answer.get("nodes"):
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


HTTP: list[tuple[str, Http]] = [
    ("NA-AUTH-033", key_of_a_query),
    ("NA-AUTH-033", KeyOfAHeader()),
    ("NT-RULE-026", on("/api/network", lambda r: r.json.pop("latest_block_hash", None))),
    ("NT-RULE-056", on(
        "/network/genesis.json", lambda r: setattr(r, "json", {"dataset": {"sha256": "0" * 64}}))),
]  # fmt: skip
GRPC: list[tuple[str, Grpc]] = [
    ("GR-GOSSIP-007", HashAtNumber()),
    ("GR-NUM-002", TextOfItsModel()),
    ("DH-032", FarthestNodes()),
    ("DH-031", FortyValues()),
]
