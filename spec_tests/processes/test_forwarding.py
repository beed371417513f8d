"""A node without the first layer answers like a driver, whatever becomes of the drivers (0218)."""

from __future__ import annotations

import http.client
import json
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest

from meshnode.wire import node_pb2 as pb
from spec_tests.processes.chain_files import require_conserved
from spec_tests.processes.nodes import (
    ANSWERS_WITHIN_S,
    Node,
    events_of,
    issue_token,
    running_node,
    starting_node,
    wait_chain,
    wait_until,
)
from spec_tests.processes.pipelines import (
    ALL,
    CALL_TIMEOUT_S,
    GREEDY,
    NODE,
    PATH,
    PATIENCE,
    PATIENT,
    SAMPLED,
    Gate,
    address,
    busy,
    peers,
    texts_of_one_node,
)

pytestmark = pytest.mark.process

SILENT_S = 15
"""A driver that says nothing for so long is left."""
FRONT: dict[str, Any] = {**NODE, "MESHNODE_PIPELINE_CALL_S": str(SILENT_S)}
ATOMS = 1_000_000
CHAT = "/v1/chat/completions"
CONVERSATION: dict[str, Any] = {
    "model": "default",
    "messages": [{"role": "user", "content": "Hello"}],
}


@dataclass
class Front:
    """A node with the last layers, which makes the chain's blocks, and drivers that it knows."""

    folder: Path
    stack: ExitStack
    node: Node
    gate: Gate
    drivers: list[Node] = field(default_factory=list)
    started: int = 0

    def have(self, count: int) -> list[Node]:
        """Start drivers until there are so many, and wait until all nodes know each other."""
        self.gate.let(ALL)
        new = []
        while len(self.drivers) < count:
            self.started += 1
            tracker = f"http://{address(self.node)}"
            starting = starting_node(
                self.folder / f"driver{self.started}",
                *("--layers", "0-3", "--tracker", tracker),
                changes=[PATIENT, self.gate.change],
                **{**PATIENCE, **NODE},
            )
            new.append(self.stack.enter_context(starting))
            self.drivers.append(new[-1])
        for driver in new:
            driver.wait_ready()
            # Before that, its answers to the operator have no cost.
            wait_chain(driver.port)
        self.wait_known()
        return self.drivers

    def wait_known(self) -> None:
        known = {address(driver) for driver in self.drivers}
        wait_until(lambda: known <= peers(self.node))
        for driver in self.drivers:
            wait_until(lambda driver=driver: address(self.node) in peers(driver))

    def serving(self) -> Node:
        """The driver that has the only generation."""

        def found() -> Node | None:
            having = [each for each in self.drivers if busy(each).active_sessions]
            return having[0] if len(having) == 1 else None

        driver: Node = wait_until(found)
        return driver

    def lose(self, driver: Node) -> None:
        driver.process.kill()
        driver.process.wait()
        self.drivers.remove(driver)

    def come_back(self) -> None:
        """Kill the node and start it again with its folder and port."""
        node = self.node
        node.process.kill()
        node.process.wait()
        self.node = self.stack.enter_context(
            running_node(node.data_dir, "--layers", "4-7", port=node.port, **FRONT)
        )
        self.wait_known()

    def available(self, token: str) -> int:
        """Atoms that the user may still spend."""
        answer = self.node.ask("GET", "/api/v1/wallet/balance", token=token)
        return round(float(answer.json["balances"]["available"]) * ATOMS)

    def user(self, name: str) -> str:
        """Issue a token to a user who has 1 unit."""
        token = issue_token(self.node.data_dir, name, "1")
        wait_until(lambda: self.available(token) == ATOMS)
        return token


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    folder = tmp_path_factory.mktemp("forwarding")
    gate = Gate(folder / "gate")
    gate.let(ALL)
    with ExitStack() as stack:
        node = stack.enter_context(running_node(folder / "front", "--layers", "4-7", **FRONT))
        yield Front(folder, stack, node, gate)


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> dict[float, str]:
    return texts_of_one_node(tmp_path_factory.mktemp("alone"))


def unary(node: Node, body: dict[str, Any]) -> pb.InferenceResponse:
    with grpc.insecure_channel(f"127.0.0.1:{node.port + 1000}") as channel:
        call = channel.unary_unary(
            "/node.NodeService/UnaryInference",
            pb.InferenceRequest.SerializeToString,
            pb.InferenceResponse.FromString,
        )
        found: pb.InferenceResponse = call(pb.InferenceRequest(**body), timeout=CALL_TIMEOUT_S)
        return found


def without_ids(answer: Any) -> Any:
    changing = {"id", "created", "timing"}
    return {key: value for key, value in answer.items() if key not in changing}


def test_every_door_is_the_drivers(front: Front, wanted: dict[float, str]) -> None:
    (driver,) = front.have(1)
    for body in (GREEDY, SAMPLED):
        ours, theirs = (each.ask("POST", PATH, body) for each in (front.node, driver))
        assert ours.json["text"] == wanted[body["temperature"]]
        assert without_ids(ours.json) == without_ids(theirs.json)
        *tokens, final = events_of(front.node.open_stream(body))
        assert "".join(each["token"] for each in tokens) == wanted[body["temperature"]]
        assert [each["index"] for each in tokens] == list(range(len(tokens)))
        assert final["usage"] == ours.json["usage"]
        assert unary(front.node, body).text == wanted[body["temperature"]]
    for path, asked in (
        (CHAT, {**CONVERSATION, "seed": 3, "max_tokens": 12, "logprobs": True, "top_logprobs": 2}),
        ("/v1/completions", {"model": "default", "prompt": "Once", "seed": 4, "n": 2}),
    ):
        ours, theirs = (each.ask("POST", path, asked) for each in (front.node, driver))
        assert ours.status == 200
        assert without_ids(ours.json) == without_ids(theirs.json)
    for path, asked in (
        (PATH, {**GREEDY, "prompt": "word " * 5000}),
        (PATH, {**GREEDY, "temperature": 9}),
        (CHAT, {**CONVERSATION, "model": "another"}),
    ):
        ours, theirs = (each.ask("POST", path, asked) for each in (front.node, driver))
        assert 400 <= ours.status < 500
        assert (ours.status, ours.json) == (theirs.status, theirs.json)
    assert front.node.ask("POST", PATH, GREEDY, token="wrong").status == 401


def test_the_trace_has_the_drivers_hops(front: Front) -> None:
    front.have(1)
    connection = http.client.HTTPConnection("127.0.0.1", front.node.port, timeout=ANSWERS_WITHIN_S)
    body, headers = front.node.payload(GREEDY, "")
    connection.request("POST", PATH, body, {**headers, "X-Meshnode-Trace": "1"})
    response = connection.getresponse()
    response.read()
    connection.close()
    trace = json.loads(response.headers["X-Meshnode-Trace"])
    assert [hop["layers"] for hop in trace["hops"]] == ["0-3", "4-7"]


def test_the_client_pays_this_node_and_nobody_else(front: Front) -> None:
    (driver,) = front.have(1)
    alice = front.user("alice")
    answer = front.node.ask("POST", PATH, GREEDY, token=alice).json
    tokens = answer["tokens_generated"]
    assert answer["cost"] == {"amount": tokens / 1000, "currency": "MESH"}
    streamed = list(events_of(front.node.open_stream(SAMPLED, token=alice)))
    tokens += streamed[-1]["usage"]["completion_tokens"]
    wait_until(lambda: front.available(alice) == ATOMS - 1000 * tokens)
    # The driver's wallet has charged nobody.
    figures = driver.ask("GET", "/metrics").body.decode()
    charged = [
        line for line in figures.splitlines() if line.startswith("meshnode_wallet_charges_total ")
    ]
    assert [float(line.split()[-1]) for line in charged] in ([0.0], [])
    # Who cannot pay is refused before anything is passed on.
    poor = issue_token(front.node.data_dir, "poor")
    refused = front.node.ask("POST", PATH, GREEDY, token=poor)
    assert (refused.status, refused.json["error"]["code"]) == (402, "INSUFFICIENT_BALANCE")


@pytest.mark.parametrize("before", [0, 10], ids=["before the first token", "in mid-stream"])
@pytest.mark.parametrize(
    "number",
    [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.slow), signal.SIGTERM],
    ids=lambda value: getattr(value, "name", ""),
)
def test_another_driver_goes_on(
    front: Front, wanted: dict[float, str], number: signal.Signals, before: int
) -> None:
    front.have(2)
    bob = front.user(f"bob-{number.name}-{before}")
    front.gate.let(before)
    events: list[dict[str, Any]] = []
    reader = threading.Thread(
        target=lambda: events.extend(events_of(front.node.open_stream(SAMPLED, token=bob)))
    )
    reader.start()
    front.gate.wait_held()
    victim = front.serving()
    victim.signal(number)
    front.gate.let(ALL)
    reader.join(ANSWERS_WITHIN_S)
    front.lose(victim)
    *tokens, final = events
    assert "".join(each["token"] for each in tokens) == wanted[SAMPLED["temperature"]]
    assert [each["index"] for each in tokens] == list(range(SAMPLED["max_tokens"]))
    assert final["token"] == "[DONE]"
    wait_until(lambda: front.available(bob) == ATOMS - 1000 * len(tokens))


def test_without_a_driver_and_without_leave(front: Front, tmp_path: Path) -> None:
    """Two nodes that could only pass the request to each other refuse it at once."""
    for driver in list(front.drivers):
        front.lose(driver)
    tracker = f"http://{address(front.node)}"
    with running_node(tmp_path / "other", "--layers", "4-7", "--tracker", tracker, **FRONT) as one:
        wait_until(lambda: peers(one) >= {address(front.node)})
        wait_until(lambda: peers(front.node) == {address(one)})
        for node in (front.node, one):
            answer = node.ask("POST", PATH, GREEDY)
            assert (answer.status, answer.json["error"]["code"]) == (503, "UNAVAILABLE")
            assert "knows no node that does" in answer.json["error"]["message"]
    front.have(1)
    assert front.node.ask("POST", PATH, GREEDY).status == 200
    off = {**FRONT, "MESHNODE_PIPELINE_FORWARD": "false"}
    with running_node(tmp_path / "off", "--layers", "4-7", "--tracker", tracker, **off) as node:
        wait_until(lambda: len(peers(node)) == 2)
        answer = node.ask("POST", PATH, GREEDY)
        assert answer.status == 503
        assert "does not hold the first layer" in answer.json["error"]["message"]


@pytest.mark.slow
def test_kill_9_of_either_node_loses_no_atom(front: Front) -> None:
    """What a user has paid is what was answered, or one answer more: that which a kill cut off."""
    front.have(2)
    carol = front.user("carol")
    body, bought = {**GREEDY, "max_tokens": 5}, 0
    price = 5 * 1000
    for victim in ("driver", "front", "driver", "front"):
        front.have(2)
        answers: list[int] = []

        def spend(answers: list[int] = answers) -> None:
            while True:
                try:
                    answer = front.node.ask("POST", PATH, body, token=carol)
                except (OSError, http.client.HTTPException):
                    return
                answers.append(answer.status)
                if len(answers) > 2000:
                    return

        spender = threading.Thread(target=spend)
        spender.start()
        wait_until(lambda answers=answers: answers.count(200) >= 4)
        if victim == "driver":
            front.lose(front.drivers[0])
            seen = len(answers)
            wait_until(lambda answers=answers, seen=seen: answers[seen:].count(200) >= 2)
        front.come_back()
        spender.join(ANSWERS_WITHIN_S)
        assert set(answers) <= {200, 503}
        paid = ATOMS - front.available(carol)
        least = bought + price * answers.count(200)
        assert paid in (least, least + price)
        bought = paid
    front.node.signal(signal.SIGTERM)
    front.node.wait()
    require_conserved(front.node.data_dir)
