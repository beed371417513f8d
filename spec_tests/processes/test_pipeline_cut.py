"""When the network link of a holder goes down in mid-stream, another host takes over."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from spec_tests.processes import changes, forking, questions
from spec_tests.processes.calls import Call
from spec_tests.processes.forking import ForkedProcess
from spec_tests.processes.namespaces import Lab, lab, refusal
from spec_tests.processes.nodes import (
    TOKEN,
    Node,
    environment,
    issue_token,
    starting_node,
    wait_until,
)
from spec_tests.processes.pipelines import (
    ALL,
    CALL_S,
    NODE,
    SAMPLED,
    SLOW_S,
    Gate,
    longest_stall,
    require_part,
    require_whole,
)

PORT = 8000
DRIVER = 0
STAGES = ("1-3", "4-7")
MORE = 10
"""The number of tokens before the first cut, and between it and the next."""

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.skipif(refusal() != "", reason=refusal() or "it is permitted"),
]

Events = list[tuple[float, dict[str, Any]]]


@dataclass
class Network:
    """A driver on host 0, and a holder of one stage on each other host."""

    net: Lab
    gate: Gate
    stages: tuple[str, ...]
    """The stages that the hosts from 1 on hold."""

    def hosts(self, stage: str) -> list[int]:
        return [host for host, held in enumerate(self.stages, 1) if held == stage]

    def run(self, call: Call) -> ForkedProcess:
        """Start a process that makes a call on the driver's host."""
        return forking.start([self.net.enter(DRIVER), call], (), environment())

    def ask(self, path: str, host: int = DRIVER, token: str = TOKEN) -> dict[str, Any]:
        """Send a host a GET request from the driver's host; return the JSON of the answer."""
        call = partial(
            questions.ask, host=self.net.address(host), port=PORT, token=token, path=path
        )
        with self.run(call) as asking:
            answer: dict[str, Any] = json.loads(asking.stdout.read())
        return answer

    def wait_known(self) -> None:
        """Wait until all nodes know each other."""
        hosts = range(len(self.stages) + 1)
        for host in hosts:
            others = {f"{self.net.address(other)}:{PORT}" for other in hosts if other != host}

            def known(host: int = host) -> set[str]:
                return {peer["address"] for peer in self.ask("/api/v1/peers", host)["peers"]}

            wait_until(lambda known=known, others=others: known() == others)

    def serving(self, stage: str) -> int:
        """The host that has the session of the only stream."""
        hosts = self.hosts(stage)
        targets = [f"{self.net.address(host)}:{PORT + 1000}" for host in hosts]

        def found() -> list[int]:
            with self.run(partial(questions.count_sessions, targets=targets)) as asking:
                counts = map(int, asking.stdout.read().split())
                having = [host for host, count in zip(hosts, counts, strict=True) if count]
            return having if len(having) == 1 else []

        host: int = wait_until(found)[0]
        return host

    def stream(self, token: str = TOKEN) -> Iterator[tuple[float, dict[str, Any]]]:
        """The events of a stream, each with the monotonic time in seconds at which it came."""
        address = self.net.address(DRIVER)
        body = {**SAMPLED, "stream": True}
        call = partial(questions.stream, host=address, port=PORT, token=token, body=body)
        with self.run(call) as asking:
            for line in asking.stdout:
                at, _, rest = line.strip().partition(" ")
                if rest.startswith("data: "):
                    yield float(at), json.loads(rest[6:])

    def cut(
        self, stream: Iterator[tuple[float, dict[str, Any]]], events: Events, stage: str
    ) -> tuple[int, float]:
        """Read a stream up to the gate, let more tokens through and take its holder's link down.

        Returns the number of events before the cut and its monotonic time in seconds.
        """
        while len(events) < self.gate.tokens:
            events.append(next(stream))
        self.gate.wait_held()
        victim = self.serving(stage)
        self.gate.let(len(events) + MORE)
        self.net.unplug(victim)
        return len(events), time.monotonic()


@contextmanager
def network(folder: Path, *stages: str) -> Iterator[Network]:
    """Start a driver and holders of these stages on hosts of a lab."""
    gate = Gate(folder / "gate")
    gate.let(ALL)
    with lab(len(stages) + 1, 0) as net, ExitStack() as stack:
        tracker = ("--tracker", f"http://{net.address(DRIVER)}:{PORT}")

        def start(host: int, name: str, *arguments: str, more: Sequence[Call] = ()) -> Node:
            starting = starting_node(
                folder / name,
                *("--host", net.address(host), *arguments),
                changes=[net.enter(host), partial(changes.notice_losses_soon), *more],
                port=PORT,
                **NODE,
            )
            return stack.enter_context(starting)

        starting = [start(DRIVER, "driver", "--layers", "0", more=[gate.change])]
        for host, held in enumerate(stages, 1):
            starting.append(start(host, f"h{host}", "--layers", held, *tracker))
        for node in starting:
            node.wait_ready()
        made = Network(net, gate, stages)
        made.wait_known()
        yield made


def test_links_go_down_at_each_stage(tmp_path: Path) -> None:
    with network(tmp_path, *STAGES, *STAGES) as nodes:
        undisturbed = list(nodes.stream())
        text = "".join(event["token"] for _, event in undisturbed[:-1])
        require_whole(undisturbed, text)
        nodes.gate.let(MORE)
        stream = nodes.stream()
        events: Events = []
        gone = [nodes.cut(stream, events, stage) for stage in reversed(STAGES)]
        nodes.gate.let(ALL)
        events += stream
        require_whole(events, text)
        # The driver may try a holder once more before it knows that it is cut off.
        assert longest_stall(events, gone) < 2 * CALL_S + SLOW_S


def test_nobody_takes_over(tmp_path: Path) -> None:
    with network(tmp_path, *STAGES) as nodes:
        text = "".join(event["token"] for _, event in nodes.stream())
        for stage in reversed(STAGES):
            token = issue_token(tmp_path / "driver", f"user-{stage}", "1")

            def available(token: str = token) -> float:
                balance = nodes.ask("/api/v1/wallet/balance", token=token)
                return float(balance["balances"]["available"])

            wait_until(lambda available=available: available() == 1.0)
            nodes.gate.let(MORE)
            stream = nodes.stream(token)
            events: Events = []
            nodes.cut(stream, events, stage)
            nodes.gate.let(ALL)
            events += stream
            tokens = require_part(events, text)
            assert tokens >= MORE
            wait_until(lambda a=available, n=tokens: a() == round(1.0 - n / 1000, 6))
            nodes.net.plug(*nodes.hosts(stage))
            nodes.wait_known()
        # All hosts are connected again, and the next stream is as undisturbed as the first.
        assert "".join(event["token"] for _, event in nodes.stream()) == text
