"""A holder goes while guesses of a stream are on their way, and the text is the same (0230)."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from spec_tests.processes import changes
from spec_tests.processes.nodes import Node, wait_until
from spec_tests.processes.pipelines import (
    ALL,
    GREEDY,
    SAMPLED,
    Network,
    open_network,
    require_whole,
    texts_of_one_node,
)

pytestmark = [pytest.mark.process, pytest.mark.slow]

DEPTH = 24
"""Guesses ahead: two messages of twelve."""
BEFORE = 5
"""Tokens that a stream has had when its messages begin to be held."""
FLYING = 2


@dataclass
class Flights:
    """Holds the messages that are sent ahead at the holders of one stage."""

    file: Path

    @property
    def change(self) -> Any:
        return partial(changes.hold_flights, file=str(self.file), held=str(self._held))

    @property
    def _held(self) -> Path:
        return self.file.with_suffix(".held")

    def say(self, word: str) -> None:
        scratch = self.file.with_suffix(".new")
        scratch.write_text(word)
        scratch.replace(self.file)

    def hold(self) -> None:
        self._held.unlink(missing_ok=True)
        self.say("hold")

    def let(self) -> None:
        self.file.unlink(missing_ok=True)

    def wait_flying(self) -> None:
        """Wait until several messages of the stream are on their way at once."""
        wait_until(lambda: self._held.exists() and int(self._held.read_text() or 0) >= FLYING)


@pytest.fixture(scope="module")
def guessing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """A driver that always guesses."""
    with ExitStack() as stack:
        yield open_network(
            tmp_path_factory.mktemp("guessing"),
            stack,
            partial(changes.guess_always, depth=DEPTH),
        )


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> dict[float, str]:
    return texts_of_one_node(tmp_path_factory.mktemp("alone"))


def guesses(network: Network) -> float:
    """Tokens that the driver has guessed since its start."""
    figures = network.driver.ask("GET", "/metrics").body.decode().splitlines()
    (line,) = (line for line in figures if line.startswith("meshnode_pipeline_guesses_total "))
    return float(line.split()[-1])


Loss = Callable[[Network, Node, Flights], None]


def killed(network: Network, victim: Node, flights: Flights) -> None:
    victim.signal(signal.SIGKILL)
    flights.let()


def frozen(network: Network, victim: Node, flights: Flights) -> None:
    victim.signal(signal.SIGSTOP)
    flights.let()


def forgotten(network: Network, victim: Node, flights: Flights) -> None:
    """The holder goes on, and has lost the session of the messages that are there."""
    flights.say("forget")
    wait_until(lambda: not flights.file.exists())


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(SAMPLED, id="sampled"),
        pytest.param(GREEDY, id="greedy", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("loss", [killed, frozen, forgotten], ids=lambda loss: loss.__name__)
@pytest.mark.parametrize("stage", [pytest.param("1-3", marks=pytest.mark.long), "4-7"])
def test_a_holder_goes_while_guesses_fly(
    guessing: Network,
    wanted: dict[float, str],
    tmp_path: Path,
    stage: str,
    loss: Loss,
    body: dict[str, Any],
) -> None:
    flights = Flights(tmp_path / "flights")
    gated = {stage.replace("-", "_"): {"changes": [flights.change]}}
    guessing.hold("1-3", "1-3", "4-7", "4-7", **gated)
    before = guesses(guessing)
    guessing.gate.let(BEFORE)
    stream = guessing.stream(body)
    events = [next(stream) for _ in range(BEFORE)]
    guessing.gate.wait_held()
    victim = guessing.serving(stage)
    flights.hold()
    try:
        guessing.gate.let(ALL)
        flights.wait_flying()
        loss(guessing, victim, flights)
        events += stream
    finally:
        flights.let()
        guessing.lose(victim)
    require_whole(events, wanted[body["temperature"]])
    assert guesses(guessing) - before > DEPTH
    wait_until(guessing.settled)
