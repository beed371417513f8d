"""Logits equal those of ``transformers``, with and without cache and shards."""

import itertools
import warnings
from collections.abc import Callable
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


def llama(**changes: Any) -> transformers.LlamaForCausalLM:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**(SHAPE | changes)))


def qwen2(**changes: Any) -> transformers.Qwen2ForCausalLM:
    return transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**(SHAPE | changes)))


MODELS: dict[str, Callable[..., Any]] = {
    "llama": lambda: llama(),
    "llama-gqa": lambda: llama(num_key_value_heads=2),
    "llama-mqa-tied": lambda: llama(num_key_value_heads=1, tie_word_embeddings=True),
    "llama-wide-heads": lambda: llama(num_key_value_heads=2, head_dim=32),
    "llama-biases": lambda: llama(attention_bias=True, mlp_bias=True),
    "qwen2": lambda: qwen2(num_key_value_heads=2),
    "qwen2-tied": lambda: qwen2(num_key_value_heads=4, tie_word_embeddings=True),
    **{f"llama-rope-{name}": partial(llama, rope_parameters=rope) for name, rope in ROPE.items()},
}


@pytest.fixture(params=MODELS, scope="module")
def reference(request: pytest.FixtureRequest) -> Any:
    torch.manual_seed(7)
    model = MODELS[request.param]().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(0.0, 0.2)
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
@pytest.mark.parametrize("cuts", [[2], [1, 3], [1, 2, 3]], ids=str)
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
    assert (
        DecoderConfig.from_document(config.document())
        .rope.frequencies(16)
        .equal(config.rope.frequencies(16))
    )
    assert DecoderConfig.from_document(config.document()).rope.magnitude() == pytest.approx(
        config.rope.magnitude()
    )


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


def test_gradients_are_theirs_too(directory: Path, reference: Any, tokens: torch.Tensor) -> None:
    """The gradients of the next-token loss agree for every weight."""
    ours = load_model(directory, trainable=True).decoder
    functional = torch.nn.functional
    logits = ours(tokens)[:, :-1].flatten(0, 1)
    torch.autograd.backward([functional.cross_entropy(logits, tokens[:, 1:].flatten())])
    reference.zero_grad()
    reference(tokens, labels=tokens).loss.backward()
    theirs = dict(reference.named_parameters())
    checked = 0
    for name, parameter in ours.named_parameters():
        assert parameter.grad is not None, name
        parts = dict(decoder_parameters(ours.config, ours.held))[name]
        expected = torch.cat([theirs[part.name].grad for part in parts])
        assert (parameter.grad - expected).abs().max() < 1e-5, name
        checked += len(parts)
    assert checked == len(theirs)
