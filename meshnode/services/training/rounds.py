"""The rounds of a node that trains: inner steps, exchange, outer step (interface 1, 2.1, 2.3).

``Rounds`` does what ``domain.training.replica`` decides. ``learner`` computes, ``contributions``
holds the messages of the round, ``record`` saves and publishes, ``gossip`` talks to peers. Settings
are read at every step, so they can be changed while it runs.

Between its actions it sleeps until there is news (a report, a contribution, a change of settings)
or until the replica is ``due``. Invariant: it takes the events to wait for before it looks at the
state, so no news is missed.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from statistics import fmean

import trio

from meshnode.domain.identity import NodeKey
from meshnode.domain.training.agreement import WeightsVersion
from meshnode.domain.training.message import MAX_TTL, Contribution, digest_of, sign
from meshnode.domain.training.replica import Replica, State
from meshnode.model.data import shards_of
from meshnode.model.trained_model import Anchor
from meshnode.services.settings import LiveSettings
from meshnode.services.training.contributions import ContributionStore
from meshnode.services.training.gossip import GradientGossip
from meshnode.services.training.learner import Learner
from meshnode.services.training.messages import contribution_message
from meshnode.services.training.record import RoundRecord
from meshnode.services.wakeup import Wakeup, wait_any
from meshnode.wire import node_pb2 as pb

log = logging.getLogger(__name__)


class Rounds:
    """One node's way through the rounds."""

    def __init__(
        self,
        *,
        key: NodeKey,
        settings: LiveSettings,
        gossip: GradientGossip,
        replica: Replica,
        learner: Learner,
        contributions: ContributionStore,
        record: RoundRecord,
    ) -> None:
        """The learner's anchor is the weights that the replica has kept."""
        self.replica = replica
        self.learner = learner
        self.contributions = contributions
        self.record = record
        self._key = key
        self._settings = settings
        self._gossip = gossip
        self._news = Wakeup()
        self._pending: Anchor | None = None
        """The weights that the replica calls ``pending``."""

    def __repr__(self) -> str:
        """The replica's state."""
        return f"<Rounds of {self.replica!r}>"

    async def run(self) -> None:
        """Train while it is enabled."""
        self.record.measured(await self.learner.validation_loss())
        self.record.publish()
        # Peers are asked before a round begins here.
        await self._gossip.ask_all()
        self._hear()
        log.info("training: at version %d", self.replica.kept.version)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._gossip.talk, self._hear, self.contributions.wanted)
            await self._drive()
            nursery.cancel_scope.cancel()

    async def take(self, message: pb.GossipGradientRequest) -> str | None:
        """Take a contribution of a peer. Returns None, or the reason for refusing it."""
        reason = await self.contributions.take(message)
        if reason is None:
            self.record.publish()
            self._news.set()
        return reason

    def _hear(self) -> None:
        replica = self.replica
        for node_id, peer in self._gossip.peers.items():
            replica.heard(node_id, peer.report, trio.current_time())
        for node_id in replica.known_peers() - self._gossip.peers.keys():
            replica.lost(node_id)
        self._news.set()

    async def _drive(self) -> None:
        while True:
            news, changed = self._news.next, self._settings.changed.next
            if not self._settings.current.training.enabled:
                return
            now = trio.current_time()
            acted = await self._act(now)
            self.record.publish()
            if not acted:
                await wait_any(news, changed, deadline=self.replica.due(now))

    async def _act(self, now: float) -> bool:
        """Do what is to be done now. False if there is nothing to do."""
        replica, before = self.replica, self.replica.state
        wanted = replica.fetch(now)
        if wanted is not None:
            await self._fetch(wanted)
            return True
        if replica.begin(now):
            self.contributions.forget_uncounted()
            await self.record.save()
            await self._inner_steps()
        elif replica.state is State.EXCHANGE:
            included = replica.ready_to_apply(now)
            if included is not None:
                await self._outer_step(included)
        elif replica.state is State.SETTLING:
            await self._settle(now)
        return replica.state is not before

    async def _inner_steps(self) -> None:
        replica, learner = self.replica, self.learner
        trainers = [*self._gossip.peers, self._key.node_id]
        shards = shards_of(self._key.node_id, trainers, learner.all_shards)
        config = self._settings.current.training
        await learner.rewind()
        losses: list[float] = []
        self.record.publish()
        while len(losses) < config.diloco_steps and replica.state is State.INNER:
            if losses and replica.must_hurry(trio.current_time()):
                log.info("training: hurrying after %d steps", len(losses))
                break
            try:
                losses.append(await learner.step(shards, config, replica.round_id))
            except FloatingPointError as error:
                log.warning("training: %s", error)
                break
            learner.progress.inner_step = len(losses)
            config = self._settings.current.training
            if not config.enabled:
                replica.give_up()
                return
            if replica.fetch(trio.current_time()) is not None:
                return
        while replica.state is State.INNER:
            await self._contribute(fmean(losses) if losses else 0.0, config.batch_size)

    async def _contribute(self, loss: float, batch_size: int) -> None:
        replica = self.replica
        gradients = await self.learner.gradients()
        # The round may have moved on during the steps: contribute to the current one.
        round_id = replica.round_id
        unsigned = Contribution(
            node_id=self._key.node_id,
            round_id=round_id,
            model_hash=self.learner.model.anchor.model_hash,
            timestamp=time.time(),
            batch_size=batch_size,
            loss=loss,
            layer_gradients=gradients,
            ttl=MAX_TTL,
        )
        statement = await trio.to_thread.run_sync(unsigned.statement)
        message = contribution_message(replace(unsigned, signature=sign(self._key.seed, statement)))
        await self.record.save_contribution(message.SerializeToString())
        if (replica.state, replica.round_id) != (State.INNER, round_id):
            # The round has moved on again; nobody has seen this contribution.
            return
        digest = digest_of(statement)
        self.contributions.messages[digest] = message
        self.record.hold()
        replica.inner_done(digest, trio.current_time())
        await self.record.save()

    async def _outer_step(self, included: dict[str, str]) -> None:
        anchor = await self.learner.applied(self.contributions.of(included.values()))
        self._pending = anchor
        weights = WeightsVersion(self.replica.round_id, anchor.model_hash)
        await self.record.save_anchor(anchor, weights)
        self.replica.applied(anchor.model_hash, trio.current_time())

    async def _settle(self, now: float) -> None:
        self.record.hold()
        kept = self.replica.settle(now)
        if kept is None or self._pending is None:
            self.record.release()
        else:
            await self.learner.adopt(self._pending)
            await self._kept()

    async def _fetch(self, wanted: WeightsVersion) -> None:
        replica = self.replica
        shapes = self.learner.model.shapes
        anchor = await self._gossip.fetch(wanted, replica.holders(wanted), shapes)
        if anchor is None:
            replica.fetch_failed(trio.current_time())
            return
        await self.record.save_anchor(anchor, wanted)
        await self.learner.adopt(anchor)
        self.record.hold()
        replica.adopted(wanted)
        await self._kept()

    async def _kept(self) -> None:
        """Measure and save the weights that were just kept, and forget the round."""
        loss = await self.learner.validation_loss()
        self.record.measured(loss)
        await self.record.save_kept()
        self.contributions.forget_uncounted()
        kept = self.replica.kept
        log.info(
            "training: version %d kept, %s, validation loss %.4f",
            kept.version,
            kept.model_hash,
            loss,
        )
