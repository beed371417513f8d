"""Nodes started as a user would that share a model: a driver that can be held, and its holders."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from meshnode.wire import node_pb2 as pb
from spec_tests.support_process import Node, events_of, run, running_node, starting_node, wait_until

PATH = "/api/v1/inference"
GREEDY = {"prompt": "Once upon a time", "max_tokens": 40, "temperature": 0}
SAMPLED = {"prompt": "The little fox", "max_tokens": 40, "temperature": 0.9, "seed": 5}
DEAD_S, CALL_S = 2.0, 5.0
"""The longest pauses: for a process that is gone, and for one that hangs."""
PATIENT_S = 10.0
PATIENT = f"""
from dataclasses import replace
from meshnode.rpc import pool
from meshnode.services import peers
from meshnode.services.pipeline import PipelineLimits
pool.CONNECT_S = {PATIENT_S}
PipelineLimits.__init__.__kwdefaults__["call_s"] = {PATIENT_S}
peers.serve_peers.__kwdefaults__["timings"] = replace(peers.PEER_TIMINGS, call_s={PATIENT_S})
"""
"""For a driver: no holder is taken for one that hangs because many processes share a machine."""
SLOW_S = 120.0
"""On top of them: machines are shared, and bench/ measures."""
CALL_TIMEOUT_S = 120.0
NODE = {"MESHNODE_RESOURCES_CPU_THREADS": "1", "MESHNODE_SETTLE_EVERY_S": "0.2"}
HOLDER = {**NODE, "MESHNODE_DRAIN_S": "0.1"}
"""Too short for a stream to end in the drain."""
ALL = 1 << 30


@dataclass(frozen=True)
class Gate:
    """Holds a driver's generations before their token of some number.

    What is done in mid-stream is then done in mid-stream, however fast the nodes and however slow
    the test.
    """

    file: Path

    def let(self, tokens: int) -> None:
        """Let each generation have so many tokens."""
        self._held.unlink(missing_ok=True)
        scratch = self.file.with_suffix(".new")
        scratch.write_text(str(tokens))
        scratch.replace(self.file)

    @property
    def tokens(self) -> int:
        """What was let."""
        return int(self.file.read_text())

    def wait_held(self) -> None:
        """Wait until a generation is held: nothing of it is out at the holders then."""
        number = str(self.tokens + 1)
        wait_until(lambda: self._held.exists() and self._held.read_text() == number)

    @property
    def _held(self) -> Path:
        return self.file.with_suffix(".held")

    @property
    def prelude(self) -> str:
        """For the process of the driver."""
        return f"""
import time
from pathlib import Path
from meshnode.model.sampler import Sampler
choose, gate, held = Sampler.choose, Path({str(self.file)!r}), Path({str(self._held)!r})
def choose_when_let(self, logits):
    self.chosen = getattr(self, "chosen", 0) + 1
    while self.chosen > int(gate.read_text()):
        held.write_text(str(self.chosen))
        time.sleep(0.01)
    return choose(self, logits)
Sampler.choose = choose_when_let
"""


@dataclass
class Network:
    """A driver and its holders; who dies is replaced before the next test."""

    folder: Path
    stack: ExitStack
    driver: Node
    gate: Gate
    holders: list[Node] = field(default_factory=list)
    started: int = 0

    def start(self, layers: str, data_dir: Path | None = None, port: int = 0, **more: str) -> Node:
        """One more node, or one that comes back."""
        self.started += 1
        return self.stack.enter_context(
            starting_node(
                data_dir or self.folder / f"n{self.started}",
                *("--layers", layers, "--tracker", f"http://127.0.0.1:{self.driver.port}"),
                port=port,
                **{**HOLDER, **more},
            )
        )

    def hold(self, *layers: str, **settings: dict[str, str]) -> list[Node]:
        """Have exactly these holders, and all of them know each other.

        ``settings`` of the holder with layers ``a-b`` are ``a_b``; then all are new.
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
        """Wait until all know each other."""
        # Those that were lost may be known for a while: nobody needs them.
        for node in (self.driver, *self.holders):
            others = {address(other) for other in (self.driver, *self.holders)} - {address(node)}
            wait_until(lambda node=node, others=others: others <= peers(node))

    def lose(self, node: Node) -> None:
        """Make sure that a holder is gone."""
        node.process.kill()
        node.process.wait()
        if node in self.holders:
            self.holders.remove(node)

    def come_back(self, node: Node, layers: str = "") -> Node:
        """Kill a holder, and start it again where it was: with these layers, or with its own."""
        self.lose(node)
        back = self.start(layers or ranges(node), node.data_dir, node.port)
        back.wait_ready()
        self.holders.append(back)
        self.wait_known()
        return back

    def stream(self, body: dict[str, Any], **options: str) -> Iterator[tuple[float, dict]]:
        """Events and when they came."""
        for event in events_of(self.driver.open_stream(body, **options)):
            yield time.monotonic(), event

    def serving(self, layers: str) -> Node:
        """The holder of these layers that has the session of the one stream there is."""
        able = [node for node in self.holders if ranges(node) == layers]

        def found() -> Node | None:
            # One that was left may still be told so.
            having = [node for node in able if busy(node).active_sessions]
            return having[0] if len(having) == 1 else None

        return wait_until(found)

    def settled(self) -> bool:
        """Whether nothing of any generation is left anywhere."""
        return all(
            (told.kv_used, told.active_sessions, told.queue_depth) == (0, 0, 0)
            for told in map(busy, (self.driver, *self.holders))
        )

    def issue(self, name: str) -> str:
        """A token of a user who has 1 unit."""
        data = str(self.driver.data_dir)
        issued = run("token", "issue", "--name", name, "--fund", "1", "--data-dir", data)
        token: str = issued.stdout.split("shown this once: ")[1].split()[0]
        wait_until(lambda: self.available(token) == 1.0)
        return token

    def available(self, token: str) -> float:
        """What that user may still spend."""
        answer = self.driver.ask("GET", "/api/v1/wallet/balance", token=token)
        return float(answer.json["balances"]["available"])

    def wait_billed(self, token: str, tokens: int) -> None:
        """Wait until the user of ``issue`` has paid for so many tokens, and no more."""
        wait_until(lambda: self.available(token) == round(1.0 - tokens / 1000, 6))


def address(node: Node) -> str:
    return f"127.0.0.1:{node.port}"


def peers(node: Node) -> set[str]:
    return {peer["address"] for peer in node.ask("GET", "/api/v1/peers").json["peers"]}


def ranges(node: Node) -> str:
    """The layers that it was started with."""
    arguments = node.process.args
    return arguments[arguments.index("--layers") + 1]


def busy(node: Node) -> pb.NodeCapacity:
    """What the node says of its use, by the document's client."""
    # A node that comes back at its port is not to be found behind a broken connection.
    own = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(f"127.0.0.1:{node.port + 1000}", own) as channel:
        call = channel.unary_unary(
            "/node.NodeService/GetShardInfo",
            pb.GetShardInfoRequest.SerializeToString,
            pb.GetShardInfoResponse.FromString,
        )
        return call(pb.GetShardInfoRequest(), timeout=CALL_TIMEOUT_S).capacity


def open_network(folder: Path, stack: ExitStack) -> Network:
    """A driver with the first layer, and nobody else yet."""
    gate = Gate(folder / "gate")
    gate.let(ALL)
    prelude = PATIENT + gate.prelude
    driver = running_node(folder / "driver", "--layers", "0", prelude=prelude, **NODE)
    return Network(folder, stack, stack.enter_context(driver), gate)


def texts_of_one_node(folder: Path) -> dict[float, str]:
    """What one node with all layers answers, by temperature."""
    with running_node(folder / "node", **NODE) as node:
        return {
            body["temperature"]: node.ask("POST", PATH, body).json["text"]
            for body in (GREEDY, SAMPLED)
        }


def require_whole(events: list[tuple[float, dict]], text: str) -> None:
    """An undisturbed stream's events: none lost, none repeated, and its text."""
    *tokens, (_, final) = events
    assert [event["index"] for _, event in tokens] == list(range(len(tokens)))
    assert "".join(event["token"] for _, event in tokens) == text
    assert final["token"] == "[DONE]"
    assert final["usage"]["completion_tokens"] == len(tokens) == SAMPLED["max_tokens"]


def longest_stall(events: list[tuple[float, dict]], gone: list[tuple[int, float]]) -> float:
    """The longest pause after a holder went, in seconds.

    ``gone`` has how many events there were each time, and when it was: a stream is held before it.
    """
    ends = [*(count for count, _ in gone[1:]), len(events)]
    pauses = []
    for (count, at), end in zip(gone, ends, strict=True):
        times = sorted([at, *(when for when, _ in events[count:end])])
        pauses += [after - before for before, after in itertools.pairwise(times)]
    return max(pauses)


def require_part(events: list[tuple[float, dict]], text: str) -> int:
    """Events up to a typed error; how many tokens there were."""
    *tokens, (_, failed) = events
    assert [event["index"] for _, event in tokens] == list(range(len(tokens)))
    assert text.startswith("".join(event["token"] for _, event in tokens))
    assert failed["error"]["code"] == "UNAVAILABLE"
    return len(tokens)
