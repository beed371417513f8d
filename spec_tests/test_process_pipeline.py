"""3, 7.3 and design: nodes started as a user would share a model, and lose some of themselves."""

from __future__ import annotations

import http.client
import itertools
import json
import random
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest

from meshnode.wire import node_pb2 as pb
from spec_tests.support_process import Node, events_of, run, running_node, starting_node, wait_until

pytestmark = pytest.mark.process

PATH = "/api/v1/inference"
BODY = {"prompt": "Once upon a time", "max_tokens": 60, "temperature": 0}
SAMPLED = {"prompt": "The little fox", "max_tokens": 60, "temperature": 0.9, "seed": 5}
DEAD_S, CALL_S = 2.0, 5.0
"""The longest pauses: for a process that is gone, and for one that hangs."""
SLOW_S = 3.0
"""On top of them: machines are shared."""
CLIENTS, REQUESTS = 6, 48
"""Of the soak; bench/ has longer ones."""
NODE = {"MESHNODE_RESOURCES_CPU_THREADS": "1", "MESHNODE_SETTLE_EVERY_S": "0.2"}


@dataclass
class Network:
    """A driver and its holders; who dies is replaced before the next test."""

    folder: Path
    stack: ExitStack
    driver: Node
    holders: list[Node] = field(default_factory=list)
    started: int = 0

    def start(self, layers: str) -> Node:
        self.started += 1
        return self.stack.enter_context(
            starting_node(
                self.folder / f"n{self.started}",
                *("--layers", layers, "--tracker", f"http://127.0.0.1:{self.driver.port}"),
                # Too short for a stream to end in it.
                **{**NODE, "MESHNODE_DRAIN_S": "0.1"},
            )
        )

    def hold(self, *layers: str) -> list[Node]:
        """Have exactly these holders, and all of them know each other."""
        wanted = list(layers)
        for node in list(self.holders):
            held = ranges(node)
            if held in wanted:
                wanted.remove(held)
            else:
                self.lose(node)
        started = [self.start(held) for held in wanted]
        for node in started:
            node.wait_ready()
        self.holders += started
        # Those that were lost may be known for a while: nobody needs them.
        for node in (self.driver, *self.holders):
            others = {address(other) for other in (self.driver, *self.holders)} - {address(node)}
            wait_until(lambda node=node, others=others: others <= peers(node), within_s=40)
        return self.holders

    def lose(self, node: Node) -> None:
        """Make sure that a holder is gone."""
        node.process.kill()
        node.process.wait()
        self.holders.remove(node)

    def stream(self, body: dict[str, Any], **options: str) -> Iterator[tuple[float, dict]]:
        """Events and when they came."""
        for event in events_of(self.driver.open_stream(body, **options)):
            yield time.monotonic(), event

    def serving(self, layers: str) -> Node:
        """The holder of these layers that has the session of the one stream there is."""
        able = [node for node in self.holders if ranges(node) == layers]
        return wait_until(
            lambda: next((node for node in able if busy(node).active_sessions), None), within_s=5
        )

    def settled(self) -> bool:
        """Whether nothing of any generation is left anywhere."""
        return all(
            (told.kv_used, told.active_sessions, told.queue_depth) == (0, 0, 0)
            for told in map(busy, (self.driver, *self.holders))
        )


def address(node: Node) -> str:
    return f"127.0.0.1:{node.port}"


def peers(node: Node) -> set[str]:
    return {peer["address"] for peer in node.ask("GET", "/api/v1/peers").json["peers"]}


def ranges(node: Node) -> str:
    arguments = node.process.args
    return arguments[arguments.index("--layers") + 1]


def busy(node: Node) -> pb.NodeCapacity:
    """What the node says of its use, by the document's client."""
    with grpc.insecure_channel(f"127.0.0.1:{node.port + 1000}") as channel:
        call = channel.unary_unary(
            "/node.NodeService/GetShardInfo",
            pb.GetShardInfoRequest.SerializeToString,
            pb.GetShardInfoResponse.FromString,
        )
        return call(pb.GetShardInfoRequest(), timeout=5).capacity


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    folder = tmp_path_factory.mktemp("pipeline")
    with ExitStack() as stack:
        driver = stack.enter_context(running_node(folder / "driver", "--layers", "0", **NODE))
        yield Network(folder, stack, driver)


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> dict[float, str]:
    """What one node with all layers answers, by temperature."""
    with running_node(tmp_path_factory.mktemp("alone") / "node", **NODE) as node:
        return {
            body["temperature"]: node.ask("POST", PATH, body).json["text"]
            for body in (BODY, SAMPLED)
        }


def test_nobody_takes_over(network: Network, wanted: dict[float, str]) -> None:
    (holder,) = network.hold("1-7")
    data = str(network.driver.data_dir)
    issued = run("token", "issue", "--name", "alice", "--fund", "1", "--data-dir", data)
    alice = issued.stdout.split("shown this once: ")[1].split()[0]

    def available() -> float:
        balance = network.driver.ask("GET", "/api/v1/wallet/balance", token=alice)
        return balance.json["balances"]["available"]

    assert available() == 1.0
    stream = network.stream(SAMPLED, token=alice)
    events = [next(stream)[1] for _ in range(5)]
    network.lose(holder)
    began = time.monotonic()
    *tokens, failed = [*events, *(event for _, event in stream)]
    assert time.monotonic() - began < DEAD_S + SLOW_S
    text = "".join(event["token"] for event in tokens)
    assert wanted[SAMPLED["temperature"]].startswith(text)
    assert failed["error"]["code"] == "UNAVAILABLE"
    # Paid is what came; an answer that is an error costs nothing.
    answer = network.driver.ask("POST", PATH, BODY, token=alice)
    assert (answer.status, answer.json["error"]["code"]) == (503, "UNAVAILABLE")
    wait_until(lambda: available() == round(1.0 - len(tokens) / 1000, 6))
    # Somebody comes, and the node serves again.
    network.hold("1-7")
    assert network.driver.ask("POST", PATH, BODY).json["text"] == wanted[0]


@pytest.mark.parametrize(
    "held",
    # In this order most holders of one case are those of the case before.
    [("1-7",), ("1", "2-6", "7"), tuple("1234567"), ("1-3", "4-7")],
    ids=lambda held: f"{1 + len(held)} nodes",
)
def test_the_text_is_that_of_one_node(
    network: Network, wanted: dict[float, str], held: tuple[str, ...]
) -> None:
    network.hold(*held)
    roles = [node.ask("GET", "/api/v1/status").json["role"] for node in network.holders]
    assert sorted(roles) == ["validator"] + ["worker"] * (len(held) - 1)
    for body in (BODY, SAMPLED):
        assert network.driver.ask("POST", PATH, body).json["text"] == wanted[body["temperature"]]
        *tokens, final = [event for _, event in network.stream(body)]
        assert "".join(event["token"] for event in tokens) == wanted[body["temperature"]]
        assert final["usage"]["completion_tokens"] == len(tokens)
    wait_until(network.settled, within_s=5)


@pytest.mark.parametrize(
    ("number", "stall"),
    [(signal.SIGKILL, DEAD_S), (signal.SIGSTOP, CALL_S), (signal.SIGTERM, DEAD_S)],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_holder_of_each_stage_goes_in_mid_stream(
    network: Network, wanted: dict[float, str], number: signal.Signals, stall: float
) -> None:
    network.hold("1-3", "1-3", "4-7", "4-7")
    stream = network.stream(SAMPLED)
    events, victims = [], []
    try:
        for layers in ("4-7", "1-3"):
            events += [next(stream) for _ in range(10)]
            victims.append(network.serving(layers))
            victims[-1].signal(number)
        events += stream
    finally:
        for victim in victims:
            network.lose(victim)
    *tokens, (_, final) = events
    assert [event["index"] for _, event in tokens] == list(range(len(tokens)))
    assert "".join(event["token"] for _, event in tokens) == wanted[SAMPLED["temperature"]]
    assert final["token"] == "[DONE]"
    assert final["usage"]["completion_tokens"] == len(tokens) == SAMPLED["max_tokens"]
    times = [at for at, _ in events]
    longest = max(after - before for before, after in itertools.pairwise(times))
    assert longest < stall + SLOW_S
    wait_until(network.settled, within_s=5)


def test_clients_that_leave_free_the_holders(network: Network, wanted: dict[float, str]) -> None:
    network.hold("1-3", "4-7")

    def client(seed: int) -> None:
        """One that may leave: before the answer, in the middle of it, or not at all."""
        chance = random.Random(seed)
        body = {**BODY, "prompt": "One day, " * chance.randint(1, 30), "max_tokens": 24}
        patience = chance.choice([0, 0, 3, 12, 1000])
        content, headers = network.driver.payload({**body, "stream": seed % 3 > 0}, "")
        connection = http.client.HTTPConnection("127.0.0.1", network.driver.port, timeout=60)
        connection.request("POST", PATH, content, headers)
        if patience:
            for _ in zip(range(patience), connection.getresponse(), strict=False):
                pass
        connection.close()

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(client, range(REQUESTS)))
    wait_until(network.settled, within_s=10)
    assert network.driver.ask("POST", PATH, BODY).json["text"] == wanted[0]


def test_the_hops_are_shown(network: Network) -> None:
    network.hold("1-3", "4-7")
    before = network.driver.ask("GET", "/api/v1/metrics").json["pipeline"]
    body, headers = network.driver.payload(BODY, "")
    connection = http.client.HTTPConnection("127.0.0.1", network.driver.port, timeout=30)
    connection.request("POST", PATH, body, {**headers, "X-Meshnode-Trace": "1"})
    response = connection.getresponse()
    generation_id = json.load(response)["id"]
    connection.close()
    trace = json.loads(response.headers["X-Meshnode-Trace"])
    assert [hop["layers"] for hop in trace["hops"]] == ["0-0", "1-3", "4-7"]
    assert all(hop["compute_ms"] > 0 for hop in trace["hops"])
    metrics = network.driver.ask("GET", "/api/v1/metrics").json["pipeline"]
    assert metrics["generations"] == before["generations"] + 1
    assert metrics["hop_compute_ms"] > 0
    (line,) = [
        line
        for line in network.driver.log().splitlines()
        if generation_id in line and "compute_ms" in line
    ]
    assert all(f'"layers": "{hop["layers"]}"' in line for hop in trace["hops"])
