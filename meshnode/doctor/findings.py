"""Findings, and the report that a person or a program reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Finding:
    """One row of the report."""

    check: str
    level: Level
    text: str
    advice: str = ""
    """What to do about it; empty if nothing has to be done."""


def ok(check: str, text: str) -> Finding:
    """A finding that needs nothing."""
    return Finding(check, Level.OK, text)


def warning(check: str, text: str, advice: str = "") -> Finding:
    """Something to know about."""
    return Finding(check, Level.WARNING, text, advice)


def fault(check: str, text: str, advice: str = "") -> Finding:
    """Something that keeps the node from its work."""
    return Finding(check, Level.FAULT, text, advice)


def worst(findings: Iterable[Finding]) -> Level:
    """The level of the whole report."""
    order = list(Level)
    return max((finding.level for finding in findings), key=order.index, default=Level.OK)


def as_table(findings: Sequence[Finding]) -> str:
    """The report for a person: a line for each finding, its advice below it."""
    width = max((len(finding.check) for finding in findings), default=0)
    lines = []
    for finding in findings:
        lines.append(f"{finding.level:<8} {finding.check:<{width}}  {_one_line(finding.text)}")
        if finding.advice:
            lines.append(f"{'':<8} {'':<{width}}  -> {_one_line(finding.advice)}")
    counts = {level: sum(one.level is level for one in findings) for level in Level}
    lines.append(", ".join(f"{count} {level}" for level, count in counts.items()))
    return "\n".join(lines)


def as_json(findings: Sequence[Finding]) -> str:
    """The report for a program."""
    rows = [{**asdict(finding), "text": _one_line(finding.text)} for finding in findings]
    return json.dumps({"status": worst(findings), "findings": rows}, indent=1)


def _one_line(text: str) -> str:
    """Text of files and of other nodes must not move the cursor or begin a row."""
    return "".join(one if one.isprintable() else " " for one in text)
