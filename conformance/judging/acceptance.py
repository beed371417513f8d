"""The reference node itself: every MUST proved, none violated, none inconclusive, three times.

One state of one node cannot show everything: the first run meets a node that does not train, the
others one that does; the last looks at the pipeline of a node that holds the first half.
"""

from dataclasses import dataclass
from pathlib import Path

from conformance.catalogue import Level, load
from conformance.judging.nodes import TRAINING, described, node, rig, train
from conformance.run import Run, Runner
from conformance.target import make_target
from conformance.verdict import Standing

# MUSTs that need a state which no run brings about, and why. The mutants exercise all of them.
NOT_SHOWN = {
    "GR-GOSSIP-GRADIENT-RESPONSE-01": "true only for a gradient that a known peer has signed",
    "GR-PIPELINE-BACKWARD-RESPONSE-01": "true only for a graph that a known peer has made",
    "TR-RULE-001": "the nodes agree",
    "NT-PAGE-003": "the chain has no accepted updates yet",
    "NA-HISTORY": "the history has no reward yet",
    "NA-PROOFS": "there is no proof yet",
}


@dataclass(frozen=True)
class Accepted:
    """One run against real nodes."""

    name: str
    run: Run
    # What the run was not for.
    partial: bool = False


def run(folder: Path, port: int) -> list[Accepted]:
    """Run the suite four times against real nodes."""
    runs: list[Accepted] = []
    with rig(folder, port) as running:
        settings = {
            **running.settings, "allow": ["mutate", "spend", "intrusive"], "budget": 20.0,
        }  # fmt: skip
        target = make_target(settings)
        runs.append(Accepted("a node that does not train", Runner(target).run()))
        train(running)
        runs.append(Accepted("a node that trains", Runner(target).run()))
        runs.append(Accepted("the same, four checks at a time", Runner(target, parallel=4).run()))
        layers = f"0-{_layers(running.settings['url']) // 2 - 1}"
        options = ("--tracker", running.urls[0], "--layers", layers)
        with node(folder / "half", port + 2, *options, variables=TRAINING) as url:
            half = {
                **described(url),
                "url": url,
                "token": running.settings["token"],
                "profiles": ["pipeline", "grpc"],
                "allow": ["intrusive"],
            }
            half["pipeline"].update(last=False, training=False, past_entries=0)
            runs.append(Accepted("a node of the first half", Runner(make_target(half)).run(), True))
    return runs


def _layers(url: str) -> int:
    return int(described(url)["pipeline"]["absent_shard"]) - 1000


def never_proved(runs: list[Accepted]) -> dict[str, str]:
    """Give the checked MUSTs that no run has proved, with the reason, empty where there is none."""
    proved = {
        item.requirement.id
        for accepted in runs
        for item in accepted.run.results
        if item.standing is Standing.PROVED
    }
    return {
        item.id: next((why for key, why in NOT_SHOWN.items() if item.id.startswith(key)), "")
        for item in load().values()
        if item.level is Level.MUST and item.check and item.id not in proved
    }


def gaps(runs: list[Accepted]) -> list[str]:
    """Say what is wrong with the runs."""
    found = []
    for accepted in runs:
        for item in accepted.run.results:
            bad = item.standing in (Standing.VIOLATED, Standing.INCONCLUSIVE)
            if bad and item.requirement.level is Level.MUST:
                found.append(
                    f"{accepted.name}: {item.requirement.id} {item.standing} {item.reason}"
                )
        if accepted.run.took_s > 120:
            found.append(f"{accepted.name}: took {accepted.run.took_s:.0f} s")
        found += [f"{accepted.name}: left behind {item}" for item in accepted.run.residue]
    if runs:
        found += [f"{ident} was not proved" for ident, why in never_proved(runs).items() if not why]
    return found
