"""Rounds that make the weights worse are dropped by all, and three of them end it (0226)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from meshnode.services.training.overview import survey
from spec_tests.services.training.trainers import training_nodes, wait_for


async def test_weights_that_got_worse_are_dropped_by_all_and_three_such_rounds_end_it(
    model: Path, tmp_path: Path
) -> None:
    rate = {"training.learning_rate": 0.02}
    async with training_nodes(model, tmp_path, 2, **rate) as (nodes, nursery):
        # Whatever is learned of regular rows makes the loss on random ones worse.
        rows = torch.randint(0, 200, (16, 17), generator=torch.Generator().manual_seed(5))
        for node in nodes:
            node.data = replace(node.data, validation=rows)
            await nursery.start(node.run)
        await wait_for(lambda: all("in a row" in node.training.problem for node in nodes))
        # Both are back at the best weights, under the number of the round that dropped others.
        [(version, model_hash)] = {node.kept for node in nodes}
        assert version >= 6
        for node in nodes:
            rounds = node.training.rounds
            assert rounds is not None
            assert rounds.record.judging.dropped == 3
            kept = rounds.learner.losses[model_hash]
            assert kept == rounds.record.losses[-1]
            # Less than half a percent worse is not worse.
            assert kept <= 1.005 * min(rounds.learner.losses.values())
            assert rounds.record.losses[-2] > kept
        for node in nodes:
            assert node.training.status() is None
            assert "lower training.learning_rate" in survey(node.training).problem
            # The files of dropped versions are gone.
            assert len(list(node.folder.glob("anchor-*"))) <= 2
