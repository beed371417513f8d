"""Liars whose contributions look honest, over real gRPC: all honest nodes leave them out."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from meshnode.model.trained_model import Tensors, TrainedModel
from meshnode.services.training.jury import Jury, Verdict
from spec_tests.services.training.trainers import (
    PATIENT,
    TrainingNode,
    training_nodes,
    wait_for,
)

pytestmark = pytest.mark.usefixtures("one_thread")

NODES = 4


class Opponent(TrainedModel):
    """Trains like the others, and contributes the opposite, of an honest size."""

    def pseudo_gradient(self) -> Tensors:
        return {name: -tensor for name, tensor in super().pseudo_gradient().items()}


class Shared:
    """What one node has computed, for another that copies it."""

    def __init__(self) -> None:
        self.made: dict[str, Tensors] = {}
        self.news = threading.Condition()


class Original(TrainedModel):
    """Shows what it contributes, by the weights that it was made from."""

    def __init__(self, directory: Path, shared: Shared) -> None:
        super().__init__(directory)
        self.shared = shared

    def pseudo_gradient(self) -> Tensors:
        found = super().pseudo_gradient()
        with self.shared.news:
            self.shared.made[self.anchor.model_hash] = found
            self.shared.news.notify_all()
        return found


class Copier(Original):
    """Contributes what another node has computed."""

    def pseudo_gradient(self) -> Tensors:
        wanted, made = self.anchor.model_hash, self.shared.made
        with self.shared.news:
            self.shared.news.wait_for(lambda: wanted in made, 20)
        # Without it the copier has to compute by itself.
        found = made.get(wanted) or TrainedModel.pseudo_gradient(self)
        return {name: tensor.clone() for name, tensor in found.items()}


class Verdicts:
    """What each node has found of each round, by the weights that the round began with."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.found: dict[str, dict[str, Verdict]] = {}
        judge = Jury.verdict

        async def watched(jury: Jury, messages: object) -> Verdict:
            verdict = await judge(jury, messages)  # type: ignore[arg-type]
            anchor = jury._learner.model.anchor.model_hash
            self.found.setdefault(anchor, {})[jury._node_id] = verdict
            return verdict

        patch.setattr(Jury, "verdict", watched)

    def shared(self, nodes: list[TrainingNode], which: Callable[[Verdict], frozenset[str]]) -> bool:
        """Return whether in some round all these nodes have left out the last one."""
        names, last = {node.key.node_id for node in nodes}, nodes[-1].key.node_id
        return any(
            found.keys() >= names and all(which(one) == {last} for one in found.values())
            for found in self.found.values()
        )


async def test_all_leave_out_who_contributes_the_opposite(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdicts = Verdicts(monkeypatch)
    async with training_nodes(model, tmp_path, NODES) as (nodes, nursery):
        nodes[-1].trained = Opponent
        for node in nodes:
            node.timings = PATIENT
            await nursery.start(node.run)
        await wait_for(lambda: verdicts.shared(nodes, lambda one: one.condemned))
        # They have the same weights after that round, and go on.
        rounds = nodes[0].training.rounds
        assert rounds is not None
        version = nodes[0].kept[0]
        await wait_for(
            lambda: len({node.kept for node in nodes}) == 1 and nodes[0].kept[0] > version
        )
        for found in verdicts.found.values():
            assert len({(one.condemned, one.copies) for one in found.values()}) == 1


async def test_copies_count_once_for_all(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdicts, shared = Verdicts(monkeypatch), Shared()
    async with training_nodes(model, tmp_path, NODES) as (nodes, nursery):
        # Of what is alike the one with the lower node id counts.
        *_, original, copier = nodes = sorted(nodes, key=lambda node: node.key.node_id)
        copier.trained = partial(Copier, shared=shared)
        original.trained = partial(Original, shared=shared)
        for node in nodes:
            node.timings = PATIENT
            await nursery.start(node.run)
        await wait_for(lambda: verdicts.shared(nodes, lambda one: one.copies))
        for found in verdicts.found.values():
            assert len({(one.condemned, one.copies) for one in found.values()}) == 1
