"""Nodes share a model, and streams go on when some of the nodes are lost (interface 3 and 7.3)."""

from __future__ import annotations

import http.client
import json
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from spec_tests.processes.nodes import ANSWERS_WITHIN_S, wait_until
from spec_tests.processes.pipelines import (
    ALL,
    DEAD_S,
    GREEDY,
    PATH,
    PATIENT_S,
    SAMPLED,
    SLOW_S,
    Network,
    longest_stall,
    require_part,
    require_whole,
    texts_of_one_node,
)

pytestmark = pytest.mark.process

CLIENTS, REQUESTS = 6, 48
"""Numbers of the soak test here; bench/ has longer ones."""


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> dict[float, str]:
    return texts_of_one_node(tmp_path_factory.mktemp("alone"))


def test_nobody_takes_over(network: Network, wanted: dict[float, str]) -> None:
    (holder,) = network.hold("1-7")
    alice = network.issue("alice")
    network.gate.let(5)
    stream = network.stream(SAMPLED, token=alice)
    events = [next(stream) for _ in range(5)]
    network.gate.wait_held()
    network.lose(holder)
    gone = [(len(events), time.monotonic())]
    network.gate.let(ALL)
    events += stream
    assert longest_stall(events, gone) < DEAD_S + SLOW_S
    tokens = require_part(events, wanted[SAMPLED["temperature"]])
    # The user pays for the tokens that came. An answer that is an error costs nothing.
    answer = network.driver.ask("POST", PATH, GREEDY, token=alice)
    assert (answer.status, answer.json["error"]["code"]) == (503, "UNAVAILABLE")
    network.wait_billed(alice, tokens)
    # A new holder comes, and the driver serves again.
    network.hold("1-7")
    assert network.driver.ask("POST", PATH, GREEDY).json["text"] == wanted[0]


@pytest.mark.parametrize(
    "held",
    # In this order most cases can reuse holders of the case before.
    [
        ("1-7",),
        pytest.param(("1", "2-6", "7"), marks=pytest.mark.slow),
        pytest.param(tuple("1234567"), marks=pytest.mark.slow),
        ("1-3", "4-7"),
    ],
    ids=lambda held: f"{1 + len(held)} nodes",
)
def test_the_text_is_that_of_one_node(
    network: Network, wanted: dict[float, str], held: tuple[str, ...]
) -> None:
    network.hold(*held)
    roles = [node.ask("GET", "/api/v1/status").json["role"] for node in network.holders]
    assert sorted(roles) == ["validator"] + ["worker"] * (len(held) - 1)
    for body in (GREEDY, SAMPLED):
        assert network.driver.ask("POST", PATH, body).json["text"] == wanted[body["temperature"]]
        *tokens, final = [event for _, event in network.stream(body)]
        assert "".join(event["token"] for event in tokens) == wanted[body["temperature"]]
        assert final["usage"]["completion_tokens"] == len(tokens)
    wait_until(network.settled)


@pytest.mark.parametrize(
    ("number", "stall"),
    [
        (signal.SIGKILL, DEAD_S),
        pytest.param(signal.SIGSTOP, PATIENT_S, marks=pytest.mark.slow),
        (signal.SIGTERM, DEAD_S),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_holder_of_each_stage_goes_in_mid_stream(
    network: Network, wanted: dict[float, str], number: signal.Signals, stall: float
) -> None:
    network.hold("1-3", "1-3", "4-7", "4-7")
    network.gate.let(10)
    stream = network.stream(SAMPLED)
    events, victims, gone = [], [], []
    try:
        for layers in ("4-7", "1-3"):
            events += [next(stream) for _ in range(10)]
            network.gate.wait_held()
            victims.append(network.serving(layers))
            # The holder is lost while the next tokens are computed.
            network.gate.let(len(events) + 10)
            victims[-1].signal(number)
            gone.append((len(events), time.monotonic()))
        network.gate.let(ALL)
        events += stream
    finally:
        network.gate.let(ALL)
        for victim in victims:
            network.lose(victim)
    require_whole(events, wanted[SAMPLED["temperature"]])
    # The driver may try a hanging holder once more before it knows that it hangs.
    assert longest_stall(events, gone) < 2 * stall + SLOW_S
    wait_until(network.settled)


@pytest.mark.slow
def test_clients_that_leave_free_the_holders(network: Network, wanted: dict[float, str]) -> None:
    network.hold("1-3", "4-7")

    def client(seed: int) -> None:
        """Run a client that leaves before the answer, in the middle of it, or not at all."""
        chance = random.Random(seed)
        body = {**GREEDY, "prompt": "One day, " * chance.randint(1, 30), "max_tokens": 24}
        patience = chance.choice([0, 0, 3, 12, 1000])
        content, headers = network.driver.payload({**body, "stream": seed % 3 > 0}, "")
        connection = http.client.HTTPConnection(
            "127.0.0.1", network.driver.port, timeout=ANSWERS_WITHIN_S
        )
        connection.request("POST", PATH, content, headers)
        if patience:
            for _ in zip(range(patience), connection.getresponse(), strict=False):
                pass
        connection.close()

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(client, range(REQUESTS)))
    wait_until(network.settled)
    assert network.driver.ask("POST", PATH, GREEDY).json["text"] == wanted[0]


def test_the_hops_are_shown(network: Network) -> None:
    network.hold("1-3", "4-7")
    before = network.driver.ask("GET", "/api/v1/metrics").json["pipeline"]
    body, headers = network.driver.payload(GREEDY, "")
    connection = http.client.HTTPConnection(
        "127.0.0.1", network.driver.port, timeout=ANSWERS_WITHIN_S
    )
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
