"""Transfers under CometBFT beside the engine's own ``kvstore``, with the same load.

    python -m bench.comet [SECONDS] [REPEATS] [VALIDATORS...]

Sixteen connections call ``broadcast_tx_sync`` for some seconds; blocks pause for a second. Three
applications run in turn: ``kvstore`` keeps the bytes that it gets, in the engine's own process; the
bare one (``comet_bare.py``), a process of its own, accepts all and keeps nothing; ours checks
a signature, a nonce and a balance, and writes a Merkle root. A figure is the median of the
repetitions; the rate is that of the blocks committed while the load ran, by their own times.
Processor time for each committed transaction holds on a machine that does other things as well, and
is given for the engines, for our nodes and for the sender of the load.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.comet_load import ACCOUNTS, Load, pairs, transfers
from meshnode.domain.chain.comet.times import parse_time
from meshnode.services.engine.home import ABCI_SOCKET, EngineSettings, node_key, write_home
from meshnode.services.engine.program import find_program
from spec_tests.domain.chain.net import PROFILE
from spec_tests.processes.comet.cluster import Cluster, Validator, cluster

LIMITS = replace(PROFILE.limits, block_transactions=20_000, block_bytes=8 * 1024 * 1024)
FEWEST_BLOCKS = 5
"""On a busy machine the load goes on until so many blocks have been made."""
DRAIN_S = 60.0
"""How long the rest of what was accepted may take to get into blocks."""
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Running:
    """Validators of either application, and their processes."""

    cluster: Cluster
    engines: list[subprocess.Popen[bytes]] = field(default_factory=list)
    applications: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def engine_pids(self) -> list[int]:
        """The consensus engines."""
        found = [pid for one in self.cluster.validators for pid in one.engines()]
        return [engine.pid for engine in self.engines] or found

    def node_pids(self) -> list[int]:
        """Our nodes; none under ``kvstore``, whose application is a part of the engine."""
        if self.engines:
            return [one.pid for one in self.applications]
        return [one.process.pid for one in self.cluster.validators if one.process]


def processor_s(pids: list[int]) -> float:
    """Processor time of some processes."""
    total = 0
    for pid in pids:
        columns = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(columns[11]) + int(columns[12])
    return total / TICKS


def headers(validator: Validator, first: int) -> list[tuple[int, int, int]]:
    """Height, time in nanoseconds and number of transactions of the blocks from ``first`` on."""
    found: list[tuple[int, int, int]] = []
    tip = validator.height()
    while first <= tip:
        last = min(tip, first + 19)
        answer = validator.call("blockchain", minHeight=str(first), maxHeight=str(last))
        for one in reversed(answer["block_metas"]):
            header = one["header"]
            row = int(header["height"]), parse_time(header["time"]), int(one["num_txs"])
            found.append(row)
        first = last + 1
    return found


def to_blocks_ms(
    validator: Validator, sampled: list[tuple[bytes, int]], blocks: list[tuple[int, int, int]]
) -> float:
    """The median time from a call to the end of the vote on the transaction's block."""
    # A block is dated by the votes for the one before it.
    voted = {height - 1: time_ns for height, time_ns, _ in blocks}
    sent = {hashlib.sha256(raw).digest(): at for raw, at in sampled}
    waits: list[float] = []
    for height, _, count in blocks:
        if not count or height not in voted:
            continue
        for text in validator.call("block", height=str(height))["block"]["data"]["txs"]:
            name = hashlib.sha256(base64.b64decode(text)).digest()
            if name in sent:
                waits.append((voted[height] - sent[name]) / 1e6)
    return statistics.median(waits)


def measure(running: Running, transactions: list[list[bytes]], seconds: float) -> dict[str, float]:
    """Committed transactions a second, and the processor time of each in milliseconds."""
    this, watched = running.cluster, running.cluster.validators[0]
    this.wait_height(2)
    first = this.tip() + 1
    engines, nodes = running.engine_pids(), running.node_pids()
    load = Load([one.socket for one in this.validators], transactions)
    before = processor_s(engines), processor_s(nodes), time.process_time()
    took = load.run(seconds, lambda: watched.height() >= first + FEWEST_BLOCKS)
    spent = (
        processor_s(engines) - before[0],
        processor_s(nodes) - before[1],
        time.process_time() - before[2],
    )
    blocks = headers(watched, first)
    inside = sum(count for _, _, count in blocks)
    rate = sum(count for _, _, count in blocks[1:]) / ((blocks[-1][1] - blocks[0][1]) / 1e9)
    total, end = inside, time.monotonic() + DRAIN_S
    while total < load.accepted and time.monotonic() < end:
        time.sleep(0.2)
        more = headers(watched, blocks[-1][0] + 1)
        blocks, total = blocks + more, total + sum(count for _, _, count in more)
    this.wait_height(blocks[-1][0] + 1, [watched])
    blocks += headers(watched, blocks[-1][0] + 1)
    load.close()
    # What was accepted has been handled up to its check at least, so it has its share of the time.
    each = 1000 / max(1, load.accepted)
    return {
        "a_second": round(rate, 1),
        "accepted_a_second": round(load.accepted / took, 1),
        "lost": load.accepted - total,
        "refused": load.refused,
        "dry": load.is_dry,
        "blocks": len(blocks),
        "to_check_ms": round(1000 * load.median_s, 1),
        "to_block_ms": round(to_blocks_ms(watched, load.sampled, blocks)),
        "engine_ms": round(each * spent[0], 3),
        "node_ms": round(each * spent[1], 3),
        "sender_ms": round(each * spent[2], 3),
    }


@contextmanager
def ours(folder: Path, count: int) -> Iterator[Running]:
    """Validators of this project."""
    profile = replace(PROFILE, limits=LIMITS)
    with cluster(folder, count, base=27500, accounts=ACCOUNTS, profile=profile) as this:
        this.pause_s = 1.0
        for one in this.validators:
            this.start(one)
        yield Running(this)


@contextmanager
def kvstore(folder: Path, count: int) -> Iterator[Running]:
    """Engines with their own application in the same process."""
    with engines(folder, count, 27600, "kvstore") as running:
        yield running


@contextmanager
def bare(folder: Path, count: int) -> Iterator[Running]:
    """Engines with an application beside them that accepts everything."""
    with engines(folder, count, 27700, f"unix://{ABCI_SOCKET}") as running:
        yield running


@contextmanager
def engines(folder: Path, count: int, base: int, application: str) -> Iterator[Running]:
    """Engines without our nodes; ``application`` is what their configuration names."""
    with cluster(folder, count, base=base, profile=replace(PROFILE, limits=LIMITS)) as this:
        document = json.loads(this.genesis_file.read_bytes())
        # The application begins with another state than ours.
        document.update(app_hash="", app_state={})
        genesis = json.dumps(document).encode()
        running = Running(this)
        try:
            for one in this.validators:
                one.folder.mkdir()
                peers = ",".join(other.peer for other in this.validators if other is not one)
                settings = EngineSettings(f"127.0.0.1:{one.port}", peers)
                home = write_home(one.folder, genesis, one.key, node_key(one.seed), settings)
                config = home / "config" / "config.toml"
                named = config.read_text().replace(f"unix://{ABCI_SOCKET}", application)
                config.write_text(named)
                if application != "kvstore":
                    beside = [sys.executable, "-m", "bench.comet_bare", str(home / ABCI_SOCKET)]
                    running.applications.append(subprocess.Popen(beside))
                command = [find_program(), "start", "--home", "."]
                quiet = subprocess.DEVNULL
                engine = subprocess.Popen(command, cwd=home, stdout=quiet, stderr=quiet)
                running.engines.append(engine)
            yield running
        finally:
            for process in (*running.engines, *running.applications):
                process.kill()
                process.wait()


def main() -> None:
    """Measure, and print a line of JSON for each measurement and one for each comparison."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    repeats = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    applications = (
        ("kvstore", kvstore, pairs(int(seconds * 12_000))),
        ("bare", bare, pairs(int(seconds * 12_000))),
        ("ours", ours, transfers(int(seconds * 4000))),
    )
    for count in [int(one) for one in sys.argv[3:]] or [1, 4, 7]:
        rates: dict[str, list[float]] = {name: [] for name, _, _ in applications}
        for _ in range(repeats):
            for name, begin, transactions in applications:
                folder = Path(tempfile.mkdtemp(prefix="comet-bench-"))
                with begin(folder, count) as running:
                    figures = measure(running, transactions, seconds)
                rates[name].append(figures["a_second"])
                row = {"application": name, "validators": count, **figures}
                print(json.dumps(row), flush=True)
                shutil.rmtree(folder)
        medians = {name: statistics.median(found) for name, found in rates.items()}
        ratio = round(medians["ours"] / medians["kvstore"], 3)
        print(json.dumps({"validators": count, **medians, "ratio": ratio}), flush=True)


if __name__ == "__main__":
    main()
