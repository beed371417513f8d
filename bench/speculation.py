"""A pipeline over a network with a delay, with guesses and without.

``python -m bench.speculation`` needs the right to make network namespaces. Three hosts share a
model, with 50 ms a way and 100 Mbit/s between any two of them. Two drivers on the first host use
the same holders: one guesses tokens, the other has ``pipeline.speculate`` off. Both answer the
same requests in turn, and the texts must be equal. The same is measured without any delay, where
guessing must not cost anything.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.netem import Host, hosts
from bench.node_process import NO_LIMITS, TOKEN
from bench.table import BenchRow

DELAY_MS, MBIT = 50.0, 100.0
PORT = 8000
PROMPTS = ("Once upon a time", "The little fox", "One morning, Mira")
"""How stories of the default model begin."""
TOKENS = 120
ROUNDS = 2
JOINED_WITHIN_S = 120.0


DEFAULT_LAYERS = ("0-2", "3-5", "6-7")


def run(
    model: str = "",
    layers: tuple[str, ...] = DEFAULT_LAYERS,
    dtype: str = "auto",
    draft: str = "",
    rounds: int = ROUNDS,
) -> list[BenchRow]:
    """Measure with the delay and without. Only the driver that guesses has the draft."""
    rows = []
    guesses = {"MESHNODE_DRAFT": draft}
    for name, delay_ms, mbit, target in (
        (f"{DELAY_MS:.0f} ms a way, {MBIT:.0f} Mbit/s", DELAY_MS, MBIT, 2.5),
        ("no delay", 0.0, 0.0, 0.95),
    ):
        with network(model, layers, delay_ms, mbit, (guesses, PLAIN), dtype) as (host, urls):
            guessing, plain = rates(host, urls, rounds=rounds)
        row = BenchRow(f"3 nodes, {name}", guessing, plain, guessing / plain, target, "token/s")
        rows.append(row)
    return rows


PLAIN = {"MESHNODE_PIPELINE_SPECULATE": "false"}


@contextmanager
def network(
    model: str,
    layers: tuple[str, ...],
    delay_ms: float,
    mbit: float,
    settings: tuple[dict[str, str], dict[str, str]] = ({}, PLAIN),
    dtype: str = "auto",
) -> Iterator[tuple[Host, tuple[str, str]]]:
    """Two drivers with these settings, and their holders; the host and URLs of both drivers.

    All keep their weights in the format ``dtype``.

    By default the first one guesses and the second one does not.
    """
    kept = {"MESHNODE_DTYPE": dtype}
    with ExitStack() as stack:
        made = stack.enter_context(hosts(len(layers), delay_ms, mbit))
        first = made[0]
        urls = f"http://{first.address}:{PORT}", f"http://{first.address}:{PORT + 10}"
        joining = ("--tracker", urls[0])
        begun = [
            node(first, model, PORT, "--layers", layers[0], **settings[0], **kept),
            node(first, model, PORT + 10, "--layers", layers[0], *joining, **settings[1], **kept),
            *(
                node(host, model, PORT, "--layers", held, *joining, **kept)
                for host, held in zip(made[1:], layers[1:], strict=True)
            ),
        ]
        nodes = [stack.enter_context(one) for one in begun]
        for process in nodes:
            if process.stdout is None or "ready in" not in process.stdout.readline():
                raise RuntimeError("a node did not start")
        for url in urls:
            _wait_joined(first, url, len(layers))
        yield first, urls


@contextmanager
def node(
    host: Host, model: str, port: int, *arguments: str, **settings: str
) -> Iterator[subprocess.Popen[str]]:
    """Run a node on a host until the end."""
    with tempfile.TemporaryDirectory() as folder:
        command = host.command(sys.executable, "-m", "meshnode", "--port", str(port))
        command += ["--host", host.address, "--data-dir", folder, *arguments]
        command += ["--model", model] if model else []
        variables = {"MESHNODE_TOKEN": TOKEN, "MESHNODE_RESOURCES_CPU_THREADS": "1"}
        variables |= NO_LIMITS | settings
        with (Path(folder) / "log").open("w") as errors:
            process = subprocess.Popen(
                command,
                env={**os.environ, **variables},
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def rates(
    host: Host, urls: tuple[str, str], most: int = TOKENS, rounds: int = ROUNDS
) -> tuple[float, float]:
    """Tokens a second of each driver, in turn, for texts of so many; raises if a text differs."""
    seconds: dict[str, list[float]] = {url: [] for url in urls}
    for round_ in range(rounds + 1):
        for prompt in PROMPTS:
            body = {"prompt": prompt, "max_tokens": most, "temperature": 0}
            answers = {url: ask(host, url, body) for url in urls}
            texts = {answer["text"] for answer in answers.values()}
            if len(texts) > 1:
                raise RuntimeError(f"the texts differ: {texts}")
            # The first round opens connections and measures what guessing takes.
            if round_:
                for url, answer in answers.items():
                    tokens = answer["usage"]["completion_tokens"]
                    seconds[url].append(tokens / (answer["timing"]["inference_ms"] / 1e3))
    guessing, plain = (statistics.harmonic_mean(seconds[url]) for url in urls)
    return guessing, plain


def ask(host: Host, url: str, body: dict[str, Any]) -> Any:
    """One request, from a process on the same host."""
    return _curl(host, f"{url}/api/v1/inference", "--data", json.dumps(body))


def _wait_joined(host: Host, url: str, peers: int) -> None:
    deadline = time.monotonic() + JOINED_WITHIN_S
    while time.monotonic() < deadline:
        if _curl(host, f"{url}/api/v1/peers")["total"] >= peers:
            return
        time.sleep(0.5)
    raise RuntimeError("the nodes did not find one another")


def _curl(host: Host, url: str, *arguments: str) -> Any:
    headers = ("-H", f"Authorization: Bearer {TOKEN}", "-H", "Content-Type: application/json")
    command = host.command("curl", "-sS", *headers, *arguments, url)
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def main() -> None:
    """Measure and print."""
    from bench.__main__ import print_table

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="", help="as --model of a node has it")
    parser.add_argument("layers", nargs="*", default=DEFAULT_LAYERS, help="of each host")
    parser.add_argument("--dtype", default="auto", help="of all nodes")
    parser.add_argument("--draft", default="", help="of the driver that guesses")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of three texts for a figure")
    options = parser.parse_args()
    layers = tuple(options.layers)
    rows = run(options.model, layers, options.dtype, options.draft, options.rounds)
    print_table({"speculation": rows})


if __name__ == "__main__":
    main()
