"""The keys and values that nodes publish in the DHT (interface 2.3: DHTStoreRequest.value).

The document leaves the keys and part of the value open; decision 0045 settles them. The keys are
the SHA-1 digests of the names below. The value is ``host:port`` of the node's HTTP interface, as in
the document's example, then a space and the node's id in hexadecimal. The id is needed to check
that the right node answers there.

Invariant: a contact that :func:`holder_in` returns was admitted by the policy, as if it had come
from the outermost of the nodes that may have given the value.
"""

from __future__ import annotations

from collections.abc import Iterable

from meshnode.domain.kademlia.address import locate
from meshnode.domain.kademlia.contact import Contact
from meshnode.domain.kademlia.node_id import NodeId, key_of
from meshnode.domain.kademlia.policy import ContactPolicy
from meshnode.domain.kademlia.refusals import DhtRefusal, NotAnAddress

NETWORK_KEY = key_of("nodes")
"""The key of the records of all nodes."""


def layer_key(model_hash: str, layer: int) -> NodeId:
    """The key of the records of a layer's holders."""
    return key_of(f"layer:{model_hash}:{layer}")


def holder_value(holder: Contact) -> str:
    """The record's value for a node at this address."""
    return f"{holder.address} {holder.node_id.hex()}"


def holder_in(
    value: str, own_id: NodeId, policy: ContactPolicy, sources: Iterable[Contact]
) -> Contact | None:
    """The node that a value names, or None if the value is malformed or not admitted.

    ``sources`` are the nodes that may have given the value; without any the answer is None.
    """
    farthest = max(sources, key=lambda source: locate(source.ip).scope, default=None)
    if farthest is None:
        return None
    try:
        return policy.admit(_parse(value), own_id, farthest.ip)
    except (DhtRefusal, ValueError):
        return None


def _parse(value: str) -> Contact:
    address, _, node_id = value.partition(" ")
    host, _, port = address.rpartition(":")
    if host.startswith("[") != host.endswith("]") or not port.isascii() or not port.isdigit():
        raise NotAnAddress
    return Contact(NodeId(bytes.fromhex(node_id)), host.strip("[]"), int(port[:6]))
