"""The inner training loop: AdamW on batches of tokens (interface 2.1, ``training``).

Terms: a *batch* is inputs and targets, where a target of ``IGNORED`` does not count; a *recipe* is
everything that determines an update besides the weights and the batch; the *state* of a trainer is
its weights, both moments of AdamW and the step count, as named tensors.

Invariants: the same recipe, state and batches give the same weights, bit for bit, on one machine
with the same number of threads; a trainer restored from a state goes on as if it had never
stopped; a state is plain tensors, for safetensors, and never a pickle. The modules here draw no
random numbers and read no clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

IGNORED = -100
"""Target of a position without a loss: padding, and the last token of a text."""

_STEP = "trainer.step"
_WEIGHT, _FIRST, _SECOND = "weight.", "moment1.", "moment2."

Forward = Callable[[Tensor], Tensor]
"""Token ids ``[batch, seq]`` to logits ``[batch, seq, vocab]``."""


class TrainingStateMismatch(ValueError):
    """A state belongs to another model. The message names the first tensor that does not fit."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The data of one step: int64 ``inputs`` and ``targets``, both ``[batch, seq]``."""

    inputs: Tensor
    targets: Tensor

    @property
    def tokens(self) -> int:
        """Positions that count in the loss."""
        return int((self.targets != IGNORED).sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Hyperparameters. The learning rate rises linearly, stays, and falls along a cosine."""

    learning_rate: float = 1e-4
    """The peak of the schedule."""
    total_steps: int | None = None
    """Step at which the cosine ends. None keeps the learning rate constant after the warm-up."""
    warmup_steps: int = 0
    decay_steps: int | None = None
    """Length of the cosine. None lets it begin right after the warm-up.

    With a number, the steps before the decay do not depend on ``total_steps``, so that a run can be
    made longer or shorter until its decay begins.
    """
    first_step: int = 0
    """Step at which the schedule begins. A trainer may change to another recipe there."""
    final_fraction: float = 0.1
    """Fraction of the learning rate at and after the end of the cosine."""
    betas: tuple[float, float] = (0.9, 0.95)
    epsilon: float = 1e-8
    weight_decay: float = 0.1
    """Applies to matrices only. Norms and biases do not decay."""
    clip_norm: float = 1.0
    """Bound of the L2 norm of the whole gradient."""

    def __post_init__(self) -> None:
        """Refuse values that do not make a schedule."""
        if not (self.learning_rate > 0 and self.clip_norm > 0 and self.weight_decay >= 0):
            raise ValueError("learning_rate and clip_norm must be positive, weight_decay not less")
        if self.warmup_steps < 0 or (self.decay_steps is not None and self.decay_steps < 0):
            raise ValueError("the warm-up and the decay must not be negative")
        if self.total_steps is not None and self.decay_start < self.warmup_steps:
            raise ValueError("the warm-up and the decay must fit into the total steps")

    @property
    def decay_start(self) -> int:
        """First step of the cosine, if there is one, counted from ``first_step``."""
        if self.total_steps is None or self.decay_steps is None:
            return min(self.warmup_steps, self.total_steps or self.warmup_steps)
        return self.total_steps - self.decay_steps

    def rate(self, step: int) -> float:
        """Learning rate of update ``step``, counted from 0 like ``first_step``."""
        step -= self.first_step
        if step < self.warmup_steps:
            return self.learning_rate * (step + 1) / self.warmup_steps
        if self.total_steps is None or step < self.decay_start:
            return self.learning_rate
        span = max(1, self.total_steps - self.decay_start)
        done = min(1.0, (step - self.decay_start) / span)
        share = self.final_fraction + (1 - self.final_fraction) * (1 + math.cos(math.pi * done)) / 2
        return self.learning_rate * share


WARM_UP_STEPS = 25
"""Steps in which a node's learning rate rises, wherever the moments of its optimizer begin."""


def inner_recipe(learning_rate: float) -> Recipe:
    """The recipe of a node's inner steps (decision 0262)."""
    return Recipe(learning_rate=learning_rate, warmup_steps=WARM_UP_STEPS)


@dataclass(frozen=True, slots=True)
class StepReport:
    """Measurements of one update. ``loss`` is the mean cross-entropy in nats before it."""

    step: int
    loss: float
    gradient_norm: float
    """L2, before clipping."""
    learning_rate: float
    tokens: int


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Mean cross-entropy in nats per token over ``tokens`` positions."""

    loss: float
    tokens: int

    @property
    def perplexity(self) -> float:
        """The exponential of the loss."""
        return math.exp(self.loss)


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean loss over the targets that count: logits ``[batch, seq, vocab]`` to a scalar."""
    return functional.cross_entropy(
        logits.flatten(0, 1).float(), targets.flatten(), ignore_index=IGNORED
    )


class InnerTrainer:
    """Updates the weights of ``model`` in place, one batch at a time.

    ``forward`` replaces the call of the model, for instance by a compiled version. Tied parameters
    are updated, and appear in the state, once.
    """

    def __init__(self, model: nn.Module, recipe: Recipe, forward: Forward | None = None) -> None:
        self.model = model
        self.recipe = recipe
        self.step_count = 0
        self._forward: Forward = model if forward is None else forward
        self._parameters = dict(model.named_parameters())
        matrices = [p for p in self._parameters.values() if p.dim() > 1]
        vectors = [p for p in self._parameters.values() if p.dim() <= 1]
        self._optimizer = torch.optim.AdamW(
            [
                {"params": matrices, "weight_decay": recipe.weight_decay},
                {"params": vectors, "weight_decay": 0.0},
            ],
            lr=recipe.learning_rate,
            betas=recipe.betas,
            eps=recipe.epsilon,
            fused=True,
        )

    def step(self, batch: Batch) -> StepReport:
        """One update. Raises FloatingPointError, with all unchanged, for a non-finite gradient."""
        rate = self.recipe.rate(self.step_count)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.zero_grad(set_to_none=True)
        loss = cross_entropy(self._forward(batch.inputs), batch.targets)
        torch.autograd.backward([loss])
        norm = float(nn.utils.clip_grad_norm_(self._parameters.values(), self.recipe.clip_norm))
        if not math.isfinite(norm):
            self._optimizer.zero_grad(set_to_none=True)
            raise FloatingPointError(f"gradient is not finite at step {self.step_count}")
        self._optimizer.step()
        # Gradients are as large as the weights, and nothing needs them between two steps.
        self._optimizer.zero_grad(set_to_none=True)
        report = StepReport(self.step_count, loss.item(), norm, rate, batch.tokens)
        self.step_count += 1
        return report

    def update(self, gradients: Mapping[str, Tensor], norm: float) -> None:
        """One update by gradients from elsewhere, one for each parameter, by name.

        ``norm`` is the L2 norm of the whole gradient, of which these may be a part, so that parts
        of a model that are updated separately are clipped like the whole. Raises
        FloatingPointError, with all unchanged, if ``norm`` is not finite.
        """
        if not math.isfinite(norm):
            raise FloatingPointError(f"gradient is not finite at step {self.step_count}")
        for group in self._optimizer.param_groups:
            group["lr"] = self.recipe.rate(self.step_count)
        # The same formula as torch's own clipping, to the bit.
        share = min(1.0, self.recipe.clip_norm / (norm + 1e-6))
        for name, parameter in self._parameters.items():
            parameter.grad = gradients[name] * share
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self.step_count += 1

    def state(self) -> dict[str, Tensor]:
        """Copies of everything that the next step depends on, by name, besides the recipe."""
        tensors = {_STEP: torch.tensor(self.step_count)}
        for name, parameter in self._parameters.items():
            moments = self._optimizer.state.get(parameter, {})
            tensors[_WEIGHT + name] = parameter.detach().clone()
            for prefix, key in ((_FIRST, "exp_avg"), (_SECOND, "exp_avg_sq")):
                moment = moments.get(key)
                tensors[prefix + name] = (
                    torch.zeros_like(parameter) if moment is None else moment.detach().clone()
                )
        return tensors

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Load a state. Raises TrainingStateMismatch, with all unchanged, if it does not fit."""
        expected = {_STEP: torch.Size([])} | {
            prefix + name: parameter.shape
            for name, parameter in self._parameters.items()
            for prefix in (_WEIGHT, _FIRST, _SECOND)
        }
        for name in sorted(expected.keys() | state.keys()):
            if name not in state or name not in expected:
                missing = "missing from" if name in expected else "unknown in"
                raise TrainingStateMismatch(f"{name} is {missing} the state")
            if state[name].shape != expected[name]:
                raise TrainingStateMismatch(f"{name} has shape {list(state[name].shape)}")
        self.step_count = int(state[_STEP])
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                parameter.copy_(state[_WEIGHT + name])
                self._optimizer.state[parameter] = {
                    # AdamW counts steps in float32, which is exact up to 2**24.
                    "step": torch.tensor(float(self.step_count)),
                    "exp_avg": state[_FIRST + name].to(parameter).clone(),
                    "exp_avg_sq": state[_SECOND + name].to(parameter).clone(),
                }


@torch.inference_mode()
def evaluate(model: Forward, batches: Iterable[Batch]) -> Evaluation:
    """Mean loss over all counting positions of ``batches``, each position weighing the same."""
    total, tokens = 0.0, 0
    for batch in batches:
        total += cross_entropy(model(batch.inputs), batch.targets).item() * batch.tokens
        tokens += batch.tokens
    if not tokens:
        raise ValueError("nothing to evaluate: no position counts")
    return Evaluation(total / tokens, tokens)
