"""GGUF files for tests: written with the ``gguf`` package, from a Hugging Face directory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.numpy import load_file

ARCHITECTURES = {
    "llama": gguf.MODEL_ARCH.LLAMA,
    "mistral": gguf.MODEL_ARCH.LLAMA,
    "mixtral": gguf.MODEL_ARCH.LLAMA,
    "qwen2": gguf.MODEL_ARCH.QWEN2,
    "qwen3": gguf.MODEL_ARCH.QWEN3,
    "qwen3_moe": gguf.MODEL_ARCH.QWEN3MOE,
    "gemma2": gguf.MODEL_ARCH.GEMMA2,
    "gemma3_text": gguf.MODEL_ARCH.GEMMA3,
    "phi3": gguf.MODEL_ARCH.PHI3,
    "olmo2": gguf.MODEL_ARCH.OLMO2,
    "smollm3": gguf.MODEL_ARCH.SMOLLM3,
}
PERMUTED = ("llama", "mistral", "mixtral", "smollm3")


def write_gguf(
    source: Path, path: Path, kind: str = "F32", *, tensors: Any = None, **metadata: Any
) -> Path:
    """Convert a directory of one safetensors file, matrices to the type ``kind``."""
    config = json.loads((source / "config.json").read_text())
    architecture = ARCHITECTURES[config["model_type"]]
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[architecture])
    _write_shape(writer, config)
    _write_tokenizer(writer, json.loads((source / "tokenizer.json").read_text()))
    for key, value in metadata.items():
        _write_value(writer, key.replace("__", "."), value)
    names = gguf.get_tensor_name_map(architecture, config["num_hidden_layers"])
    own = _converted(load_file(source / "model.safetensors"), config)
    for name, tensor in {**own, **(tensors or {})}.items():
        theirs = names.get_name(name, try_suffixes=(".weight", ".bias"))
        theirs = name if name.startswith("rope_f") else theirs
        assert theirs is not None, name
        quantised = tensor.ndim > 1 and kind != "F32"
        form = gguf.GGMLQuantizationType[kind if quantised else "F32"]
        writer.add_tensor(theirs, gguf.quants.quantize(tensor, form), raw_dtype=form)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _write_value(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, list):
        writer.add_array(key, value)
    else:
        writer.add_string(key, value)


def _write_shape(writer: gguf.GGUFWriter, config: Mapping[str, Any]) -> None:
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    rope = config.get("rope_parameters") or {"rope_type": "default"}
    rope = {"rope_theta": config.get("rope_theta"), **rope.get("full_attention", rope)}
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.get("num_key_value_heads") or heads)
    writer.add_key_length(head_dim)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_rope_dimension_count(int(head_dim * rope.get("partial_rotary_factor", 1)))
    if config.get("sliding_window") and config["model_type"] in ("gemma2", "gemma3_text"):
        writer.add_sliding_window(config["sliding_window"])
    for key, write in (
        ("attn_logit_softcapping", writer.add_attn_logit_softcapping),
        ("final_logit_softcapping", writer.add_final_logit_softcapping),
        ("num_experts_per_tok", writer.add_expert_used_count),
        ("num_local_experts", writer.add_expert_count),
        ("num_experts", writer.add_expert_count),
        ("moe_intermediate_size", writer.add_expert_feed_forward_length),
    ):
        if config.get(key):
            write(config[key])
    factors = {"linear": gguf.RopeScalingType.LINEAR, "yarn": gguf.RopeScalingType.YARN}
    if rope["rope_type"] in factors:
        writer.add_rope_scaling_type(factors[rope["rope_type"]])
        writer.add_rope_scaling_factor(rope["factor"])
    if "original_max_position_embeddings" in rope:
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])


def _write_tokenizer(writer: gguf.GGUFWriter, document: Mapping[str, Any]) -> None:
    vocabulary = document["model"]["vocab"]
    added = {token["content"] for token in document["added_tokens"]}
    tokens = sorted(vocabulary, key=lambda token: int(vocabulary[token]))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in added else 1 for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in document["model"]["merges"]])
    writer.add_eos_token_id(0)
    writer.add_add_bos_token(False)


def _converted(
    tensors: Mapping[str, np.ndarray[Any, Any]], config: Mapping[str, Any]
) -> dict[str, np.ndarray[Any, Any]]:
    """The tensors as llama.cpp's converter changes them, under Hugging Face's names."""
    changed: dict[str, np.ndarray[Any, Any]] = {}
    stacks: dict[str, list[np.ndarray[Any, Any]]] = {}
    rope = config.get("rope_parameters") or {}
    for name in sorted(tensors, key=_by_number):
        tensor = tensors[name].astype(np.float32)
        if config["model_type"] in PERMUTED and (".q_proj." in name or ".k_proj." in name):
            is_query = ".q_proj." in name
            heads = config["num_attention_heads" if is_query else "num_key_value_heads"]
            pairs = tensor.reshape(heads, 2, tensor.shape[0] // heads // 2, *tensor.shape[1:])
            tensor = pairs.swapaxes(1, 2).reshape(tensor.shape)
        if config["model_type"].startswith("gemma") and name.endswith("norm.weight"):
            tensor = tensor + 1
        if ".experts." in name:
            prefix, _, rest = name.partition(".experts.")
            stacks.setdefault(f"{prefix}.experts.{rest.split('.', 1)[1]}", []).append(tensor)
            continue
        changed[name] = np.ascontiguousarray(tensor)
    for kind in ("short", "long"):
        if f"{kind}_factor" in rope:
            name = f"rope_factors_{kind}.weight"
            changed[name] = np.array(rope[f"{kind}_factor"], np.float32)
    return changed | {name: np.stack(matrices) for name, matrices in stacks.items()}


def _by_number(name: str) -> list[Any]:
    return [(part.zfill(4) if part.isdigit() else part) for part in name.split(".")]
