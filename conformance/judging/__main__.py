"""`python -m conformance.judging`: judge the suite, print the kill matrix, write JUDGE.md.

Exits with 1 on any gap: a mutant that is not caught or violates other MUSTs, a variant that fails,
silence or garbage that proves something, a MUST that no run against real nodes proves. It takes an
hour or two: with `--rows FILE --resume` it goes on with what the file lacks, or has with a gap.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from conformance.judging import acceptance, matrix
from conformance.judging.rows import Rows
from conformance.judging.workers import judge_rows


def main() -> int:
    """Judge the suite, and return the exit status."""
    parser = argparse.ArgumentParser(prog="conformance.judging")
    parser.add_argument("--port", type=int, default=25100, help="HTTP port of the first node")
    parser.add_argument("--only", default="", help="parts of names or ids of rows, separated by |")
    parser.add_argument("--no-acceptance", action="store_true", help="run only the fault layer")
    parser.add_argument("--derived-s", type=float, default=900.0,
                        help="seconds for the derived faults; 0 for none")  # fmt: skip
    parser.add_argument("--at-once", type=int, default=3, metavar="N",
                        help="processes, each with two nodes of its own")  # fmt: skip
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
        runs = []
        if not options.no_acceptance:
            runs = acceptance.run(folder / "acceptance", options.port)
            print("\n".join(acceptance.gaps(runs)), file=sys.stderr, flush=True)
        tables = judge_rows(folder, options.port + 10, options.at_once, found, options.only,
                            options.derived_s)  # fmt: skip
    text = matrix.render(found.found, runs, tables)
    print(text)
    if not options.only and not options.no_acceptance:
        matrix.FILE.write_text(text, encoding="utf-8")
    return 1 if matrix.gaps(found.found, runs, tables) else 0


if __name__ == "__main__":
    sys.exit(main())
