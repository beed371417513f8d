"""The weights that a node trains: anchor, inner steps, pseudo-gradient, outer step (interface 2.1).

Terms as in ``model.diloco``; tensors are float32 under their checkpoint names. The *inner*
weights live in a decoder of their own, apart from those that serve; the anchor changes only by
:meth:`TrainedModel.adopt`.

Invariants: the same anchor and the same set give the same weights, bit for bit; a pseudo-gradient
is made from the anchor that it names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from meshnode.model.decoder import Decoder
from meshnode.model.diloco import Contribution, Rule, aggregate, clips, dense
from meshnode.model.loading import load_model
from meshnode.model.manifest import facts_of_tensors, hash_of_tensors
from meshnode.model.outer_step import step_of
from meshnode.model.training import (
    Batch,
    Evaluation,
    InnerTrainer,
    Recipe,
    StepReport,
    evaluate,
    inner_recipe,
)
from meshnode.model.weights import (
    checkpoint_tensors,
    checkpoint_views,
    set_checkpoint_tensors,
)

Tensors = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class Anchor:
    """The starting point of a round: weights, and the outer momentum that belongs to them."""

    weights: Mapping[str, Tensor]
    velocity: Mapping[str, Tensor]
    """Empty if the momentum is zero."""
    model_hash: str
    momentum_hash: str
    """Of the velocity, like the model hash; empty if that is."""

    @classmethod
    def of(cls, weights: Mapping[str, Tensor], velocity: Mapping[str, Tensor]) -> Anchor:
        """Make an anchor and compute its hashes."""
        momentum_hash = hash_of(velocity) if velocity else ""
        return cls(weights, velocity, hash_of(weights), momentum_hash)


def hash_of(tensors: Mapping[str, Tensor]) -> str:
    """The hash of tensors by name: 64 lowercase hex characters."""
    return hash_of_tensors(facts_of_tensors(tensors.items()))


def moved(weights: Mapping[str, Tensor], contribution: Contribution, part: float) -> Tensors:
    """The weights after one contribution, scaled to ``part``."""
    return {
        name: weight.sub(dense(contribution[name]), alpha=part) for name, weight in weights.items()
    }


def _fall(earlier: float, later: float) -> float:
    """How much lower a loss is, relatively."""
    return (earlier - later) / max(abs(earlier), 1e-12)


Samples = tuple[Batch, Batch]
"""Sequences that were assigned to a node, and others."""


@dataclass(frozen=True, slots=True)
class _Inner:
    """The inner weights, and their optimizer."""

    decoder: Decoder
    trainer: InnerTrainer


class TrainedModel:
    """A model in training. Its calls block, and must not overlap."""

    def __init__(self, directory: Path) -> None:
        """Load all layers, unpacked. Raises ModelUnreadable."""
        self._directory = directory
        self._inner: _Inner | None = self._load()
        weights = checkpoint_tensors(self._inner.decoder)
        self.anchor = Anchor.of(weights, {})
        self.parameters = sum(tensor.numel() for tensor in weights.values())

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every tensor, by name."""
        return {name: tuple(tensor.shape) for name, tensor in self.anchor.weights.items()}

    def original(self) -> Anchor:
        """The untrained weights, from their files."""
        return Anchor.of(checkpoint_tensors(self._load().decoder), {})

    def adopt(self, anchor: Anchor) -> None:
        """Continue from this anchor."""
        self.anchor = anchor
        self.rewind()

    def unload(self) -> None:
        """Free the inner weights and the optimizer's moments; the anchor stays.

        The next call that needs them loads the inner weights again, and sets them to the anchor's.
        The moments begin anew, as after a restart.
        """
        self._inner = None

    def rewind(self) -> None:
        """Set the inner weights to the anchor's. The inner optimizer keeps its moments."""
        set_checkpoint_tensors(self._loaded().decoder, self.anchor.weights)

    def inner_step(self, batch: Batch, learning_rate: float) -> StepReport:
        """One step of AdamW. Raises FloatingPointError for a gradient that is not finite."""
        trainer = self._loaded().trainer
        trainer.recipe = inner_recipe(learning_rate)
        return trainer.step(batch)

    def pseudo_gradient(self) -> Tensors:
        """The result of the inner steps: the anchor minus the inner weights."""
        inner = checkpoint_views(self._loaded().decoder)
        return {name: anchor - inner[name] for name, anchor in self.anchor.weights.items()}

    def applied(
        self,
        contributions: Sequence[Contribution],
        rule: Rule,
        weights: Sequence[float] | None = None,
    ) -> Anchor:
        """The anchor after applying a set of contributions to this one, which is not modified.

        ``weights`` say what each counts; all equally without them.
        """
        gradient = aggregate(rule, contributions, weights=weights)
        before, velocity = self.anchor.weights, self.anchor.velocity
        return Anchor.of(*step_of(contributions).apply(before, velocity, gradient, contributions))

    def validate(
        self, batches: Sequence[Batch], weights: Mapping[str, Tensor] | None = None
    ) -> Evaluation:
        """Held-out loss of these weights, or of the anchor. Resets the inner weights to that."""
        decoder = self._loaded().decoder
        if weights is None:
            self.rewind()
            return evaluate(decoder, batches)
        set_checkpoint_tensors(decoder, weights)
        try:
            return evaluate(decoder, batches)
        finally:
            self.rewind()

    def effects(
        self,
        before: Anchor,
        contributions: Sequence[Contribution],
        samples: Sequence[Samples],
        part: float,
    ) -> list[tuple[float, float]]:
        """How much each contribution by itself lowers the loss of ``before``, relatively.

        It is scaled by ``part``, and to the median norm, and measured on the samples at its place.
        Resets the inner weights to the anchor's.
        """
        decoder = self._loaded().decoder
        parts = [part * scale for scale in clips(contributions)]
        try:
            set_checkpoint_tensors(decoder, before.weights)
            losses = [[evaluate(decoder, [batch]).loss for batch in pair] for pair in samples]
            found = []
            for contribution, part, pair, earlier in zip(
                contributions, parts, samples, losses, strict=True
            ):
                set_checkpoint_tensors(decoder, moved(before.weights, contribution, part))
                later = [evaluate(decoder, [batch]).loss for batch in pair]
                assigned, others = map(_fall, earlier, later)
                found.append((assigned, others))
            return found
        finally:
            self.rewind()

    def _loaded(self) -> _Inner:
        if self._inner is None:
            self._inner = self._load()
            set_checkpoint_tensors(self._inner.decoder, self.anchor.weights)
        return self._inner

    def _load(self) -> _Inner:
        decoder = load_model(self._directory, trainable=True).decoder
        return _Inner(decoder, InnerTrainer(decoder, Recipe()))
