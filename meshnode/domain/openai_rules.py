"""The rules of requests in OpenAI's form: ``/v1/completions``, and what chats share with it.

Terms: *fields* is the decoded body. A parameter that is ``null`` counts as absent, because clients
of this interface send their defaults so. ``domain.chat_rules`` has what only chats have.

Invariants (decision 0160): a request that passes means what it says; a parameter that this node
does not support is refused by its name, unless its value asks for nothing; the failure names the
first offending field and never quotes its value.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from meshnode.domain.errors import InvalidRequest, Unsupported
from meshnode.domain.generation import GenerationRequest
from meshnode.domain.inference_rules import (
    MAX_COUNT,
    MAX_PROMPT_BYTES,
    MAX_STOP_CHARS,
    MAX_STOP_STRINGS,
    MAX_TEMPERATURE,
)

DEFAULT_COMPLETION_TOKENS = 16
MAX_CHOICES = 8
"""Completions that one request may ask for, those of all its prompts together."""
MAX_PENALTY = 2.0
MAX_COMPLETION_LOGPROBS = 5
MAX_MODEL_CHARS = 256
SEEDS = 2**63

COMMENTS = frozenset({"user", "metadata", "safety_identifier", "prompt_cache_key"})
"""Parameters that tell the service about the client, and ask for nothing."""
NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "store": (False,),
    "service_tier": ("auto", "default"),
    "logit_bias": ({},),
    "echo": (False,),
    "best_of": (1,),
    "suffix": ("",),
    "modalities": (["text"],),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "prompt_cache_retention": ("in_memory",),
}
"""Parameters without support, with the values that ask for nothing."""

SHARED = frozenset(
    {
        "model",
        "max_tokens",
        "temperature",
        "top_p",
        "top_k",
        "n",
        "stop",
        "seed",
        "stream",
        "stream_options",
        "frequency_penalty",
        "presence_penalty",
        "logprobs",
    }
)


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A validated request of ``/v1/completions``: a choice for each of ``n`` and each prompt."""

    model: str
    requests: tuple[GenerationRequest, ...]
    """One for each choice, in the order of their indices."""
    prompts: int
    stream: bool
    include_usage: bool


def completion_request(fields: Mapping[str, object]) -> CompletionRequest:
    """Turn decoded fields into a request. Raises InvalidRequest."""
    reader = Fields(fields)
    reader.refuse_unknown(SHARED | {"prompt"})
    model = reader.text("model")
    prompts = _prompts(reader)
    n = reader.integer("n", 1, 1, MAX_CHOICES) or 1
    if n * len(prompts) > MAX_CHOICES:
        raise InvalidRequest("n", f"must ask for at most {MAX_CHOICES} choices in all")
    sampling = sampling_of(
        reader,
        max_tokens=reader.integer("max_tokens", DEFAULT_COMPLETION_TOKENS, 1, MAX_COUNT) or 1,
        logprobs=reader.integer("logprobs", None, 0, MAX_COMPLETION_LOGPROBS),
    )
    return CompletionRequest(
        model=model,
        requests=tuple(
            choice for prompt in prompts for choice in choices(sampling.request(prompt), n)
        ),
        prompts=len(prompts),
        stream=(stream := reader.flag("stream")),
        include_usage=include_usage(reader, stream=stream),
    )


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the tokens of a completion are chosen."""

    max_tokens: int
    temperature: float
    top_p: float
    top_k: int
    stop: tuple[str, ...] = field(repr=False)
    seed: int | None
    frequency_penalty: float
    presence_penalty: float
    logprobs: int | None

    def request(self, prompt: str) -> GenerationRequest:
        """A request for one completion of ``prompt``."""
        return GenerationRequest(
            prompt=prompt,
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            stop=self.stop,
            seed=self.seed,
            frequency_penalty=self.frequency_penalty,
            presence_penalty=self.presence_penalty,
            logprobs=self.logprobs,
        )


def sampling_of(reader: Fields, *, max_tokens: int, logprobs: int | None) -> Sampling:
    """Read the parameters that all completions share. Raises InvalidRequest."""
    seed = reader.integer("seed", None, -SEEDS, SEEDS - 1)
    return Sampling(
        max_tokens=max_tokens,
        temperature=reader.number("temperature", 1.0, 0.0, MAX_TEMPERATURE),
        top_p=reader.number("top_p", 1.0, 0.0, 1.0),
        top_k=reader.integer("top_k", 0, 0, MAX_COUNT) or 0,
        stop=_stop(reader),
        seed=None if seed is None else seed % SEEDS,
        frequency_penalty=reader.number("frequency_penalty", 0.0, -MAX_PENALTY, MAX_PENALTY),
        presence_penalty=reader.number("presence_penalty", 0.0, -MAX_PENALTY, MAX_PENALTY),
        logprobs=logprobs,
    )


def choices(request: GenerationRequest, n: int) -> list[GenerationRequest]:
    """The requests of ``n`` choices. A seed repeats them, and gives each its own numbers."""
    if request.seed is None:
        return [request] * n
    return [replace(request, seed=(request.seed + index) % SEEDS) for index in range(n)]


def include_usage(reader: Fields, *, stream: bool) -> bool:
    """Whether a stream ends with a chunk that has the usage. Raises InvalidRequest."""
    options = reader.get("stream_options")
    if options is None:
        return False
    if not stream:
        raise InvalidRequest("stream_options", "is only for requests with stream: true")
    if not isinstance(options, Mapping):
        raise InvalidRequest("stream_options", "must be an object")
    inner = Fields(options, "stream_options.")
    inner.refuse_unknown({"include_usage", "include_obfuscation"})
    if inner.flag("include_obfuscation"):
        raise Unsupported("stream_options.include_obfuscation", "is not supported by this node")
    return inner.flag("include_usage")


class Fields:
    """Reads the fields of one object, each by its type and range. All raise InvalidRequest."""

    def __init__(self, fields: Mapping[str, object], prefix: str = "") -> None:
        """``prefix`` comes before the names in failures."""
        self._fields = fields
        self._prefix = prefix

    def refuse_unknown(self, known: Collection[str]) -> None:
        """Refuse the first field that no rule reads, unless it asks for nothing."""
        for name, value in self._fields.items():
            if name in known or value is None or (not self._prefix and name in COMMENTS):
                continue
            if not self._prefix and any(_same(value, one) for one in NEUTRAL.get(name, ())):
                continue
            shown = "".join(char if char.isprintable() else "?" for char in name[:40])
            raise Unsupported(self._prefix + shown, "is not supported by this node")

    def get(self, name: str) -> object:
        """A field's value; None if it is absent or null."""
        return self._fields.get(name)

    def fail(self, name: str, reason: str) -> InvalidRequest:
        """The failure about a field."""
        return InvalidRequest(self._prefix + name, reason)

    def text(self, name: str, longest: int = MAX_MODEL_CHARS) -> str:
        """A text that must be there."""
        value = self.get(name)
        if not isinstance(value, str) or not value:
            raise self.fail(name, "is required, and must be a string")
        if len(value) > longest:
            raise self.fail(name, f"must be at most {longest} characters")
        require_unicode(self._prefix + name, value)
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false."""
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.fail(name, "must be true or false")
        return value

    def integer(self, name: str, default: int | None, low: int, high: int) -> int | None:
        """An integer in a range, 1.0 for 1 included."""
        value = self.get(name)
        if value is None:
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.fail(name, "must be an integer")
        if not low <= value <= high:
            raise self.fail(name, f"must be {low} to {high}")
        return value

    def number(self, name: str, default: float, low: float, high: float) -> float:
        """A number in a range."""
        value = self.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.fail(name, "must be a number")
        if not low <= value <= high:
            raise self.fail(name, f"must be {low:g} to {high:g}")
        return float(value)


def require_unicode(name: str, text: str) -> None:
    """Raise InvalidRequest for text with half of a surrogate pair, which JSON can spell."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(name, "must be valid Unicode: it has a lone surrogate") from None


def _same(value: object, neutral: object) -> bool:
    # In Python, False == 0 and True == 1.
    return type(value) is type(neutral) and value == neutral


def _prompts(reader: Fields) -> list[str]:
    value = reader.get("prompt")
    if value is None:
        raise InvalidRequest("prompt", "is required")
    prompts = value if isinstance(value, list) else [value]
    if any(isinstance(prompt, int | list) for prompt in prompts):
        raise Unsupported("prompt", "as token ids is not supported by this node; send text")
    if not prompts or len(prompts) > MAX_CHOICES:
        raise InvalidRequest("prompt", f"must be a string, or an array of 1 to {MAX_CHOICES}")
    for prompt in prompts:
        if not isinstance(prompt, str) or not prompt:
            raise InvalidRequest("prompt", "must be text that is not empty, or an array of such")
        require_unicode("prompt", prompt)
        if len(prompt.encode()) > MAX_PROMPT_BYTES:
            raise InvalidRequest("prompt", f"must be at most {MAX_PROMPT_BYTES} bytes of UTF-8")
    return [str(prompt) for prompt in prompts]


def _stop(reader: Fields) -> tuple[str, ...]:
    value = reader.get("stop")
    if value is None:
        return ()
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list):
        raise InvalidRequest("stop", "must be a string or an array of strings")
    if len(texts) > MAX_STOP_STRINGS:
        raise InvalidRequest("stop", f"must have at most {MAX_STOP_STRINGS} strings")
    for index, text in enumerate(texts):
        name = f"stop[{index}]" if isinstance(value, list) else "stop"
        if not isinstance(text, str) or not text:
            raise InvalidRequest(name, "must be a string that is not empty")
        if len(text) > MAX_STOP_CHARS:
            raise InvalidRequest(name, f"must be at most {MAX_STOP_CHARS} characters")
        require_unicode(name, text)
    return tuple(texts)
