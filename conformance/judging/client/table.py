"""The faults of the toy client, judged one after the other, as a table by kind.

Caught means that a run of the check violates the requirement that the fault is about, whatever its
level: what interface 8 only recommends is advice, and is reported as such.
"""

import time
from collections.abc import Iterable

from conformance.catalogue import load
from conformance.editions import DRAFT
from conformance.ended import Run
from conformance.judging.client.faults import Fault, fields, rules
from conformance.judging.client.judge import judge
from conformance.judging.client.manners import Manners
from conformance.judging.derived import fault as derived
from conformance.judging.derived.judge import BROKE, CAUGHT, OPEN, PASSED, Ended
from conformance.judging.derived.table import NodeTable
from conformance.verdict import Standing

NAME = "the small client"


def every_fault() -> list[Fault]:
    """Return all faults of a client: the sentences, then each field of each request."""
    return [*rules(), *fields()]


def conclude(run: Run, ident: str) -> str:
    """Return how a run against a fault that violates this requirement ended."""
    if run.faults:
        return BROKE
    found = next(item.standing for item in run.results if item.requirement.id == ident)
    return {Standing.VIOLATED: CAUGHT, Standing.INCONCLUSIVE: OPEN}.get(found, PASSED)


def judge_one(fault: Fault) -> Ended:
    """Run the check of one fault against the client that has it."""
    began = time.monotonic()
    how = conclude(judge(fault.manners, {fault.check}, edition=DRAFT), fault.requirement)
    row = derived.Fault(f"client: {fault.kind}", fault.name, frozenset(), _unworn)
    return Ended(row, how, (fault.requirement,), time.monotonic() - began)


def _unworn(node: object) -> derived.Wrapper:
    """Make the wrapper of a fault that no node wears: the client has it."""
    return derived.Wrapper()


def tabulate(faults: Iterable[Fault], within_s: float = float("inf")) -> NodeTable:
    """Judge as many faults as fit into the time, at least one, and a client without any."""
    chosen, ends = list(faults), time.monotonic() + within_s
    ended: list[Ended] = []
    for fault in chosen:
        ended.append(judge_one(fault))
        if time.monotonic() > ends:
            break
    blamed = violated(judge(Manners(), edition=DRAFT))
    unlike = tuple(f"a client without any fault violates {ident}" for ident in blamed)
    return NodeTable(NAME, tuple(ended), len(chosen) - len(ended), 1, unlike)


def violated(run: Run) -> list[str]:
    """Return the requirements that a run finds violated, and the checks that broke down."""
    known = load()
    found = [item.requirement.id for item in run.results if item.standing is Standing.VIOLATED]
    return [*(ident for ident in found if ident in known), *run.faults]
