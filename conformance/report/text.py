"""The report for a terminal: first the failures and how to reproduce them, then the figures."""

import textwrap
from collections.abc import Iterator
from typing import Any

from conformance.findings import USED_UP

ORDER = {"fail": "VIOLATED", "open": "INCONCLUSIVE", "warn": "NOT MET"}
COLOURS = {"fail": "31", "open": "35", "warn": "33"}


def render(document: dict[str, Any], *, colour: bool = False, notes: bool = False) -> str:
    """Make the text of a report; `notes` adds what was only observed."""
    exchanges = {item["number"]: item for item in document["exchanges"]}
    lines: list[str] = []
    for outcome, title in ORDER.items():
        for item in document["requirements"]:
            if item["outcome"] == outcome:
                lines += _item(item, title, exchanges, COLOURS[outcome] if colour else None)
    for item in document["requirements"]:
        if not item["scored"] and item["standing"] == "violated":
            lines += _item(item, "VIOLATED, NOT SCORED", exchanges, None)
    if notes:
        lines += _notes(document)
    for fault in document["faults"]:
        lines += [f"The check {fault['check']} broke down:", textwrap.indent(fault["trace"], "  ")]
    lines += [f"Left behind: {item}" for item in document["residue"]]
    lines += [
        f"Stale baseline entry {ident}: {why}" for ident, why in document["stale_baseline"].items()
    ]
    return "\n".join([*lines, *_summary(document)]) + "\n"


def render_item(document: dict[str, Any], item: dict[str, Any]) -> str:
    """Make the text of one requirement."""
    exchanges = {entry["number"]: entry for entry in document["exchanges"]}
    return "\n".join(_item(item, ORDER.get(item["outcome"], ""), exchanges, None))


def _item(
    item: dict[str, Any], title: str, exchanges: dict[int, Any], colour: str | None
) -> Iterator[str]:
    head = f"{item['level']} {title}"
    if colour:
        head = f"\033[{colour}m{head}\033[0m"
    known = " (known: in the baseline)" if item["known"] else ""
    yield f"{head}  {item['id']}  section {item['section']}{known}"
    yield f"    {item['text']}"
    for finding in item["findings"]:
        if finding["ruling"] not in ("fails", "unclear"):
            continue
        yield f"    -> {finding['message']}"
        for number in finding["exchanges"]:
            if number in exchanges:
                yield f"       #{number}  {exchanges[number]['reproduce']}"
    yield ""


def _notes(document: dict[str, Any]) -> Iterator[str]:
    for item in document["requirements"]:
        observed = [found["message"] for found in item["findings"] if found["ruling"] == "observed"]
        if item["outcome"] == "note" and observed:
            yield f"observed  {item['id']}  {item['text']}"
            for message in observed:
                yield f"    {message}"
    yield ""


def _summary(document: dict[str, Any]) -> Iterator[str]:
    target, conclusion = document["target"], document["conclusion"]
    allowed = ", ".join(target["allow"]) or "reading only"
    yield f"{target['url']}  profiles: {', '.join(target['profiles']) or 'none'}  ({allowed})"
    judged = [
        item
        for item in document["requirements"]
        if item["profile"] in target["profiles"] and item["scored"]
    ]
    for level in ("MUST", "SHOULD"):
        ofs = [item for item in judged if item["level"] == level]
        figures = ", ".join(
            f"{sum(item['standing'] == standing for item in ofs)} {standing}"
            for standing in ("proved", "violated", "inconclusive", "not exercised")
        )
        yield f"{level:6} {figures}"
    asked = document["asked"]
    share = asked["proved"] / max(asked["must"], 1)
    of = f"{asked['proved']} of the {asked['must']} MUSTs with a check"
    draft = " (draft)" if target.get("draft") else ""
    yield f"edition {target['edition']}{draft}: {share:.1%} proved, {of} in the judged profiles"
    for profile, reason in asked["left_out"].items():
        count = sum(item["profile"] == profile for item in document["requirements"])
        yield f"not applicable: {count} of {profile}: {reason}"
    lacking = sum(item["reason"].startswith(USED_UP) for item in judged)
    if lacking:
        yield f"the budget is used up: {lacking} were not exercised for that; see --budget"
    new = [item for item in document["requirements"] if not item["scored"]]
    wrong = sum(item["standing"] == "violated" for item in new)
    if new:
        yield f"not scored in this edition: {len(new)}, of which {wrong} would be violated"
    yield from (f"required: {what}" for what in document["conclusion"]["lacks"])
    made, took = document["exchanges_made"], document["took_s"]
    spent = f", spent {target['spent']:g}" if target["spent"] else ""
    yield f"{made} exchanges in {took:.1f} s{spent}"
    yield f"exit {conclusion['exit']}: {conclusion['reason']}"
