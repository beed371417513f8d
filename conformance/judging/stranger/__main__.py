"""Judge the stranger's node: sound, with each of its peculiarities, and with each of its faults.

``python -m conformance.judging.stranger [--sample N] [--seed N] [--at-once N] [ID...]`` needs
Node.js, and ``npm install`` in the folder ``node``. It prints a table by kind and what was not
seen. Without ids, a sample of the faults is drawn; it ends with 1 if the sound node or a
peculiarity is said to violate a MUST.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

HERE = Path(__file__).parent
NODE = HERE / "node"
TOKENS = {
    "CONFORMANCE_TOKEN": "tok-a",
    "CONFORMANCE_SECOND_TOKEN": "tok-b",
    "CONFORMANCE_EXPIRED_TOKEN": "tok-x",
}
FIRST_PORT, APART = 18700, 10
STARTS_WITHIN_S, JUDGED_WITHIN_S = 30.0, 300.0
EDITION = "4"
FAULT, PECULIAR = "--fault", "--peculiar"


@dataclass(frozen=True)
class Outcome:
    """What a run said of one fault or peculiarity."""

    ident: str
    violated: tuple[str, ...]
    """Requirements of the level MUST."""
    advised: tuple[str, ...]
    """Those of the level SHOULD."""


def kinds() -> dict[str, str]:
    """The kind of each fault by its id."""
    program = "import {FAULTS} from './faults.js';"
    program += "console.log(JSON.stringify(Object.fromEntries(FAULTS.map(f => [f.id, f.kind]))))"
    command = ["node", "--input-type=module", "-e", program]
    done = subprocess.run(command, cwd=NODE, capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def peculiarities() -> list[str]:
    """The ids of what the interface permits."""
    text = (NODE / "peculiar.js").read_text(encoding="utf-8")
    return re.findall(r"^(p-[a-z0-9-]+) \|", text, re.MULTILINE)


def judge(port: int, ident: str, *switch: str) -> Outcome:
    """Start the node with a switch, and run the suite against it with everything allowed."""
    command = ["node", "server.js", "--host", "127.0.0.1", "--port", str(port), *switch]
    with tempfile.TemporaryDirectory() as folder:
        node = subprocess.Popen(
            command, cwd=NODE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            _wait(port)
            url = f"http://127.0.0.1:{port}"
            options = ["--allow", "mutate,spend,intrusive", "--budget", "3", "--edition", EDITION]
            subprocess.run(
                [sys.executable, "-m", "conformance", "run", url, "--quiet", *options,
                 "--config", str(HERE / "target.toml"), "--out", folder],
                env={**os.environ, **TOKENS}, stdout=subprocess.DEVNULL,
                timeout=JUDGED_WITHIN_S, check=False,
            )  # fmt: skip
            report = json.loads((Path(folder) / "report.json").read_text(encoding="utf-8"))
        finally:
            node.kill()
            node.wait()
    rows = [row for row in report["requirements"] if row["standing"] == "violated"]
    of_level = {level: tuple(row["id"] for row in rows if row["level"] == level)
                for level in ("MUST", "SHOULD")}  # fmt: skip
    return Outcome(ident, of_level["MUST"], of_level["SHOULD"])


def _wait(port: int) -> None:
    """Wait until the node answers, whatever it says."""
    deadline = time.monotonic() + STARTS_WITHIN_S
    while time.monotonic() < deadline:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/health", timeout=5).close()
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit(f"the node does not answer on port {port}; see its own words in {NODE}")


class Judging:
    """Judges several switches at a time, each on a port of its own."""

    def __init__(self, at_once: int) -> None:
        """Run ``at_once`` nodes at most."""
        self._at_once = at_once
        self._free: SimpleQueue[int] = SimpleQueue()
        for number in range(at_once):
            self._free.put(FIRST_PORT + number * APART)
        self._lock = threading.Lock()

    def all(self, switch: str, idents: list[str]) -> list[Outcome]:
        """The outcome of each, in this order."""
        with ThreadPoolExecutor(self._at_once) as pool:
            return list(pool.map(lambda ident: self._one(switch, ident), idents))

    def _one(self, switch: str, ident: str) -> Outcome:
        port = self._free.get()
        try:
            found = judge(port, ident, *((switch, ident) if switch else ()))
        finally:
            self._free.put(port)
        with self._lock:
            print(f"{ident}: {' '.join(found.violated) or '-'}", file=sys.stderr, flush=True)
        return found


def main() -> None:
    """Judge, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m conformance.judging.stranger")
    parser.add_argument("ids", nargs="*", metavar="ID", help="faults or peculiarities")
    parser.add_argument("--sample", type=int, default=100, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=2, metavar="N")
    options = parser.parse_args()
    kind_of, permitted = kinds(), peculiarities()
    faults = sorted(kind_of)
    random.Random(options.seed).shuffle(faults)  # noqa: S311 - a sample that can be drawn again
    faults = faults[: options.sample]
    if options.ids:
        faults = [ident for ident in options.ids if ident in kind_of]
        permitted = [ident for ident in options.ids if ident in permitted]
    judging = Judging(options.at_once)
    alarms = [*judging.all("", ["sound"]), *judging.all(PECULIAR, permitted)]
    alarms = [outcome for outcome in alarms if outcome.violated]
    outcomes = judging.all(FAULT, faults)
    _print(kind_of, outcomes)
    print(f"sound and {len(permitted)} peculiarities: {len(alarms)} with a violation")
    for alarm in alarms:
        print(f"  {alarm.ident}: {' '.join(alarm.violated)}")
    sys.exit(bool(alarms))


def _print(kind_of: dict[str, str], outcomes: list[Outcome]) -> None:
    every = Counter(kind_of[each.ident] for each in outcomes)
    caught = Counter(kind_of[each.ident] for each in outcomes if each.violated)
    advised = Counter(
        kind_of[each.ident] for each in outcomes if each.advised and not each.violated
    )
    print("| kind | faults | violated | advice only | not seen |\n|---|---|---|---|---|")
    for kind in sorted(every):
        unseen = every[kind] - caught[kind] - advised[kind]
        print(f"| {kind} | {every[kind]} | {caught[kind]} | {advised[kind]} | {unseen} |")
    unseen = every.total() - caught.total() - advised.total()
    print(f"| all | {every.total()} | {caught.total()} | {advised.total()} | {unseen} |")
    print("not seen:", *(each.ident for each in outcomes if not each.violated + each.advised))


if __name__ == "__main__":
    main()
