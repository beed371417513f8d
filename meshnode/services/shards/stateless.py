"""Messages without a session: they bring all that they need along (decision 0033).

Invariant: memory for their keys and values comes from the same budget as that of sessions, and is
freed when the message has been computed.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import trio
from torch import Tensor

from meshnode.domain.errors import InvalidRequest, RateLimited
from meshnode.domain.ratelimit import address_key
from meshnode.domain.shares import Requester, Standing
from meshnode.services.executor import Executor, ForwardJob, ShardSession
from meshnode.services.shards.messages import (
    POSITIONS,
    ForwardAnswer,
    ForwardCall,
    ForwardInputs,
    off_loop,
    validate_mask,
)
from meshnode.wire.tensors import pack_floats


async def forward_stateless(
    executor: Executor, call: ForwardCall, inputs: ForwardInputs, open_s: float
) -> ForwardAnswer:
    """Compute the rows of a message one after another, from ``past_key_values`` if it has any.

    The answer has ``past_key_values`` if the message had some or asks for them (``use_cache``).
    Raises what the executor raises, and InvalidRequest.
    """
    batch, seq = inputs.states.shape[:2]
    length = 0 if inputs.past is None else inputs.past.shape[4]
    if inputs.start not in (None, length):
        raise InvalidRequest(POSITIONS, f"must begin at {length}, after past_key_values")
    validate_mask(call.mask, batch, length + seq)
    wants_past = call.use_cache or inputs.past is not None
    outputs: list[ForwardJob] = []
    past: list[Tensor] = []
    for row in range(batch):
        session = await open_within(
            open_s, executor, call.layers, length + seq, peer_at(call.caller_ip)
        )
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


def peer_at(ip: str) -> Requester:
    """Whom the sessions of a caller at an address count for."""
    return Requester(Standing.PEER, address_key(ip))


async def open_within(
    seconds: float, executor: Executor, layers: range, positions: int, requester: Requester
) -> ShardSession:
    """Open a session. Raises RateLimited if there is no place for it within ``seconds``."""
    with trio.move_on_after(seconds):
        return await executor.open_session(layers, positions, requester)
    raise RateLimited(1, "no memory for the session")


async def answer_of(outputs: Sequence[ForwardJob], past: Sequence[Tensor]) -> ForwardAnswer:
    """Pack the rows. Each of ``past`` is ``[layers, 2, kv_heads, positions, head_dim]``."""
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
