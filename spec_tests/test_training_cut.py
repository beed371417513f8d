"""2.1, 4.1 and design: a network in training falls in two; both sides go on, and agree again."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from spec_tests.support_model import make_model
from spec_tests.support_namespaces import SOON_BACK, Lab, lab, refusal
from spec_tests.support_process import Node, starting_node, wait_until
from spec_tests.support_training_process import (
    BRISK,
    SETTINGS,
    WITHIN_S,
    kept_by,
    write_text,
)

PORT = 8000
WEST, EAST = (0, 1), (2, 3)
ALL = (*WEST, *EAST)

CLIENT = """
import http.client, sys
connection = http.client.HTTPConnection(sys.argv[1], int(sys.argv[2]), timeout=60)
connection.request("GET", sys.argv[3])
print(connection.getresponse().read().decode())
"""
"""Runs on a host of the laboratory, where the test itself is not."""

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(refusal() != "", reason=refusal() or "it is permitted"),
]


class Network:
    """What the hosts say, and what their disks have."""

    def __init__(self, net: Lab, folder: Path) -> None:
        self._net = net
        self._folder = folder

    def ask(self, host: int, path: str) -> dict[str, Any]:
        arguments = [self._net.address(host), str(PORT), path]
        command = [*self._net.enter(host), sys.executable, "-c", CLIENT, *arguments]
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=90)
        answer: dict[str, Any] = json.loads(found.stdout)
        return answer

    def wait_agreed(self, version: int, *hosts: int) -> tuple[int, str]:
        """Wait until these have the same weights, of that version at least."""

        def agreed() -> tuple[int, str] | None:
            kept = {kept_by(self._folder / f"h{host}") for host in hosts}
            [found, *others] = kept
            return found if not others and found[0] >= version else None

        return wait_until(agreed, WITHIN_S)

    def wait_counted(self, count: int, *hosts: int) -> None:
        """Wait until each of these says that so many train."""
        for host in hosts:

            def counted(host: int = host) -> bool:
                found = self.ask(host, "/api/training/global")
                return bool(found["total_nodes_training"] == count)

            wait_until(counted, WITHIN_S)

    def wait_working(self, reason: str, *hosts: int) -> None:
        """Wait until each says that training works, for this reason, with all hashes the same."""
        for host in hosts:

            def working(host: int = host) -> dict[str, Any] | None:
                found = self.ask(host, "/api/training/verify")
                return found if found["is_working"] and found["reason"] == reason else None

            assert wait_until(working, WITHIN_S)["metrics"]["hash_agreement"] == "100%"


def test_a_network_falls_in_two_and_agrees_again(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model", initializer_range=0.05)
    write_text(tmp_path / "text")
    with lab(len(WEST), len(EAST)) as net, ExitStack() as stack:
        tracker = ("--tracker", f"http://{net.address(0)}:{PORT}")

        def start(host: int) -> Node:
            starting = starting_node(
                tmp_path / f"h{host}",
                *("--model", str(model), "--host", net.address(host), *(tracker if host else ())),
                prelude=SOON_BACK + BRISK,
                port=PORT,
                enter=net.enter(host),
                MESHNODE_TRAINING_TEXT=str(tmp_path / "text"),
                **SETTINGS,
            )
            return stack.enter_context(starting)

        start(ALL[0]).wait_ready()
        for one in [start(host) for host in ALL[1:]]:
            one.wait_ready()
        network = Network(net, tmp_path)
        network.wait_counted(4, *ALL)
        version, _ = network.wait_agreed(1, *ALL)
        network.wait_working("4 nodes have the same weights", *ALL)

        net.cut()
        for side in (WEST, EAST):
            network.wait_counted(2, *side)
        sides = [network.wait_agreed(version + 3, *side) for side in (WEST, EAST)]
        assert sides[0][1] != sides[1][1]
        for side in (WEST, EAST):
            network.wait_working("2 nodes have the same weights", *side)

        net.mend()
        network.wait_counted(4, *ALL)
        network.wait_agreed(max(at for at, _ in sides) + 1, *ALL)
        network.wait_working("4 nodes have the same weights", *ALL)
