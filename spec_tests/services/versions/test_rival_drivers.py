"""Decision 0247: two drivers of the same holders undo nothing of each other's."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import trio

from spec_tests.services.versions.layer_pipelines import (
    ALSO_ONE,
    FIRST,
    ONE,
    TWO,
    Holder,
    Pipeline,
    serves_only,
    until,
)


async def test_another_driver_follows_to_newer_weights_and_its_streams_keep_theirs(
    nodes: Pipeline, tmp_path: Path
) -> None:
    first, second = nodes.first, nodes.second
    rival = Holder(first.source.directory, tmp_path / "rival", FIRST)
    nodes.rivals = (rival,)
    for node in (first, second, rival):
        # The third has them from the first, for instance.
        node.learn(ONE, 0.01)
        node.learn(TWO, 0.02, after=ONE)
    theirs = nodes.rival
    async with (
        first.running(),
        second.running(),
        rival.running(),
        nodes.driving() as switch,
        theirs.driving() as other,
    ):
        origin = other.served.model_hash
        stream = await rival.executor.open_session(FIRST, 8)
        nodes.offer(ONE, 1.0)
        await until(lambda: other.served.version == ONE)
        # The first driver needs the old weights no more; the other's stream does.
        await until(lambda: first.executor.versions.hashes == (switch.served.model_hash,))
        await trio.sleep(0.2)
        assert second.executor.versions.hashes == (switch.served.model_hash, origin)
        stream.close()
        for node in (second, rival):
            await until(partial(serves_only, node, switch.served.model_hash))
        # And so on: nothing holds the next version up.
        nodes.offer(TWO, 0.5)
        await until(lambda: other.served.version == TWO)
        for node in (first, second, rival):
            await until(partial(serves_only, node, switch.served.model_hash))


async def test_two_drivers_with_versions_of_their_own_undo_nothing(
    nodes: Pipeline, tmp_path: Path
) -> None:
    first, second = nodes.first, nodes.second
    rival = Holder(first.source.directory, tmp_path / "rival", FIRST)
    nodes.rivals = (rival,)
    first.learn(ONE, 0.01)
    rival.learn(ALSO_ONE, 0.03)
    second.learn(ONE, 0.01)
    second.learn(ALSO_ONE, 0.03, after=ONE)
    theirs = nodes.rival
    async with (
        first.running(),
        second.running(),
        rival.running(),
        nodes.driving() as switch,
        theirs.driving() as other,
    ):
        nodes.offer(ONE, 1.0)
        theirs.offer(ALSO_ONE, 1.0)
        await until(lambda: switch.served.version == ONE)
        await until(lambda: other.served.version == ALSO_ONE)
        both = {switch.served.model_hash, other.served.model_hash}
        await until(lambda: {*second.executor.versions.hashes} == both)
        before = [node.executor.versions.switches for node in (first, second, rival)]
        loads = second.loads
        await trio.sleep(0.5)
        # Each serves its own, and the holder has both all the time.
        assert (switch.served.version, other.served.version) == (ONE, ALSO_ONE)
        assert {*second.executor.versions.hashes} == both
        assert [n.executor.versions.switches for n in (first, second, rival)] == before
        assert second.loads == loads
        # Whoever learns more leads.
        for node in (first, second, rival):
            node.learn(TWO, 0.04)
        nodes.offer(TWO, 0.5)
        await until(lambda: other.served.version == TWO)
        for node in (first, second, rival):
            await until(partial(serves_only, node, switch.served.model_hash))
