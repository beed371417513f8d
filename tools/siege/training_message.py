"""A message that trains, with random tokens and labels."""

from __future__ import annotations

import random
import struct

from meshnode.wire import node_pb2 as pb

TOKENS, VOCABULARY = 64, 3000


def step(number: int) -> bytes:
    """The message of a step over the whole model; another one for each number."""
    draw = random.Random(number)
    tokens, labels = (
        struct.pack(f"<{TOKENS}q", *(draw.randrange(VOCABULARY) for _ in range(TOKENS)))
        for _ in range(2)
    )
    return pb.PipelineForwardRequest(
        session_id=f"garbage {number}",
        request_id=f"{number}",
        hidden_states=tokens,
        hidden_shape=[1, TOKENS],
        training_labels=labels,
    ).SerializeToString()
