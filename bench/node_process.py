"""A node process for benchmarks, started as a user would start it."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

TOKEN = "bench-operator-token"  # noqa: S105 - for a node that lives only during this run
NO_LIMITS = {
    "MESHNODE_LIMITS_REQUESTS_PER_SECOND_PER_ADDRESS": "1000000",
    "MESHNODE_LIMITS_REQUESTS_PER_SECOND_PER_TOKEN": "1000000",
    "MESHNODE_LIMITS_BURST_PER_ADDRESS": "1000000",
    "MESHNODE_LIMITS_BURST_PER_TOKEN": "1000000",
}
"""A benchmark sends more requests than the default rate limits allow one client."""

CHAIN_WITHIN_S = 300.0


@dataclass(frozen=True)
class RunningNode:
    """A node that is ready."""

    url: str
    token: str
    ready_s: float
    """Seconds from the start of ``run_node`` to the banner, as the banner reports them."""
    memory_bytes: int
    """Resident set size when the node became ready."""
    pid: int
    data_dir: Path


@contextmanager
def running_node(
    model: str = "",
    threads: int = 2,
    *arguments: str,
    program: str = "meshnode",
    **settings: str,
) -> Iterator[RunningNode]:
    """Run a node on a free port and kill it at the end; ``settings`` are environment variables.

    ``program`` is a module that runs a node, and its own arguments, which come before the node's.
    """
    port = _free_port()
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            *program.split(),
            "--port",
            str(port),
            "--data-dir",
            folder,
        ]
        command += ["--model", model] if model else []
        command += arguments
        variables = {"MESHNODE_TOKEN": TOKEN, "MESHNODE_RESOURCES_CPU_THREADS": str(threads)}
        process = psutil.Popen(
            command,
            env={**psutil.Process().environ(), **variables, **NO_LIMITS, **settings},
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            banner = process.stdout.readline()
            found = re.search(r"ready in ([\d.]+) s", banner)
            if not found:
                raise RuntimeError("the node did not start")
            memory = process.memory_info().rss
            _wait_ready(f"http://127.0.0.1:{port}")
            yield RunningNode(
                f"http://127.0.0.1:{port}",
                TOKEN,
                float(found[1]),
                memory,
                process.pid,
                Path(folder),
            )
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


def _wait_ready(url: str) -> None:
    """Wait until the node's chain is up, since the model is checked before, which takes a core."""
    deadline = time.monotonic() + CHAIN_WITHIN_S
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{url}/healthz"):  # noqa: S310 - our own node
                return
        except urllib.error.HTTPError:
            time.sleep(0.5)
    raise RuntimeError("the chain did not come up")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return min(int(probe.getsockname()[1]), 64535)
