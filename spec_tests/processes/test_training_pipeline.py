"""Three processes that share a model's layers train them as one would (interface 2.1 and 2.3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from meshnode.assembly.training import ROW_TOKENS
from meshnode.model.data import TokenData
from meshnode.model.loading import load_model
from meshnode.model.training import InnerTrainer, inner_recipe
from spec_tests.processes.nodes import wait_until
from spec_tests.processes.training import SETTINGS, WITHIN_S, TrainingProcesses

pytestmark = pytest.mark.process

STEPS = 40


def curve_of_one_process(model: Path, text: Path, node_id: str, steps: int) -> list[float]:
    """The losses of one process that holds all layers and reads the same batches."""
    loaded = load_model(model, trainable=True)
    length = min(ROW_TOKENS, loaded.card.context_length + 1)
    data = TokenData.of_folder(text, loaded.tokenizer, length, min(loaded.eos_token_ids))
    size = int(SETTINGS["MESHNODE_TRAINING_BATCH_SIZE"])
    batches = data.batches(range(data.shards), size, int(node_id[:8], 16))
    rate = float(SETTINGS["MESHNODE_TRAINING_LEARNING_RATE"])
    trainer = InnerTrainer(loaded.decoder, inner_recipe(rate))
    return [trainer.step(next(batches).batch).loss for _ in range(steps)]


@pytest.mark.slow
def test_three_shards_lower_the_loss_as_one_process_does(
    processes: TrainingProcesses, training_model: Path
) -> None:
    driver = processes.start("a", MESHNODE_LAYERS="0", MESHNODE_TRAINING_ENABLED="false")
    followers = [processes.start(name, MESHNODE_LAYERS=held) for name, held in SHARDS.items()]

    wait_until(lambda: all(processes.peers(node) == 2 for node in processes.nodes), WITHIN_S)
    assert processes.verdict(driver)["is_working"] is False
    waiting = processes.verdict(followers[0])
    assert "no step has come" in waiting["reason"]
    assert "first layers" in waiting["action"]

    processes.enable()
    found: dict[int, float] = {}

    def trained() -> bool:
        told = processes.training(driver)
        if told["global_steps"]:
            found[told["global_steps"]] = told["global_avg_loss"]
        done: bool = told["global_steps"] >= STEPS
        return done

    wait_until(trained, WITHIN_S)
    told = wait_until(lambda: _of_three(processes.training(driver)), WITHIN_S)
    assert told["global_tokens"] == 4 * 128 * told["global_steps"]
    assert told["diloco"]["enabled"] is False
    wait_until(lambda: "3 nodes train one model" in processes.verdict(driver)["reason"], WITHIN_S)
    for node in followers:
        wait_until(lambda n=node: processes.verdict(n)["is_working"], WITHIN_S)
    # The nodes also generate text while they train.
    body = {"prompt": "A node", "max_tokens": 4}
    assert driver.ask("POST", "/api/v1/inference", body, timeout=120).status == 200

    node_id = driver.ask("GET", "/api/v1/status").json["node_id"]
    wanted = curve_of_one_process(training_model, processes.text, node_id, max(found))
    assert len(found) > 1
    assert wanted[-1] < 0.8 * wanted[0]
    for step, loss in found.items():
        assert loss == pytest.approx(wanted[step - 1], abs=5e-3)

    # All nodes have taken the same number of steps.
    driver.ask("PATCH", "/api/v1/config", {"training": {"enabled": False}})

    def counts() -> set[int]:
        return {processes.metrics(node)["training"]["steps_total"] for node in processes.nodes}

    wait_until(lambda: len(counts()) == 1, WITHIN_S)
    assert counts().pop() >= STEPS


@pytest.mark.slow
def test_a_pipeline_without_a_holder_says_so_and_goes_on_with_the_next(
    processes: TrainingProcesses,
) -> None:
    driver = processes.start("a", MESHNODE_LAYERS="0")
    [middle, last] = [processes.start(n, MESHNODE_LAYERS=held) for n, held in SHARDS.items()]
    wait_until(lambda: processes.verdict(driver)["is_working"], WITHIN_S)
    processes.gone(last)
    found = wait_until(lambda: _problem(processes.verdict(driver)), WITHIN_S)
    assert "again" in found["action"]
    steps = processes.training(driver)["global_steps"]
    processes.start("c", MESHNODE_LAYERS=SHARDS["c"])
    wait_until(lambda: processes.training(driver)["global_steps"] > steps, WITHIN_S)
    wait_until(lambda: processes.verdict(driver)["is_working"], WITHIN_S)
    wait_until(lambda: processes.verdict(middle)["is_working"], WITHIN_S)
    assert "Traceback" not in driver.log() + middle.log()


SHARDS = {"b": "1-2", "c": "3"}


def _of_three(told: dict[str, Any]) -> dict[str, Any]:
    return told if told["total_nodes_training"] == 3 else {}


def _problem(verdict: dict[str, Any]) -> dict[str, Any]:
    return verdict if "no reachable node holds layers" in verdict["reason"] else {}
