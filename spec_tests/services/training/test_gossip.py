"""How a node in training handles peers that fail in the middle of a call (interface 2.3, 4.3)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio

from meshnode.config import build_config
from meshnode.domain.identity import key_from_seed
from meshnode.domain.peers import Peer
from meshnode.domain.training.agreement import WeightsVersion
from meshnode.domain.training.message import Contribution, digest_of
from meshnode.domain.training.replica import Report, State
from meshnode.rpc.errors import CallFailed, Code
from meshnode.services.training import gossip
from meshnode.services.training.gossip import GradientGossip, Wanted
from meshnode.services.training.messages import contribution_message, report_message
from meshnode.services.training.trainer import TrainingService
from meshnode.wire import node_pb2 as pb
from spec_tests.services.training.trainers import ChangingSettings

MAX_CALL_S = 20_000
"""Seconds of the autojump clock, which take no real time."""
KEY = key_from_seed("1" * 64)
KEPT = WeightsVersion(0, "a" * 64)
CONTRIBUTION = Contribution(
    node_id=KEY.node_id,
    round_id=1,
    model_hash=KEPT.model_hash,
    timestamp=time.time(),
    batch_size=8,
    loss=1.0,
    layer_gradients={"weight": b"frame"},
    signature="00",
    ttl=2,
)
DIGEST = digest_of(CONTRIBUTION.statement())


@dataclass
class FakePeer:
    """Stands in for a peer, the connection to it, and the peer book that lists it."""

    fails: int = 0
    """Number of further contributions whose answer gets lost."""
    hangs: bool = False
    there: bool = True
    asked: list[float] = field(default_factory=list)
    """The times of the questions."""
    taken: list[str] = field(default_factory=list)
    sent: trio.Event = field(default_factory=trio.Event)

    own = SimpleNamespace(lineage="m")

    def peers(self) -> list[Peer]:
        peer = Peer(
            node_id="ab" * 20,
            host="127.0.0.1",
            port=1,
            role="driver",
            layers=(0,),
            total_layers=1,
            model_hash="m",
            latency_ms=1.0,
            connected_since=0.0,
        )
        return [peer] if self.there else []

    def get(self, node_id: str) -> Peer | None:
        return next((peer for peer in self.peers() if peer.node_id == node_id), None)

    async def stub(self, host: str, grpc_port: int) -> FakePeer:
        await trio.lowlevel.checkpoint()
        return self

    async def GetSwarmStatus(self, _: pb.SwarmStatusRequest) -> pb.SwarmStatusResponse:  # noqa: N802
        await trio.lowlevel.checkpoint()
        self.asked.append(trio.current_time())
        known = {KEY.node_id: (DIGEST,)} if self.taken else {}
        report = Report(1, State.EXCHANGE, KEPT, None, known)
        return pb.SwarmStatusResponse(training=report_message(report, pb.TrainingFigures()))

    async def GossipGradient(  # noqa: N802
        self, message: pb.GossipGradientRequest
    ) -> pb.GossipGradientResponse:
        self.sent.set()
        await trio.lowlevel.checkpoint()
        if self.hangs:
            await trio.sleep_forever()
        self.taken.append(message.signature)
        if self.fails:
            self.fails -= 1
            raise CallFailed(Code.UNAVAILABLE, "the connection is lost")
        return pb.GossipGradientResponse(accepted=True)


class Polls:
    """Counts how often the gossip calls ``hear``."""

    def __init__(self) -> None:
        self.count = 0
        self._heard = trio.Event()

    def hear(self) -> None:
        self.count += 1
        heard, self._heard = self._heard, trio.Event()
        heard.set()

    async def until(self, done: Callable[[], bool]) -> None:
        with trio.fail_after(MAX_CALL_S):
            while not done():
                await self._heard.wait()

    async def more(self, polls: int = 10) -> None:
        least = self.count + polls
        await self.until(lambda: self.count >= least)


def lacking(gossip: GradientGossip) -> Callable[[str], Wanted]:
    """Return a callback that offers the contribution to a peer that does not report it yet."""

    def wanted(node_id: str) -> Wanted:
        known = gossip.peers[node_id].report.contributions
        return {} if known else {DIGEST: contribution_message(CONTRIBUTION)}

    return wanted


def idle() -> float:
    """Say that there are no steps under way."""
    return math.inf


def gossip_with(peer: FakePeer) -> GradientGossip:
    return GradientGossip(peer, peer)  # type: ignore[arg-type]


@pytest.mark.parametrize("fails", [0, 1])
async def test_a_contribution_is_counted_once_even_if_the_answer_was_lost(
    autojump_clock: object, fails: int
) -> None:
    peer, polls = FakePeer(fails=fails), Polls()
    gossip = gossip_with(peer)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(gossip.talk, polls.hear, lacking(gossip), idle)
        await polls.until(lambda: gossip.submitted > 0)
        await polls.more()
        nursery.cancel_scope.cancel()
    assert len(peer.taken) == 1
    assert gossip.submitted == 1


async def test_a_peer_that_hangs_and_comes_back_has_taken_what_it_then_reports(
    autojump_clock: object,
) -> None:
    peer, polls = FakePeer(hangs=True), Polls()
    gossip = gossip_with(peer)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gossip.talk, polls.hear, lacking(gossip), idle)
        await peer.sent.wait()
        # The peer leaves the book, so the call to it is cancelled.
        peer.there = False
        await polls.more()
        assert not any((gossip.peers, gossip.history, gossip._sending, gossip._sent_until))
        assert gossip.submitted == 0
        # The peer turns out to have received the message.
        peer.taken.append("00")
        peer.there, peer.hangs = True, False
        await polls.until(lambda: gossip.submitted > 0)
        await polls.more()
        nursery.cancel_scope.cancel()
    assert (len(peer.taken), gossip.submitted) == (1, 1)


async def test_a_node_that_computes_for_long_asks_seldom_until_its_steps_end(
    autojump_clock: object,
) -> None:
    peer, polls = FakePeer(taken=["00"]), Polls()
    gossip = gossip_with(peer)
    left_s = 1000.0

    async with trio.open_nursery() as nursery:
        nursery.start_soon(gossip.talk, polls.hear, lacking(gossip), lambda: left_s)
        await trio.sleep(100)
        seldom = len(peer.asked)
        assert 15 <= seldom <= 21
        # The steps end earlier than expected, and nobody waits for the long pause to be over.
        left_s = math.inf
        await trio.sleep(10)
        assert len(peer.asked) - seldom >= 7
        assert peer.asked[seldom] <= 100 + 2.5
        nursery.cancel_scope.cancel()


async def test_a_contribution_that_arrives_as_training_fails_is_answered(tmp_path: Path) -> None:
    class Failing:
        replica = SimpleNamespace(round_id=3)

        async def take(self, _: pb.GossipGradientRequest) -> str:
            # Simulates a failure, such as a full disk: the rounds are dropped during this call.
            training.rounds = None
            await trio.lowlevel.checkpoint()
            return "known already"

    config = build_config({"data_dir": str(tmp_path), "training.enabled": True})
    training = TrainingService(
        key=KEY,
        settings=ChangingSettings(config),
        gossip=gossip_with(FakePeer()),
        load=lambda: pytest.fail("nothing is to be loaded"),
        folder=tmp_path,
    )
    training.rounds = Failing()  # type: ignore[assignment]
    answer = await training.take(contribution_message(CONTRIBUTION))
    assert answer == (False, "known already", 3)


class Steps(trio.abc.Instrument):
    """Counts how often a task runs."""

    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += task.name.endswith(".run")


async def test_a_node_that_does_not_train_runs_only_when_settings_change(
    autojump_clock: object, tmp_path: Path
) -> None:
    settings = ChangingSettings(build_config({"data_dir": str(tmp_path)}))
    training = TrainingService(
        key=KEY,
        settings=settings,
        gossip=gossip_with(FakePeer()),
        load=lambda: pytest.fail("nothing is to be loaded"),
        folder=tmp_path,
    )
    steps = Steps()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(training.run)
        await trio.testing.wait_all_tasks_blocked()
        trio.lowlevel.add_instrument(steps)
        await trio.sleep(10_000)
        assert steps.count == 0
        settings.change(batch_size=2)
        await trio.sleep(10_000)
        assert steps.count == 1
        trio.lowlevel.remove_instrument(steps)
        nursery.cancel_scope.cancel()


def test_a_node_that_went_back_has_left_the_newer_versions() -> None:
    history: gossip.History = {}
    for version in range(1, 12):
        gossip.remember(history, WeightsVersion(version, f"h{version}"))
    assert len(history) == gossip.MAX_VERSIONS
    gossip.remember(history, WeightsVersion(6, "other"))
    assert max(history) == 6
    assert history[6] == "other"
