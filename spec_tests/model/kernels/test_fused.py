"""Whole decoders in the compiled kernels: against torch's operators, and position by position."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from meshnode.model.config import DecoderConfig
from meshnode.model.decoder import Decoder
from meshnode.model.engine import Engine
from meshnode.model.kernels.formats import DTYPES, Format
from meshnode.model.kernels.library import library
from meshnode.model.kv import CacheFull, KVCache
from meshnode.model.linear import pack

CONFIG = DecoderConfig(
    vocab_size=300,
    hidden_size=96,
    intermediate_size=200,
    num_layers=3,
    num_heads=6,
    num_kv_heads=2,
    head_dim=16,
    context_length=256,
    tied_head=True,
    attention_bias=True,
    mlp_bias=True,
)
TOKENS = torch.randint(0, 300, (2, 150), generator=torch.Generator().manual_seed(5))
FORMATS = [form for form in DTYPES.values() if form is not None]

Packed = Callable[..., Decoder]


@pytest.fixture(scope="module")
def plain() -> Decoder:
    random = torch.Generator().manual_seed(1)
    decoder = Decoder(CONFIG)
    decoder.init_weights(random)
    decoder.requires_grad_(requires_grad=False)
    for parameter in decoder.parameters():
        if parameter.dim() == 1:
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=random))
        else:
            parameter.mul_(4)
    return decoder


@pytest.fixture(scope="module")
def make(plain: Decoder) -> Packed:
    if library(torch.get_num_threads()) is None:
        pytest.skip("no kernels: see the log for the reason")

    def made(form: Format | None, *, compiled: bool = True) -> Decoder:
        decoder = copy.deepcopy(plain)
        pack(decoder, form, compiled=compiled)
        assert (decoder.fused is not None) == compiled
        return decoder

    return made


def caches(decoder: Decoder, capacity: int, layers: int = 3) -> list[KVCache]:
    return [KVCache.allocate(CONFIG, layers, capacity, decoder.cache_dtype) for _ in TOKENS]


@torch.inference_mode()
def in_pieces(decoder: Decoder, ends: list[int]) -> Tensor:
    past, start = caches(decoder, ends[-1]), 0
    parts = []
    for end in ends:
        parts.append(decoder(TOKENS[:, start:end], past))
        start = end
    return torch.cat(parts, dim=1)


@pytest.mark.parametrize(
    ("form", "bound"),
    [
        (Format.FLOAT32, 1e-6),
        (Format.BFLOAT16, 1e-6),
        (Format.FLOAT16, 1e-6),
        (Format.INT8, 0.03),
        (Format.INT4, 0.03),
    ],
)
def test_logits_are_those_of_torch_with_the_same_weights(
    make: Packed, form: Format, bound: float
) -> None:
    # Integer formats also round what enters a product, which torch's operators here do not.
    with torch.inference_mode():
        ours, theirs = make(form)(TOKENS), make(form, compiled=False)(TOKENS)
    assert (ours - theirs).abs().max() <= bound * theirs.abs().max()


@pytest.mark.parametrize("form", FORMATS)
def test_positions_have_the_same_bits_however_they_are_chunked(make: Packed, form: Format) -> None:
    decoder = make(form)
    whole = in_pieces(decoder, [150])
    assert torch.equal(in_pieces(decoder, [1, 2, 63, 64, 65, 130, 131, 150]), whole)
    assert torch.equal(in_pieces(decoder, list(range(1, 151))), whole)


@pytest.mark.parametrize("form", FORMATS)
def test_a_session_has_the_same_bits_alone_and_among_others(make: Packed, form: Format) -> None:
    decoder = make(form)
    with torch.inference_mode():
        together = decoder(TOKENS, caches(decoder, 150))
        alone = [decoder(TOKENS[i : i + 1], [caches(decoder, 150)[i]]) for i in range(2)]
    assert torch.equal(torch.cat(alone), together)


@pytest.mark.parametrize("form", FORMATS)
def test_a_split_of_the_layers_changes_no_bit(make: Packed, form: Format) -> None:
    decoder = make(form)
    with torch.inference_mode():
        whole = decoder(TOKENS, caches(decoder, 150))
        hidden = decoder.run(range(1), TOKENS, caches(decoder, 150, 1))
        parts = decoder.run(range(1, 3), hidden, caches(decoder, 150, 2))
    assert torch.equal(parts, whole)


@pytest.mark.parametrize("form", FORMATS)
def test_the_engine_finds_the_kernels_exact(make: Packed, form: Format) -> None:
    engine = Engine(make(form), 9)
    assert engine.batches
    assert engine.replays
    assert engine.seamless


def test_keys_and_values_have_the_width_of_the_weights(make: Packed) -> None:
    sizes = {form: Engine(make(form), 1).kv_bytes(1) for form in FORMATS}
    wide = 2 * 3 * 2 * 16 * 4
    assert sizes.pop(Format.FLOAT32) == wide
    assert set(sizes.values()) == {wide // 2}


def test_auto_keeps_each_matrix_as_it_is(make: Packed, plain: Decoder) -> None:
    exact = copy.deepcopy(plain)
    pack(exact, Format.INT8, compiled=False)
    packed = make(None)
    assert packed.cache_dtype is torch.float32
    with torch.inference_mode():
        assert torch.equal(packed(TOKENS), make(Format.FLOAT32)(TOKENS))


def test_a_full_cache_is_refused_and_unchanged(make: Packed) -> None:
    decoder = make(Format.INT8)
    past = caches(decoder, 10)
    with pytest.raises(CacheFull), torch.inference_mode():
        decoder(TOKENS[:, :11], past)
    assert [cache.length for cache in past] == [0, 0]


def test_inputs_are_not_changed(make: Packed) -> None:
    decoder = make(Format.BFLOAT16)
    hidden = torch.randn(2, 5, 96)
    before = hidden.clone()
    with torch.inference_mode():
        decoder.run(range(1, 2), hidden, caches(decoder, 5, 1))
    assert torch.equal(hidden, before)
