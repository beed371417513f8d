"""The numeric class of a node: what the bits of its results depend on (decision 0152).

Terms: two nodes of one *class* compute the same bits from the same inputs, so a generation may move
between them without a trace. The class is a text: device, format, kernels, and a digest of what
they compute from fixed weights, which is probed at the start.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import torch

from meshnode.model.accelerator.device import Accelerator
from meshnode.model.config import DecoderConfig
from meshnode.model.decoder import Decoder
from meshnode.model.kernels.formats import DTYPES, Format
from meshnode.model.linear import pack

_PROBE = DecoderConfig(
    vocab_size=64,
    hidden_size=64,
    intermediate_size=96,
    num_layers=1,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    context_length=96,
)
_POSITIONS = 70
"""More than a block of keys, and no multiple of a vector's width."""


@lru_cache
def numeric_class(dtype: str, where: Accelerator | None = None) -> str:
    """The class of a node whose setting is ``dtype``. Blocks for some tenths of a second.

    ``where`` is the device if it is not the CPU. It may need memory that it lacks, RuntimeError.
    """
    form = DTYPES[dtype]
    digest, compiled = hashlib.sha256(), False
    for each in Format if form is None else (form,):
        decoder = _probe()
        pack(decoder, each, where=where)
        compiled = where is None and decoder.fused is not None
        digest.update(_results(decoder))
    device = "cpu" if where is None else where.kind
    kernels = "compiled" if compiled else "torch"
    return f"{device}/{dtype}/{kernels}-{digest.hexdigest()[:12]}"


def _probe() -> Decoder:
    decoder = Decoder(_PROBE)
    decoder.init_weights(torch.Generator().manual_seed(0))
    decoder.requires_grad_(requires_grad=False)
    for parameter in decoder.parameters():
        parameter.mul_(4)
    return decoder


@torch.inference_mode()
def _results(decoder: Decoder) -> bytes:
    """The logits of a prompt, and of a step after it."""
    cache = decoder.new_cache(1, _POSITIONS + 1)
    tokens = torch.arange(_POSITIONS + 1)[None] % _PROBE.vocab_size
    prompt = decoder(tokens[:, :_POSITIONS], [cache])
    step = decoder(tokens[:, _POSITIONS:], [cache])
    data: bytes = torch.cat((prompt, step), 1).cpu().numpy().tobytes()
    return data
