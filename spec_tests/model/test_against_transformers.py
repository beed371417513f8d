"""Logits equal those of ``transformers``, with and without cache and shards."""

import itertools
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from meshnode.model.config import DecoderConfig
from meshnode.model.decoder import Decoder
from meshnode.model.kv import KVCache
from meshnode.model.loading import load_model
from meshnode.model.naming import decoder_parameters
from spec_tests.model.small_models import (
    VOCAB_SIZE,
    make_model,
    parametrize_ranges,
    random_tokens,
    write_tokenizer,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

CLOSE = 1e-4
SEQ = 40

SHAPE: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 144,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "initializer_range": 0.15,
}
ROPE: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default", "rope_theta": 5e5},
    "linear": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0},
    "dynamic": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0},
    "llama3": {
        "rope_type": "llama3",
        "rope_theta": 1e3,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
    "yarn": {
        "rope_type": "yarn",
        "rope_theta": 1e4,
        "factor": 4.0,
        "original_max_position_embeddings": 16,
    },
    "yarn-explicit": {
        "rope_type": "yarn",
        "rope_theta": 1e4,
        "factor": 2.0,
        "beta_fast": 8.0,
        "beta_slow": 2.0,
        "mscale": 0.7,
        "mscale_all_dim": 0.4,
        "truncate": False,
        "original_max_position_embeddings": 32,
    },
}


def of(name: str, **changes: Any) -> Any:
    """A model of ``transformers``: ``name`` as in LlamaConfig, with random weights."""
    config = getattr(transformers, f"{name}Config")(**(SHAPE | changes))
    # The other implementation that there is ignores the caps of attention.
    config._attn_implementation = "eager"
    return getattr(transformers, f"{name.removesuffix('Text')}ForCausalLM")(config)


llama = partial(of, "Llama")
qwen2 = partial(of, "Qwen2")

GEMMA: dict[str, Any] = {"num_key_value_heads": 2, "head_dim": 32, "pad_token_id": 0}
QWEN: dict[str, Any] = {"num_key_value_heads": 2, "head_dim": 16}
PHI: dict[str, Any] = {"num_key_value_heads": 2, "pad_token_id": 0, "rms_norm_eps": 1e-5}
EXPERTS: dict[str, Any] = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 48}
FACTORS = [1.0, 1.1, 1.3, 1.6, 2.0, 2.5, 3.0, 4.0]
GEMMA3_ROPE = {
    "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
}
TYPES = ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]

MODELS: dict[str, Callable[..., Any]] = {
    "llama": llama,
    "llama-gqa": partial(llama, num_key_value_heads=2),
    "llama-mqa-tied": partial(llama, num_key_value_heads=1, tie_word_embeddings=True),
    "llama-wide-heads": partial(llama, num_key_value_heads=2, head_dim=32),
    "llama-biases": partial(llama, attention_bias=True, mlp_bias=True),
    "qwen2": partial(qwen2, num_key_value_heads=2),
    "qwen2-tied": partial(qwen2, num_key_value_heads=4, tie_word_embeddings=True),
    "qwen2-window": partial(
        qwen2,
        num_key_value_heads=2,
        use_sliding_window=True,
        sliding_window=9,
        max_window_layers=2,
    ),
    "qwen2-layer-types": partial(
        qwen2,
        num_key_value_heads=2,
        use_sliding_window=True,
        sliding_window=9,
        layer_types=TYPES,
    ),
    **{f"llama-rope-{name}": partial(llama, rope_parameters=rope) for name, rope in ROPE.items()},
    "mistral": partial(of, "Mistral", num_key_value_heads=2, sliding_window=None),
    "mistral-window": partial(of, "Mistral", num_key_value_heads=2, sliding_window=11),
    "qwen3": partial(of, "Qwen3", **QWEN, tie_word_embeddings=True),
    "qwen3-all": partial(
        of,
        "Qwen3",
        **QWEN,
        attention_bias=True,
        use_sliding_window=True,
        sliding_window=9,
        max_window_layers=1,
        rope_parameters=ROPE["yarn"],
    ),
    "qwen3-moe": partial(of, "Qwen3Moe", **QWEN, **EXPERTS),
    "qwen3-moe-all": partial(
        of,
        "Qwen3Moe",
        **QWEN,
        **EXPERTS,
        norm_topk_prob=True,
        decoder_sparse_step=2,
        mlp_only_layers=[3],
        attention_bias=True,
        use_sliding_window=True,
        sliding_window=9,
    ),
    "mixtral": partial(of, "Mixtral", num_key_value_heads=2, num_local_experts=4),
    "mixtral-window": partial(
        of, "Mixtral", num_key_value_heads=2, num_local_experts=4, sliding_window=9
    ),
    "gemma2": partial(of, "Gemma2", **GEMMA, query_pre_attn_scalar=20, sliding_window=9),
    "gemma2-all": partial(
        of,
        "Gemma2",
        **GEMMA,
        attention_bias=True,
        layer_types=TYPES,
        sliding_window=7,
        attn_logit_softcapping=2.0,
        final_logit_softcapping=1.0,
        tie_word_embeddings=False,
    ),
    "gemma2-without-caps": partial(
        of, "Gemma2", **GEMMA, attn_logit_softcapping=None, final_logit_softcapping=None
    ),
    "gemma3": partial(of, "Gemma3Text", **GEMMA, sliding_window=9, sliding_window_pattern=2),
    "gemma3-all": partial(
        of,
        "Gemma3Text",
        **GEMMA,
        attention_bias=True,
        layer_types=TYPES,
        sliding_window=7,
        query_pre_attn_scalar=11,
        final_logit_softcapping=1.0,
        rope_parameters=GEMMA3_ROPE,
    ),
    "phi3": partial(of, "Phi3", **PHI),
    "phi3-window": partial(of, "Phi3", **PHI, sliding_window=9, tie_word_embeddings=True),
    "phi3-longrope": partial(
        of,
        "Phi3",
        **PHI,
        original_max_position_embeddings=48,
        rope_parameters={
            "rope_type": "longrope",
            "rope_theta": 1e4,
            "short_factor": FACTORS,
            "long_factor": FACTORS,
        },
    ),
    "phi4-mini": partial(
        of,
        "Phi3",
        **PHI,
        original_max_position_embeddings=48,
        rope_parameters={
            "rope_type": "longrope",
            "rope_theta": 1e4,
            "partial_rotary_factor": 0.75,
            "short_factor": FACTORS[:6],
            "long_factor": FACTORS[2:],
        },
    ),
    "olmo2": partial(of, "Olmo2", num_key_value_heads=2, pad_token_id=0),
    "olmo2-all": partial(
        of, "Olmo2", pad_token_id=0, attention_bias=True, rope_parameters=ROPE["yarn"]
    ),
    "smollm3": partial(of, "SmolLM3", num_key_value_heads=2, pad_token_id=0),
    "smollm3-all": partial(
        of,
        "SmolLM3",
        num_key_value_heads=2,
        pad_token_id=0,
        no_rope_layers=[1, 0, 0, 1],
        attention_bias=True,
        mlp_bias=True,
        use_sliding_window=True,
        sliding_window=9,
        tie_word_embeddings=False,
    ),
}


@pytest.fixture(params=MODELS, scope="module")
def reference(request: pytest.FixtureRequest) -> Any:
    torch.manual_seed(7)
    model = MODELS[request.param]().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(0.0, 0.2)
            elif parameter.dim() == 1:
                # Norms of a new model are all alike, so that a wrong one would not show.
                parameter.add_(torch.empty_like(parameter).normal_(0.0, 0.2))
    return model


@pytest.fixture(scope="module")
def directory(reference: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("reference")
    reference.save_pretrained(path)
    write_tokenizer(path)
    return path


@pytest.fixture(scope="module")
def tokens() -> torch.Tensor:
    return random_tokens(2, SEQ)


@pytest.fixture(scope="module")
def expected(reference: Any, tokens: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        logits: torch.Tensor = reference(tokens).logits
    return logits


def assert_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    assert actual.shape == expected.shape
    assert (actual - expected).abs().max().item() < CLOSE


def new_caches(decoder: Decoder, rows: int) -> list[KVCache]:
    return [KVCache.allocate(decoder.config, len(decoder.held), SEQ) for _ in range(rows)]


@torch.inference_mode()
@pytest.mark.parametrize("trainable", [False, True], ids=["packed", "trainable"])
def test_the_whole_sequence_at_once(
    directory: Path, tokens: torch.Tensor, expected: torch.Tensor, trainable: bool
) -> None:
    decoder = load_model(directory, trainable=trainable).decoder
    assert_close(decoder(tokens), expected)


@torch.inference_mode()
def test_through_the_cache_in_chunks_then_token_by_token(
    directory: Path, tokens: torch.Tensor, expected: torch.Tensor
) -> None:
    decoder = load_model(directory).decoder
    caches = new_caches(decoder, 2)
    bounds = [0, 7, 20, *range(21, SEQ + 1)]
    logits = [decoder(tokens[:, start:stop], caches) for start, stop in itertools.pairwise(bounds)]
    assert_close(torch.cat(logits, dim=1), expected)
    assert all(cache.length == SEQ for cache in caches)


@torch.inference_mode()
@pytest.mark.parametrize("cuts", [[1, 3]], ids=str)
def test_split_over_shards_with_and_without_cache(
    directory: Path, tokens: torch.Tensor, expected: torch.Tensor, cuts: list[int]
) -> None:
    whole = load_model(directory).decoder(tokens)
    shards = [load_model(directory, held).decoder for held in parametrize_ranges(4, cuts)]
    at_once = tokens
    for shard in shards:
        at_once = shard(at_once)
    # The bits must be equal: the placement of layers must not change the output at all.
    assert torch.equal(at_once, whole)
    caches = [new_caches(shard, 2) for shard in shards]
    logits = []
    for position in range(SEQ):
        hidden = tokens[:, position : position + 1]
        for shard, own in zip(shards, caches, strict=True):
            hidden = shard(hidden, own)
        logits.append(hidden)
    assert_close(torch.cat(logits, dim=1), expected)


@torch.inference_mode()
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_on_disk_is_float32_in_memory(tmp_path: Path, dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    small: Any = llama(num_key_value_heads=2)
    small.to(dtype).save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    reference: Any = transformers.LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    reference.eval()
    tokens = random_tokens(1, 16)
    decoder = load_model(tmp_path, trainable=True).decoder
    assert all(parameter.dtype is torch.float32 for parameter in decoder.parameters())
    assert_close(decoder(tokens), reference(tokens).logits)


@torch.inference_mode()
def test_several_files_with_an_index(tmp_path: Path) -> None:
    torch.manual_seed(4)
    reference: Any = llama()
    reference.eval()
    reference.save_pretrained(tmp_path, max_shard_size="100KB")
    write_tokenizer(tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) > 3
    tokens = random_tokens(1, 16)
    assert_close(load_model(tmp_path).decoder(tokens), reference(tokens).logits)


def test_older_rope_keys_mean_the_same(directory: Path) -> None:
    """Directories written before rope_parameters existed have rope_theta and rope_scaling."""
    config = DecoderConfig.read(directory / "config.json")
    again = DecoderConfig.from_document(config.document()).rope
    dim = config.rotary_dim
    assert again.frequencies(dim).equal(config.rope.frequencies(dim))
    assert again.magnitude() == pytest.approx(config.rope.magnitude())


@torch.inference_mode()
def test_transformers_reads_what_we_write(tmp_path: Path) -> None:
    written: dict[str, dict[str, Any]] = {
        "plain": {},
        "tied": {"tied_head": True},
        "biases": {"attention_bias": True, "mlp_bias": True},
        "qwen2": {"architecture": "Qwen2ForCausalLM"},
    }
    for name, changes in written.items():
        directory = make_model(tmp_path / name, **changes)
        theirs: Any = transformers.AutoModelForCausalLM.from_pretrained(directory)
        theirs.eval()
        tokens = random_tokens(1, 16)
        assert_close(load_model(directory).decoder(tokens), theirs(tokens).logits)


def gradients_by_checkpoint_name(reference: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The library keeps experts as stacks in memory, but not in checkpoints."""
    mixtral = reference.config.model_type == "mixtral"
    for name, parameter in reference.named_parameters():
        prefix, stacked, matrix = name.partition(".mlp.experts.")
        if stacked:
            for number, gradient in enumerate(parameter.grad):
                for part, theirs in expert_parts(matrix, gradient, mixtral=mixtral):
                    block = "block_sparse_moe" if mixtral else "mlp"
                    yield f"{prefix}.{block}.experts.{number}.{part}.weight", theirs
        elif mixtral:
            yield name.replace(".mlp.gate", ".block_sparse_moe.gate"), parameter.grad
        else:
            yield name, parameter.grad


def expert_parts(
    matrix: str, gradient: torch.Tensor, *, mixtral: bool
) -> list[tuple[str, torch.Tensor]]:
    gate, up, down = ("w1", "w3", "w2") if mixtral else ("gate_proj", "up_proj", "down_proj")
    if matrix == "down_proj":
        return [(down, gradient)]
    return list(zip((gate, up), gradient.chunk(2), strict=True))


def test_gradients_are_theirs_too(directory: Path, reference: Any, tokens: torch.Tensor) -> None:
    """The gradients of the next-token loss agree for every weight."""
    ours = load_model(directory, trainable=True).decoder
    functional = torch.nn.functional
    logits = ours(tokens)[:, :-1].flatten(0, 1)
    torch.autograd.backward([functional.cross_entropy(logits, tokens[:, 1:].flatten())])
    reference.zero_grad()
    reference(tokens, labels=tokens).loss.backward()
    theirs = dict(gradients_by_checkpoint_name(reference))
    checked = 0
    for name, parameter in ours.named_parameters():
        assert parameter.grad is not None, name
        parts = dict(decoder_parameters(ours.config, ours.held))[name]
        expected = torch.cat([theirs[part.name] for part in parts])
        assert (parameter.grad - expected).abs().max() < 1e-5, name
        checked += len(parts)
    assert checked == len(theirs)
