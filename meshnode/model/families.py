"""The families of decoders that are computed: a row for each, and what its configuration switches.

Terms: a *family* is an architecture of Hugging Face's library; a layer is *windowed* if its
positions attend to the last ``window`` positions only, themselves included; *sparse* if its
feed-forward part is a set of *experts*, of which each position uses a few.

A family differs from Llama in what its row says, and in its layers' kinds. Everything that a row
cannot say is refused by name when the configuration is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from meshnode.model.documents import Keys, ModelUnreadable

LLAMA = "LlamaForCausalLM"
QWEN2 = "Qwen2ForCausalLM"


class Norms(StrEnum):
    """Where a layer normalises: what enters attention and feed-forward, what leaves them, both."""

    BEFORE = "before"
    AFTER = "after"
    AROUND = "around"


class HeadNorms(StrEnum):
    """Over what queries and keys are normalised before they are rotated."""

    NONE = "none"
    EACH = "each"
    """Every head by itself, with one weight for all."""
    ALL = "all"
    """All heads of a position together."""


class Activation(StrEnum):
    """The function on the gate of a feed-forward part."""

    SILU = "silu"
    GELU_TANH = "gelu_pytorch_tanh"


@dataclass(frozen=True, slots=True)
class LayerKind:
    """What distinguishes a layer from the others of its model."""

    windowed: bool = False
    rotated: bool = True
    sparse: bool = False


PLAIN_LAYER = LayerKind()


@dataclass(frozen=True, slots=True)
class Experts:
    """The experts of a sparse layer. All are counts, but ``shares_sum_to_one``."""

    count: int
    used: int
    """Experts that each position uses."""
    width: int
    """Of an expert's gate."""
    shares_sum_to_one: bool
    """Whether the shares of the used experts are scaled to sum up to one."""


@dataclass(frozen=True, slots=True)
class ExpertNames:
    """Names of a sparse layer's matrices in a checkpoint, and of its keys in a configuration."""

    router: str
    expert: str
    """With ``{}`` for the expert's number."""
    gate: str
    up: str
    down: str
    count_keys: tuple[str, ...]
    width_key: str
    always_sum_to_one: bool = False


def _alike(document: Keys, count: int) -> list[bool]:
    """All layers are windowed, if there is a window."""
    return [True] * count


def _late(document: Keys, count: int) -> list[bool]:
    """Qwen's switch: layers from a given one on are windowed."""
    if not document.boolean("use_sliding_window"):
        return [False] * count
    first = document.integer("max_window_layers", 28)
    return [layer >= first for layer in range(count)]


def _if_switched_on(document: Keys, count: int) -> list[bool]:
    return [document.boolean("use_sliding_window")] * count


def _if_switched_on_and_unrotated(document: Keys, count: int) -> list[bool]:
    on = document.boolean("use_sliding_window")
    return [on and not rotated for rotated in rotated_layers(document, count)]


def _every_other(document: Keys, count: int) -> list[bool]:
    return [layer % 2 == 0 for layer in range(count)]


def _by_pattern(document: Keys, count: int) -> list[bool]:
    """Gemma 3's switch: one layer of so many is not windowed."""
    period = document.integer("sliding_window_pattern", 6)
    if period < 1:
        raise ModelUnreadable("sliding_window_pattern must be positive")
    return [(layer + 1) % period != 0 for layer in range(count)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One row: how an architecture differs from Llama."""

    architecture: str
    model_type: str
    norms: Norms = Norms.BEFORE
    shifted_norms: bool = False
    """Whether the weight of a norm is stored minus one."""
    head_norms: HeadNorms = HeadNorms.NONE
    qkv_bias: bool = False
    """Whether query, key and value always have biases."""
    attention_bias: bool = True
    """Whether the configuration can give all matrices of attention biases."""
    mlp_bias: bool = False
    fused: bool = False
    """Whether the checkpoint has query, key and value as one matrix, and gate and up as another."""
    activation_key: str = "hidden_act"
    scaled_embedding: bool = False
    """Whether embeddings are multiplied by the root of their width."""
    query_scalar: bool = False
    """Whether queries are scaled by a number of the configuration."""
    attention_cap: bool = False
    logit_cap: bool = False
    """Whether the configuration can cap the logits of attention, and those of tokens."""
    partial_rotation: bool = False
    """Whether the configuration can let a part of each head rotate."""
    local_rope: bool = False
    """Whether windowed layers have a rotation of their own."""
    unrotated_layers: bool = False
    """Whether some layers have no rotation."""
    experts: ExpertNames | None = None
    windowed: Callable[[Keys, int], list[bool]] | None = None
    """Which layers are windowed where ``layer_types`` does not say so."""
    layer_types: bool = False
    """Whether the configuration may list the kinds of layers."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Values of the keys that a configuration may leave out, where they are not Llama's."""


_GEMMA: dict[str, Any] = {
    "norms": Norms.AROUND,
    "shifted_norms": True,
    "activation_key": "hidden_activation",
    "scaled_embedding": True,
    "query_scalar": True,
    "logit_cap": True,
    "layer_types": True,
}
_GEMMA_DEFAULTS: dict[str, Any] = {
    "head_dim": 256,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "hidden_activation": Activation.GELU_TANH,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "tie_word_embeddings": True,
}

FAMILIES: Mapping[str, Family] = {
    family.architecture: family
    for family in (
        Family(architecture=LLAMA, model_type="llama", mlp_bias=True),
        Family(
            architecture="MistralForCausalLM",
            model_type="mistral",
            attention_bias=False,
            windowed=_alike,
            defaults={"sliding_window": 4096, "num_key_value_heads": 8},
        ),
        Family(
            architecture="MixtralForCausalLM",
            model_type="mixtral",
            attention_bias=False,
            windowed=_alike,
            experts=ExpertNames(
                router="block_sparse_moe.gate",
                expert="block_sparse_moe.experts.{}",
                gate="w1",
                up="w3",
                down="w2",
                count_keys=("num_local_experts",),
                width_key="intermediate_size",
                always_sum_to_one=True,
            ),
            defaults={
                "num_key_value_heads": 8,
                "rope_theta": 1e6,
                "num_local_experts": 8,
                "num_experts_per_tok": 2,
            },
        ),
        Family(
            architecture=QWEN2,
            model_type="qwen2",
            qkv_bias=True,
            attention_bias=False,
            windowed=_late,
            layer_types=True,
            defaults={"sliding_window": 4096},
        ),
        Family(
            architecture="Qwen3ForCausalLM",
            model_type="qwen3",
            head_norms=HeadNorms.EACH,
            windowed=_late,
            layer_types=True,
            defaults={"sliding_window": 4096, "head_dim": 128},
        ),
        Family(
            architecture="Qwen3MoeForCausalLM",
            model_type="qwen3_moe",
            head_norms=HeadNorms.EACH,
            windowed=_if_switched_on,
            experts=ExpertNames(
                router="mlp.gate",
                expert="mlp.experts.{}",
                gate="gate_proj",
                up="up_proj",
                down="down_proj",
                count_keys=("num_experts", "num_local_experts"),
                width_key="moe_intermediate_size",
            ),
            defaults={"sliding_window": 4096, "num_key_value_heads": 4, "num_experts_per_tok": 8},
        ),
        Family(
            architecture="Gemma2ForCausalLM",
            model_type="gemma2",
            attention_cap=True,
            windowed=_every_other,
            defaults={
                **_GEMMA_DEFAULTS,
                "attn_logit_softcapping": 50.0,
                "final_logit_softcapping": 30.0,
            },
            **_GEMMA,
        ),
        Family(
            architecture="Gemma3ForCausalLM",
            model_type="gemma3_text",
            head_norms=HeadNorms.EACH,
            local_rope=True,
            windowed=_by_pattern,
            defaults={
                **_GEMMA_DEFAULTS,
                "rope_theta": 1e6,
                "vocab_size": 262_208,
                "max_position_embeddings": 131_072,
            },
            **_GEMMA,
        ),
        Family(
            architecture="Phi3ForCausalLM",
            model_type="phi3",
            fused=True,
            partial_rotation=True,
            attention_bias=False,
            windowed=_alike,
            defaults={"rms_norm_eps": 1e-5},
        ),
        Family(
            architecture="Olmo2ForCausalLM",
            model_type="olmo2",
            norms=Norms.AFTER,
            head_norms=HeadNorms.ALL,
            defaults={"rms_norm_eps": 1e-5},
        ),
        Family(
            architecture="SmolLM3ForCausalLM",
            model_type="smollm3",
            mlp_bias=True,
            unrotated_layers=True,
            windowed=_if_switched_on_and_unrotated,
            layer_types=True,
            defaults={"rope_theta": 2e6, "num_key_value_heads": 4, "tie_word_embeddings": True},
        ),
    )
}


def family_of(document: Mapping[str, Any]) -> Family:
    """The family that a configuration names. Raises ModelUnreadable."""
    names = document.get("architectures")
    if not isinstance(names, list) or len(names) != 1:
        raise ModelUnreadable("architectures must name one architecture")
    family = FAMILIES.get(names[0]) if isinstance(names[0], str) else None
    if family is None:
        known = ", ".join(FAMILIES)
        raise ModelUnreadable(f"architecture {names[0]!r} is not supported; these are: {known}")
    return family


def layer_kinds(
    family: Family, document: Keys, count: int, window: int | None
) -> tuple[LayerKind, ...]:
    """The kind of every layer. Raises ModelUnreadable."""
    rotated = rotated_layers(document, count) if family.unrotated_layers else [True] * count
    windowed = _windowed(family, document, count) if window is not None else [False] * count
    sparse = _sparse(document, count) if family.experts else [False] * count
    return tuple(map(LayerKind, windowed, rotated, sparse))


def rotated_layers(document: Keys, count: int) -> list[bool]:
    """Whether each layer has a rotation, in families where some have none."""
    listed = document.integers("no_rope_layers")
    if listed:
        if len(listed) != count:
            raise ModelUnreadable(f"no_rope_layers must have {count} entries")
        return [bool(one) for one in listed]
    period = document.integer("no_rope_layer_interval", 4)
    if period < 1:
        raise ModelUnreadable("no_rope_layer_interval must be positive")
    return [(layer + 1) % period != 0 for layer in range(count)]


def experts_of(family: Family, document: Keys) -> Experts | None:
    """The experts of the sparse layers; None for a family without. Raises ModelUnreadable."""
    names = family.experts
    if names is None:
        return None
    count_key = next((key for key in names.count_keys if key in document.document), "num_experts")
    experts = Experts(
        count=document.integer(count_key),
        used=document.integer("num_experts_per_tok"),
        width=document.integer(names.width_key),
        shares_sum_to_one=names.always_sum_to_one or document.boolean("norm_topk_prob"),
    )
    if not 1 <= experts.used <= experts.count <= 1 << 12 or not 1 <= experts.width <= 1 << 24:
        raise ModelUnreadable(f"{count_key} or num_experts_per_tok is out of range")
    return experts


def _windowed(family: Family, document: Keys, count: int) -> list[bool]:
    listed = document.document.get("layer_types")
    if family.layer_types and listed is not None:
        kinds = {"full_attention": False, "sliding_attention": True}
        if (
            not isinstance(listed, list)
            or len(listed) != count
            or not all(isinstance(one, str) and one in kinds for one in listed)
        ):
            raise ModelUnreadable(f"layer_types must list {count} times one of {', '.join(kinds)}")
        return [kinds[one] for one in listed]
    return family.windowed(document, count) if family.windowed else [False] * count


def _sparse(document: Keys, count: int) -> list[bool]:
    step = document.integer("decoder_sparse_step", 1)
    dense = set(document.integers("mlp_only_layers"))
    return [step > 0 and (layer + 1) % step == 0 and layer not in dense for layer in range(count)]
