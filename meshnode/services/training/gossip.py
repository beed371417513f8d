"""Contributions and reports between nodes (document, 2.3 and 4.3: GossipGradient, GetCheckpoint).

Terms as in ``domain.training``. Each peer is asked for its report every ``POLL_S``
(GetSwarmStatus), and is sent the contributions that it lacks; so a message that was lost is sent
again, and one that is known is not. Each peer has a task of its own: one that hangs holds up
nobody but itself.

Invariants: at most ``ASKS`` questions and ``SENDS`` contributions are out; a contribution is
forwarded with one less ``ttl``, and not at all at 0; a checkpoint is used only when its weights
have the hash that was asked for.

"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import trio

from meshnode.domain.errors import InvalidRequest
from meshnode.domain.peers import Peer
from meshnode.domain.training.agreement import Weights
from meshnode.domain.training.replica import Report
from meshnode.model.checkpoint import FIELD, largest, read_anchor
from meshnode.model.replica import Anchor
from meshnode.rpc.errors import CallFailed
from meshnode.rpc.pool import ChannelPool
from meshnode.services.peers import PeerBook
from meshnode.services.training.messages import Shapes, report_in
from meshnode.wire import node_pb2 as pb
from meshnode.wire.frames import unframe

log = logging.getLogger(__name__)

POLL_S = 1.0
ASK_S = 3.0
SEND_S = 30.0
"""For one contribution, up to 100 MiB."""
FETCH_S = 120.0
ASKS = 32
"""Questions that are out at once: they are small."""
SENDS = 8
"""Peers that are sent to at once: each may take a hundred MiB of memory."""
REFUSED_POLLS = 5
"""What a peer refused is not sent again for so many polls, unless the peer goes on."""
MISSES = 3
"""Unanswered questions in a row after which a peer counts as gone."""
MOST_UNSURE = 1024
"""Contributions without an answer that are remembered: a hundred bytes each."""
MOST_REASON_CHARS = 200
"""Of a peer's text, in the log."""

Wanted = dict[str, pb.GossipGradientRequest]
"""Contributions that a peer lacks, by digest."""
History = dict[int, str]
"""Hashes of the weights that a node kept, by version; the latest few."""
VERSIONS_REMEMBERED = 8


def remember(history: History, weights: Weights) -> None:
    """Take note of kept weights."""
    # A node that went back to an older version has left the newer ones.
    for version in [known for known in history if known > weights.version]:
        del history[version]
    history[weights.version] = weights.model_hash
    for version in sorted(history)[:-VERSIONS_REMEMBERED]:
        del history[version]


@dataclass(frozen=True, slots=True)
class PeerTraining:
    """A peer's report, and its figures."""

    report: Report
    figures: pb.TrainingFigures


@dataclass(frozen=True, slots=True)
class _Refusal:
    stage: tuple[object, ...]
    until: float


@dataclass(frozen=True, slots=True)
class _Unsure:
    """A contribution that was sent, and of which it is not known whether it was taken."""

    maker: str
    round_id: int


def _stage(report: Report) -> tuple[object, ...]:
    return report.round_id, report.state, report.kept


class Gossip:
    """Talks to the peers that train."""

    def __init__(self, book: PeerBook, pool: ChannelPool) -> None:
        """``book`` says who is there."""
        self.peers: dict[str, PeerTraining] = {}
        self.history: dict[str, History] = {}
        self._book = book
        self._pool = pool
        self._missed: dict[str, int] = {}
        self._asks = trio.CapacityLimiter(ASKS)
        self._sends = trio.CapacityLimiter(SENDS)
        self._sending: set[str] = set()
        self._sent_until: dict[str, float] = {}
        self._refused: dict[tuple[str, str], _Refusal] = {}
        """By peer and digest."""
        self._unsure: dict[tuple[str, str], _Unsure] = {}
        """Likewise, the oldest first. The peer's next reports say, also once it was gone."""
        self.submitted = 0
        """Contributions sent, each counted once for each peer that took it."""

    def knows(self, node_id: str) -> bool:
        """Whether a node is a peer: keys cost nothing, nodes that answer do (decisions/0100)."""
        return self._book.get(node_id) is not None

    async def ask_all(self) -> None:
        """Ask the peers with the same model, once each."""
        async with trio.open_nursery() as nursery:
            for peer in self._present():
                nursery.start_soon(self._ask, peer)

    async def talk(
        self,
        hear: Callable[[], None],
        wanted: Callable[[str], Wanted],
    ) -> None:
        """Ask each peer again and again, and send it what is ``wanted`` by it; until cancelled.

        ``hear`` is called whenever there is something new. A peer that hangs holds up no other.
        """
        talking: set[str] = set()

        async def talk_to(node_id: str) -> None:
            async with trio.open_nursery() as sending:
                while (peer := self._peer(node_id)) is not None:
                    asked_at = trio.current_time()
                    await self._ask(peer)
                    hear()
                    # What was sent after the question is not in the answer yet.
                    idle = node_id not in self._sending
                    if idle and asked_at > self._sent_until.get(node_id, -math.inf):
                        messages = self._not_refused(node_id, wanted(node_id))
                        if messages:
                            self._sending.add(node_id)
                            sending.start_soon(self._send, peer, messages)
                    await trio.sleep(POLL_S * (0.75 + random.random() / 2))  # noqa: S311 - spreads calls
                sending.cancel_scope.cancel()
            talking.discard(node_id)

        async with trio.open_nursery() as nursery:
            while True:
                for peer in self._present():
                    if peer.node_id not in talking:
                        talking.add(peer.node_id)
                        nursery.start_soon(talk_to, peer.node_id)
                hear()
                await trio.sleep(POLL_S)

    def _peer(self, node_id: str) -> Peer | None:
        peer = self._book.get(node_id)
        return peer if peer and peer.model_hash == self._book.own.model_hash else None

    def _present(self) -> list[Peer]:
        """The peers with the same model; those that are gone are forgotten."""
        model = self._book.own.model_hash
        present = [peer for peer in self._book.peers() if peer.model_hash == model]
        ids = {peer.node_id for peer in present}
        # The last word of a call that was out when its peer left comes after that.
        for gone in {*self.peers, *self._missed, *self._sent_until} - ids:
            self._forget(gone)
        return present

    async def _ask(self, peer: Peer) -> None:
        async with self._asks:
            try:
                with trio.fail_after(ASK_S):
                    stub = await self._pool.stub(peer.host, peer.grpc_port)
                    status = await stub.GetSwarmStatus(pb.SwarmStatusRequest())
                if not status.HasField("training"):
                    self._forget(peer.node_id)
                    return
                report = report_in(status.training)
            except (CallFailed, trio.TooSlowError, InvalidRequest) as error:
                missed = self._missed.get(peer.node_id, 0) + 1
                self._missed[peer.node_id] = missed
                if missed == MISSES:
                    log.info("training: nothing from %s: %s", peer.address, error)
                    self.peers.pop(peer.node_id, None)
                    self.history.pop(peer.node_id, None)
                return
        self._missed.pop(peer.node_id, None)
        self._count_taken(peer.node_id, report)
        self.peers[peer.node_id] = PeerTraining(report, status.training.figures)
        remember(self.history.setdefault(peer.node_id, {}), report.kept)

    def _forget(self, node_id: str) -> None:
        for known in (self.peers, self.history, self._missed, self._sent_until):
            known.pop(node_id, None)
        for key in [key for key in self._refused if key[0] == node_id]:
            del self._refused[key]

    def _count_taken(self, node_id: str, report: Report) -> None:
        """Count what a peer has taken although its answer was lost."""
        if node_id in self._sending:
            # It may answer yet.
            return
        for key, sent in list(self._unsure.items()):
            taken = key[1] in report.contributions.get(sent.maker, ())
            if key[0] == node_id and (taken or report.round_id > sent.round_id):
                del self._unsure[key]
                self.submitted += taken

    def _not_refused(self, node_id: str, messages: Wanted) -> Wanted:
        """Without those that the peer refused a moment ago, in the state that it still is in."""
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
        """False when the peer does not answer."""
        forwarded = pb.GossipGradientRequest()
        forwarded.CopyFrom(message)
        forwarded.ttl -= 1
        known, key = self.peers.get(peer.node_id), (peer.node_id, digest)
        sent_before = key in self._unsure
        try:
            with trio.fail_after(SEND_S):
                stub = await self._pool.stub(peer.host, peer.grpc_port)
                self._note_unsure(key, message)
                answer = await stub.GossipGradient(forwarded)
        except (CallFailed, trio.TooSlowError) as error:
            log.info("training: cannot send to %s: %s", peer.address, error)
            return False
        # One that is refused may be known already, from an earlier call that was not answered.
        if answer.accepted or not sent_before:
            self._unsure.pop(key, None)
        if answer.accepted:
            self.submitted += 1
        elif known is not None:
            log.debug("training: %s refused: %s", peer.address, answer.reason)
            until = trio.current_time() + REFUSED_POLLS * POLL_S
            refusal = _Refusal(_stage(known.report), until)
            self._refused[key] = refusal
        return True

    def _note_unsure(self, key: tuple[str, str], message: pb.GossipGradientRequest) -> None:
        self._unsure[key] = _Unsure(message.node_id, message.round_id)
        while len(self._unsure) > MOST_UNSURE:
            del self._unsure[next(iter(self._unsure))]

    async def fetch(self, weights: Weights, holders: list[str], shapes: Shapes) -> Anchor | None:
        """The checkpoint of ``weights``, checked, from the first holder that gives it."""
        for node_id in holders:
            peer = self._book.get(node_id)
            if peer is None:
                continue
            request = pb.GetCheckpointRequest(
                model_hash=weights.model_hash, min_version=weights.version
            )
            try:
                with trio.fail_after(FETCH_S):
                    stub = await self._pool.stub(peer.host, peer.grpc_port)
                    answer = await stub.GetCheckpoint(request)
                    if not answer.success:
                        raise InvalidRequest(FIELD, answer.error_message[:MOST_REASON_CHARS])
                    read = partial(_read, answer.checkpoint_data, shapes, weights)
                    return await trio.to_thread.run_sync(read)
            except (CallFailed, trio.TooSlowError, InvalidRequest) as error:
                log.warning("training: no checkpoint from %s: %s", peer.address, error)
        return None


def _read(data: bytes, shapes: Shapes, weights: Weights) -> Anchor:
    return read_anchor(unframe(data, largest(shapes), FIELD), shapes, weights.model_hash)
