"""Simulated nodes in training: real replicas, a network that loses, repeats and reorders.

Weights are only hashes: those after a round are a hash of the anchor and the set of contributions.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field, replace
from random import Random

from meshnode.domain.training.agreement import WeightsVersion
from meshnode.domain.training.contribution import set_digest
from meshnode.domain.training.replica import (
    Persisted,
    Replica,
    Report,
    State,
    Timings,
)
from meshnode.services.training.gossip import MISSES

START = WeightsVersion(0, "start")
TIMINGS = Timings(
    exchange_least_s=4.0, exchange_share=0.5, settle_s=6.0, retry_s=1.0, distrust_s=5.0
)
TICK_S = 1.0


def made(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class Ancestry:
    """What all weights of a simulation were made of."""

    def __init__(self) -> None:
        self.made_of: dict[str, frozenset[str]] = {START.model_hash: frozenset()}
        """The contributions that weights include, by model hash."""
        self.feedback_of: dict[str, str | None] = {}
        """The feedback that each contribution was made with."""
        self.maker_of: dict[str, str] = {}

    def apply(self, anchor: str, included: dict[str, str]) -> str:
        model_hash = made(f"{anchor} {set_digest(included)}")
        self.made_of[model_hash] = self.made_of[anchor] | set(included.values())
        return model_hash

    def counted_twice(self, model_hash: str) -> set[str]:
        """Feedback that is part of two contributions that these weights include."""
        used = Counter(self.feedback_of[digest] for digest in self.made_of[model_hash])
        return {feedback for feedback, count in used.items() if feedback and count > 1}


@dataclass(frozen=True)
class Success:
    """A sync that a node counted as successful: its weights, and the peers heard in that round."""

    weights: WeightsVersion
    heard: frozenset[str]


@dataclass
class SimulatedNode:
    """A replica, with a simulation of the service around it."""

    name: str
    slowness: float = 3.0
    """Seconds of its inner steps."""
    step_s: float = 0.0
    """Of one step; 0.0 for steps that can end at any time, of which it says nothing."""
    ancestry: Ancestry = field(default_factory=Ancestry)
    disk: Persisted = field(default_factory=lambda: Persisted(START, 0))
    replica: Replica | None = None
    inner_since: float = 0.0
    inner_until: float | None = None
    success: Success | None = None
    """The latest successful sync."""
    heard: dict[str, int] = field(default_factory=dict)
    """The round that each peer last reported to have contributed to."""
    missed: Counter[str] = field(default_factory=Counter)

    def start(self, now: float) -> None:
        self.replica = Replica(self.name, self.disk, now, TIMINGS)
        self.inner_until = None

    def crash(self) -> None:
        self.replica = None
        self.heard.clear()
        self.missed.clear()

    def hear(self, peer: str, report: Report, now: float) -> None:
        """Note that a peer answered with its report."""
        self.own.heard(peer, report, now)
        if peer in report.contributions or report.pending:
            self.heard[peer] = report.round_id
        self.missed.pop(peer, None)

    def miss(self, peer: str, *, gone: bool) -> None:
        """Note a missing answer. After ``MISSES`` the peer counts as gone, as in the service."""
        self.missed[peer] += 1
        if gone or self.missed[peer] >= MISSES:
            self.own.lost(peer)
            self.heard.pop(peer, None)

    def save(self) -> None:
        assert self.replica
        self.disk = self.replica.persisted()

    def work(self, now: float) -> None:
        """Do one iteration of the service's loop."""
        replica = self.replica
        assert replica
        if replica.begin(now):
            self.save()
            self.inner_since, self.inner_until = now, now + self.slowness
        if self._done_inner(now):
            digest = made(f"{self.name} {replica.round_id} {replica.kept} {now}")
            self.ancestry.feedback_of[digest] = replica.persisted().feedback
            self.ancestry.maker_of[digest] = self.name
            replica.inner_done(digest, now)
            self.save()
        included = replica.ready_to_apply(now)
        if included is not None:
            replica.applied(self.ancestry.apply(replica.kept.model_hash, included), now)
        counted, at = replica.tally.successful_syncs, replica.round_id
        kept = replica.settle(now)
        if replica.tally.successful_syncs > counted:
            assert kept
            heard = frozenset(peer for peer, round_id in self.heard.items() if round_id >= at)
            self.success = Success(kept, heard)
        if kept is not None:
            self.save()

    def _done_inner(self, now: float) -> bool:
        due = self.inner_until is not None and now >= self.inner_until
        stepping = bool(self.step_s) and (
            now == self.inner_since or (now - self.inner_since) % self.step_s != 0
        )
        hurries = not stepping and self.own.must_hurry(now, self.step_s)
        return self.own.state is State.INNER and (due or hurries)

    def report(self, now: float) -> Report:
        """What a peer is told."""
        report = self.own.report()
        if not self.step_s or self.inner_until is None or report.state is not State.INNER:
            return report
        return replace(report, left_s=max(0.0, self.inner_until - now))

    @property
    def own(self) -> Replica:
        assert self.replica
        return self.replica


class Network:
    """A network that delivers, loses, repeats and reorders messages."""

    def __init__(self, count: int, random: Random) -> None:
        self.random = random
        self.now = 0.0
        self.ancestry = Ancestry()
        self.nodes = [
            SimulatedNode(f"node-{n}", 1.0 + 2 * random.random(), ancestry=self.ancestry)
            for n in range(count)
        ]
        self.loss = 0.0
        self.cut: set[str] = set()
        self.late: list[tuple[str, tuple[str, int, str, str]]] = []
        for node in self.nodes:
            node.start(self.now)

    def reachable(self, a: SimulatedNode, b: SimulatedNode) -> bool:
        alive = a.replica is not None and b.replica is not None
        return alive and (a.name in self.cut) == (b.name in self.cut)

    def arrives(self) -> bool:
        return self.random.random() >= self.loss

    def tick(self) -> None:
        self.now += TICK_S
        alive = [node for node in self.nodes if node.replica]
        self.random.shuffle(alive)
        for node in alive:
            for peer in self.nodes:
                if peer is node:
                    continue
                if self.reachable(node, peer) and self.arrives():
                    node.hear(peer.name, peer.report(self.now), self.now)
                else:
                    node.miss(peer.name, gone=not self.reachable(node, peer))
            node.work(self.now)
            self._push(node)
            self._fetch(node)
        for name, message in self.late[:]:
            if self.random.random() < 0.5:
                self.late.remove((name, message))
                self._deliver(name, message)

    def _push(self, node: SimulatedNode) -> None:
        """Send contributions to the peers that lack them; some arrive late, some twice."""
        for peer in self.nodes:
            if peer is node or not self.reachable(node, peer):
                continue
            for origin, digest in node.own.lacking(peer.name):
                message = (origin, node.own.round_id, node.own.kept.model_hash, digest)
                if self.arrives():
                    self._deliver(peer.name, message)
                if self.random.random() < self.loss:
                    self.late.append((peer.name, message))

    def _deliver(self, name: str, message: tuple[str, int, str, str]) -> None:
        node = next(node for node in self.nodes if node.name == name)
        if node.replica:
            node.replica.contributed(*message)

    def _fetch(self, node: SimulatedNode) -> None:
        wanted = node.own.fetch(self.now)
        if wanted is None:
            return
        holders = node.own.holders(wanted)
        for peer in self.nodes:
            gives = peer.name in holders and self.reachable(node, peer) and self.arrives()
            if gives and peer.own.kept == wanted:
                node.own.adopted(wanted)
                node.save()
                return
        node.own.fetch_failed(self.now)

    def settle_down(self, ticks: int = 60) -> None:
        """Run ``ticks`` ticks without faults: all nodes are up and reach each other."""
        self.loss, self.cut = 0.0, set()
        for node in self.nodes:
            if node.replica is None:
                node.start(self.now)
        for _ in range(ticks):
            self.tick()

    def hashes(self) -> set[WeightsVersion]:
        return {node.own.kept for node in self.nodes}

    def run_until_agreed(self) -> None:
        """Run until all nodes keep the same weights, for between rounds some are one ahead."""
        for _ in range(60):
            if len(self.hashes()) == 1:
                return
            self.tick()
        raise AssertionError([(n.name, n.own.kept, n.own.state) for n in self.nodes])
