"""``sender_url``: where the gradients of a message go (interface 2.3; decision 0035)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from meshnode.domain.addresses import GRPC_PORT_OFFSET
from meshnode.domain.errors import InvalidRequest

_URL = re.compile(r"(https?://)?(\[[0-9A-Fa-f:.]{2,45}\]|[0-9A-Za-z.-]{1,253}):([0-9]{1,5})/?")


@dataclass(frozen=True, slots=True)
class UpstreamHolder:
    """The gRPC address of a holder, and the first layer that it ran."""

    host: str
    grpc_port: int
    layer: int


def sender_at(url: str, layer: int, is_peer: Callable[[str, int], bool]) -> UpstreamHolder | None:
    """Read ``host:port`` of a gRPC interface, or ``http://host:port`` of a node.

    None if the URL is empty. Raises InvalidRequest for anything else, and unless a peer is there.
    """
    if not url:
        return None
    match = _URL.fullmatch(url)
    if match is None:
        raise InvalidRequest("sender_url", "must be host:port or http://host:port")
    scheme, host, port = match.groups()
    grpc_port = int(port) + (GRPC_PORT_OFFSET if scheme else 0)
    if not 0 < grpc_port < 65536:
        raise InvalidRequest("sender_url", "must have a port")
    sender = UpstreamHolder(host.strip("[]"), grpc_port, layer)
    if not is_peer(sender.host, sender.grpc_port):
        raise InvalidRequest("sender_url", "is not a peer of this node")
    return sender
