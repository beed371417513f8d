"""Positions of several sessions travel together, and keep every stage busy (decision 0213)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from meshnode.domain.convoys import SHORTEST_STRAGGLE_S
from meshnode.domain.routing import SLOW_MS
from meshnode.services.executor import serve_executor
from meshnode.services.pipeline.convoys import Convoys, Traveller
from meshnode.services.pipeline.pace import LOOK_AGAIN_S, Pace
from spec_tests.services.executor.generations import complete
from spec_tests.services.pipeline.pipelines import GREEDY, SAMPLED, loaded, small_model, spans
from spec_tests.services.pipeline.virtual import (
    DRIVER,
    LIMITS,
    Costs,
    VirtualNode,
    VirtualPipeline,
    virtual_pipeline,
)

NONE: dict[str, Any] = {"eos_token_ids": frozenset()}
STREAMS = [replace(GREEDY, max_tokens=40, prompt=f"A node number {n} serves") for n in range(7)]
STREAMS.append(replace(SAMPLED, max_tokens=40))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("convoys") / "model")


@pytest.fixture(scope="module")
def expected(directory: Path) -> list[str]:
    """What one node with all layers answers."""
    return trio.run(one_node, directory)


async def one_node(directory: Path) -> list[str]:
    async with trio.open_nursery() as nursery:
        model = replace(loaded(directory), **NONE)
        executor = await nursery.start(serve_executor, model, LIMITS)
        texts = [(await complete(executor, request))[0] for request in STREAMS]
        nursery.cancel_scope.cancel()
    return texts


def busiest(nodes: VirtualPipeline, begin: float, end: float) -> float:
    return max(node.share(begin, end) for node in nodes.nodes)


@pytest.mark.parametrize("cuts", [(3,), (2, 4)], ids=["two nodes", "three nodes"])
async def test_every_stage_computes_for_as_many_sessions_as_the_others(
    directory: Path,
    expected: list[str],
    cuts: tuple[int, ...],
    autojump_clock: trio.testing.MockClock,
) -> None:
    alone, held = replace(DRIVER, convoys=False), spans(*cuts)
    async with virtual_pipeline(directory, held, limits=alone, **NONE) as nodes:
        plain = await nodes.generate(STREAMS)
    async with virtual_pipeline(directory, held, **NONE) as nodes:
        streams = await nodes.generate(STREAMS)
        assert streams.texts == plain.texts == expected
        assert busiest(nodes, *streams.steady) > 0.85
        most = -(-len(STREAMS) // len(nodes.nodes))
        for node in nodes.nodes:
            assert set(node.sizes(*streams.steady)) <= {most - 1, most}
    # Without convoys every stage computes too, but most steps are for one or two sessions. How much
    # slower that is depends on who comes first, which threads decide in virtual time too.
    assert streams.rate > 1.05 * plain.rate


async def test_a_slow_stage_always_computes(
    directory: Path, expected: list[str], autojump_clock: trio.testing.MockClock
) -> None:
    async with virtual_pipeline(directory, spans(2, 4), **NONE) as nodes:
        nodes.holders[0].factor = 3.0
        streams = await nodes.generate(STREAMS)
        assert streams.texts == expected
        assert nodes.holders[0].share(*streams.steady) > 0.85


async def test_over_a_long_way_nobody_waits_for_others(
    directory: Path, expected: list[str], autojump_clock: trio.testing.MockClock
) -> None:
    """With so long a way no stage is ever full: what counts is that no token comes later."""
    costs = Costs(way=0.3)
    alone = replace(DRIVER, convoys=False)
    async with virtual_pipeline(directory, spans(3), costs, alone, **NONE) as nodes:
        plain = await nodes.generate(STREAMS)
    async with virtual_pipeline(directory, spans(3), costs, **NONE) as nodes:
        streams = await nodes.generate(STREAMS)
    assert streams.texts == expected
    assert streams.rate > 0.97 * plain.rate


def dies(node: VirtualNode, nodes: VirtualPipeline) -> None:
    node.dead = True
    nodes.book.peers = [peer for peer in nodes.book.peers if peer.node_id != node.node_id]


def freezes(node: VirtualNode, nodes: VirtualPipeline) -> None:
    node.frozen = True


def forgets(node: VirtualNode, nodes: VirtualPipeline) -> None:
    assert node.holder is not None
    node.holder.close_all()


@pytest.mark.parametrize("fails", [dies, freezes, forgets])
async def test_a_failure_in_the_middle_changes_no_token(
    directory: Path,
    expected: list[str],
    fails: Callable[[VirtualNode, VirtualPipeline], None],
    autojump_clock: trio.testing.MockClock,
) -> None:
    own, *rest = spans(2, 4)
    async with virtual_pipeline(directory, [own, *rest, *rest], **NONE) as nodes:

        async def fail_later() -> None:
            while all(node.calls < 60 for node in nodes.holders):  # noqa: ASYNC110 - no event
                await trio.sleep(0.001)
            # The last holder of the path that is in use.
            fails(max(nodes.holders, key=lambda node: (node.calls, node.layers.stop)), nodes)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail_later)
            streams = await nodes.generate(STREAMS)
        assert streams.texts == expected
        assert nodes.hops.failovers > 0


async def test_those_that_stay_do_not_wait_for_those_that_leave(
    directory: Path, expected: list[str], autojump_clock: trio.testing.MockClock
) -> None:
    """Clients leave and come one after another; the others' texts and rate stay."""
    async with virtual_pipeline(directory, spans(3), **NONE) as nodes:

        async def leaves(number: int) -> None:
            await trio.sleep(0.3 + 0.07 * number)
            async with await nodes.pipeline.open(STREAMS[number]) as generation:
                async for _ in generation:
                    if generation.usage.completion_tokens > 5 + number:
                        break

        async with trio.open_nursery() as nursery:
            for number in range(6):
                nursery.start_soon(leaves, number)
            streams = await nodes.generate(STREAMS)
        assert streams.texts == expected
        assert busiest(nodes, *streams.steady) > 0.85


async def test_who_waits_behind_one_that_is_cancelled_departs_in_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    convoys = Convoys()
    path: list[Any] = [SimpleNamespace(node_id="one", first=6, last=11)]
    for _ in range(4):
        await convoys.depart(Traveller(), path)
    async with trio.open_nursery() as nursery:
        first = await nursery.start(waits, convoys, path)
        await trio.testing.wait_all_tasks_blocked()
        first.cancel()
        with trio.fail_after(SHORTEST_STRAGGLE_S * 2):
            await convoys.depart(Traveller(), path)


async def waits(
    convoys: Convoys, path: list[Any], task_status: trio.TaskStatus[trio.CancelScope]
) -> None:
    with trio.CancelScope() as scope:
        task_status.started(scope)
        await convoys.depart(Traveller(), path)


async def test_a_slow_path_is_compared_twice_a_second(
    autojump_clock: trio.testing.MockClock,
) -> None:
    asked = list[float]()
    routes: Any = SimpleNamespace(
        usual_ms=lambda hops: None,
        alternative_ms=lambda excluded, unknown_ms: asked.append(trio.current_time()),
    )
    hop: Any = SimpleNamespace(node_id="one")
    message: Any = SimpleNamespace(seq=1)
    pace = Pace(routes, call_s=30.0)
    pace.begin([hop], set())
    for _ in range(20):
        pace.note(SLOW_MS * 2, message)
        assert pace.slow_hop([hop], [1.0], set(), relay=True, worth=lambda *_: True) is None
        await trio.sleep(LOOK_AGAIN_S / 5)
    assert len(asked) == 4
