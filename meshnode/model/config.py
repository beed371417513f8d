"""The shape of a decoder, read from and written as a Hugging Face ``config.json`` (interface 1).

Terms: *hidden* is the width of the residual stream; several query *heads* may share one
*key-value head* (grouped-query attention); a model's *context* is the most tokens, prompt and
completion together, that it can attend to.

Invariant: a ``DecoderConfig`` describes a model that ``model.decoder`` computes exactly. A setting
that it would compute differently (another activation, a sliding window, quantised weights) is
refused here, by name, and never ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from meshnode.domain.errors import StartupError
from meshnode.model.rope import Rope, RopeKind

LLAMA = "LlamaForCausalLM"
QWEN2 = "Qwen2ForCausalLM"
DEFAULT_ROPE_THETA = 10_000.0
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
MAX_FILE_BYTES = 64 << 20
"""The largest small file of a model: vocabularies of 260,000 tokens take 35 MB."""
_MODEL_TYPES = {LLAMA: "llama", QWEN2: "qwen2"}


class ModelUnreadable(StartupError):
    """The model directory cannot be used. One line names the file and the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """Shape and constants of a Llama-family decoder. All sizes are counts of elements."""

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

    @property
    def qkv_bias(self) -> bool:
        """Whether query, key and value have biases."""
        return self.attention_bias or self.architecture == QWEN2

    @property
    def output_bias(self) -> bool:
        """Whether the output of attention has a bias."""
        return self.attention_bias

    @property
    def layer_parameters(self) -> int:
        """Weights in one layer."""
        query = self.num_heads * self.head_dim
        qkv = query + 2 * self.num_kv_heads * self.head_dim
        matrices = self.hidden_size * (qkv + query + 3 * self.intermediate_size)
        biases = (
            self.qkv_bias * qkv
            + self.output_bias * self.hidden_size
            + self.mlp_bias * (2 * self.intermediate_size + self.hidden_size)
        )
        return matrices + biases + 2 * self.hidden_size

    @property
    def parameters(self) -> int:
        """Weights in the whole model. A tied head counts once."""
        tables = (1 if self.tied_head else 2) * self.vocab_size * self.hidden_size
        return self.num_layers * self.layer_parameters + tables + self.hidden_size

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
        keys = _Keys(document)
        architecture = _architecture(document)
        _refuse_unsupported(document)
        hidden_size = keys.integer("hidden_size")
        num_heads = keys.integer("num_attention_heads")
        if document.get("head_dim") is None and (num_heads < 1 or hidden_size % num_heads):
            raise ModelUnreadable(
                f"hidden_size {hidden_size} does not split into {num_heads} heads"
            )
        head_dim = keys.integer("head_dim", hidden_size // max(num_heads, 1))
        context_length = keys.integer("max_position_embeddings")
        bos_token_ids = token_ids(document, "bos_token_id")
        return cls(
            architecture=architecture,
            vocab_size=keys.integer("vocab_size"),
            hidden_size=hidden_size,
            intermediate_size=keys.integer("intermediate_size"),
            num_layers=keys.integer("num_hidden_layers"),
            num_heads=num_heads,
            num_kv_heads=keys.integer("num_key_value_heads", num_heads),
            head_dim=head_dim,
            context_length=context_length,
            norm_eps=keys.number("rms_norm_eps", DEFAULT_NORM_EPS),
            rope=_rope(document, context_length),
            tied_head=keys.boolean("tie_word_embeddings"),
            attention_bias=architecture == LLAMA and keys.boolean("attention_bias"),
            mlp_bias=architecture == LLAMA and keys.boolean("mlp_bias"),
            bos_token_id=bos_token_ids[0] if bos_token_ids else None,
            eos_token_ids=token_ids(document, "eos_token_id"),
            initializer_range=keys.number("initializer_range", DEFAULT_INITIALIZER_RANGE),
        )

    def document(self) -> dict[str, Any]:
        """The object of a ``config.json`` that ``read`` and ``transformers`` understand."""
        biases = {"attention_bias": self.attention_bias, "mlp_bias": self.mlp_bias}
        return {
            "architectures": [self.architecture],
            "model_type": _MODEL_TYPES[self.architecture],
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


def read_document(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises ModelUnreadable."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ModelUnreadable(f"{path}: larger than {MAX_FILE_BYTES >> 20} MiB")
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelUnreadable(f"{path}: no such file") from None
    except OSError as error:
        raise ModelUnreadable(f"{path}: {error.strerror or 'cannot be read'}") from None
    except (ValueError, RecursionError):
        raise ModelUnreadable(f"{path}: not valid JSON") from None
    if not isinstance(document, dict):
        raise ModelUnreadable(f"{path}: not a JSON object")
    return document


def token_ids(document: Mapping[str, Any], name: str) -> tuple[int, ...]:
    """The token ids under ``name``: absent, one, or a list. Raises ModelUnreadable."""
    value = document.get(name)
    values = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(item, int) and not isinstance(item, bool) for item in values):
        raise ModelUnreadable(f"{name} must be a token id or a list of them, not {value!r}")
    return tuple(values)


def _architecture(document: Mapping[str, Any]) -> str:
    names = document.get("architectures")
    if not isinstance(names, list) or len(names) != 1:
        raise ModelUnreadable("architectures must name one architecture")
    if names[0] not in list(_MODEL_TYPES):
        supported = " and ".join(_MODEL_TYPES)
        raise ModelUnreadable(f"architecture {names[0]!r} is not supported, only {supported} are")
    return str(names[0])


def _refuse_unsupported(document: Mapping[str, Any]) -> None:
    if document.get("hidden_act", "silu") != "silu":
        raise ModelUnreadable(
            f"activation {document['hidden_act']!r} is not supported, only silu is"
        )
    if document.get("quantization_config") is not None:
        raise ModelUnreadable("quantised weights are not supported")
    # Qwen2 configurations carry a window size even where they do not use it.
    windowed = document.get("use_sliding_window", False) is not False
    if windowed or "sliding_attention" in str(document.get("layer_types")):
        raise ModelUnreadable("sliding-window attention is not supported")
    if document.get("partial_rotary_factor") not in (None, 1, 1.0):
        raise ModelUnreadable("a partial rotary embedding is not supported")


def _rope(document: Mapping[str, Any], context_length: int) -> Rope:
    """RoPE from ``rope_scaling`` and ``rope_theta``, or from the newer ``rope_parameters``."""
    name = "rope_scaling" if document.get("rope_scaling") else "rope_parameters"
    parameters = document.get(name) or {}
    if not isinstance(parameters, Mapping):
        raise ModelUnreadable(f"{name} must be an object")
    if any(isinstance(value, Mapping) for value in parameters.values()):
        raise ModelUnreadable(f"{name} that differ between layers are not supported")
    if parameters.get("partial_rotary_factor") not in (None, 1, 1.0):
        raise ModelUnreadable("a partial rotary embedding is not supported")
    kind = parameters.get("rope_type", parameters.get("type", RopeKind.DEFAULT))
    if kind not in tuple(RopeKind):
        raise ModelUnreadable(f"RoPE scaling {kind!r} is not supported")
    keys = _Keys(parameters, prefix=f"{name}.")
    theta = _Keys(document).number("rope_theta", DEFAULT_ROPE_THETA)
    llama3 = kind == RopeKind.LLAMA3
    rope = Rope(
        kind=RopeKind(kind),
        theta=keys.number("rope_theta", theta),
        factor=1.0 if kind == RopeKind.DEFAULT else keys.number("factor"),
        trained_context=keys.integer("original_max_position_embeddings", context_length),
        low_frequency_factor=keys.number("low_freq_factor") if llama3 else 1.0,
        high_frequency_factor=keys.number("high_freq_factor") if llama3 else 4.0,
        attention_factor=keys.optional_number("attention_factor"),
        beta_fast=keys.number("beta_fast", 32.0),
        beta_slow=keys.number("beta_slow", 1.0),
        mscale=keys.optional_number("mscale"),
        mscale_all_dim=keys.optional_number("mscale_all_dim"),
        truncate=keys.boolean("truncate", default=True),
    )
    positive = min(rope.trained_context, rope.beta_fast, rope.beta_slow) > 0
    if rope.theta <= 1 or rope.factor < 1 or not positive:
        raise ModelUnreadable(f"{name} is out of range")
    if llama3 and rope.high_frequency_factor <= rope.low_frequency_factor:
        raise ModelUnreadable(f"{name}: high_freq_factor must be above low_freq_factor")
    return rope


@dataclass(frozen=True, slots=True)
class _Keys:
    """Typed look-ups in a JSON object. A key that holds null counts as absent."""

    document: Mapping[str, Any]
    prefix: str = ""

    def integer(self, name: str, default: int | None = None) -> int:
        value = self._value(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 1 << 62:
            raise ModelUnreadable(f"{self.prefix}{name} must be an integer, not {value!r}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        value = self._value(name, default)
        # An integer may be too large for a float; JSON also lets NaN and Infinity through.
        if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < 1e300:
            raise ModelUnreadable(f"{self.prefix}{name} must be a number, not {value!r}")
        return float(value)

    def optional_number(self, name: str) -> float | None:
        return None if self.document.get(name) is None else self.number(name)

    def boolean(self, name: str, *, default: bool = False) -> bool:
        value = self._value(name, default)
        if not isinstance(value, bool):
            raise ModelUnreadable(f"{self.prefix}{name} must be true or false, not {value!r}")
        return value

    def _value(self, name: str, default: object) -> object:
        value = self.document.get(name)
        if value is None and default is None:
            raise ModelUnreadable(f"{self.prefix}{name} is missing")
        return default if value is None else value
