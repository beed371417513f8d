"""Messages that leave nothing behind: all that they need comes with them (decisions/0033).

Invariant: memory for keys and values is taken from the same budget as that of sessions, for as long
as the message is computed.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import trio
from torch import Tensor

from meshnode.domain.errors import InvalidRequest, RateLimited
from meshnode.services.executor import Executor, ShardOutput, ShardSession
from meshnode.services.shards.messages import (
    POSITIONS,
    ForwardAnswer,
    ForwardCall,
    Inputs,
    off_loop,
    validate_mask,
)
from meshnode.wire.tensors import pack_floats


async def forward_stateless(
    executor: Executor, call: ForwardCall, inputs: Inputs, open_s: float
) -> ForwardAnswer:
    """Compute the rows of a message one after another, from ``past_key_values`` if it has any.

    The answer has new ones where it came with some or asks for them (``use_cache``). Raises what
    the executor raises, and InvalidRequest.
    """
    batch, seq = inputs.states.shape[:2]
    length = 0 if inputs.past is None else inputs.past.shape[4]
    if inputs.start not in (None, length):
        raise InvalidRequest(POSITIONS, f"must begin at {length}, after past_key_values")
    validate_mask(call.mask, batch, length + seq)
    wants_past = call.use_cache or inputs.past is not None
    outputs: list[ShardOutput] = []
    past: list[Tensor] = []
    for row in range(batch):
        session = await open_within(open_s, executor, call.layers, length + seq)
        try:
            if inputs.past is not None:
                session.restore(inputs.past[:, :, row])
            states = inputs.states[row : row + 1]
            outputs.append(await executor.forward(session, states, decode_from=call.decode_from))
            if wants_past:
                past.append(session.keys_and_values())
        finally:
            session.close()
    return await answer_of(outputs, past)


async def open_within(
    seconds: float, executor: Executor, layers: range, positions: int
) -> ShardSession:
    """A session, or RateLimited if there is no place for it soon."""
    with trio.move_on_after(seconds):
        return await executor.open_session(layers, positions)
    raise RateLimited(1, "no memory for the session")


async def answer_of(outputs: Sequence[ShardOutput], past: Sequence[Tensor]) -> ForwardAnswer:
    """The rows, in bytes. ``past`` are ``[layers, 2, kv_heads, positions, head_dim]`` each."""
    rows = [output.states for output in outputs]

    def pack() -> tuple[bytes, tuple[int, ...], tuple[bytes, ...]]:
        states = rows[0] if len(rows) == 1 else torch.cat(rows)
        layers = torch.stack(list(past), dim=2) if past else ()
        return (
            pack_floats(states.numpy()),
            tuple(states.shape),
            tuple(pack_floats(layer.numpy()) for layer in layers),
        )

    size = sum(tensor.nbytes for tensor in (*rows, *past))
    data, shape, new_past = await off_loop(size, pack)
    return ForwardAnswer(
        data,
        shape,
        is_final=outputs[0].is_logits,
        past=new_past,
        queue_ms=sum(output.queue_ms for output in outputs),
        compute_ms=sum(output.compute_ms for output in outputs),
    )
