"""Recomputing a proven range of layers (decision 0099).

Layers that this node holds are recomputed with the executor. Other layers are loaded from the model
directory, if their weights are there, for one proof at a time and in a low-priority thread. One
layer at a time is in memory, so that a node can judge ranges that it could not hold.

Outputs agree if they are equal to the last bit, or within a tolerance for other machines and
libraries: at every position, the L2 norm of the difference is at most a thousandth of the norm of
the outputs that were computed here. Single numbers are not compared, because a few large ones cause
rounding errors in all others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import trio
from torch import Tensor

from meshnode.domain.errors import ComputationFailed, InvalidRequest
from meshnode.domain.shares import Requester, Standing
from meshnode.model.accelerator.device import Accelerator
from meshnode.model.documents import ModelUnreadable
from meshnode.model.engine import ComputationError, Engine
from meshnode.model.files import ModelFiles
from meshnode.model.loading import LoadedModel, load_model
from meshnode.services.executor import Executor
from meshnode.services.shards.messages import unpack_states
from meshnode.services.training.low_priority_thread import LowPriorityThread
from meshnode.wire.tensors import unpack_floats

log = logging.getLogger(__name__)

_Load = Callable[[Sequence[int]], LoadedModel]
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

    def __init__(
        self,
        executor: Executor,
        files: Callable[[str], ModelFiles | None],
        dtype: str = "float32",
    ) -> None:
        """``files`` gives a model's files by its hash; None for one that is not here.

        They may lack the weights of layers that are not held. ``dtype`` is the format in which the
        executor keeps its weights.
        """
        self._files, self._dtype = files, dtype
        self._executor = executor
        self._thread = LowPriorityThread()
        self._turn = trio.Lock()

    def close(self) -> None:
        """End the thread. A later call, by a service that was restarted, starts another thread."""
        self._thread.close()
        self._thread = LowPriorityThread()

    def compares(self, numeric_class: str) -> bool:
        """Whether other outputs of a node of this class mean that it has computed wrongly."""
        return numeric_class in ("", self._executor.numeric_class)

    async def agrees(
        self, layers: range, work: RecomputedWork, model_hash: str = ""
    ) -> bool | None:
        """Whether these layers give these outputs; None if this node cannot compute them.

        ``model_hash`` names the weights, by default those that are served.

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
            held = layers[0] in executor.card.layers and layers[-1] in executor.card.layers
            if held and (not model_hash or model_hash in executor.versions.hashes):
                computed = await self._with_executor(layers, inputs, model_hash)
            else:
                files = self._files(model_hash)
                if files is None:
                    return None
                load = partial(_load, files, self._dtype, executor.where)
                try:
                    compute = partial(_from_files, load, layers, inputs, executor.prefill_chunk)
                    computed = await self._thread(compute)
                except (ModelUnreadable, *ComputationError) as error:
                    # The proof may be too large for this machine, which is not the prover's fault.
                    log.info("layers %s cannot be computed again: %r", layers, error)
                    return None
            return await trio.to_thread.run_sync(partial(_same, computed, work))

    async def _with_executor(self, layers: range, inputs: Tensor, model_hash: str) -> Tensor:
        session = await self._executor.open_session(
            layers, inputs.shape[1], JUDGE, model_hash, OPEN_S
        )
        try:
            return (await self._executor.forward(session, inputs)).states
        finally:
            session.close()


def _load(
    files: ModelFiles, dtype: str, where: Accelerator | None, layers: Sequence[int]
) -> LoadedModel:
    return load_model(files, layers, dtype=dtype, where=where)


def _from_files(load: _Load, layers: range, inputs: Tensor, chunk: int) -> Tensor:
    """Load the layers one by one and compute. Blocks meanwhile. Raises ModelUnreadable."""
    states = inputs
    for layer in layers:
        states = _through_layer(load, layer, states, chunk)
    return states


def _through_layer(load: _Load, layer: int, inputs: Tensor, chunk: int) -> Tensor:
    layers = range(layer, layer + 1)
    model = load(layers)
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
