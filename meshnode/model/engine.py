"""Computing many sessions together: one prompt chunk, or one token for each, per call.

Knows nothing of text, queues or clocks. Terms: a *session* is one generation's tokens, cache and
sampler; an *outcome* is the token that a session got, or the failure that befell it alone.

Invariants: a session's tokens depend on nothing but its own prompt and sampler (decisions/0008); a
call that fails leaves every cache as long as it was, so that the others can go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from meshnode.domain.generation import GenerationRequest
from meshnode.model.decoder import Decoder
from meshnode.model.invariance import rows_are_independent
from meshnode.model.kv import KVCache, kv_bytes_per_token
from meshnode.model.sampler import Sampler

ComputationError = (RuntimeError, MemoryError, ArithmeticError)
"""What torch, a full memory and non-finite logits raise. Anything else is a bug of ours."""

Failure = RuntimeError | MemoryError | ArithmeticError
Outcome = int | Failure


@dataclass(slots=True)
class Session:
    """One generation. ``prompt`` is int64 ``[tokens]``."""

    prompt: Tensor
    cache: KVCache
    sampler: Sampler
    latest: int = -1
    """The token that the next step computes from; -1 during prefill."""


class Engine:
    """Runs a decoder that holds all layers. Its calls block, and must not overlap."""

    def __init__(self, decoder: Decoder, max_batch: int) -> None:
        """Takes the time of some ``max_batch`` steps, to find out how rows may be computed."""
        self._decoder = decoder
        self.batches = rows_are_independent(decoder, max_batch)
        """Whether rows are computed together; otherwise one after another."""

    def kv_bytes(self, positions: int) -> int:
        """Memory that a session of this many positions takes."""
        return positions * kv_bytes_per_token(self._decoder.config, len(self._decoder.held))

    def session(self, prompt: Sequence[int], capacity: int, request: GenerationRequest) -> Session:
        """A session with room for ``capacity`` positions. May raise a ComputationError."""
        cache = KVCache.allocate(self._decoder.config, len(self._decoder.held), capacity)
        return Session(torch.tensor(prompt), cache, Sampler(request))

    @torch.inference_mode()
    def prefill(self, session: Session, start: int, stop: int) -> Outcome | None:
        """Compute a chunk of the prompt. The outcome is None unless the chunk is the last."""
        try:
            logits = self._logits(session.prompt[None, start:stop], [session])
        except ComputationError as error:
            return error
        return self._choose(session, logits[0]) if stop == len(session.prompt) else None

    @torch.inference_mode()
    def decode(self, sessions: Sequence[Session]) -> list[Outcome]:
        """Compute the next token of each session."""
        if len(sessions) > 1 and not self.batches:
            return [outcome for session in sessions for outcome in self.decode([session])]
        try:
            logits = self._logits(torch.tensor([[s.latest] for s in sessions]), sessions)
        except ComputationError as error:
            if len(sessions) == 1:
                return [error]
            # One by one, so that only those fail that cannot be computed.
            return [outcome for session in sessions for outcome in self.decode([session])]
        return [self._choose(s, row) for s, row in zip(sessions, logits, strict=True)]

    def _logits(self, tokens: Tensor, sessions: Sequence[Session]) -> Tensor:
        """Logits ``[batch, vocab]`` after ``tokens`` ``[batch, seq]``."""
        caches = [session.cache for session in sessions]
        lengths = [cache.length for cache in caches]
        try:
            logits: Tensor = self._decoder(tokens, caches, last_only=True)
        except ComputationError:
            for cache, length in zip(caches, lengths, strict=True):
                cache.length = length
            raise
        return logits[:, -1]

    def _choose(self, session: Session, logits: Tensor) -> Outcome:
        try:
            session.latest = session.sampler.choose(logits)
        except ComputationError as error:
            return error
        return session.latest
