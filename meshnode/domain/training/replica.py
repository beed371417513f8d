"""One node's part in training, without tensors, clocks or messages (interface 1 and 2.3).

``states`` has the table of states. ``TRANSITIONS`` there is that table as data; every change of
state goes through ``_enter``, which refuses all others.

Terms: the *anchor* is the weights that a round starts from, the last ones this node kept. The
number of a round becomes the version of the weights that it makes; a new round gets a number above
all that this node has seen. A *sync* is the end of a round. It has failed unless all nodes that are
known to have contributed ended the round with the same weights. A node is *left out* when most
nodes have applied a set that lacks its contribution. A round number is *within reach* when it is at
most ``MAX_AHEAD`` above this node's. How long a node waits for others is in ``pace``.

Invariants:

- A node contributes to a round once, even if it crashes in between (``Persisted``).
- A set is applied only to the anchor that its contributions were made from.
- If two nodes heard each other contribute to a round and end it with different weights, at most one
  of them counts the sync as a success.
- A round number out of reach is ignored, so a liar cannot exhaust the numbers.
- A single peer cannot move a node out of a round that other peers are in.
- No value of a feedback is part of this node's weights already.
"""

from __future__ import annotations

import math

from meshnode.domain.training.agreement import WeightsVersion, winner
from meshnode.domain.training.contribution import Contributions, set_digest
from meshnode.domain.training.feedback import OwnContribution
from meshnode.domain.training.pace import PAST, Pace
from meshnode.domain.training.states import TRANSITIONS, Persisted, Report, State, Tally, Timings
from meshnode.domain.training.trust import Trust
from meshnode.domain.transitions import checked

__all__ = ["Persisted", "Replica", "Report", "State", "Tally", "Timings"]

MAX_AHEAD = 1000
"""Rounds. A node whose syncs keep failing increases its number alone, but hardly this far."""


class Replica:
    """The state of one node's training, and the latest reports of the peers that train too."""

    def __init__(
        self, node_id: str, persisted: Persisted, now: float, timings: Timings | None = None
    ) -> None:
        self.node_id = node_id
        self.timings = timings or Timings()
        self.kept = persisted.kept
        self.round_id = persisted.round_id
        self.state = State.WAITING
        self.tally = Tally()
        self.pending: WeightsVersion | None = None
        self.contributions = Contributions()
        self._used = True
        self._own = OwnContribution(persisted)
        self._reports: dict[str, Report] = {}
        self._trust = Trust(self.timings.distrust_s)
        self._pace = Pace(self.timings, now)
        self._inner_since = now
        self._settled_until = now
        self._retry_at = now
        self._fetch: WeightsVersion | None = None
        self._joined = False
        self._failed = -1
        """The round that failed here last; this node does not resume it."""

    def __repr__(self) -> str:
        """Id, state, round and anchor."""
        return (
            f"<Replica {self.node_id[:8]} {self.state.name} round={self.round_id} "
            f"kept={self.kept.version}:{self.kept.model_hash[:8]}>"
        )

    # The report to others, and the state to keep on the disk

    def report(self) -> Report:
        """This node's report to its peers."""
        known = self.contributions.known()
        return Report(self.round_id, self.state, self.kept, self.pending, known)

    def persisted(self) -> Persisted:
        """The state that must survive a crash."""
        own, begun = self._own, (self.kept, self.round_id)
        return Persisted(*begun, own.digest, own.feedback, own.restored, own.last)

    def due(self, now: float) -> float:
        """The time at which this node must act even if it hears nothing; ``inf`` if there is none.

        Until then only a call that brings news (``heard``, ``lost``, ``contributed``) can change
        what ``begin``, ``fetch`` (outside inner steps), ``ready_to_apply`` and ``settle`` return.
        """
        times: tuple[float, ...] = ()
        if self.state is State.WAITING:
            times = (self._retry_at,)
        elif self.state is State.EXCHANGE:
            left_out_until = self._deadline + self.timings.settle_s
            waits = self._pace.joiners_until, self._pace.grace_until
            times = (self._retry_at, *waits, self._deadline, left_out_until)
        elif self.state is State.SETTLING:
            times = (self._settled_until,)
        return min((time for time in times if time > now), default=math.inf)

    # Events

    def heard(self, peer: str, report: Report, now: float) -> None:
        """Note a peer's report, which is current because the peer was just asked for it."""
        if self._trust.counts(peer, now):
            self._reports[peer] = report
            self._pace.heard(peer, report, now)

    def known_peers(self) -> frozenset[str]:
        """Peers whose reports this node takes into account."""
        return frozenset(self._reports)

    def lost(self, peer: str) -> None:
        """Note that a peer is gone, or no longer trains."""
        self._reports.pop(peer, None)
        self._pace.lost(peer)

    def begin(self, now: float) -> bool:
        """Begin a round, or resume the one that a crash interrupted. True: do inner steps."""
        if self.state is not State.WAITING or self._better() is not None or self._most_end():
            return False
        if not self._joined and (self._own.digest is None or self._is_over()):
            self._next_round()
        if not self._joined:
            self.contributions = Contributions()
        self._joined = False
        self._inner_since = now
        if self._own.digest is not None:
            # The contribution was made before a crash. A second one would contradict it.
            self._exchange(now)
            return False
        self._enter(State.INNER)
        return True

    def inner_done(self, digest: str, now: float) -> None:
        """Note that the inner steps are done and the contribution ``digest`` is on the disk."""
        if self.state is not State.INNER:
            raise ValueError("no inner steps were asked for")
        self._own.made(digest, self.round_id)
        self._exchange(now)

    def give_up(self) -> None:
        """Leave the inner steps unfinished, because training was switched off."""
        if self.state is State.INNER:
            self._rest()

    def must_hurry(self, now: float, step_s: float = 0.0) -> bool:
        """Whether this node should contribute now: a quorum would wait for one more ``step_s``."""
        inner = self.state is State.INNER
        return inner and self._pace.is_late(now, step_s, self.round_id, self.kept)

    def contributed(self, node_id: str, round_id: int, anchor: str, digest: str) -> str | None:
        """Count a valid contribution of a peer. Returns None, or the reason for refusing it."""
        if round_id < self.round_id:
            return "the round is over"
        if anchor != self.kept.model_hash:
            return "the contribution was made from other weights"
        if round_id > self.round_id:
            if not self._reaches(round_id):
                return "the round is too far ahead"
            if not self._may_move_on(round_id):
                return "the round has not begun here"
            self.round_id, self.contributions = round_id, Contributions()
            # A waiting node will begin the round that the others have begun.
            self._joined = self.state is State.WAITING
        if self.state in (State.OUTER, State.SETTLING):
            return "the exchange is over"
        return (
            None if self.contributions.add(node_id, digest) else "the contribution is known already"
        )

    def lacking(self, peer: str) -> list[tuple[str, str]]:
        """The contributions to this round that a peer lacks: pairs of node id and digest."""
        report = self._reports.get(peer)
        if report is None or report.round_id > self.round_id:
            return []
        if report.kept != self.kept or report.state in (State.OUTER, State.SETTLING):
            return []
        theirs = report.contributions if report.round_id == self.round_id else {}
        return self.contributions.missing_at(theirs)

    def ready_to_apply(self, now: float) -> dict[str, str] | None:
        """The set to apply: digests by node id, in order. None if it is too early. Call once."""
        if self.state is not State.EXCHANGE:
            return None
        self._pace.note(self.contributions.included(), self.round_id, self.kept, now)
        if now < self._deadline and not self._exchange_complete(now):
            return None
        if self._left_out() and now < self._deadline + self.timings.settle_s:
            # The others applied a set without this node's contribution; fetch their weights.
            return None
        self._enter(State.OUTER)
        return self.contributions.included()

    def applied(self, model_hash: str, now: float, *, used: bool = True) -> None:
        """Note that the set was applied to a copy of the anchor; not ``used`` if it drops that."""
        if self.state is not State.OUTER:
            raise ValueError("no set was to be applied")
        self.pending, self._used = WeightsVersion(self.round_id, model_hash), used
        self._enter(State.SETTLING)
        self._settled_until = now + self.timings.settle_s

    def settle(self, now: float) -> WeightsVersion | None:
        """This node's new weights, if it keeps them.

        None while that is undecided, and when other weights won: then see ``fetch``.
        """
        if self.state is not State.SETTLING or self.pending is None:
            return None
        companions = [
            report
            for peer, report in self._reports.items()
            if report.round_id >= self.round_id and not self._came_late(peer, report)
        ]
        same = all(report.latest == self.pending for report in companions)
        # A node that has kept newer weights will not return to these.
        undecided = any(
            report.latest != self.pending and report.kept.version <= self.pending.version
            for report in companions
        )
        if undecided and now < self._settled_until:
            return None
        best = winner([self.pending, *(report.latest for report in self._reports.values())])
        self.tally.rounds += 1
        # A node that contributed but is not in the set has, or will have, other weights.
        left_out = any(self._was_left_out(*one) for one in self._reports.items())
        if same and not left_out and best == self.pending:
            self.tally.successful_syncs += 1
        else:
            self.tally.failed_syncs += 1
        if best == self.pending:
            used = self._used and self.node_id in self.contributions.included()
            return self._keep(self.pending, used=used)
        if best == self.kept:
            self._failed = self.round_id
            self._rest()
        elif best is not None:
            self._want(best)
        return None

    def fetch(self, now: float) -> WeightsVersion | None:
        """The weights to fetch from a peer because most nodes have them; None if there are none."""
        free = self.state in (State.WAITING, State.INNER, State.EXCHANGE)
        better = self._better() if free and now >= self._retry_at else None
        if better is not None:
            if self.state is State.EXCHANGE:
                # The round ended without this node.
                self.tally.rounds += 1
                self.tally.failed_syncs += 1
            self._want(better)
        return self._fetch if self.state is State.FETCHING else None

    def holders(self, weights: WeightsVersion) -> list[str]:
        """Peers that report these weights as kept."""
        return [peer for peer, report in self._reports.items() if report.kept == weights]

    def adopted(self, weights: WeightsVersion) -> None:
        """Note that the weights were fetched, verified and saved."""
        if self.state is not State.FETCHING or weights != self._fetch:
            raise ValueError("these weights were not asked for")
        self.tally.adopted += 1
        self._trust.fetched()
        self._own.fetched()
        self._keep(weights, used=True)
        if self.round_id > weights.version + MAX_AHEAD:
            # While alone, this node increased its number too far for the others to reach.
            self.round_id = weights.version

    def fetch_failed(self, now: float) -> None:
        """Note that no holder delivered the weights.

        The reports of a holder that fails again and again are ignored for a while.
        """
        for peer in self.holders(self._fetch) if self._fetch else ():
            if self._trust.failed(peer, now):
                self.lost(peer)
        self._rest()
        self._retry_at = now + self.timings.retry_s

    # Details

    def _enter(self, state: State) -> None:
        self.state = checked(TRANSITIONS, self.state, state)

    def _exchange(self, now: float) -> None:
        self._enter(State.EXCHANGE)
        if self._own.digest is not None:
            self.contributions.add(self.node_id, self._own.digest)
        self._pace.begin_exchange(now, now - self._inner_since)
        self._pace.note(self.contributions.included(), self.round_id, self.kept, now)

    @property
    def _deadline(self) -> float:
        return self._pace.deadline(self.round_id, self.kept)

    def _next_round(self) -> None:
        same = [report for report in self._reports.values() if report.kept == self.kept]
        under_way = [r.round_id for r in same if r.state in (State.INNER, State.EXCHANGE)]
        seen = [r.round_id for r in self._reports.values() if self._reaches(r.round_id)]
        join = max(filter(self._reaches, under_way), default=0)
        fresh = max([self.round_id, self.kept.version, *seen]) + 1
        # A crash in the middle of the steps leaves the round open to this node.
        again = self.round_id > max(self._own.last, self.kept.version, self._failed)
        self.round_id = join if join >= self.round_id + (not again) else fresh
        self._own.finish(used=False)

    def _is_over(self) -> bool:
        """Whether the round this node contributed to has ended, here or for all others."""
        others = [r for r in self._reports.values() if r.kept == self.kept]
        ended = bool(others) and all(report.round_id > self.round_id for report in others)
        return ended or self.round_id <= self.kept.version or self._failed == self.round_id

    def _reaches(self, round_id: int) -> bool:
        return round_id <= max(self.round_id, self.kept.version) + MAX_AHEAD

    def _may_move_on(self, round_id: int) -> bool:
        """Whether this node may join a later round.

        It may if it has not contributed to its own round and waits, or takes inner steps while
        none of the others is in its round or more of them are in the later one.
        """
        if self._own.digest is not None or self.state not in (State.WAITING, State.INNER):
            return False
        if self.state is State.WAITING:
            return True
        numbers = [r.round_id for r in self._reports.values() if r.kept == self.kept]
        others = numbers.count(self.round_id)
        return not others or numbers.count(round_id) > others

    def _exchange_complete(self, now: float) -> bool:
        own, grace_over = set_digest(self.contributions.included()), now >= self._pace.grace_until
        for peer, report in self._reports.items():
            if report.kept != self.kept:
                # A peer that is settling on the same weights, or fetching them, joins in a moment.
                joins = report.pending == self.kept and not grace_over
                if joins or now < self._pace.joiners_until:
                    return False
                continue
            past = report.round_id == self.round_id and report.state in PAST
            if not past and grace_over:
                continue
            if not past or not self.contributions.has(peer):
                return False
            one = {n: d[0] for n, d in report.contributions.items() if len(d) == 1}
            if set_digest(one) != own:
                return False
        return True

    def _better(self) -> WeightsVersion | None:
        """The weights that most nodes have, if this one has others."""
        best = winner([self.kept, *(report.latest for report in self._reports.values())])
        # Weights that no peer has kept yet cannot be fetched.
        return best if best != self.kept and best is not None and self.holders(best) else None

    def _most_end(self) -> bool:
        """Whether this node has not contributed, and most with its anchor soon replace theirs."""
        states = [r.state for r in self._reports.values() if r.kept == self.kept]
        ending = sum(state in (State.OUTER, State.SETTLING) for state in states)
        return self._own.digest is None and ending > len(states) - ending + 1

    def _left_out(self) -> bool:
        """Whether the weights that most nodes keep next lack this node's contribution."""
        best = winner([self.kept, *(report.latest for report in self._reports.values())])
        makers = [report for report in self._reports.values() if report.pending == best]
        return bool(makers) and all(
            report.round_id == self.round_id and self.node_id not in report.contributions
            for report in makers
        )

    def _came_late(self, peer: str, report: Report) -> bool:
        """Whether a peer has yet to apply a set, and is not in the one that was applied here."""
        before = report.state in (State.WAITING, State.INNER, State.EXCHANGE)
        return before and report.kept == self.kept and not self.contributions.has(peer)

    def _was_left_out(self, peer: str, report: Report) -> bool:
        """Whether a peer contributed to this round but is not in the set that was applied."""
        said = report.round_id == self.round_id and peer in report.contributions
        return said and self._came_late(peer, report)

    def _want(self, weights: WeightsVersion) -> None:
        self._joined = False
        self._enter(State.FETCHING)
        self._fetch, self.pending = weights, None

    def _rest(self) -> None:
        self._joined = False
        self._enter(State.WAITING)
        self._fetch, self.pending = None, None

    def _keep(self, weights: WeightsVersion, *, used: bool) -> WeightsVersion:
        self._rest()
        self._own.finish(used=used)
        self.kept = weights
        self.round_id = max(self.round_id, weights.version)
        self.contributions = Contributions()
        return weights
