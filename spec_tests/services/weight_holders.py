"""Nodes that hold weights and serve them, and one that asks for them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import trio

from meshnode.domain.kademlia.node_id import NodeId
from meshnode.domain.metering import TrafficMeter
from meshnode.edges.grpc_service import node_services
from meshnode.edges.grpc_weights import WeightsServicer
from meshnode.model.files import open_files
from meshnode.model.manifest import (
    manifest_of,
)
from meshnode.model.transfer import WeightFiles
from meshnode.rpc.channel import open_channel
from meshnode.rpc.node_grpc import NodeServiceServicer, NodeServiceStub
from meshnode.rpc.server import serve_grpc
from meshnode.services.weights import WeightServer
from meshnode.supervise import Drain
from meshnode.wire import node_pb2 as pb

OWN_ID = NodeId(b"\x01" * 20)


class Holder(WeightsServicer):
    """A node that serves and reports some layers; its status lists ``peers``."""

    def __init__(self, source: Path, held: range) -> None:
        opened = open_files(source)
        config = opened.config()
        cache = source.with_name("cache.json") if source.is_file() else source / "cache.json"
        self.manifest = manifest_of(opened, config, cache)
        files = WeightFiles(opened, config, held, self.manifest)
        super().__init__(WeightServer(files, self.manifest.model_hash))
        self.held = held
        self.node_id = bytes([held.start + 2]) * 20
        self.peers: list[pb.SwarmPeer] = []
        self.asked: list[str] = []
        self.broken: set[str] = set()

    async def GetWeights(  # noqa: N802 - the document's name
        self, input_message: pb.WeightRequest
    ) -> pb.WeightResponse:
        self.asked.append(input_message.shard_range)
        answer = await super().GetWeights(input_message)
        if input_message.shard_range in self.broken:
            data = bytearray(answer.weights_data)
            data[-1] ^= 1
            answer.weights_data = bytes(data)
        return answer

    async def GetSwarmStatus(  # noqa: N802 - the document's name
        self, input_message: pb.SwarmStatusRequest
    ) -> pb.SwarmStatusResponse:
        return pb.SwarmStatusResponse(layers=list(self.held), peers=self.peers)

    async def DHTPing(  # noqa: N802 - the document's name
        self, input_message: pb.DHTPingRequest
    ) -> pb.DHTPingResponse:
        assert input_message.sender.node_id == OWN_ID
        return pb.DHTPingResponse(responder=pb.DHTNodeInfo(node_id=self.node_id))


class Nodes:
    """Served holders, and one connection to each."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._stubs: dict[int, NodeServiceStub] = {}

    async def add(self, part: NodeServiceServicer) -> int:
        services = node_services([part], Drain())
        serve = partial(serve_grpc, services, "127.0.0.1", 0, traffic=TrafficMeter())
        _, port = await self._nursery.start(serve)
        return int(port)

    async def connect(self, host: str, port: int) -> NodeServiceStub:
        if port not in self._stubs:
            self._stubs[port] = await self._nursery.start(self._hold, host, port)
        return self._stubs[port]

    async def _hold(
        self, host: str, port: int, *, task_status: trio.TaskStatus[NodeServiceStub]
    ) -> None:
        async with open_channel(host, port, traffic=TrafficMeter()) as channel:
            task_status.started(NodeServiceStub(channel))
            await trio.sleep_forever()


@asynccontextmanager
async def running() -> AsyncIterator[Nodes]:
    async with trio.open_nursery() as nursery:
        yield Nodes(nursery)
        nursery.cancel_scope.cancel()


async def ask(nodes: Nodes, port: int, unit: str) -> bytes:
    stub = await nodes.connect("127.0.0.1", port)
    return (await stub.GetWeights(pb.WeightRequest(shard_range=unit))).weights_data


def told(port: int, holder: Holder) -> pb.SwarmPeer:
    """Return a tracker's status entry for a holder; its address has the HTTP port."""
    return pb.SwarmPeer(
        node_id=holder.node_id.hex(), address=f"127.0.0.1:{port - 1000}", layers=list(holder.held)
    )
