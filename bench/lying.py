"""How many false tokens reach clients before a lying holder is found (decision 0211).

``python -m bench.lying [--generations N] [--rate RATE...]`` lets one holder of three, which came
first, raise one logit of its answers by 50: always, or once in ten. For each rate there are a new
driver and new holders; no check at all is the peer. Eight clients ask at once, so that all holders
are used. A token counts as false from the first one on that differs from what a node with all
layers says, if it was delivered. Beside them: generations that ended with an error, for which
nobody pays. The figures are counts, so other work on the machine does them little harm.
"""

from __future__ import annotations

import argparse
import json
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any

from bench.node_process import RunningNode, running_node
from bench.pipeline import wait_joined
from bench.random_model import THREADS

GENERATIONS, TOKENS = 100, 24
CLIENTS = 8
FAULTS = ("lie", "lie-rarely")
RATES = (0.0, 1 / 128)
DRIVEN, HELD = "0-3", "4-7"
ANSWER_S = 120.0


@dataclass
class Outcome:
    """What clients got."""

    delivered: int = 0
    false: int = 0
    failed: int = 0
    """Generations that ended with an error."""
    last_false: int = 0
    """The generation in which the last false token came, from 1."""


def measure(fault: str, rate: float, expected: list[list[str]]) -> Outcome:
    """Ask the same questions through a driver that knows two honest holders and a liar."""
    outcome = Outcome()
    with ExitStack() as stack:
        checks = {"MESHNODE_PIPELINE_CHECKS": str(rate)}
        driver = stack.enter_context(running_node("", THREADS, "--layers", DRIVEN, **checks))
        joining = ("--layers", HELD, "--tracker", driver.url)
        liar = f"tools.siege.bad_holder {fault}"
        for number, program in enumerate((liar, "meshnode", "meshnode"), 1):
            stack.enter_context(running_node("", THREADS, *joining, program=program))
            wait_joined(driver, number)
        numbers = range(1, len(expected) + 1)
        pool = stack.enter_context(ThreadPoolExecutor(CLIENTS))
        answers = pool.map(partial(stream, driver), numbers)
        for number, wanted, (tokens, complete) in zip(numbers, expected, answers, strict=True):
            pairs = zip(tokens, wanted, strict=False)
            right = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            outcome.delivered += len(tokens)
            outcome.false += len(tokens) - right
            outcome.failed += not complete
            if right < len(tokens):
                outcome.last_false = number
    return outcome


def stream(node: RunningNode, number: int) -> tuple[list[str], bool]:
    """The tokens of one stream, and whether it ended as it should."""
    body = {"prompt": f"Story {number}. Once upon a time", "max_tokens": TOKENS, "temperature": 0}
    asked = urllib.request.Request(  # noqa: S310 - our own node
        f"{node.url}/api/v1/inference",
        json.dumps({**body, "stream": True}).encode(),
        {"Authorization": f"Bearer {node.token}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(asked, timeout=ANSWER_S) as answer:  # noqa: S310
            events: list[Any] = [
                json.loads(line[5:]) for line in answer if line.startswith(b"data:")
            ]
    except urllib.error.HTTPError:
        return [], False
    tokens = [event["token"] for event in events if "token" in event]
    return tokens, not any("error" in event for event in events)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Tokens of a lying holder that reach clients.")
    parser.add_argument("--generations", type=int, default=GENERATIONS)
    parser.add_argument("--rate", type=float, nargs="+", default=RATES)
    options = parser.parse_args()
    with running_node("", THREADS) as whole:
        expected = [stream(whole, number)[0] for number in range(1, options.generations + 1)]
    print("liar        rate    tokens   false  errors  last false in generation", flush=True)
    for fault in FAULTS:
        for rate in options.rate:
            found = measure(fault, rate, expected)
            print(
                f"{fault:11} {rate:.4f} {found.delivered:8} {found.false:7} {found.failed:7}"
                f" {found.last_false:7} of {options.generations}",
                flush=True,
            )


if __name__ == "__main__":
    main()
