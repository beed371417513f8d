"""A real node behind the fault layer: judges what the layer makes of it, row by row."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from conformance.catalogue import Level, Profile, load
from conformance.editions import DRAFT
from conformance.ended import Run
from conformance.judging import hostile
from conformance.judging.derived.judge import (
    DerivedJudge,
    Ended,
    every_fault,
    impatient,
    spread,
)
from conformance.judging.derived.table import NodeTable, confirm
from conformance.judging.layer import Layer
from conformance.judging.nodes import Rig, rest, rig, train
from conformance.judging.states import accept_updates
from conformance.judging.table import Mutant, Variant, mutants, variants
from conformance.judging.toy.answers import no_grpc_hook, no_http_hook, same_request
from conformance.judging.toy.serving import Serving, Toy
from conformance.run import Runner
from conformance.target import Target, make_target
from conformance.verdict import Outcome

# A failed variant is one that violates a MUST, so the variants run only these.
MUSTS = [item.id for item in load().values() if item.level is Level.MUST and item.check]
HTTP = frozenset({Profile.NODE_API, Profile.TRAINING, Profile.NATIVE_API, Profile.OPENAI})
RPC = frozenset({Profile.GRPC, Profile.DHT, Profile.PIPELINE})
CONTROL, MUTANT, VARIANT, HOSTILE = "control", "mutant", "variant", "hostile"
REFERENCE = "the reference node"


@cache
def rows_of(group: str) -> Sequence[Any]:
    """Return the rows of a group, in the same order in each process."""
    groups: dict[str, Callable[[], Sequence[Any]]] = {
        MUTANT: mutants,
        VARIANT: variants,
        HOSTILE: lambda: list(hostile.ROWS),
    }
    return groups[group]()


@cache
def _faults() -> tuple[Any, ...]:
    return tuple(spread(every_fault()))


@dataclass(frozen=True)
class Derived:
    """Derived faults of the node that were judged, by their numbers, and what a sample came to."""

    ended: tuple[tuple[int, str, tuple[str, ...], float], ...]
    confirmed: int
    unlike: tuple[str, ...]

    @property
    def table(self) -> NodeTable:
        """The table of them."""
        ended = tuple(Ended(_faults()[at], how, by, took) for at, how, by, took in self.ended)
        left = len(_faults()) - len(ended)
        return NodeTable(REFERENCE, ended, left, self.confirmed, self.unlike)


def everything(settings: dict[str, Any], **changes: Any) -> Target:
    """Make a target that allows everything."""
    # The draft of the next edition, so that what is new is judged too.
    more = {"allow": ["mutate", "spend", "intrusive"], "budget": 5000.0, "edition": DRAFT}
    target = make_target({**settings, **more})
    return replace(target, **changes)


@dataclass(frozen=True)
class Behind:
    """A node behind the layer, and the target for it."""

    layer: Layer
    target: Target

    def judge(self, group: str, number: int) -> str:
        """Judge a row of a group; return the gap, or an empty string."""
        if group == CONTROL:
            return blamed(Runner(replace(self.target, examples=2)).run())
        judges: dict[str, Callable[[Layer, Target, Any], str]] = {
            MUTANT: _judge_mutant, VARIANT: _judge_variant, HOSTILE: hostile.judge,
        }  # fmt: skip
        try:
            return judges[group](self.layer, self.target, rows_of(group)[number])
        finally:
            self.layer.rewrite = same_request
            self.layer.http_hook, self.layer.grpc_hook = no_http_hook, no_grpc_hook

    def judge_derived(self, within_s: float) -> Derived:
        """Judge as many derived faults as fit into the time."""
        judge = DerivedJudge(self.layer, replace(impatient(self.target), timeout_s=10.0))
        ended = judge.judge_all(_faults(), within_s=within_s)
        table = confirm(REFERENCE, judge, ended, len(_faults()))
        numbered = tuple((at, one.how, one.by, one.took_s) for at, one in enumerate(ended))
        return Derived(numbered, table.confirmed, table.unlike)


@contextmanager
def behind(folder: Path, port: int) -> Iterator[Behind]:
    """Start the nodes and the layer, which end with the context."""
    with rig(folder, port, limited=False) as running:
        accept_updates(folder, running.urls[0])
        train(running)
        layer = Layer(running.settings["url"], running.settings["grpc"])
        layer.remembers_for = running.settings["token"]
        layer.know_tokens(running.settings["token"], running.settings["second_token"])
        # Only these two answers show training; frozen, they allow the busy nodes to stop training.
        for target in ("/api/training/global", "/api/training/verify"):
            layer.freeze(target)
        rest(running)
        try:
            with Toy(layer) as served:
                yield Behind(layer, _through(running, served))
        finally:
            layer.close()


def _through(running: Rig, served: Serving) -> Target:
    """Return the target for the node behind the layer."""
    settings = {**running.settings, "url": served.url, "grpc": served.grpc}
    # The configuration names the node's own ports, which keep their distance of 1000.
    return everything(settings, timeout_s=20.0, burst_s=0.0)


def _judge_mutant(layer: Layer, target: Target, row: Mutant) -> str:
    """Run the requirement against the mutant."""
    layer.http_hook, layer.grpc_hook = row.http, row.grpc
    run = Runner(replace(target, examples=row.examples), only=[row.ident]).run()
    if run.faults:
        return f"the suite broke down: {sorted(run.faults)}"
    result = next(item for item in run.results if item.requirement.id == row.ident)
    failed = {item.requirement.id for item in run.results if item.outcome is Outcome.FAIL}
    wanted = Outcome.FAIL if row.level is Level.MUST else Outcome.WARN
    if result.outcome is not wanted:
        return f"not caught: {result.standing.value} {result.reason}"
    others = failed - {row.ident} - row.also
    return f"violates others: {', '.join(sorted(others))}" if others else ""


def blamed(run: Run) -> str:
    """Describe the MUSTs that a run leaves violated or inconclusive."""
    wrong = [
        f"{item.requirement.id} {item.reason}"
        for item in run.results
        if item.outcome is Outcome.FAIL
        or (item.outcome is Outcome.OPEN and item.requirement.level is Level.MUST)
    ]
    return "; ".join([*wrong, *(f"{name} broke down" for name in run.faults)])


def _judge_variant(layer: Layer, target: Target, row: Variant) -> str:
    """Run all checks against the variant."""
    layer.http_hook, layer.grpc_hook = row.http, row.grpc
    layer.rewrite = getattr(row.http, "rewrite", same_request)
    # The profiles of the other interface never meet the hook, so they do not run.
    profiles = target.profiles & (HTTP if row.grpc is no_grpc_hook else RPC)
    return blamed(
        Runner(replace(target, examples=1, profiles=profiles), only=MUSTS, parallel=2).run()
    )
