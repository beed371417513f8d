"""Decision 0132 in a pipeline: a generation that gave up its place goes on to the bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from meshnode.domain.errors import Overloaded, RateLimited
from meshnode.domain.shares import Requester, Standing
from spec_tests.services.executor.generations import read
from spec_tests.services.pipeline.pipelines import (
    GREEDY,
    PIPELINE,
    SAMPLED,
    alone,
    cluster,
    small_model,
    spans,
)

ALICE = Requester(Standing.PAYING, "alice")
ANY = Requester(Standing.FREE, "10.0.0.2")
NONE: dict[str, Any] = {"eos_token_ids": frozenset()}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("places") / "model")


@pytest.mark.parametrize("request_", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
async def test_an_interrupted_generation_goes_on(directory: Path, request_: Any) -> None:
    own, *rest = spans(2)
    wanted = replace(request_, max_tokens=24)
    text = await alone(directory, wanted, **NONE)
    limits = replace(PIPELINE, max_sessions=1)
    async with cluster(directory, own, rest, limits=limits, **NONE) as nodes:
        async with await nodes.pipeline.open(replace(wanted, requester=ANY)) as free:
            tokens = [await anext(free) for _ in range(5)]
            async with await nodes.pipeline.open(replace(wanted, requester=ALICE)) as paying:
                mine, _ = await read(paying)
            more, finished = await read(free)
        assert "".join(event.text for event in mine) == text
        assert "".join(event.text for event in [*tokens, *more]) == text  # type: ignore[union-attr]
        assert finished.usage.completion_tokens == 24
        await nodes.settled()


async def test_who_waits_in_vain_is_refused(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, *rest = spans(2)
    limits = replace(PIPELINE, max_sessions=1, max_queue=1)
    async with cluster(directory, own, rest, limits=limits, **NONE) as nodes:
        open_ = nodes.pipeline.open
        async with await open_(replace(GREEDY, max_tokens=200, requester=ALICE)) as running:
            await anext(running)
            displaced = await open_(replace(GREEDY, requester=ANY))
            async with displaced, await open_(replace(GREEDY, requester=ALICE)) as late:
                with pytest.raises(RateLimited):
                    await anext(displaced)
                now = trio.current_time() + 31.0
                monkeypatch.setattr(trio, "current_time", lambda: now)
                nodes.pipeline.look_after_waiting()
                monkeypatch.undo()
                with pytest.raises(Overloaded):
                    await anext(late)
        await nodes.settled()
