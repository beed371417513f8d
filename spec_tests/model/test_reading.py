"""Any fault of a model directory is reported in one clear line, without a traceback."""

import contextlib
import json
import math
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

import meshnode.model.weights
from meshnode.domain.errors import StartupError
from meshnode.model.config import DecoderConfig
from meshnode.model.documents import ModelUnreadable
from meshnode.model.families import FAMILIES
from meshnode.model.loading import load_model
from meshnode.model.manifest import parts_of
from meshnode.model.side_by_side import side_by_side
from meshnode.model.weights import SafetensorsCheckpoint
from spec_tests.model.small_models import edit_json, make_model, small_config

LAYER_0 = "model.layers.0.mlp.down_proj.weight"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "sound", attention_bias=True)


def config(**changes: object) -> Callable[[Path], None]:
    return lambda directory: edit_json(directory / "config.json", **changes)


def weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def edit(directory: Path) -> None:
        tensors = load_file(directory / "model.safetensors")
        change(tensors)
        save_file(tensors, directory / "model.safetensors")

    return edit


def truncate(name: str, size: int) -> Callable[[Path], None]:
    def edit(directory: Path) -> None:
        data = (directory / name).read_bytes()
        (directory / name).write_bytes(data[:size])

    return edit


def write(name: str, data: bytes) -> Callable[[Path], None]:
    def edit(directory: Path) -> None:
        (directory / name).write_bytes(data)

    return edit


def remove(name: str) -> Callable[[Path], None]:
    return lambda directory: (directory / name).unlink()


def index(weight_map: object) -> Callable[[Path], None]:
    def edit(directory: Path) -> None:
        (directory / "model.safetensors").rename(directory / "other.safetensors")
        document = json.dumps({"weight_map": weight_map})
        (directory / "model.safetensors.index.json").write_text(document)

    return edit


def pickled(directory: Path) -> None:
    (directory / "model.safetensors").rename(directory / "pytorch_model.bin")


def folder_instead(directory: Path) -> None:
    (directory / "model.safetensors").unlink()
    (directory / "model.safetensors").mkdir()


BROKEN: dict[str, tuple[Callable[[Path], None], str]] = {
    "no directory": (shutil.rmtree, "no such directory"),
    "no config": (remove("config.json"), "config.json: no such file"),
    "config not JSON": (write("config.json", b"{"), "config.json: not valid JSON"),
    "config not UTF-8": (write("config.json", b"\xff\xfe{}"), "config.json: not valid JSON"),
    "config nested too deeply": (write("config.json", b"[" * 10**5), "not valid JSON"),
    "config a list": (write("config.json", b"[]"), "not a JSON object"),
    "no architecture": (config(architectures=...), "architectures"),
    "unknown architecture": (config(architectures=["GPT2LMHeadModel"]), "'GPT2LMHeadModel'"),
    "quantised": (config(quantization_config={"bits": 4}), "quantised"),
    "sliding window": (config(use_sliding_window=True), "sliding window"),
    "sliding layers": (config(layer_types=["sliding_attention"] * 4), "sliding window"),
    "other activation": (config(hidden_act="gelu"), "'gelu'"),
    "other rope": (config(rope_scaling={"rope_type": "spiral", "factor": 2.0}), "'spiral'"),
    "longrope without factors": (
        config(rope_scaling={"rope_type": "longrope", "factor": 2.0}),
        "short_factor must be a list of 8 numbers",
    ),
    "rope without factor": (config(rope_scaling={"rope_type": "linear"}), "factor is missing"),
    "rope not an object": (config(rope_scaling=[1]), "rope_scaling must be an object"),
    "rope by layer": (config(rope_parameters={"full_attention": {}}), "several rotations"),
    "partial rotary": (config(partial_rotary_factor=0.5), "partial rotation"),
    "missing size": (config(hidden_size=...), "hidden_size is missing"),
    "size as text": (config(hidden_size="64"), "hidden_size must be an integer"),
    "size as bool": (config(hidden_size=True), "hidden_size must be an integer"),
    "no heads": (config(num_attention_heads=0), "num_heads must be positive"),
    "negative layers": (config(num_hidden_layers=-1), "num_layers must be positive"),
    "a billion layers": (config(num_hidden_layers=10**9), "num_layers is 1000000000, more than"),
    "odd head": (config(head_dim=15), "head_dim must be even"),
    "uneven groups": (config(num_key_value_heads=3), "key-value heads"),
    "eps as text": (config(rms_norm_eps="1e-6"), "rms_norm_eps must be a number"),
    "infinite theta": (config(rope_theta=float("inf")), "rope_theta must be a number"),
    "eos as text": (config(eos_token_id="</s>"), "eos_token_id"),
    "bad generation config": (write("generation_config.json", b"nope"), "generation_config.json"),
    "no tokenizer": (remove("tokenizer.json"), "tokenizer.json: no such file"),
    "tokenizer not JSON": (write("tokenizer.json", b"?"), "tokenizer.json: not valid JSON"),
    "tokenizer empty": (write("tokenizer.json", b"{}"), "tokenizer.json"),
    "tokenizer too large": (config(vocab_size=100), "the tokenizer has"),
    "no weights": (remove("model.safetensors"), "model.safetensors: no such file"),
    "pickled weights": (pickled, "pickled weights are never read"),
    "weights a folder": (folder_instead, "model.safetensors"),
    "weights empty": (write("model.safetensors", b""), "not a whole safetensors file"),
    "weights truncated": (truncate("model.safetensors", 100_000), "not a whole safetensors file"),
    "header truncated": (truncate("model.safetensors", 20), "not a whole safetensors file"),
    "header huge": (
        write("model.safetensors", struct.pack("<Q", 1 << 60) + b"{}"),
        "not a whole safetensors file",
    ),
    "header garbage": (
        write("model.safetensors", struct.pack("<Q", 4) + b"nope"),
        "not a whole safetensors file",
    ),
    "tensor missing": (weights(lambda t: t.pop(LAYER_0)), f"{LAYER_0} is missing"),
    "bias missing": (
        weights(lambda t: t.pop("model.layers.3.self_attn.k_proj.bias")),
        "model.layers.3.self_attn.k_proj.bias is missing",
    ),
    "head missing": (weights(lambda t: t.pop("lm_head.weight")), "lm_head.weight is missing"),
    "tensor too small": (
        weights(lambda t: t.update({LAYER_0: t[LAYER_0][:-1].clone()})),
        "has shape [63, 128], the configuration says [64, 128]",
    ),
    "tensor transposed": (
        weights(lambda t: t.update({LAYER_0: t[LAYER_0].t().contiguous()})),
        "has shape [128, 64]",
    ),
    "tensor of integers": (
        weights(lambda t: t.update({LAYER_0: t[LAYER_0].to(torch.int8)})),
        "unsupported type int8",
    ),
    "index without map": (index(None), "weight_map is missing"),
    "index outside": (index({LAYER_0: "../other.safetensors"}), "not in a file of this folder"),
    "index of numbers": (index({LAYER_0: 3}), "not in a file of this folder"),
    "index to nowhere": (
        index({"model.layers.0.self_attn.q_proj.weight": "gone.safetensors"}),
        "gone.safetensors: no such file",
    ),
    "index incomplete": (index({}), "is in no file"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_directory_ends_as_one_line(sound: Path, tmp_path: Path, name: str) -> None:
    directory = tmp_path / "model"
    shutil.copytree(sound, directory)
    damage, expected = BROKEN[name]
    damage(directory)
    with pytest.raises(ModelUnreadable) as caught:
        load_model(directory)
    line = str(caught.value)
    assert expected in line
    assert str(directory) in line
    assert "\n" not in line
    assert isinstance(caught.value, StartupError)


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ([], "no layers"),
        ([0, 2], "without gaps"),
        ([2, 1], "ascending"),
        ([3, 4], "layers 0 to 3 only"),
        ([-1, 0], "layers 0 to 3 only"),
    ],
)
def test_layers_that_cannot_be_held(sound: Path, layers: list[int], expected: str) -> None:
    with pytest.raises(ModelUnreadable, match=expected):
        load_model(sound, layers)


def test_a_shard_reads_only_its_own_tensors(sound: Path, tmp_path: Path) -> None:
    """Layers, embedding and head that are not held may be missing from the disk altogether."""
    directory = tmp_path / "model"
    shutil.copytree(sound, directory)
    prefix = "model.layers.2."
    weights(lambda t: [t.pop(name) for name in list(t) if not name.startswith(prefix)])(directory)
    model = load_model(directory, [2])
    assert model.card.layers == (2,)
    assert not model.card.complete
    assert model.weight_bytes == sum(model.card.layer_bytes.values())


def test_the_card_tells_the_model(sound: Path) -> None:
    model = load_model(sound)
    tensors = load_file(sound / "model.safetensors").values()
    assert model.card.parameters == sum(tensor.numel() for tensor in tensors)
    assert model.weight_bytes == pytest.approx(4 * model.card.parameters, rel=1e-3)
    assert model.card.complete
    assert model.card.name == "sound"
    assert model.eos_token_ids == {0}


def test_generation_config_adds_end_of_text_tokens(sound: Path, tmp_path: Path) -> None:
    directory = tmp_path / "model"
    shutil.copytree(sound, directory)
    (directory / "generation_config.json").write_text('{"eos_token_id": [5, 7]}')
    assert load_model(directory).eos_token_ids == {0, 5, 7}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
KEYS = [
    *("hidden_size", "intermediate_size", "vocab_size", "num_hidden_layers", "head_dim"),
    *("num_attention_heads", "num_key_value_heads", "max_position_embeddings", "rms_norm_eps"),
    *("rope_theta", "rope_scaling", "rope_parameters", "tie_word_embeddings", "architectures"),
    *("eos_token_id", "bos_token_id", "layer_types", "use_sliding_window", "hidden_act"),
    *("attention_bias", "initializer_range", "partial_rotary_factor", "quantization_config"),
    *("sliding_window", "sliding_window_pattern", "max_window_layers", "no_rope_layers"),
    *("no_rope_layer_interval", "query_pre_attn_scalar", "final_logit_softcapping"),
    *("num_experts", "num_local_experts", "num_experts_per_tok", "moe_intermediate_size"),
    *("mlp_only_layers", "decoder_sparse_step", "rope_local_base_freq"),
]


@given(st.sampled_from(sorted(FAMILIES)), st.dictionaries(st.sampled_from(KEYS), JSON, max_size=4))
def test_any_configuration_is_read_or_refused(family: str, changes: dict[str, object]) -> None:
    with contextlib.suppress(ModelUnreadable):
        document = small_config().document() | {"architectures": [family], "head_dim": 16}
        document |= {"moe_intermediate_size": 32, "num_experts": 16, "num_local_experts": 16}
        read = DecoderConfig.from_document(document | changes)
        assert read.parameters > 0
        # An accepted configuration can be used for computing and written back.
        assert len(read.rope.frequencies(read.rotary_dim)) == read.rotary_dim // 2
        assert read.rope.magnitude() > 0
        assert DecoderConfig.from_document(read.document()).document() == read.document()


ROPE_KEYS = [
    *("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    *("beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim", "truncate"),
]
NUMBERS = st.integers(-5, 200) | st.floats(-2, 100) | st.sampled_from([0, 1, 1e299, 10**30])


@given(
    st.sampled_from(["linear", "dynamic", "llama3", "yarn"]),
    st.dictionaries(st.sampled_from(ROPE_KEYS), NUMBERS | st.booleans(), max_size=8),
)
def test_any_rope_scaling_is_computed_or_refused(kind: str, values: dict[str, object]) -> None:
    scaling = {"factor": 2.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0} | values
    document = small_config().document() | {"rope_scaling": scaling | {"rope_type": kind}}
    with contextlib.suppress(ModelUnreadable):
        rope = DecoderConfig.from_document(document).rope
        assert torch.isfinite(rope.frequencies(16)).all()
        assert math.isfinite(rope.magnitude())


def test_threads_may_read_while_others_give_pages_back(
    sound: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Every read closes the files, between which others have opened them and look into them.
    monkeypatch.setattr(meshnode.model.weights, "MAPPED_BYTES", 0)
    parts = list(parts_of(load_model(sound).config).values()) * 40
    stored = load_file(sound / "model.safetensors")
    with SafetensorsCheckpoint(sound) as checkpoint:
        found = side_by_side(lambda part: checkpoint.parameter([part]), parts)
    for part, tensor in zip(parts, found, strict=True):
        assert torch.equal(tensor, stored[part.name])
