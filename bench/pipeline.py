"""A model split over several nodes of one machine, against one node that holds all of it.

``python -m bench.pipeline`` takes about ten minutes and 15 GB of memory. The nodes are started as a
user would start them, and find one another through a tracker. Each measurement takes turns with its
peer, so that a slower machine affects both. The nodes of a pipeline compute one after the other, so
each gets all threads; the target for two nodes is 0.9 of the rate of one.
"""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import torch
import trio

from bench.http import Load, Node, tokens_per_second
from bench.node_process import RunningNode, running_node
from bench.random_model import THREADS, random_model
from bench.table import BenchRow, in_turn, throughput_row

ROUNDS = 5
TOKENS = 48
PROMPT = "Once upon a time there was a node that served a model to its neighbours."
SESSIONS = (8, 32)
MIN_SHARE_OF_ONE = 0.9
JOINED_WITHIN_S = 60.0
STAR = {"MESHNODE_PIPELINE_CHAIN": "false"}


@contextmanager
def pipeline(model: str, *layers: str, **settings: str) -> Iterator[list[RunningNode]]:
    """Run nodes with these layers; the first is the driver, which knows the others at the start."""
    with ExitStack() as stack:
        driver = stack.enter_context(
            running_node(model, THREADS, "--layers", layers[0], **settings)
        )
        nodes = [driver]
        for held in layers[1:]:
            joining = ("--layers", held, "--tracker", driver.url)
            nodes.append(stack.enter_context(running_node(model, THREADS, *joining)))
        wait_joined(driver, len(layers) - 1)
        yield nodes


def run() -> list[BenchRow]:
    """Run the measurements."""
    torch.set_num_threads(THREADS)
    with random_model() as directory, ExitStack() as stack:
        model = str(directory)
        one = stack.enter_context(running_node(model, THREADS))
        two = stack.enter_context(pipeline(model, "0-5", "6-11"))
        three = stack.enter_context(pipeline(model, "0-3", "4-7", "8-11"))
        star = stack.enter_context(pipeline(model, "0-3", "4-7", "8-11", **STAR))
        one_stream = in_turn(ROUNDS, *(rate(node, 1) for node in (one, two[0], three[0], star[0])))
        of_one, of_two, of_three, of_star = one_stream
        rows = [
            throughput_row(
                "2 nodes vs 1, one session", of_two, of_one, MIN_SHARE_OF_ONE, "token/s"
            ),
            throughput_row("3 nodes vs 1, one session", of_three, of_one, 0.0, "token/s"),
            throughput_row("3 nodes, chain vs star", of_three, of_star, 0.0, "token/s"),
        ]
        for sessions in SESSIONS:
            ours, theirs = in_turn(2, rate(two[0], sessions), rate(one, sessions))
            name = f"2 nodes vs 1, {sessions} sessions"
            rows.append(throughput_row(name, ours, theirs, 0.0, "token/s"))
    return rows


def rate(node: RunningNode, sessions: int) -> Callable[[], float]:
    """Return a function that measures tokens per second over this many sessions."""
    load = Load(sessions, TOKENS, PROMPT)
    return partial(trio.run, tokens_per_second, Node(node.url, node.token), load, sessions)


def wait_joined(driver: RunningNode, peers: int, within_s: float = JOINED_WITHIN_S) -> None:
    """Wait until the driver knows so many peers."""
    request = urllib.request.Request(  # noqa: S310 - our own node
        f"{driver.url}/api/v1/peers", headers={"Authorization": f"Bearer {driver.token}"}
    )
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        with urllib.request.urlopen(request) as answer:  # noqa: S310 - our own node
            if json.load(answer)["total"] >= peers:
                return
        time.sleep(0.2)
    raise RuntimeError("the nodes did not find one another")


def main() -> None:
    """Measure and print."""
    from bench.__main__ import print_table

    print_table({"pipeline": run()})


if __name__ == "__main__":
    main()
