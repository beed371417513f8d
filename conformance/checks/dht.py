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
from conformance.checks.numbers import judge_necessary
from conformance.context import Context
from conformance.editions import FIFTH, FOURTH, SIXTH
from conformance.exploration import explore
from conformance.findings import Skipped
from conformance.grpcwire import Reply
from conformance.registry import requirement
from conformance.strictjson import brief

NODE_ID_BYTES = 20
# The first edition that looks for what is not there a second time.
AGAIN_SINCE = 4
TRIES = 3
# So often a node is looked for, and found each time.
SEARCHES = 3
# So many bytes have keys that are no node's ID.
OTHER_LENGTHS = (19, 21, 32)
_INFO = fields_of_message("DHTNodeInfo")
# What every answer shows.
_EVERY = ("DH-013", "DH-017", "GR-NUM-001")

keys = st.binary(min_size=NODE_ID_BYTES, max_size=NODE_ID_BYTES)


# Port 9 is the discard port, in case the target calls back.
SENDER: Any = messages.make(
    "DHTNodeInfo", node_id=os.urandom(NODE_ID_BYTES), ip="127.0.0.1", port=9
)


def _call(context: Context, ident: str, operation: str, **fields: Any) -> tuple[Reply, Any]:
    """Call an operation and rule on its message; raise `Skipped` if the answer has none."""
    request, response = messages.OPERATIONS[operation]
    reply = context.grpc.call(operation, messages.make(request, sender=SENDER, **fields))
    if not judge_operation(context, ident, reply):
        if reply.code in ("INVALID_ARGUMENT", "INTERNAL"):
            why = f"status {reply.code} to the documented request: {reply.details}"
            context.wrong(ident, why, reply)
        if operation == "DHTFindValue" and reply.code == "NOT_FOUND":
            context.fails("DH-007", f"status {reply.code} instead of found false", reply)
        raise Skipped(f"{operation} ended with {reply.code}")
    answer = judge_message(context, response, reply)
    if answer is None:
        raise Skipped(f"{operation} returned no {response}")
    _judge_responder(context, response, reply, answer)
    return reply, answer


def _own_id(context: Context) -> bytes:
    """Return the ID that the node gives itself in DHTPing, or nothing; asks once in a run."""
    if context.service.node_id is None:
        reply = context.grpc.call("DHTPing", messages.make("DHTPingRequest", sender=SENDER))
        answer = reply.message
        context.service.node_id = answer.responder.node_id if answer is not None else b""
    return context.service.node_id


def _judge_responder(context: Context, response: str, reply: Reply, answer: Any) -> None:
    """Rule on the responder, which every answer of the DHT names."""
    present = answer.HasField("responder") and bool(answer.responder.node_id)
    if response != "DHTPingResponse":
        context.judge("DH-017", present, f"{response} has no responder", reply)
        own = _own_id(context)
        if present and own:
            shown = answer.responder.node_id
            why = f"the responder is {shown.hex()}, which DHTPing calls {own.hex()}"
            context.judge("DH-017", shown == own, why, reply)
    judge_necessary(context, response, {"responder": present}, reply.body, reply)
    inner = next((f.value for f in messages.wire_fields(reply.body) if f.number == 1), b"")
    if isinstance(inner, bytes) and inner and answer.HasField("responder"):
        needed = {"node_id": bool(answer.responder.node_id), "port": answer.responder.port != 0}
        judge_necessary(context, "DHTNodeInfo", needed, inner, reply)
    if present and answer.responder.port:
        port = answer.responder.port
        context.judge("DH-013", 0 < port < 65536, f"the port is {port}", reply)


def _judge_ids(context: Context, ident: str, nodes: list[Any], reply: Reply) -> None:
    if nodes:
        lengths = sorted({len(node.node_id) for node in nodes})
        context.judge(ident, lengths == [NODE_ID_BYTES], f"lengths {lengths}", reply)


@requirement(
    "GR-OP-015",
    "DH-001",
    "DH-002",
    "LIM-010",
    *_EVERY,
    *_INFO,
    *fields_of_message("DHTPingResponse"),
)  # fmt: skip
def dht_ping(context: Context) -> None:
    """Call DHTPing twice."""
    first_reply, first = _call(context, "GR-OP-015", "DHTPing")
    second_reply, second = _call(context, "GR-OP-015", "DHTPing")
    present = first.HasField("responder")
    itself = present and first.responder.node_id != SENDER.node_id
    why = "the responder is the sender" if present else "there is no responder"
    if context.judge("DH-001", itself, why, first_reply):
        _judge_ids(context, "LIM-010", [first.responder, second.responder], second_reply)
        context.judge(
            "DH-002",
            first.responder.node_id == second.responder.node_id,
            f"{first.responder.node_id.hex()} and {second.responder.node_id.hex()}",
            first_reply,
            second_reply,
        )


_FIND_NODE_IDS = ("DH-003", "DH-005", "DH-006", "DH-011", "DH-018", *_EVERY)


@requirement("GR-OP-017", *_FIND_NODE_IDS, *_INFO, *fields_of_message("DHTFindNodeResponse"))
def dht_find_node(context: Context) -> None:
    """Call DHTFindNode with generated IDs, and with the ID of a node in an answer."""

    def search(target: bytes) -> None:
        reply, answer = _call(context, "GR-OP-017", "DHTFindNode", target_id=target)
        _judge_nodes(context, list(answer.nodes), reply)
        if not answer.nodes or len(answer.nodes[0].node_id) != NODE_ID_BYTES:
            # For what is no ID, a node may refuse to search.
            return
        for _ in range(TRIES):
            wanted = answer.nodes[0]
            for _ in range(SEARCHES if context.edition >= SIXTH else 1):
                again_reply, again = _call(
                    context, "GR-OP-017", "DHTFindNode", target_id=wanted.node_id
                )
            found = wanted.node_id in [node.node_id for node in again.nodes]
            # A node may leave between two searches, but then it is not listed a second time.
            reply, answer = _call(context, "GR-OP-017", "DHTFindNode", target_id=target)
            if found or not answer.nodes or len(answer.nodes[0].node_id) != NODE_ID_BYTES:
                break
        why = f"{wanted.node_id.hex()} was listed but is not found"
        context.judge("DH-006", found, why, reply, again_reply)

    explore(context, keys, search, examples=max(3, context.target.examples // 2))


def _judge_nodes(context: Context, nodes: list[Any], reply: Reply) -> None:
    context.observe("DH-011", f"{len(nodes)} nodes", reply)
    if not nodes:
        return
    _judge_ids(context, "DH-003", nodes, reply)
    idents = [node.node_id for node in nodes]
    context.judge("DH-005", len(set(idents)) == len(idents), "a node is listed twice", reply)
    context.judge("DH-018", all(node.ip for node in nodes), "a node has no ip", reply)
    ports = [node.port for node in nodes]
    context.judge("DH-013", all(0 < port < 65536 for port in ports), f"ports {brief(ports)}", reply)


def distance(one: bytes, other: bytes) -> int:
    """Return the distance of two IDs: the bits in which they differ, as a number."""
    return int.from_bytes(one, "big") ^ int.from_bytes(other, "big")


@requirement("DH-016")
def dht_closest(context: Context) -> None:
    """Call DHTFindNode at several places of the ring, and look for nodes that were left out."""
    known: dict[bytes, Reply] = {}
    targets = [bytes([step * 16]) + os.urandom(NODE_ID_BYTES - 1) for step in range(0, 16, 3)]
    for target in targets:
        listing, nodes = found_nodes(context, target)
        known.update(dict.fromkeys(nodes, listing))
    for target in (*targets, *list(known)[:3]):
        left_out: set[bytes] = set()
        for at in range(TRIES):
            reply, nodes = found_nodes(context, target)
            if not nodes:
                return
            farthest = max(distance(node, target) for node in nodes)
            nearer = {
                node for node in known
                if node not in nodes and distance(node, target) < farthest
            }  # fmt: skip
            # A node that has left is not left out: it must still be listed for itself.
            nearer = {node for node in nearer if node in found_nodes(context, node)[1]}
            left_out = nearer if at == 0 else left_out & nearer
            if not left_out:
                break
        shown = ", ".join(node.hex() for node in sorted(left_out)[:2])
        context.judge("DH-016", not left_out, f"for {target.hex()} without {shown}", reply)


def found_nodes(context: Context, target: bytes) -> tuple[Reply, list[bytes]]:
    """Call DHTFindNode; return the reply, and the IDs that it lists."""
    request = messages.make("DHTFindNodeRequest", sender=SENDER, target_id=target)
    reply = context.grpc.call("DHTFindNode", request)
    answer = reply.message
    return reply, [node.node_id for node in answer.nodes] if answer is not None else []


def _judge_both_list(context: Context, key: bytes, answer: Any, reply: Reply) -> None:
    """Rule on the closest nodes, which both searches list."""
    other_reply, nodes = found_nodes(context, key)
    request = messages.make("DHTFindValueRequest", sender=SENDER, key=key)
    again = context.grpc.call("DHTFindValue", request)
    try:
        after = messages.parse("DHTFindValueResponse", again.body)
    except messages.BadMessage:
        return
    searched = [{node.node_id for node in each.nodes} for each in (answer, after)]
    if not other_reply.ok or not again.ok or searched[0] != searched[1]:
        # The node has learned of others meanwhile.
        return
    both = set(nodes) <= searched[0] or searched[0] <= set(nodes)
    both = both and bool(nodes) == bool(answer.nodes)
    only = [sorted(each)[0].hex() for each in (set(nodes) - searched[0], searched[0] - set(nodes))
            if each]  # fmt: skip
    why = f"DHTFindNode lists {len(nodes)} nodes, DHTFindValue {len(answer.nodes)}"
    why += f"; only one of them lists {' and '.join(only)}" if only else ""
    context.judge("DH-020", both, why, other_reply, reply)
    for name, listed, shown in (
        ("DHTFindNodeResponse", nodes, other_reply), ("DHTFindValueResponse", answer.nodes, reply),
    ):  # fmt: skip
        if not both:
            judge_necessary(context, name, {"nodes": bool(listed)}, shown.body, shown)


@requirement(
    "GR-OP-018",
    "DH-007",
    "DH-008",
    "DH-020",
    *_EVERY,
    *_INFO,
    *fields_of_message("DHTFindValueResponse"),
)
def dht_find_value(context: Context) -> None:
    """Call DHTFindValue with generated keys under which nothing has been stored."""

    def look(salt: bytes) -> None:
        # Fresh in every run, since another run may have stored a value under the same generated
        # key.
        key = bytes(a ^ b for a, b in zip(salt, os.urandom(NODE_ID_BYTES), strict=True))
        reply, answer = _call(context, "GR-OP-018", "DHTFindValue", key=key)
        if context.edition >= AGAIN_SINCE and not answer.found:
            # A node may keep that there was nothing, and then take it for something.
            reply, answer = _call(context, "GR-OP-018", "DHTFindValue", key=key)
        if context.judge("DH-007", not answer.found, f"found {brief(answer.value)}", reply):
            context.judge("DH-008", not answer.value, f"value {brief(answer.value)}", reply)
            _judge_both_list(context, key, answer, reply)

    explore(context, keys, look, examples=max(3, context.target.examples // 2))


_STORE_IDS = (
    "DH-009", "DH-010", "GR-DHT-STORE-REQUEST-02", "GR-DHT-STORE-REQUEST-03",
    "GR-DHT-FIND-VALUE-REQUEST-02",
)  # fmt: skip
_REQUESTS = _STORE_IDS[2:]
_STORE_FIELDS = fields_of_message("DHTStoreResponse", "DHTFindValueResponse")


@requirement(
    "GR-OP-016", "DH-007", "DH-019", "DH-045", *_EVERY, *_STORE_IDS, *_INFO, *_STORE_FIELDS
)
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
    store("A value, with Capitals: and spaces")
    if context.edition >= FIFTH:
        for length in OTHER_LENGTHS:
            _judge_other_length(context, length)
    key = os.urandom(NODE_ID_BYTES)
    _store_and_find(context, key, "192.0.2.1:9000")
    _judge_neighbour(context, key)
    stored, _ = _store(context, key, "192.0.2.2:9000")
    reply, found = find_value(context, key)
    context.observe("DH-010", f"afterwards it is {brief(found.value)}", stored, reply)


def _judge_other_length(context: Context, length: int) -> None:
    """Store under a key of another length, which a node may refuse, and look it up."""
    key = os.urandom(length)
    request = messages.make("DHTStoreRequest", sender=SENDER, key=key, value="192.0.2.3:9000")
    stored = context.grpc.call("DHTStore", request)
    if stored.message is None or not stored.message.success:
        asked = messages.make("DHTFindValueRequest", sender=SENDER, key=key)
        reply = context.grpc.call("DHTFindValue", asked)
        found = reply.message is not None and reply.message.found
        why = f"a store under a key of {length} bytes is refused, and its value is found"
        context.judge("DH-019", not found, why, stored, reply)


def _judge_neighbour(context: Context, key: bytes) -> None:
    """Look up the key that differs from a stored one in its last bit."""
    reply, found = find_value(context, key[:-1] + bytes([key[-1] ^ 1]))
    why = f"found {brief(found.value)} under a key that only resembles a stored one"
    context.judge("DH-007", not found.found, why, reply)


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
    reply, found = find_value(context, key)
    if not answer.success:
        # A node is free to refuse a value, and then does not have it.
        why = f"success is false, but {brief(found.value)} is found under the fresh key"
        context.judge("DH-019", not found.found, why, stored, reply)
        judge_necessary(
            context, "DHTStoreResponse", {"success": not found.found}, stored.body, stored
        )
        return
    context.holds("DH-019", stored, reply)
    needed = {"found": found.found, "value": bool(found.value)}
    if found.found or found.value:
        judge_necessary(context, "DHTFindValueResponse", needed, reply.body, reply)
    held = found.found and found.value == value
    why = f"stored {brief(value)}, found is {found.found} with {brief(found.value)}"
    context.judge("DH-009", held, why, stored, reply)
    if found.found and context.edition >= FOURTH:
        _judge_responder(context, "DHTFindValueResponse", reply, found)
    if held:
        for ident in _REQUESTS:
            context.holds(ident, stored, reply)
