"""2.1, 4.1 and design: a network in training falls in two; both sides go on, and agree again."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from spec_tests.support_model import make_model
from spec_tests.support_namespaces import Lab, lab, refusal
from spec_tests.support_process import READY_WITHIN_S, TOKEN, environment, wait_until
from spec_tests.support_training_process import SETTINGS, WITHIN_S, kept_by, write_text

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


@contextmanager
def node(net: Lab, host: int, folder: Path, *arguments: str) -> Iterator[Callable[[], None]]:
    """A node on a host, for the length of a test; call what it gives to wait until it serves."""
    with (folder / f"h{host}.log").open("wb") as log:
        process = subprocess.Popen(
            [
                *net.enter(host),
                *(sys.executable, "-m", "meshnode", "--host", net.address(host)),
                *("--port", str(PORT), "--data-dir", str(folder / f"h{host}"), *arguments),
            ],
            env=environment(
                MESHNODE_TOKEN=TOKEN, MESHNODE_TRAINING_TEXT=str(folder / "text"), **SETTINGS
            ),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )

    def wait_ready() -> None:
        deadline = time.monotonic() + READY_WITHIN_S
        for line in process.stdout:
            if "curl" in line:
                break
            assert time.monotonic() < deadline

    try:
        yield wait_ready
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


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
        for host in ALL:
            arguments = ("--model", str(model), *(tracker if host else ()))
            stack.enter_context(node(net, host, tmp_path, *arguments))()
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
