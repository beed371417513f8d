"""design: network links of holders go down in mid-stream, at each stage; other hosts go on."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from spec_tests.support_namespaces import SOON_BACK, Lab, lab, refusal
from spec_tests.support_pipeline_process import (
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
from spec_tests.support_process import TOKEN, Node, run, starting_node, wait_until

PORT = 8000
DRIVER = 0
STAGES = ("1-3", "4-7")
MORE = 10
"""Tokens up to the first cut, and on to the next."""

CLIENT = """
import http.client, sys, time
host, port, token, method, path, body = sys.argv[1:]
connection = http.client.HTTPConnection(host, int(port), timeout=600)
headers = {"Authorization": "Bearer " + token, "X-Meshnode-Trace": "1"}
if body:
    headers["Content-Type"] = "application/json"
connection.request(method, path, body or None, headers)
for line in connection.getresponse():
    if line.strip():
        print(time.monotonic(), line.decode().strip(), flush=True)
"""
SESSIONS = """
import sys, grpc
from meshnode.wire import node_pb2 as pb
for target in sys.argv[1:]:
    with grpc.insecure_channel(target) as channel:
        call = channel.unary_unary("/node.NodeService/GetShardInfo",
            pb.GetShardInfoRequest.SerializeToString, pb.GetShardInfoResponse.FromString)
        print(call(pb.GetShardInfoRequest(), timeout=120).capacity.active_sessions)
"""
"""Both run on a host of the laboratory, where the test itself is not."""

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(refusal() != "", reason=refusal() or "it is permitted"),
]

Events = list[tuple[float, dict[str, Any]]]


@dataclass
class Network:
    """A driver on host 0, and a holder of one of the stages on each of the others."""

    net: Lab
    gate: Gate
    stages: tuple[str, ...]
    """Of the hosts from 1 on."""

    def hosts(self, stage: str) -> list[int]:
        return [host for host, held in enumerate(self.stages, 1) if held == stage]

    def run(self, *arguments: str) -> subprocess.Popen[str]:
        """A program of Python on the driver's host."""
        line = [*self.net.enter(DRIVER), sys.executable, "-c", *arguments]
        return subprocess.Popen(line, stdout=subprocess.PIPE, text=True)

    def ask(self, path: str, host: int = DRIVER, token: str = TOKEN) -> dict[str, Any]:
        asking = self.run(CLIENT, self.net.address(host), str(PORT), token, "GET", path, "")
        with asking:
            return json.loads(asking.stdout.read().partition(" ")[2])

    def wait_known(self) -> None:
        """Wait until all know each other."""
        hosts = range(len(self.stages) + 1)
        for host in hosts:
            others = {f"{self.net.address(other)}:{PORT}" for other in hosts if other != host}

            def known(host: int = host) -> set[str]:
                return {peer["address"] for peer in self.ask("/api/v1/peers", host)["peers"]}

            wait_until(lambda known=known, others=others: known() == others)

    def serving(self, stage: str) -> int:
        """The host that has the session of the one stream there is."""
        hosts = self.hosts(stage)
        targets = [f"{self.net.address(host)}:{PORT + 1000}" for host in hosts]

        def found() -> list[int]:
            with self.run(SESSIONS, *targets) as asking:
                counts = map(int, asking.stdout.read().split())
                having = [host for host, count in zip(hosts, counts, strict=True) if count]
            return having if len(having) == 1 else []

        return wait_until(found)[0]

    def stream(self, token: str = TOKEN) -> Iterator[tuple[float, dict[str, Any]]]:
        """Events and when they came."""
        body = json.dumps({**SAMPLED, "stream": True})
        arguments = [self.net.address(DRIVER), str(PORT), token, "POST", "/api/v1/inference", body]
        with self.run(CLIENT, *arguments) as asking:
            for line in asking.stdout:
                at, _, rest = line.strip().partition(" ")
                if rest.startswith("data: "):
                    yield float(at), json.loads(rest[6:])

    def cut(
        self, stream: Iterator[tuple[float, dict]], events: Events, stage: str
    ) -> tuple[int, float]:
        """Read on to the gate, and take the link of the stage's holder down as some more come.

        Gives how many events there were, and when it was.
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
    """Nodes that know each other."""
    gate = Gate(folder / "gate")
    gate.let(ALL)
    with lab(len(stages) + 1, 0) as net, ExitStack() as stack:
        tracker = ("--tracker", f"http://{net.address(DRIVER)}:{PORT}")

        def start(host: int, name: str, *arguments: str, prelude: str = "") -> Node:
            starting = starting_node(
                folder / name,
                *("--host", net.address(host), *arguments),
                prelude=SOON_BACK + prelude,
                port=PORT,
                enter=net.enter(host),
                **NODE,
            )
            return stack.enter_context(starting)

        starting = [start(DRIVER, "driver", "--layers", "0", prelude=gate.prelude)]
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
        stream, events = nodes.stream(), []
        gone = [nodes.cut(stream, events, stage) for stage in reversed(STAGES)]
        nodes.gate.let(ALL)
        events += stream
        require_whole(events, text)
        # One that is cut off may be tried once more before it is known to be.
        assert longest_stall(events, gone) < 2 * CALL_S + SLOW_S


def test_nobody_takes_over(tmp_path: Path) -> None:
    with network(tmp_path, *STAGES) as nodes:
        text = "".join(event["token"] for _, event in nodes.stream())
        for stage in reversed(STAGES):
            data = str(tmp_path / "driver")
            arguments = ("token", "issue", "--name", f"user-{stage}", "--fund", "1")
            issued = run(*arguments, "--data-dir", data).stdout
            token = issued.split("shown this once: ")[1].split()[0]

            def available(token: str = token) -> float:
                balance = nodes.ask("/api/v1/wallet/balance", token=token)
                return float(balance["balances"]["available"])

            wait_until(lambda available=available: available() == 1.0)
            nodes.gate.let(MORE)
            stream, events = nodes.stream(token), []
            nodes.cut(stream, events, stage)
            nodes.gate.let(ALL)
            events += stream
            tokens = require_part(events, text)
            assert tokens >= MORE
            wait_until(lambda a=available, n=tokens: a() == round(1.0 - n / 1000, 6))
            nodes.net.plug(*nodes.hosts(stage))
            nodes.wait_known()
        # All are there again, and nothing is left of what was.
        assert "".join(event["token"] for _, event in nodes.stream()) == text
