"""The reference node itself: every MUST proved, none violated, none inconclusive, three times.

One state of one node cannot show everything: the first run meets a node that does not train, the
others one that does; the last looks at the pipeline of a node that holds the first half.
"""

import time
from dataclasses import dataclass, replace
from pathlib import Path

from conformance.catalogue import Level, load
from conformance.judging.nodes import TOKEN, TRAINING, described, node, rig, train
from conformance.judging.states import accept_updates, introduce, paid_holder, strangers
from conformance.run import Result, Run, Runner
from conformance.target import make_target
from conformance.verdict import Standing

# MUSTs that no run can show, and why. The mutants exercise all of them.
NOT_SHOWN = {
    "GR-GOSSIP-GRADIENT-RESPONSE-01":
        "true only for a gradient that is accepted, which takes a peer's signature, and how one is"
        " made is not shown",
}  # fmt: skip
ORDERS = 3
MEETING_S = 90.0
DIVERGED = ("TR-RULE-001", "TR-VERIFY-013", "TR-VERIFY-014")


@dataclass(frozen=True)
class Accepted:
    """One run against real nodes."""

    name: str
    run: Run


def run(folder: Path, port: int) -> list[Accepted]:
    """Run the suite against real nodes, as a whole and then for what other states show."""
    return [
        *_whole(folder / "whole", port),
        _paid(folder / "paid", port + 4),
        _diverged(folder / "diverged", port + 6),
    ]


def _whole(folder: Path, port: int) -> list[Accepted]:
    runs: list[Accepted] = []
    with rig(folder, port) as running:
        settings = {
            **running.settings, "allow": ["mutate", "spend", "intrusive"], "budget": 20.0,
        }  # fmt: skip
        target = make_target(settings)
        accept_updates(folder, running.urls[0])
        runs.append(Accepted("a node that does not train", Runner(target).run()))
        train(running)
        for seed in range(1, ORDERS + 1):
            shuffled = Runner(replace(target, seed=seed), shuffle=True).run()
            runs.append(Accepted(f"a node that trains, order {seed}", shuffled))
        runs.append(Accepted("the same, four checks at a time", Runner(target, parallel=4).run()))
        layers = f"0-{_layers(running.settings['url']) // 2 - 1}"
        options = ("--tracker", running.urls[0], "--layers", layers)
        variables = {**TRAINING, "MESHNODE_TRAINING_ENABLED": "true"}
        with node(folder / "half", port + 2, *options, variables=variables) as url:
            half = {
                **described(url),
                "url": url,
                "token": running.settings["token"],
                "profiles": ["pipeline", "grpc"],
                "allow": ["intrusive"],
            }
            half["pipeline"].update(
                last=False, training=False, past_entries=0, backward_metadata={"training": "1"}
            )
            runs.append(Accepted("a node of the first half", Runner(make_target(half)).run()))
    return runs


def _paid(folder: Path, port: int) -> Accepted:
    with paid_holder(folder, port) as url:
        target = make_target({"url": url, "token": TOKEN, "profiles": ["node-api"]})
        return Accepted("a holder with a proof, reading only", Runner(target).run())


def _diverged(folder: Path, port: int) -> Accepted:
    """Look at two nodes that have just met, again and again: they soon agree."""
    with strangers(folder, port) as (url, _):
        target = make_target({"url": url, "profiles": ["training"]})
        introduce(port, port + 1)
        ends = time.monotonic() + MEETING_S
        while True:
            looked = Runner(target, only=DIVERGED).run()
            proved = {item.requirement.id for item in looked.results if _proved(item)}
            if proved.issuperset(DIVERGED) or time.monotonic() > ends:
                return Accepted("two nodes that meet with other weights", looked)


def _layers(url: str) -> int:
    return int(described(url)["pipeline"]["absent_shard"]) - 1000


def _proved(item: Result) -> bool:
    return item.standing is Standing.PROVED


def proved_in(runs: list[Accepted]) -> dict[str, list[str]]:
    """Give the runs that have proved each MUST that has a check."""
    found: dict[str, list[str]] = {
        item.id: [] for item in load().values() if item.level is Level.MUST and item.check
    }
    for accepted in runs:
        for item in accepted.run.results:
            if _proved(item) and item.requirement.id in found:
                found[item.requirement.id].append(accepted.name)
    return found


def never_proved(runs: list[Accepted]) -> dict[str, str]:
    """Give the checked MUSTs that no run has proved, with the reason, empty where there is none."""
    return {
        ident: NOT_SHOWN.get(ident, "") for ident, names in proved_in(runs).items() if not names
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
