"""The shape of a decoder, read from and written as a Hugging Face ``config.json`` (interface 1).

Terms: *hidden* is the width of the residual stream; several query *heads* may share one
*key-value head* (grouped-query attention); a model's *context* is the most tokens, prompt and
completion together, that it can attend to.

Invariant: a ``DecoderConfig`` describes a model that ``model.decoder`` computes exactly. A setting
that it would compute differently (another activation, quantised weights) is refused here, by name,
and never ignored.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from meshnode.model.documents import (
    Keys,
    ModelUnreadable,
    read_document,
    token_ids,
)
from meshnode.model.families import (
    FAMILIES,
    LLAMA,
    PLAIN_LAYER,
    QWEN2,
    Activation,
    Experts,
    Family,
    HeadNorms,
    LayerKind,
    Norms,
    experts_of,
    family_of,
    layer_kinds,
)
from meshnode.model.rope import Rope
from meshnode.model.rope_config import global_rope, has_several, local_rope, rotary_share

DEFAULT_NORM_EPS = 1e-6
DEFAULT_INITIALIZER_RANGE = 0.02

_MOST = {
    "vocab_size": 1 << 24,
    "hidden_size": 1 << 24,
    "intermediate_size": 1 << 24,
    "num_layers": 1 << 12,
    "num_heads": 1 << 16,
    "num_kv_heads": 1 << 16,
    "head_dim": 1 << 16,
    "context_length": 1 << 30,
}
"""Limits far beyond any model: a broken file must not make the node build a billion layers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """Shape and constants of a decoder. All sizes are counts of elements.

    What is left out is as in Llama.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    context_length: int
    norm_eps: float = DEFAULT_NORM_EPS
    rope: Rope = field(default_factory=Rope)
    tied_head: bool = False
    """Whether the output head is the embedding matrix."""
    attention_bias: bool = False
    """Whether all four matrices of attention have biases (Llama)."""
    mlp_bias: bool = False
    architecture: str = LLAMA
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    initializer_range: float = DEFAULT_INITIALIZER_RANGE
    """Standard deviation of freshly initialised weights."""
    activation: Activation = Activation.SILU
    rotary_share: float = 1.0
    """The share of a head's dimensions that rotate."""
    local_rope: Rope | None = None
    """The rotation of windowed layers, where it is another."""
    window: int | None = None
    """The positions that a windowed layer attends to."""
    layer_kinds: tuple[LayerKind, ...] = ()
    """The kind of every layer; empty if all are plain."""
    experts: Experts | None = None
    query_scalar: float | None = None
    """Queries are divided by its root; None stands for the size of a head."""
    attention_cap: float | None = None
    """Bound to which attention logits are bent."""
    logit_cap: float | None = None
    origin: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)
    """The object of the ``config.json`` that this was read from."""

    def __post_init__(self) -> None:
        """Refuse shapes that cannot be computed, from a file or from code."""
        for name, most in _MOST.items():
            size = getattr(self, name)
            if size < 1:
                raise ModelUnreadable(f"{name} must be positive, not {size}")
            if size > most:
                raise ModelUnreadable(f"{name} is {size}, more than {most}")
        if self.num_heads % self.num_kv_heads:
            raise ModelUnreadable(
                f"{self.num_heads} heads cannot share {self.num_kv_heads} key-value heads evenly"
            )
        if self.head_dim % 2:
            raise ModelUnreadable(f"head_dim must be even for RoPE, not {self.head_dim}")
        if self.rotary_dim < 2 or self.rotary_dim % 2:
            raise ModelUnreadable(f"a head must rotate evenly, not {self.rotary_dim} dimensions")
        if self.layer_kinds and len(self.layer_kinds) != self.num_layers:
            raise ModelUnreadable(f"there are {len(self.layer_kinds)} kinds of layers")
        limits = (self.window, self.query_scalar, self.attention_cap, self.logit_cap)
        if any(limit is not None and limit <= 0 for limit in limits):
            raise ModelUnreadable("a window, scalar or cap of attention or logits must be positive")

    @property
    def family(self) -> Family:
        """The row of the model's architecture."""
        return FAMILIES[self.architecture]

    @property
    def is_plain(self) -> bool:
        """Whether the model differs from Llama in biases at most."""
        return self.architecture in (LLAMA, QWEN2) and not (
            self.layer_kinds or self.rotary_share < 1 or self.activation is not Activation.SILU
        )

    def kind(self, layer: int) -> LayerKind:
        """The kind of a layer."""
        return self.layer_kinds[layer] if self.layer_kinds else PLAIN_LAYER

    @property
    def rotary_dim(self) -> int:
        """The dimensions of a head that rotate."""
        return int(self.head_dim * self.rotary_share)

    @property
    def embedding_scale(self) -> float:
        """What embeddings are multiplied by."""
        return math.sqrt(self.hidden_size) if self.family.scaled_embedding else 1.0

    @property
    def attention_scale(self) -> float | None:
        """What the products of queries and keys are multiplied by; None for the usual."""
        return None if self.query_scalar is None else self.query_scalar**-0.5

    @property
    def qkv_bias(self) -> bool:
        """Whether query, key and value have biases."""
        return self.attention_bias or self.family.qkv_bias

    @property
    def output_bias(self) -> bool:
        """Whether the output of attention has a bias."""
        return self.attention_bias

    @property
    def layer_parameters(self) -> int:
        """Weights in one layer; in the largest one if they differ."""
        return max(map(self.parameters_of, range(self.num_layers)))

    def parameters_of(self, layer: int) -> int:
        """Weights in the layer at an index."""
        query, kv = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        qkv = query + 2 * kv
        biases = self.qkv_bias * qkv + self.output_bias * self.hidden_size
        norms = (4 if self.family.norms is Norms.AROUND else 2) * self.hidden_size
        norms += {
            HeadNorms.NONE: 0,
            HeadNorms.EACH: 2 * self.head_dim,
            HeadNorms.ALL: query + kv,
        }[self.family.head_norms]
        return self.hidden_size * (qkv + query) + biases + norms + self._feed_forward(layer)

    def _feed_forward(self, layer: int) -> int:
        if self.experts and self.kind(layer).sparse:
            matrices = 3 * self.hidden_size * self.experts.width
            return self.experts.count * (matrices + self.hidden_size)
        biases = self.mlp_bias * (2 * self.intermediate_size + self.hidden_size)
        return 3 * self.hidden_size * self.intermediate_size + biases

    @property
    def parameters(self) -> int:
        """Weights in the whole model. A tied head counts once."""
        tables = (1 if self.tied_head else 2) * self.vocab_size * self.hidden_size
        layers = sum(map(self.parameters_of, range(self.num_layers)))
        return layers + tables + self.hidden_size

    @classmethod
    def read(cls, path: Path) -> DecoderConfig:
        """Read a ``config.json``. Raises ModelUnreadable for what is missing or unsupported."""
        try:
            return cls.from_document(read_document(path))
        except ModelUnreadable as error:
            if str(error).startswith(str(path)):
                raise
            raise ModelUnreadable(f"{path}: {error}") from None

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> DecoderConfig:
        """Interpret the object of a ``config.json``. Raises ModelUnreadable."""
        family = family_of(document)
        origin, document = document, {**family.defaults, **document}
        keys = Keys(document)
        _refuse_unsupported(family, document)
        hidden_size = keys.integer("hidden_size")
        num_heads = keys.integer("num_attention_heads")
        if document.get("head_dim") is None and (num_heads < 1 or hidden_size % num_heads):
            raise ModelUnreadable(
                f"hidden_size {hidden_size} does not split into {num_heads} heads"
            )
        head_dim = keys.integer("head_dim", hidden_size // max(num_heads, 1))
        num_layers = keys.integer("num_hidden_layers")
        context_length = keys.integer("max_position_embeddings")
        share = rotary_share(document)
        rope = global_rope(document, context_length, int(head_dim * share))
        window = keys.optional_integer("sliding_window") if family.windowed else None
        # The number is bounded here, because a list of that length is made next.
        kinds = layer_kinds(family, keys, min(num_layers, _MOST["num_layers"]), window)
        bos_token_ids = token_ids(document, "bos_token_id")
        return cls(
            architecture=family.architecture,
            vocab_size=keys.integer("vocab_size"),
            hidden_size=hidden_size,
            intermediate_size=keys.integer("intermediate_size"),
            num_layers=num_layers,
            num_heads=num_heads,
            num_kv_heads=keys.integer("num_key_value_heads", num_heads),
            head_dim=head_dim,
            context_length=rope.limited(context_length),
            norm_eps=keys.number("rms_norm_eps", DEFAULT_NORM_EPS),
            rope=rope,
            tied_head=keys.boolean("tie_word_embeddings"),
            attention_bias=family.attention_bias and keys.boolean("attention_bias"),
            mlp_bias=family.mlp_bias and keys.boolean("mlp_bias"),
            bos_token_id=bos_token_ids[0] if bos_token_ids else None,
            eos_token_ids=token_ids(document, "eos_token_id"),
            initializer_range=keys.number("initializer_range", DEFAULT_INITIALIZER_RANGE),
            activation=_activation(family, document),
            rotary_share=share,
            local_rope=(
                local_rope(document, context_length, int(head_dim * share))
                if family.local_rope
                else None
            ),
            window=window,
            layer_kinds=() if set(kinds) <= {PLAIN_LAYER} else kinds,
            experts=experts_of(family, keys),
            query_scalar=keys.optional_number("query_pre_attn_scalar"),
            attention_cap=keys.optional_number("attn_logit_softcapping"),
            logit_cap=keys.optional_number("final_logit_softcapping"),
            origin=origin,
        )

    def document(self) -> dict[str, Any]:
        """The object of a ``config.json`` that ``read`` and ``transformers`` understand."""
        if not self.is_plain:
            if self.origin is None:
                raise ModelUnreadable(f"a {self.architecture} that was not read cannot be written")
            return {**self.origin, "torch_dtype": "float32"}
        biases = {"attention_bias": self.attention_bias, "mlp_bias": self.mlp_bias}
        return {
            "architectures": [self.architecture],
            "model_type": self.family.model_type,
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "max_position_embeddings": self.context_length,
            "rms_norm_eps": self.norm_eps,
            "rope_theta": self.rope.theta,
            "rope_scaling": self.rope.scaling_document(),
            "tie_word_embeddings": self.tied_head,
            **(biases if self.architecture == LLAMA else {}),
            "bos_token_id": self.bos_token_id,
            "eos_token_id": list(self.eos_token_ids) or None,
            "initializer_range": self.initializer_range,
            "torch_dtype": "float32",
        }

    def write(self, path: Path) -> None:
        """Write a ``config.json``."""
        path.write_text(json.dumps(self.document(), indent=2) + "\n", encoding="utf-8")


def _activation(family: Family, document: Mapping[str, Any]) -> Activation:
    name = document.get(family.activation_key)
    try:
        return Activation.SILU if name is None else Activation(name)
    except ValueError:
        known = ", ".join(Activation)
        raise ModelUnreadable(f"activation {name!r} is not supported; these are: {known}") from None


def _refuse_unsupported(family: Family, document: Mapping[str, Any]) -> None:
    known = {
        "query_pre_attn_scalar": family.query_scalar,
        "attn_logit_softcapping": family.attention_cap,
        "final_logit_softcapping": family.logit_cap,
    }
    for name, is_known in known.items():
        if document.get(name) is not None and not is_known:
            raise ModelUnreadable(f"{name} is not supported for {family.architecture}")
    quantised = document.get("quantization_config")
    if quantised is not None:
        kind = quantised.get("quant_method") if isinstance(quantised, Mapping) else None
        raise ModelUnreadable(
            f"quantised weights ({kind}) are not supported: use the directory that they were made "
            "from, or a GGUF file of the model"
        )
    if rotary_share(document) < 1 and not family.partial_rotation:
        raise ModelUnreadable(f"a partial rotation is not supported for {family.architecture}")
    windowed = document.get("use_sliding_window") or "sliding" in str(document.get("layer_types"))
    if windowed and family.windowed is None:
        raise ModelUnreadable(f"a sliding window is not supported for {family.architecture}")
    if has_several(document) and not family.local_rope:
        raise ModelUnreadable(f"several rotations are not supported for {family.architecture}")
    if document.get("use_bidirectional_attention"):
        raise ModelUnreadable("attention in both directions is not supported")
