"""The rounds of a node that trains: inner steps, exchange, outer step, settling (1, 2.1, 2.3).

The service drives ``domain.training.replica`` and owns what that only names: the weights, the
contributions, the files. Settings are read at every step, so they can be changed while it runs.

Invariants: whatever this node reports was on its disk before; the inner steps run in a thread of
their own at low priority, one at a time, so that serving goes on beside them; a contribution is
decoded, bounded and checked before it is counted, and again before it is used.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean

import trio
from google.protobuf.message import DecodeError

from meshnode.config import Config
from meshnode.domain.errors import InvalidRequest
from meshnode.domain.identity import NodeKey
from meshnode.domain.training.agreement import Weights
from meshnode.domain.training.message import MOST_TTL, Contribution, check, digest_of, sign
from meshnode.domain.training.replica import Persisted, Replica, Report, State, Timings
from meshnode.model.data import Shuffled, TokenData, shards_of
from meshnode.model.diloco import Rule
from meshnode.model.replica import Anchor, TrainedModel
from meshnode.services.training import gossip as talking
from meshnode.services.training.disk import TrainingDisk
from meshnode.services.training.gossip import Gossip, History, Wanted, remember
from meshnode.services.training.messages import (
    contribution_in,
    contribution_message,
    pack_gradients,
    unpack_gradients,
)
from meshnode.services.training.quiet_thread import QuietThread
from meshnode.wire import node_pb2 as pb

log = logging.getLogger(__name__)

TICK_S = 0.2
"""Between looks at the replica, while nothing computes."""
LOSSES_KEPT = 100
VALIDATION_BATCH = 8
VALIDATION_ROWS = 64
"""Held-out sequences that are measured after each round: some seconds at most."""
FORWARD_POLLS = 2
"""Polls after which the contribution of another is passed on, to those who still lack it: its
maker sends it to all that it reaches, and twice would be twice the traffic."""


@dataclass(slots=True)
class Progress:
    """What is measured of the own training."""

    begun_at: float
    steps: int = 0
    tokens: int = 0
    inner_step: int = 0
    loss: float = 0.0
    validation_loss: float = 0.0
    accepted: int = 0


def filed_contribution(disk: TrainingDisk, digest: str | None) -> pb.GossipGradientRequest | None:
    """The own contribution from its file, if it is the one of ``digest``. Blocks."""
    if digest is None:
        return None
    try:
        message = pb.GossipGradientRequest.FromString(disk.contribution() or b"")
    except DecodeError:
        return None
    return message if digest_of(contribution_in(message).statement()) == digest else None


class Rounds:
    """The state of a node that trains, and its way through the rounds."""

    def __init__(
        self,
        *,
        key: NodeKey,
        settings: Callable[[], Config],
        gossip: Gossip,
        model: TrainedModel,
        data: TokenData,
        disk: TrainingDisk,
        thread: QuietThread,
        persisted: Persisted,
        filed: pb.GossipGradientRequest | None,
        losses: list[float],
        timings: Timings,
        rule: Rule,
    ) -> None:
        """Go on from what was ``persisted``; the model's anchor is that of its weights.

        ``filed`` is the own contribution that it names, if that can still be read.
        """
        now = trio.current_time()
        self.model = model
        self.data = data
        self.losses = losses
        """Validation losses of the weights that were kept, oldest first."""
        self.progress = Progress(begun_at=now)
        self.shards: set[int] = set()
        self.messages: dict[str, pb.GossipGradientRequest] = {}
        self._arrived: dict[str, float] = {}
        """When each message came, by digest."""
        self._key = key
        self._settings = settings
        self._gossip = gossip
        self._disk = disk
        self._thread = thread
        self._rule = rule
        self._checking = trio.CapacityLimiter(1)
        self._pending: Anchor | None = None
        self._unsaved = False
        self._validation_loss = 0.0
        """Of the newest weights, which are not published yet while they are being filed."""
        self._reading: tuple[tuple[int, ...], int, Iterator[Shuffled]] | None = None
        """Shards, batch size, and what is left of them."""
        if filed is None:
            # It cannot be sent again, and another one for the same round would be a lie.
            persisted = replace(persisted, contributed=None)
        elif persisted.contributed is not None:
            self.messages[persisted.contributed] = filed
        self.replica = Replica(key.node_id, persisted, now, timings)
        self.published: Report = self.replica.report()
        """What others are told: never ahead of the disk."""
        self.history: History = {}
        remember(self.history, self.published.kept)

    async def run(self) -> None:
        """Train while it is enabled."""
        await self._validate()
        self.publish()
        # Others are heard before a round begins here.
        await self._gossip.ask_all()
        self._hear()
        log.info("training: at version %d", self.replica.kept.version)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._gossip.talk, self._hear, self._wanted)
            await self._train()
            nursery.cancel_scope.cancel()

    async def take(self, message: pb.GossipGradientRequest) -> str | None:
        """A contribution of a peer. None: taken; else the reason why not."""
        replica, contribution = self.replica, contribution_in(message)
        if contribution.node_id == self._key.node_id:
            return "this node's own"
        if not self._gossip.knows(contribution.node_id):
            return "its maker is not a peer of this node"
        # What is over, or known, costs no signature.
        if contribution.round_id < replica.round_id:
            return "the round is over"
        if any(_same(message, known) for known in self.messages.values()):
            return "known already"
        judge = partial(_judge, contribution, self.model.shapes, time.time())
        try:
            digest = await trio.to_thread.run_sync(judge, limiter=self._checking)
        except InvalidRequest as refusal:
            return str(refusal)
        reason = replica.contributed(
            contribution.node_id, contribution.round_id, contribution.model_hash, digest
        )
        if reason is None:
            self.messages[digest] = message
            self._arrived[digest] = trio.current_time()
            self.progress.accepted += 1
            self.publish()
        return reason

    def _wanted(self, node_id: str) -> Wanted:
        """Contributions to send to a peer now."""
        patience = FORWARD_POLLS * talking.POLL_S
        latest = trio.current_time() - patience
        return {
            digest: self.messages[digest]
            for maker, digest in self.replica.lacking(node_id)
            if digest in self.messages
            and (maker == self._key.node_id or self._arrived.get(digest, latest) <= latest)
        }

    def _hear(self) -> None:
        replica = self.replica
        for node_id, peer in self._gossip.peers.items():
            replica.heard(node_id, peer.report, trio.current_time())
        for node_id in replica.known_peers() - self._gossip.peers.keys():
            replica.lost(node_id)

    async def _train(self) -> None:
        replica = self.replica
        while self._settings().training.enabled:
            now = trio.current_time()
            wanted = replica.fetch(now)
            if wanted is not None:
                await self._fetch(wanted)
            elif replica.begin(now):
                self._forget_messages()
                await self._save()
                await self._inner_steps()
            elif replica.state is State.EXCHANGE:
                included = replica.ready_to_apply(now)
                if included is not None:
                    await self._outer_step(included)
            elif replica.state is State.SETTLING:
                await self._settle(now)
            self.publish()
            await trio.sleep(TICK_S)

    async def _inner_steps(self) -> None:
        replica, model = self.replica, self.model
        trainers = [*self._gossip.peers, self._key.node_id]
        shards = shards_of(self._key.node_id, trainers, self.data.shards)
        config = self._settings().training
        await self._thread(model.rewind)
        losses: list[float] = []
        self.publish()
        while len(losses) < config.diloco_steps and replica.state is State.INNER:
            if losses and replica.must_hurry(trio.current_time()):
                log.info("training: hurrying after %d steps", len(losses))
                break
            shuffled = next(self._batches(shards, config.batch_size))
            step = partial(model.inner_step, shuffled.batch, config.learning_rate)
            try:
                report = await self._thread(step)
            except FloatingPointError as error:
                log.warning("training: %s", error)
                break
            losses.append(report.loss)
            self.shards |= shuffled.shards
            self.progress.steps += 1
            self.progress.tokens += report.tokens
            self.progress.inner_step = len(losses)
            self.progress.loss = report.loss
            config = self._settings().training
            if not config.enabled:
                replica.give_up()
                return
            if replica.fetch(trio.current_time()) is not None:
                return
        while replica.state is State.INNER:
            await self._contribute(fmean(losses) if losses else 0.0, config.batch_size)

    def _batches(self, shards: tuple[int, ...], size: int) -> Iterator[Shuffled]:
        """Where the round before stopped, so that all is read once before anything is read again.

        In another order when other shards, or batches of another size, are to be read from now on.
        """
        if self._reading is None or self._reading[:2] != (shards, size):
            seed = int(self._key.node_id[:8], 16) ^ self.replica.round_id
            batches = self.data.batches(shards, size, seed + self.progress.steps)
            self._reading = (shards, size, batches)
        return self._reading[2]

    async def _contribute(self, loss: float, batch_size: int) -> None:
        replica, model = self.replica, self.model
        frames = await self._thread(lambda: pack_gradients(model.pseudo_gradient()))
        # The round may have moved on while the steps ran: it is the one of this moment.
        round_id = replica.round_id
        unsigned = Contribution(
            node_id=self._key.node_id,
            round_id=round_id,
            model_hash=model.anchor.model_hash,
            timestamp=time.time(),
            batch_size=batch_size,
            loss=loss,
            layer_gradients=frames,
            ttl=MOST_TTL,
        )
        statement = await trio.to_thread.run_sync(unsigned.statement)
        message = contribution_message(replace(unsigned, signature=sign(self._key.seed, statement)))
        await trio.to_thread.run_sync(self._disk.save_contribution, message.SerializeToString())
        if (replica.state, replica.round_id) != (State.INNER, round_id):
            # It moved on once more, and this was never said to anybody.
            return
        digest = digest_of(statement)
        self.messages[digest] = message
        self._unsaved = True
        replica.inner_done(digest, trio.current_time())
        await self._save()

    async def _outer_step(self, included: dict[str, str]) -> None:
        model = self.model
        messages = [self.messages[digest] for digest in included.values()]

        def apply() -> Anchor:
            shapes = model.shapes
            gradients = [unpack_gradients(m.layer_gradients, shapes) for m in messages]
            return model.applied(gradients, self._rule)

        anchor = await self._thread(apply)
        self._pending = anchor
        weights = Weights(self.replica.round_id, anchor.model_hash)
        await trio.to_thread.run_sync(self._disk.save_anchor, anchor, weights)
        self.replica.applied(anchor.model_hash, trio.current_time())

    async def _settle(self, now: float) -> None:
        self._unsaved = True
        kept = self.replica.settle(now)
        if kept is None or self._pending is None:
            self._unsaved = False
        else:
            await self._thread(partial(self.model.adopt, self._pending))
            await self._kept()

    async def _fetch(self, wanted: Weights) -> None:
        replica, model = self.replica, self.model
        anchor = await self._gossip.fetch(wanted, replica.holders(wanted), model.shapes)
        if anchor is None:
            replica.fetch_failed(trio.current_time())
            return
        await trio.to_thread.run_sync(self._disk.save_anchor, anchor, wanted)
        await self._thread(partial(model.adopt, anchor))
        self._unsaved = True
        replica.adopted(wanted)
        await self._kept()

    async def _kept(self) -> None:
        """New weights are kept: measure them, file them, and let go of the round."""
        await self._validate()
        self.losses = [*self.losses, self._validation_loss][-LOSSES_KEPT:]
        await self._save()
        self._forget_messages()
        log.info(
            "training: version %d kept, %s, validation loss %.4f",
            self.replica.kept.version,
            self.replica.kept.model_hash,
            self._validation_loss,
        )

    async def _validate(self) -> None:
        model, batches = self.model, self.data.validation_batches(VALIDATION_BATCH, VALIDATION_ROWS)
        evaluation = await self._thread(partial(model.validate, batches))
        self._validation_loss = evaluation.loss

    async def _save(self) -> None:
        save = partial(self._disk.save, self.replica.persisted(), self.losses)
        await trio.to_thread.run_sync(save)
        self._unsaved = False
        self.publish()

    def publish(self) -> None:
        """Tell others of the state, unless it is not on the disk yet."""
        if not self._unsaved:
            self.published = self.replica.report()
            self.progress.validation_loss = self._validation_loss
            remember(self.history, self.published.kept)

    def _forget_messages(self) -> None:
        """Keep only what the round still counts."""
        known = {d for digests in self.replica.contributions.known().values() for d in digests}
        self.messages = {d: m for d, m in self.messages.items() if d in known}
        self._arrived = {d: at for d, at in self._arrived.items() if d in known}


def _same(a: pb.GossipGradientRequest, b: pb.GossipGradientRequest) -> bool:
    """Whether two messages differ in nothing but how far they may still travel."""
    if a.signature != b.signature or a.layer_gradients.keys() != b.layer_gradients.keys():
        return False
    fields = [f.name for f in a.DESCRIPTOR.fields if f.name not in ("ttl", "layer_gradients")]
    return all(getattr(a, name) == getattr(b, name) for name in fields) and all(
        data == b.layer_gradients[name] for name, data in a.layer_gradients.items()
    )


def _judge(contribution: Contribution, shapes: dict[str, tuple[int, ...]], now: float) -> str:
    digest = check(contribution, frozenset(shapes), now)
    # Decoded to be judged, and again to be used: in between it takes the room of a message.
    unpack_gradients(contribution.layer_gradients, shapes)
    return digest
