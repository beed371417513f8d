"""Judge a stranger's node: sound, with each of its peculiarities, and with each of its faults.

``python -m conformance.judging.stranger [--node NAME] [--build] [--out FILE [--resume]]
[--sample N] [--seed N] [--at-once N] [--harmless] [--only ID ...] [ID...]`` needs what the node is
written in, as README.md says, and the extra ``stranger`` for those in Python. ``--build`` compiles
it first, or installs its packages. It prints a table by kind and what was not seen, and ends with 1
if the sound node or a peculiarity is said to violate a MUST. After some checks have changed,
``--harmless --only`` their requirements asks in a short time whether they give false alarms.
"""

import argparse
import random
import subprocess
import sys
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from conformance.judging.stranger.judge import (
    FAULT,
    PECULIAR,
    SOUND,
    Outcome,
    Switch,
    judge_all,
    line_of,
    read_outcomes,
)
from conformance.judging.stranger.strangers import STRANGERS, Stranger


def main() -> None:
    """Judge, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m conformance.judging.stranger")
    parser.add_argument("--node", choices=STRANGERS, default="first", help="whose node")
    parser.add_argument("ids", nargs="*", metavar="ID", help="faults, peculiarities or `sound`")
    parser.add_argument("--build", action="store_true", help="build the node first")
    parser.add_argument("--out", type=Path, metavar="FILE", help="a line of JSON for each run")
    parser.add_argument("--resume", action="store_true", help="leave out what the file has")
    parser.add_argument("--sample", type=int, metavar="N", help="of the faults; default: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--harmless", action="store_true", help="no faults")
    parser.add_argument("--only", nargs="+", default=[], metavar="ID", help="of requirements")
    parser.add_argument("--at-once", type=int, default=2, metavar="N")
    parser.add_argument("--port", type=int, metavar="N", help="of the first of those at a time")
    options = parser.parse_args()
    stranger = STRANGERS[options.node]
    if options.build and stranger.build:
        subprocess.run(stranger.build, cwd=stranger.node, check=True)
    sample = 0 if options.harmless else options.sample
    chosen = _chosen(stranger, options.ids, sample, options.seed)
    if not chosen:
        parser.error("no fault, no peculiarity and not `sound`")
    known = read_outcomes(options.out) if options.out and options.resume else {}
    outcomes = [known[switch] for switch in chosen if switch in known]
    todo = [switch for switch in chosen if switch not in known]
    mode = "a" if options.resume else "w"
    with options.out.open(mode, encoding="utf-8") if options.out else nullcontext() as file:
        port = options.port or stranger.first_port
        for outcome in judge_all(stranger, todo, options.at_once, port, tuple(options.only)):
            outcomes.append(outcome)
            if file:
                file.write(line_of(outcome))
                file.flush()
            said = " ".join(outcome.violated[:3]) or " ".join(outcome.broke) or "-"
            print(f"{len(outcomes)}/{len(chosen)} {outcome.ident}: {said}", file=sys.stderr)
    sys.exit(_print(stranger, outcomes))


def _chosen(stranger: Stranger, idents: list[str], sample: int | None, seed: int) -> list[Switch]:
    """What to judge: everything, or a sample of the faults, or what is named."""
    lists = stranger.lists()
    faults, permitted = sorted(lists["faults"]), lists["peculiar"]
    if idents:
        of = {**dict.fromkeys(faults, FAULT), **dict.fromkeys(permitted, PECULIAR), "sound": SOUND}
        return [Switch(of[ident], ident) for ident in idents if ident in of]
    random.Random(seed).shuffle(faults)  # noqa: S311 - a sample that can be drawn again
    harmless = [Switch(SOUND), *(Switch(PECULIAR, ident) for ident in permitted)]
    return harmless + [Switch(FAULT, ident) for ident in faults[:sample]]


def _print(stranger: Stranger, outcomes: Iterable[Outcome]) -> bool:
    """Print the table, and return whether anything harmless is said to violate a MUST.

    The share is that of the faults that the document does not allow. Advice that the sound node has
    says nothing of a fault; where it is not in `known.toml` yet, it is said here.
    """
    outcomes = list(outcomes)
    noise = {ident for each in outcomes if each.option == SOUND for ident in each.advised}
    if noise:
        print("advice of the sound node, which belongs into known.toml:", *sorted(noise))
    outcomes = [
        replace(each, advised=tuple(ident for ident in each.advised if ident not in noise))
        for each in outcomes
    ]
    kind_of, allowed = stranger.lists()["faults"], stranger.allowed()
    faults = [each for each in outcomes if each.option == FAULT]
    parts = {
        "violated": [each for each in faults if each.violated],
        "advice only": [each for each in faults if not each.violated and each.advised],
    }
    rest = [each for each in faults if not each.violated + each.advised]
    parts["allowed"] = [each for each in rest if each.ident in allowed]
    parts["not seen"] = [each for each in rest if each.ident not in allowed]
    print("| kind | faults | violated | advice only | allowed | not seen | share |")
    print("|---|---|---|---|---|---|---|")
    for kind in (*sorted(set(kind_of.values())), "all"):
        counts = [
            sum(kind in (kind_of[each.ident], "all") for each in some) for some in parts.values()
        ]
        total, seen = sum(counts), counts[0] + counts[1]
        share = f"{seen / max(total - counts[2], 1):.1%}"
        print("|", " | ".join(map(str, (kind, total, *counts, share))), "|")
    parts["broke down"] = [each for each in outcomes if each.broke]
    for title in ("advice only", "allowed", "not seen", "broke down"):
        print(f"{title}:", *sorted(each.ident for each in parts[title]))
    harmless = [each for each in outcomes if each.option != FAULT]
    alarms = [each for each in harmless if each.violated]
    print(f"sound and peculiar: {len(harmless)} runs, {len(alarms)} with a violation")
    for alarm in alarms:
        print(f"  {alarm.ident}: {' '.join(alarm.violated)}")
    return bool(alarms)


if __name__ == "__main__":
    main()
