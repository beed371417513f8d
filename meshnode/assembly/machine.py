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

from meshnode.assembly.chain import ChainDependencies, ChainSlot, serve_chain
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
    _chain_started: trio.Event = field(default_factory=trio.Event)

    def begin_chain(self, served: Path) -> None:
        """Start clock and chain, in the first life. ``served`` is where the node's model is.

        They come up while the model is loaded: each has a processor's work.
        """
        if self.lives == 0:
            self.nursery.start_soon(self._start_chain, served)

    async def wait_chain(self) -> None:
        """Wait until the chain has come up, or has said that it takes longer."""
        await self._chain_started.wait()

    async def _start_chain(self, served: Path) -> None:
        serve = partial(serve_clock, self.clock)
        await self.nursery.start(partial(self.run, "clock", serve, restarts=Restarts()))
        needs = ChainDependencies(
            config=self.config,
            keys=self.keys,
            served=served,
            pool=self.pool,
            drain=self.drain,
            clock=self.clock,
        )
        await self.nursery.start(serve_chain, self.slot, self.run, needs)
        # A chain that comes up later takes memory that no life counts on.
        self.chain_bytes = self.slot.weight_bytes
        self._chain_started.set()

    def forget_life(self) -> None:
        """Let go of what a life has left here, so that its weights are freed."""
        self.slot.bootstrap_peers = tuple
        self.clock.peers = list
        self.settings.checks.clear()
