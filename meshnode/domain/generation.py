"""One text generation: its request, its token events and its end (interface 2.1, 4.1 and 6).

Terms: a *token event* is emitted for each generated token, the end-of-text token included. So the
number of token events, ``usage.completion_tokens`` and ``tokens_generated`` are always equal, and
the texts of the events, concatenated, are the text of the result (decision 0007). The text of an
event may be empty: while a multi-byte character or a possible stop string is incomplete, its text
is withheld and comes with a later event.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from meshnode.domain.shares import ANYBODY, Requester

DEFAULT_MAX_TOKENS = 100
DEFAULT_TEMPERATURE = 1.0
DEFAULT_TOP_P = 1.0
DEFAULT_TOP_K = 50


class FinishReason(StrEnum):
    """Why a generation ended."""

    STOP = "stop"
    """An end-of-text token or a stop string."""
    LENGTH = "length"
    """``max_tokens`` was reached, or the model's context is full."""


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A validated request. Ranges are the document's: temperature 0 to 2, top_p 0 to 1."""

    prompt: str = field(repr=False)
    max_tokens: int = DEFAULT_MAX_TOKENS
    temperature: float = DEFAULT_TEMPERATURE
    top_p: float = DEFAULT_TOP_P
    top_k: int = DEFAULT_TOP_K
    """0 means no limit."""
    stop: tuple[str, ...] = field(default=(), repr=False)
    seed: int | None = None
    """Makes sampling repeatable, whatever else is in the batch. An addition to the document."""
    frequency_penalty: float = 0.0
    """Taken from a token's logit for each time that the completion has it. From here on, the
    fields are those of OpenAI's interface (decision 0160)."""
    presence_penalty: float = 0.0
    """Taken from a token's logit once, if the completion has it."""
    logprobs: int | None = None
    """How many of the most likely tokens each event reports beside its own; None: no report."""
    json_schema: str | None = field(default=None, repr=False)
    """A JSON Schema, as JSON; the completion is a value of it."""
    special_tokens: bool = True
    """Whether the tokenizer puts its tokens around the prompt. A rendered chat has its own."""
    end_tokens: frozenset[int] = frozenset()
    """Tokens that end this completion, besides those that end every text of the model."""
    requester: Requester = ANYBODY
    """Whom it counts for, when places are short."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts, by the model's tokenizer."""

    prompt_tokens: int
    completion_tokens: int

    @property
    def total_tokens(self) -> int:
        """Prompt and completion together."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class Timing:
    """Measured milliseconds: waiting for a place in the batch, computing, and both."""

    queue_ms: float
    inference_ms: float
    total_ms: float


@dataclass(frozen=True, slots=True)
class TokenProbability:
    """A token's bytes, and the natural logarithm of its probability."""

    piece: bytes
    logprob: float


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """What the model gave a token and the most likely ones, before temperature and penalties."""

    chosen: TokenProbability
    top: tuple[TokenProbability, ...]
    """Most likely first."""


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """One generated token. ``text`` has whole characters only and may be empty."""

    text: str
    index: int
    logprobs: TokenLogprobs | None = None
    """None for the end-of-text token, and unless the request asks for them."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of a generation."""

    finish_reason: FinishReason
    usage: Usage
    timing: Timing


@dataclass(frozen=True, slots=True)
class ModelCard:
    """Facts about a loaded model. Memory is in bytes."""

    name: str
    num_layers: int
    hidden_dim: int
    vocab_size: int
    context_length: int
    """The most tokens in one generation, prompt and completion together."""
    parameters: int
    """Number of parameters of the whole model, not only of the layers held here."""
    layers: tuple[int, ...]
    """Indices held here, ascending and contiguous."""
    layer_bytes: dict[int, int] = field(default_factory=dict)
    """Weights in memory for each held layer."""

    @property
    def complete(self) -> bool:
        """Whether all layers are held here."""
        return len(self.layers) == self.num_layers
