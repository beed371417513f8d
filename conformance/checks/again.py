"""A check that runs once more: in another state, for another account, with another part."""

from contextlib import suppress
from dataclasses import replace

from conformance.catalogue import Level, load
from conformance.context import Context
from conformance.findings import Skipped
from conformance.httpwire import Unanswered
from conformance.registry import registered
from conformance.target import Target
from conformance.verdict import Finding, Ruling


def run_again(
    context: Context, name: str, where: str, target: Target | None = None
) -> list[Finding]:
    """Run the check of this name; keep what it finds wrong, with `where` behind it, and return it.

    The `target` is that of the run, or the same one as another check has to see it.
    """
    check, seen = registered()[name], target or context.target
    # What needs the suite's own node runs in whichever profile.
    asked = check.profiles & seen.profiles or "callback" in check.needs
    if not asked or not seen.allows(check.effect):
        return []
    beside = context.beside(name, check.proves, seen)
    with suppress(Skipped, Unanswered):
        check.run(beside)
    wrong = [
        replace(finding, message=f"{finding.message}, {where}")
        for finding in beside.findings
        if finding.ruling is Ruling.FAILS
    ]
    context.findings += wrong
    return wrong


def told_of(wrong: list[Finding]) -> str:
    """Return what is wrong of the level MUST, in a line."""
    must = [finding for finding in wrong if load()[finding.requirement].level is Level.MUST]
    return "; ".join(f"{finding.requirement}: {finding.message}" for finding in must)
