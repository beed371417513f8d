"""From findings to outcomes, as two tables.

Terms: a *finding* is what one check says about one requirement, with the exchanges that show it; a
*standing* is the result of all findings of a run; an *outcome* is what the standing means at the
requirement's level. Checks only make findings: they do not know levels.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from conformance.catalogue import Level, Origin, Requirement


class Ruling(StrEnum):
    """What a check found."""

    HOLDS = "holds"
    FAILS = "fails"
    UNCLEAR = "unclear"
    OBSERVED = "observed"


class Standing(StrEnum):
    """What a run knows about a requirement at its end."""

    PROVED = "proved"
    VIOLATED = "violated"
    INCONCLUSIVE = "inconclusive"
    OBSERVED = "observed"
    NOT_EXERCISED = "not exercised"
    NOT_APPLICABLE = "not applicable"
    SILENT = "silent"


class Outcome(StrEnum):
    """What a standing means for the target."""

    PASS = "pass"  # noqa: S105 - an outcome, not a password
    FAIL = "fail"
    WARN = "warn"
    OPEN = "open"
    NOTE = "note"
    SKIP = "skip"


@dataclass(frozen=True)
class Finding:
    """One ruling on one requirement, and the numbers of the exchanges that show it."""

    requirement: str
    ruling: Ruling
    message: str
    exchanges: tuple[int, ...]
    check: str


def standing(requirement: Requirement, rulings: Iterable[Ruling]) -> Standing | None:
    """Combine the rulings on an applicable requirement; None if there are none."""
    found = set(rulings)
    # The document leaves it open, so no finding can be for or against it.
    if requirement.origin is Origin.SILENT:
        return Standing.SILENT
    # One counterexample is enough.
    if Ruling.FAILS in found:
        return Standing.VIOLATED
    # A success at another time does not prove what was cut off once.
    if Ruling.UNCLEAR in found:
        return Standing.INCONCLUSIVE
    if Ruling.HOLDS in found:
        return Standing.PROVED
    if Ruling.OBSERVED in found:
        return Standing.OBSERVED
    return None


OUTCOMES: dict[Standing, dict[Level, Outcome]] = {
    Standing.PROVED: dict.fromkeys(Level, Outcome.PASS),
    Standing.VIOLATED: {
        Level.MUST: Outcome.FAIL,
        Level.SHOULD: Outcome.WARN,
        Level.MAY: Outcome.NOTE,
        Level.OBSERVE: Outcome.NOTE,
    },
    Standing.INCONCLUSIVE: {
        Level.MUST: Outcome.OPEN,
        Level.SHOULD: Outcome.OPEN,
        Level.MAY: Outcome.NOTE,
        Level.OBSERVE: Outcome.NOTE,
    },
    Standing.OBSERVED: dict.fromkeys(Level, Outcome.NOTE),
    Standing.NOT_EXERCISED: dict.fromkeys(Level, Outcome.SKIP),
    Standing.NOT_APPLICABLE: dict.fromkeys(Level, Outcome.SKIP),
    Standing.SILENT: dict.fromkeys(Level, Outcome.NOTE),
}


class Exit(StrEnum):
    """How a run ends; `EXIT_CODES` has the numbers."""

    CONFORMS = "conforms"
    VIOLATED = "a MUST is violated"
    INTERRUPTED = "interrupted"
    SUITE_FAULT = "a fault of the suite"
    CONFIGURATION = "configuration"
    NOTHING_PROVED = "nothing was proved"
    INCONCLUSIVE = "inconclusive"
    STALE_BASELINE = "a stale baseline"
    TOO_LITTLE = "less was proved than required"


EXIT_CODES = {reason: code for code, reason in enumerate(Exit)}
