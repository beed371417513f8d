"""The names of the decoder's parameters in Hugging Face checkpoints.

Terms: a *part* is one tensor of a checkpoint; a parameter of ours is one part, or several stacked
along their first dimension where one matrix product computes them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from meshnode.model.config import DecoderConfig
from meshnode.model.families import HeadNorms, Norms

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"

_NORMS: Mapping[Norms, Mapping[str, str]] = {
    Norms.BEFORE: {
        "attention_norm": "input_layernorm",
        "feed_forward_norm": "post_attention_layernorm",
    },
    Norms.AFTER: {
        "attention_post_norm": "post_attention_layernorm",
        "feed_forward_post_norm": "post_feedforward_layernorm",
    },
    Norms.AROUND: {
        "attention_norm": "input_layernorm",
        "attention_post_norm": "post_attention_layernorm",
        "feed_forward_norm": "pre_feedforward_layernorm",
        "feed_forward_post_norm": "post_feedforward_layernorm",
    },
}
"""The norms of a layer: our names and those of checkpoints."""


@dataclass(frozen=True, slots=True)
class Part:
    """A tensor in a checkpoint."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Matrix:
    """One of the decoder's linear maps: the parts that it stacks, each with its rows."""

    name: str
    parts: tuple[tuple[str, int], ...]
    columns: int
    bias: bool

    def parameters(self, prefix: str) -> Iterator[tuple[str, list[Part]]]:
        shapes = [(f"{prefix}{name}", rows) for name, rows in self.parts]
        yield f"{self.name}.weight", [Part(f"{n}.weight", (r, self.columns)) for n, r in shapes]
        if self.bias:
            yield f"{self.name}.bias", [Part(f"{n}.bias", (r,)) for n, r in shapes]


def layer_parameters(config: DecoderConfig, layer: int) -> Iterator[tuple[str, list[Part]]]:
    """Parameters of ``model.decoder.Layer`` and their parts, for the layer at index ``layer``."""
    hidden = config.hidden_size
    query, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    qkv: tuple[tuple[str, int], ...]
    if config.family.fused:
        qkv = (("self_attn.qkv_proj", query + 2 * kv),)
    else:
        qkv = (("self_attn.q_proj", query), ("self_attn.k_proj", kv), ("self_attn.v_proj", kv))
    prefix = f"model.layers.{layer}."
    for matrix in (
        _Matrix("attention.qkv", qkv, hidden, config.qkv_bias),
        _Matrix("attention.output", (("self_attn.o_proj", hidden),), query, config.output_bias),
        *_feed_forward(config, layer),
    ):
        yield from matrix.parameters(prefix)
    sizes = {
        HeadNorms.NONE: {},
        HeadNorms.EACH: {"query": config.head_dim, "key": config.head_dim},
        HeadNorms.ALL: {"query": query, "key": kv},
    }[config.family.head_norms]
    for name, size in sizes.items():
        part = Part(f"{prefix}self_attn.{name[0]}_norm.weight", (size,))
        yield f"attention.{name}_norm.weight", [part]
    for name, theirs in _NORMS[config.family.norms].items():
        yield f"{name}.weight", [Part(f"{prefix}{theirs}.weight", (hidden,))]


def _feed_forward(config: DecoderConfig, layer: int) -> Iterator[_Matrix]:
    names, experts = config.family.experts, config.experts
    if names and experts and config.kind(layer).sparse:
        rows = ((names.router, experts.count),)
        yield _Matrix("feed_forward.router", rows, config.hidden_size, bias=False)
        for number in range(experts.count):
            theirs, ours = names.expert.format(number), f"feed_forward.experts.{number}"
            gate_up = tuple((f"{theirs}.{name}", experts.width) for name in (names.gate, names.up))
            down = ((f"{theirs}.{names.down}", config.hidden_size),)
            yield _Matrix(f"{ours}.gate_up", gate_up, config.hidden_size, bias=False)
            yield _Matrix(f"{ours}.down", down, experts.width, bias=False)
        return
    inner = config.intermediate_size
    if config.family.fused:
        gate_up = (("mlp.gate_up_proj", 2 * inner),)
    else:
        gate_up = (("mlp.gate_proj", inner), ("mlp.up_proj", inner))
    yield _Matrix("feed_forward.gate_up", gate_up, config.hidden_size, config.mlp_bias)
    down = (("mlp.down_proj", config.hidden_size),)
    yield _Matrix("feed_forward.down", down, inner, config.mlp_bias)


def decoder_parameters(config: DecoderConfig, held: range) -> Iterator[tuple[str, list[Part]]]:
    """All parameters of a ``Decoder`` that holds the layers ``held``, and their parts.

    A tied head is listed under its own name with the embedding's part.
    """
    table = (config.vocab_size, config.hidden_size)
    if held.start == 0:
        yield "embedding.weight", [Part(EMBEDDING, table)]
    for place, layer in enumerate(held):
        for name, parts in layer_parameters(config, layer):
            yield f"layers.{place}.{name}", parts
    if held.stop == config.num_layers:
        yield "norm.weight", [Part("model.norm.weight", (config.hidden_size,))]
        yield "head.weight", [Part(EMBEDDING if config.tied_head else HEAD, table)]
