"""Computing many sessions together: one chunk of positions, or one position for each, per call.

The engine knows nothing of text, queues or clocks. Terms: a *session* is one generation's tokens,
cache and sampler; a *shard* is the part of a pipeline's session on this node: some of the held
layers and a cache for them; an *outcome* is the result of one session or shard, or its own failure.

Invariants: a session's tokens, and a shard's states, depend on nothing but its own inputs and
sampler (decision 0008); a failed call leaves the length of every cache unchanged, so that the other
sessions can continue and the failed call can be retried.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from meshnode.domain.errors import InvalidRequest, LayerNotHeld
from meshnode.domain.generation import GenerationRequest
from meshnode.model.accelerator.device import Accelerator
from meshnode.model.accelerator.layers import DeviceLayers
from meshnode.model.accelerator.pool import KVPool
from meshnode.model.decoder import Decoder
from meshnode.model.failures import ComputationError as ComputationError
from meshnode.model.failures import Failure as Failure
from meshnode.model.failures import NonFiniteStates as NonFiniteStates
from meshnode.model.invariance import replays_exactly, rows_are_independent
from meshnode.model.kv import KVCache, kv_bytes_per_token
from meshnode.model.sampler import Constraint, Sampler

Outcome = int | Failure
ShardOutcome = Tensor | Failure


@dataclass(slots=True)
class Session:
    """One generation. ``prompt`` is int64 ``[tokens]``."""

    prompt: Tensor = field(repr=False)
    cache: KVCache
    sampler: Sampler
    generated: list[int] = field(default_factory=list, repr=False)
    """The tokens so far. The last one is the next step's input."""
    prefix: tuple[KVCache, int] | None = field(default=None, repr=False)
    """A cache whose first positions are the prompt's: the first chunk copies them and goes on."""


@dataclass(slots=True)
class Shard:
    """Some of the held layers, and the keys and values of one session in them."""

    layers: range
    cache: KVCache
    capacity: int
    """Positions that the cache must have room for: the next step enlarges a smaller cache."""


class Engine:
    """Runs a decoder. Calls block, and must not overlap."""

    def __init__(self, decoder: Decoder, max_batch: int, alike: Engine | None = None) -> None:
        """Test how rows may be computed, which takes about as long as ``max_batch`` steps.

        The test is left out if ``alike`` is an engine of a model of the same shape and both compute
        in the compiled kernels, whose bits depend on neither (decision 0150), or on the same device
        with the same formats. On a device they share the memory for keys and values: ValueError if
        that does not fit.
        """
        self._loaded: Decoder | None = decoder
        self._config, self._held = decoder.config, decoder.held
        self._cache_dtype = decoder.cache_dtype
        self.where: Accelerator | None = None
        """The device that computes; None for the CPU."""
        self._pool: KVPool | None = None
        self._kernels: object = None
        if isinstance(decoder.fused, DeviceLayers):
            if alike is not None and alike._pool is not None:
                decoder.fused.share(alike._pool)
            self.where, self._pool = decoder.fused.where, decoder.fused.pool
            self._kernels = self.where, decoder.fused.shapes
        self.compiled = decoder.fused is not None and self.where is None
        """Whether the compiled kernels compute."""
        if self.compiled:
            self._kernels = "compiled"
        if alike is not None and (self._kernels is None or alike._kernels != self._kernels):
            alike = None
        self.batches: bool = (
            rows_are_independent(decoder, max_batch) if alike is None else alike.batches
        )
        """Whether rows are computed together. Otherwise they are computed one after another."""
        self.seamless: bool = (
            self.batches and replays_exactly(decoder, stepwise=False)
            if alike is None
            else alike.seamless
        )
        """Whether a position's bits depend neither on its chunk nor on the prompts beside it."""
        self.replays: bool = (
            self.seamless or replays_exactly(decoder) if alike is None else alike.replays
        )
        """Whether a replay is computed in one call. Otherwise each position takes a call."""

    @property
    def _decoder(self) -> Decoder:
        if self._loaded is None:
            raise RuntimeError("the weights of this engine were freed")
        return self._loaded

    def unload(self) -> None:
        """Free the weights. The engine computes no more, but still knows its sizes."""
        self._loaded = None

    def kv_bytes(self, positions: int, num_layers: int | None = None) -> int:
        """Memory for ``positions`` in ``num_layers`` layers, by default in all held layers."""
        if self._pool is not None:
            # A block has room for all held layers, however many of them a session runs.
            return self._pool.nbytes(positions)
        layers = len(self._held) if num_layers is None else num_layers
        return positions * kv_bytes_per_token(self._config, layers, self._cache_dtype)

    def room(self, kv_bytes: int) -> int:
        """The positions of one session in all held layers that so much memory has room for."""
        return kv_bytes // self.kv_bytes(1) if self._pool is None else self._pool.room(kv_bytes)

    def provide(self, kv_bytes: int) -> None:
        """Take so much of a device's memory for keys and values, once and for all.

        Does nothing on the CPU. Raises torch.OutOfMemoryError.
        """
        if self._pool is not None:
            self._pool.provide(kv_bytes)

    def _cache(self, num_layers: int, capacity: int) -> KVCache:
        return self._decoder.new_cache(num_layers, capacity)

    # Whole generations, for a decoder that holds all layers.

    def session(
        self,
        prompt: Sequence[int],
        capacity: int,
        request: GenerationRequest,
        constraint: Constraint | None = None,
    ) -> Session:
        """A session with room for ``capacity`` positions. May raise a ComputationError."""
        cache = self._cache(len(self._held), capacity)
        return Session(torch.tensor(prompt), cache, Sampler(request, constraint))

    @torch.inference_mode()
    def prefill(self, session: Session, start: int, stop: int) -> Outcome | None:
        """Compute a chunk of the prompt. The outcome is None unless the chunk is the last.

        After ``suspend``, the generated tokens follow the prompt, with the bits that they had; no
        chunk may have tokens of both (but those of ``prefill_together`` may).
        """
        prompt, generated = len(session.prompt), session.generated
        try:
            _copy_prefix(session)
            if stop <= prompt:
                logits = self._logits(session.prompt[None, start:stop], [session])
            else:
                logits = self._again(session, generated[start - prompt : stop - prompt])
        except ComputationError as error:
            return error
        is_last = stop == prompt + len(generated)
        return self._choose_all([session], logits)[0] if is_last else None

    @torch.inference_mode()
    def prefill_together(self, parts: Sequence[tuple[Session, int, int]]) -> list[Outcome | None]:
        """Compute positions ``start`` to ``stop`` of several sessions in one call, if seamless.

        The outcomes are those of ``prefill`` for each part.
        """
        if not self.seamless:
            return [self.prefill(*part) for part in parts]
        sessions = [session for session, _, _ in parts]
        for session in sessions:
            _copy_prefix(session)
        lengths = [session.cache.length for session in sessions]
        try:
            inputs = [_positions(*part) for part in parts]
            logits = self._decoder.run_ragged(inputs, [session.cache for session in sessions])
        except ComputationError as error:
            for session, length in zip(sessions, lengths, strict=True):
                session.cache.length = length
            if len(parts) == 1:
                return [error]
            # Computed one by one, so that only those that cannot be computed fail.
            return [outcome for part in parts for outcome in self.prefill_together([part])]
        last = [stop == len(one.prompt) + len(one.generated) for one, _, stop in parts]
        ending = [session for session, is_last in zip(sessions, last, strict=True) if is_last]
        rows = logits if all(last) else logits[torch.tensor(last)]
        chosen = iter(self._choose_all(ending, rows))
        return [next(chosen) if is_last else None for is_last in last]

    def suspend(self, session: Session) -> None:
        """Free the memory of a session, whose positions will be computed again."""
        session.cache, session.prefix = self._cache(len(self._held), 0), None

    def resume(self, session: Session, capacity: int) -> None:
        """Allocate memory for a suspended session. May raise a ComputationError."""
        session.cache = self._cache(len(self._held), capacity)

    def _again(self, session: Session, tokens: Sequence[int]) -> Tensor:
        """Logits ``[1, vocab]`` after tokens that were computed one at a time before."""
        if self.replays:
            inputs = torch.tensor([tokens])
            return self._run(self._held, inputs, [session.cache], stepwise=True)[:, -1]
        length = session.cache.length
        try:
            return [self._logits(torch.tensor([[token]]), [session]) for token in tokens][-1]
        except ComputationError:
            session.cache.length = length
            raise

    @torch.inference_mode()
    def decode(self, sessions: Sequence[Session]) -> list[Outcome]:
        """Compute the next token of each session."""
        if len(sessions) > 1 and not self.batches:
            return [outcome for session in sessions for outcome in self.decode([session])]
        try:
            logits = self._logits(torch.tensor([s.generated[-1:] for s in sessions]), sessions)
        except ComputationError as error:
            if len(sessions) == 1:
                return [error]
            # Computed one by one, so that only those that cannot be computed fail.
            return [outcome for session in sessions for outcome in self.decode([session])]
        return self._choose_all(sessions, logits)

    def _logits(self, tokens: Tensor, sessions: Sequence[Session]) -> Tensor:
        """Logits ``[batch, vocab]`` after ``tokens`` ``[batch, seq]``."""
        caches = [session.cache for session in sessions]
        return self._run(self._held, tokens, caches)[:, -1]

    def _choose_all(self, sessions: Sequence[Session], logits: Tensor) -> list[Outcome]:
        """The next tokens from logits ``[sessions, vocab]``."""
        choices: Sequence[Callable[[], int]]
        if self.where is None:
            choices = [
                partial(each.sampler.choose, row)
                for each, row in zip(sessions, logits, strict=True)
            ]
        else:
            choices = _from_device([each.sampler for each in sessions], logits)
        return [self._choose(*each) for each in zip(sessions, choices, strict=True)]

    def _choose(self, session: Session, choose: Callable[[], int]) -> Outcome:
        try:
            token = choose()
        except ComputationError as error:
            return error
        session.generated.append(token)
        return token

    # Shards of a pipeline.

    def shard(self, layers: range, capacity: int) -> Shard:
        """A shard with room for ``capacity`` positions. May raise a ComputationError."""
        cache = self._cache(len(layers), capacity)
        return Shard(layers, cache, capacity)

    def validate_layers(self, layers: range) -> None:
        """Raises LayerNotHeld unless ``layers`` are some of those held, without gaps."""
        held = self._held
        if layers.step != 1 or not layers or layers[0] not in held or layers[-1] not in held:
            named = f"layers {layers[0]} to {layers[-1]} are" if layers else "no layers at all are"
            raise LayerNotHeld(f"{named} not held here, only {held[0]} to {held[-1]}")

    def validate_inputs(self, layers: range, inputs: Tensor) -> None:
        """Raises InvalidRequest unless ``inputs`` are what ``layers`` take, for one session."""
        config = self._config
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
    def extend(
        self, shard: Shard, inputs: Tensor, *, stepwise: bool = False, rows: int = 1
    ) -> ShardOutcome:
        """Continue one shard by a chunk. ``stepwise`` computes as one step for each position would.

        ``inputs`` are token ids ``[1, seq]`` for layers that begin with the model's first, else
        hidden states ``[1, seq, hidden]``. The outcome is ``[1, seq, hidden]``, or from the last
        layer the logits ``[1, rows, vocab]`` of the last ``rows`` positions, at most all of them.
        """
        length = shard.cache.length
        try:
            shard.cache.grow(shard.capacity)
            apart = not self.replays or (rows > 1 and not self.batches)
            if stepwise and apart:
                states = self._one_by_one(shard, inputs, rows)
            else:
                caches = [shard.cache]
                states = self._run(shard.layers, inputs, caches, stepwise=stepwise, rows=rows)
            return _finite(states)
        except ComputationError as error:
            shard.cache.length = length
            return error

    @torch.inference_mode()
    def step(self, shards: Sequence[Shard], inputs: Sequence[Tensor]) -> list[ShardOutcome]:
        """Continue shards, which all have the same layers, by one position each.

        ``inputs`` has one tensor for each shard, as ``extend`` takes it.
        """
        if len(shards) > 1 and self.batches:
            caches = [shard.cache for shard in shards]
            lengths = [cache.length for cache in caches]
            try:
                for shard in shards:
                    shard.cache.grow(shard.capacity)
                states = _finite(self._run(shards[0].layers, torch.cat(list(inputs)), caches))
                return [states[row : row + 1] for row in range(len(shards))]
            except ComputationError:
                for cache, length in zip(caches, lengths, strict=True):
                    cache.length = length
        # Computed one by one, so that only those that cannot be computed fail.
        return [self.extend(shard, one) for shard, one in zip(shards, inputs, strict=True)]

    def _one_by_one(self, shard: Shard, inputs: Tensor, rows: int) -> Tensor:
        seq = inputs.shape[1]
        steps = [self._run(shard.layers, inputs[:, i : i + 1], [shard.cache]) for i in range(seq)]
        is_last = shard.layers.stop == self._config.num_layers
        return torch.cat(steps, dim=1)[:, seq - rows if is_last else 0 :]

    def _run(
        self,
        layers: range,
        inputs: Tensor,
        caches: Sequence[KVCache],
        *,
        stepwise: bool = False,
        rows: int = 1,
    ) -> Tensor:
        """Run ``layers``. If that fails, the lengths of the caches are unchanged."""
        lengths = [cache.length for cache in caches]
        try:
            return self._decoder.run(layers, inputs, caches, last=rows, stepwise=stepwise)
        except ComputationError:
            for cache, length in zip(caches, lengths, strict=True):
                cache.length = length
            raise


def _copy_prefix(session: Session) -> None:
    """Begin with the positions that another session has computed, if there are any."""
    if session.prefix is not None:
        session.cache.begin_with(*session.prefix)
        session.prefix = None


def _positions(session: Session, start: int, stop: int) -> Tensor:
    """Tokens ``[stop - start]`` of a session: the prompt's, and then those that it generated."""
    if stop <= len(session.prompt):
        return session.prompt[start:stop]
    return torch.cat((session.prompt, torch.tensor(session.generated)))[start:stop]


def _from_device(samplers: Sequence[Sampler], logits: Tensor) -> list[Callable[[], int]]:
    """What chooses each sampler's token from logits ``[samplers, vocab]`` on a device.

    No more is copied from there than a choice depends on, if that is the largest logit.
    """
    finite = torch.isfinite(logits).all(-1)
    largest = torch.where(finite, logits.max(-1)[0], torch.nan)[:, None].cpu()
    tokens = logits.argmax(-1)[:, None].cpu()
    found: list[Callable[[], int]] = []
    for place, sampler in enumerate(samplers):
        if sampler.looks_at == 1:
            found.append(partial(sampler.choose_among, largest[place], tokens[place]))
        else:
            found.append(partial(sampler.choose, logits[place].cpu()))
    return found


def _finite(states: Tensor) -> Tensor:
    """The states in the host's memory. Raises NonFiniteStates."""
    states = states.cpu()
    if not torch.isfinite(states).all():
        raise NonFiniteStates
    return states
