"""`python -m conformance.judging`: judge the suite, print the kill matrix, write JUDGE.md.

Exits with 1 on any gap: a mutant that is not caught or violates other MUSTs, a variant that fails,
silence or garbage that proves something, a MUST that no run against real nodes proves. It takes an
hour: with `--rows FILE --resume` it goes on with the rows that the file lacks, or has with a gap.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from conformance.catalogue import Level, Profile, load
from conformance.editions import DRAFT
from conformance.ended import Run
from conformance.judging import acceptance, hostile, matrix
from conformance.judging.derived.judge import (
    DerivedJudge,
    every_fault,
    impatient,
    spread,
)
from conformance.judging.derived.table import NodeTable, confirm
from conformance.judging.layer import Layer
from conformance.judging.nodes import Rig, rest, rig, train
from conformance.judging.rows import Judged, Rows
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


def everything(settings: dict[str, Any], **changes: Any) -> Target:
    """Make a target that allows everything."""
    # The draft of the next edition, so that what is new is judged too.
    more = {"allow": ["mutate", "spend", "intrusive"], "budget": 5000.0, "edition": DRAFT}
    target = make_target({**settings, **more})
    return replace(target, **changes)


def judge_mutant(layer: Layer, target: Target, row: Mutant) -> str:
    """Run the requirement against the mutant; return the gap, or an empty string."""
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


def judge_variant(layer: Layer, target: Target, row: Variant) -> str:
    """Run all checks against the variant; return the gap, or an empty string."""
    layer.http_hook, layer.grpc_hook = row.http, row.grpc
    layer.rewrite = getattr(row.http, "rewrite", same_request)
    # The profiles of the other interface never meet the hook, so they do not run.
    profiles = target.profiles & (HTTP if row.grpc is no_grpc_hook else RPC)
    return blamed(
        Runner(replace(target, examples=1, profiles=profiles), only=MUSTS, parallel=2).run()
    )


def each(group: str, rows: list[Any], judge: Callable[[Any], str], found: Rows, only: str) -> None:
    """Judge the rows of one group, one after the other."""
    parts = only.split("|")
    chosen = [
        row
        for row in rows
        if any(part in row.name or part in getattr(row, "ident", "") for part in parts)
    ]
    for at, row in enumerate(chosen):
        ident = getattr(row, "ident", "")
        if found.has((group, row.name, ident)):
            continue
        began = time.monotonic()
        gap = judge(row)
        level = row.level.value if isinstance(row, Mutant) else ""
        took_s = time.monotonic() - began
        found.add(Judged(group, row.name, ident, level, gap, took_s))
        if gap or sys.stderr.isatty():
            print(f"{group} {at + 1}/{len(chosen)} {row.name}: {gap or 'as expected'}",
                  file=sys.stderr, flush=True)  # fmt: skip


def through_layer(running: Rig, found: Rows, only: str, derived_s: float) -> list[NodeTable]:
    """Judge mutants, variants and hostile behaviour, then derived faults, through the layer."""
    layer = Layer(running.settings["url"], running.settings["grpc"])
    layer.remembers_for = running.settings["token"]
    layer.know_tokens(running.settings["token"], running.settings["second_token"])
    # Only these two answers show training; frozen, they allow the busy nodes to stop training.
    for target in ("/api/training/global", "/api/training/verify"):
        layer.freeze(target)
    rest(running)
    with Toy(layer) as served:
        behind = through(running, served)
        control = blamed(Runner(replace(behind, examples=2)).run())
        found.add(Judged("control", "no mutant at all", "", "", control, 0.0))
        each("mutant", mutants(), lambda row: judge_mutant(layer, behind, row), found, only)
        each("variant", variants(), lambda row: judge_variant(layer, behind, row), found, only)
        layer.rewrite = same_request
        each("hostile", hostile.ROWS, lambda row: hostile.judge(layer, behind, row), found, only)
        layer.http_hook, layer.grpc_hook = no_http_hook, no_grpc_hook
        tables: list[NodeTable] = []
        if derived_s:
            judge = DerivedJudge(layer, replace(impatient(behind), timeout_s=10.0))
            faults = spread(every_fault())
            ended = judge.judge_all(faults, within_s=derived_s)
            tables.append(confirm("the reference node", judge, ended, len(faults)))
    layer.close()
    return tables


def through(running: Rig, served: Serving) -> Target:
    """Return the target for the node behind the layer."""
    settings = {**running.settings, "url": served.url, "grpc": served.grpc}
    # The configuration names the node's own ports, which keep their distance of 1000.
    return everything(settings, timeout_s=20.0, burst_s=0.0)


def main() -> int:
    """Judge the suite, and return the exit status."""
    parser = argparse.ArgumentParser(prog="conformance.judging")
    parser.add_argument("--port", type=int, default=25100, help="HTTP port of the first node")
    parser.add_argument("--only", default="", help="parts of names or ids of rows, separated by |")
    parser.add_argument("--no-acceptance", action="store_true", help="run only the fault layer")
    parser.add_argument("--derived-s", type=float, default=900.0,
                        help="seconds for the derived faults; 0 for none")  # fmt: skip
    parser.add_argument("--rows", type=Path, metavar="FILE",
                        help="where each row is kept as soon as it is known")  # fmt: skip
    parser.add_argument("--resume", action="store_true",
                        help="judge only what the file lacks, or has with a gap")  # fmt: skip
    parser.add_argument("--folder", type=Path, help="folder of the nodes; default: a temporary one")
    options = parser.parse_args()
    found = Rows(options.rows)
    if options.resume:
        found.read()
    with tempfile.TemporaryDirectory(prefix="judge-") as temporary:
        folder = options.folder or Path(temporary)
        if not options.no_acceptance:
            runs = acceptance.run(folder / "acceptance", options.port)
            print("\n".join(acceptance.gaps(runs)), file=sys.stderr, flush=True)
        else:
            runs = []
        with rig(folder / "layer", options.port + 10, limited=False) as running:
            accept_updates(folder / "layer", running.urls[0])
            train(running)
            tables = through_layer(running, found, options.only, options.derived_s)
    text = matrix.render(found.found, runs, tables)
    print(text)
    if not options.only and not options.no_acceptance:
        matrix.FILE.write_text(text, encoding="utf-8")
    return 1 if matrix.gaps(found.found, runs, tables) else 0


if __name__ == "__main__":
    sys.exit(main())
