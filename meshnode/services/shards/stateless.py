"""Messages without a session: they bring all that they need along (decision 0033).

Invariant: memory for their keys and values comes from the same budget as that of sessions, and is
freed when the message has been computed.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from meshnode.domain.errors import InvalidRequest
from meshnode.domain.ratelimit import address_key
from meshnode.domain.shares import Requester, Standing
from meshnode.services.executor import Executor, ForwardJob
from meshnode.services.shards.messages import (
    POSITIONS,
    ForwardAnswer,
    ForwardCall,
    ForwardInputs,
    off_loop,
    validate_mask,
)
from meshnode.services.shards.wanted import WantedLogits
from meshnode.wire.tensors import pack_floats, pack_integers


async def forward_stateless(
    executor: Executor,
    call: ForwardCall,
    inputs: ForwardInputs,
    open_s: float,
    requester: Requester,
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
    model_hash = call.model_hash
    past: list[Tensor] = []
    for row in range(batch):
        session = await executor.open_session(
            call.layers, length + seq, requester, model_hash, open_s
        )
        # All rows compute with the weights of the first.
        model_hash = session.model_hash
        try:
            if inputs.past is not None:
                session.restore(inputs.past[:, :, row])
            states = inputs.states[row : row + 1]
            outputs.append(await executor.forward(session, states, decode_from=call.decode_from))
            if wants_past:
                past.append(session.keys_and_values())
        finally:
            session.close()
    return await answer_of(outputs, past, model_hash=model_hash)


def caller_at(ip: str, *, peer: bool) -> Requester:
    """Whom the sessions of a caller at an address count for."""
    return Requester(Standing.PEER if peer else Standing.FREE, address_key(ip))


async def answer_of(
    outputs: Sequence[ForwardJob],
    past: Sequence[Tensor],
    *,
    wanted: WantedLogits | None = None,
    model_hash: str = "",
) -> ForwardAnswer:
    """Pack the rows. Each of ``past`` is ``[layers, 2, kv_heads, positions, head_dim]``.

    ``model_hash`` names what computed them. ``wanted`` says which logits of a single output are
    sent; None: all that there are.
    """
    rows = [output.states for output in outputs]
    is_final = outputs[0].is_logits

    def pack() -> tuple[bytes, tuple[int, ...], tuple[bytes, ...], bytes]:
        states, ids = rows[0] if len(rows) == 1 else torch.cat(rows), None
        if wanted is not None and is_final:
            states, ids = wanted.select(states)
        layers = torch.stack(list(past), dim=2) if past else ()
        return (
            pack_floats(states.numpy()),
            tuple(states.shape),
            # Caches of 16-bit weights have 16 bits, which float32 holds exactly.
            tuple(pack_floats(layer.float().numpy()) for layer in layers),
            b"" if ids is None else pack_integers(ids.numpy()),
        )

    size = sum(tensor.nbytes for tensor in (*rows, *past))
    data, shape, new_past, ids = await off_loop(size, pack)
    return ForwardAnswer(
        data,
        shape,
        is_final=is_final,
        ids=ids,
        past=new_past,
        queue_ms=sum(output.queue_ms for output in outputs),
        compute_ms=sum(output.compute_ms for output in outputs),
        model_hash=model_hash,
    )
