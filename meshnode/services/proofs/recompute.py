"""Computing a proven range of layers again (decisions/0099).

With the executor where the layers are held; otherwise from the model directory, if the weights are
there: loaded for one proof at a time, in a thread that lets everybody else go first.

Outputs agree if they are equal to the last bit, or else within a tolerance that stands for other
machines and libraries: at every position, the difference has at most a thousandth of the length
(L2) of what was computed here. Not number by number: a few large ones bring rounding to all.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
import trio
from torch import Tensor

from meshnode.domain.errors import ComputationFailed, InvalidRequest
from meshnode.model.config import ModelUnreadable
from meshnode.model.engine import ComputationError, Engine, Step
from meshnode.model.loading import load_model
from meshnode.services.executor import Executor
from meshnode.services.shards.messages import ForwardCall, unpack
from meshnode.services.shards.stateless import open_within
from meshnode.services.training.quiet_thread import QuietThread
from meshnode.wire.tensors import unpack_floats

log = logging.getLogger(__name__)

TOLERANCE = 1e-3
OPEN_S = 10.0
"""Waiting for memory in the executor. Nobody waits for the answer."""


@dataclass(frozen=True, slots=True)
class Work:
    """Inputs and claimed outputs, as they were sent."""

    input_shape: tuple[int, ...]
    inputs: bytes
    output_shape: tuple[int, ...]
    outputs: bytes

    @property
    def nbytes(self) -> int:
        """What it takes to keep it."""
        return len(self.inputs) + len(self.outputs)


class Recomputation:
    """Computes ranges of layers from their inputs. One at a time."""

    def __init__(self, executor: Executor, directory: Path) -> None:
        """``directory`` is the model's; it may lack the weights of layers that are not held."""
        self._executor = executor
        self._directory = directory
        self._thread = QuietThread()
        self._turn = trio.Lock()

    def close(self) -> None:
        """End the thread. What is asked for after that, by a service started again, has another."""
        self._thread.close()
        self._thread = QuietThread()

    async def agrees(self, layers: range, work: Work) -> bool | None:
        """Whether these layers give these outputs; None if it cannot be found out here.

        Raises what the executor raises.
        """
        executor = self._executor
        call = ForwardCall(
            caller_ip="",
            session_id="",
            request_id="",
            layers=layers,
            data=work.inputs,
            shape=work.input_shape,
        )
        async with self._turn:
            context = executor.card.context_length
            read = partial(unpack, call, executor.config, context)
            try:
                inputs = (await trio.to_thread.run_sync(read)).states
            except InvalidRequest:
                return None
            if inputs.shape[0] != 1:
                return None
            if layers[0] in executor.card.layers and layers[-1] in executor.card.layers:
                computed = await self._with_executor(layers, inputs)
            else:
                try:
                    compute = partial(
                        _from_directory, self._directory, layers, inputs, executor.prefill_chunk
                    )
                    computed = await self._thread(compute)
                except (ModelUnreadable, *ComputationError) as error:
                    # Too large for this machine, for one: that says nothing of who claims.
                    log.info("layers %s cannot be computed again: %r", layers, error)
                    return None
            return await trio.to_thread.run_sync(partial(_same, computed, work))

    async def _with_executor(self, layers: range, inputs: Tensor) -> Tensor:
        session = await open_within(OPEN_S, self._executor, layers, inputs.shape[1])
        try:
            return (await self._executor.forward(session, inputs)).states
        finally:
            session.close()


def _from_directory(directory: Path, layers: range, inputs: Tensor, chunk: int) -> Tensor:
    """Blocks for as long as loading takes. Raises ModelUnreadable."""
    model = load_model(directory, layers)
    engine, seq = Engine(model.decoder, 1), inputs.shape[1]
    shard = engine.shard(layers, seq)
    is_last = layers.stop == model.card.num_layers
    parts = list[Tensor]()
    for start in range(0, seq, chunk):
        outcome = engine.extend(Step(shard, inputs[:, start : start + chunk], seq))
        if not isinstance(outcome, Tensor):
            raise ComputationFailed from outcome
        parts = [outcome] if is_last else [*parts, outcome]
    return torch.cat(parts, dim=1)


def _same(computed: Tensor, work: Work) -> bool:
    if tuple(computed.shape) != work.output_shape:
        return False
    try:
        claimed = unpack_floats(work.outputs, work.output_shape, "output_states")
    except InvalidRequest:
        # The prover has signed that this came out.
        return False
    mine = computed.numpy()
    if np.array_equal(mine, claimed):
        return True
    difference = np.linalg.norm(claimed.astype(np.float64) - mine, axis=-1)
    return bool(np.all(difference <= TOLERANCE * np.linalg.norm(mine.astype(np.float64), axis=-1)))
