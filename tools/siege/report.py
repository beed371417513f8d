"""The table of a trial, and what the node failed at."""

from __future__ import annotations

import math
from collections.abc import Callable

from tools.siege.attack import Attack
from tools.siege.trial import RECOVERS_WITHIN_S, Outcome, Phase

KEPT = {1: 0.8, 2: 0.5}
"""The share of their undisturbed rate that honest clients must keep, by number of addresses."""
MEMORY = 1_500_000_000
BUSY_CORES = 0.2
"""Processors that other programs use, above which rates before and during cannot be compared."""


def per_processor(phase: Phase) -> float:
    """Honest requests for each second that a processor spent on the node.

    When other programs take processors from the node, this figure changes less than the others.
    """
    return phase.requests / phase.node_cores if phase.node_cores else 0.0


ROWS: tuple[tuple[str, Callable[[Phase], float], str], ...] = (
    ("honest requests a second", lambda phase: phase.requests, ".2f"),
    ("tokens a second", lambda phase: phase.tokens, ".1f"),
    ("worst wait of an honest request, s", lambda phase: phase.worst_wait_s, ".1f"),
    ("honest requests refused or broken", lambda phase: phase.failed, ".0f"),
    ("honest requests with a wrong answer", lambda phase: phase.wrong, ".0f"),
    ("/health p99, ms", lambda phase: phase.health_p99_s * 1000, ".0f"),
    ("peak memory, MB", lambda phase: phase.peak_memory / 1e6, ".0f"),
    ("descriptors", lambda phase: phase.descriptors, ".0f"),
    ("processors used by the node", lambda phase: phase.node_cores, ".2f"),
    ("  of these by its event loop", lambda phase: phase.loop_cores, ".2f"),
    ("honest requests a second of its processor", per_processor, ".1f"),
    ("tokens a second for others", lambda phase: phase.foreign_tokens, ".0f"),
    ("processors used by the attackers", lambda phase: phase.attacker_cores, ".2f"),
    ("processors used by others", lambda phase: phase.other_cores, ".2f"),
)
SHARED = (
    "honest requests a second",
    "tokens a second",
    "honest requests a second of its processor",
)
"""Rows that are also shown as shares of what they were before."""


def kept(outcome: Outcome) -> float:
    """The smaller of the shares of requests and of tokens that were kept under the attack."""
    before, during = outcome.before, outcome.during
    if not before.tokens:
        return 0.0
    return min(during.requests / before.requests, during.tokens / before.tokens)


def remark(outcome: Outcome) -> str:
    """What to think of a verdict about rates; empty if the machine was quiet."""
    others = max(outcome.before.other_cores, outcome.during.other_cores)
    if others <= BUSY_CORES:
        return ""
    before, during = per_processor(outcome.before), per_processor(outcome.during)
    share = during / before if before else 0.0
    return f" (void: others used {others:.1f} processors; {share:.0%} by the node's processor)"


def faults(outcome: Outcome) -> list[str]:
    """What the node failed at; empty if it passed."""
    during = outcome.during
    found = []
    if outcome.attack_ended:
        found.append(f"the attack ended: {outcome.attack_ended}")
    if outcome.ended:
        found.append(f"the node ended with {outcome.ended}")
    limit = KEPT[outcome.sources]
    if kept(outcome) < limit:
        found.append(f"honest clients kept {kept(outcome):.0%}, not {limit:.0%}")
    if wrong := during.wrong + outcome.after.wrong:
        found.append(f"{wrong} answers were wrong")
    if during.peak_memory >= MEMORY:
        found.append(f"memory reached {during.peak_memory / 1e6:.0f} MB")
    if outcome.recovered_s > RECOVERS_WITHIN_S:
        found.append(f"not as before within {RECOVERS_WITHIN_S:.0f} s")
    if not outcome.charged_as_answered:
        found.append("accounts were not charged what the answers said")
    return found


def table(name: str, attack: Attack, outcome: Outcome) -> str:
    """The figures of a trial, for people."""
    phases = (outcome.before, outcome.during, outcome.after)
    where = f"point {attack.point}" if attack.point else "not on the list"
    addresses = "one address" if outcome.sources == 1 else f"{outcome.sources} addresses"
    lines = [
        f"{name} ({where}), from {addresses}: {attack.description}",
        f"  {'':42}{'before':>9}{'during':>9}{'after':>9}",
    ]
    for label, figure, form in ROWS:
        values = [figure(phase) for phase in phases]
        line = f"  {label:42}" + "".join(f"{value:>9{form}}" for value in values)
        if label in SHARED and values[0]:
            line += f"   kept {values[1] / values[0]:.0%}, then {values[2] / values[0]:.0%}"
        lines.append(line)
    took = outcome.recovered_s
    back = "not as before" if math.isinf(took) else f"as before after {took:.1f} s"
    found = faults(outcome)
    lines.append(f"  {back}; {'FAILED: ' + '; '.join(found) if found else 'passed'}")
    if found and outcome.log:
        lines += ["  " + line for line in outcome.log.splitlines()]
    return "\n".join(lines)
