"""`python -m conformance.judging.derived`: judge all derived faults, and write DERIVED.md.

They are those of the small node, of the small node that declares nothing, and of the small client.
It needs no other node. Exits with 1 if a kind is caught less often than it has to be. With
``--rows FILE --resume`` it goes on with the faults that the file lacks.
"""

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path

from conformance.judging.client import table as clients
from conformance.judging.derived import pool
from conformance.judging.derived.table import NodeTable, confirm, render
from conformance.judging.rows import Rows

FILE = Path(__file__).parents[2] / "DERIVED.md"
HEAD = """\
# Every single fault

Written by `python -m conformance.judging.derived`; do not edit. What real nodes show is in
[JUDGE.md](JUDGE.md).
"""


def main() -> int:
    """Judge, write the table, and return the exit status."""
    parser = argparse.ArgumentParser(prog="conformance.judging.derived")
    parser.add_argument("--at-once", type=int, default=4, metavar="N", help="processes")
    parser.add_argument("--within-s", type=float, default=float("inf"), metavar="S",
                        help="seconds for each node; default: until all are judged")  # fmt: skip
    parser.add_argument("--rows", type=Path, metavar="FILE",
                        help="where each fault is kept as soon as it is known")  # fmt: skip
    parser.add_argument("--resume", action="store_true", help="judge only what the file lacks")
    options = parser.parse_args()
    rows = Rows(options.rows)
    if options.resume:
        rows.read()
    tables: list[NodeTable] = []
    for small in pool.NODES:
        ended = pool.judge_small(small, options.at_once, options.within_s, rows)
        with ExitStack() as stack:
            tables.append(confirm(small.name, small.judge(stack), ended, len(small.faults)))
    tables.append(clients.tabulate(clients.every_fault(), options.within_s))
    text = "\n".join([HEAD, *render(tables)]) + "\n"
    print(text)
    FILE.write_text(text, encoding="utf-8")
    found = [gap for table in tables for gap in table.gaps()]
    print("\n".join(found), file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
