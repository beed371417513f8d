"""Rotary embeddings as a ``config.json`` describes them.

Older files have ``rope_theta`` and ``rope_scaling``, newer ones ``rope_parameters``, which models
with two kinds of attention repeat for each kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshnode.model.documents import Keys, ModelUnreadable
from meshnode.model.rope import Rope, RopeKind

DEFAULT_THETA = 10_000.0

_GLOBAL, _LOCAL = "full_attention", "sliding_attention"


def rotary_share(document: Mapping[str, Any]) -> float:
    """The share of a head's dimensions that rotate."""
    name, parameters = _parameters(document)
    keys = Keys(parameters, f"{name}.")
    share = keys.number("partial_rotary_factor", Keys(document).number("partial_rotary_factor", 1))
    if not 0 < share <= 1:
        raise ModelUnreadable("partial_rotary_factor must be above 0 and at most 1")
    return share


def global_rope(document: Mapping[str, Any], context_length: int, rotary_dim: int) -> Rope:
    """The rotation of layers that see everything. Raises ModelUnreadable."""
    name, parameters = _parameters(document)
    theta = Keys(document).number("rope_theta", DEFAULT_THETA)
    return _read(name, parameters, document, theta, context_length, rotary_dim)


def local_rope(document: Mapping[str, Any], context_length: int, rotary_dim: int) -> Rope:
    """The rotation of layers that see a window, where the family has one of its own (Gemma 3)."""
    theta = Keys(document).number("rope_local_base_freq", DEFAULT_THETA)
    parameters = document.get("rope_parameters")
    own = parameters.get(_LOCAL) if isinstance(parameters, Mapping) else None
    if own is not None and not isinstance(own, Mapping):
        raise ModelUnreadable(f"rope_parameters.{_LOCAL} must be an object")
    return _read("rope_parameters", own or {}, document, theta, context_length, rotary_dim)


def has_several(document: Mapping[str, Any]) -> bool:
    """Whether the configuration describes a rotation for each kind of layers."""
    parameters = document.get("rope_parameters")
    values = parameters.values() if isinstance(parameters, Mapping) else ()
    return any(isinstance(value, Mapping) for value in values)


def _parameters(document: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The object that describes the rotation, with its name; empty if there is none."""
    name = "rope_scaling" if document.get("rope_scaling") else "rope_parameters"
    parameters = document.get(name) or {}
    if not isinstance(parameters, Mapping):
        raise ModelUnreadable(f"{name} must be an object")
    if not any(isinstance(value, Mapping) for value in parameters.values()):
        return name, parameters
    if not set(parameters) <= {_GLOBAL, _LOCAL}:
        raise ModelUnreadable(f"{name} differ between layers in a way that is not supported")
    whole = parameters.get(_GLOBAL) or {}
    if not isinstance(whole, Mapping):
        raise ModelUnreadable(f"{name}.{_GLOBAL} must be an object")
    return f"{name}.{_GLOBAL}", whole


def _read(
    name: str,
    parameters: Mapping[str, Any],
    document: Mapping[str, Any],
    theta: float,
    context_length: int,
    rotary_dim: int,
) -> Rope:
    kind = parameters.get("rope_type", parameters.get("type", RopeKind.DEFAULT))
    # Early Phi-3 directories use the working name of the same scaling.
    kind = RopeKind.LONGROPE if kind == "su" else kind
    if kind not in tuple(RopeKind):
        known = ", ".join(RopeKind)
        raise ModelUnreadable(f"RoPE scaling {kind!r} is not supported; these are: {known}")
    keys = Keys(parameters, prefix=f"{name}.")
    llama3, longrope = kind == RopeKind.LLAMA3, kind == RopeKind.LONGROPE
    trained = keys.integer(
        "original_max_position_embeddings",
        Keys(document).integer("original_max_position_embeddings", context_length),
    )
    unscaled = kind == RopeKind.DEFAULT
    default_factor = context_length / trained if longrope and trained > 0 else None
    rope = Rope(
        kind=RopeKind(kind),
        theta=keys.number("rope_theta", theta),
        factor=1.0 if unscaled else keys.number("factor", default_factor),
        trained_context=trained,
        low_frequency_factor=keys.number("low_freq_factor") if llama3 else 1.0,
        high_frequency_factor=keys.number("high_freq_factor") if llama3 else 4.0,
        attention_factor=keys.optional_number("attention_factor"),
        beta_fast=keys.number("beta_fast", 32.0),
        beta_slow=keys.number("beta_slow", 1.0),
        mscale=keys.optional_number("mscale"),
        mscale_all_dim=keys.optional_number("mscale_all_dim"),
        truncate=keys.boolean("truncate", default=True),
        short_factors=keys.numbers("short_factor", rotary_dim // 2) if longrope else (),
    )
    positive = min(rope.trained_context, rope.beta_fast, rope.beta_slow, *rope.short_factors) > 0
    if rope.theta <= 1 or rope.factor < 1 or not positive or (longrope and trained < 2):
        raise ModelUnreadable(f"{name} is out of range")
    if llama3 and rope.high_frequency_factor <= rope.low_frequency_factor:
        raise ModelUnreadable(f"{name}: high_freq_factor must be above low_freq_factor")
    return rope
