"""The parts of a split network go on training, and agree when rejoined (interface 2.1 and 4.1)."""

from __future__ import annotations

import json
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from spec_tests.model.small_models import make_model
from spec_tests.processes import changes, forking, questions
from spec_tests.processes.namespaces import Lab, lab, refusal
from spec_tests.processes.nodes import Node, environment, starting_node, wait_until
from spec_tests.processes.training import (
    BRISK,
    SETTINGS,
    WITHIN_S,
    kept_by,
    write_text,
)

PORT = 8000
WEST, EAST = (0, 1), (2, 3)
ALL = (*WEST, *EAST)

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.skipif(refusal() != "", reason=refusal() or "it is permitted"),
]


class Network:
    """The hosts of a lab: what they report, and which weights they have on disk."""

    def __init__(self, net: Lab, folder: Path) -> None:
        self._net = net
        self._folder = folder

    def ask(self, host: int, path: str) -> dict[str, Any]:
        call = partial(questions.ask, host=self._net.address(host), port=PORT, token="", path=path)
        with forking.start([self._net.enter(host), call], (), environment()) as asking:
            answer: dict[str, Any] = json.loads(asking.stdout.read())
        return answer

    def wait_agreed(self, version: int, *hosts: int) -> tuple[int, str]:
        """Wait until these hosts have the same weights, of at least that version; return both."""

        def agreed() -> tuple[int, str] | None:
            kept = {kept_by(self._folder / f"h{host}") for host in hosts}
            [found, *others] = kept
            return found if not others and found[0] >= version else None

        found: tuple[int, str] = wait_until(agreed, WITHIN_S)
        return found

    def wait_counted(self, count: int, *hosts: int) -> None:
        """Wait until each of these hosts reports that ``count`` nodes train."""
        for host in hosts:

            def counted(host: int = host) -> bool:
                found = self.ask(host, "/api/training/global")
                return bool(found["total_nodes_training"] == count)

            wait_until(counted, WITHIN_S)

    def wait_working(self, reason: str, *hosts: int) -> None:
        """Wait until each host reports that training works for this reason.

        By then all hashes that a host compares must agree.
        """
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
                changes=[net.enter(host), partial(changes.notice_losses_soon), BRISK],
                port=PORT,
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
