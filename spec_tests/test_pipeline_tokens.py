"""design: several nodes give the tokens of one, bit for bit, greedy and sampled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spec_tests.support_engine import complete
from spec_tests.support_pipeline import (
    GREEDY,
    PIPELINE,
    SAMPLED,
    alone,
    cluster,
    small_model,
    spans,
)

NONE: dict = {"eos_token_ids": frozenset()}
"""Without an end of text, so that lengths are what the tests ask for."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("pipeline") / "model")


@pytest.mark.parametrize("chain", [True, False], ids=["chain", "star"])
@pytest.mark.parametrize("cuts", [(3,), (1,), (5,), (2, 4), (1, 2), (1, 2, 5)], ids=str)
async def test_the_tokens_are_those_of_one_node(
    directory: Path, cuts: tuple[int, ...], chain: bool
) -> None:
    own, *rest = spans(*cuts)
    limits = replace(PIPELINE, chain=chain)
    async with cluster(directory, own, rest, limits=limits, **NONE) as nodes:
        for request in (GREEDY, SAMPLED):
            text, finished = await complete(nodes.pipeline, request)
            assert text == await alone(directory, request, **NONE)
            assert finished.usage.completion_tokens == request.max_tokens
        await nodes.settled()
