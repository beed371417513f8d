"""``python -m bench [NAME...]``: run the benchmarks, print one table, write ``bench/out``.

Without names all benchmarks run, which takes about fifteen minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

from bench.table import BenchRow

NAMES = (
    "speed",
    "engine",
    "http",
    "requests",
    "crowd",
    "grpc",
    "startup",
    "models",
    "pipeline",
    "placement",
    "hop",
    "tensors",
)
OUT = Path(__file__).parent / "out" / "figures.json"


def main() -> None:
    """Measure and report. A missed target does not make the program fail."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(NAMES)}")
    parser.add_argument("--json", type=Path, default=OUT, metavar="FILE")
    options = parser.parse_args()
    unknown = set(options.names) - set(NAMES)
    if unknown:
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    figures: dict[str, list[BenchRow]] = {}
    for name in options.names or NAMES:
        print(f"{name} ...", file=sys.stderr)
        figures[name] = import_module(f"bench.{name}").run()
    print_table(figures)
    rows = {name: [asdict(row) for row in rows] for name, rows in figures.items()}
    machine = {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "load": os.getloadavg(),
    }
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps({"machine": machine, "figures": rows}, indent=2) + "\n")
    print(f"written to {options.json}", file=sys.stderr)


def print_table(figures: dict[str, list[BenchRow]]) -> None:
    """Print one line for each row; the ratio is above 1 if ours is better."""
    print(f"{'':8} {'':46} {'ours':>9} {'peer':>9} {'unit':8} {'ratio':>6} {'target':>6}")
    for name, rows in figures.items():
        for row in rows:
            peer = "" if row.peer is None else f"{row.peer:.4g}"
            ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
            target = "" if row.target is None else f"{row.target:.2f}"
            verdict = {None: "", True: "met", False: "MISSED"}[row.met]
            line = f"{name:8} {row.name:46} {row.ours:9.4g} {peer:>9} {row.unit:8}"
            print(f"{line} {ratio:>6} {target:>6} {verdict:6} {row.note}".rstrip())


if __name__ == "__main__":
    main()
