"""Interface 2.3 and 4.3: the distributed hash table of one node, seen from outside.

The suite is not a node. All calls of one process name the same sender, with a fresh ID and a port
on which nobody answers, so that a routing table gets at most one dead entry. Values are stored
under fresh random keys, since nothing can be removed again.
"""

import os
from typing import Any

from hypothesis import strategies as st

from conformance import messages
from conformance.catalogue import fields_of_message
from conformance.checks.answers import judge_message, judge_operation
from conformance.context import Context
from conformance.exploration import explore
from conformance.findings import Skipped
from conformance.grpcwire import Reply
from conformance.registry import requirement
from conformance.strictjson import brief

NODE_ID_BYTES = 20
_INFO = fields_of_message("DHTNodeInfo")

keys = st.binary(min_size=NODE_ID_BYTES, max_size=NODE_ID_BYTES)


# Port 9 is the discard port, in case the target calls back.
SENDER = messages.make("DHTNodeInfo", node_id=os.urandom(NODE_ID_BYTES), ip="127.0.0.1", port=9)


def _call(context: Context, ident: str, operation: str, **fields: Any) -> tuple[Reply, Any]:
    """Call an operation and rule on its message; raise `Skipped` if the answer has none."""
    request, response = messages.OPERATIONS[operation]
    reply = context.grpc.call(operation, messages.make(request, sender=SENDER, **fields))
    if not judge_operation(context, ident, reply):
        raise Skipped(f"{operation} ended with {reply.code}")
    answer = judge_message(context, response, reply)
    if answer is None:
        raise Skipped(f"{operation} returned no {response}")
    return reply, answer


def _judge_ids(context: Context, ident: str, nodes: list[Any], reply: Reply) -> None:
    if nodes:
        lengths = sorted({len(node.node_id) for node in nodes})
        context.judge(ident, lengths == [NODE_ID_BYTES], f"lengths {lengths}", reply)


@requirement(
    "GR-OP-015", "DH-001", "DH-002", "LIM-010", *_INFO, *fields_of_message("DHTPingResponse")
)
def dht_ping(context: Context) -> None:
    """Call DHTPing twice."""
    first_reply, first = _call(context, "GR-OP-015", "DHTPing")
    second_reply, second = _call(context, "GR-OP-015", "DHTPing")
    present = first.HasField("responder")
    if context.judge("DH-001", present, "there is no responder", first_reply):
        _judge_ids(context, "LIM-010", [first.responder, second.responder], second_reply)
        context.judge(
            "DH-002",
            first.responder.node_id == second.responder.node_id,
            f"{first.responder.node_id.hex()} and {second.responder.node_id.hex()}",
            first_reply,
            second_reply,
        )


_FIND_NODE_IDS = ("DH-003", "DH-005", "DH-006", "DH-011", "DH-013")


@requirement("GR-OP-017", *_FIND_NODE_IDS, *_INFO, *fields_of_message("DHTFindNodeResponse"))
def dht_find_node(context: Context) -> None:
    """Call DHTFindNode with generated IDs, and with the ID of a node in an answer."""

    def search(target: bytes) -> None:
        reply, answer = _call(context, "GR-OP-017", "DHTFindNode", target_id=target)
        _judge_nodes(context, list(answer.nodes), reply)
        if not answer.nodes:
            return
        wanted = answer.nodes[0]
        again_reply, again = _call(context, "GR-OP-017", "DHTFindNode", target_id=wanted.node_id)
        context.judge(
            "DH-006",
            wanted.node_id in [node.node_id for node in again.nodes],
            f"{wanted.node_id.hex()} was listed but is not found",
            reply,
            again_reply,
        )

    explore(context, keys, search, examples=max(3, context.target.examples // 2))


def _judge_nodes(context: Context, nodes: list[Any], reply: Reply) -> None:
    context.observe("DH-011", f"{len(nodes)} nodes", reply)
    if not nodes:
        return
    _judge_ids(context, "DH-003", nodes, reply)
    idents = [node.node_id for node in nodes]
    context.judge("DH-005", len(set(idents)) == len(idents), "a node is listed twice", reply)
    ports = [node.port for node in nodes]
    context.judge("DH-013", all(0 < port < 65536 for port in ports), f"ports {brief(ports)}", reply)


@requirement("GR-OP-018", "DH-007", "DH-008", *_INFO, *fields_of_message("DHTFindValueResponse"))
def dht_find_value(context: Context) -> None:
    """Call DHTFindValue with generated keys under which nothing has been stored."""

    def look(salt: bytes) -> None:
        # Fresh in every run, since another run may have stored a value under the same generated
        # key.
        key = bytes(a ^ b for a, b in zip(salt, os.urandom(NODE_ID_BYTES), strict=True))
        reply, answer = _call(context, "GR-OP-018", "DHTFindValue", key=key)
        if context.judge("DH-007", not answer.found, f"found {brief(answer.value)}", reply):
            context.judge("DH-008", not answer.value, f"value {brief(answer.value)}", reply)

    explore(context, keys, look, examples=max(3, context.target.examples // 2))


_STORE_IDS = (
    "DH-009", "DH-010", "GR-DHT-STORE-REQUEST-02", "GR-DHT-STORE-REQUEST-03",
    "GR-DHT-FIND-VALUE-REQUEST-02",
)  # fmt: skip
_STORE_FIELDS = fields_of_message("DHTStoreResponse", "DHTFindValueResponse")


@requirement("GR-OP-016", *_STORE_IDS, *_INFO, *_STORE_FIELDS)
def dht_store(context: Context) -> None:
    """Call DHTStore with generated values and fresh keys, twice with one key; look each up."""

    def store(value: str) -> None:
        _store_and_find(context, os.urandom(NODE_ID_BYTES), value)

    addresses = st.builds(
        lambda host, port: f"{host}:{port}",
        st.ip_addresses(v=4).map(str),
        st.integers(1, 65535),
    )
    explore(context, addresses, store, examples=max(3, context.target.examples // 2))
    key = os.urandom(NODE_ID_BYTES)
    _store_and_find(context, key, "192.0.2.1:9000")
    stored, _ = _store(context, key, "192.0.2.2:9000")
    reply, found = find_value(context, key)
    context.observe("DH-010", f"afterwards it is {brief(found.value)}", stored, reply)


def _store(context: Context, key: bytes, value: str) -> tuple[Reply, Any]:
    return _call(context, "GR-OP-016", "DHTStore", key=key, value=value)


def find_value(context: Context, key: bytes) -> tuple[Reply, Any]:
    """Look up a key; raise `Skipped` if there is no valid answer."""
    # Whether the operation exists is judged by the check of that operation.
    request = messages.make("DHTFindValueRequest", sender=SENDER, key=key)
    reply = context.grpc.call("DHTFindValue", request)
    answer = judge_message(context, "DHTFindValueResponse", reply) if reply.ok else None
    if answer is None:
        raise Skipped(f"DHTFindValue ended with {reply.code}")
    return reply, answer


def _store_and_find(context: Context, key: bytes, value: str) -> None:
    stored, answer = _store(context, key, value)
    if not answer.success:
        # A node is free to refuse a value.
        return
    reply, found = find_value(context, key)
    held = found.found and found.value == value
    why = f"stored {brief(value)}, found is {found.found} with {brief(found.value)}"
    context.judge("DH-009", held, why, stored, reply)
    if held:
        for ident in _STORE_IDS[2:]:
            context.holds(ident, stored, reply)
