"""From logits to a token (interface 4.1: temperature, top_k, top_p).

The order is the usual one: temperature, then the ``top_k`` most likely tokens, then the smallest
set of those whose probability reaches ``top_p``. Temperature 0 takes the most likely token.

Invariant: each request has a sampler with its own random generator, which draws one number for each
token, so that a seed repeats the same choices whatever else is being served.
"""

from __future__ import annotations

import secrets

import torch
from torch import Tensor

from meshnode.domain.generation import GenerationRequest

_SEEDS = 2**64


class NonFiniteLogits(ArithmeticError):
    """The model computed NaN or infinity, from which no token can be chosen."""


class Sampler:
    """Chooses the tokens of one generation."""

    def __init__(self, request: GenerationRequest) -> None:
        self._temperature = request.temperature
        self._top_k = request.top_k
        self._top_p = request.top_p
        self._generator = torch.Generator()
        # The generator's own way to a random seed opens a file, which fails without descriptors.
        seed = secrets.randbits(64) if request.seed is None else request.seed % _SEEDS
        self._generator.manual_seed(seed)

    def choose(self, logits: Tensor) -> int:
        """A token id from float32 ``[vocab]`` logits. Raises NonFiniteLogits."""
        if not torch.isfinite(logits).all():
            raise NonFiniteLogits
        if self._temperature == 0:
            return int(logits.argmax())
        candidates, tokens = self._candidates(logits)
        # The maximum is subtracted first, so that a tiny temperature does not overflow.
        weights = ((candidates.double() - candidates.max()) / self._temperature).exp()
        cumulative = weights.cumsum(0)
        if self._top_p < 1:
            # Sorted by weight; a token is kept while those before it fall short of top_p.
            before = cumulative - weights
            kept = max(1, int((before < self._top_p * cumulative[-1]).sum()))
            cumulative = cumulative[:kept]
        draw = torch.rand((), generator=self._generator, dtype=torch.float64) * cumulative[-1]
        # Rounding may put the draw on the last bound, where no token is left.
        place = min(int(torch.searchsorted(cumulative, draw, right=True)), len(cumulative) - 1)
        return place if tokens is None else int(tokens[place])

    def _candidates(self, logits: Tensor) -> tuple[Tensor, Tensor | None]:
        """The logits to choose from, and their token ids, or None if the indices are the ids."""
        if 0 < self._top_k < len(logits):
            return logits.topk(self._top_k)
        if self._top_p < 1:
            return logits.sort(descending=True)
        return logits, None
