"""The overview of all nodes in training, and its verdict (interface 2.1 and 4.1)."""

from __future__ import annotations

import math
import threading
from pathlib import Path
from typing import Any

from meshnode.domain.training.trend import rise
from meshnode.edges.http_training import verdict
from meshnode.model.trained_model import TrainedModel
from meshnode.services.training.overview import GlobalTraining, compare, survey
from spec_tests.services.training.trainers import agreed, training_nodes, wait_for


def test_nodes_are_compared_at_a_version_that_all_reached() -> None:
    assert compare({}) == 1.0
    assert compare({"a": {1: "x", 2: "y"}, "b": {1: "x"}}) == 1.0
    assert compare({"a": {1: "x", 2: "y"}, "b": {1: "x", 2: "z"}}) == 0.5
    assert compare({"a": {7: "y"}, "b": {5: "z"}}) == 0.5


def overview(**changes: Any) -> GlobalTraining:
    facts: dict[str, Any] = {
        "avg_loss": 2.0, "min_loss": 1.9, "hash_agreement_rate": 1.0, "nodes": 2,
        "successful_syncs": 3, "failed_syncs": 0, "steps": 10, "tokens": 100, "shards": (0,),
        "trend": "unknown",
    }  # fmt: skip
    return GlobalTraining(**facts | changes)


def test_training_that_makes_the_held_out_loss_worse_does_not_work() -> None:
    assert verdict(overview())["is_working"] is True
    worse = overview(rose=rise([1.9, 1.74, 2.52]))
    found = verdict(worse)
    assert found["is_working"] is False
    assert "from 1.740 to 2.520" in found["reason"]
    assert "learning_rate" in found["action"]
    assert worse.is_converging is worse.verified is False
    assert overview(trend="worsening").is_converging is False
    assert rise([1.74]) is rise([]) is rise([1.0, 1.004]) is rise([2.0, 1.0]) is None
    assert rise([1.0, math.nan])


def test_nothing_converges_before_the_first_exchange() -> None:
    assert overview(exchanged=False).is_converging is False
    assert overview().is_converging is True


async def test_a_disagreement_is_reported_with_advice(model: Path, tmp_path: Path) -> None:
    async with training_nodes(model, tmp_path, 2) as (nodes, nursery):
        for node in nodes:
            await nursery.start(node.run)
        await wait_for(lambda: agreed(nodes, 2) and survey(nodes[0].training).nodes == 2)
        good = verdict(survey(nodes[0].training))
        assert good["is_working"] is True
        assert good["metrics"]["hash_agreement"] == "100%"
        other = nodes[0].training.gossip.history[nodes[1].key.node_id]
        for version in other:
            other[version] = "ff" * 32
        bad = verdict(survey(nodes[0].training))
        assert bad["is_working"] is False
        assert "50%" in str(bad["reason"])
        assert bad["action"]


async def test_a_node_that_loads_the_model_says_so(model: Path, tmp_path: Path) -> None:
    go_on = threading.Event()

    def slowly(directory: Path) -> TrainedModel:
        go_on.wait()
        return TrainedModel(directory)

    async with training_nodes(model, tmp_path, 1) as ([node], nursery):
        node.trained = slowly
        try:
            await nursery.start(node.run)
            await wait_for(lambda: node.training.beginning)
            waiting = verdict(survey(node.training))
        finally:
            go_on.set()
        assert waiting["is_working"] is False
        assert "about to begin" in str(waiting["reason"])
        assert "wait" in str(waiting["action"])
        await wait_for(lambda: bool(verdict(survey(node.training))["is_working"]))


async def test_nobody_trains(model: Path, tmp_path: Path) -> None:
    async with training_nodes(model, tmp_path, 1) as ([node], nursery):
        node.enable(on=False)
        await nursery.start(node.run)
        assert verdict(survey(node.training))["is_working"] is False
        assert survey(node.training).hash_agreement_rate == 1.0
