"""Recomputing a proven range of layers (decision 0099).

Layers that this node holds are recomputed with the executor. Other layers are loaded from the model
directory, if their weights are there, for one proof at a time and in a low-priority thread.

Outputs agree if they are equal to the last bit, or within a tolerance for other machines and
libraries: at every position, the L2 norm of the difference is at most a thousandth of the norm of
the outputs that were computed here. Single numbers are not compared, because a few large ones cause
rounding errors in all others.
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
from meshnode.domain.shares import Requester, Standing
from meshnode.model.config import ModelUnreadable
from meshnode.model.engine import ComputationError, Engine
from meshnode.model.loading import load_model
from meshnode.services.executor import Executor
from meshnode.services.shards.messages import unpack_states
from meshnode.services.shards.stateless import open_within
from meshnode.services.training.low_priority_thread import LowPriorityThread
from meshnode.wire.tensors import unpack_floats

log = logging.getLogger(__name__)

TOLERANCE = 1e-3
OPEN_S = 10.0
"""Deadline for memory in the executor. It can be long, as nobody waits for the answer."""
JUDGE = Requester(Standing.PEER, "proofs")
"""Whom the computation counts for: it is done for other nodes."""


@dataclass(frozen=True, slots=True)
class RecomputedWork:
    """The inputs and the claimed outputs, as they were sent."""

    input_shape: tuple[int, ...]
    inputs: bytes
    output_shape: tuple[int, ...]
    outputs: bytes

    @property
    def nbytes(self) -> int:
        """The memory that inputs and outputs take."""
        return len(self.inputs) + len(self.outputs)


class Recomputation:
    """Computes ranges of layers from their inputs, one at a time."""

    def __init__(self, executor: Executor, directory: Path) -> None:
        """``directory`` is the model's; it may lack the weights of layers that are not held."""
        self._executor = executor
        self._directory = directory
        self._thread = LowPriorityThread()
        self._turn = trio.Lock()

    def close(self) -> None:
        """End the thread. A later call, by a service that was restarted, starts another thread."""
        self._thread.close()
        self._thread = LowPriorityThread()

    async def agrees(self, layers: range, work: RecomputedWork) -> bool | None:
        """Whether these layers give these outputs; None if this node cannot compute them.

        Raises what the executor raises.
        """
        executor = self._executor
        async with self._turn:
            context = executor.card.context_length
            read = partial(
                unpack_states, layers, work.inputs, work.input_shape, executor.config, context
            )
            try:
                inputs = await trio.to_thread.run_sync(read)
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
                    # The proof may be too large for this machine, which is not the prover's fault.
                    log.info("layers %s cannot be computed again: %r", layers, error)
                    return None
            return await trio.to_thread.run_sync(partial(_same, computed, work))

    async def _with_executor(self, layers: range, inputs: Tensor) -> Tensor:
        session = await open_within(OPEN_S, self._executor, layers, inputs.shape[1], JUDGE)
        try:
            return (await self._executor.forward(session, inputs)).states
        finally:
            session.close()


def _from_directory(directory: Path, layers: range, inputs: Tensor, chunk: int) -> Tensor:
    """Load the layers and compute. Blocks meanwhile. Raises ModelUnreadable."""
    model = load_model(directory, layers)
    engine, seq = Engine(model.decoder, 1), inputs.shape[1]
    shard = engine.shard(layers, seq)
    is_last = layers.stop == model.card.num_layers
    parts = list[Tensor]()
    for start in range(0, seq, chunk):
        outcome = engine.extend(shard, inputs[:, start : start + chunk])
        if not isinstance(outcome, Tensor):
            raise ComputationFailed from outcome
        parts = [outcome] if is_last else [*parts, outcome]
    return torch.cat(parts, dim=1)


def _same(computed: Tensor, work: RecomputedWork) -> bool:
    if tuple(computed.shape) != work.output_shape:
        return False
    try:
        claimed = unpack_floats(work.outputs, work.output_shape, "output_states")
    except InvalidRequest:
        # The prover has signed this invalid tensor as its output.
        return False
    mine = computed.numpy()
    if np.array_equal(mine, claimed):
        return True
    difference = np.linalg.norm(claimed.astype(np.float64) - mine, axis=-1)
    return bool(np.all(difference <= TOLERANCE * np.linalg.norm(mine.astype(np.float64), axis=-1)))
