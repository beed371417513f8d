"""Processes that train together have equal weights after each round (interface 2.1 and 2.3)."""

from __future__ import annotations

import http.client
import signal
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from spec_tests.processes import changes
from spec_tests.processes.nodes import running_node, wait_until
from spec_tests.processes.training import (
    WITHIN_S,
    TrainingProcesses,
    alter_weights,
    kept_by,
)

pytestmark = pytest.mark.process

OFF: dict[str, Any] = {"MESHNODE_TRAINING_ENABLED": "false"}


@pytest.mark.slow
def test_a_joiner_a_straggler_and_a_leaver(processes: TrainingProcesses) -> None:
    first, second = processes.start("a"), processes.start("b")
    processes.wait_rounds(2)
    wait_until(lambda: _working(processes.verdict(first), "2 nodes"), WITHIN_S)

    # Nodes that join late agree with the others after their first round.
    joiners = [processes.start("c"), processes.start("d")]
    wait_until(lambda: processes.training(first)["total_nodes_training"] == 4, WITHIN_S)
    processes.wait_rounds(2)
    for node in processes.nodes:
        found = wait_until(lambda n=node: _covered(processes.training(n), 4), WITHIN_S)
        assert found["global_steps"] > 0
        # A step takes four sequences of 128 tokens, or the fewer that are left of the text.
        rows, rest = divmod(found["global_tokens"], 128)
        assert (rest, found["global_steps"] <= rows <= 4 * found["global_steps"]) == (0, True)

    # Gradients add up: every gradient that a node accepted was submitted by another.
    def quiet() -> bool:
        figures = [processes.metrics(node)["training"] for node in processes.nodes]
        submitted = sum(one["gradients_submitted"] for one in figures)
        found: bool = submitted == sum(one["gradients_accepted"] for one in figures) > 8
        return found

    wait_until(quiet, WITHIN_S)

    # The others wait for a hanging node only as long as a round may last. Later it rejoins.
    straggler = joiners[0]
    others = [node for node in processes.nodes if node is not straggler]
    straggler.signal(signal.SIGSTOP)
    try:
        # Two rounds: the first may have been almost over when the node began to hang.
        processes.wait_agreed(processes.info(first).version + 2, *others)
    finally:
        straggler.signal(signal.SIGCONT)
    processes.wait_rounds(2)

    # One node stops at a signal, and another operator switches training off.
    joiners[1].signal(signal.SIGTERM)
    assert joiners[1].wait()[0] == 0
    processes.gone(joiners[1])
    changed = second.ask("PATCH", "/api/v1/config", {"training": {"enabled": False}}).json
    assert changed == {"success": True, "updated": ["training.enabled"], "restart_required": False}
    rest = [first, straggler]
    wait_until(lambda: processes.training(first)["total_nodes_training"] == 2, WITHIN_S)
    processes.wait_rounds(2, *rest)
    assert processes.training(second)["local"]["is_training"] is False
    second.ask("PATCH", "/api/v1/config", {"training": {"enabled": True, "diloco_steps": 2}})
    processes.wait_rounds(1)
    assert processes.training(second)["diloco"]["inner_steps_total"] == 2


@pytest.mark.long
def test_eight_processes_have_the_same_weights_after_every_round(
    processes: TrainingProcesses,
) -> None:
    processes.pace = []
    nodes = [processes.start(name, **OFF) for name in "abcdefgh"]

    wait_until(lambda: all(processes.peers(node) == 7 for node in nodes), WITHIN_S)
    processes.enable()
    for node in nodes:
        wait_until(lambda n=node: processes.training(n)["total_nodes_training"] == 8, WITHIN_S)
    version = processes.wait_agreed(1)
    for _ in range(2):
        version = processes.wait_agreed(version + 1)
    for node in nodes:
        wait_until(lambda n=node: processes.verdict(n)["is_working"], WITHIN_S)
    # Check every round of every node, and not only those that this test waited for.
    kept = processes.kept()
    everybody = {node.data_dir.name for node in nodes}
    together = [v for v, hashes in kept.items() if list(hashes.values()) == [everybody]]
    assert len(together) >= 2
    if any(len(hashes) > 1 for hashes in kept.values()):
        # Groups of nodes that did not hear from each other in time must have counted it.
        assert sum(processes.training(node)["failed_syncs"] for node in nodes) > 0


@pytest.mark.slow
def test_differing_weights_are_reported_with_advice(
    processes: TrainingProcesses, tmp_path: Path
) -> None:
    first, second = processes.start("a"), processes.start("b")
    version = processes.wait_rounds(1)
    second.signal(signal.SIGTERM)
    assert second.wait()[0] == 0
    processes.gone(second)
    # Otherwise the nodes might settle on the altered weights.
    processes.wait_agreed(max(version, processes.info(first).version) + 1, first)
    altered = alter_weights(second.data_dir)
    healed = tmp_path / "healed"
    second = processes.start("b", changes=[partial(changes.fetch_only_with, file=str(healed))])
    for node in (first, second):
        found = wait_until(lambda n=node: _problem(processes.verdict(n), "diverged"), WITHIN_S)
        assert found.keys() == {"is_working", "reason", "action"}
        assert found["is_working"] is False
        assert "50%" in found["reason"]
        assert "fetch" in found["action"]
        told = wait_until(lambda n=node: _rate(processes.training(n), 2, 0.5), WITHIN_S)
        assert told["is_converging"] is told["training_verified"] is False
    assert processes.info(second).model_hash == altered != processes.info(first).model_hash

    healed.touch()
    processes.wait_rounds(1)
    for node in (first, second):
        good = wait_until(lambda n=node: _working(processes.verdict(n), "2 nodes"), WITHIN_S)
        assert good.keys() == {"is_working", "reason", "metrics"}
        assert good["metrics"].keys() == {"loss_trend", "hash_agreement", "global_loss"}
        assert good["metrics"]["hash_agreement"] == "100%"
        # The held-out losses of the altered weights count until others have followed them.
        wait_until(lambda n=node: _converges(processes.training(n)), WITHIN_S)


@pytest.mark.slow
def test_a_kill_in_each_state_loses_nothing(processes: TrainingProcesses) -> None:
    processes.start("a")
    version = processes.wait_rounds(1)
    for state in changes.STATES:
        # A node fetches only when it is behind, as it is when it joins and after each death.
        # It serves before it trains, since it might otherwise die before it prints its banner.
        victim = processes.start("b", changes=[partial(changes.die_in, state=state)], **OFF)
        wait_until(lambda one=victim: processes.peers(one) == 1, WITHIN_S)
        with suppress(OSError, http.client.HTTPException):
            victim.ask("PATCH", "/api/v1/config", {"training": {"enabled": True}})
        assert wait_until(lambda one=victim: one.process.poll(), WITHIN_S) == -signal.SIGKILL, state
        processes.gone(victim)
    back = processes.start("b")
    version = processes.wait_rounds(2)
    assert version > 2
    assert "Traceback" not in back.log()
    submitted = processes.metrics(processes.nodes[0])["training"]["gradients_submitted"]
    assert submitted > 0


@pytest.mark.slow
def test_bytes_on_the_network_are_those_of_the_contributions(processes: TrainingProcesses) -> None:
    nodes = [processes.start("a"), processes.start("b")]
    processes.wait_rounds(1)
    # A model of this size is sent as int8, a byte for each parameter (decision 0190).
    sizes = processes.info(nodes[0]).params

    def measured() -> list[tuple[int, int]]:
        return [
            (one["training"]["gradients_submitted"], one["network"]["bytes_sent"])
            for one in map(processes.metrics, nodes)
        ]

    before = measured()
    # Measure many rounds, because a gradient may be half sent at either measurement.
    processes.wait_rounds(8)
    for (sent_before, bytes_before), (sent, sent_bytes) in zip(before, measured(), strict=True):
        count = sent - sent_before
        assert count >= 1
        assert sent_bytes - bytes_before == pytest.approx(count * sizes, rel=0.4)


@pytest.mark.slow
def test_a_node_can_be_started_with_trained_weights(
    processes: TrainingProcesses, training_model: Path, tmp_path: Path
) -> None:
    node = processes.start("a")
    processes.wait_rounds(1)
    assert processes.info(node).version > 0
    node.signal(signal.SIGTERM)
    assert node.wait()[0] == 0
    version, model_hash = kept_by(node.data_dir)
    trained = tmp_path / "trained"
    trained.mkdir()
    for name in ("config.json", "tokenizer.json"):
        (trained / name).write_bytes((training_model / name).read_bytes())
    [anchor] = (node.data_dir / "training").glob(f"anchor-{version}-*.safetensors")
    (trained / "model.safetensors").write_bytes(anchor.read_bytes())
    with running_node(tmp_path / "b", "--model", str(trained)) as serving:
        info = processes.info(serving)
        assert (info.version, info.model_hash) == (0, model_hash)
        body = {"prompt": "3 and 4 make", "max_tokens": 4}
        answer = serving.ask("POST", "/api/v1/inference", body, timeout=120)
        assert answer.status == 200
        assert answer.json["usage"]["completion_tokens"] > 0


@pytest.mark.slow
def test_training_without_its_text_says_so_and_serves_on(
    processes: TrainingProcesses, tmp_path: Path
) -> None:
    node = processes.start("a", MESHNODE_TRAINING_TEXT=str(tmp_path / "none"))
    found = wait_until(lambda: _problem(processes.verdict(node), "folder"), WITHIN_S)
    assert "there is no folder" in found["reason"]
    assert found["is_working"] is False
    assert "again" in found["action"]
    # A service that crashed at each attempt would have used up its restarts by now.
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "a.txt").write_text((processes.text / "sums.txt").read_text())
    processes.wait_agreed(1)
    assert processes.verdict(node)["is_working"] is True


def _converges(told: dict[str, Any]) -> bool:
    return bool(_rate(told, 2, 1.0)) and told["is_converging"] is True


def _rate(told: dict[str, Any], nodes: int, rate: float) -> dict[str, Any]:
    found = told["total_nodes_training"], told["hash_agreement_rate"]
    return told if found == (nodes, rate) else {}


def _covered(told: dict[str, Any], nodes: int) -> dict[str, Any]:
    found = told["total_nodes_training"], told["data_shards_covered"]
    return told if found == (nodes, list(range(16))) else {}


def _problem(verdict: dict[str, Any], word: str) -> dict[str, Any]:
    return verdict if word in verdict["reason"] else {}


def _working(verdict: dict[str, Any], word: str) -> dict[str, Any]:
    return verdict if verdict["is_working"] and word in verdict["reason"] else {}
