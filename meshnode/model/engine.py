"""Computing many sessions together: one chunk of positions, or one position for each, per call.

Knows nothing of text, queues or clocks. Terms: a *session* is one generation's tokens, cache and
sampler; a *shard* is what a session of a pipeline has here, some of the held layers and a cache of
their own; an *outcome* is what a session or shard got, or the failure that befell it alone.

Invariants: a session's tokens, and a shard's states, depend on nothing but its own inputs and
sampler (decisions/0008); a call that fails leaves every cache as long as it was, so that the others
can go on and the failed one can be repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from meshnode.domain.errors import InvalidRequest, LayerNotHeld
from meshnode.domain.generation import GenerationRequest
from meshnode.model.decoder import Decoder
from meshnode.model.invariance import replays_exactly, rows_are_independent
from meshnode.model.kv import KVCache, kv_bytes_per_token
from meshnode.model.sampler import Sampler

ComputationError = (RuntimeError, MemoryError, ArithmeticError)
"""What torch, a full memory and non-finite numbers raise. Anything else is a bug of ours."""

Failure = RuntimeError | MemoryError | ArithmeticError
Outcome = int | Failure
ShardOutcome = Tensor | Failure


class NonFiniteStates(ArithmeticError):
    """A shard computed NaN or infinity: its input was out of range, or its weights are broken."""


@dataclass(slots=True)
class Session:
    """One generation. ``prompt`` is int64 ``[tokens]``."""

    prompt: Tensor
    cache: KVCache
    sampler: Sampler
    latest: int = -1
    """The token that the next step computes from; -1 during prefill."""


@dataclass(slots=True)
class Shard:
    """Some of the held layers, and the keys and values of one session in them."""

    layers: range
    cache: KVCache


@dataclass(frozen=True, slots=True)
class Step:
    """How a shard is to be continued."""

    shard: Shard
    inputs: Tensor
    """Token ids ``[1, seq]`` for layers that begin with the first, else ``[1, seq, hidden]``."""
    capacity: int
    """Positions that the cache must have room for; it is made larger first if it has not."""


class Engine:
    """Runs a decoder. Its calls block, and must not overlap."""

    def __init__(self, decoder: Decoder, max_batch: int) -> None:
        """Takes the time of some ``max_batch`` steps, to find out how rows may be computed."""
        self._decoder = decoder
        self.batches = rows_are_independent(decoder, max_batch)
        """Whether rows are computed together; otherwise one after another."""
        self.replays = replays_exactly(decoder)
        """Whether a replay is computed in one go; otherwise position after position."""

    def kv_bytes(self, positions: int, num_layers: int | None = None) -> int:
        """Memory that so many positions take in ``num_layers`` layers, by default all held."""
        layers = len(self._decoder.held) if num_layers is None else num_layers
        return positions * kv_bytes_per_token(self._decoder.config, layers)

    # Whole generations, for a decoder that holds all layers.

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
        return self._run(self._decoder.held, tokens, caches)[:, -1]

    def _choose(self, session: Session, logits: Tensor) -> Outcome:
        try:
            session.latest = session.sampler.choose(logits)
        except ComputationError as error:
            return error
        return session.latest

    # Shards of a pipeline.

    def shard(self, layers: range, capacity: int) -> Shard:
        """A shard with room for ``capacity`` positions. May raise a ComputationError."""
        return Shard(layers, KVCache.allocate(self._decoder.config, len(layers), capacity))

    def validate_layers(self, layers: range) -> None:
        """Raises LayerNotHeld unless ``layers`` are some of those held, without gaps."""
        held = self._decoder.held
        if layers.step != 1 or not layers or layers[0] not in held or layers[-1] not in held:
            named = f"layers {layers[0]} to {layers[-1]} are" if layers else "no layers at all are"
            raise LayerNotHeld(f"{named} not held here, only {held[0]} to {held[-1]}")

    def validate_inputs(self, layers: range, inputs: Tensor) -> None:
        """Raises InvalidRequest unless ``inputs`` are what ``layers`` take, for one session."""
        config = self._decoder.config
        if layers.start == 0:
            if inputs.dtype != torch.int64 or inputs.dim() != 2 or inputs.shape[0] != 1:
                raise InvalidRequest("hidden_states", "must be int64 token ids [1, seq]")
            low, high = (int(x) for x in inputs.aminmax()) if inputs.numel() else (0, 0)
            if low < 0 or high >= config.vocab_size:
                raise InvalidRequest(
                    "hidden_states", f"token ids must be below {config.vocab_size}"
                )
        else:
            shape = (1, inputs.shape[1] if inputs.dim() == 3 else 0, config.hidden_size)
            if inputs.dtype != torch.float32 or tuple(inputs.shape) != shape:
                raise InvalidRequest(
                    "hidden_states", f"must be float32 [1, seq, {config.hidden_size}]"
                )
        if inputs.shape[1] < 1:
            raise InvalidRequest("hidden_states", "must have a position")

    @torch.inference_mode()
    def extend(self, step: Step, *, singly: bool = False) -> ShardOutcome:
        """Continue one shard by a chunk. ``singly`` computes as one step for each position would.

        The outcome is ``[1, seq, hidden]``, or logits ``[1, 1, vocab]`` from the last layer.
        """
        shard, length = step.shard, step.shard.cache.length
        try:
            shard.cache.grow(step.capacity)
            if singly and not self.replays:
                states = self._one_by_one(shard, step.inputs)
            else:
                states = self._run(shard.layers, step.inputs, [shard.cache], singly=singly)
            return _finite(states)
        except ComputationError as error:
            shard.cache.length = length
            return error

    @torch.inference_mode()
    def step(self, steps: Sequence[Step]) -> list[ShardOutcome]:
        """Continue shards, which all have the same layers, by one position each."""
        if len(steps) == 1:
            return [self.extend(steps[0])]
        if self.batches:
            caches = [step.shard.cache for step in steps]
            lengths = [cache.length for cache in caches]
            try:
                for step in steps:
                    step.shard.cache.grow(step.capacity)
                inputs = torch.cat([step.inputs for step in steps])
                states = _finite(self._run(steps[0].shard.layers, inputs, caches))
                return [states[row : row + 1] for row in range(len(steps))]
            except ComputationError:
                for cache, length in zip(caches, lengths, strict=True):
                    cache.length = length
        # One by one, so that only those fail that cannot be computed.
        return [self.extend(step) for step in steps]

    def _one_by_one(self, shard: Shard, inputs: Tensor) -> Tensor:
        seq = inputs.shape[1]
        rows = [self._run(shard.layers, inputs[:, i : i + 1], [shard.cache]) for i in range(seq)]
        is_last = shard.layers.stop == self._decoder.config.num_layers
        return rows[-1] if is_last else torch.cat(rows, dim=1)

    def _run(
        self, layers: range, inputs: Tensor, caches: Sequence[KVCache], *, singly: bool = False
    ) -> Tensor:
        """Run ``layers``; when that fails the caches are as long as before."""
        lengths = [cache.length for cache in caches]
        try:
            return self._decoder.run(layers, inputs, caches, last_only=True, singly=singly)
        except ComputationError:
            for cache, length in zip(caches, lengths, strict=True):
                cache.length = length
            raise


def _finite(states: Tensor) -> Tensor:
    if not torch.isfinite(states).all():
        raise NonFiniteStates
    return states
