"""What a GGUF file says about its model, in the words of a Hugging Face directory.

Each architecture of llama.cpp that is read has a row: the architecture of Hugging Face that
computes the same, and how its tensors differ from Hugging Face's. Terms: *permuted* query and key
matrices have their rows in the order of llama.cpp's rotation, which pairs neighbours; Hugging Face
pairs halves. A tensor is *shifted* if the file has its values plus one.

Invariants: the documents follow from the file alone, so that every node makes the same bytes of it;
an architecture that is not in the table is refused by name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from meshnode.model.documents import ModelUnreadable
from meshnode.model.families import FAMILIES
from meshnode.model.gguf_file import GgufFile
from meshnode.model.gguf_tokenizer import GgufTokenizer
from meshnode.model.rope_config import global_rope

ENDS_OF_TURN = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<end_of_turn>",
    "<|end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
)
"""Control tokens that end an answer, whichever of them the file names as the end of text."""


@dataclass(frozen=True, slots=True)
class _Architecture:
    """A row: an architecture of Hugging Face, and how its file differs from that."""

    name: str
    permuted: bool = False
    tensors: Mapping[str, str] = field(default_factory=dict)
    """Names that are not those of :data:`_LAYER_TENSORS`."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Names of metadata, without the architecture, by the keys of a configuration."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """What the file does not say because llama.cpp knows it."""


_GEMMA_TENSORS = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_GEMMA_FIXED: dict[str, Any] = {"hidden_activation": "gelu_pytorch_tanh"}
_WINDOW = {"sliding_window": "attention.sliding_window"}
_MOE_KEYS = {"num_experts_per_tok": "expert_used_count"}

_ARCHITECTURES: Mapping[str, _Architecture] = {
    "llama": _Architecture("LlamaForCausalLM", permuted=True),
    "mixtral": _Architecture(
        "MixtralForCausalLM",
        permuted=True,
        tensors={"block_sparse_moe.gate": "ffn_gate_inp"},
        keys={**_MOE_KEYS, "num_local_experts": "expert_count"},
        fixed={"sliding_window": None},
    ),
    "qwen2": _Architecture("Qwen2ForCausalLM", fixed={"use_sliding_window": False}),
    "qwen3": _Architecture("Qwen3ForCausalLM", fixed={"use_sliding_window": False}),
    "qwen3moe": _Architecture(
        "Qwen3MoeForCausalLM",
        tensors={"mlp.gate": "ffn_gate_inp"},
        keys={
            **_MOE_KEYS,
            "num_experts": "expert_count",
            "moe_intermediate_size": "expert_feed_forward_length",
        },
        fixed={"use_sliding_window": False, "norm_topk_prob": True},
    ),
    "gemma2": _Architecture(
        "Gemma2ForCausalLM",
        tensors=_GEMMA_TENSORS,
        keys={
            **_WINDOW,
            "attn_logit_softcapping": "attn_logit_softcapping",
            "final_logit_softcapping": "final_logit_softcapping",
        },
        fixed=_GEMMA_FIXED,
    ),
    "gemma3": _Architecture(
        "Gemma3ForCausalLM",
        tensors=_GEMMA_TENSORS,
        keys={**_WINDOW, "rope_local_base_freq": "rope.freq_base_swa"},
        fixed={**_GEMMA_FIXED, "sliding_window_pattern": 6},
    ),
    "phi3": _Architecture(
        "Phi3ForCausalLM",
        tensors={"self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"},
        keys={"original_max_position_embeddings": "rope.scaling.original_context_length"},
        # Files have the key for models of 4,096 tokens, which llama.cpp computes without a window.
        fixed={"sliding_window": None},
    ),
    "olmo2": _Architecture(
        "Olmo2ForCausalLM",
        tensors={
            "post_attention_layernorm": "post_attention_norm",
            "post_feedforward_layernorm": "post_ffw_norm",
        },
    ),
    "smollm3": _Architecture(
        "SmolLM3ForCausalLM", permuted=True, fixed={"no_rope_layer_interval": 4}
    ),
}
"""``mixtral`` is what a ``llama`` with experts is called here."""

_LAYER_TENSORS: Mapping[str, str] = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
_EXPERT_TENSORS: Mapping[str, str] = {
    "gate_proj": "ffn_gate_exps",
    "w1": "ffn_gate_exps",
    "up_proj": "ffn_up_exps",
    "w3": "ffn_up_exps",
    "down_proj": "ffn_down_exps",
    "w2": "ffn_down_exps",
}
_TENSORS: Mapping[str, str] = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)\.(weight|bias)")
_EXPERT = re.compile(r"(?:mlp|block_sparse_moe)\.experts\.(\d+)\.(\w+)")
_LLAMA3_CONTEXT = 8192
"""The context that the Llama models with scaled rotations were trained with before."""


@dataclass(frozen=True, slots=True)
class TensorSource:
    """Where a tensor of a checkpoint is in the file, and what undoes the conversion."""

    name: str
    heads: int = 0
    """Heads whose rows are permuted; 0 if none are."""
    expert: int | None = None
    """Which of the matrices that the tensor stacks."""
    shifted: bool = False
    """Whether the file has the values plus one."""


class GgufModel:
    """The model of an open GGUF file. Raises ModelUnreadable for an unknown architecture."""

    def __init__(self, file: GgufFile) -> None:
        self._file = file
        self._metadata = file.metadata
        self._kind = str(self._metadata.get("general.architecture"))
        has_experts = self._kind == "llama" and self._number("expert_count", 0) > 0
        architecture = _ARCHITECTURES.get("mixtral" if has_experts else self._kind)
        if architecture is None or self._kind == "mixtral":
            known = ", ".join(name for name in _ARCHITECTURES if name != "mixtral")
            raise ModelUnreadable(
                f"{file.path}: models of the architecture {self._kind!r} are not read; "
                f"these are: {known}"
            )
        self._architecture = architecture
        self._family = FAMILIES[architecture.name]
        self.tokenizer = GgufTokenizer(self._metadata)

    def document(self, name: str) -> dict[str, Any] | None:
        """The object of a file of a Hugging Face directory; None if there would be none."""
        makers = {
            "config.json": self._config,
            "tokenizer.json": self.tokenizer.document,
            "generation_config.json": self._generation,
            "tokenizer_config.json": self._tokenizer_config,
        }
        return makers[name]() if name in makers else None

    def data(self, name: str) -> bytes | None:
        """The bytes of such a file."""
        document = self.document(name)
        if document is None:
            return None
        # Escaped, so that no piece of a character makes the bytes impossible to write.
        return json.dumps(document, sort_keys=name != "tokenizer.json").encode()

    def source(self, name: str) -> TensorSource:
        """Where the tensor ``name`` of a checkpoint is. Raises ModelUnreadable."""
        if name in _TENSORS:
            is_norm = name == "model.norm.weight"
            return TensorSource(_TENSORS[name], shifted=is_norm and self._family.shifted_norms)
        match = _LAYER.fullmatch(name)
        if match is None:
            raise self._nameless(name)
        prefix, part, kind = f"blk.{match[1]}.", match[2], match[3]
        expert = _EXPERT.fullmatch(part)
        if expert:
            if expert[2] not in _EXPERT_TENSORS:
                raise self._nameless(name)
            theirs = f"{prefix}{_EXPERT_TENSORS[expert[2]]}.{kind}"
            return TensorSource(theirs, expert=int(expert[1]))
        named = self._architecture.tensors.get(part) or _LAYER_TENSORS.get(part)
        if named is None:
            raise self._nameless(name)
        heads = {
            "self_attn.q_proj": self._number("attention.head_count"),
            "self_attn.k_proj": self._kv_heads,
        }
        return TensorSource(
            f"{prefix}{named}.{kind}",
            heads=heads.get(part, 0) if self._architecture.permuted else 0,
            shifted=self._family.shifted_norms and part.endswith("norm"),
        )

    def _nameless(self, name: str) -> ModelUnreadable:
        return ModelUnreadable(f"{self._file.path}: tensor {name} has no name in GGUF")

    @property
    def _kv_heads(self) -> int:
        return self._number("attention.head_count_kv", self._number("attention.head_count"))

    def _config(self) -> dict[str, Any]:
        hidden, heads = self._number("embedding_length"), self._number("attention.head_count")
        table = self._file.tensors.get("token_embd.weight")
        if table is None:
            raise ModelUnreadable(f"{self._file.path}: tensor token_embd.weight is missing")
        document: dict[str, Any] = {
            "architectures": [self._architecture.name],
            "model_type": self._family.model_type,
            "vocab_size": table.shape[0],
            "hidden_size": hidden,
            "intermediate_size": self._number("feed_forward_length"),
            "num_hidden_layers": self._number("block_count"),
            "num_attention_heads": heads,
            "num_key_value_heads": self._kv_heads,
            "head_dim": self._number("attention.key_length", hidden // max(heads, 1)),
            "hidden_act": "silu",
            "max_position_embeddings": self._number("context_length"),
            "rms_norm_eps": self._value("attention.layer_norm_rms_epsilon", 1e-6),
            "rope_theta": self._value("rope.freq_base", 10_000.0),
            "tie_word_embeddings": "output.weight" not in self._file.tensors,
            "bos_token_id": self.tokenizer.token_id("bos"),
            "eos_token_id": self.tokenizer.token_id("eos"),
        }
        for key, name in self._architecture.keys.items():
            if self._value(name) is not None:
                document[key] = self._value(name)
        document |= self._architecture.fixed
        if self._family.attention_bias:
            document["attention_bias"] = "blk.0.attn_output.bias" in self._file.tensors
        if self._family.mlp_bias:
            document["mlp_bias"] = "blk.0.ffn_gate.bias" in self._file.tensors
        if self._kind == "gemma2" and document["num_hidden_layers"] == 46:
            # The largest Gemma 2 scales queries by another number than the size of a head.
            document["query_pre_attn_scalar"] = hidden // heads
        elif self._family.query_scalar:
            document["query_pre_attn_scalar"] = document["head_dim"]
            if self._kind == "gemma3" and document["num_hidden_layers"] == 62:
                document["query_pre_attn_scalar"] = hidden // heads
        return document | self._rotation(document)

    def _rotation(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """The keys of a configuration that describe the rotation."""
        rotary = self._number("rope.dimension_count", document["head_dim"])
        partial = rotary != document["head_dim"]
        extra = {"partial_rotary_factor": rotary / document["head_dim"]} if partial else {}
        scaling = self._value("rope.scaling.type", "none")
        factor = self._value("rope.scaling.factor", 1.0)
        context = self._value("rope.scaling.original_context_length")
        if "rope_freqs.weight" in self._file.tensors:
            return {**extra, "rope_scaling": self._stretched(rotary)}
        if "rope_factors_short.weight" in self._file.tensors:
            factors = {
                f"{name}_factor": self._vector(f"rope_factors_{name}.weight")
                for name in ("short", "long")
            }
            attention = self._value("rope.scaling.attn_factor")
            given = {} if attention is None else {"attention_factor": attention}
            return {**extra, "rope_scaling": {"rope_type": "longrope", **factors, **given}}
        if scaling == "linear":
            return {**extra, "rope_scaling": {"rope_type": "linear", "factor": factor}}
        if scaling == "yarn":
            known = {} if context is None else {"original_max_position_embeddings": context}
            return {**extra, "rope_scaling": {"rope_type": "yarn", "factor": factor, **known}}
        if scaling != "none":
            raise ModelUnreadable(f"{self._file.path}: RoPE scaling {scaling!r} is not read")
        return extra

    def _stretched(self, rotary: int) -> dict[str, Any]:
        """Llama 3's scaling, of which the file has the results: what divides each frequency.

        The bounds are those of all published models; a file with others is refused.
        """
        divisors = self._vector("rope_freqs.weight")
        scaling = {
            "rope_type": "llama3",
            "factor": round(max(divisors), 4),
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": _LLAMA3_CONTEXT,
        }
        theta = self._value("rope.freq_base", 10_000.0)
        expected = global_rope({"rope_theta": theta, "rope_scaling": scaling}, 1 << 17, rotary)
        plain = global_rope({"rope_theta": theta}, 1 << 17, rotary)
        ratios = (plain.frequencies(rotary) / expected.frequencies(rotary)).tolist()
        pairs = zip(ratios, divisors, strict=True) if len(ratios) == len(divisors) else [(0.0, 1.0)]
        if any(abs(ours - theirs) > 1e-3 * theirs for ours, theirs in pairs):
            raise ModelUnreadable(f"{self._file.path}: its rope_freqs follow no known rule")
        return scaling

    def _vector(self, name: str) -> list[float]:
        place = self._file.tensors[name]
        values = np.empty((place.rows, place.shape[-1]), np.float32)
        self._file.floats(place, 0, place.rows, values)
        return [float(value) for value in values.ravel()]

    def _generation(self) -> dict[str, Any]:
        named = [self.tokenizer.token_id(name) for name in ("eos", "eot", "eom")]
        ends = {one for one in named if one is not None}
        ends |= set(self.tokenizer.control_ids(ENDS_OF_TURN))
        return {"bos_token_id": self.tokenizer.token_id("bos"), "eos_token_id": sorted(ends)}

    def _tokenizer_config(self) -> dict[str, Any]:
        template = self._metadata.get("tokenizer.chat_template")
        names = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token"}
        return {
            **({"chat_template": template} if isinstance(template, str) else {}),
            **{ours: self.tokenizer.token(name) for name, ours in names.items()},
            "add_bos_token": self.tokenizer.adds_bos,
        }

    def _value(self, name: str, default: object = None) -> Any:
        return self._metadata.get(f"{self._kind}.{name}", default)

    def _number(self, name: str, default: int | None = None) -> int:
        value = self._value(name, default)
        if isinstance(value, list) and value and len(set(value)) == 1:
            # Some files repeat a figure for every layer.
            value = value[0]
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 31:
            raise ModelUnreadable(
                f"{self._file.path}: {self._kind}.{name} must be one count, not {value!r}"
            )
        return value
