"""The names of the decoder's parameters in Hugging Face checkpoints.

Terms: a *part* is one tensor of a checkpoint; a parameter of ours is one part, or several stacked
along their first dimension where one matrix product computes them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from meshnode.model.config import DecoderConfig

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"


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
    hidden, inner = config.hidden_size, config.intermediate_size
    query, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    qkv = (("self_attn.q_proj", query), ("self_attn.k_proj", kv), ("self_attn.v_proj", kv))
    gate_up = (("mlp.gate_proj", inner), ("mlp.up_proj", inner))
    prefix = f"model.layers.{layer}."
    for matrix in (
        _Matrix("attention.qkv", qkv, hidden, config.qkv_bias),
        _Matrix("attention.output", (("self_attn.o_proj", hidden),), query, config.output_bias),
        _Matrix("feed_forward.gate_up", gate_up, hidden, config.mlp_bias),
        _Matrix("feed_forward.down", (("mlp.down_proj", hidden),), inner, config.mlp_bias),
    ):
        yield from matrix.parameters(prefix)
    yield "attention_norm.weight", [Part(f"{prefix}input_layernorm.weight", (hidden,))]
    yield "feed_forward_norm.weight", [Part(f"{prefix}post_attention_layernorm.weight", (hidden,))]


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
