"""Contributions and reports between nodes (interface 2.3 and 4.3: GossipGradient).

Each peer is asked for its report every ``poll_s`` (GetSwarmStatus), more seldom while this node
computes for long, and is sent the contributions that it lacks according to the report. So a lost
message is sent again, and a message that a peer has is not. Each peer has a task of its own: a peer
that hangs delays no other.

Invariants: at most ``MAX_ASKS`` questions and ``MAX_SENDS`` contributions are in flight; a
contribution is forwarded with its ``ttl`` reduced by one, unless it came here with 0.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import trio

from meshnode.domain.errors import InvalidRequest
from meshnode.domain.peers import Peer
from meshnode.domain.training.agreement import WeightsVersion
from meshnode.domain.training.replica import Report
from meshnode.rpc.errors import CallFailed
from meshnode.rpc.pool import ChannelPool
from meshnode.services.peers import PeerBook
from meshnode.services.training.fetching import CheckpointHolder
from meshnode.services.training.messages import report_in
from meshnode.services.training.timings import TRAINING_TIMINGS, TrainingTimings
from meshnode.wire import node_pb2 as pb

log = logging.getLogger(__name__)

MAX_ASKS = 32
"""Questions in flight. They are small."""
MAX_SENDS = 8
"""Peers that are sent to at once. Each may take a hundred MiB of memory."""
REFUSED_POLLS = 5
"""A contribution that a peer refused is not sent to it again for this many polls, unless the peer's
round, state or anchor changes."""
MISSES = 3
"""Unanswered questions in a row after which a peer counts as gone."""
SELDOM = 5.0
"""The longest pause between two questions to a peer, in ``poll_s``: no longer than the shortest
grace for nodes that still compute, so that these hear of a quorum in time."""
SELDOM_SHARE = 0.05
"""The pause in shares of the time that this node still computes."""
MAX_UNSURE = 1024
"""Unanswered contributions that are remembered. Each takes a hundred bytes."""

_ABOUT_TRAINING = pb.SwarmStatusRequest(only_training=True)

Wanted = dict[str, pb.GossipGradientRequest]
"""Contributions to send to a peer, by digest."""
History = dict[int, str]
"""The hashes of the latest weights that a node kept, by version."""
MAX_VERSIONS = 8
"""Versions in a history."""


def remember(history: History, weights: WeightsVersion) -> None:
    """Add kept weights to a history."""
    # A node that went back to an older version has given up the newer ones.
    for version in [known for known in history if known > weights.version]:
        del history[version]
    history[weights.version] = weights.model_hash
    for version in sorted(history)[:-MAX_VERSIONS]:
        del history[version]


@dataclass(frozen=True, slots=True)
class PeerTraining:
    """A peer's report and figures."""

    report: Report
    figures: pb.TrainingFigures
    momentum_hash: str = ""
    """Of the outer momentum of the weights that it keeps."""


@dataclass(frozen=True, slots=True)
class _Refusal:
    stage: tuple[object, ...]
    until: float


@dataclass(frozen=True, slots=True)
class _Unsure:
    """A contribution that was sent but not answered, so the peer may or may not have it."""

    maker: str
    round_id: int


def _stage(report: Report) -> tuple[object, ...]:
    return report.round_id, report.state, report.kept


class GradientGossip:
    """Asks the peers that train, and sends them contributions."""

    def __init__(
        self, book: PeerBook, pool: ChannelPool, timings: TrainingTimings = TRAINING_TIMINGS
    ) -> None:
        """``book`` lists the known peers."""
        self.peers: dict[str, PeerTraining] = {}
        self.history: dict[str, History] = {}
        self._book = book
        self._pool = pool
        self._timings = timings
        self._missed: dict[str, int] = {}
        self._asks = trio.CapacityLimiter(MAX_ASKS)
        self._sends = trio.CapacityLimiter(MAX_SENDS)
        self._sending: set[str] = set()
        self._sent_until: dict[str, float] = {}
        self._refused: dict[tuple[str, str], _Refusal] = {}
        """By peer and digest."""
        self._unsure: dict[tuple[str, str], _Unsure] = {}
        """By peer and digest, oldest first. The peer's next report shows whether it has them, even
        if the peer was gone in the meantime."""
        self.submitted = 0
        """Contributions sent, each counted once for each peer that took it."""

    def knows(self, node_id: str) -> bool:
        """Whether a node is a known peer.

        Anybody can make keys at no cost, so only nodes that run count (decision 0100).
        """
        return self._book.get(node_id) is not None

    async def ask_all(self) -> None:
        """Ask each peer with the same model once."""
        async with trio.open_nursery() as nursery:
            for peer in self._present():
                nursery.start_soon(self._ask, peer)

    async def talk(
        self,
        hear: Callable[[], None],
        wanted: Callable[[str], Wanted],
        computes_s: Callable[[], float],
    ) -> None:
        """Ask each peer again and again, and send it what it lacks, until cancelled.

        ``hear`` is called after each question, answered or not, and every ``poll_s``, since peers
        may have come or gone. ``wanted`` returns the contributions to send to a peer.
        ``computes_s`` returns for how many seconds this node will have nothing to send; those who
        have bring it. It is ``inf`` if that is unknown.
        """
        talking: set[str] = set()

        async def talk_to(node_id: str) -> None:
            asked_at = -math.inf
            async with trio.open_nursery() as sending:
                while (peer := self._peer(node_id)) is not None:
                    # Compared again and again, since steps may end before they were expected to.
                    if trio.current_time() >= asked_at + self._seldom_s(computes_s()):
                        asked_at = trio.current_time()
                        await self._ask(peer)
                        hear()
                        if messages := self._to_send(node_id, asked_at, wanted):
                            self._sending.add(node_id)
                            sending.start_soon(self._send, peer, messages)
                    await trio.sleep(self._timings.poll_s * _spread())
                sending.cancel_scope.cancel()
            talking.discard(node_id)

        async with trio.open_nursery() as nursery:
            while True:
                for peer in self._present():
                    if peer.node_id not in talking:
                        talking.add(peer.node_id)
                        nursery.start_soon(talk_to, peer.node_id)
                hear()
                await trio.sleep(self._timings.poll_s)

    def _seldom_s(self, computes_s: float) -> float:
        """The shortest time between two questions to a peer."""
        if math.isinf(computes_s):
            return 0.0
        return min(SELDOM * self._timings.poll_s, SELDOM_SHARE * computes_s)

    def _to_send(self, node_id: str, asked_at: float, wanted: Callable[[str], Wanted]) -> Wanted:
        """What a peer lacks according to its answer, which has nothing that was sent later."""
        if node_id in self._sending or asked_at <= self._sent_until.get(node_id, -math.inf):
            return {}
        return self._not_refused(node_id, wanted(node_id))

    def _peer(self, node_id: str) -> Peer | None:
        peer = self._book.get(node_id)
        return peer if peer and peer.lineage == self._book.own.lineage else None

    def _present(self) -> list[Peer]:
        """The peers that train the same model, whatever they serve. Forgets the others."""
        model = self._book.own.lineage
        present = [peer for peer in self._book.peers() if peer.lineage == model]
        ids = {peer.node_id for peer in present}
        # A call that was in flight when its peer left may have added to these later.
        for gone in {*self.peers, *self._missed, *self._sent_until} - ids:
            self._forget(gone)
        return present

    async def _ask(self, peer: Peer) -> None:
        async with self._asks:
            try:
                with trio.fail_after(self._timings.ask_s):
                    stub = await self._pool.stub(peer.host, peer.grpc_port)
                    status = await stub.GetSwarmStatus(_ABOUT_TRAINING)
                if not status.HasField("training"):
                    self._forget(peer.node_id)
                    return
                report = report_in(status.training)
            except (CallFailed, trio.TooSlowError, InvalidRequest) as error:
                missed = self._missed.get(peer.node_id, 0) + 1
                self._missed[peer.node_id] = missed
                if missed == MISSES:
                    log.info("%s does not answer: %s", peer.address, error)
                    self.peers.pop(peer.node_id, None)
                    self.history.pop(peer.node_id, None)
                return
        self._missed.pop(peer.node_id, None)
        self._count_taken(peer.node_id, report)
        self.peers[peer.node_id] = PeerTraining(
            report, status.training.figures, status.training.momentum_hash
        )
        remember(self.history.setdefault(peer.node_id, {}), report.kept)

    def _forget(self, node_id: str) -> None:
        for known in (self.peers, self.history, self._missed, self._sent_until):
            known.pop(node_id, None)
        for key in [key for key in self._refused if key[0] == node_id]:
            del self._refused[key]

    def _count_taken(self, node_id: str, report: Report) -> None:
        """Count the contributions that a peer has although its answer was lost."""
        if node_id in self._sending:
            # The answer to the call in flight may still come, and would count the contribution.
            return
        for key, sent in list(self._unsure.items()):
            taken = key[1] in report.contributions.get(sent.maker, ())
            if key[0] == node_id and (taken or report.round_id > sent.round_id):
                del self._unsure[key]
                self.submitted += taken

    def _not_refused(self, node_id: str, messages: Wanted) -> Wanted:
        """The messages without those that the peer refused lately in its present state."""
        known = self.peers.get(node_id)
        for key, refusal in list(self._refused.items()):
            if key[0] == node_id and (
                key[1] not in messages
                or trio.current_time() >= refusal.until
                or known is None
                or _stage(known.report) != refusal.stage
            ):
                del self._refused[key]
        refused = self._refused
        return {name: m for name, m in messages.items() if (node_id, name) not in refused}

    async def _send(self, peer: Peer, messages: Wanted) -> None:
        try:
            async with self._sends:
                for digest, message in messages.items():
                    if message.ttl >= 1 and not await self._send_one(peer, digest, message):
                        return
        finally:
            self._sending.discard(peer.node_id)
            self._sent_until[peer.node_id] = trio.current_time()

    async def _send_one(self, peer: Peer, digest: str, message: pb.GossipGradientRequest) -> bool:
        """Send one contribution. False if the peer does not answer."""
        forwarded = pb.GossipGradientRequest()
        forwarded.CopyFrom(message)
        forwarded.ttl -= 1
        known, key = self.peers.get(peer.node_id), (peer.node_id, digest)
        sent_before = key in self._unsure
        try:
            with trio.fail_after(self._timings.send_s):
                stub = await self._pool.stub(peer.host, peer.grpc_port)
                self._note_unsure(key, message)
                answer = await stub.GossipGradient(forwarded)
        except (CallFailed, trio.TooSlowError) as error:
            log.info("cannot send to %s: %s", peer.address, error)
            return False
        # A refusal may mean that the peer has it from an earlier call that was not answered.
        if answer.accepted or not sent_before:
            self._unsure.pop(key, None)
        if answer.accepted:
            self.submitted += 1
        elif known is not None:
            log.debug("%s refused: %s", peer.address, answer.reason)
            until = trio.current_time() + REFUSED_POLLS * self._timings.poll_s
            refusal = _Refusal(_stage(known.report), until)
            self._refused[key] = refusal
        return True

    def _note_unsure(self, key: tuple[str, str], message: pb.GossipGradientRequest) -> None:
        self._unsure[key] = _Unsure(message.node_id, message.round_id)
        while len(self._unsure) > MAX_UNSURE:
            del self._unsure[next(iter(self._unsure))]

    def holders(self, node_ids: Iterable[str]) -> list[CheckpointHolder]:
        """Those of these nodes that can be asked for their weights."""
        return [
            CheckpointHolder(
                peer.address,
                self.peers[node_id].momentum_hash,
                partial(self._pool.stub, peer.host, peer.grpc_port),
                node_id,
            )
            for node_id in node_ids
            if (peer := self._book.get(node_id)) is not None and node_id in self.peers
        ]


def _spread() -> float:
    """A factor that keeps nodes from asking at the same moments."""
    return 0.75 + random.random() / 2  # noqa: S311 - no secret
