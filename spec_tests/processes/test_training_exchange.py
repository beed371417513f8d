"""Pipelines and replicas are one network: what they learn is exchanged (decision 0222)."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest
import safetensors.torch

from meshnode.domain.training.position import PipelineVersion
from meshnode.domain.training.weighting import weights_of
from meshnode.model.diloco import Rule, aggregate
from meshnode.model.loading import load_model
from meshnode.model.manifest import TensorFacts, facts_of_tensors, hash_of_tensors
from meshnode.model.outer_step import step_of
from meshnode.model.trained_model import Anchor
from meshnode.model.weights import checkpoint_tensors
from meshnode.services.gradient_values import PackedGradients
from meshnode.wire import node_pb2 as pb
from spec_tests.processes import changes
from spec_tests.processes.nodes import Node, wait_until
from spec_tests.processes.training import BRISK, WITHIN_S, TrainingProcesses

pytestmark = pytest.mark.process

ENDLESS = 1_000_000


def pipeline(processes: TrainingProcesses, names: str, *ranges: str, steps: int = 3) -> list[Node]:
    """Start a node for each range of layers; the first one drives."""
    return [
        processes.start(
            name,
            MESHNODE_LAYERS=held,
            MESHNODE_TRAINING_EXCHANGE="true",
            MESHNODE_TRAINING_DILOCO_STEPS=str(steps),
        )
        for name, held in zip(names, ranges, strict=True)
    ]


def set_steps(steps: int, *drivers: Node) -> None:
    for driver in drivers:
        body = {"training": {"diloco_steps": steps}}
        assert driver.ask("PATCH", "/api/v1/config", body).status == 200


def contribution(driver: Node) -> pb.GossipGradientRequest | None:
    """What a driver has sent last."""
    try:
        data = (driver.data_dir / "training" / "contribution.bin").read_bytes()
    except FileNotFoundError:
        return None
    return pb.GossipGradientRequest.FromString(data)


def outer_step(model: Path, messages: list[pb.GossipGradientRequest]) -> Anchor:
    """The untrained weights after a set of contributions, as plain arithmetic."""
    weights = checkpoint_tensors(load_model(model, trainable=True).decoder)
    shapes = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    ordered = sorted(messages, key=lambda message: message.node_id)
    sets = [PackedGradients(message.layer_gradients, shapes) for message in ordered]
    counts = weights_of([message.batch_size for message in ordered])
    combined = aggregate(Rule.TRIMMED_MEAN, sets, weights=counts)
    return Anchor.of(*step_of(sets).apply(weights, {}, combined, sets))


def kept_layers(node: Node, anchor: Anchor) -> set[str]:
    """The tensors that a holder has kept of version 1, which are checked to be the anchor's."""
    file = node.data_dir / "training" / f"layers-1-{anchor.model_hash[:16]}.safetensors"
    tensors = safetensors.torch.load_file(file)
    assert all(tensors[name].equal(anchor.weights[name]) for name in tensors)
    return set(tensors)


@pytest.mark.long
def test_two_pipelines_end_a_round_with_the_sum_of_what_both_have_learned(
    processes: TrainingProcesses, training_model: Path
) -> None:
    # Beside other work the second one may be late. The first would go on without it then, and it
    # would have filed a contribution that is in no weights.
    processes.pace = [BRISK, partial(changes.wait_for_contributions)]
    first = pipeline(processes, "ab", "0-1", "2-3", steps=ENDLESS)
    second = pipeline(processes, "cd", "0-1", "2-3", steps=ENDLESS)
    drivers = first[0], second[0]
    wait_until(lambda: all(replicas(processes, driver) == 2 for driver in drivers), WITHIN_S)
    wait_until(lambda: all(own_steps(driver) for driver in drivers), WITHIN_S)
    # One node ends its steps; the other hurries, and both begin a round without an end.
    set_steps(1, first[0])
    wait_until(lambda: contribution(first[0]), WITHIN_S)
    set_steps(ENDLESS, first[0])
    assert processes.wait_agreed(1, *drivers) == 1
    sent = [one for one in map(contribution, drivers) if one is not None]
    assert [one.round_id for one in sent] == [1, 1]
    assert sent[0].layer_gradients != sent[1].layer_gradients
    anchor = outer_step(training_model, sent)
    assert processes.info(first[0]).model_hash == anchor.model_hash
    held = [kept_layers(node, anchor) for node in (*first, *second)]
    assert held[0] == held[2]
    assert held[1] == held[3]
    assert held[0] | held[1] == anchor.weights.keys()


@pytest.mark.long
def test_three_pipelines_over_two_nodes_each_are_three_replicas(
    processes: TrainingProcesses,
) -> None:
    splits = [("ab", "0-1", "2-3"), ("cd", "0", "1-3"), ("ef", "0-1", "2-3")]
    nodes = [pipeline(processes, *split) for split in splits]
    drivers = [first for first, _ in nodes]
    wait_until(lambda: all(replicas(processes, driver) == 3 for driver in drivers), WITHIN_S)
    processes.wait_rounds(2, *drivers)
    for node in processes.nodes:
        answer = node.ask("PATCH", "/api/v1/config", {"training": {"enabled": False}})
        assert answer.status == 200, answer.body
    # Whatever the split, a tensor of a version has one hash, and all give that of the model.
    version, hashes = wait_until(lambda: newest_shared(processes.nodes), WITHIN_S)
    assert version.number >= 2
    assert {len(found) for found in hashes.values()} == {1}
    facts = {name: found.copy().pop() for name, found in hashes.items()}
    assert hash_of_tensors(facts).startswith(version.name)


def newest_shared(
    nodes: list[Node],
) -> tuple[PipelineVersion, dict[str, set[TensorFacts]]] | None:
    """The newest version that all holders have kept, and what they have of each tensor."""
    files = [kept_files_of(node) for node in nodes]
    shared = set.intersection(*map(set, files))
    if not shared:
        return None
    version = max(shared)
    hashes: dict[str, set[TensorFacts]] = {}
    for found in files:
        for name, facts in facts_of_tensors(
            safetensors.torch.load_file(found[version]).items()
        ).items():
            hashes.setdefault(name, set()).add(facts)
    return version, hashes


def kept_files_of(node: Node) -> dict[PipelineVersion, Path]:
    folder = node.data_dir / "training"
    named = re.compile(r"layers-(\d+)-([0-9a-f]{16})\.safetensors")
    found = {path: named.fullmatch(path.name) for path in folder.iterdir()}
    return {PipelineVersion(int(m[1]), m[2]): path for path, m in found.items() if m}


@pytest.mark.long
def test_other_splits_and_whole_nodes_take_part(processes: TrainingProcesses) -> None:
    first = pipeline(processes, "ab", "0", "1-3")
    second = pipeline(processes, "cd", "0-1", "2-3")
    whole = processes.start("w")
    processes.wait_rounds(2, first[0], second[0], whole)
    wait_until(lambda: processes.training(whole)["total_nodes_training"] == 3, WITHIN_S)


@pytest.mark.long
def test_killed_nodes_come_back_and_fetch_what_they_have_missed(
    processes: TrainingProcesses,
) -> None:
    [driver, last] = pipeline(processes, "ab", "0-1", "2-3")
    whole = processes.start("w")
    processes.wait_rounds(1, driver, whole)

    # The other goes on without the pipeline. Its holder comes back, and has to fetch.
    version = processes.info(whole).version
    processes.gone(last)
    processes.wait_agreed(version + 2, whole)
    last = processes.start("b", MESHNODE_LAYERS="2-3")
    processes.wait_rounds(1, driver, whole)

    # The whole node is killed, and has to fetch from the pipeline.
    processes.gone(whole)
    processes.wait_agreed(processes.info(driver).version + 1, driver)
    whole = processes.start("w")
    processes.wait_rounds(1, driver, whole)
    assert "Traceback" not in driver.log() + last.log() + whole.log()


def replicas(processes: TrainingProcesses, driver: Node) -> int:
    found: int = processes.training(driver)["total_nodes_training"]
    return found


def own_steps(driver: Node) -> int:
    found: int = driver.ask("GET", "/api/v1/metrics").json["training"]["steps_total"]
    return found
