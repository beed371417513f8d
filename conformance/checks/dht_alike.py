"""Interface 2.3: nodes whose IDs begin alike, and how close each of them is to a target."""

import os

from conformance import messages
from conformance.checks.dht import NODE_ID_BYTES, SENDER, distance, found_nodes
from conformance.context import Context
from conformance.editions import FIFTH
from conformance.findings import Skipped
from conformance.registry import requirement
from conformance.strictjson import brief

# In how many first bytes IDs are alike, how many of them there are, and whether the nearest come
# first. More than a node lists show whether it lists those that are closest.
BEGINNINGS = (2, 16, False), (2, 16, True), (8, 32, False)


@requirement("DH-030")
def dht_alike(context: Context) -> None:
    """Call DHTPing as senders whose IDs begin alike, and search for a place among them."""
    for same, many, nearest_first in BEGINNINGS if context.edition >= FIFTH else BEGINNINGS[:1]:
        _judge_alike(context, same, many, nearest_first=nearest_first)


def _judge_alike(context: Context, alike: int, many: int, *, nearest_first: bool) -> None:
    """Rule on a search among as many senders, whose IDs have so many first bytes in common."""
    target = os.urandom(NODE_ID_BYTES)
    # The farthest first, so that the order of their coming is not that of their distance.
    idents = [
        target[:alike]
        + bytes([target[alike] ^ (255 - step)])
        + os.urandom(NODE_ID_BYTES - alike - 1)
        for step in range(0, 256, 256 // many)
    ]
    if nearest_first:
        # A node may list the latest.
        idents.reverse()
    for at, ident in enumerate(idents):
        port = SENDER.port + at
        sender = messages.make("DHTNodeInfo", node_id=ident, ip=SENDER.ip, port=port)
        if not context.grpc.call("DHTPing", messages.make("DHTPingRequest", sender=sender)).ok:
            raise Skipped("DHTPing is refused")
    reply, listed = found_nodes(context, target)
    # A node may list itself besides, however far it is.
    home = reply.message.responder.node_id if reply.message is not None else b""
    farthest = max((distance(node, target) for node in listed if node != home), default=0)
    nearer = [i for i in idents if i not in listed and distance(i, target) < farthest]
    # A node need not learn of those who only say who they are, nor of all of them.
    left_out = [ident for ident in nearer if ident in found_nodes(context, ident)[1]]
    if nearer and context.edition >= FIFTH:
        known = {one for ident in idents for one in found_nodes(context, ident)[1]}
        left_out = [ident for ident in nearer if ident in known]
    if left_out:
        # It may have learned of them just now.
        reply, again = found_nodes(context, target)
        left_out = [ident for ident in left_out if ident not in again]
    if not left_out and not set(idents) & set(listed):
        raise Skipped("the node does not learn of those who ping it")
    why = f"for {target.hex()} without {brief([ident.hex() for ident in left_out[:2]], 160)}"
    context.judge("DH-030", not left_out, why, reply)
