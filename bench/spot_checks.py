"""What it costs to have a share of the results computed twice (decision 0211).

``python -m bench.spot_checks [RATE...]`` runs two holders of the second half of the default model,
and a driver of the first half for each rate: 0 (no checks), and those given. The drivers take
turns, with one stream and with eight. All nodes share this machine, so what the second holder
computes again is missing elsewhere: a network of machines that have time to spare loses less.
"""

from __future__ import annotations

import argparse
import re
import urllib.request
from contextlib import ExitStack

from bench.node_process import RunningNode, running_node
from bench.pipeline import rate, wait_joined
from bench.random_model import THREADS
from bench.table import BenchRow, in_turn, throughput_row

ROUNDS = 5
WARM_ROUNDS = 3
"""Rounds after which the holders are newcomers no more."""
RATES = (1 / 128, 1 / 32)
DRIVEN, HELD = "0-3", "4-7"
SESSIONS = (1, 8)
MIN_SHARE = 0.9


def run(rates: tuple[float, ...] = RATES) -> list[BenchRow]:
    """Measure drivers with these rates beside one that checks nothing."""
    rows: list[BenchRow] = []
    with ExitStack() as stack:
        drivers: list[RunningNode] = []
        for each in (0.0, *rates):
            known = ("--tracker", drivers[0].url) if drivers else ()
            checks = {"MESHNODE_PIPELINE_CHECKS": str(each)}
            arguments = ("--layers", DRIVEN, *known)
            drivers.append(stack.enter_context(running_node("", THREADS, *arguments, **checks)))
        for _ in range(2):
            joining = ("--layers", HELD, "--tracker", drivers[0].url)
            stack.enter_context(running_node("", THREADS, *joining))
        for driver in drivers:
            wait_joined(driver, len(drivers) + 1)
        for sessions in SESSIONS:
            measures = [rate(driver, sessions) for driver in drivers]
            in_turn(WARM_ROUNDS, *measures)
            unchecked, *checked = in_turn(ROUNDS, *measures)
            for share, ours in zip(rates, checked, strict=True):
                name = f"{sessions} streams, {share:.4f} of the results checked vs none"
                rows.append(throughput_row(name, ours, unchecked, MIN_SHARE, "token/s"))
        rows += [
            BenchRow(f"checks that agreed at {share:.4f}", _agreed(driver), None, None, None, "")
            for share, driver in zip((0.0, *rates), drivers, strict=True)
        ]
    return rows


def _agreed(driver: RunningNode) -> float:
    """How many results were computed twice alike, of the measurements and what came before."""
    asked = urllib.request.Request(  # noqa: S310 - our own node
        f"{driver.url}/metrics", headers={"Authorization": f"Bearer {driver.token}"}
    )
    with urllib.request.urlopen(asked) as answer:  # noqa: S310
        found = re.search(
            r"^meshnode_pipeline_checks_agreed_total ([0-9.]+)", answer.read().decode(), re.M
        )
    if found is None:
        raise RuntimeError("the driver tells of no checks")
    return float(found[1])


def main() -> None:
    """Measure and print."""
    from bench.__main__ import print_table

    parser = argparse.ArgumentParser(description="What spot checks cost.")
    parser.add_argument("rates", nargs="*", type=float, default=RATES, metavar="RATE")
    print_table({"checks": run(tuple(parser.parse_args().rates))})


if __name__ == "__main__":
    main()
