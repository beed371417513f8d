"""The kill matrix, for the terminal and as JUDGE.md."""

from collections import Counter
from pathlib import Path
from typing import Any

from conformance.catalogue import Level
from conformance.judging import acceptance
from conformance.judging.acceptance import Accepted
from conformance.judging.derived import table as derived
from conformance.judging.derived.table import NodeTable
from conformance.verdict import Standing

FILE = Path(__file__).parents[1] / "JUDGE.md"
_HEAD = """\
# The judge, judged

Written by `nox -s judge` (`python -m conformance.judging`); do not edit. The suite runs against
real nodes behind a fault layer that breaks one sentence of the document at a time. A mutant is
caught if the requirement for that sentence is violated and no other MUST fails.
"""


def gaps(found: list[Any], runs: list[Accepted], tables: list[NodeTable]) -> list[str]:
    """List everything that did not end as expected."""
    wrong = [f"{row.group} {row.name} ({row.ident}): {row.gap}" for row in found if row.gap]
    missed = [gap for table in tables for gap in table.gaps()]
    return [*acceptance.gaps(runs), *wrong, *missed]


def render(found: list[Any], runs: list[Accepted], tables: list[NodeTable]) -> str:
    """Return the text of JUDGE.md."""
    lines = [_HEAD, *_runs(runs), *_summary(found), "## Gaps\n"]
    lines += [f"- {gap}" for gap in gaps(found, runs, tables)] or ["None."]
    lines += ["", *derived.render(tables)]
    lines += ["", "## Mutants\n", "| requirement | level | mutant | |", "|---|---|---|---|"]
    for row in sorted((row for row in found if row.group == "mutant"), key=lambda row: row.ident):
        ended = "caught" if not row.gap else row.gap
        lines.append(f"| {row.ident} | {row.level} | {row.name} | {ended} |")
    for group, good in (("variant", "not failed"), ("hostile", "not proved")):
        lines += ["", f"## {group.capitalize()}\n", f"| {group} | |", "|---|---|"]
        lines += [f"| {row.name} | {row.gap or good} |" for row in found if row.group == group]
    return "\n".join([*lines, *_proofs(runs)]) + "\n"


def _summary(found: list[Any]) -> list[str]:
    lines = ["## Figures\n", "| | rows | as expected | gaps | seconds |", "|---|---|---|---|---|"]
    for group in ("control", "mutant", "variant", "hostile"):
        rows = [row for row in found if row.group == group]
        counts = Counter(not row.gap for row in rows)
        took_s = sum(row.took_s for row in rows)
        lines.append(f"| {group} | {len(rows)} | {counts[True]} | {counts[False]} | {took_s:.0f} |")
    return [*lines, ""]


def _runs(runs: list[Accepted]) -> list[str]:
    if not runs:
        return []
    lines = [
        "## Against the reference node, everything allowed\n",
        "| run | MUST proved | violated | inconclusive | not exercised | exchanges | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for at, accepted in enumerate(runs, 1):
        counts = Counter(
            item.standing
            for item in accepted.run.results
            if item.requirement.level is Level.MUST and item.requirement.check
        )
        figures = " | ".join(
            str(counts[standing])
            for standing in (
                Standing.PROVED, Standing.VIOLATED, Standing.INCONCLUSIVE, Standing.NOT_EXERCISED,
            )
        )  # fmt: skip
        done = f"{len(accepted.run.exchanges)} | {accepted.run.took_s:.1f}"
        lines.append(f"| {at}. {accepted.name} | {figures} | {done} |")
    lines += ["", "MUSTs with a check that none of these runs proves, and why:", ""]
    missing = acceptance.never_proved(runs)
    lines += [f"- {ident}: {why or 'a gap'}" for ident, why in missing.items()] or ["- none"]
    return [*lines, ""]


def _proofs(runs: list[Accepted]) -> list[str]:
    """List for each MUST the numbers of the runs that proved it."""
    if not runs:
        return []
    numbers = {accepted.name: str(at) for at, accepted in enumerate(runs, 1)}
    lines = ["", "## Runs that prove each MUST\n", "| MUST | runs |", "|---|---|"]
    for ident, names in acceptance.proved_in(runs).items():
        lines.append(f"| {ident} | {' '.join(numbers[name] for name in names) or 'none'} |")
    return lines
