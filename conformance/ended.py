"""A run that has ended: what it says about each requirement, and how it ends as a whole.

Invariant: every requirement has one result.
"""

from dataclasses import dataclass, field

from conformance.catalogue import Level, Requirement
from conformance.journal import Exchange
from conformance.secrecy import Redactor
from conformance.target import Target
from conformance.verdict import Exit, Finding, Outcome, Standing


@dataclass(frozen=True)
class Result:
    """What a run says about one requirement."""

    requirement: Requirement
    standing: Standing
    outcome: Outcome
    reason: str
    findings: tuple[Finding, ...]
    known: bool = False
    # Whether the edition of the run has the requirement; if not, its outcome is only a note.
    scored: bool = True


@dataclass
class Run:
    """A finished run. Times are seconds."""

    target: Target
    results: list[Result]
    exchanges: list[Exchange]
    faults: dict[str, str]
    residue: list[str]
    stale: dict[str, str]
    took_s: float
    spent: float
    interrupted: bool
    redactor: Redactor
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def asked(self) -> list[Result]:
        """The MUSTs of the edition that the judged profiles have, and that have a check."""
        return [
            item
            for item in self.results
            if item.scored
            and item.requirement.level is Level.MUST
            and item.requirement.check
            and item.standing is not Standing.NOT_APPLICABLE
        ]

    @property
    def share(self) -> float:
        """The share of these that is proved, from 0 to 1."""
        proved = sum(item.standing is Standing.PROVED for item in self.asked)
        return proved / max(len(self.asked), 1)

    def lacks(self) -> list[str]:
        """Return what the run was required to prove and did not."""
        found = []
        required = self.target.require
        if required is not None and self.share < required:
            found.append(f"{self.share:.1%} of the MUSTs are proved, {required:.1%} are required")
        for profile in sorted(self.target.require_profiles):
            shown = [item for item in self.asked if item.requirement.profile is profile]
            if not any(item.standing is Standing.PROVED for item in shown):
                found.append(f"nothing of the required profile {profile.value} is proved")
        return found

    def ended(self) -> Exit:
        """Return how the run ends: the most serious of its outcomes."""
        outcomes = {(item.outcome, item.known) for item in self.results}
        must_open = any(
            item.outcome is Outcome.OPEN and item.requirement.level is Level.MUST
            for item in self.results
        )
        proved = any(item.standing is Standing.PROVED for item in self.results)
        order = (
            (self.interrupted, Exit.INTERRUPTED),
            # No verdict counts if the suite itself has a fault.
            (bool(self.faults), Exit.SUITE_FAULT),
            ((Outcome.FAIL, False) in outcomes, Exit.VIOLATED),
            (bool(self.stale), Exit.STALE_BASELINE),
            (must_open, Exit.INCONCLUSIVE),
            (not proved, Exit.NOTHING_PROVED),
            (bool(self.lacks()), Exit.TOO_LITTLE),
        )
        return next((reason for happened, reason in order if happened), Exit.CONFORMS)
