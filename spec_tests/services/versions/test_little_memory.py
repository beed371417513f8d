"""Decision 0247: holders without memory for two versions wait for an idle moment."""

from __future__ import annotations

from functools import partial

import pytest
import trio

from meshnode.services.versions import pipeline as versions_of_pipelines
from spec_tests.services.executor.generations import LIMITS
from spec_tests.services.versions.layer_pipelines import (
    FIRST,
    ONE,
    SECOND,
    TIGHT,
    Pipeline,
    serves_only,
    until,
)


@pytest.mark.parametrize("tight", ["first", "second", "both"])
async def test_without_memory_for_two_a_switch_waits_for_an_idle_moment(
    nodes: Pipeline, tight: str
) -> None:
    first, second = nodes.first, nodes.second
    for node in (first, second):
        node.learn(ONE, 0.01)
    limits = {name: TIGHT if tight in (name, "both") else LIMITS for name in ("first", "second")}
    async with (
        first.running(limits["first"]),
        second.running(limits["second"]),
        nodes.driving() as switch,
    ):
        origin = switch.served.model_hash
        # A generation is open, whatever it does just now.
        generation = await first.executor.open_session(FIRST, 8)
        nodes.offer(ONE, 1.0)
        await until(lambda: "waits for an idle moment: resources.max_m" in switch.waiting)
        await trio.sleep(0.3)
        # Its weights stay, and whoever has memory does not load the others again and again.
        for node in (first, second):
            assert node.executor.versions.current.model_hash == origin
            assert node.loads <= 2
            assert not node.executor.gate.closed
        generation.close()
        await until(lambda: first.executor.gate.closed)
        # What comes meanwhile waits, and begins with the new weights.
        generation = await first.executor.open_session(FIRST, 8)
        learned = generation.model_hash
        assert switch.served.version == second.serving.served.version == ONE
        assert (switch.served.model_hash, switch.waiting) == (learned, "")
        generation.close()
        for node in (first, second):
            await until(partial(serves_only, node, learned))
            assert not node.executor.gate.closed
    # It is on the disks.
    async with first.running(), second.running():
        assert first.serving.served.model_hash == second.serving.served.model_hash == learned


async def test_what_cannot_take_the_place_of_the_present_leaves_it_in_service(
    nodes: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions_of_pipelines, "PAUSED_S", 0.05)
    first, second = nodes.first, nodes.second
    for node in (first, second):
        node.learn(ONE, 0.01)
    second.damaged = True
    async with first.running(TIGHT), second.running(TIGHT), nodes.driving() as switch:
        origin = switch.served.model_hash
        nodes.offer(ONE, 1.0)
        await until(lambda: "cannot be loaded there" in switch.waiting)
        await until(lambda: not first.executor.gate.closed)
        for node in (first, second):
            assert node.executor.versions.hashes == (origin,)
            session = await node.executor.open_session(node.held, 8, model_hash=origin)
            session.close()
        second.damaged = False
        await until(lambda: switch.served.version == ONE)
        for node in (first, second):
            await until(partial(serves_only, node, switch.served.model_hash))


async def test_a_stream_of_another_node_keeps_its_weights_where_memory_is_tight(
    nodes: Pipeline,
) -> None:
    first, second = nodes.first, nodes.second
    for node in (first, second):
        node.learn(ONE, 0.01)
    async with first.running(), second.running(TIGHT), nodes.driving() as switch:
        origin = switch.served.model_hash
        # The driver does not know of it.
        stream = await second.executor.open_session(SECOND, 8, model_hash=origin)
        nodes.offer(ONE, 1.0)

        def waits() -> bool:
            # On a busy machine an attempt may end for another reason first, and is put off.
            nodes.switch._retry_at = -1.0
            return "which waits for an idle moment" in switch.waiting

        await until(waits)
        assert second.executor.versions.hashes == (origin,)
        assert not first.executor.gate.closed or switch.served.model_hash == origin
        stream.close()

        def served() -> bool:
            # An attempt that was under way may end, and put off the next one, after the stream.
            nodes.switch._retry_at = -1.0
            return second.serving.served.version == ONE

        await until(served)
