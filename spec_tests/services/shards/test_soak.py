"""Many sessions that end in every way leave no memory behind at any hop."""

import random
import struct
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import trio

from meshnode.domain.metering import TrafficMeter
from meshnode.rpc.channel import open_channel
from meshnode.rpc.errors import CallFailed
from meshnode.rpc.node_grpc import NodeServiceStub
from meshnode.wire import node_pb2 as pb
from spec_tests.model.small_models import make_model
from spec_tests.services.shards.holders import (
    HOLDER_LIMITS,
    LONG_S,
    HolderNode,
    holder_node,
    until_free,
)

REQUESTS = 60
AT_ONCE = 10
"""More drivers at once than there are sessions, so that some are refused."""


async def one_request(nodes: list[HolderNode], name: str, rng: random.Random) -> str:
    """Run a driver that finishes, disconnects, or does not close its session."""
    length, count = rng.randint(1, 40), rng.randint(1, 8)
    patience = rng.choice([0.001, 0.01, 0.05, 30.0, 30.0])
    closes = rng.random() < 0.7
    outcome = "left"
    hops = [node.hop for node in nodes]
    async with open_channel("127.0.0.1", nodes[0].port, traffic=TrafficMeter()) as channel:
        stub = NodeServiceStub(channel)
        with trio.move_on_after(patience):
            try:
                for step in range(count):
                    seq = length if step == 0 else 1
                    answer = await stub.SwarmForward(
                        pb.SwarmForwardRequest(
                            session_id=name,
                            use_cache=True,
                            hidden_states=struct.pack(f"<{seq}q", *[7] * seq),
                            hidden_shape=[1, seq],
                            route=hops,
                        )
                    )
                    if not answer.success:
                        reason = answer.error_message.partition(":")[0]
                        # A hop keeps to the driver's deadline, and may say so before it has passed.
                        late = reason == "DEADLINE_EXCEEDED" and patience < 1.0
                        assert late or reason == "RESOURCE_EXHAUSTED", answer.error_message
                        return "left" if late else reason
                outcome = "finished"
            except CallFailed as error:
                return error.code.name
        if closes:
            await stub.SwarmForward(pb.SwarmForwardRequest(session_id=name, route=hops))
    return outcome


async def test_nothing_is_left_whatever_drivers_do(tmp_path: Path) -> None:
    directory = make_model(tmp_path / "model")
    limits = replace(HOLDER_LIMITS, idle_s=0.3, crowded_idle_s=0.1)
    rng = random.Random(3)
    outcomes: list[str] = []
    async with AsyncExitStack() as stack:
        nodes = [
            await stack.enter_async_context(
                holder_node(directory, list(part), holder_limits=limits)
            )
            for part in ([0], [1, 2], [3])
        ]
        for node in nodes:
            node.known.addresses |= {("127.0.0.1", other.port) for other in nodes}
        places = trio.CapacityLimiter(AT_ONCE)

        async def one(i: int) -> None:
            async with places:
                outcomes.append(await one_request(nodes, f"s{i}", rng))

        async with trio.open_nursery() as nursery:
            for i in range(REQUESTS):
                nursery.start_soon(one, i)
        for node in nodes:
            with trio.fail_after(LONG_S):
                await until_free(node.executor)
            assert len(node.holder) == 0
    assert len(outcomes) == REQUESTS
    assert {"finished", "left"} <= set(outcomes) <= {"finished", "left", "RESOURCE_EXHAUSTED"}
