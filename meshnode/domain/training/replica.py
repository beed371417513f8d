"""One node's way through the rounds, without tensors, clocks or messages (document, 1 and 2.3).

========  ================================================  ========  ==============================
state     event                                             next      what the service does
========  ================================================  ========  ==============================
WAITING   ``begin``: own weights are those of most, and     INNER     inner steps from the anchor
          most are not about to have new ones
WAITING   ``begin`` after a crash in EXCHANGE               EXCHANGE  sends the same once more
INNER     ``inner_done``; stragglers when they must hurry   EXCHANGE  files, then sends its own
INNER     ``give_up``: training was switched off            WAITING
EXCHANGE  all peers have the same set, or the deadline,     OUTER     applies the set to a copy
          and the node is not left out
OUTER     ``applied``                                       SETTLING  reports the new weights
SETTLING  all peers report the same: success                WAITING   keeps them
SETTLING  the deadline; most have the same: failed sync     WAITING   keeps them
SETTLING  the deadline; most have the anchor still: failed  WAITING   drops them
SETTLING  the deadline; most have others: failed sync       FETCHING  asks a peer that has them
WAITING,  most peers have other weights                     FETCHING  asks a peer that has them
INNER,
EXCHANGE
FETCHING  ``adopted``                                       WAITING   replaces its anchor
FETCHING  ``fetch_failed``                                  WAITING   tries again later
========  ================================================  ========  ==============================

Terms: the *anchor* is what a round starts from: weights that were kept. A round's number becomes
the version of what it makes; a new one is above all that were seen. A *sync* is the end of a round;
it failed if not all that contributed, as far as was heard, ended it with the same weights. A node
is *left out* when most have applied a set without its contribution. A number is *within reach* when
it is at most ``MOST_AHEAD`` above the own.

Invariants: a node contributes to a round once, also across a crash (``Persisted``); a set is
applied only to the anchor that its contributions were made from; of nodes that hear each other
contribute to a round, two with different weights of its version never both count a success; a
number out of reach moves nothing, so no liar uses the numbers up; a lone peer moves nobody out of a
round that others are in.
"""

from __future__ import annotations

from meshnode.domain.training.agreement import Weights, winner
from meshnode.domain.training.contribution import Contributions, set_digest
from meshnode.domain.training.states import Persisted, Report, State, Tally, Timings

__all__ = ["Persisted", "Replica", "Report", "State", "Tally", "Timings"]

MOST_AHEAD = 1000
"""Rounds. Nodes that fail and begin again count on alone, but hardly so far."""
MOST_FAILURES = 3
"""Fetches of which nothing came, in a row, after which a holder is not believed for a while. One is
no lie: the holder may have gone on to the next round meanwhile."""


class Replica:
    """The state of one node's training. ``peers`` are those that train now, as reported lately."""

    def __init__(
        self, node_id: str, persisted: Persisted, now: float, timings: Timings | None = None
    ) -> None:
        self.node_id = node_id
        self.timings = timings or Timings()
        self.kept = persisted.kept
        self.round_id = persisted.round_id
        self.state = State.WAITING
        self.tally = Tally()
        self.pending: Weights | None = None
        self.contributions = Contributions()
        self._contributed = persisted.contributed
        self._reports: dict[str, Report] = {}
        self._distrusted: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self._inner_since = now
        self._inner_s = 0.0
        self._deadline = now
        self._joiners_until = now
        self._retry_at = now
        self._behind_since = now
        self._fetch: Weights | None = None
        self._joined = False
        self._failed = -1
        """The round that failed here last: it is not gone on with."""

    # What others see, and what must be on the disk

    def report(self) -> Report:
        """What this node says of itself."""
        known = self.contributions.known()
        return Report(self.round_id, self.state, self.kept, self.pending, known)

    def persisted(self) -> Persisted:
        """What a restart needs."""
        return Persisted(self.kept, self.round_id, self._contributed)

    # What happens

    def heard(self, peer: str, report: Report, now: float) -> None:
        """A peer's report. It is asked for, so it is as new as the answer."""
        if now >= self._distrusted.get(peer, now):
            self._distrusted.pop(peer, None)
            self._reports[peer] = report

    def known_peers(self) -> frozenset[str]:
        """Peers whose reports count now."""
        return frozenset(self._reports)

    def lost(self, peer: str) -> None:
        """A peer is gone, or trains no more."""
        self._reports.pop(peer, None)

    def begin(self, now: float) -> bool:
        """Begin a round, or go on with the one that a crash interrupted. True: do inner steps."""
        if self.state is not State.WAITING or self._better() is not None or self._most_end():
            return False
        if not self._joined and (self._contributed is None or self._is_over()):
            self._next_round()
        if not self._joined:
            self.contributions = Contributions()
        self._joined = False
        self._inner_since = now
        if self._contributed is not None:
            # Made before a crash: another one for the same round would be a lie.
            self._exchange(now)
            return False
        self.state = State.INNER
        return True

    def inner_done(self, digest: str, now: float) -> None:
        """The inner steps are done, and the contribution ``digest`` is on the disk."""
        if self.state is not State.INNER:
            raise ValueError("no inner steps were asked for")
        self._contributed = digest
        self._inner_s = now - self._inner_since
        self._exchange(now)

    def give_up(self) -> None:
        """The inner steps will not be finished: training was switched off."""
        if self.state is State.INNER:
            self._rest()

    def must_hurry(self, now: float) -> bool:
        """Whether the others wait: a straggler contributes what it has."""
        if self.state is not State.INNER or not any(map(self._is_ahead, self._reports.values())):
            self._behind_since = now
        return now - self._behind_since >= self.timings.exchange_least_s / 2

    def contributed(self, node_id: str, round_id: int, anchor: str, digest: str) -> str | None:
        """A checked contribution of a peer arrived. None: taken; else the reason why not."""
        if round_id < self.round_id:
            return "the round is over"
        if anchor != self.kept.model_hash:
            return "made from other weights"
        if round_id > self.round_id:
            if not self._reaches(round_id):
                return "the round is too far ahead"
            if not self._may_move_on(round_id):
                return "the round has not begun here"
            self.round_id, self.contributions = round_id, Contributions()
            # Where it waits, the round that others have begun is the one that it begins next.
            self._joined = self.state is State.WAITING
        if self.state in (State.OUTER, State.SETTLING):
            return "the exchange is over"
        return None if self.contributions.add(node_id, digest) else "known already"

    def lacking(self, peer: str) -> list[tuple[str, str]]:
        """Contributions to send to a peer: those of this round that it lacks, node and digest."""
        report = self._reports.get(peer)
        if report is None or report.round_id > self.round_id:
            return []
        if report.kept != self.kept or report.state in (State.OUTER, State.SETTLING):
            return []
        theirs = report.contributions if report.round_id == self.round_id else {}
        return self.contributions.missing_at(theirs)

    def ready_to_apply(self, now: float) -> dict[str, str] | None:
        """The set to apply now, by node id, in order; None if it is not time. Call once."""
        if self.state is not State.EXCHANGE:
            return None
        if now < self._deadline and not self._exchange_complete(now):
            return None
        if self._left_out() and now < self._deadline + self.timings.settle_s:
            # The others have applied a set without the own contribution: theirs is fetched.
            return None
        self.state = State.OUTER
        return self.contributions.included()

    def applied(self, model_hash: str, now: float) -> None:
        """The set was applied to a copy of the anchor; the anchor itself still stands."""
        if self.state is not State.OUTER:
            raise ValueError("no set was to be applied")
        self.pending = Weights(self.round_id, model_hash)
        self.state = State.SETTLING
        self._deadline = now + self.timings.settle_s

    def settle(self, now: float) -> Weights | None:
        """What to keep: own new weights. None: not yet, or other weights won (see ``fetch``)."""
        if self.state is not State.SETTLING or self.pending is None:
            return None
        companions = [
            report
            for peer, report in self._reports.items()
            if report.round_id >= self.round_id and not self._came_late(peer, report)
        ]
        same = all(report.latest == self.pending for report in companions)
        # Who has kept something newer will not come back to this.
        undecided = any(
            report.latest != self.pending and report.kept.version <= self.pending.version
            for report in companions
        )
        if undecided and now < self._deadline:
            return None
        best = winner([self.pending, *(report.latest for report in self._reports.values())])
        self.tally.rounds += 1
        # Who contributed and is not in the set has, or will have, other weights.
        left_out = any(self._was_left_out(*one) for one in self._reports.items())
        if same and not left_out and best == self.pending:
            self.tally.successful_syncs += 1
        else:
            self.tally.failed_syncs += 1
        if best == self.pending:
            return self._keep(self.pending)
        if best == self.kept:
            self._failed = self.round_id
            self._rest()
        elif best is not None:
            self._want(best)
        return None

    def fetch(self, now: float) -> Weights | None:
        """Weights to get from a peer, because most nodes have them."""
        free = self.state in (State.WAITING, State.INNER, State.EXCHANGE)
        better = self._better() if free and now >= self._retry_at else None
        if better is not None:
            if self.state is State.EXCHANGE:
                # A round that ended without this node.
                self.tally.rounds += 1
                self.tally.failed_syncs += 1
            self._want(better)
        return self._fetch if self.state is State.FETCHING else None

    def holders(self, weights: Weights) -> list[str]:
        """Peers that say they have these weights."""
        return [peer for peer, report in self._reports.items() if report.kept == weights]

    def adopted(self, weights: Weights) -> None:
        """The weights were fetched, checked and are on the disk."""
        if self.state is not State.FETCHING or weights != self._fetch:
            raise ValueError("these weights were not asked for")
        self.tally.adopted += 1
        self._failures.clear()
        self._keep(weights)
        if self.round_id > weights.version + MOST_AHEAD:
            # Left alone it counted far; the others would never reach its numbers.
            self.round_id = weights.version

    def fetch_failed(self, now: float) -> None:
        """Nobody gave what was asked for: who fails again and again is not heard for a while.

        Else one that names weights which nobody can have would keep this node from training.
        """
        for peer in self.holders(self._fetch) if self._fetch else ():
            self._failures[peer] = self._failures.get(peer, 0) + 1
            if self._failures[peer] >= MOST_FAILURES:
                del self._reports[peer], self._failures[peer]
                self._distrusted[peer] = now + self.timings.distrust_s
        self._rest()
        self._retry_at = now + self.timings.retry_s

    # Inside

    def _exchange(self, now: float) -> None:
        self.state = State.EXCHANGE
        if self._contributed is not None:
            self.contributions.add(self.node_id, self._contributed)
        wait = max(self.timings.exchange_least_s, self.timings.exchange_share * self._inner_s)
        self._deadline = now + wait
        self._joiners_until = now + self.timings.exchange_least_s

    def _next_round(self) -> None:
        under_way = [
            report.round_id
            for report in self._reports.values()
            if report.kept == self.kept and report.state in (State.INNER, State.EXCHANGE)
        ]
        seen = [r.round_id for r in self._reports.values() if self._reaches(r.round_id)]
        join = max(filter(self._reaches, under_way), default=0)
        fresh = max([self.round_id, self.kept.version, *seen]) + 1
        self.round_id = join if join > self.round_id else fresh
        self._contributed = None

    def _is_over(self) -> bool:
        """Whether the round that was contributed to has ended, here or for all others."""
        others = [r for r in self._reports.values() if r.kept == self.kept]
        ended = bool(others) and all(report.round_id > self.round_id for report in others)
        return ended or self.round_id <= self.kept.version or self._failed == self.round_id

    def _reaches(self, round_id: int) -> bool:
        return round_id <= max(self.round_id, self.kept.version) + MOST_AHEAD

    def _may_move_on(self, round_id: int) -> bool:
        """Whether a later round can be joined: nothing was said in this one, most are not in it."""
        if self._contributed is not None or self.state not in (State.WAITING, State.INNER):
            return False
        if self.state is State.WAITING:
            return True
        numbers = [r.round_id for r in self._reports.values() if r.kept == self.kept]
        others = numbers.count(self.round_id)
        return not others or numbers.count(round_id) > others

    def _is_ahead(self, report: Report) -> bool:
        past = report.state in (State.EXCHANGE, State.OUTER, State.SETTLING)
        return past and report.round_id == self.round_id and report.kept == self.kept

    def _exchange_complete(self, now: float) -> bool:
        own = set_digest(self.contributions.included())
        for peer, report in self._reports.items():
            if report.kept != self.kept:
                # One that settles for the same weights, or fetches them, is here in a moment.
                if report.pending == self.kept or now < self._joiners_until:
                    return False
                continue
            if report.round_id != self.round_id or not self.contributions.has(peer):
                return False
            if report.state in (State.WAITING, State.INNER):
                return False
            one = {n: d[0] for n, d in report.contributions.items() if len(d) == 1}
            if set_digest(one) != own:
                return False
        return True

    def _better(self) -> Weights | None:
        """What most nodes have, if it is not what this one has."""
        best = winner([self.kept, *(report.latest for report in self._reports.values())])
        # What nobody has kept yet cannot be fetched.
        return best if best != self.kept and best is not None and self.holders(best) else None

    def _most_end(self) -> bool:
        """Whether most of those with the same anchor are about to have new weights."""
        states = [r.state for r in self._reports.values() if r.kept == self.kept]
        ending = sum(state in (State.OUTER, State.SETTLING) for state in states)
        return self._contributed is None and ending > len(states) - ending + 1

    def _left_out(self) -> bool:
        """Whether what most have next was made without the own contribution."""
        best = winner([self.kept, *(report.latest for report in self._reports.values())])
        makers = [report for report in self._reports.values() if report.pending == best]
        return bool(makers) and all(
            report.round_id == self.round_id and self.node_id not in report.contributions
            for report in makers
        )

    def _came_late(self, peer: str, report: Report) -> bool:
        """Whether a peer still in the exchange is not part of the set that was applied here."""
        before = report.state in (State.WAITING, State.INNER, State.EXCHANGE)
        return before and report.kept == self.kept and not self.contributions.has(peer)

    def _was_left_out(self, peer: str, report: Report) -> bool:
        """Whether a peer has contributed to this round, and not to the set that was applied."""
        said = report.round_id == self.round_id and peer in report.contributions
        return said and self._came_late(peer, report)

    def _want(self, weights: Weights) -> None:
        self._joined = False
        self.state, self._fetch, self.pending = State.FETCHING, weights, None

    def _rest(self) -> None:
        self._joined = False
        self.state, self._fetch, self.pending = State.WAITING, None, None

    def _keep(self, weights: Weights) -> Weights:
        self._rest()
        self.kept = weights
        self.round_id = max(self.round_id, weights.version)
        self._contributed = None
        self.contributions = Contributions()
        return weights
