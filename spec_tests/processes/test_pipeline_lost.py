"""A holder answers in mid-stream, but has lost the session or the layers (interface 7.3)."""

from __future__ import annotations

from typing import Any

import pytest

from meshnode.domain.speculation import MAX_DEPTH
from spec_tests.processes.nodes import Node, wait_until
from spec_tests.processes.pipelines import (
    ALL,
    GREEDY,
    PATH,
    SAMPLED,
    Network,
    busy,
    require_part,
    require_whole,
    texts_of_one_node,
)

pytestmark = pytest.mark.process

BEFORE = 10
"""The number of tokens that a stream has had when something happens to a holder."""
STAGES = ("1-3", "4-7")
EACH_STAGE = pytest.mark.parametrize("stage", ["1-3", pytest.param("4-7", marks=pytest.mark.slow)])
LOST, NOT_FOUND = "UNAVAILABLE: session unknown", "NOT_FOUND: "
"""The reasons for which a holder refused a request, as the driver's log has them."""


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> str:
    return texts_of_one_node(tmp_path_factory.mktemp("alone"))[SAMPLED["temperature"]]


class Interrupted:
    """A stream that is held after ``BEFORE`` tokens, and what the driver logs from its start on."""

    def __init__(self, network: Network, **options: str) -> None:
        self.network = network
        network.gate.let(BEFORE)
        self._logged = len(network.driver.log())
        self._stream = network.stream(SAMPLED, **options)
        self._begun = [next(self._stream) for _ in range(BEFORE)]
        network.gate.wait_held()

    def rest(self) -> list[tuple[float, dict[str, Any]]]:
        """Let the stream go on to its end; return all its events, from the first one."""
        self.network.gate.let(ALL)
        return [*self._begun, *self._stream]

    def said(self, node: Node, why: str) -> bool:
        """Whether the driver's log names this node with this reason for leaving its path."""
        name = node.ask("GET", "/api/v1/status", token=None).json["node_id"][:8]
        return f"{name} {why}" in self.network.driver.log()[self._logged :]


@pytest.mark.slow
@EACH_STAGE
def test_a_session_that_expired_is_begun_again(network: Network, wanted: str, stage: str) -> None:
    """A stream goes on when its holder, which had no more room, has dropped the idle session."""
    crowded = {stage.replace("-", "_"): {"MESHNODE_LIMITS_MAX_BATCH": "1"}}
    network.hold(*STAGES, **crowded)
    stream = Interrupted(network)
    holder = network.serving(stage)
    wait_until(lambda: not busy(holder).active_sessions)
    require_whole(stream.rest(), wanted)
    assert stream.said(holder, LOST)
    wait_until(network.settled)


@pytest.mark.slow
@EACH_STAGE
def test_a_holder_that_comes_back_without_the_session(
    network: Network, wanted: str, stage: str
) -> None:
    """A stream goes on when the only holder of its layers restarts without the session."""
    network.hold(*STAGES)
    stream = Interrupted(network)
    back = network.come_back(network.serving(stage))
    require_whole(stream.rest(), wanted)
    assert stream.said(back, LOST)
    wait_until(network.settled)


@pytest.mark.slow
@EACH_STAGE
def test_another_goes_on_for_one_that_has_lost_the_layers(
    network: Network, wanted: str, stage: str
) -> None:
    network.hold(*STAGES, *STAGES)
    stream = Interrupted(network)
    (other,) = set(STAGES) - {stage}
    back = network.come_back(network.serving(stage), other)
    require_whole(stream.rest(), wanted)
    assert stream.said(back, NOT_FOUND)
    wait_until(network.settled)


@EACH_STAGE
def test_nobody_else_has_the_layers(network: Network, wanted: str, stage: str) -> None:
    network.hold(*STAGES)
    name = f"user-{stage}"
    token = network.issue(name)
    stream = Interrupted(network, token=token)
    (other,) = set(STAGES) - {stage}
    back = network.come_back(network.serving(stage), other)
    tokens = require_part(stream.rest(), wanted)
    # One more token had been computed when the stream was held, and perhaps some that were guessed.
    assert BEFORE + 1 <= tokens <= BEFORE + 1 + MAX_DEPTH
    assert stream.said(back, NOT_FOUND)
    network.wait_billed(token, tokens)
    refused = network.driver.ask("POST", PATH, GREEDY, token=token)
    assert (refused.status, refused.json["error"]["code"]) == (503, "UNAVAILABLE")
    wait_until(network.settled)
