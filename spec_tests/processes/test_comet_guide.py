"""The guide to several validators, on separate hosts; then the first is killed for good.

A client pays through the third one, as the public network's does, before and after: money goes on.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from spec_tests.processes import calls, forking
from spec_tests.processes.chain_files import require_conserved
from spec_tests.processes.comet.cluster import blocks_of, missing
from spec_tests.processes.comet.native_payment import pay
from spec_tests.processes.namespaces import Lab, lab, refusal
from spec_tests.processes.nodes import SOON_S, Node, environment, starting_node

pytestmark = [
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.skipif(bool(missing()), reason=missing()),
    pytest.mark.skipif(bool(refusal()), reason=refusal()),
]

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "several-validators.md"
SHOW = "meshnode chain show --address"
INIT = "meshnode chain init --validators"
START = "--host 0.0.0.0"
ENGINE = "export MESHNODE_CHAIN_ENGINE=cometbft MESHNODE_CHAIN_GENESIS=genesis.json"
COUNT, CLIENT = 4, 4
"""Validators, and the host of the client."""
PORT = 8000


class Machines:
    """Hosts of a lab, each with a data folder of its own."""

    def __init__(self, net: Lab, folder: Path) -> None:
        self.net, self.folder = net, folder

    def run(self, host: int, line: str) -> str:
        """Run a command of the guide on a host, in its folder."""
        program, *arguments = shlex.split(line)
        assert program == "meshnode"
        arguments += ["--data-dir", str(self.folder / str(host))]
        made = forking.run(
            [self.net.enter(host), calls.NODE], arguments, environment(), timeout=SOON_S
        )
        assert made.returncode == 0, made.stderr
        return str(made.stdout)

    def pay(self, host: int, seed: str, count: int) -> list[int]:
        """Have the client pay through a host; the heights that it saw."""
        to = "02fc9b11d0ce24506121dcbad78d9a809fd52770ae77230e46b00b6249eb624161"
        address = self.net.address(host)
        paying = partial(
            pay, host=address, port=PORT, seed=seed, to=to, count=count, within_s=SOON_S
        )
        made = forking.run(
            [self.net.enter(CLIENT), paying], (), environment(), timeout=count * SOON_S
        )
        assert made.returncode == 0, made.stderr
        return list(json.loads(made.stdout.splitlines()[-1]))


def engines_in(folder: Path) -> list[str]:
    """Processes that run in a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if os.readlink(entry / "cwd") == str(folder):
                    found.append(entry.name)
            except OSError:
                continue
    return found


def test_four_validators_from_the_guide_and_the_first_is_killed_for_good(tmp_path: Path) -> None:
    page = PAGE.read_text()
    assert all(one in page for one in (INIT, ENGINE, "meshnode chain show", START))
    with lab(COUNT, 1) as net, ExitStack() as stack:
        machines = Machines(net, tmp_path)
        lines = [
            machines.run(host, f"{SHOW} {net.address(host)}:10000").strip() for host in range(COUNT)
        ]
        out = tmp_path / "genesis.json"
        said = machines.run(0, f"{INIT} {','.join(lines)} --out {out}")
        exported = dict(re.findall(r"(MESHNODE_\w+)=(\S+)", ENGINE))
        exported |= dict(re.findall(r'(MESHNODE_\w+)="(.*)"', said))
        nodes: list[Node] = []
        for host in range(COUNT):
            folder = tmp_path / str(host)
            shutil.copy(tmp_path / "genesis.json", folder / "genesis.json")
            variables: dict[str, Any] = {
                **exported,
                "MESHNODE_CHAIN_GENESIS": str(folder / "genesis.json"),
            }
            starting = starting_node(
                folder, *START.split(), changes=[net.enter(host)], port=PORT, **variables
            )
            nodes.append(stack.enter_context(starting))
        for node in nodes:
            node.wait_ready()
        seed = json.loads((tmp_path / "3" / "key.json").read_text())["seed"]
        before = machines.pay(2, seed, 2)
        nodes[0].signal(signal.SIGKILL)
        nodes[0].wait()
        after = machines.pay(2, seed, 4)
        assert min(after) > max(before)
        assert engines_in(tmp_path / "0" / "cometbft") == []
        for node in nodes[1:]:
            node.signal(signal.SIGTERM)
        for node in nodes[1:]:
            assert node.wait()[0] == 0
        chains = [blocks_of(tmp_path / str(host)) for host in range(COUNT)]
        assert max(chains[2]) > max(chains[0])
        for chain in chains:
            assert all(chains[2].get(height, found) == found for height, found in chain.items())
        for host in range(1, COUNT):
            require_conserved(tmp_path / str(host))
