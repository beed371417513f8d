"""Asks trackers and remembered peers how they are, all at once and within a deadline.

The answers are what the checks of reachability, clock and model compare.
"""

from __future__ import annotations

import ssl
import time
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path

import trio

from meshnode.client.errors import ClientError
from meshnode.client.transport import exchange
from meshnode.domain.addresses import DEFAULT_PORT, GRPC_PORT_OFFSET, grpc_addresses
from meshnode.domain.errors import StartupError
from meshnode.domain.kademlia.node_id import NodeId
from meshnode.domain.kademlia.policy import ANYWHERE
from meshnode.domain.metering import TrafficMeter
from meshnode.rpc.channel import open_channel
from meshnode.rpc.errors import CallFailed
from meshnode.rpc.node_grpc import NodeServiceStub
from meshnode.services.dht.memory import read_peers
from meshnode.tls import peer_context
from meshnode.wire import node_pb2 as pb

ANSWER_S = 4.0
MAX_PEERS = 8
"""Most remembered peers to ask; a few are enough to say that the network is there."""
NO_ID = NodeId(bytes(20))


@dataclass(frozen=True, slots=True)
class KnownNode:
    """A node to ask. A tracker was named by the operator; others were remembered."""

    host: str
    port: int
    tracker: bool

    @property
    def name(self) -> str:
        """``tracker HOST:PORT`` or ``peer HOST:PORT``."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'tracker' if self.tracker else 'peer'} {host}:{self.port}"


@dataclass(frozen=True, slots=True)
class NodeReply:
    """What a node answered. Errors are empty where it did answer."""

    node: KnownNode
    http_status: int = 0
    http_error: str = ""
    grpc_error: str = ""
    origin_hash: str = ""
    """Of the model that it was started with, whatever version of it is served; empty if unknown."""
    clock_offset_s: float | None = None
    """The node's clock minus ours, exact to about a second; None if it did not show its time."""

    @property
    def reached(self) -> bool:
        """Whether the node answers on both ports."""
        return not self.http_error and not self.grpc_error


def known_nodes(tracker_url: str, data_dir: Path) -> list[KnownNode]:
    """The trackers of the settings, then the peers of the data folder."""
    trackers = [
        KnownNode(host, port - GRPC_PORT_OFFSET, tracker=True)
        for host, port in grpc_addresses(tracker_url)
    ]
    named = {(one.host, one.port) for one in trackers}
    peers = read_peers(data_dir, NO_ID, ANYWHERE)
    others = [KnownNode(one.ip, one.port, tracker=False) for one in peers]
    return trackers + [one for one in others if (one.host, one.port) not in named][:MAX_PEERS]


def ask_nodes(nodes: list[KnownNode], authorities: str = "") -> list[NodeReply]:
    """The nodes' answers, in the order of ``nodes``. Takes ANSWER_S twice at most."""
    tls = None
    if authorities:
        # One that cannot be used is a finding of another check.
        with suppress(StartupError):
            tls = peer_context(Path(authorities))
            # Also for the HTTP port.
            tls.set_alpn_protocols(["h2", "http/1.1"])
    return trio.run(_ask_all, nodes, tls)


async def _ask_all(nodes: list[KnownNode], tls: ssl.SSLContext | None) -> list[NodeReply]:
    replies: dict[int, NodeReply] = {}

    async def ask(place: int, node: KnownNode) -> None:
        replies[place] = await _ask(node, tls)

    async with trio.open_nursery() as nursery:
        for place, node in enumerate(nodes):
            nursery.start_soon(ask, place, node)
    return [replies[place] for place in range(len(nodes))]


async def _ask(node: KnownNode, tls: ssl.SSLContext | None) -> NodeReply:
    host = f"[{node.host}]" if ":" in node.host else node.host
    scheme = "http" if tls is None else "https"
    url = f"{scheme}://{host}:{node.port or DEFAULT_PORT}/api/v1/health"
    status, http_error, offset = 0, "", None
    began = time.time()
    try:
        answer = await trio.to_thread.run_sync(partial(exchange, url, None, ANSWER_S, context=tls))
        status, offset = answer.status, _offset(answer.date, began, time.time())
    except ClientError as error:
        http_error = str(error)
    origin_hash, grpc_error = "", ""
    try:
        with trio.fail_after(ANSWER_S):
            grpc_port = node.port + GRPC_PORT_OFFSET
            opened = open_channel(node.host, grpc_port, traffic=TrafficMeter(), tls=tls)
            async with opened as channel:
                info = await NodeServiceStub(channel).GetShardInfo(pb.GetShardInfoRequest())
                # Nodes of earlier versions serve what they were started with.
                origin_hash = info.origin_hash or info.model_hash
    except trio.TooSlowError:
        grpc_error = f"no answer on the gRPC port within {ANSWER_S:g} s"
    except CallFailed as error:
        grpc_error = f"the gRPC port does not answer: {error}"
    return NodeReply(node, status, http_error, grpc_error, origin_hash, offset)


def _offset(date: str, began: float, ended: float) -> float | None:
    try:
        theirs = parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return None
    # The header has whole seconds, rounded down.
    return theirs + 0.5 - (began + ended) / 2
