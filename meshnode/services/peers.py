"""The peer book: who else is in the network, checked every few seconds (interface 2.1: Peer).

Nodes are found through the DHT: the contacts of its routing table, and the holders published under
the keys of layers. Each node is called with ``GetShardInfo``, and becomes a peer only if the answer
has the id that was called; ``domain.roster`` decides who is a peer and who has left.

Invariants: no node is called before the DHT has verified its address; at most one call to a peer
and CALLS calls in all are in flight; a peer of another model is listed, but is not a holder.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from meshnode.domain.errors import InvalidRequest
from meshnode.domain.kademlia.contact import Contact
from meshnode.domain.kademlia.holding import NETWORK_KEY, layer_key
from meshnode.domain.kademlia.node_id import NodeId
from meshnode.domain.kademlia.refusals import DhtRefusal
from meshnode.domain.peers import MAX_VERSIONS, Capacity, Peer, ShardInfo, check_shard_info
from meshnode.domain.roster import BEAT_S, Roster
from meshnode.domain.units import SECOND_NS
from meshnode.rpc.errors import CallFailed, Code
from meshnode.wire import node_pb2 as pb

if TYPE_CHECKING:
    from meshnode.rpc.pool import ChannelPool
    from meshnode.services.dht.handle import Dht

log = logging.getLogger(__name__)

CALLS = 32
"""The most peers called at once. If no peer of a full book answers, a beat is delayed by 16 s."""
INFO_BYTES = 64 * 1024
ENOUGH_HOLDERS = 3
"""Holders of a layer; with fewer, the DHT is searched for more."""


MAX_CLOCK_S = 2.0**33
"""A clock that shows a time after the year 2242 is not one."""


@dataclass(frozen=True, slots=True)
class PeerTimings:
    """Timings in seconds, which tests shorten."""

    beat_s: float = BEAT_S
    call_s: float = 2.0
    """Deadline for one beat, connecting included."""
    tick_s: float = 0.5
    """Pause between checks for peers that are due and nodes that are new."""
    search_s: float = 30.0
    """Pause between searches of the DHT for holders of layers that have few."""
    report_s: float = 15.0
    """Pause between reports of this node's capacity to a peer."""


PEER_TIMINGS = PeerTimings()


class PeerBook:
    """Handle of the service."""

    def __init__(
        self,
        dht: Dht,
        pool: ChannelPool,
        own: Callable[[], ShardInfo],
        timings: PeerTimings,
    ) -> None:
        """``own`` gives this node's current description. Made by :func:`serve_peers`."""
        self._dht = dht
        self._pool = pool
        self._own = own
        self._timings = timings
        self._roster = Roster(own().node_id, beat_s=timings.beat_s)
        self._calling: set[str] = set()
        self._reported: dict[str, float] = {}
        self._limiter = trio.CapacityLimiter(CALLS)
        self._due = trio.Event()

    # What others ask

    @property
    def own(self) -> ShardInfo:
        """This node's description of itself."""
        return self._own()

    def __len__(self) -> int:
        """How many peers there are."""
        return len(self._roster)

    def peers(self) -> list[Peer]:
        """All peers, those known longest first."""
        return self._roster.peers()

    def get(self, node_id: str) -> Peer | None:
        """The peer with this id."""
        return self._roster.get(node_id)

    def holders(self, layer: int, model_hash: str = "") -> list[Peer]:
        """The peers that hold a layer of a model, by default this node's, the nearest first."""
        return self._roster.holders(layer, model_hash or self.own.model_hash)

    def kin(self, layer: int) -> list[Peer]:
        """The peers that hold a layer of the model that this node was started with.

        Whatever weights of it they serve (decision 0225); the nearest first.
        """
        return self._roster.kin(layer, self.own.lineage)

    def knows(self, host: str, grpc_port: int) -> bool:
        """Whether a peer is at this address."""
        return any(
            peer.host == host and peer.grpc_port == grpc_port for peer in self._roster.peers()
        )

    def clocks_ns(self) -> list[int]:
        """What the clocks of peers show now, by their reports, in nanoseconds since 1970."""
        clocks = self._roster.clocks(trio.current_time())
        return [int(clock * SECOND_NS) for clock in clocks if clock < MAX_CLOCK_S]

    def suspect(self, node_id: str) -> None:
        """Check this peer now, because a call to it failed. Without an answer, it is removed."""
        self._roster.suspect(node_id, trio.current_time())
        self._due.set()

    def look_again(self, node_id: str) -> None:
        """Ask this peer for its description now: it is said to have changed."""
        self._roster.look_again(node_id, trio.current_time())
        self._due.set()

    def take_report(
        self, node_id: str, host: str, port: int, capacity: Capacity, timestamp: float
    ) -> str:
        """Take a node's report of itself, whose form was checked. Returns why not, or ""."""
        now = trio.current_time()
        refusal = self._roster.reported(node_id, host, port, capacity, timestamp, now)
        if refusal:
            # The node knows this one, but not the other way round: it may be new, or have moved.
            self._meet(node_id, host, port)
        return refusal

    # Tasks

    async def beat(self) -> None:
        """Call peers that are due and nodes that are new, until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                now = trio.current_time()
                for peer in self._roster.due(now):
                    contact = Contact(NodeId(bytes.fromhex(peer.node_id)), peer.host, peer.port)
                    self._call_soon(contact, nursery)
                for contact in self._dht.contacts():
                    if self._roster.worth_trying(
                        contact.node_id.hex(), contact.ip, contact.port, now
                    ):
                        self._call_soon(contact, nursery)
                with trio.move_on_after(self._timings.tick_s):
                    await self._due.wait()
                self._due = trio.Event()

    async def search(self) -> None:
        """Look in the DHT for holders of layers that have few, until cancelled."""
        while True:
            await trio.sleep(self._timings.search_s)
            own = self.own
            for layer in range(own.total_layers):
                if len(self.holders(layer)) >= ENOUGH_HOLDERS:
                    continue
                for model_hash in dict.fromkeys((own.model_hash, own.lineage)):
                    for contact in await self._dht.find_holders(layer_key(model_hash, layer)):
                        await self._try(contact)

    async def publish_held(self) -> None:
        """Keep this node and its layers published, until cancelled."""
        announced: set[NodeId] = set()
        while True:
            own = self.own
            # Under the model's own hash too: a node that serves other weights of it can switch.
            hashes = {own.lineage, *(own.model_hashes or (own.model_hash,))}
            keys = {layer_key(each, layer) for each in hashes for layer in own.layers}
            keys.add(NETWORK_KEY)
            for key in announced - keys:
                self._dht.withdraw(key)
            for key in keys - announced:
                self._dht.announce(key)
            announced = keys
            await trio.sleep(self._timings.report_s)

    # Details

    def _meet(self, node_id: str, host: str, port: int) -> None:
        info = Contact(NodeId(bytes.fromhex(node_id)), host, port)
        try:
            self._dht.meet(info, host)
        except DhtRefusal:
            return
        self._roster.heard_from(node_id, host, port, trio.current_time())

    def _call_soon(self, contact: Contact, nursery: trio.Nursery) -> None:
        if contact.node_id.hex() not in self._calling:
            self._calling.add(contact.node_id.hex())
            nursery.start_soon(self._call, contact)

    async def _try(self, contact: Contact) -> None:
        node_id = contact.node_id.hex()
        now = trio.current_time()
        if node_id in self._calling:
            return
        if self._roster.worth_trying(node_id, contact.ip, contact.port, now):
            self._calling.add(node_id)
            await self._call(contact)

    async def _call(self, contact: Contact) -> None:
        """One beat: ask a node for its description, and report this node's capacity to it."""
        node_id = contact.node_id.hex()
        try:
            async with self._limiter:
                with trio.move_on_after(self._timings.call_s) as asking:
                    await self._ask(contact)
                if asking.cancelled_caught:
                    self._pool.distrust(contact.ip, contact.grpc_port)
                    self._dht.note_failure(contact)
                    self._missed(contact, "no answer in time")
                with trio.move_on_after(self._timings.call_s):
                    await self._report(contact)
        finally:
            self._calling.discard(node_id)

    async def _ask(self, contact: Contact) -> None:
        try:
            stub = await self._pool.stub(contact.ip, contact.grpc_port)
            begun = trio.current_time()
            message = await stub.GetShardInfo(pb.GetShardInfoRequest(), most_bytes=INFO_BYTES)
            now = trio.current_time()
            info = shard_info(message)
            check_shard_info(info)
            # The answer must come from the node that was called.
            self._dht.note_answer(contact, NodeId(bytes.fromhex(info.node_id)))
        except CallFailed as error:
            if error.code is Code.UNAVAILABLE:
                self._dht.note_failure(contact)
            self._missed(contact, str(error))
            return
        except InvalidRequest as error:
            # The node answers, but its answer is invalid, so it is not a peer. The DHT may keep it.
            self._missed(contact, str(error))
            return
        latency_ms = 1e3 * (now - begun)
        known = self._roster.get(info.node_id)
        changed = self._roster.answered(
            info, contact.ip, contact.port, latency_ms, now, time.time()
        )
        if changed and known is None:
            log.info("peer %s at %s", info.node_id, contact.address)

    def _missed(self, contact: Contact, reason: str) -> None:
        node_id = contact.node_id.hex()
        if self._roster.missed(node_id, contact.ip, contact.port, trio.current_time()):
            log.info("peer %s at %s is gone: %s", node_id, contact.address, reason)
            self._reported.pop(node_id, None)
            # If it has moved, it is found at its new address once the DHT has dropped this one.
            self._dht.suspect(contact)

    async def _report(self, contact: Contact) -> None:
        node_id, now = contact.node_id.hex(), trio.current_time()
        if now - self._reported.get(node_id, float("-inf")) < self._timings.report_s:
            return
        if self._roster.get(node_id) is None:
            return
        own = self.own
        message = pb.UpdatePeerCapacityRequest(
            node_id=own.node_id,
            address=f"{self._dht.own_address.best() or ''}:{self._dht.port}",
            layers=own.layers,
            capacity=capacity_message(own.capacity),
            timestamp=time.time(),
        )
        try:
            stub = await self._pool.stub(contact.ip, contact.grpc_port)
            answer = await stub.UpdatePeerCapacity(message, most_bytes=INFO_BYTES)
        except CallFailed:
            # The peer has just answered GetShardInfo, so it may only lack this operation.
            self._reported[node_id] = now
            return
        if answer.accepted:
            self._reported[node_id] = now


class Kin:
    """The peers that hold layers of the model that this node was started with.

    Nodes train together whatever weights they serve (decision 0225), so training asks here.
    """

    def __init__(self, book: PeerBook) -> None:
        self._book = book

    def get(self, node_id: str) -> Peer | None:
        """The peer with this id."""
        return self._book.get(node_id)

    def holders(self, layer: int, model_hash: str = "") -> list[Peer]:
        """The peers with a layer; of all weights, or of those with a model hash."""
        return self._book.holders(layer, model_hash) if model_hash else self._book.kin(layer)


async def serve_peers(
    dht: Dht,
    pool: ChannelPool,
    own: Callable[[], ShardInfo],
    *,
    timings: PeerTimings = PEER_TIMINGS,
    task_status: trio.TaskStatus[PeerBook] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Keep the peer book until cancelled; starts with the :class:`PeerBook`.

    ``own`` is called whenever this node describes itself to another.
    """
    book = PeerBook(dht, pool, own, timings)
    task_status.started(book)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(book.beat)
        nursery.start_soon(book.search)
        nursery.start_soon(book.publish_held)


def shard_info(message: pb.GetShardInfoResponse) -> ShardInfo:
    """A node's description of itself; not checked."""
    return ShardInfo(
        node_id=message.node_id,
        version=message.version,
        model_name=message.model_name,
        model_hash=message.model_hash,
        total_layers=message.total_layers,
        layers=tuple(message.layers),
        hidden_dim=message.hidden_dim,
        vocab_size=message.vocab_size,
        context_length=message.context_length,
        capacity=capacity_in(message.capacity),
        numeric_class=message.numeric_class,
        origin_hash=message.origin_hash,
        weights_version=message.weights_version,
        model_hashes=tuple(message.model_hashes[: MAX_VERSIONS + 1]),
        layer_ms=message.layer_ms,
        move=range(message.move.first, message.move.last + 1) if message.HasField("move") else None,
        leaving=message.leaving,
    )


def shard_info_message(info: ShardInfo) -> pb.GetShardInfoResponse:
    """A node's description as the answer to GetShardInfo."""
    move = info.move
    return pb.GetShardInfoResponse(
        node_id=info.node_id,
        role=info.role,
        version=info.version,
        model_name=info.model_name,
        model_hash=info.model_hash,
        total_layers=info.total_layers,
        layers=info.layers,
        has_embedding=info.has_embedding,
        has_head=info.has_head,
        hidden_dim=info.hidden_dim,
        vocab_size=info.vocab_size,
        context_length=info.context_length,
        capacity=capacity_message(info.capacity),
        numeric_class=info.numeric_class,
        origin_hash=info.origin_hash,
        weights_version=info.weights_version,
        model_hashes=info.model_hashes,
        layer_ms=info.layer_ms,
        move=None if move is None else pb.LayerMove(first=move.start, last=move.stop - 1),
        leaving=info.leaving,
    )


def capacity_in(message: pb.NodeCapacity) -> Capacity:
    """A node's report of its capacity; not checked."""
    return Capacity(**{name: getattr(message, name) for name in Capacity.__dataclass_fields__})


def capacity_message(capacity: Capacity) -> pb.NodeCapacity:
    """A capacity as a message."""
    fields = {name: getattr(capacity, name) for name in Capacity.__dataclass_fields__}
    return pb.NodeCapacity(**fields)
