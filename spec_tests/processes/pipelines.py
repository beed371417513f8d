"""Nodes that share a model, started as a user would: a driver that tests can hold, and holders."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from meshnode.wire import node_pb2 as pb
from spec_tests.processes import changes
from spec_tests.processes.calls import Call
from spec_tests.processes.nodes import (
    Node,
    events_of,
    issue_token,
    running_node,
    starting_node,
    wait_until,
)

PATH = "/api/v1/inference"
GREEDY: dict[str, Any] = {"prompt": "Once upon a time", "max_tokens": 40, "temperature": 0}
SAMPLED: dict[str, Any] = {
    "prompt": "The little fox",
    "max_tokens": 40,
    "temperature": 0.9,
    "seed": 5,
}
DEAD_S, CALL_S = 2.0, 5.0
"""The longest pause of a stream whose holder has died, and of one whose holder hangs."""
PATIENT_S = 10.0
PATIENT = partial(changes.wait_longer, seconds=PATIENT_S)
PATIENCE = {"MESHNODE_PIPELINE_CALL_S": str(4 * PATIENT_S)}
"""For a driver: how long it waits for a holder, which may be slow on a busy machine. One position
gets a quarter of it (decision 0134)."""
SLOW_S = 120.0
"""Added to the pauses above because machines are shared. bench/ measures the real ones."""
CALL_TIMEOUT_S = 120.0
NODE: dict[str, Any] = {
    "MESHNODE_RESOURCES_CPU_THREADS": "1",
    "MESHNODE_SETTLE_EVERY_S": "0.2",
    # A witness of results would have a session too, and tests look for the one that has it.
    "MESHNODE_PIPELINE_CHECKS": "0",
}
HOLDER: dict[str, Any] = {**NODE, "MESHNODE_DRAIN_S": "0.1"}
"""The drain of a holder is too short for a stream to end in it."""
ALL = 1 << 30


@dataclass(frozen=True)
class Gate:
    """Stops a driver's generations before the token whose number the test has chosen.

    So a test can act in the middle of a stream, however fast the nodes and however slow the test.
    """

    file: Path

    def let(self, tokens: int) -> None:
        """Let each generation have this many tokens."""
        self._held.unlink(missing_ok=True)
        scratch = self.file.with_suffix(".new")
        scratch.write_text(str(tokens))
        scratch.replace(self.file)

    @property
    def tokens(self) -> int:
        """How many tokens each generation may have now."""
        return int(self.file.read_text())

    def wait_held(self) -> None:
        """Wait until a generation is held. No holder has a request of it in progress then."""
        number = str(self.tokens + 1)
        wait_until(lambda: self._held.exists() and self._held.read_text() == number)

    @property
    def _held(self) -> Path:
        return self.file.with_suffix(".held")

    @property
    def change(self) -> Call:
        """The change in the driver's process that makes it obey this gate."""
        return partial(changes.hold_generations, file=str(self.file), held=str(self._held))


@dataclass
class Network:
    """A driver and its holders. Holders that a test killed are replaced before the next test."""

    folder: Path
    stack: ExitStack
    driver: Node
    gate: Gate
    holders: list[Node] = field(default_factory=list)
    started: int = 0

    def start(self, layers: str, data_dir: Path | None = None, port: int = 0, **more: Any) -> Node:
        """Start one more node, or restart one with its data folder and port."""
        self.started += 1
        return self.stack.enter_context(
            starting_node(
                data_dir or self.folder / f"n{self.started}",
                *("--layers", layers, "--tracker", f"http://127.0.0.1:{self.driver.port}"),
                port=port,
                **{**HOLDER, **more},
            )
        )

    def hold(self, *layers: str, **settings: dict[str, Any]) -> list[Node]:
        """Start and kill holders until exactly these run, and wait until all know each other.

        The keyword ``a_b`` has the settings of the holder of layers ``a-b``. If any settings are
        given, all holders are new.
        """
        wanted = list(layers)
        for node in list(self.holders):
            held = ranges(node)
            if held in wanted and not settings:
                wanted.remove(held)
            else:
                self.lose(node)
        started = [self.start(held, **settings.get(held.replace("-", "_"), {})) for held in wanted]
        for node in started:
            node.wait_ready()
        self.holders += started
        self.wait_known()
        return self.holders

    def wait_known(self) -> None:
        """Wait until all nodes know each other."""
        # Nodes may know killed holders for a while longer, which does no harm.
        for node in (self.driver, *self.holders):
            others = {address(other) for other in (self.driver, *self.holders)} - {address(node)}
            wait_until(lambda node=node, others=others: others <= peers(node))

    def lose(self, node: Node) -> None:
        """Kill a holder if it still runs, and wait for its end."""
        node.process.kill()
        node.process.wait()
        if node in self.holders:
            self.holders.remove(node)

    def come_back(self, node: Node, layers: str = "") -> Node:
        """Kill a holder and restart it with its folder and port, with these or its own layers."""
        self.lose(node)
        back = self.start(layers or ranges(node), node.data_dir, node.port)
        back.wait_ready()
        self.holders.append(back)
        self.wait_known()
        return back

    def stream(
        self, body: dict[str, Any], **options: str
    ) -> Iterator[tuple[float, dict[str, Any]]]:
        """The events of a stream, each with the monotonic time in seconds at which it came."""
        for event in events_of(self.driver.open_stream(body, **options)):
            yield time.monotonic(), event

    def serving(self, layers: str) -> Node:
        """The holder of these layers that has the session of the only stream."""
        able = [node for node in self.holders if ranges(node) == layers]

        def found() -> Node | None:
            # A holder that the driver has left keeps its session until the driver's close arrives.
            having = [node for node in able if busy(node).active_sessions]
            return having[0] if len(having) == 1 else None

        holder: Node = wait_until(found)
        return holder

    def settled(self) -> bool:
        """Whether no node has a session, a queued request or memory in use for a generation."""
        return all(
            (told.kv_used, told.active_sessions, told.queue_depth) == (0, 0, 0)
            for told in map(busy, (self.driver, *self.holders))
        )

    def issue(self, name: str) -> str:
        """Issue a token to a user who has 1 unit."""
        token = issue_token(self.driver.data_dir, name, "1")
        wait_until(lambda: self.available(token) == 1.0)
        return token

    def available(self, token: str) -> float:
        """How many units that user may still spend."""
        answer = self.driver.ask("GET", "/api/v1/wallet/balance", token=token)
        return float(answer.json["balances"]["available"])

    def wait_billed(self, token: str, tokens: int) -> None:
        """Wait until the user of ``issue`` has paid for exactly this many generated tokens."""
        wait_until(lambda: self.available(token) == round(1.0 - tokens / 1000, 6))


def address(node: Node) -> str:
    return f"127.0.0.1:{node.port}"


def peers(node: Node) -> set[str]:
    return {peer["address"] for peer in node.ask("GET", "/api/v1/peers").json["peers"]}


def ranges(node: Node) -> str:
    """The layers with which a node was started, as in ``--layers``."""
    arguments = list(map(str, node.process.args))  # type: ignore[arg-type]
    return arguments[arguments.index("--layers") + 1]


def busy(node: Node) -> pb.NodeCapacity:
    """The capacity and load that a node reports to a client of Google's gRPC library."""
    # Do not reuse a connection to an earlier process at the same port.
    own = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(f"127.0.0.1:{node.port + 1000}", own) as channel:
        call = channel.unary_unary(
            "/node.NodeService/GetShardInfo",
            pb.GetShardInfoRequest.SerializeToString,
            pb.GetShardInfoResponse.FromString,
        )
        found: pb.NodeCapacity = call(pb.GetShardInfoRequest(), timeout=CALL_TIMEOUT_S).capacity
        return found


def open_network(folder: Path, stack: ExitStack, *more: Call) -> Network:
    """Start a driver with the first layer, after these changes, and no holders yet."""
    gate = Gate(folder / "gate")
    gate.let(ALL)
    driver = running_node(
        folder / "driver",
        "--layers",
        "0",
        changes=[PATIENT, gate.change, *more],
        **PATIENCE,
        **NODE,
    )
    return Network(folder, stack, stack.enter_context(driver), gate)


def texts_of_one_node(folder: Path) -> dict[float, str]:
    """The texts that one node with all layers generates, by temperature."""
    with running_node(folder / "node", **NODE) as node:
        return {
            body["temperature"]: node.ask("POST", PATH, body).json["text"]
            for body in (GREEDY, SAMPLED)
        }


def require_whole(events: list[tuple[float, dict[str, Any]]], text: str) -> None:
    """Check that a stream has this text and is complete, with no token lost or repeated."""
    *tokens, (_, final) = events
    assert [event["index"] for _, event in tokens] == list(range(len(tokens)))
    assert "".join(event["token"] for _, event in tokens) == text
    assert final["token"] == "[DONE]"
    assert final["usage"]["completion_tokens"] == len(tokens) == SAMPLED["max_tokens"]


def longest_stall(
    events: list[tuple[float, dict[str, Any]]], gone: list[tuple[int, float]]
) -> float:
    """The longest pause of a stream after a holder was lost, in seconds.

    ``gone`` has, for each loss, the number of events before it and its monotonic time in seconds.
    The stream was held just before each loss.
    """
    ends = [*(count for count, _ in gone[1:]), len(events)]
    pauses = []
    for (count, at), end in zip(gone, ends, strict=True):
        times = sorted([at, *(when for when, _ in events[count:end])])
        pauses += [after - before for before, after in itertools.pairwise(times)]
    return max(pauses)


def require_part(events: list[tuple[float, dict[str, Any]]], text: str) -> int:
    """Check that a stream ends in UNAVAILABLE within this text; return its number of tokens."""
    *tokens, (_, failed) = events
    assert [event["index"] for _, event in tokens] == list(range(len(tokens)))
    assert text.startswith("".join(event["token"] for _, event in tokens))
    assert failed["error"]["code"] == "UNAVAILABLE"
    return len(tokens)
