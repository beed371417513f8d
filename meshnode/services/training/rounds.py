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
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

import trio
from torch import Tensor

from meshnode.domain.errors import StartupError
from meshnode.domain.identity import NodeKey
from meshnode.domain.training.agreement import WeightsVersion
from meshnode.domain.training.message import (
    MAX_SEQUENCES,
    MAX_TTL,
    Contribution,
    digest_of,
    sign,
)
from meshnode.domain.training.replica import Replica, State
from meshnode.domain.training.verdict import MAX_DROPPED, HeldOut, is_worse
from meshnode.domain.units import MEBIBYTE
from meshnode.model.data import shards_of
from meshnode.model.trained_model import Anchor
from meshnode.services.settings import LiveSettings
from meshnode.services.training.contributions import ContributionStore
from meshnode.services.training.disk import Judging
from meshnode.services.training.fetching import AnchorFetcher
from meshnode.services.training.gossip import GradientGossip
from meshnode.services.training.jury import Jury, Messages
from meshnode.services.training.learner import RoundLearner
from meshnode.services.training.messages import contribution_message, held_out_in
from meshnode.services.training.progress import Recurring, RoundProgress, Speed
from meshnode.services.training.record import RoundRecord
from meshnode.services.wakeup import Wakeup, wait_any
from meshnode.wire import node_pb2 as pb
from meshnode.wire.gradients import Packing, packing_of

log = logging.getLogger(__name__)

Served = Callable[[], tuple[str, Callable[[], Mapping[str, Tensor]]] | None]
"""The hash of the weights that are served, and a blocking function that gives them."""


class Rounds:
    """One node's way through the rounds."""

    def __init__(
        self,
        *,
        key: NodeKey,
        settings: LiveSettings,
        gossip: GradientGossip,
        replica: Replica,
        learner: RoundLearner,
        contributions: ContributionStore,
        record: RoundRecord,
        fetcher: AnchorFetcher,
        kept: Wakeup,
        served: Served,
    ) -> None:
        """The learner's anchor is the weights that the replica has kept.

        ``kept`` is set when other weights were kept and measured. ``served`` gives the weights that
        this node serves, which are measured too; None if that is not known.
        """
        self.replica = replica
        self.learner = learner
        self.contributions = contributions
        self.record = record
        self._key = key
        self._settings = settings
        self._gossip = gossip
        self._fetcher = fetcher
        self._kept_news = kept
        self._served = served
        self._news = Wakeup()
        self._pending: Anchor | None = None
        """The weights that the replica calls ``pending``."""
        self._applied: Messages = ()
        """What they were made of."""
        self._jury = Jury(key.node_id, learner)
        self._speed = Speed()
        self._measuring = Recurring()
        self._measured = False
        """Whether the loss of the kept weights was measured since the start."""
        self._verdict: bool | None = None
        """Whether the pending weights drop the kept ones; None if the round gave no verdict."""
        self.stopped = ""
        """Why this node has stopped training, in words for the operator."""

    def __repr__(self) -> str:
        """The replica's state."""
        return f"<Rounds of {self.replica!r}>"

    async def run(self) -> None:
        """Train while it is enabled."""
        if await self.learner.prepare():
            await self._measure()
        self.record.publish()
        self._kept_news.set()
        # Peers are asked before a round begins here.
        await self._gossip.ask_all()
        self._hear()
        log.info("at version %d", self.replica.kept.version)
        async with trio.open_nursery() as nursery:
            talk = self._gossip.talk
            nursery.start_soon(talk, self._hear, self.contributions.wanted, lambda: self.left_s)
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
            if self.stopped or not self._settings.current.training.enabled:
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
        if replica.state is State.WAITING:
            await self._ready()
        if replica.begin(now):
            self.contributions.forget_uncounted()
            await self.record.save()
            await self._inner_steps()
            self._speed.rest()
        elif replica.state is State.EXCHANGE:
            included = replica.ready_to_apply(now)
            if included is not None:
                await self._outer_step(included)
        elif replica.state is State.SETTLING:
            await self._settle(now)
        return replica.state is not before

    async def _ready(self) -> None:
        replica = self.replica
        await self.learner.ready(self._gossip.holders(replica.holders(replica.kept)))
        if not self._measured:
            await self._measure()

    async def _inner_steps(self) -> None:
        replica, learner = self.replica, self.learner
        trainers = [*self._gossip.peers, self._key.node_id]
        shards = shards_of(self._key.node_id, trainers, learner.all_shards)
        config = self._settings.current.training
        await learner.rewind()
        losses: list[float] = []
        before = learner.progress.sequences
        self.record.publish()
        # Weights that this node finds worse will be dropped: it hurries to say so.
        measured = self._held_out()
        most = 1 if measured is not None and measured.worse else config.diloco_steps
        shown = RoundProgress(replica.round_id, replica.kept.version, most, config.batch_size)
        shown.begin(self.record.validation_loss)
        while len(losses) < min(most, config.diloco_steps) and replica.state is State.INNER:
            if losses and replica.must_hurry(trio.current_time(), self._speed.step_s):
                log.info("hurrying after %d steps, with a quorum of the others", len(losses))
                break
            self._speed.begin(trio.current_time(), min(most, config.diloco_steps) - len(losses))
            try:
                losses.append(await learner.step(shards, config, replica.round_id))
            except FloatingPointError as error:
                log.warning("%s", error)
                break
            learner.progress.inner_step = len(losses)
            self._speed.end(trio.current_time())
            shown.step(len(losses), losses[-1])
            config = self._settings.current.training
            if not config.enabled:
                replica.give_up()
                return
            if replica.fetch(trio.current_time()) is not None:
                return
        self._speed.done()
        while replica.state is State.INNER:
            sequences = learner.progress.sequences - before
            await self._contribute(fmean(losses) if losses else 0.0, sequences)

    @property
    def left_s(self) -> float:
        """Seconds that the steps, or what is measured after a round, will still take.

        ``inf`` while there is neither.
        """
        busy = self._speed if self.replica.state is State.INNER else self._measuring
        return busy.left_s(trio.current_time())

    async def _contribute(self, loss: float, sequences: int) -> None:
        replica = self.replica
        feedback = await self.record.feedback(self.learner.model.shapes)
        gradients, left = await self.learner.contribution(self._packing(), feedback)
        # The round may have moved on during the steps: contribute to the current one.
        round_id = replica.round_id
        unsigned = Contribution(
            node_id=self._key.node_id,
            round_id=round_id,
            model_hash=self.learner.model.anchor.model_hash,
            timestamp=time.time(),
            batch_size=min(max(1, sequences), MAX_SEQUENCES),
            loss=loss,
            layer_gradients=gradients,
            ttl=MAX_TTL,
            held_out=self._held_out(),
            opinions=self._jury.opinions.current(),
        )
        statement = await trio.to_thread.run_sync(unsigned.statement)
        message = contribution_message(replace(unsigned, signature=sign(self._key.seed, statement)))
        digest = digest_of(statement)
        await self.record.save_contribution(digest, message.SerializeToString(), left)
        if (replica.state, replica.round_id) != (State.INNER, round_id):
            # The round has moved on again; nobody has seen this contribution.
            return
        self.contributions.messages[digest] = message
        self.record.hold()
        replica.inner_done(digest, trio.current_time())
        await self.record.save()

    def _packing(self) -> Packing:
        """How this node writes its contribution, so that all copies of it are within the bound."""
        training = self._settings.current.training
        most = training.upload_mib * MEBIBYTE or math.inf
        others = max(1, len(self._gossip.peers))
        return packing_of(training.gradients, self.learner.model.parameters, most / others)

    async def _outer_step(self, included: dict[str, str]) -> None:
        messages = self.contributions.of(included.values())
        used = True
        anchor = await self._restored(messages)
        if anchor is None:
            found = await self._jury.verdict(messages)
            anchor = await self.learner.applied(found.counted)
            used = self._key.node_id not in found.condemned
        self._pending, self._applied = anchor, messages
        weights = WeightsVersion(self.replica.round_id, anchor.model_hash)
        await self.record.save_anchor(anchor, weights)
        used = used and self._verdict is not True
        self.replica.applied(anchor.model_hash, trio.current_time(), used=used)

    def _held_out(self) -> HeldOut | None:
        """What this node has measured of the weights that it keeps (decision 0226)."""
        previous, losses = self.record.judging.previous, self.learner.losses
        if previous is None or previous.model_hash not in losses:
            return None
        after = losses.get(self.replica.kept.model_hash, math.nan)
        before = losses[previous.model_hash]
        if not math.isfinite(before) or before <= 0:
            return None
        return HeldOut(previous.model_hash, before, after if math.isfinite(after) else math.inf)

    async def _restored(self, messages: Sequence[pb.GossipGradientRequest]) -> Anchor | None:
        """The weights before the kept ones, if the set says that these are worse."""
        previous = self.record.judging.previous
        self._verdict = None
        if previous is None:
            return None
        self._verdict = is_worse([held_out_in(m) for m in messages], previous.model_hash)
        if not self._verdict:
            return None
        try:
            found = await self.record.earlier(self.learner.model.shapes)
        except StartupError as failure:
            # The others make the weights; this node fetches them.
            log.warning("cannot go back to version %d: %s", previous.version, failure)
            self._verdict = None
            return None
        return found or await self.learner.original()

    async def _settle(self, now: float) -> None:
        self.record.hold()
        before = self.replica.kept
        kept = self.replica.settle(now)
        if kept is None or self._pending is None:
            self.record.release()
        else:
            anchor = self.learner.model.anchor
            await self.learner.adopt(self._pending, kept)
            self._judge(before)
            with self._measuring.running():
                await self._kept()
                await self._jury.measure(anchor, self._applied, kept.version)
            self._applied = ()
            self._stop_if_worse()

    def _judge(self, before: WeightsVersion) -> None:
        """Note what the next verdict needs, after other weights were kept than ``before``."""
        judging = self.record.judging
        if self._verdict:
            self.record.judging = Judging(None, judging.dropped + 1)
            log.warning(
                "version %d is dropped by the network: it made the held-out loss worse",
                before.version,
            )
        else:
            dropped = judging.dropped if self._verdict is None else 0
            self.record.judging = Judging(before, dropped)

    def _stop_if_worse(self) -> None:
        if self.record.judging.dropped < MAX_DROPPED:
            return
        self.stopped = (
            f"{MAX_DROPPED} rounds in a row made the held-out loss worse and were dropped: lower "
            "training.learning_rate or training.diloco_steps, or give it more text; then switch "
            "training.enabled off and on"
        )
        log.error("training stops: %s", self.stopped)

    def resume(self) -> None:
        """Go on after a stop, because the operator has changed something."""
        self.stopped = ""
        self.record.judging = replace(self.record.judging, dropped=0)

    async def _fetch(self, wanted: WeightsVersion) -> None:
        replica = self.replica
        holders = self._gossip.holders(replica.holders(wanted))
        anchor = await self._fetcher.fetch(wanted, holders)
        if anchor is None:
            replica.fetch_failed(trio.current_time())
            return
        self._applied = ()
        await self.record.save_anchor(anchor, wanted)
        await self.learner.adopt(anchor, wanted)
        self.record.hold()
        replica.adopted(wanted)
        # What these were made from is not here, so others judge them.
        self.record.judging = Judging(None, self.record.judging.dropped)
        await self._kept()

    async def _measure(self) -> float:
        served = self._served()
        if served is not None:
            await self.learner.measure(*served)
        loss = await self.learner.validation_loss()
        self.record.measured(loss, self.learner.model.anchor.momentum_hash)
        self._measured = True
        return loss

    async def _kept(self) -> None:
        """Measure and save the weights that were just kept, and forget the round."""
        loss = await self._measure()
        await self.record.save_kept()
        self._kept_news.set()
        self.contributions.forget_uncounted()
        kept = self.replica.kept
        log.info(
            "version %d kept, %s, validation loss %.4f",
            kept.version,
            kept.model_hash,
            loss,
        )
