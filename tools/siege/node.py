"""The nodes of a siege: started as a user would, with customers who have money."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tools.siege.attack import Attack, Target
from tools.siege.place import (
    CLIENTS,
    HTTP_PORT,
    NODE,
    end,
    peer_port,
    placed_on,
)

READY_WITHIN_S = 180.0
FUND = "200"
"""Units for each customer; a token of text costs 0.001."""
GRAVE = ("warning", "error", "critical")
CUSTOMERS = (*(f"honest-{number}" for number in range(len(CLIENTS))), "attacker")


@dataclass(frozen=True, slots=True)
class RunningNode:
    """A node process that serves."""

    process: subprocess.Popen[str]
    log: Path
    processors: frozenset[int]
    """Those that it computes on, with its siblings."""
    siblings: tuple[int, ...] = ()
    """Process ids of the further honest nodes."""

    @property
    def pid(self) -> int:
        """The process id of the node."""
        return self.process.pid


def prepare(folder: Path, processors: set[int]) -> list[str]:
    """Make the data folder of a node whose customers have money; returns their tokens."""
    data = folder / "template"
    with _serving(data, HTTP_PORT, Attack("", run=_never), processors):
        _wait_ready(f"http://{NODE}:{HTTP_PORT}/healthz")
        issue = [sys.executable, "-m", "meshnode", "token", "issue", "--data-dir", str(data)]
        issuing = [
            subprocess.Popen(
                [*issue, "--name", name, "--fund", FUND],
                env=_environment({}),
                stdout=subprocess.PIPE,
                text=True,
            )
            for name in CUSTOMERS
        ]
        outputs = [process.communicate(timeout=READY_WITHIN_S)[0] for process in issuing]
        for output in outputs:
            if f": {FUND} done" not in output:
                raise RuntimeError(f"a customer was not funded: {output}")
    return [output.split("shown this once: ")[1].split()[0] for output in outputs]


@contextmanager
def running(attack: Attack, folder: Path, processors: set[int]) -> Iterator[RunningNode]:
    """Run the node that an attack needs, in a copy of the prepared folder, and its peers."""
    data = folder / "node"
    shutil.rmtree(data, ignore_errors=True)
    shutil.copytree(folder / "template", data)
    with ExitStack() as nodes:
        node = nodes.enter_context(_serving(data, HTTP_PORT, attack, processors))
        peers = []
        for index, arguments in enumerate(attack.peers):
            peer = folder / f"peer{index}"
            shutil.rmtree(peer, ignore_errors=True)
            tracker = ("--tracker", f"http://{NODE}:{HTTP_PORT}")
            ordinary = Attack("", run=_never, arguments=(*tracker, *arguments))
            peers.append(
                nodes.enter_context(_serving(peer, peer_port(index), ordinary, processors))
            )
        # A node that lacks layers is ready only when it knows their holders.
        _wait_ready(f"http://{NODE}:{HTTP_PORT}/healthz")
        yield replace(node, siblings=tuple(peer.pid for peer in peers))


@contextmanager
def _serving(data: Path, port: int, attack: Attack, processors: set[int]) -> Iterator[RunningNode]:
    command = [sys.executable, "-m", "meshnode", "--host", NODE, "--port", str(port)]
    command += ["--data-dir", str(data), *attack.arguments]
    if attack.files:
        command = ["sh", "-c", 'ulimit -n "$0" && exec "$@"', str(attack.files), *command]
    path = data.with_suffix(".log")
    with path.open("w") as log, placed_on(processors):
        process = subprocess.Popen(
            command,
            env=_environment(attack.settings),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        banner = process.stdout.readline() if process.stdout is not None else ""
        if "ready in" not in banner:
            raise RuntimeError(f"the node did not start: {path.read_text()[-2000:]}")
        yield RunningNode(process, path, frozenset(processors))
    finally:
        end(process)


async def _never(target: Target, sources: Sequence[str]) -> None:
    """The attack on a node that is not attacked."""


def _environment(settings: Mapping[str, str]) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MESHNODE_", "OMP_"))}
    return {**kept, "PYTHONUNBUFFERED": "1", **settings}


def _wait_ready(url: str) -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - our own node
                # Until then, its chain still computes.
                if json.load(answer)["ready"]:
                    return
        except (urllib.error.URLError, OSError):
            pass
        time.sleep(0.2)
    raise RuntimeError("the node did not become ready")


def last_words(log: Path, most: int = 8) -> str:
    """The last warnings and errors of a node's log, for the report of a failure."""
    lines = log.read_text(errors="replace").splitlines()
    grave = [line for line in lines if any(f" {level} " in line[:60] for level in GRAVE)]
    return "\n".join(grave[-most:])
