"""Moves a node to other layers while it runs, where that serves the network (decision 0250).

``domain.moves`` says whether a move is worth it, and ``domain.moving`` when it may be made; here is
who asks them, and who asks other nodes. What a node says of itself counts for the first only: that
another one holds a layer is believed if it says so when it is called.

Invariants: no layer is let go before its holders were called; what the node will hold is on the
disk before it lets go, so that it goes on there after a ``kill -9``.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from meshnode.domain.errors import InvalidRequest, StartupError
from meshnode.domain.moves import Place, Placement, Plan, as_claimed, is_contested
from meshnode.domain.moving import MoveTimings, Moving, State, Step
from meshnode.domain.peers import check_shard_info
from meshnode.domain.placement import ModelSizes
from meshnode.domain.routing import longest_run
from meshnode.rpc.errors import CallFailed
from meshnode.services.peers import INFO_BYTES, shard_info
from meshnode.services.weights import Connect
from meshnode.wire import node_pb2 as pb

if TYPE_CHECKING:
    from meshnode.domain.peers import Peer, ShardInfo
    from meshnode.services.peers import PeerBook

log = logging.getLogger(__name__)

MAX_ASKED = 64
"""Holders that are called in one check, the nearest first; a layer has a few."""


class MoveClaim:
    """What this node announces, and what came of it."""

    def __init__(self) -> None:
        self.target: range | None = None
        """The layers to which it will move, as it tells whoever asks."""
        self.left_for: range | None = None
        """The layers for which it has let go of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveDependencies:
    """What the service needs to know and to do."""

    book: PeerBook
    connect: Connect
    sizes: ModelSizes
    budget: int
    """Bytes that the weights may take."""
    may_move: Callable[[], bool]
    """Whether nothing in this node needs its layers for longer than a generation."""
    idle: Callable[[], bool]
    """Whether no generation and no session is open."""
    fetch: Callable[[range], Awaitable[None]]
    """Has the weights of layers on the disk. Raises StartupError."""
    write_down: Callable[[range], Awaitable[None]]
    """Has it on the disk that the node holds these layers. Raises OSError."""
    leave: Callable[[], None]
    """Lets what runs end, and then the life of the node."""


class Mover:
    """Looks at the placement every few seconds."""

    def __init__(
        self,
        claim: MoveClaim,
        needs: MoveDependencies,
        timings: MoveTimings,
        *,
        moved: bool,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """``moved`` says whether this node has just moved to its layers."""
        self._claim = claim
        self._needs = needs
        self._timings = timings
        moved_at = trio.current_time() if moved else float("-inf")
        self.moving = Moving(timings, draw, moved_at=moved_at)
        self._claimed_since: dict[str, tuple[range, float]] = {}
        """For each peer with a claim what it claims, and since when."""

    async def look(self) -> None:
        """Look once, and do what is to be done."""
        now, own, others = trio.current_time(), self._own_place(), self._places()
        step = await self._step(own, others, now)
        if step is Step.CLAIM:
            await self._announce(own)
        elif step is Step.CHECK and await self._is_held_by_others():
            await self._leave()
        elif step is Step.WITHDRAW:
            self._withdraw("it is not worth it any more, or another node comes first")

    async def _step(self, own: Place, others: list[Place], now: float) -> Step:
        target, needs = self.moving.target, self._needs
        plan: Plan | None = None
        if needs.may_move():
            seen = others if target is None else as_claimed(own.node_id, others)
            placement = Placement(own, seen, needs.sizes, needs.budget)
            judge = placement.best_move if target is None else lambda: placement.judge(target)
            # Some hundreds of windows and nodes take tenths of a second.
            plan = await trio.to_thread.run_sync(judge)
        return self.moving.look(
            plan,
            # What lacks layers cannot get far.
            quiet=needs.idle() or (plan is not None and plan.relieves),
            contested=target is not None and is_contested(own, target, others),
            now=now,
        )

    async def _announce(self, own: Place) -> None:
        target = self._claim.target = self.moving.target
        assert target is not None  # noqa: S101 - a claim has a target
        log.info(
            "moving from layers %s to %s, if others hold those", *map(_text, (own.held, target))
        )
        try:
            await self._needs.fetch(target)
        except StartupError as error:
            self.moving.withdraw(trio.current_time())
            self._withdraw(str(error))

    async def _leave(self) -> None:
        target = self._claim.target
        assert target is not None  # noqa: S101 - it was announced
        self.moving.leave()
        try:
            await self._needs.write_down(target)
        except OSError as error:
            self.moving.withdraw(trio.current_time())
            self._withdraw(f"it could not be written down: {error.strerror}")
            return
        log.info("leaving for layers %s", _text(target))
        self._claim.left_for = target
        self._needs.leave()

    def _withdraw(self, reason: str) -> None:
        self._claim.target = None
        log.info("not moving: %s", reason)

    def _own_place(self) -> Place:
        own = self._needs.book.own
        return Place(own.node_id, longest_run(own.layers), own.layer_ms)

    def _places(self) -> list[Place]:
        """The other holders of this model, as they describe themselves."""
        own, now = self._needs.book.own, trio.current_time()
        peers = [
            peer
            for peer in self._needs.book.peers()
            if peer.model_hash == own.model_hash and peer.total_layers == own.total_layers
        ]
        claims = {peer.node_id: peer.move for peer in peers if peer.move is not None}
        self._claimed_since = {
            node_id: known
            if (known := self._claimed_since.get(node_id)) is not None and known[0] == move
            else (move, now)
            for node_id, move in claims.items()
        }
        return [self._place(peer, now) for peer in peers if peer.layers]

    def _place(self, peer: Peer, now: float) -> Place:
        held, target, leaves = longest_run(peer.layers), peer.move, peer.leaving
        if target is not None:
            leaves = True
            if now - self._claimed_since[peer.node_id][1] > 2 * self._timings.claim_s:
                # It will not move, it seems; but nobody relies on it.
                target = held
        return Place(peer.node_id, held, peer.layer_ms, peer.latency_ms, target, leaves)

    async def _is_held_by_others(self) -> bool:
        """Whether nodes that stay hold all that would be let go, as they say now."""
        own, target = self._needs.book.own, self._claim.target
        assert target is not None  # noqa: S101 - it was announced
        left = {layer for layer in own.layers if layer not in target}
        peers = {peer.node_id: peer for layer in left for peer in self._needs.book.holders(layer)}
        nearest = sorted(peers.values(), key=lambda peer: peer.latency_ms)[:MAX_ASKED]
        found: set[int] = set()

        async def ask(peer: Peer) -> None:
            info = await self._ask(peer)
            if info is not None and info.model_hash == own.model_hash:
                found.update(info.layers)

        with trio.move_on_after(self._timings.call_s):
            async with trio.open_nursery() as nursery:
                for peer in nearest:
                    nursery.start_soon(ask, peer)
        # Something may have begun here meanwhile.
        return left <= found and self._needs.may_move()

    async def _ask(self, peer: Peer) -> ShardInfo | None:
        """What a peer says of itself now; None if it does not answer, or leaves."""
        try:
            stub = await self._needs.connect(peer.host, peer.grpc_port)
            message = await stub.GetShardInfo(pb.GetShardInfoRequest(), most_bytes=INFO_BYTES)
            info = shard_info(message)
            check_shard_info(info)
        except (CallFailed, InvalidRequest):
            return None
        stays = info.node_id == peer.node_id and info.move is None and not info.leaving
        return info if stays else None


async def serve_moving(
    mover: Mover,
    timings: MoveTimings,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Look at the placement until cancelled."""
    task_status.started()
    while mover.moving.state is not State.LEAVING:
        await trio.sleep(timings.look_s)
        await mover.look()
    await trio.sleep_forever()


def _text(held: range) -> str:
    return f"{held.start}-{held.stop - 1}"
