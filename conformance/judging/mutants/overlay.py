"""Mutants of what a node says of others and of itself, and of what two places say of one thing.

The rows have the form of those in `followed_calls.py`. All of them are for the toy.
"""

import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from conformance import messages
from conformance.checks.dht import distance
from conformance.judging.hooks import HEALTH, Drifting, Grpc, Http, on, put
from conformance.judging.mutants.followed_calls import not_found
from conformance.judging.toy.answers import Asked, Response, now
from conformance.judging.toy.calls import CHECKPOINT
from conformance.judging.toy.node import NODE_ID, SECOND

NETWORK, PEERS = "/api/v1/network", "/api/v1/peers"
GLOBAL, VERIFY = "/api/training/global", "/api/training/verify"
GOSSIP = "GossipGradient"
REFUSED: dict[str, Any] = {
    "accepted": False,
    "reason": "not now",
    "current_round": CHECKPOINT["version"],
}
# As many nodes as one of two searches lists, and answers after which a node has another ID.
MANY, SOON = 9, 3
# Long enough for a call that is under way to meet another one.
MEETS_S = 0.01


def changed(node: Any, **fields: Any) -> Any:
    """Return what names a node, with other fields."""
    own = {"node_id": node.node_id, "ip": node.ip, "port": node.port}
    return messages.make("DHTNodeInfo", **{**own, **fields})


def listing(change: Callable[[list[Any]], list[Any]]) -> Grpc:
    """Change the nodes that a search lists."""

    def hook(called: str, request: Any, answer: Any) -> Any:
        listed = answer.get("nodes") if isinstance(answer, dict) else None
        return {**answer, "nodes": change(listed)} if listed else answer

    return hook


def responder(called: str, **fields: Any) -> Grpc:
    """Name the responder in another way in the answers of one operation."""

    def hook(operation: str, request: Any, answer: Any) -> Any:
        if operation != called or not isinstance(answer, dict):
            return answer
        return {**answer, "responder": changed(answer["responder"], **fields)}

    return hook


def found(change: Callable[[str], str]) -> Grpc:
    """Find another value than the one that was stored."""

    def hook(called: str, request: Any, answer: Any) -> Any:
        there = called == "DHTFindValue" and isinstance(answer, dict) and answer.get("found")
        return {**answer, "value": change(answer["value"])} if there else answer

    return hook


def lost(when: Callable[[Any, str], bool]) -> Grpc:
    """Lose some of the values."""

    def hook(called: str, request: Any, answer: Any) -> Any:
        there = called == "DHTFindValue" and isinstance(answer, dict) and answer.get("found")
        return not_found(answer) if there and when(request, answer["value"]) else answer

    return hook


def of_addresses(called: str, request: Any, answer: Any) -> Any:
    """Store nothing but addresses."""
    refused = called == "DHTStore" and isinstance(answer, dict) and ":" not in request.value
    return {**answer, "success": False} if refused else answer


def linked(request: Any) -> bool:
    """Whether a gradient has frames whose blocks may refer to one another."""
    return not all(frame[4:5] and frame[4] & 0x20 for frame in request.layer_gradients.values())


def gossiped(change: Callable[[Any, Any], Any]) -> Grpc:
    """Change the answers to gradients."""

    def hook(called: str, request: Any, answer: Any) -> Any:
        fits = called == GOSSIP and isinstance(answer, dict)
        return change(request, answer) if fits else answer

    return hook


def beside_value(called: str, request: Any, answer: Any) -> Any:
    """List a node beside a value that is found."""
    there = called == "DHTFindValue" and isinstance(answer, dict) and answer.get("found")
    return {**answer, "nodes": [answer["responder"]]} if there else answer


def nobody_at_zero(called: str, request: Any, answer: Any) -> Any:
    """List nobody in a search for the first of all IDs."""
    at_zero = called == "DHTFindNode" and not any(request.target_id)
    return {**answer, "nodes": []} if at_zero and isinstance(answer, dict) else answer


def nothing_for_nobody(called: str, request: Any, answer: Any) -> Any:
    """List nobody in a search that names no sender."""
    unnamed = called == "DHTFindNode" and not request.HasField("sender")
    return {**answer, "nodes": []} if unnamed and isinstance(answer, dict) else answer


class AnotherId:
    """A node that has another ID after some answers."""

    def __init__(self) -> None:
        self.answers = 0

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Count the answers."""
        if not called.startswith("DHT") or not isinstance(answer, dict):
            return answer
        self.answers += 1
        late = self.answers > SOON and called == "DHTFindNode"
        own = answer["responder"]
        return {**answer, "responder": changed(own, node_id=bytes(20))} if late else answer


class TwoSizes:
    """A node that lists many nodes in one search, and few in the other."""

    def __init__(self) -> None:
        self.known: dict[bytes, Any] = {}

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Learn of senders, and of those that are listed."""
        if not called.startswith("DHT") or not isinstance(answer, dict):
            return answer
        for node in (request.sender, *answer.get("nodes", ())):
            if node.ip and 0 < node.port < 2**16:
                self.known[bytes(node.node_id)] = node
        if called != "DHTFindNode":
            return answer
        nearest = sorted(self.known, key=lambda ident: distance(ident, request.target_id))
        return {**answer, "nodes": [self.known[ident] for ident in nearest[:MANY]]}


class OneList:
    """A node that lists the same few of those who have called it, whoever is looked for."""

    def __init__(self) -> None:
        self.known = dict[bytes, Any]()

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Learn of senders."""
        if not called.startswith("DHT") or not isinstance(answer, dict):
            return answer
        node = request.sender
        if called == "DHTPing" and node.ip and 0 < node.port < 2**16:
            self.known[bytes(node.node_id)] = node
        first = [self.known[ident] for ident in sorted(self.known)[:MANY]]
        return {**answer, "nodes": first} if "nodes" in answer else answer


class OneAnswer:
    """A node whose look-ups that are under way together have the value of the latest one."""

    def __init__(self) -> None:
        self.value = ""

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Wait a moment between a look-up and its answer."""
        if called != "DHTFindValue" or not isinstance(answer, dict) or not answer.get("found"):
            return answer
        self.value = answer["value"]
        time.sleep(MEETS_S)
        return {**answer, "value": self.value}


class OneStore:
    """A node that loses what is stored while something else is."""

    def __init__(self) -> None:
        self.lock, self.lost = threading.Lock(), set[bytes]()

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Remember the keys that came too early."""
        if called == "DHTStore":
            if not self.lock.acquire(blocking=False):
                self.lost.add(request.key)
                return answer
            time.sleep(MEETS_S)
            self.lock.release()
        hidden = called == "DHTFindValue" and request.key in self.lost
        return not_found(answer) if hidden else answer


class EachRound:
    """A node that begins another round with each gradient that it accepts."""

    def __init__(self) -> None:
        self.round = REFUSED["current_round"]

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Count the gradients."""
        if called != GOSSIP or not isinstance(answer, dict):
            return answer
        self.round += bool(answer["accepted"])
        return {**answer, "current_round": self.round}


class BackAgain:
    """A node that is in an earlier round after some gradients."""

    def __init__(self) -> None:
        self.answers = 0

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Count the answers."""
        if called != GOSSIP or not isinstance(answer, dict):
            return answer
        self.answers += 1
        back = self.answers > SOON
        return {**answer, "current_round": answer["current_round"] - back}


class Sulking:
    """A node that refuses what comes directly behind a refusal."""

    def __init__(self) -> None:
        self.refused = False

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Remember whether the latest gradient was refused as it should be."""
        if called != GOSSIP or not isinstance(answer, dict):
            return answer
        before, self.refused = self.refused, not answer["accepted"]
        return REFUSED if before and answer["accepted"] else answer


def of_second(asked: Asked, response: Response) -> None:
    """Show the second account no peers."""
    if asked.path == PEERS and response.status == 200 and asked.authorization == f"Bearer {SECOND}":
        response.json = {"peers": [], "total": 0}


def not_working(asked: Asked, response: Response) -> None:
    """Say that a training of which all is well does not work."""
    if asked.path == VERIFY and response.status == 200:
        response.json = {"is_working": False, "reason": "no", "action": "wait"}


def since_now(asked: Asked, response: Response) -> None:
    """Have the peers connect with each answer."""
    if asked.path == PEERS and response.status == 200:
        for peer in response.json["peers"]:
            peer["connected_since"] = now()


GRPC: list[tuple[str, Grpc]] = [
    ("DH-040", listing(lambda nodes: [changed(n, port=n.port & 0x7FFF or 1) for n in nodes])),
    ("DH-040", listing(lambda nodes: [
        changed(node, ip=nodes[at - 1].ip) for at, node in enumerate(nodes)
    ])),
    ("DH-040", listing(lambda nodes: [changed(n, ip=n.ip.partition(":")[0]) for n in nodes])),
    ("DH-041", listing(lambda nodes: [
        changed(node, port=node.port + 1000) if node.port < 60_000 else node for node in nodes
    ])),
    ("DH-017", AnotherId()),
    ("DH-042", responder("DHTFindNode", port=1)),
    ("DH-043", responder("DHTFindValue", ip="192.0.2.77")),
    ("DH-044", TwoSizes()),
    ("DH-049", OneList()),
    ("DH-045", beside_value),
    ("DH-047", nothing_for_nobody),
    ("DH-046", OneAnswer()),
    ("DH-046", OneStore()),
    ("DH-021", lost(lambda request, value: value == "0")),
    ("DH-021", found(unquote)),
    ("DH-021", found(lambda value: value.lstrip("0") or "0" if value.isdecimal() else value)),
    ("DH-048", of_addresses),
    ("DH-022", lost(lambda request, value: not any(request.key))),
    ("DH-032", nobody_at_zero),
    ("GR-GOSSIP-009", gossiped(
        lambda request, answer: REFUSED if len(request.layer_gradients) > 1 else answer)),
    ("GR-GOSSIP-024", gossiped(lambda request, answer: REFUSED if linked(request) else answer)),
    ("GR-GOSSIP-020", gossiped(lambda request, answer: {**answer, "current_round": 1})),
    ("GR-GOSSIP-021", BackAgain()),
    ("GR-GOSSIP-022", EachRound()),
    ("GR-GOSSIP-023", Sulking()),
]  # fmt: skip
HTTP: list[tuple[str, Http]] = [
    ("NA-SAME-001", on(NETWORK, put("training.epoch", 9))),
    ("NA-SAME-002", on(NETWORK, put("nodes.total", 1))),
    ("NA-SAME-003", on(NETWORK, put("nodes", {
        "total": 9, "drivers": 0, "workers": 0, "validators": 0}))),
    ("NA-SAME-004", on(PEERS, lambda response: response.json["peers"][0].update(layers=[90]))),
    ("NA-SAME-005", on(PEERS, lambda response: response.json["peers"][0].update(id=NODE_ID.hex()))),
    ("NA-SAME-005", on(PEERS, lambda response: response.json.update(
        peers=response.json["peers"][:1] * 2, total=2))),
    ("NA-SAME-006", on(HEALTH, lambda response: response.json.update(
        healthy=False, checks=dict.fromkeys(response.json["checks"], "ok")))),
    ("NA-SAME-011", on(HEALTH, lambda response: response.__dict__.update(status=503))),
    ("NA-SAME-008", since_now),
    ("NA-SAME-008", Drifting(NETWORK, "architecture.hidden_dim", 1)),
    ("TR-SAME-004", on(VERIFY, put("metrics.global_loss", 99.5))),
    ("TR-SAME-007", on(GLOBAL, put("local.current_loss", 99.5))),
    ("TR-SAME-008", on(GLOBAL, lambda response: response.json.update(
        hash_agreement_rate=0.77, is_converging=False))),
    ("TR-SAME-009", on(GLOBAL, put("data_shards_covered", [0, 1, 1]))),
    ("TR-SAME-005", on("/api/v1/status", put("training.enabled", False))),
    ("TR-SAME-005", on(GLOBAL, put("local.is_training", True))),
    ("NA-SAME-010", of_second),
    ("TR-SAME-006", not_working),
    ("GR-SAME-003", on(NETWORK, put("architecture.hidden_dim", 99))),
    ("NA-SAME-009", on("/api/v1/proofs", lambda response: [
        proof.update(layer=90) for proof in response.json["proofs"]])),
]  # fmt: skip
