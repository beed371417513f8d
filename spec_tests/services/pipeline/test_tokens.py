"""Several nodes generate the same tokens as one, greedy and sampled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spec_tests.services.executor.generations import complete
from spec_tests.services.pipeline.pipelines import (
    GREEDY,
    PIPELINE,
    SAMPLED,
    alone,
    cluster,
    small_model,
    spans,
)

NONE: dict[str, Any] = {"eos_token_ids": frozenset()}
"""A model without end-of-text tokens, so that texts have the requested length."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("pipeline") / "model")


@pytest.mark.parametrize("relay", [True, False], ids=["relayed", "direct"])
@pytest.mark.parametrize("cuts", [(3,), (1,), (5,), (2, 4), (1, 2), (1, 2, 5)], ids=str)
async def test_the_tokens_are_those_of_one_node(
    directory: Path, cuts: tuple[int, ...], relay: bool
) -> None:
    own, *rest = spans(*cuts)
    limits = replace(PIPELINE, relay=relay)
    async with cluster(directory, own, rest, limits=limits, **NONE) as nodes:
        for request in (GREEDY, SAMPLED):
            text, finished = await complete(nodes.pipeline, request)
            assert text == await alone(directory, request, **NONE)
            assert finished.usage.completion_tokens == request.max_tokens
        await nodes.settled()
