"""Interface 2.3 and 4.3: what a node says of itself in all answers over gRPC of a run.

Who answers for the DHT is the same node in each answer, at the same address, and the round of a
receiver of gradients does not go back. A check compares the answers that it asked for itself.
"""

import threading
from dataclasses import dataclass, field
from typing import Any

from conformance.editions import SEVENTH, SIXTH
from conformance.findings import Findings
from conformance.grpcwire import Reply
from conformance.journal import Exchange
from conformance.strictjson import brief

ANSWERED, PINGED, ID = "DH-001", "DH-002", "DH-017"
PORT, IP, ROUND = "DH-042", "DH-043", "GR-GOSSIP-021"
NO_VALUE, NO_NODES = "DH-008", "DH-045"
IDS = frozenset({ANSWERED, PINGED, ID, PORT, IP, ROUND, NO_VALUE, NO_NODES})
DHT, PING, SEARCH, GOSSIP = "DHT", "DHTPing", "DHTFindValue", "GossipGradient"


@dataclass
class Itself:
    """What a target has said of itself so far, with the exchange that has it."""

    said: dict[str, tuple[Any, Exchange]] = field(default_factory=dict)
    """The first value of each field of the responder."""
    latest: tuple[int, Exchange] | None = None
    """The highest round that an answer has named."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def judge(self, findings: Findings, reply: Reply) -> None:
        """Rule on an answer, given all answers before it."""
        shown = reply.operation.startswith(DHT) or reply.operation == GOSSIP
        answer = reply.message if shown and findings.edition >= SIXTH else None
        if answer is None:
            return
        if reply.operation == PING and findings.edition >= SEVENTH:
            named = answer.HasField("responder") and bool(answer.responder.node_id)
            # One that cannot be read is judged by its fields.
            if named or not reply.body:
                findings.judge(ANSWERED, named, "an answer to a ping has no responder", reply)
        with self.lock:
            if reply.operation.startswith(DHT) and answer.HasField("responder"):
                own = answer.responder
                ident = PINGED if reply.operation == PING else ID
                self._judge_same(findings, ident, "node_id", bytes(own.node_id).hex(), reply)
                self._judge_same(findings, PORT, "port", own.port, reply)
                self._judge_same(findings, IP, "ip", own.ip, reply)
            if reply.operation == GOSSIP:
                self._judge_round(findings, answer.current_round, reply)
        if reply.operation == SEARCH:
            _judge_search(findings, answer, reply)

    def _judge_same(
        self, findings: Findings, ident: str, name: str, value: Any, reply: Reply
    ) -> None:
        if not value and name not in self.said:
            return
        known, first = self.said.setdefault(name, (value, reply.exchange))
        if first is not reply.exchange:
            why = f"{name} of the responder was {brief(known)}, and is {brief(value)}"
            findings.judge(ident, value == known, why, first, reply)

    def _judge_round(self, findings: Findings, told: int, reply: Reply) -> None:
        """Rule on the round of a receiver, of which 0 may say that it tells none."""
        if told <= 0:
            return
        if self.latest is not None:
            known, first = self.latest
            # Two that were under way together may be answered in any order.
            if reply.exchange.at_s >= first.at_s + first.took_ms / 1000:
                why = f"current_round was {known}, and is {told}"
                findings.judge(ROUND, told >= known, why, first, reply)
        if self.latest is None or told > self.latest[0]:
            self.latest = told, reply.exchange


def _judge_search(findings: Findings, answer: Any, reply: Reply) -> None:
    """Rule on a search for a value, which is answered with it or with nodes."""
    if answer.found:
        why = f"a value is found, and {len(answer.nodes)} nodes are listed beside it"
        findings.judge(NO_NODES, not answer.nodes, why, reply)
    else:
        why = f"found is false, and the value {brief(answer.value)}"
        findings.judge(NO_VALUE, not answer.value, why, reply)
