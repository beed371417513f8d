"""Besiege a node: ``python -m tools.siege [NAME...] [--rounds N] [--addresses 1|2]``."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import trio

from tools.siege.attack import Attack, attack_names, load_attack
from tools.siege.node import prepare, running
from tools.siege.place import INSIDE, enter, processors
from tools.siege.report import faults, kept, remark, table
from tools.siege.trial import Outcome, Plan, run_trial

LONGEST_PREPARATION_S = 300.0
"""For all that the attackers prepare: nobody waits for a trial that hangs."""


def main() -> None:
    """Run the attacks that are named, or all; status 1 if the node fails at any of them."""
    options = _options()
    if options.list:
        for name in attack_names():
            print(f"{name:28} {load_attack(name).description}")
        return
    enter(sys.argv[1:])
    # However it is ended, its nodes end with it.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
    chosen = options.names or attack_names()
    attacks = {name: load_attack(name) for name in chosen}
    numbers = (options.addresses,) if options.addresses else (1, 2)
    plan = Plan(numbers, options.rounds, options.seconds)
    verdicts, failed = [], False
    with tempfile.TemporaryDirectory(prefix="siege-") as name:
        folder = Path(name)
        node_on, others_on = processors()
        print(
            f"the node computes on processors {sorted(node_on)}, clients and attackers on "
            f"{sorted(others_on)}, attackers last; load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
        os.sched_setaffinity(0, others_on)
        tokens = prepare(folder, node_on)
        for name, attack in attacks.items():
            outcomes = _trial(name, attack, folder, tokens, plan, node_on)
            print(f"\n{table(name, attack, outcomes)}", flush=True)
            for outcome in outcomes:
                found = faults(outcome)
                failed = failed or bool(found)
                verdict = ("; ".join(found) or "passed") + remark(outcome)
                verdicts.append(f"  {name:28} {outcome.sources}  {kept(outcome):>5.0%}  {verdict}")
    print("\nattack, addresses, what honest clients kept, verdict:", *verdicts, sep="\n")
    sys.exit(failed)


def _trial(
    name: str,
    attack: Attack,
    folder: Path,
    tokens: list[str],
    plan: Plan,
    node_on: set[int],
) -> list[Outcome]:
    with running(attack, folder, node_on) as node:
        run = partial(run_trial, name, attack, node, tokens, plan)
        return trio.run(_bounded, run, plan.most_s + LONGEST_PREPARATION_S)


async def _bounded(run: Callable[[], Awaitable[list[Outcome]]], within_s: float) -> list[Outcome]:
    with trio.fail_after(within_s):
        return await run()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.siege", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="an attack; all without a name")
    parser.add_argument("--list", action="store_true", help="list the attacks, and run none")
    parser.add_argument("--seconds", type=float, default=4.0, help="length of each phase (4)")
    parser.add_argument("--rounds", type=int, default=2, help="attacks from each number (2)")
    parser.add_argument("--addresses", type=int, choices=(1, 2), help="both without it")
    parser.add_argument(INSIDE, action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
