"""What nodes publish in the DHT, and under which keys (document, 2.3: DHTStoreRequest.value).

Not shown, and decided in decisions/0045: the keys are the SHA-1 digests of the names below. The
value is ``host:port`` of the node's HTTP interface, as in the document's example, then a space and
the node's id in hexadecimal. Without the id nobody could tell whether the right node answers there.

Invariant: what :func:`holder_in` gives was admitted by the policy, as if the farthest of those who
may have told it had.
"""

from __future__ import annotations

from collections.abc import Iterable

from meshnode.domain.kademlia.address import locate
from meshnode.domain.kademlia.contact import Contact
from meshnode.domain.kademlia.node_id import NodeId, key_of
from meshnode.domain.kademlia.policy import ContactPolicy
from meshnode.domain.kademlia.refusals import NotAnAddress, Refused

NETWORK_KEY = key_of("nodes")
"""Under it all nodes of the network are."""


def layer_key(model_hash: str, layer: int) -> NodeId:
    """The key under which the holders of a layer are."""
    return key_of(f"layer:{model_hash}:{layer}")


def holder_value(holder: Contact) -> str:
    """The record's value for a node at this address."""
    return f"{holder.address} {holder.node_id.hex()}"


def holder_in(
    value: str, own_id: NodeId, policy: ContactPolicy, tellers: Iterable[Contact]
) -> Contact | None:
    """The node that a value names, or None if it names none that may be called.

    ``tellers`` are the nodes that may have given the value; nothing is believed of nobody.
    """
    farthest = max(tellers, key=lambda teller: locate(teller.ip).scope, default=None)
    if farthest is None:
        return None
    try:
        return policy.admit(_parse(value), own_id, farthest.ip)
    except (Refused, ValueError):
        return None


def _parse(value: str) -> Contact:
    address, _, node_id = value.partition(" ")
    host, _, port = address.rpartition(":")
    if host.startswith("[") != host.endswith("]") or not port.isascii() or not port.isdigit():
        raise NotAnAddress
    return Contact(NodeId(bytes.fromhex(node_id)), host.strip("[]"), int(port[:6]))
