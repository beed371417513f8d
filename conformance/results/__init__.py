"""The table of implementations: one file for each implementation, edition and profile.

A file `NAME/edition-N/PROFILE.json` is made by `meshnode-conformance report DIR --publish FOLDER`
from a report. It says what a run found of every requirement that the edition scores in the profile.
`python -m conformance.results` makes the page of the table from all files in this folder.

Invariants, enforced with `faults`: a file is about exactly the requirements of its edition and
profile, a draft's about those that exist; it is where its contents say; every violation has its
reason; the edition of a draft has not been released.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance import editions
from conformance.catalogue import Effect, Level, Profile
from conformance.editions import DRAFT, EDITIONS
from conformance.verdict import Standing

FORMAT = 1
HOME = Path(__file__).parent
NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}\Z")
# Standings that need a reason: they are what somebody will ask about.
EXPLAINED = frozenset({Standing.VIOLATED.value, Standing.INCONCLUSIVE.value})
STANDINGS = frozenset(item.value for item in Standing) - {Standing.NOT_APPLICABLE.value}
# The members of a file, and their types.
MEMBERS: Mapping[str, type | tuple[type, ...]] = {
    "format": int, "implementation": dict, "suite": str, "finished": str, "edition": int,
    "draft": bool, "profile": str, "allow": list, "declared": bool, "took_s": (int, float),
    "requirements": dict, "reasons": dict, "notes": dict,
}  # fmt: skip
MAX_TEXT = 500


class BadResult(Exception):
    """A report cannot be published, or a file is not a result; the message says why."""


@dataclass(frozen=True)
class Implementation:
    """What was judged. `how` says how it is installed and started, so that others can repeat it."""

    name: str
    version: str
    how: str


def scored(edition: int, profile: str) -> dict[str, Level]:
    """Return the requirements that an edition scores in a profile, with their levels."""
    return {
        ident: item.level
        for ident, item in editions.scored(edition).items()
        if item.profile.value == profile
    }


def results_of(report: Mapping[str, Any], of: Implementation) -> Iterator[dict[str, Any]]:
    """Yield the result of each judged profile of a report. Raises `BadResult`.

    A run of single requirements, one that was interrupted, or one in which a check broke down says
    too little to be published.
    """
    target = report["target"]
    if not NAME.match(of.name):
        raise BadResult(f"{of.name!r}: a name has lower-case letters, digits, dots and dashes")
    if report["faults"] or report["conclusion"]["exit"] in (2, 3):
        raise BadResult("the run was interrupted, or a check of the suite broke down")
    entries = {item["id"]: item for item in report["requirements"]}
    if any(item["reason"] == "not selected" for item in entries.values()):
        raise BadResult("the run judged only some requirements")
    for profile in target["profiles"]:
        idents = scored(target["edition"], profile)
        if not idents:
            # The edition is older than the profile.
            continue
        unknown = set(idents) - set(entries)
        if unknown:
            raise BadResult(f"the report has nothing on {sorted(unknown)[:3]}: it is too old")
        standings = {ident: entries[ident]["standing"] for ident in idents}
        yield {
            "format": FORMAT,
            "implementation": {"name": of.name, "version": of.version, "how": of.how},
            "suite": report["suite"]["version"],
            "finished": report["finished"],
            "took_s": report["took_s"],
            "edition": target["edition"],
            "draft": target["edition"] not in EDITIONS,
            "profile": profile,
            "allow": target["allow"],
            "declared": bool(target.get("declared")),
            "requirements": standings,
            "reasons": {
                ident: entries[ident]["reason"][:MAX_TEXT]
                for ident, standing in standings.items()
                if standing in EXPLAINED
            },
            "notes": {},
        }


def place_of(result: Mapping[str, Any]) -> Path:
    """Return the path of a result below the folder of all results."""
    name = result["implementation"]["name"]
    return Path(name) / f"edition-{result['edition']}" / f"{result['profile']}.json"


def publish(report: Mapping[str, Any], of: Implementation, folder: Path) -> list[Path]:
    """Write the results of a report into a folder, and return their paths.

    Notes on requirements that are violated still, which somebody wrote by hand, are kept.
    """
    written = []
    for result in results_of(report, of):
        path = folder / place_of(result)
        if path.exists():
            notes = json.loads(path.read_text(encoding="utf-8")).get("notes", {})
            kept = {ident: text for ident, text in notes.items() if ident in result["reasons"]}
            result["notes"] = kept
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        written.append(path)
    if not written:
        raise BadResult("the edition of the run scores none of the judged profiles")
    return written


def files(folder: Path = HOME) -> list[Path]:
    """Return the paths of all results in a folder."""
    return sorted(folder.glob("*/*/*.json"))


def faults(path: Path, folder: Path = HOME) -> list[str]:
    """Return what is wrong with one file."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return [f"not JSON: {error}"]
    if not isinstance(result, dict) or set(result) != set(MEMBERS):
        return [f"needs exactly the members {sorted(MEMBERS)}"]
    wrong = [
        f"{name} has the wrong type"
        for name, kind in MEMBERS.items()
        if not isinstance(result[name], kind) or (kind is int and isinstance(result[name], bool))
    ]
    if wrong:
        return wrong
    return [*_faults_of_heading(result, path, folder), *_faults_of_standings(result)]


def _faults_of_heading(result: dict[str, Any], path: Path, folder: Path) -> Iterator[str]:
    of = result["implementation"]
    if set(of) != {"name", "version", "how"} or not all(isinstance(v, str) for v in of.values()):
        yield "implementation needs the strings name, version and how"
        return
    if not NAME.match(of["name"]) or not of["version"].strip() or not of["how"].strip():
        yield "implementation has an empty version or how, or a bad name"
    if result["format"] != FORMAT:
        yield f"format is not {FORMAT}"
    if result["profile"] not in set(Profile):
        yield f"no profile {result['profile']!r}"
    elif path.relative_to(folder) != place_of(result):
        yield f"belongs to {place_of(result).as_posix()}"
    if not set(result["allow"]) <= {str(effect) for effect in Effect}:
        yield "allow names an effect that there is not"
    if result["draft"] and result["edition"] != DRAFT:
        yield f"edition {result['edition']} has been released: judge again, without a draft"
    if not result["draft"] and result["edition"] not in EDITIONS:
        yield f"edition {result['edition']} has not been released"


def _faults_of_standings(result: dict[str, Any]) -> Iterator[str]:
    if result["edition"] not in (*EDITIONS, DRAFT):
        return
    wanted, found = set(scored(result["edition"], result["profile"])), set(result["requirements"])
    if found - wanted:
        yield f"not of this edition and profile: {sorted(found - wanted)[:3]}"
    if wanted - found and not result["draft"]:
        yield f"lacks {sorted(wanted - found)[:3]}"
    unknown = set(result["requirements"].values()) - STANDINGS
    if unknown:
        yield f"unknown standings {sorted(map(str, unknown))}"
    explained = {i for i, standing in result["requirements"].items() if standing in EXPLAINED}
    if set(result["reasons"]) != explained or not set(result["notes"]) <= explained:
        yield "reasons or notes are not about what is violated or inconclusive"
    texts = [*result["reasons"].values(), *result["notes"].values()]
    if not all(isinstance(text, str) and text and len(text) <= MAX_TEXT for text in texts):
        yield f"a reason or note is empty or longer than {MAX_TEXT}"


def counts(result: Mapping[str, Any], level: Level = Level.MUST) -> Counter[str]:
    """Count the standings of one level, as the edition has it."""
    known = scored(result["edition"], result["profile"])
    return Counter(
        standing for ident, standing in result["requirements"].items() if known.get(ident) is level
    )
