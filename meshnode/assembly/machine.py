"""What a node keeps while the layers that it holds change (decision 0250).

Terms: a *life* is the time during which a node holds the same layers (``assembly.life``). A node
has one, unless it moves: then one life ends as a node stops, and the next begins as a node starts,
on the same ports, with the same connections, chain, wallet and settings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import trio

from meshnode.assembly.chain import (
    LARGE_BYTES,
    PATIENCE_S,
    ChainDependencies,
    ChainSlot,
    serve_chain,
)
from meshnode.assembly.timings import NodeTimings
from meshnode.config import Config
from meshnode.descriptors import DescriptorBudget
from meshnode.domain.metering import TrafficMeter
from meshnode.model.accelerator.device import Accelerator
from meshnode.rpc.pool import ChannelPool
from meshnode.services.keystore import Keystore
from meshnode.services.ledger.clock import NodeClock, serve_clock
from meshnode.services.settings import Settings
from meshnode.services.tokens import TokenStore
from meshnode.supervise import Drain, Restarts, ServiceBoard, Supervisor
from meshnode.tls import ServerTls


@dataclass(frozen=True, slots=True)
class OperatorToken:
    """The token that the banner shows; empty if the operator chose one."""

    text: str
    file: Path
    is_new: bool


@dataclass(slots=True, kw_only=True)
class Machine:
    """What all lives of a node share."""

    config: Config
    timings: NodeTimings
    keys: Keystore
    settings: Settings
    token: OperatorToken
    tokens: TokenStore
    descriptors: DescriptorBudget
    tls: ServerTls | None
    found: Accelerator | None
    """The device that computes, if there is one."""
    traffic: TrafficMeter
    board: ServiceBoard
    drain: Drain
    """Begins when the node stops; that of a life also when the life ends."""
    run: Supervisor
    nursery: trio.Nursery
    """Of the services that outlive a life."""
    pool: ChannelPool
    begun: float
    clock: NodeClock
    slot: ChainSlot = field(default_factory=ChainSlot)
    lives: int = 0
    """That have begun to listen."""
    held: range | None = None
    """The layers of the last of them."""
    may_move: bool = True
    """False once a move has failed, which the next one would, too."""
    chain_bytes: int = 0
    """The memory of the chain's weights when the first life began."""

    async def begin_chain(self, served: Path, weight_bytes: int) -> None:
        """Start clock and chain, in the first life. Returns when the chain is up or takes long.

        ``served`` is where the node's model is, and ``weight_bytes`` what that takes. The chain
        begins when the model is loaded: both spend most of their time with Python's lock, so side
        by side they would take longer than one after the other.
        """
        if self.lives:
            return
        large = weight_bytes > LARGE_BYTES and not self.config.chain.model
        serve = partial(serve_clock, self.clock)
        await self.nursery.start(partial(self.run, "clock", serve, restarts=Restarts()))
        needs = ChainDependencies(
            config=self.config,
            keys=self.keys,
            served=served,
            pool=self.pool,
            drain=self.drain,
            clock=self.clock,
            patience_s=0.0 if large else PATIENCE_S,
        )
        await self.nursery.start(serve_chain, self.slot, self.run, needs)
        # A chain that comes up later takes memory that no life counts on.
        self.chain_bytes = self.slot.weight_bytes

    def forget_life(self) -> None:
        """Let go of what a life has left here, so that its weights are freed."""
        self.slot.bootstrap_peers = tuple
        self.clock.peers = list
        self.settings.checks.clear()
