"""The table of a trial, and what the node failed at."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, median

from tools.siege.attack import Attack
from tools.siege.phase import Phase
from tools.siege.trial import RECOVERS_WITHIN_S, Outcome, Round

KEPT = {1: 0.8, 2: 0.5}
"""The share of their undisturbed rate that honest clients must keep, by number of addresses."""
MEMORY = 1_500_000_000
KEPT_WAITING = 0.2
"""Processors that attackers may wait for in vain: they come last, behind the honest clients."""
UNSTEADY = 0.25
"""If undisturbed phases differ by more, a verdict about rates is not worth much."""

ROWS: tuple[tuple[str, Callable[[Phase], float], Callable[[Iterable[float]], float], str], ...] = (
    ("honest requests a second", lambda phase: phase.requests, median, ".2f"),
    ("  in the time left, at the usual speed", lambda phase: phase.fair_requests, median, ".2f"),
    ("tokens a second, taken likewise", lambda phase: phase.fair_tokens, median, ".1f"),
    ("ms of its processor for an honest token", lambda phase: _per_token(phase), median, ".2f"),
    ("worst wait of an honest request, s", lambda phase: phase.worst_wait_s, max, ".1f"),
    ("honest requests refused or broken", lambda phase: phase.failed, sum, ".0f"),
    ("honest requests with a wrong answer", lambda phase: phase.wrong, sum, ".0f"),
    ("/health p99, ms", lambda phase: phase.health_p99_s * 1000, median, ".0f"),
    ("peak memory, MB", lambda phase: phase.peak_memory / 1e6, max, ".0f"),
    ("descriptors", lambda phase: phase.descriptors, max, ".0f"),
    ("processors used by the node", lambda phase: phase.node_cores, median, ".2f"),
    ("  of these by its event loop", lambda phase: phase.loop_cores, median, ".2f"),
    ("processors that others took from it", lambda phase: phase.taken_cores, median, ".2f"),
    ("speed of its processors", lambda phase: phase.speed, median, ".2f"),
    ("tokens a second for others", lambda phase: phase.foreign_tokens, median, ".0f"),
    ("processors used by the attackers", lambda phase: phase.attacker_cores, median, ".2f"),
    ("  and those they waited for", lambda phase: phase.attacker_waits, median, ".2f"),
)
"""What a row shows of a phase, and how it sums several phases up."""


def _per_token(phase: Phase) -> float:
    return 1000 * phase.node_cores / phase.tokens if phase.tokens else math.nan


def kept(outcome: Outcome) -> float:
    """The smaller of the shares of requests and of tokens that were kept: medians of the rounds."""
    return min(
        median(_shares(outcome.rounds, lambda phase: phase.fair_requests)),
        median(_shares(outcome.rounds, lambda phase: phase.fair_tokens)),
    )


def _shares(rounds: Sequence[Round], rate: Callable[[Phase], float]) -> list[float]:
    """For each round, the rate under the attack as a share of the mean of those around it."""
    undisturbed = [fmean((rate(each.before), rate(each.after))) for each in rounds]
    return [
        rate(each.during) / usual if usual else 0.0
        for each, usual in zip(rounds, undisturbed, strict=True)
    ]


def remark(outcome: Outcome) -> str:
    """What to think of a verdict about rates; empty if machine and attack were as they should."""
    said = []
    rates = [phase.fair_requests for phase in _undisturbed([outcome])]
    spread = (max(rates) - min(rates)) / (median(rates) or math.inf)
    if spread > UNSTEADY:
        said.append(f"undisturbed rates differed by {spread:.0%}")
    used = median(each.during.attacker_cores for each in outcome.rounds)
    missed = median(each.during.attacker_waits for each in outcome.rounds)
    if missed > max(used, KEPT_WAITING):
        said.append(f"the attackers had {used / (used + missed):.0%} of the time that they wanted")
    return f" ({'; '.join(said)})" if said else ""


def faults(outcome: Outcome) -> list[str]:
    """What the node failed at; empty if it passed."""
    found = []
    if outcome.attack_ended:
        found.append(f"the attack ended: {outcome.attack_ended}")
    if outcome.ended:
        found.append(f"the node ended with {outcome.ended}")
    limit = KEPT[outcome.sources]
    if kept(outcome) < limit:
        found.append(f"honest clients kept {kept(outcome):.0%}, not {limit:.0%}")
    if wrong := sum(each.during.wrong + each.after.wrong for each in outcome.rounds):
        found.append(f"{wrong} answers were wrong")
    memory = max(each.during.peak_memory for each in outcome.rounds)
    if memory >= MEMORY:
        found.append(f"memory reached {memory / 1e6:.0f} MB")
    if max(each.recovered_s for each in outcome.rounds) > RECOVERS_WITHIN_S:
        found.append(f"not as before within {RECOVERS_WITHIN_S:.0f} s")
    if not outcome.charged_as_answered:
        found.append("accounts were not charged what the answers said")
    return found


def table(name: str, attack: Attack, outcomes: Sequence[Outcome]) -> str:
    """The figures of a trial, for people."""
    where = f"point {attack.point}" if attack.point else "not on the list"
    columns = {"undisturbed": _undisturbed(outcomes)}
    for outcome in outcomes:
        title = "1 address" if outcome.sources == 1 else f"{outcome.sources} addresses"
        columns[title] = [each.during for each in outcome.rounds]
    lines = [
        f"{name} ({where}): {attack.description}",
        f"  {'':42}" + "".join(f"{title:>13}" for title in columns),
    ]
    for label, figure, sum_up, form in ROWS:
        values = (sum_up([figure(phase) for phase in phases]) for phases in columns.values())
        lines.append(f"  {label:42}" + "".join(f"{value:>13{form}}" for value in values))
    for outcome in outcomes:
        shares = _shares(outcome.rounds, lambda phase: phase.fair_requests)
        rounds = ", ".join(
            f"{share:.0%} and {_back(each)}"
            for share, each in zip(shares, outcome.rounds, strict=True)
        )
        lines.append(f"  addresses: {outcome.sources}; kept in each round: {rounds}")
        found = faults(outcome)
        lines.append(f"  {'FAILED: ' + '; '.join(found) if found else 'passed'}")
        if found and outcome.log:
            lines += ["  " + line for line in outcome.log.splitlines()]
    return "\n".join(lines)


def _back(each: Round) -> str:
    took = each.recovered_s
    return "not as before" if math.isinf(took) else f"as before after {took:.1f} s"


def _undisturbed(outcomes: Sequence[Outcome]) -> list[Phase]:
    phases = (
        phase
        for outcome in outcomes
        for each in outcome.rounds
        for phase in (each.before, each.after)
    )
    # A phase behind one attack is the one before the next.
    return list({id(phase): phase for phase in phases}.values())
