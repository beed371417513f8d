"""Nodes of only a DHT and a peer book, over real sockets, in this process or in their own.

Timings are short: events that take minutes in a real network take a second here.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import grpc
import trio

from meshnode.domain.kademlia.contact import Contact
from meshnode.domain.kademlia.node_id import NodeId
from meshnode.domain.kademlia.records import RECORD_LIMITS, RecordLimits
from meshnode.domain.metering import TrafficMeter
from meshnode.domain.peers import Capacity, ShardInfo
from meshnode.edges.grpc_dht import DhtServicer
from meshnode.edges.grpc_peers import PeersServicer
from meshnode.edges.grpc_service import node_services
from meshnode.rpc.pool import ChannelPool, serve_pool
from meshnode.rpc.server import serve_grpc
from meshnode.services.dht.handle import Dht
from meshnode.services.dht.service import DhtSettings, serve_dht
from meshnode.services.dht.timings import DhtTimings
from meshnode.services.peers import PeerBook, PeerTimings, serve_peers
from meshnode.supervise import Drain
from meshnode.wire import node_pb2 as pb
from spec_tests.ports import free_port
from spec_tests.processes import forking
from spec_tests.processes.calls import Call
from spec_tests.processes.forking import ForkedProcess
from spec_tests.processes.nodes import environment

MODEL = "a" * 64
LAYERS = 4
PEERS_NOW = "peers.now"
"""File to which a process writes its peers when they change; other hosts cannot ask it."""
LONG_S = 180.0
"""Timeout in seconds, reached only when a test is about to fail."""
# Call deadlines are not short: otherwise a slow node would be treated as one that is gone.
FAST = DhtTimings(
    call_s=6.0,
    lookup_s=30.0,
    tick_s=0.03,
    retry_first_s=0.03,
    retry_most_s=0.3,
    trackers_s=0.4,
    own_lookup_s=5.0,
    lost_s=0.3,
    returned_s=0.1,
    republish_s=0.1,
    remember_s=0.2,
    hand_on_s=0.05,
)
FAST_PEERS = PeerTimings(beat_s=0.25, call_s=5.0, tick_s=0.03, search_s=1.0, report_s=0.3)


def id_named(name: str) -> NodeId:
    return NodeId(hashlib.sha1(name.encode()).digest())


def info_of(name: str, layers: Sequence[int] = range(LAYERS), model: str = MODEL) -> ShardInfo:
    return ShardInfo(
        node_id=id_named(name).hex(),
        version="1.0",
        model_name="tiny",
        model_hash=model,
        total_layers=LAYERS,
        layers=tuple(layers),
        hidden_dim=32,
        vocab_size=100,
        context_length=64,
        capacity=Capacity(memory_total=1 << 30, memory_used=1 << 29, max_batch=4),
    )


@dataclass
class Plan:
    """The settings of a node to run."""

    name: str
    data_dir: Path
    port: int = field(default_factory=free_port)
    host: str = "127.0.0.1"
    trackers: tuple[tuple[str, int], ...] = ()
    """Pairs of host and gRPC port."""
    layers: Sequence[int] = range(LAYERS)
    model: str = MODEL
    timings: DhtTimings = FAST
    peer_timings: PeerTimings = FAST_PEERS
    record_limits: RecordLimits = RECORD_LIMITS

    @property
    def grpc_port(self) -> int:
        return self.port + 1000

    @property
    def node_id(self) -> NodeId:
        return id_named(self.name)

    @property
    def as_tracker(self) -> tuple[str, int]:
        return (self.host, self.grpc_port)

    @property
    def contact(self) -> Contact:
        return Contact(self.node_id, self.host, self.port)


@dataclass
class DhtNode:
    """A running node and its parts."""

    plan: Plan
    pool: ChannelPool
    dht: Dht
    book: PeerBook
    info: ShardInfo

    def knows(self, *others: DhtNode | Plan) -> bool:
        """Return whether the peer book holds exactly these nodes."""
        plans = [other if isinstance(other, Plan) else other.plan for other in others]
        ids = sorted(peer.node_id for peer in self.book.peers())
        return ids == sorted(plan.node_id.hex() for plan in plans)


async def serve_node(
    plan: Plan, *, task_status: trio.TaskStatus[DhtNode] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve one node, assembled as in ``node.py``."""
    traffic, listening = TrafficMeter(), trio.Event()
    info = info_of(plan.name, plan.layers, plan.model)
    settings = DhtSettings(
        own_id=plan.node_id,
        bound=plan.host,
        port=plan.port,
        data_dir=plan.data_dir,
        trackers=plan.trackers,
        timings=plan.timings,
        record_limits=plan.record_limits,
    )
    async with trio.open_nursery() as nursery:
        pool = await nursery.start(partial(serve_pool, traffic))
        dht = await nursery.start(partial(serve_dht, settings, pool, listening))
        node = DhtNode(plan, pool, dht, None, info)  # type: ignore[arg-type]
        node.book = await nursery.start(
            partial(serve_peers, dht, pool, lambda: node.info, timings=plan.peer_timings)
        )
        drain = Drain()
        parts = [DhtServicer(dht), PeersServicer(book=node.book, drain=drain)]
        services = node_services(parts, drain)
        await nursery.start(
            partial(serve_grpc, services, plan.host, plan.grpc_port, traffic=traffic)
        )
        listening.set()
        task_status.started(node)
        await trio.sleep_forever()


class Running:
    """The nodes that run in this process."""

    def __init__(self, nursery: trio.Nursery, folder: Path) -> None:
        self._nursery = nursery
        self._folder = folder
        self._scopes: dict[str, trio.CancelScope] = {}
        self._ended: dict[str, trio.Event] = {}

    def plan(self, name: str, *through: DhtNode | Plan, **options: object) -> Plan:
        """Return the settings of a node that has the ``through`` nodes as trackers."""
        data_dir = self._folder / name
        data_dir.mkdir(exist_ok=True)
        plans = [other if isinstance(other, Plan) else other.plan for other in through]
        trackers = tuple(plan.as_tracker for plan in plans)
        return Plan(name, data_dir, trackers=trackers, **options)  # type: ignore[arg-type]

    async def start(self, name: str | Plan, *through: DhtNode | Plan, **options: object) -> DhtNode:
        plan = name if isinstance(name, Plan) else self.plan(name, *through, **options)
        found: DhtNode = await self._nursery.start(self._run, plan)
        return found

    async def _run(self, plan: Plan, *, task_status: trio.TaskStatus[DhtNode]) -> None:
        self._ended[plan.name] = ended = trio.Event()
        with trio.CancelScope() as scope:
            self._scopes[plan.name] = scope
            await serve_node(plan, task_status=task_status)
        ended.set()

    async def stop(self, node: DhtNode) -> None:
        """Stop a node abruptly: to others it looks like a killed process."""
        self._scopes[node.plan.name].cancel()
        await self._ended[node.plan.name].wait()


@asynccontextmanager
async def nodes(folder: Path) -> AsyncIterator[Running]:
    """Run nodes; all are stopped at the end."""
    async with trio.open_nursery() as nursery:
        yield Running(nursery, folder)
        nursery.cancel_scope.cancel()


async def until(holds: Callable[..., object], what: str, within_s: float = LONG_S) -> None:
    """Poll until ``holds()`` is true; AssertionError after ``within_s`` seconds."""
    with trio.move_on_after(within_s):
        while not holds():  # noqa: ASYNC110 - nothing here tells an event
            await trio.sleep(0.01)
        return
    raise AssertionError(f"never happened: {what}")


# Processes


@dataclass
class DhtProcess:
    """A node in a process of its own."""

    name: str
    process: ForkedProcess
    host: str
    port: int
    data_dir: Path

    def status(self) -> pb.SwarmStatusResponse | None:
        """Return the node's answer to GetSwarmStatus, or None when it does not answer."""
        target = f"{self.host}:{self.port + 1000}"
        own = ("grpc.use_local_subchannel_pool", 1)
        with grpc.insecure_channel(target, [own]) as channel:
            call = channel.unary_unary(
                "/node.NodeService/GetSwarmStatus",
                pb.SwarmStatusRequest.SerializeToString,
                pb.SwarmStatusResponse.FromString,
            )
            try:
                found: pb.SwarmStatusResponse | None = call(pb.SwarmStatusRequest(), timeout=LONG_S)
                return found
            except grpc.RpcError:
                return None

    def peers(self) -> dict[str, str]:
        """Return the addresses of this node's peers, by node id."""
        found: dict[str, str] = json.loads((self.data_dir / PEERS_NOW).read_text())
        return found


@contextmanager
def dht_process(
    name: str,
    data_dir: Path,
    *trackers: str,
    host: str = "127.0.0.1",
    port: int = 0,
    enter: Sequence[Call] = (),
) -> Iterator[DhtProcess]:
    """Start a node process, and kill it at the end. ``enter`` moves it to another host."""
    port = port or free_port()
    data_dir.mkdir(exist_ok=True)
    (data_dir / PEERS_NOW).unlink(missing_ok=True)
    program = partial(
        main, name=name, data_dir=str(data_dir), port=port, host=host, trackers=list(trackers)
    )
    process = forking.start([*enter, program], (), environment(OMP_NUM_THREADS="1"))
    try:
        line = process.stdout.readline()
        assert line.startswith("ready"), f"{name} did not start: {line!r}"
        node = DhtProcess(name, process, host, port, data_dir)
        wait_until((data_dir / PEERS_NOW).exists, "it has written whom it knows")
        yield node
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def wait_until(holds: Callable[..., object], what: str, within_s: float = LONG_S) -> None:
    """Poll ``holds()`` outside of Trio; AssertionError after ``within_s`` seconds."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.05)


async def _main(plan: Plan) -> None:
    async with trio.open_nursery() as nursery:
        node = await nursery.start(serve_node, plan)
        print("ready", flush=True)
        written = None
        while True:
            peers = {peer.node_id: peer.address for peer in node.book.peers()}
            if peers != written:
                scratch = plan.data_dir / f"{PEERS_NOW}.new"
                scratch.write_text(json.dumps(peers))
                scratch.replace(plan.data_dir / PEERS_NOW)
                written = peers
            await trio.sleep(FAST.tick_s)


def main(name: str, data_dir: str, port: int, host: str, trackers: list[str]) -> None:
    """Run the program of a node process."""
    pairs = [tracker.rpartition(":") for tracker in trackers]
    grpc_addresses = tuple((host, int(port) + 1000) for host, _, port in pairs)
    trio.run(_main, Plan(name, Path(data_dir), port, host, grpc_addresses))
