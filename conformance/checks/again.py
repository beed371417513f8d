"""A check that runs once more: in another state, for another account, with another part."""

import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from heapq import heappop, heappush

from conformance.catalogue import Level, load
from conformance.context import Context
from conformance.findings import Skipped
from conformance.httpwire import Unanswered
from conformance.registry import Pauses, registered
from conformance.target import Target
from conformance.verdict import Finding, Ruling


def run_again(
    context: Context, name: str, where: str, target: Target | None = None
) -> list[Finding]:
    """Run the check of this name; keep what it finds wrong, with `where` behind it, and return it.

    The `target` is that of the run, or the same one as another check has to see it.
    """
    wrong = list[Finding]()
    for pause_s in _again(context, name, where, target or context.target, wrong):
        time.sleep(pause_s)
    return wrong


def run_all_again(context: Context, names: Iterable[str], where: str) -> None:
    """Run checks that only read, as `run_again` does, each while the others wait."""
    begun = (_again(context, name, where, context.target, []) for name in names)
    due = [(0.0, number, steps) for number, steps in enumerate(begun)]
    while due:
        due_s, number, steps = heappop(due)
        time.sleep(max(0.0, due_s - time.monotonic()))
        pause_s = next(steps, None)
        if pause_s is not None:
            heappush(due, (time.monotonic() + pause_s, number, steps))


def _again(context: Context, name: str, where: str, target: Target, wrong: list[Finding]) -> Pauses:
    """Run a check, and add to what is `wrong`."""
    check = registered()[name]
    # What needs the suite's own node runs in whichever profile.
    asked = check.profiles & target.profiles or "callback" in check.needs
    if not asked or not target.allows(check.effect):
        return
    beside = context.beside(name, check.proves, target)
    with suppress(Skipped, Unanswered):
        yield from check.begin(beside)
    wrong += [
        replace(finding, message=f"{finding.message}, {where}")
        for finding in beside.findings
        if finding.ruling is Ruling.FAILS
    ]
    context.findings += wrong


def told_of(wrong: list[Finding]) -> str:
    """Return what is wrong of the level MUST, in a line."""
    must = [finding for finding in wrong if load()[finding.requirement].level is Level.MUST]
    return "; ".join(f"{finding.requirement}: {finding.message}" for finding in must)
