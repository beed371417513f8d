"""design: the last holder may answer the driver straight; nothing depends on it (decision 0219)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from meshnode.domain.errors import InvalidRequest
from meshnode.domain.metering import TrafficMeter
from meshnode.domain.routing import saved_by_short_cut
from meshnode.edges.grpc_service import node_services
from meshnode.rpc.errors import Code
from meshnode.rpc.node_grpc import NodeServiceServicer
from meshnode.rpc.server import serve_grpc
from meshnode.services.pipeline.policy import HopFailed
from meshnode.services.pipeline.short_cuts import ShortCuts
from meshnode.supervise import Drain
from meshnode.wire import node_pb2 as pb
from spec_tests.services.executor.generations import complete
from spec_tests.services.pipeline.pipelines import (
    GREEDY,
    PIPELINE,
    SAMPLED,
    Cluster,
    FixedPeer,
    Relay,
    alone,
    cluster,
    small_model,
)

NONE: dict[str, Any] = {"eos_token_ids": frozenset()}
OWN, FIRST, LAST = range(2), range(2, 4), range(4, 6)
DRIVER = "d" * 40
FAR_MS = 50.0
"""A latency with which short cuts pay."""
IN_STREAM = 11


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("short") / "model")


@dataclass
class Door(NodeServiceServicer):
    """The driver's port, at which answers come."""

    cuts: ShortCuts
    refuses: bool = False
    answers: list[pb.SwarmForwardRequest] = field(default_factory=list)

    async def SwarmForward(  # noqa: N802 - the document's name
        self, input_message: pb.SwarmForwardRequest
    ) -> pb.SwarmForwardResponse:
        self.answers.append(input_message)
        if self.refuses:
            # As a driver of an earlier version does.
            raise InvalidRequest("route", "must have 1 to 256 hops")
        return self.cuts.take(input_message)


@asynccontextmanager
async def far(
    directory: Path, *held: range, **options: Any
) -> AsyncIterator[tuple[Cluster, Door, Relay]]:
    """A driver far from its holders, which know it behind a relay."""
    async with cluster(directory, OWN, held or [FIRST, LAST], **NONE, **options) as nodes:
        door = Door(nodes.hops.short_cuts)
        serve = partial(
            serve_grpc, node_services([door], Drain()), "127.0.0.1", 0, traffic=TrafficMeter()
        )
        _, port = await nodes.nursery.start(serve)
        relay = Relay(port)
        await nodes.nursery.start(relay.run)
        nodes.book.peers = [
            *(replace(peer, latency_ms=FAR_MS) for peer in nodes.book.peers),
            FixedPeer(DRIVER, "127.0.0.1", relay.port, ()),
        ]
        yield nodes, door, relay


@pytest.mark.parametrize("request_", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
async def test_all_answers_come_straight(directory: Path, request_: Any) -> None:
    wanted = await alone(directory, request_, **NONE)
    async with far(directory) as (nodes, door, _):
        text, _ = await complete(nodes.pipeline, request_)
        assert text == wanted
        assert nodes.hops.short_cuts.taken == len(door.answers) > 0
        # Each message of the last holder was answered straight, and none along the calls.
        assert len(door.answers) == nodes.holders[-1].gate.forwards
        (trace,) = nodes.hops._traces.values()
        assert [(hop.first, hop.last) for hop in trace.hops] == [(0, 1), (2, 3), (4, 5)]
        assert all(hop.compute_ms > 0 for hop in trace.hops)
        await nodes.settled()


async def test_one_remote_hop_has_no_shorter_way(directory: Path) -> None:
    async with far(directory, range(2, 6)) as (nodes, door, _):
        await complete(nodes.pipeline, GREEDY)
        assert not door.answers


async def test_a_driver_that_is_near_or_told_not_to_gets_its_answers_along_the_calls(
    directory: Path,
) -> None:
    async with far(directory) as (nodes, door, _):
        nodes.book.peers = [replace(peer, latency_ms=1.0) for peer in nodes.book.peers]
        await complete(nodes.pipeline, GREEDY)
        assert not door.answers
    async with far(directory, limits=replace(PIPELINE, short_cut=False)) as (nodes, door, _):
        await complete(nodes.pipeline, GREEDY)
        assert not door.answers


def test_what_a_short_cut_saves() -> None:
    assert saved_by_short_cut([]) == saved_by_short_cut([100.0]) == 0.0
    assert saved_by_short_cut([100.0, 100.0]) == 50.0
    assert saved_by_short_cut([100.0, 20.0, 100.0]) == 60.0
    assert saved_by_short_cut([-5.0, 20.0]) == 0.0


async def test_a_driver_that_cannot_be_reached_is_tried_once(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = await alone(directory, GREEDY, **NONE)
    async with far(directory) as (nodes, _, relay):
        tried, stub = [], nodes.pool.stub

        async def counted(host: str, grpc_port: int) -> Any:
            tried.append(grpc_port)
            return await stub(host, grpc_port)

        monkeypatch.setattr(nodes.pool, "stub", counted)
        relay.kill()
        for _ in range(2):
            text, _ = await complete(nodes.pipeline, GREEDY)
            assert text == wanted
        assert tried.count(relay.port) == 1
        assert nodes.hops.failovers == nodes.hops.short_cuts.taken == 0


async def test_a_driver_of_an_earlier_version_is_asked_once(directory: Path) -> None:
    wanted = await alone(directory, GREEDY, **NONE)
    async with far(directory) as (nodes, door, _):
        door.refuses = True
        text, _ = await complete(nodes.pipeline, GREEDY)
        assert text == wanted
        assert len(door.answers) == 1
        assert nodes.hops.failovers == 0


async def test_a_driver_that_its_holders_do_not_know_gets_its_answers(directory: Path) -> None:
    wanted = await alone(directory, GREEDY, **NONE)
    async with far(directory) as (nodes, door, _):
        nodes.book.peers = nodes.book.peers[:-1]
        text, _ = await complete(nodes.pipeline, GREEDY)
        assert text == wanted
        assert not door.answers


@pytest.mark.parametrize("stage", [0, 1], ids=["first", "last"])
async def test_a_holder_that_dies_is_replaced(directory: Path, stage: int) -> None:
    wanted = await alone(directory, SAMPLED, **NONE)
    async with far(directory, FIRST, LAST, FIRST, LAST) as (nodes, _, _):
        victim = nodes.holders[stage]

        async def dies(number: int) -> None:
            if number == IN_STREAM:
                victim.relay.kill()
                await trio.sleep_forever()

        victim.gate.script = dies
        text, _ = await complete(nodes.pipeline, SAMPLED)
        assert text == wanted
        assert nodes.hops.failovers >= 1
        assert nodes.hops.short_cuts.taken > 0


async def test_a_holder_that_has_not_delivered_is_left(directory: Path) -> None:
    """It says that the driver has its answer, and the driver has none."""
    wanted = await alone(directory, GREEDY, **NONE)
    async with far(directory, FIRST, LAST, LAST) as (nodes, _, _):
        liar = nodes.holders[1]

        async def lies(number: int) -> dict[str, object]:
            return {"success": True, "delivered": True}

        liar.gate.script = lies
        text, _ = await complete(nodes.pipeline, GREEDY)
        assert text == wanted
        assert nodes.hops.failovers == 1
        assert nodes.holders[2].gate.forwards


# What comes first counts


REQUEST = pb.SwarmForwardRequest(session_id="s", request_id="r")
ANSWER = pb.SwarmForwardResponse(success=True, logits=b"straight")


def straight(**changes: Any) -> pb.SwarmForwardRequest:
    fields: dict[str, Any] = {"session_id": "s", "request_id": "r", "answer": ANSWER}
    return pb.SwarmForwardRequest(**(fields | changes))


@asynccontextmanager
async def awaited(cuts: ShortCuts, call: Any) -> AsyncIterator[list[Any]]:
    """Wait for an answer in the background; the list gets it, or the failure."""
    found: list[Any] = []
    async with trio.open_nursery() as nursery:

        async def wait() -> None:
            try:
                found.append(await cuts.first(REQUEST, call, nursery.start_soon))
            except HopFailed as failure:
                found.append(failure)

        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        yield found


async def test_the_first_answer_counts_and_no_other(autojump_clock: object) -> None:
    cuts, asked = ShortCuts(), trio.Event()

    async def slow() -> pb.SwarmForwardResponse:
        await trio.sleep(1.0)
        asked.set()
        return pb.SwarmForwardResponse(success=True, delivered=True)

    async with awaited(cuts, slow) as found:
        assert not cuts.take(straight(session_id="other")).success
        assert not cuts.take(straight(request_id="other")).success
        assert not cuts.take(straight(answer=pb.SwarmForwardResponse())).success
        assert cuts.take(straight()).success
        await trio.testing.wait_all_tasks_blocked()
        assert (found[0].answer.logits, found[0].short_cut) == (b"straight", True)
        assert not cuts.take(straight()).success
    # The call has gone on to its end, though nobody waited for it.
    assert asked.is_set()
    assert cuts.taken == 1


async def test_an_answer_along_the_calls_may_be_first(autojump_clock: object) -> None:
    cuts = ShortCuts()

    async def quick() -> pb.SwarmForwardResponse:
        await trio.sleep(1.0)
        return pb.SwarmForwardResponse(success=True, logits=b"along")

    async with awaited(cuts, quick) as found:
        await trio.sleep(2.0)
        assert (found[0].answer.logits, found[0].short_cut) == (b"along", False)
        assert not cuts.take(straight()).success
    assert cuts.taken == 0


async def test_a_failure_counts_only_before_the_answer(autojump_clock: object) -> None:
    cuts = ShortCuts()

    async def fails() -> pb.SwarmForwardResponse:
        await trio.sleep(1.0)
        raise HopFailed(0, "a" * 40, Code.UNAVAILABLE, "for a test")

    async with awaited(cuts, fails) as found:
        await trio.sleep(2.0)
    assert isinstance(found[0], HopFailed)
    async with awaited(cuts, fails) as found:
        assert cuts.take(straight()).success
        await trio.sleep(2.0)
    assert found[0].answer.logits == b"straight"


async def test_who_leaves_expects_nothing_and_ends_the_call(autojump_clock: object) -> None:
    cuts, ended = ShortCuts(), trio.Event()

    async def hangs() -> pb.SwarmForwardResponse:
        try:
            await trio.sleep_forever()
        finally:
            ended.set()
        raise AssertionError

    async with trio.open_nursery() as nursery:
        with trio.move_on_after(1.0):
            await cuts.first(REQUEST, hangs, nursery.start_soon)
        assert not cuts.take(straight()).success
        with trio.fail_after(1.0):
            await ended.wait()
