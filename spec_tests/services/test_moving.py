"""Nodes that move, with books and calls of a simulated network (decision 0250)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from meshnode.config import build_config
from meshnode.domain.errors import StartupError
from meshnode.domain.moving import MoveTimings, State
from meshnode.domain.peers import Peer, ShardInfo
from meshnode.domain.placement import ModelSizes
from meshnode.rpc.errors import CallFailed, Code
from meshnode.services.model_source import may_move, remember_layers, remembered_layers
from meshnode.services.moving import MoveClaim, MoveDependencies, Mover, serve_moving
from meshnode.services.peers import shard_info_message

SIZES = ModelSizes(num_layers=8, layer_bytes=100, embedding_bytes=50, head_bytes=60)
BUDGET = 460
TIMINGS = MoveTimings(speed_s=100.0, settled_s=200.0)
MODEL = "00" * 32
LONG_S = 700.0


class Node:
    """A node of the network: what it says of itself, and its mover."""

    def __init__(self, network: Network, number: int, held: range, draw: float) -> None:
        self.network, self.node_id, self.held = network, f"{number:040x}", held
        self.claim = MoveClaim()
        self.idle = self.free = True
        self.fetched: list[range] = []
        self.written: list[range] = []
        self.left = False
        self.fails: type[Exception] | None = None
        needs = MoveDependencies(
            book=self,  # type: ignore[arg-type]
            connect=self.connect,
            sizes=SIZES,
            budget=BUDGET,
            may_move=lambda: self.free,
            idle=lambda: self.idle,
            fetch=self.fetch,
            write_down=self.write_down,
            leave=self.leave,
        )
        self.mover = Mover(self.claim, needs, TIMINGS, moved=False, draw=lambda: draw)

    async def fetch(self, held: range) -> None:
        await trio.lowlevel.checkpoint()
        if self.fails is StartupError:
            raise StartupError("no node of the network gives it")
        self.fetched.append(held)

    async def write_down(self, held: range) -> None:
        await trio.lowlevel.checkpoint()
        if self.fails is OSError:
            raise OSError(28, "No space left on device")
        self.written.append(held)

    def leave(self) -> None:
        """What it lets go has other holders at this moment."""
        self.left = True
        covered = {layer for node in self.network.staying() for layer in node.held}
        assert set(self.held) - set(self.written[-1]) <= covered

    @property
    def own(self) -> ShardInfo:
        return ShardInfo(
            node_id=self.node_id,
            version="1",
            model_name="m",
            model_hash=MODEL,
            total_layers=8,
            layers=tuple(self.held),
            hidden_dim=1,
            vocab_size=1,
            context_length=1,
            layer_ms=1.0,
            move=self.claim.target,
            leaving=self.claim.target is not None,
        )

    def peers(self) -> list[Peer]:
        return [peer_of(node.own) for node in self.network.alive() if node is not self]

    def holders(self, layer: int) -> list[Peer]:
        return [peer for peer in self.peers() if layer in peer.layers]

    async def connect(self, host: str, port: int) -> Any:
        await trio.sleep(0.1)
        node = self.network.nodes[port - 1000]
        if not self.network.answers(node):
            raise CallFailed(Code.UNAVAILABLE, "nobody there")
        return Stub(node)


class Stub:
    def __init__(self, node: Node) -> None:
        self._node = node

    async def GetShardInfo(self, request: Any, most_bytes: int = 0) -> Any:  # noqa: N802
        await trio.sleep(0.1)
        return shard_info_message(self._node.own)


class Network:
    def __init__(self, *held: range, draws: tuple[float, ...] = ()) -> None:
        self.nodes = [
            Node(self, n, each, draws[n] if n < len(draws) else 0.5) for n, each in enumerate(held)
        ]
        self.silent: set[Node] = set()
        """Nodes that are listed as peers, but do not answer."""

    def alive(self) -> list[Node]:
        return self.nodes

    def answers(self, node: Node) -> bool:
        return node not in self.silent

    def staying(self) -> list[Node]:
        return [node for node in self.nodes if not node.left and node not in self.silent]

    async def runs(self, seconds: float) -> None:
        async with trio.open_nursery() as nursery:
            for node in self.nodes:
                await nursery.start(partial(serve_moving, node.mover, TIMINGS))
            await trio.sleep(seconds)
            nursery.cancel_scope.cancel()


def peer_of(info: ShardInfo) -> Peer:
    return Peer(
        node_id=info.node_id,
        host="10.0.0.1",
        port=int(info.node_id, 16),
        role=info.role,
        layers=info.layers,
        total_layers=info.total_layers,
        model_hash=info.model_hash,
        latency_ms=1.0,
        connected_since=0.0,
        layer_ms=info.layer_ms,
        move=info.move,
        leaving=info.leaving,
    )


def in_virtual_time(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    def run() -> None:
        trio.run(test, clock=trio.testing.MockClock(autojump_threshold=0.01))

    run.__name__ = test.__name__
    return run


@in_virtual_time
async def test_one_of_several_nodes_takes_over_what_is_short() -> None:
    network = Network(range(4), range(4), range(4), draws=(0.5, 0.5, 0.5))
    await network.runs(300)
    (moved,) = [node for node in network.nodes if node.left]
    assert moved.fetched == moved.written == [range(4, 8)]
    assert moved.claim.left_for == range(4, 8)
    assert all(node.claim.target is None for node in network.nodes if node is not moved)


@in_virtual_time
async def test_the_last_holder_that_answers_stays() -> None:
    network = Network(range(4), range(4))
    network.silent.add(network.nodes[1])
    network.nodes[1].free = False
    await network.runs(LONG_S)
    first, _ = network.nodes
    assert first.fetched
    assert not first.left
    assert not first.written


@in_virtual_time
async def test_a_node_that_is_needed_for_longer_stays() -> None:
    network = Network(range(4), range(4))
    for node in network.nodes:
        node.free = False
    await network.runs(LONG_S)
    assert all(node.mover.moving.state is State.SETTLED for node in network.nodes)


@in_virtual_time
async def test_moves_for_speed_wait_for_a_quiet_moment() -> None:
    network = Network(*[range(4)] * 5, range(4, 8))
    for node in network.nodes:
        node.idle = False
    await network.runs(LONG_S)
    assert not any(node.left for node in network.nodes)
    for node in network.nodes:
        node.idle = True
    await network.runs(LONG_S)
    # Two hold each layer, or three and three, as the rule has it; and all layers are held.
    left = [node for node in network.nodes if node.left]
    assert left
    assert all(node.claim.left_for == range(4, 8) for node in left)


@pytest.mark.parametrize("failure", [StartupError, OSError])
def test_what_cannot_be_fetched_or_written_down_is_not_moved_to(failure: type[Exception]) -> None:
    @in_virtual_time
    async def run() -> None:
        network = Network(range(4), range(4))
        for node in network.nodes:
            node.fails = failure
        await network.runs(LONG_S)
        assert not any(node.left or node.claim.left_for for node in network.nodes)

    run()


@in_virtual_time
async def test_a_claim_that_is_never_carried_out_is_forgotten() -> None:
    network = Network(range(4), range(4), range(4))
    boaster = network.nodes[0]
    boaster.free = False
    boaster.claim.target = range(4, 8)
    await network.runs(LONG_S)
    assert sum(node.left for node in network.nodes) == 1
    assert not boaster.left


def test_the_layers_held_are_remembered(tmp_path: Path) -> None:
    assert remembered_layers(tmp_path, 8) is None
    remember_layers(tmp_path, range(2, 6), 8)
    assert remembered_layers(tmp_path, 8) == range(2, 6)
    # They are those of another model.
    assert remembered_layers(tmp_path, 12) is None
    for text in ("", "[]", '{"first": 2}', '{"first": 6, "last": 2, "num_layers": 8}', "1"):
        (tmp_path / "layers.json").write_text(text)
        assert remembered_layers(tmp_path, 8) is None


def test_only_auto_moves_and_only_if_asked_to() -> None:
    assert not may_move(build_config({"layers": "auto"}))
    assert not may_move(build_config({"layers": "0-3", "pipeline.move_layers": True}))
    assert may_move(build_config({"layers": "auto", "pipeline.move_layers": True}))
