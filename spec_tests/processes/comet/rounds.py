"""Rounds of faults against four validators with real engines, under transfers and inferences.

    python -m spec_tests.processes.comet.rounds [ROUNDS] [SEED]

Each round brings about one fault, drawn by the seed, and waits until all validators are level
again without help. After each round there is one chain, money is conserved, no transaction is in it
twice, and none that a validator has confirmed is missing; at the end, every answer to a paid
inference that was seen as paid was paid once.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

from meshnode.services.engine.home import HOME
from spec_tests.processes import namespaces
from spec_tests.processes.comet.cluster import (
    SOON_S,
    Cluster,
    Validator,
    blocks_of,
    cluster,
    committed_of,
    missing,
    require_one_chain,
    wait_until,
)
from spec_tests.processes.comet.jobs import Inferences
from spec_tests.processes.comet.rpc import Refused, Silent
from spec_tests.processes.comet.stream import Stream
from spec_tests.processes.comet.validator import POINTS

PAUSE_S = 0.2


class Rounds:
    """Four validators, and the faults that can befall them."""

    def __init__(self, this: Cluster, seed: int, lab: namespaces.Lab | None) -> None:
        self.cluster = this
        self.random = random.Random(seed)
        self.lab = lab
        self.stream = Stream(this, random.Random(seed + 1))
        self.inferences = Inferences(this, random.Random(seed + 2))
        self.done: Counter[str] = Counter()
        self.faults: dict[str, Callable[[Validator], str]] = {
            "node killed at a point": self.node_at_point,
            "engine killed at a point": self.engine_at_point,
            "node killed": self.node_killed,
            "engine killed": self.engine_killed,
            "both killed": self.both_killed,
            "node stopped for a while": self.node_stopped,
            "engine stopped for a while": self.engine_stopped,
            "disk full": self.disk_full,
            "wrong state": self.wrong_state,
            "liar": self.liar,
        }
        if lab is not None:
            self.faults["one cut off"] = self.one_cut_off
            self.faults["two cut off"] = self.two_cut_off

    # Starting and levelling.

    def start(self, which: Validator, **more: object) -> None:
        enter = None
        if self.lab is not None:
            enter = self.lab.enter(self.cluster.validators.index(which))
        self.cluster.start(which, enter, **more)

    def level(self) -> None:
        """Wait until every validator has the blocks of all, and two more."""
        goal = self.cluster.tip() + 2
        self.cluster.wait_height(goal)

    def others(self, victim: Validator) -> list[Validator]:
        return [one for one in self.cluster.validators if one is not victim]

    def go_on(self, victim: Validator, blocks: int = 2) -> None:
        """Wait until the others have made more blocks without the victim."""
        others = self.others(victim)
        self.cluster.wait_height(max(one.height() for one in others) + blocks, others)

    # Faults. Each returns what exactly it did.

    def node_at_point(self, victim: Validator) -> str:
        point = self.random.choice(POINTS)
        self.cluster.stop(victim)
        self.start(victim, die_at=point, die_height=self.cluster.tip() + 2)
        assert victim.process is not None
        victim.process.wait(SOON_S)
        self.start(victim)
        return point

    def engine_at_point(self, victim: Validator) -> str:
        point = self.random.choice(POINTS)
        self.cluster.stop(victim)
        self.start(victim, kill_engine_at=point, die_height=self.cluster.tip() + 2)
        self.go_on(victim, 5)
        return point

    def node_killed(self, victim: Validator) -> str:
        time.sleep(self.random.random())
        self.cluster.stop(victim, signal.SIGKILL)
        wait_until(lambda: not victim.engines(), "the engine of a killed node")
        self.go_on(victim)
        self.start(victim)
        return ""

    def engine_killed(self, victim: Validator) -> str:
        time.sleep(self.random.random())
        for pid in victim.engines():
            os.kill(pid, signal.SIGKILL)
        return ""

    def both_killed(self, victim: Validator) -> str:
        for pid in victim.engines():
            os.kill(pid, signal.SIGKILL)
        self.cluster.stop(victim, signal.SIGKILL)
        self.go_on(victim)
        self.start(victim)
        return ""

    def node_stopped(self, victim: Validator) -> str:
        assert victim.process is not None
        victim.process.send_signal(signal.SIGSTOP)
        self.go_on(victim)
        victim.process.send_signal(signal.SIGCONT)
        return ""

    def engine_stopped(self, victim: Validator) -> str:
        engines = victim.engines()
        for pid in engines:
            os.kill(pid, signal.SIGSTOP)
        self.go_on(victim)
        for pid in engines:
            os.kill(pid, signal.SIGCONT)
        return ""

    def disk_full(self, victim: Validator) -> str:
        """Move the victim's folder to a small disk, fill it, and give it room again."""
        self.cluster.stop(victim)
        aside = victim.folder.with_suffix(".aside")
        victim.folder.rename(aside)
        victim.folder.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "t", victim.folder], check=True)
        try:
            shutil.copytree(aside, victim.folder, dirs_exist_ok=True, ignore=_no_sockets)
            self.start(victim)
            self.cluster.wait_height(self.cluster.tip() + 1)
            filler = victim.folder / "filler"
            with filler.open("wb", buffering=0) as file, suppress(OSError):
                while True:
                    file.write(bytes(1 << 20))
            self.go_on(victim, 4)
            filler.unlink()
            # The engine ends on a full disk, and the node starts it again until there is room.
            self.level()
            self.cluster.stop(victim)
            shutil.rmtree(aside)
            shutil.copytree(victim.folder, aside, ignore=_no_sockets)
        finally:
            subprocess.run(["umount", "-l", victim.folder], check=True)
            victim.folder.rmdir()
            aside.rename(victim.folder)
        self.start(victim)
        return ""

    def wrong_state(self, victim: Validator) -> str:
        self.cluster.stop(victim)
        height = self.cluster.tip() + 3
        before = len(victim.log())
        self.start(victim, wrong_from=height)
        assert victim.process is not None
        assert victim.process.wait(SOON_S) != 0
        said = victim.log()[before:]
        assert "this node's root is" in said, said[-2000:]
        self.go_on(victim)
        # Its state is worthless, but what it has signed must not be forgotten.
        signed = victim.folder / HOME / "data" / "priv_validator_state.json"
        kept = signed.read_bytes()
        shutil.rmtree(victim.folder)
        signed.parent.mkdir(parents=True)
        signed.write_bytes(kept)
        self.start(victim)
        return f"block {height}"

    def liar(self, victim: Validator) -> str:
        self.cluster.stop(victim)
        self.start(victim, lies_from=self.cluster.tip() + 2)
        self.cluster.wait_height(self.cluster.tip() + 6, self.others(victim))
        self.cluster.stop(victim)
        self.start(victim)
        return ""

    def one_cut_off(self, victim: Validator) -> str:
        assert self.lab is not None
        index = self.cluster.validators.index(victim)
        self.lab.unplug(index)
        self.go_on(victim)
        self.lab.plug(index)
        return ""

    def two_cut_off(self, victim: Validator) -> str:
        assert self.lab is not None
        self.lab.cut()
        time.sleep(2)
        before = self.cluster.tip()
        time.sleep(5)
        # Neither half has two thirds of the power: no block is made.
        assert self.cluster.tip() <= before + 1
        self.lab.mend()
        return ""

    # Rounds.

    def run(self, count: int, only: tuple[str, ...] = ()) -> None:
        """Bring about ``count`` faults: those of ``only`` in turn, or drawn from all."""
        for one in self.cluster.validators:
            self.start(one)
        self.cluster.wait_height(3)
        self.stream.start()
        self.inferences.start()
        for number in range(1, count + 1):
            drawn = self.random.choice(sorted(self.faults))
            name = only[(number - 1) % len(only)] if only else drawn
            victim = self.random.choice(self.cluster.validators)
            begun = time.monotonic()
            print(f"{number}: {name} {victim.name} ", end="", flush=True)
            detail = self.faults[name](victim)
            self.level()
            self.done[name] += 1
            self.check()
            took = time.monotonic() - begun
            print(f"{detail} ({took:.1f} s)", flush=True)
        self.stream.stop()
        self.inferences.stop()
        self.finish()

    def check(self) -> None:
        require_one_chain(self.cluster.validators)

    def finish(self) -> None:
        """Stop all, and look for everything that a validator has ever confirmed."""
        for one in self.cluster.validators:
            assert self.cluster.stop(one) == 0, one.log()[-2000:]
        self.check()
        # They stop one after another, so some have a block more; the shared ones are the same.
        longest = max(self.cluster.validators, key=lambda one: len(blocks_of(one.folder)))
        committed = committed_of(longest.folder)
        lost = [name for name in self.stream.confirmed if name not in committed]
        assert not lost, lost
        self.inferences.require_none_lost(longest.folder)
        print(f"{len(committed)} transactions, {len(self.stream.confirmed)} transfers confirmed")
        print(
            f"inferences: {dict(Counter(self.inferences.ended.values()))}, none paid twice or lost"
        )
        print(dict(self.done))


def _no_sockets(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if name.endswith((".sock", "filler"))]


def run_rounds(folder: Path, count: int, seed: int, *, only: tuple[str, ...] = ()) -> None:
    """Run some rounds. ``only`` names the faults, which then come in turn."""
    print(f"seed {seed}", flush=True)
    with ExitStack() as stack:
        lab = None
        if not namespaces.refusal():
            lab = stack.enter_context(namespaces.lab(2, 2))
        this = stack.enter_context(cluster(folder, 4))
        this.pause_s = PAUSE_S
        if lab is not None:
            for index, one in enumerate(this.validators):
                one.host = lab.address(index)
        rounds = Rounds(this, seed, lab)
        try:
            rounds.run(count, tuple(name for name in only if name in rounds.faults))
        except AssertionError:
            write_consensus(this)
            raise


def write_consensus(this: Cluster) -> None:
    """Write beside the ledgers what each running engine thinks of the consensus and its peers."""
    for one in this.running:
        with suppress(Silent, Refused):
            found = one.call("dump_consensus_state")
            (one.folder / "consensus.json").write_text(json.dumps(found, indent=1))


def main() -> None:
    """Read the arguments, and run."""
    if reason := missing():
        print(f"skipped: {reason}")
        return
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(10**6)
    only = tuple(sys.argv[3].split(",")) if len(sys.argv) > 3 else ()
    # Kept when a round fails: the logs and ledgers are the evidence.
    folder = Path(tempfile.mkdtemp(prefix="comet-rounds-"))
    print(folder)
    run_rounds(folder, count, seed, only=only)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
