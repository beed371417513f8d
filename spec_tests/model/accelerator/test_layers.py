"""Decoders on a device: against plain ones, and to the bit among themselves (decision 0229)."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from meshnode.domain.generation import GenerationRequest
from meshnode.model.accelerator.attention import PagedAttention, plan_step
from meshnode.model.accelerator.layers import DeviceLayers
from meshnode.model.accelerator.pool import PagedCache
from meshnode.model.decoder import Decoder
from meshnode.model.engine import Engine, NonFiniteStates, Session
from meshnode.model.families import Activation, Experts, LayerKind
from meshnode.model.kernels.formats import Format, rounded
from meshnode.model.kv import CacheFull
from meshnode.model.numerics import numeric_class
from spec_tests.model.accelerator.devices import DEVICE, placed, plain_decoder

MIXED = (LayerKind(windowed=True), LayerKind(), LayerKind(rotated=False), LayerKind(windowed=True))
FAMILIES: dict[str, dict[str, Any]] = {
    "Llama": {"attention_bias": True, "mlp_bias": True, "tied_head": True},
    "no round number": {
        "hidden_size": 60,
        "intermediate_size": 76,
        "num_heads": 5,
        "num_kv_heads": 5,
        "head_dim": 12,
    },
    "Mistral": {"window": 70, "layer_kinds": MIXED, "architecture": "MistralForCausalLM"},
    "Qwen 3": {"architecture": "Qwen3ForCausalLM"},
    "Gemma 2": {
        "architecture": "Gemma2ForCausalLM",
        "activation": Activation.GELU_TANH,
        "window": 9,
        "layer_kinds": MIXED,
        "attention_cap": 3.0,
        "logit_cap": 5.0,
        "query_scalar": 24.0,
        "tied_head": True,
    },
    "OLMo 2": {"architecture": "Olmo2ForCausalLM"},
    "Phi 3": {"architecture": "Phi3ForCausalLM", "rotary_share": 0.5},
}
EXPERTS = Experts(count=5, used=2, width=48, shares_sum_to_one=True)
FAMILIES["Mixtral"] = {
    "architecture": "MixtralForCausalLM",
    "experts": EXPERTS,
    "layer_kinds": (LayerKind(sparse=True), LayerKind(), *[LayerKind(sparse=True)] * 2),
}
TOKENS = torch.randint(1, 300, (2, 150), generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_a_family_computes_what_it_computes_on_the_cpu(family: str) -> None:
    plain = plain_decoder(**FAMILIES[family])
    expected, found = plain(TOKENS), placed(plain)(TOKENS)
    assert (found - expected).abs().max() < 1e-4 * max(1, float(expected.abs().max()))


@pytest.mark.parametrize("form", list(Format), ids=lambda form: form.name)
@torch.inference_mode()
def test_a_format_computes_with_its_rounded_weights(form: Format) -> None:
    plain = plain_decoder(hidden_size=60, intermediate_size=76, head_dim=12, initializer_range=0.1)
    like = copy.deepcopy(plain)
    for parameter in like.parameters():
        if parameter.dim() == 2:
            parameter.copy_(rounded(parameter, form))
    expected, decoder = like(TOKENS), placed(plain, form)
    error = (decoder(TOKENS) - expected).norm() / expected.norm()
    assert error < {Format.FLOAT32: 1e-5, Format.BFLOAT16: 2e-2}.get(form, 2e-3)
    assert decoder.cache_dtype is form.cache_dtype
    layer = decoder.config.layer_parameters * form.bits / 8
    assert isinstance(decoder.fused, DeviceLayers)
    # Groups of 32 inputs are filled up, and norms are float32.
    assert layer <= decoder.fused.layer_bytes[0] < 1.35 * layer + 1024


@pytest.mark.parametrize("family", ["Llama", "Gemma 2", "Mixtral"])
@torch.inference_mode()
def test_bits_depend_neither_on_chunks_nor_on_the_split_of_the_layers(family: str) -> None:
    plain = plain_decoder(**FAMILIES[family])
    whole = placed(plain)
    expected = whole(TOKENS[:1])
    cache = whole.new_cache(4, 150)
    ends = [1, 2, 9, 64, 65, 130, 150]
    parts = [
        whole(TOKENS[:1, start:stop], [cache])
        for start, stop in zip([0, *ends], ends, strict=False)
    ]
    assert torch.equal(torch.cat(parts, 1), expected)
    states: Tensor = TOKENS[:1]
    for held in (range(1), range(1, 3), range(3, 4)):
        part = Decoder(plain.config, held).requires_grad_(requires_grad=False)
        if part.embedding is not None and plain.embedding is not None:
            part.embedding.weight.copy_(plain.embedding.weight)
        if part.head is not None and plain.head is not None:
            part.head.weight = torch.nn.Parameter(plain.head.weight, requires_grad=False)
            part.norm = copy.deepcopy(plain.norm)
        for mine, theirs in zip(part.layers, plain.layers[held.start : held.stop], strict=True):
            mine.load_state_dict(theirs.state_dict())
        states = placed(part)(states)
    assert torch.equal(states, expected)


@pytest.mark.parametrize("form", [Format.FLOAT32, Format.BFLOAT16, Format.INT4])
def test_tokens_do_not_depend_on_who_else_is_served(form: Format) -> None:
    engine = Engine(placed(plain_decoder(window=40, layer_kinds=MIXED), form), 6)
    assert engine.where == DEVICE
    assert engine.batches
    assert engine.seamless
    assert engine.replays
    assert not engine.compiled
    requests = [
        ([7 * i + j for j in range(1 + 13 * i)], GenerationRequest("", temperature=1.0, seed=i))
        for i in range(5)
    ]
    alone = []
    for prompt, request in requests:
        session = engine.session(prompt, len(prompt) + 8, request)
        for start in range(len(prompt)):
            engine.prefill(session, start, start + 1)
        while len(session.generated) < 8:
            engine.decode([session])
        alone.append(session.generated)
    sessions: list[Session] = []
    for prompt, request in requests:
        sessions.append(engine.session(prompt, len(prompt) + 8, request))
        parts = [(sessions[-1], 0, len(prompt))]
        if len(sessions) == 2:
            # Another one begins with what the first has computed.
            again = engine.session([*prompt, 5], len(prompt) + 9, request)
            again.prefix = sessions[-1].cache, 0
            parts.append((again, 0, len(prompt) + 1))
        assert isinstance(engine.prefill_together(parts)[0], int)
        engine.decode(sessions)
    while any(len(session.generated) < 8 for session in sessions):
        engine.decode([session for session in sessions if len(session.generated) < 8])
    assert [session.generated for session in sessions] == alone


def test_a_prefix_is_taken_over_to_the_bit() -> None:
    engine = Engine(placed(plain_decoder()), 2)
    request = GenerationRequest("", temperature=0.0)
    prompt = TOKENS[0].tolist()
    first = engine.session(prompt, 160, request)
    engine.prefill(first, 0, 150)
    second, third = (engine.session([*prompt[:100], 3, 4], 110, request) for _ in range(2))
    second.prefix = first.cache, 100
    engine.prefill(second, 100, 102)
    engine.prefill(third, 0, 102)
    assert second.generated == third.generated
    assert torch.equal(second.cache.contents(), third.cache.contents())


@torch.inference_mode()
def test_what_one_session_computes_wrongly_stays_in_it() -> None:
    decoder = placed(plain_decoder())
    engine = Engine(decoder, 3)
    good, bad = (engine.shard(range(1, 3), 40) for _ in range(2))
    inputs = torch.randn(1, 9, 64, generator=torch.Generator().manual_seed(1))
    broken = inputs.clone()
    broken[:, 4] = torch.nan
    alone = engine.extend(good, inputs)
    assert isinstance(engine.extend(bad, broken), NonFiniteStates)
    assert bad.cache.length == 0
    again = engine.extend(bad, inputs[:, :2])
    assert isinstance(alone, Tensor)
    assert isinstance(again, Tensor)
    # Positions after these have NaN, which nobody may look at.
    assert torch.equal(again, alone[:, :2])
    fresh = engine.shard(range(1, 3), 40)
    outcomes = engine.step([fresh, bad], [inputs[:, :1], broken[:, 4:5]])
    assert isinstance(outcomes[0], Tensor)
    assert torch.equal(outcomes[0], alone[:, :1])
    assert isinstance(outcomes[1], NonFiniteStates)


@torch.inference_mode()
def test_a_cache_that_is_full_says_so() -> None:
    decoder = placed(plain_decoder())
    cache = decoder.new_cache(4, 64)
    with pytest.raises(CacheFull, match="65 positions, and room for 64"):
        decoder(TOKENS[:1, :65], [cache])


def test_attention_computes_pairs_of_one_shape_only() -> None:
    config = plain_decoder().config
    attention = PagedAttention(config)
    decoder = placed(plain_decoder())
    caches = [decoder.new_cache(4, 200) for _ in range(3)]
    assert all(isinstance(cache, PagedCache) for cache in caches)
    seen = set()
    real = attention.of_pairs

    def of_pairs(query: Tensor, both: Tensor, allowed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        seen.add((query.shape, both.shape, allowed.shape))
        return real(query, both, allowed)

    attention.of_pairs = of_pairs  # type: ignore[method-assign]
    attention.sizes = [8]
    for lengths, counts in (((0, 0, 0), (1, 5, 150)), ((1, 100, 150), (1, 1, 1))):
        for cache, length in zip(caches, lengths, strict=True):
            cache.length = length
        paged = [cache for cache in caches if isinstance(cache, PagedCache)]
        plan = plan_step(paged, counts, rows=160, base_pairs=8, window=None, device=DEVICE.device)
        query = torch.randn(160, config.num_heads, config.head_dim)
        storage = paged[0].pool.storage[0]
        assert attention(query, storage, plan, windowed=False).shape == (160, 64)
    assert len(seen) == 1


def test_a_device_has_classes_of_its_own() -> None:
    classes = {numeric_class(dtype, DEVICE) for dtype in ("float32", "bfloat16")}
    assert len(classes) == 2
    for text in classes:
        assert text.startswith("cpu simulated/")
        assert "/torch-" in text
    assert not classes & {numeric_class("float32"), numeric_class("bfloat16")}
