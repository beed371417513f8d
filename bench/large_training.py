"""A large model in rounds over a slow network: ``python -m bench.large_training`` (interface 2.3).

Needs the right to make network namespaces. Four nodes, each on a host of its own, with 50 ms a way
and 100 Mbit/s between any two, train one model on a text. A fifth, with the default model, does not
train: it is the others' tracker, and makes the blocks of the chain that they follow. Three begin.
The fourth joins after the first round, and gets the weights from the others. In the middle of a
later round's steps one node is killed with SIGKILL, and starts again with its data folder.

It says, of each round,

- the bytes that each node has sent, as its network interface counts them: contributions, reports
  and everything else; rounds with an event, in which nodes fetch weights, stand apart;
- the share of the time in which the machine's cores computed for the nodes, from the end of a round
  to the end of the next, so that the exchange is a part of it;
- the memory of the nodes' processes beside what their weights take as float32.

The counters are read without a byte over the interface.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from bench.lab_nodes import LabNode, Training
from bench.netem import hosts
from bench.small_model import write_small_model
from bench.training_nodes import write_text
from meshnode.model.files import locate_model, open_files
from meshnode.model.loading import DEFAULT_MODEL

NODES, FOUNDERS, VICTIM = 4, 3, 1
"""The last one joins late; the victim is the second one."""
KILLED_IN = 2
"""The round after the join in which it dies; the rounds around it are ordinary ones."""
POLL_S = 3.0
"""Pause between two looks, each of which takes the cores some 50 ms."""
WITHIN_S = 3600.0
"""The longest wait for anything: a round of a large model takes its time."""
MIB = 1 << 20


@dataclass
class Sample:
    """All counters at one moment."""

    at: float = field(default_factory=time.monotonic)
    sent: list[int] = field(default_factory=list)
    cpu_s: float = 0.0

    @classmethod
    def of(cls, nodes: list[LabNode]) -> Sample:
        """Read the counters."""
        cpu_s = sum(node.cpu_s for node in nodes)
        return cls(sent=[node.sent_bytes for node in nodes], cpu_s=cpu_s)


@dataclass(frozen=True, slots=True)
class Round:
    """What one round took."""

    version: int
    """That it made."""
    seconds: float
    computing: float
    """The share of the time of all cores."""
    sent: list[int]
    """Bytes of each node."""
    event: str
    """What happened meanwhile; empty in an ordinary round."""
    held_out_loss: float
    hashes: int
    """Different weights of that version among the nodes: 1 if they agree."""


class Watch:
    """Follows the rounds of the nodes."""

    def __init__(self, nodes: list[LabNode]) -> None:
        self.nodes = nodes
        self.rounds: list[Round] = []
        self.events: list[str] = []
        self._begun = time.monotonic()

    def note(self, event: str) -> None:
        """Say what happens, and note it with its time."""
        self.events.append(f"{time.monotonic() - self._begun:.0f} s: {event}")
        print(self.events[-1], file=sys.stderr, flush=True)

    def states(self) -> list[dict[str, Any]]:
        """What each node that runs says of itself."""
        found = [node.state() for node in self.nodes if node.runs]
        return [state["nodes"][0] for state in found if state.get("nodes")]

    def until(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait for something."""
        deadline = time.monotonic() + WITHIN_S
        while not condition():
            if time.monotonic() > deadline:
                raise RuntimeError(f"waited too long for: {what}")
            time.sleep(POLL_S)

    def version(self) -> int:
        """The lowest version of those that train."""
        return min((int(state["version"]) for state in self.states()), default=0)

    def round(
        self, before: Sample, event: str = "", disturb: Callable[[], None] = lambda: None
    ) -> Sample:
        """Follow one round to its end at all nodes that train; ``disturb`` makes the event."""
        version = self.version()
        disturb()
        self.until(f"version {version + 1}", lambda: self.version() > version)
        after = Sample.of(self.nodes)
        self._add(before, after, event)
        return after

    def _add(self, before: Sample, after: Sample, event: str) -> None:
        states = self.states()
        version = min(int(state["version"]) for state in states)
        same = {state["weights_hash"] for state in states if int(state["version"]) == version}
        seconds = after.at - before.at
        cores = min(psutil.cpu_count() or 1, sum(node.runs for node in self.nodes))
        made = Round(
            version=version,
            seconds=round(seconds, 1),
            computing=round((after.cpu_s - before.cpu_s) / seconds / cores, 4),
            sent=[a - b for a, b in zip(after.sent, before.sent, strict=True)],
            event=event,
            held_out_loss=float(states[0]["held_out_loss"]),
            hashes=len(same),
        )
        self.rounds.append(made)
        sent = ", ".join(f"{each / MIB:.2f}" for each in made.sent)
        self.note(
            f"version {version} after {seconds:.0f} s, cores computed {made.computing:.1%}, "
            f"MiB sent {sent}, held-out loss {made.held_out_loss:.4f}"
        )


def half_way(node: LabNode, watch: Watch, steps: int) -> None:
    """Wait until a node has taken half of the steps of its round."""
    half = max(1, steps // 2)

    def done() -> int:
        return int(node.state().get("steps_done", 0))

    # The steps of the round before are still shown for a while.
    watch.until("the beginning of a round", lambda: done() < half)
    watch.until("half of a round", lambda: done() >= half)


def measure(training: Training, rounds: int, delay_ms: float, mbit: float) -> Watch:
    """Let the nodes train, with a node that comes late and one that dies."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        made = stack.enter_context(hosts(NODES + 1, delay_ms, mbit))
        nodes: list[LabNode] = []
        watch = Watch(nodes)
        quiet = replace(training, model="")
        tracker = stack.enter_context(LabNode(made[NODES], folder / "tracker", quiet, ""))

        def add() -> LabNode:
            place = folder / str(len(nodes))
            node = LabNode(made[len(nodes)], place, training, tracker.url)
            nodes.append(stack.enter_context(node))
            return node

        try:
            for _ in range(FOUNDERS):
                add()
            watch.until("peers", lambda: all(n.peers() >= FOUNDERS for n in nodes))
            for node in nodes:
                node.train()
            watch.until("training", lambda: len(watch.states()) == FOUNDERS)
            watch.until("the first weights", lambda: watch.version() > 0)
            watch.note("the first round is over")

            joiner = add()
            watch.until("peers of the joiner", lambda: joiner.peers() >= NODES)
            joiner.train()
            watch.note("a fourth node joins")
            watch.until("the joiner", lambda: len(watch.states()) == NODES and watch.version() > 0)
            watch.note(f"it has version {watch.version()}")

            sample = watch.round(Sample.of(nodes), "after the join")
            kill = killing(nodes[VICTIM], watch, training)
            for number in range(1, rounds):
                if number == KILLED_IN:
                    sample = watch.round(sample, "kill -9", kill)
                else:
                    sample = watch.round(sample)
        except Exception:
            for node in nodes:
                print((node.folder / "log").read_text()[-2000:], file=sys.stderr)
            raise
        return watch


def killing(victim: LabNode, watch: Watch, training: Training) -> Callable[[], None]:
    """What kills a node in the middle of its steps and starts it again."""

    def disturb() -> None:
        half_way(victim, watch, training.steps)
        victim.kill()
        watch.note("kill -9 of the second node, in the middle of its steps")
        victim.start()
        watch.until("its training", lambda: len(watch.states()) == NODES)
        watch.note("it trains again")

    return disturb


def rows(watch: Watch) -> Iterator[str]:
    """The table."""
    yield "| version | seconds | cores compute | MiB sent by each node | event | held-out loss |"
    yield "|---|---|---|---|---|---|"
    for made in watch.rounds:
        sent = ", ".join(f"{each / MIB:.2f}" for each in made.sent)
        yield (
            f"| {made.version} | {made.seconds:.0f} | {made.computing:.1%} | {sent} | {made.event} "
            f"| {made.held_out_loss:.4f} |"
        )


def main() -> None:
    """Measure, print, write a JSON file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--model", default="", help="name or directory (default: the default model)"
    )
    parser.add_argument("--small", action="store_true", help="use the model of bench.diloco")
    parser.add_argument("--text", type=Path, help="folder of text (default: one of our grammar)")
    parser.add_argument("--steps", type=int, default=50, help="H")
    parser.add_argument("--batch", type=int, default=2, help="rows in a step of a node")
    parser.add_argument("--rounds", type=int, default=4, help="rounds after the join, at least 3")
    parser.add_argument("--rate", type=float, default=1e-4, help="learning rate")
    parser.add_argument("--gradients", default="auto", help="the format of contributions")
    parser.add_argument("--upload-mib", type=float, default=0.0, help="training.upload_mib")
    parser.add_argument("--delay-ms", type=float, default=50.0)
    parser.add_argument("--mbit", type=float, default=100.0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "plots")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        text: Path = options.text or Path(folder) / "text"
        if options.text is None:
            write_text(text, 4000)
        model: str = options.model
        if options.small:
            model = str(Path(folder) / "small")
            write_small_model(Path(model), text, 0)
        training = Training(
            model,
            text.resolve(),
            options.steps,
            options.batch,
            options.rate,
            options.gradients,
            options.upload_mib,
        )
        watch = measure(training, options.rounds, options.delay_ms, options.mbit)
        path = locate_model(model) if model else DEFAULT_MODEL
        parameters = open_files(path).config().parameters
    quiet = [made for made in watch.rounds if not made.event]
    result = {
        "training": {**asdict(training), "model": options.model or "small", "text": ""},
        "parameters": parameters,
        "load_at_start": round(load, 2),
        "cores": psutil.cpu_count(),
        "peak_memory_bytes": [node.peak_bytes for node in watch.nodes],
        "weights_bytes": 4 * parameters,
        "most_bytes_of_a_round": max((max(made.sent) for made in quiet), default=0),
        "computing": statistics.fmean([made.computing for made in quiet]) if quiet else 0.0,
        "events": watch.events,
        "rounds": [asdict(made) for made in watch.rounds],
    }
    print("\n".join(rows(watch)))
    beside = [f"{node.peak_bytes / parameters / 4:.1f}" for node in watch.nodes]
    print(f"memory, as multiples of {4 * parameters / MIB:.0f} MiB: {', '.join(beside)}")
    options.out.mkdir(exist_ok=True)
    (options.out / "large-training.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
