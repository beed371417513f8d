"""Attention of the compiled kernels: queries that share keys and values change no bit."""

import pytest
import torch
from torch import Tensor

from meshnode.model.config import DecoderConfig
from meshnode.model.decoder import Decoder
from meshnode.model.families import LayerKind
from meshnode.model.kernels.formats import Format
from meshnode.model.kernels.library import Library
from meshnode.model.kv import KVCache
from meshnode.model.linear import pack

LENGTH = 200
HEADS = [(6, 2, 16), (3, 1, 64), (4, 4, 24), (2, 1, 96), (8, 2, 80)]
"""Heads, those of keys and values, and their size: whole vectors of sixteen, and not."""
PIECES = [[LENGTH], [1, 2, 63, 66, 67, 130, LENGTH - 1, LENGTH]]


def decoder_of(
    kernels: Library, form: Format, heads: tuple[int, int, int], window: int | None, cap: float
) -> Decoder:
    decoder = Decoder(
        DecoderConfig(
            vocab_size=50,
            hidden_size=64,
            intermediate_size=64,
            num_layers=2,
            num_heads=heads[0],
            num_kv_heads=heads[1],
            head_dim=heads[2],
            context_length=LENGTH,
            window=window,
            layer_kinds=() if window is None else (LayerKind(windowed=True), LayerKind()),
            attention_cap=cap or None,
        )
    )
    decoder.init_weights(torch.Generator().manual_seed(1))
    decoder.requires_grad_(requires_grad=False)
    for parameter in decoder.parameters():
        if parameter.dim() > 1:
            parameter.mul_(8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("meshnode.model.linear.library", lambda _: kernels)
        pack(decoder, form)
    assert decoder.fused is not None
    return decoder


@torch.inference_mode()
def in_pieces(decoder: Decoder, ends: list[int]) -> Tensor:
    tokens = torch.randint(0, 50, (1, LENGTH), generator=torch.Generator().manual_seed(5))
    past = [KVCache.allocate(decoder.config, 2, LENGTH, decoder.cache_dtype)]
    starts = [0, *ends[:-1]]
    parts = [decoder(tokens[:, a:b], past) for a, b in zip(starts, ends, strict=True)]
    return torch.cat(parts, dim=1)


@pytest.mark.parametrize("form", [Format.FLOAT32, Format.BFLOAT16, Format.FLOAT16])
@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize(("window", "cap"), [(None, 0.0), (70, 0.0), (None, 5.0), (3, 5.0)])
def test_wider_vectors_change_no_bit(
    kernels: Library,
    plain: Library,
    form: Format,
    heads: tuple[int, int, int],
    window: int | None,
    cap: float,
) -> None:
    expected = in_pieces(decoder_of(plain, form, heads, window, cap), list(range(1, LENGTH + 1)))
    assert expected.isfinite().all()
    for ends in PIECES:
        ours = in_pieces(decoder_of(kernels, form, heads, window, cap), ends)
        assert torch.equal(ours, expected)
