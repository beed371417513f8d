"""A GGUF file is the Hugging Face directory that it was made from."""

import contextlib
import struct
import warnings
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from meshnode.model.documents import ModelUnreadable
from meshnode.model.files import locate_model, open_files
from meshnode.model.gguf_file import TYPES, GgufFile
from meshnode.model.gguf_model import GgufModel
from meshnode.model.gguf_tokenizer import GgufTokenizer
from meshnode.model.loading import load_model
from meshnode.model.manifest import manifest_of, parts_of
from meshnode.model.tokenizer import Tokenizer
from spec_tests.model.gguf_files import write_gguf
from spec_tests.model.small_models import TEXT, make_model, random_tokens, write_tokenizer
from spec_tests.model.test_against_transformers import MODELS, of

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers  # noqa: F401 - imported by the models too, without its warnings

SAME = [
    *("llama-gqa", "llama-mqa-tied", "llama-biases", "llama-rope-linear", "llama-rope-yarn"),
    *("mistral", "mixtral", "qwen2", "qwen2-tied", "qwen3", "phi3", "phi4-mini", "olmo2"),
    *("smollm3",),
]
OTHERS = {
    # What llama.cpp takes for granted of the architecture is what the models have.
    "qwen3-moe": partial(MODELS["qwen3-moe"], norm_topk_prob=True),
    "gemma2": partial(MODELS["gemma2"], query_pre_attn_scalar=32),
    "gemma3": partial(
        of,
        "Gemma3Text",
        num_key_value_heads=2,
        head_dim=32,
        pad_token_id=0,
        sliding_window=9,
        query_pre_attn_scalar=32,
    ),
}


def converted(tmp_path: Path, model: Any) -> tuple[Path, Path]:
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.empty_like(parameter).normal_(0.0, 0.2))
    model.save_pretrained(tmp_path / "hf")
    write_tokenizer(tmp_path / "hf")
    return tmp_path / "hf", write_gguf(tmp_path / "hf", tmp_path / "model.gguf")


@torch.inference_mode()
@pytest.mark.parametrize("name", [*SAME, *OTHERS])
def test_each_architecture_computes_as_its_directory(tmp_path: Path, name: str) -> None:
    torch.manual_seed(5)
    directory, path = converted(tmp_path, (OTHERS.get(name) or MODELS[name])())
    tokens = random_tokens(1, 24)
    expected = load_model(directory, trainable=True).decoder(tokens)
    loaded = load_model(path, trainable=True)
    # Equal up to the rounding of theta to float32, and of shifted norms.
    assert (loaded.decoder(tokens) - expected).abs().max() < 1e-4
    assert loaded.card.parameters == load_model(directory).card.parameters
    theirs = open_files(directory).tokenizer()
    assert loaded.tokenizer.encode(TEXT) == theirs.encode(TEXT)


def test_only_the_layers_that_are_held_are_read(tmp_path: Path) -> None:
    path = write_gguf(make_model(tmp_path / "m"), tmp_path / "model.gguf")
    middle = load_model(path, [1, 2])
    assert middle.card.layers == (1, 2)
    assert middle.decoder.embedding is None


@torch.inference_mode()
def test_llama_3s_rotation_is_found_from_its_results(tmp_path: Path) -> None:
    rope = {
        "rope_type": "llama3",
        "rope_theta": 5e5,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    model = MODELS["llama-gqa"](rope_parameters=rope, max_position_embeddings=16384)
    model.save_pretrained(tmp_path / "hf")
    write_tokenizer(tmp_path / "hf")
    config = open_files(tmp_path / "hf").config()
    plain = 1.0 / 5e5 ** (torch.arange(0, 16, 2) / 16)
    divisors = (plain / config.rope.frequencies(16)).numpy()
    path = write_gguf(tmp_path / "hf", tmp_path / "m.gguf", tensors={"rope_freqs.weight": divisors})
    assert torch.allclose(
        open_files(path).config().rope.frequencies(16), config.rope.frequencies(16)
    )
    wrong = {"rope_freqs.weight": divisors * np.linspace(1, 2, 8, dtype=np.float32)}
    path = write_gguf(tmp_path / "hf", tmp_path / "w.gguf", tensors=wrong)
    with pytest.raises(ModelUnreadable, match="follow no known rule"):
        open_files(path).config()


def test_quantised_matrices_are_those_of_the_file(tmp_path: Path) -> None:
    directory = make_model(tmp_path / "m", head_dim=32)
    path = write_gguf(directory, tmp_path / "model.gguf", "Q8_0")
    files = open_files(path)
    part = parts_of(files.config())["model.layers.1.mlp.down_proj.weight"]
    with files.checkpoint() as checkpoint, open_files(directory).checkpoint() as exact:
        ours, theirs = checkpoint.parameter([part]), exact.parameter([part])
        assert 0 < (ours - theirs).abs().max() <= theirs.abs().max() / 254 * 1.01
        assert torch.equal(checkpoint.rows(part, 3, 7), ours[3:7])
    query = parts_of(files.config())["model.layers.1.self_attn.q_proj.weight"]
    with files.checkpoint() as checkpoint:
        assert torch.equal(checkpoint.rows(query, 5, 9), checkpoint.parameter([query])[5:9])


def test_small_files_hold_the_chat_format_and_every_end(tmp_path: Path) -> None:
    directory = make_model(tmp_path / "m")
    path = write_gguf(
        directory,
        tmp_path / "model.gguf",
        tokenizer__chat_template="{{ messages }}",
        tokenizer__ggml__eot_token_id=7,
    )
    loaded = load_model(path)
    assert loaded.chat_format.template == "{{ messages }}"
    assert loaded.chat_format.special_tokens == {"eos_token": "<|end|>"}
    assert loaded.eos_token_ids == {0, 7}
    assert open_files(path).read("config.json") == open_files(path).read("config.json")


# The types of tensors.


def scales_of_k(data: bytes, index: int) -> tuple[int, int]:
    """Scale and minimum of a group of 32, six bits each."""
    if index < 4:
        return data[index] & 63, data[index + 4] & 63
    low, high = data[index + 4], (data[index - 4], data[index])
    return low & 15 | high[0] >> 6 << 4, low >> 4 | high[1] >> 6 << 4


def half(data: bytes, at: int) -> float:
    return float(struct.unpack_from("<e", data, at)[0])


def block_values(kind: str, data: bytes) -> Iterator[float]:
    """The values of one block, one by one, as llama.cpp's reference functions define them."""
    d = half(data, 208 if kind == "Q6_K" else 0)
    if kind == "Q8_0":
        yield from (d * q for q in struct.unpack_from("<32b", data, 2))
    elif kind in ("Q4_0", "Q4_1", "Q5_0", "Q5_1"):
        has_minimum, has_fifth = kind.endswith("1"), kind.startswith("Q5")
        start = 4 if has_minimum else 2
        fifth = int.from_bytes(data[start : start + 4], "little") if has_fifth else 0
        quants = data[start + 4 * has_fifth :]
        for index in range(32):
            q = quants[index % 16] >> (4 if index >= 16 else 0) & 15 | (fifth >> index & 1) << 4
            yield d * q + half(data, 2) if has_minimum else d * (q - (16 if has_fifth else 8))
    elif kind in ("Q4_K", "Q5_K"):
        quants, highest = data[16 + 32 * (kind == "Q5_K") :], data[16:48]
        for index in range(256):
            group, at = divmod(index, 32)
            q = quants[group // 2 * 32 + at] >> (4 * (group % 2)) & 15
            q |= (highest[at] >> group & 1) << 4 if kind == "Q5_K" else 0
            scale, minimum = scales_of_k(data[4:16], group)
            yield d * scale * q - half(data, 2) * minimum
    else:
        scales = struct.unpack_from("<16b", data, 192)
        for index in range(256):
            part, rest = divmod(index, 128)
            quarter, at = divmod(rest, 32)
            low = data[part * 64 + quarter % 2 * 32 + at] >> (4 * (quarter // 2)) & 15
            high = data[128 + part * 32 + at] >> (2 * quarter) & 3
            yield d * scales[index // 16] * ((low | high << 4) - 32)


@pytest.mark.parametrize("kind", TYPES[3:])
def test_each_type_is_read_as_it_is_defined(tmp_path: Path, kind: str) -> None:
    form = gguf.GGMLQuantizationType[kind]
    elements, size = gguf.GGML_QUANT_SIZES[form]
    random = np.random.default_rng(3)
    rows = random.integers(0, 256, (5, 3 * size), np.uint8)
    for start in range(0, 3 * size, size):
        for at in (208,) if kind == "Q6_K" else (0, 2) if kind[-1] in "1K" else (0,):
            scale = random.normal(0, 0.1, 5).astype(np.float16)
            rows[:, start + at : start + at + 2] = scale[:, None].view(np.uint8)
    path = tmp_path / "one.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("one", rows, raw_dtype=form)
    for write in (writer.write_header_to_file, writer.write_kv_data_to_file):
        write()
    writer.write_tensors_to_file()
    writer.close()
    file = GgufFile(path)
    place = file.tensors["one"]
    assert place.shape == (5, 3 * elements)
    out = np.empty(place.shape, np.float32)
    file.floats(place, 0, 5, out)
    expected = [
        [v for at in range(0, 3 * size, size) for v in block_values(kind, row[at:].tobytes())]
        for row in rows
    ]
    assert np.allclose(out, np.array(expected), rtol=1e-6, atol=1e-6)


# Tokenizers.


def sentence_pieces() -> dict[str, Any]:
    words = [
        "\u2581the",
        "\u2581th",
        "he",
        "th",
        "in",
        "\u2581in",
        "ing",
        "\u2581t",
        "er",
        "\u2581",
    ]
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokens = [*pieces, *words, *"abcdefghijklmnopqrstuvwxyz"]
    scores = [0.0] * len(pieces) + [-float(place) for place in range(len(words) + 26)]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": [2, 3, 3, *[6] * 256, *[1] * (len(tokens) - 259)],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }


def greedy(text: str, metadata: dict[str, Any]) -> list[str]:
    """SentencePiece's rule: always join the neighbours that make the piece of the best score."""
    tokens = metadata["tokenizer.ggml.tokens"]
    best = dict(zip(tokens, metadata["tokenizer.ggml.scores"], strict=True))
    parts = list("\u2581" + text.replace(" ", "\u2581"))
    while True:
        pairs = [(best.get(a + b), i) for i, (a, b) in enumerate(pairwise(parts))]
        known = [(-score, place) for score, place in pairs if score is not None]
        if not known:
            return parts
        place = min(known)[1]
        parts[place : place + 2] = ["".join(parts[place : place + 2])]


@pytest.mark.parametrize("text", ["the thing in there", "in the inner ring", "hither", "zé x"])
def test_sentence_pieces_are_joined_by_score(text: str) -> None:
    metadata = sentence_pieces()
    tokenizer = Tokenizer.of(GgufTokenizer(metadata).document(), "here")
    tokens = metadata["tokenizer.ggml.tokens"]
    expected = [1]
    for part in greedy(text, metadata):
        spelled = [part] if part in tokens else [f"<0x{b:02X}>" for b in part.encode()]
        expected += [tokens.index(one) for one in spelled]
    assert tokenizer.encode(text) == expected
    assert b"".join(map(tokenizer.piece, expected)).decode() == " " + text


@pytest.mark.parametrize(
    "pre", ["gpt-2", "smollm", "llama-bpe", "qwen2", "gpt-4o", "tekken", "default"]
)
def test_every_way_of_cutting_keeps_the_text(tmp_path: Path, pre: str) -> None:
    path = write_gguf(make_model(tmp_path / "m"), tmp_path / "m.gguf", tokenizer__ggml__pre=pre)
    tokenizer = open_files(path).tokenizer()
    text = "It's 12345 words,\n\n  and `code` -- naïve 東京 don't\tSTOP"
    assert b"".join(map(tokenizer.piece, tokenizer.encode(text))).decode() == text


# What cannot be read.


def small(tmp_path: Path, **metadata: Any) -> Path:
    return write_gguf(make_model(tmp_path / "m"), tmp_path / "m.gguf", **metadata)


@pytest.mark.parametrize(
    ("metadata", "line"),
    [
        ({"general__architecture": "rwkv6"}, "architecture 'rwkv6' are not read; these are: llama"),
        ({"tokenizer__ggml__pre": "klingon"}, "pre-tokenizer 'klingon' is not known; these are"),
        ({"tokenizer__ggml__model": "bert"}, "tokenizer is of the kind 'bert'; gpt2 and llama"),
        ({"llama__rope__scaling__type": "spiral"}, "RoPE scaling 'spiral' is not read"),
        ({"llama__block_count": [4, 5]}, "llama.block_count must be one count"),
    ],
)
def test_what_is_not_read_is_named(tmp_path: Path, metadata: dict[str, Any], line: str) -> None:
    path = small(tmp_path, **metadata)
    with pytest.raises(ModelUnreadable, match=line) as caught:
        load_model(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("size", [0, 3, 20, 200, 6000, -1])
def test_a_file_that_was_cut_is_not_read(tmp_path: Path, size: int) -> None:
    path = small(tmp_path)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ModelUnreadable, match=r"not a whole GGUF file|is empty"):
        open_files(path).config()


def test_no_length_in_a_file_is_believed(tmp_path: Path) -> None:
    """Each 8-byte word of the header in turn claims to be huge."""
    path = small(tmp_path)
    sound = path.read_bytes()
    for at in range(8, 2000, 8):
        path.write_bytes(sound[:at] + b"\xff" * 8 + sound[at + 8 :])
        with contextlib.suppress(ModelUnreadable):
            GgufModel(GgufFile(path))


def test_a_tensor_of_another_type_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    form = gguf.GGMLQuantizationType.IQ2_XXS
    writer.add_tensor("one", np.zeros((2, 66), np.uint8), raw_dtype=form)
    for write in (writer.write_header_to_file, writer.write_kv_data_to_file):
        write()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelUnreadable, match="type IQ2_XXS, which is not read; these are: F32"):
        GgufFile(path)


def test_names_and_paths_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelUnreadable, match=r"hf download meta-llama/Llama-3.2-1B --local-dir"):
        open_files(locate_model("meta-llama/Llama-3.2-1B"))
    with pytest.raises(ModelUnreadable, match="no such directory"):
        open_files(locate_model("./models/llama"))
    (tmp_path / "file.bin").write_bytes(b"")
    with pytest.raises(ModelUnreadable, match=r"neither a directory nor a \.gguf file"):
        open_files(locate_model("file.bin"))


def test_a_folder_of_gguf_files(tmp_path: Path) -> None:
    path = small(tmp_path)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.gguf").symlink_to(path)
    assert open_files(folder).name == "a"
    (folder / "b.gguf").symlink_to(path)
    with pytest.raises(ModelUnreadable, match="name one of its files"):
        open_files(folder)


def test_the_manifest_is_that_of_the_values(tmp_path: Path) -> None:
    """A GGUF file in float32 has the weights hash of its directory."""
    directory = make_model(tmp_path / "m")
    files = open_files(write_gguf(directory, tmp_path / "m.gguf"))
    own = manifest_of(files, files.config(), tmp_path / "a.json")
    exact = open_files(directory)
    theirs = manifest_of(exact, exact.config(), tmp_path / "b.json")
    assert own.weights_hash == theirs.weights_hash
    assert own.model_hash != theirs.model_hash
    assert set(own.files) == {
        *("config.json", "tokenizer.json", "generation_config.json", "tokenizer_config.json")
    }
    assert manifest_of(files, files.config(), tmp_path / "a.json") == own
