"""`report.json`: a run as plain data, described by `schemas/report.schema.json`.

Invariant: the document contains no secret, and everything that the other formats need.
"""

from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from conformance import __version__
from conformance.catalogue import Profile
from conformance.editions import EDITIONS, scored
from conformance.ended import Result, Run
from conformance.interface import page
from conformance.verdict import EXIT_CODES, Outcome, Standing

FORMAT = 1


def build(run: Run, finished: datetime | None = None) -> dict[str, Any]:
    """Make the document of a run."""
    ended = run.ended()
    cited = {
        number
        for result in run.results
        if result.outcome not in (Outcome.PASS, Outcome.SKIP)
        for finding in result.findings
        for number in finding.exchanges
    }
    target = run.target
    document = {
        "format": FORMAT,
        "suite": {"name": "meshnode-conformance", "version": __version__},
        "finished": (finished or datetime.now(UTC)).isoformat(timespec="seconds"),
        "took_s": round(run.took_s, 3),
        "target": {
            "url": target.url,
            "grpc": target.grpc,
            "profiles": sorted(target.profiles),
            "allow": sorted(str(effect) for effect in target.allow),
            "budget": target.budget,
            "spent": run.spent,
            "seed": target.seed,
            "examples": target.examples,
            "declared": target.declared,
            "edition": target.edition,
            "draft": target.edition not in EDITIONS,
            "require": target.require,
            "require_profiles": sorted(target.require_profiles),
        },
        "conclusion": {"exit": EXIT_CODES[ended], "reason": ended.value, "lacks": run.lacks()},
        "asked": {
            "must": len(run.asked),
            "proved": sum(item.standing is Standing.PROVED for item in run.asked),
            "left_out": {
                profile.value: run.target.absent.get(profile, "not declared")
                for profile in Profile
                if profile not in target.profiles and profile in _profiles_of(target.edition)
            },
        },
        "counts": {
            "standing": dict(Counter(item.standing.value for item in run.results)),
            "outcome": dict(Counter(item.outcome.value for item in run.results)),
        },
        "exchanges_made": len(run.exchanges),
        "requirements": [_result(item) for item in run.results],
        "exchanges": [asdict(item) for item in run.exchanges if item.number in cited],
        "faults": [{"check": name, "trace": trace} for name, trace in run.faults.items()],
        "skipped": run.skipped,
        "residue": run.residue,
        "stale_baseline": run.stale,
    }
    cleaned: dict[str, Any] = run.redactor.value(document)
    return cleaned


def _profiles_of(edition: int) -> set[Profile]:
    """Return the profiles of which the edition scores anything."""
    return {item.profile for item in scored(edition).values()}


def _result(result: Result) -> dict[str, Any]:
    requirement = result.requirement
    return {
        "id": requirement.id,
        "section": requirement.section,
        "link": page.link(requirement.id),
        "level": requirement.level.value,
        "origin": requirement.origin.value,
        "profile": requirement.profile.value,
        "effect": str(requirement.effect),
        "text": requirement.text,
        "check": requirement.check,
        "standing": result.standing.value,
        "outcome": result.outcome.value,
        "reason": result.reason,
        "known": result.known,
        "scored": result.scored,
        "why": requirement.why,
        "findings": [
            {
                "ruling": item.ruling.value,
                "message": item.message,
                "check": item.check,
                "exchanges": list(item.exchanges),
            }
            for item in result.findings
        ],
    }
