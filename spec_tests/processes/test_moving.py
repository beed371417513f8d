"""Layers that lost their only holder are taken over by a node that runs (decision 0250)."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from spec_tests.processes import changes
from spec_tests.processes.nodes import Node, running_node, wait_until
from spec_tests.processes.pipelines import GREEDY, NODE, PATH, SAMPLED, texts_of_one_node

pytestmark = pytest.mark.process

SMALL: dict[str, Any] = {
    **NODE,
    # Room for some more than half of the eight layers.
    "MESHNODE_RESOURCES_MAX_MEMORY_GB": "0.252",
    "MESHNODE_PIPELINE_MOVE_LAYERS": "true",
}
BRISK = [
    partial(changes.wait_longer_for_trackers, seconds=120.0),
    partial(changes.notice_losses_soon),
    partial(changes.move_soon),
]


def layers(node: Node) -> list[int]:
    found: list[int] = node.ask("GET", "/api/v1/status", token=None).json["layers"]
    return found


def account_of(node: Node) -> str | None:
    """The account of a node; None until its chain has come up."""
    found: str | None = node.ask("GET", "/api/v1/wallet/balance").json.get("address")
    return found


def answers(node: Node, body: dict[str, Any]) -> str | None:
    """The text of a generation; None while there is none."""
    try:
        answer = node.ask("POST", PATH, body)
    except OSError:
        return None
    text: str | None = answer.json.get("text") if answer.status == 200 else None
    return text


def answers_so(node: Node, body: dict[str, Any], text: str) -> bool:
    """Whether a generation has this text."""
    return answers(node, body) == text


def test_another_takes_over_what_a_dead_node_held(tmp_path: Path) -> None:
    expected = texts_of_one_node(tmp_path)
    with ExitStack() as stack:

        def start(name: str, layers: str, *through: str, port: int = 0, **more: Any) -> Node:
            arguments, options = ("--layers", layers, *through), {**NODE, **more}
            node = running_node(tmp_path / name, *arguments, port=port, changes=BRISK, **options)
            return stack.enter_context(node)

        a = start("a", "0-3")
        through = ("--tracker", f"http://127.0.0.1:{a.port}")
        b = start("b", "auto", *through, **SMALL)
        wait_until(partial(answers_so, a, GREEDY, expected[0]))
        c = start("c", "auto", *through, **SMALL)
        # The third holds nothing that is at the end, so the second is the only one to hold that.
        assert (layers(c)[0], layers(b)[-1]) == (0, 7)
        assert 7 not in layers(c)
        account = wait_until(partial(account_of, c))
        b.signal(signal.SIGKILL)
        b.wait()
        # Both are asked throughout, on the same ports, and answer as before.
        for node in (a, c):
            for body in (GREEDY, SAMPLED):
                wait_until(partial(answers_so, node, body, expected[body["temperature"]]))
        after = layers(c)
        assert set(range(4, 8)) <= set(after) < set(range(8))
        # The chain has not been away for a moment.
        assert account_of(c) == account
        # It goes on with its new layers after a kill -9, although another one was chosen before.
        c.signal(signal.SIGKILL)
        c.wait()
        again = start("c", "auto", *through, port=c.port, **SMALL)
        assert layers(again) == after
        wait_until(partial(answers_so, again, GREEDY, expected[0]))
