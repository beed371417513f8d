"""From logits to a token (interface 4.1: temperature, top_k, top_p).

The order is the usual one: penalties, temperature, then the ``top_k`` most likely tokens, then the
smallest set of those whose probability reaches ``top_p``. Temperature 0 takes the most likely
token. A *constraint* leaves only the tokens with which the completion can become what was asked
for; the rest of the order applies to those that are left.

Invariants: each request has a sampler with its own random generator, which draws one number for
each token, so that a seed repeats the same choices whatever else is being served; a request without
penalties, constraint and logprobs gets the tokens that it got before there were any.
"""

from __future__ import annotations

import math
import secrets
import time
from collections import Counter
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from meshnode.domain.generation import GenerationRequest, TokenLogprobs, TokenProbability

_SEEDS = 2**64


class NoTokenPossible(ArithmeticError):
    """No token can be chosen."""


class NonFiniteLogits(NoTokenPossible):
    """The model computed NaN or infinity, from which no token can be chosen."""


class Constraint(Protocol):
    """What the completion of one generation must keep to."""

    def allowed(self) -> Tensor:
        """The ids that may come next, int64 and ascending. Raises NoTokenPossible."""

    def accept(self, token: int) -> None:
        """Note the token that was chosen, which is one of those allowed."""


class Sampler:
    """Chooses the tokens of one generation."""

    def __init__(self, request: GenerationRequest, constraint: Constraint | None = None) -> None:
        self._temperature = request.temperature
        self._top_k = request.top_k
        self._top_p = request.top_p
        self._frequency = request.frequency_penalty
        self._presence = request.presence_penalty
        self._counts: Counter[int] | None = Counter() if self._frequency or self._presence else None
        self._constraint = constraint
        self._reported = request.logprobs
        self._report: tuple[tuple[int, float], list[tuple[int, float]]] | None = None
        self.chose: tuple[float, float] = (0.0, 0.0)
        """When the latest token was chosen: begin and end, by ``time.perf_counter``."""
        self._generator = torch.Generator()
        # The generator's own way to a random seed opens a file, which fails without descriptors.
        seed = secrets.randbits(64) if request.seed is None else request.seed % _SEEDS
        self._generator.manual_seed(seed)

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is chosen, without a draw."""
        return self._temperature == 0

    @property
    def looks_at(self) -> int | None:
        """How many of the largest logits a choice depends on; None: on all of them.

        1 stands for the first of the largest ones, as ``argmax`` finds it.
        """
        if self._counts is not None or self._constraint is not None or self._reported is not None:
            return None
        if self._temperature == 0:
            return 1
        return self._top_k if self._top_k > 0 else None

    def choose_among(self, logits: Tensor, tokens: Tensor) -> int:
        """As :meth:`choose`, from the ``looks_at`` largest logits, in ``topk``'s order.

        ``tokens`` are their ids. Raises NoTokenPossible.
        """
        if self.looks_at is None:
            raise ValueError("the choice depends on all logits")
        if not _all_finite(logits):
            raise NonFiniteLogits
        began = time.perf_counter()
        place = 0 if self._temperature == 0 else self._place(logits, is_sorted=True)
        self.chose = began, time.perf_counter()
        return int(tokens[place])

    def choose(self, logits: Tensor) -> int:
        """A token id from float32 ``[vocab]`` logits. Raises NoTokenPossible."""
        began = time.perf_counter()
        if not _all_finite(logits):
            raise NonFiniteLogits
        penalised = logits if self._counts is None else self._penalised(logits, self._counts)
        if self._constraint is None:
            token = self._draw(penalised)
        else:
            ids = self._constraint.allowed()
            token = int(ids[self._draw(penalised[ids])])
            self._constraint.accept(token)
        if self._counts is not None:
            self._counts[token] += 1
        if self._reported is not None:
            self._report = _report(logits, token, self._reported)
        self.chose = began, time.perf_counter()
        return token

    def logprobs(self, piece: Callable[[int], bytes]) -> TokenLogprobs | None:
        """The probabilities behind the latest choice, if the request asks for them.

        ``piece`` gives the bytes of a token.
        """
        if self._report is None:
            return None
        chosen, *top = (
            TokenProbability(piece(token), logprob)
            for token, logprob in (self._report[0], *self._report[1])
        )
        return TokenLogprobs(chosen, tuple(top))

    def _penalised(self, logits: Tensor, counts: Counter[int]) -> Tensor:
        """The logits with the penalties of the tokens that the completion has."""
        if not counts:
            return logits
        penalised = logits.clone()
        ids = torch.tensor(list(counts))
        times = torch.tensor(list(counts.values()), dtype=logits.dtype)
        penalised[ids] -= self._frequency * times + self._presence
        return penalised

    def _draw(self, logits: Tensor) -> int:
        """The place of one of the logits."""
        if self._temperature == 0:
            # numpy finds the first of the largest, as torch does, in a tenth of its time.
            return int(logits.numpy().argmax())
        candidates, tokens = self._candidates(logits)
        place = self._place(candidates, is_sorted=tokens is not None)
        return place if tokens is None else int(tokens[place])

    def _place(self, candidates: Tensor, *, is_sorted: bool) -> int:
        """The place of one of the candidates, which ``top_p`` limits if they are sorted."""
        # The maximum is subtracted first, so that a tiny temperature does not overflow.
        weights = ((candidates.double() - candidates.max()) / self._temperature).exp()
        cumulative = weights.cumsum(0)
        if self._top_p < 1 and is_sorted:
            # A token is kept while those before it fall short of top_p.
            before = cumulative - weights
            kept = max(1, int((before < self._top_p * cumulative[-1]).sum()))
            cumulative = cumulative[:kept]
        draw = torch.rand((), generator=self._generator, dtype=torch.float64) * cumulative[-1]
        # Rounding may put the draw on the last bound, where no token is left.
        return min(int(torch.searchsorted(cumulative, draw, right=True)), len(cumulative) - 1)

    def _candidates(self, logits: Tensor) -> tuple[Tensor, Tensor | None]:
        """The logits to choose from, and their token ids, or None if the indices are the ids."""
        if 0 < self._top_k < len(logits):
            return logits.topk(self._top_k)
        if self._top_p < 1:
            return logits.sort(descending=True)
        return logits, None


def _all_finite(logits: Tensor) -> bool:
    """Whether all are finite numbers.

    Their sum is not if one of them is not; the other way round, it may only be too large.
    """
    return math.isfinite(logits.sum().item()) or bool(torch.isfinite(logits).all())


def _report(
    logits: Tensor, token: int, top: int
) -> tuple[tuple[int, float], list[tuple[int, float]]]:
    """Logarithms of the probabilities of ``token``, and of the ``top`` most likely ones."""
    logprobs = logits.double().log_softmax(0)
    values, ids = logprobs.topk(min(top, len(logprobs)))
    likely = list(zip(ids.tolist(), values.tolist(), strict=True))
    return (token, float(logprobs[token])), likely
