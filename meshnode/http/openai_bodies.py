"""Bodies of the routes under ``/v1``, as OpenAI's interface has them (decision 0160)."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from meshnode.domain.chat_rules import MAX_MESSAGES, MAX_TOP_LOGPROBS
from meshnode.domain.inference_rules import MAX_COUNT, MAX_TEMPERATURE
from meshnode.domain.openai_rules import MAX_CHOICES, MAX_COMPLETION_LOGPROBS, MAX_PENALTY
from meshnode.http.fields import Count
from meshnode.http.openai import OpenaiError
from meshnode.http.schema import Limits, NamedSchema, extensible, reference

Tokens = Annotated[int, Limits(minimum=1, maximum=MAX_COUNT)]
Temperature = Annotated[float, Limits(minimum=0, maximum=MAX_TEMPERATURE, default=1.0)]
Share = Annotated[float, Limits(minimum=0, maximum=1, default=1.0)]
Penalty = Annotated[float, Limits(minimum=-MAX_PENALTY, maximum=MAX_PENALTY, default=0.0)]
Choices = Annotated[int, Limits(minimum=1, maximum=MAX_CHOICES, default=1)]


class Model(TypedDict):
    """A model that this node serves."""

    id: str
    object: Literal["model"]
    created: Count
    owned_by: str
    max_model_len: Annotated[Count, Limits(description="Tokens, prompt and completion together.")]
    model_hash: str
    weights_version: Count


class Models(TypedDict):
    """The models that this node serves."""

    object: Literal["list"]
    data: list[Model]


class StreamOptions(TypedDict):
    """What a stream has besides its text."""

    include_usage: NotRequired[bool]


class _Sampled(TypedDict):
    model: Annotated[str, Limits(min_length=1)]
    max_tokens: NotRequired[Tokens]
    temperature: NotRequired[Temperature]
    top_p: NotRequired[Share]
    top_k: NotRequired[
        Annotated[int, Limits(minimum=0, maximum=MAX_COUNT, default=0, description="0: no limit.")]
    ]
    n: NotRequired[Choices]
    stop: NotRequired[str | list[str]]
    seed: NotRequired[int]
    stream: NotRequired[Annotated[bool, Limits(default=False)]]
    stream_options: NotRequired[StreamOptions]
    frequency_penalty: NotRequired[Penalty]
    presence_penalty: NotRequired[Penalty]


@extensible
class OpenaiMessage(TypedDict):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: NotRequired[str | list[dict[str, Any]] | None]


@extensible
class ChatCompletionRequest(_Sampled):
    """The body of a chat."""

    messages: Annotated[list[OpenaiMessage], Limits(max_items=MAX_MESSAGES)]
    max_completion_tokens: NotRequired[Tokens]
    logprobs: NotRequired[bool]
    top_logprobs: NotRequired[Annotated[int, Limits(minimum=0, maximum=MAX_TOP_LOGPROBS)]]
    response_format: NotRequired[dict[str, Any]]
    tools: NotRequired[list[dict[str, Any]]]
    tool_choice: NotRequired[str | dict[str, Any]]
    parallel_tool_calls: NotRequired[bool]


@extensible
class CompletionRequestBody(_Sampled):
    """The body of a completion."""

    prompt: str | list[str]
    logprobs: NotRequired[Annotated[int, Limits(minimum=0, maximum=MAX_COMPLETION_LOGPROBS)]]


class OpenaiUsage(TypedDict):
    """Token counts, of all choices together."""

    prompt_tokens: Count
    completion_tokens: Count
    total_tokens: Count


class OpenaiFunction(TypedDict):
    """A function, and its arguments as JSON."""

    name: str
    arguments: str


class OpenaiToolCall(TypedDict):
    """A tool that the model calls."""

    id: str
    type: Literal["function"]
    function: OpenaiFunction


class AssistantMessage(TypedDict):
    """What the model answers."""

    role: Literal["assistant"]
    content: str | None
    refusal: None
    tool_calls: NotRequired[list[OpenaiToolCall]]


FinishReason = Literal["stop", "length", "tool_calls"]


class ChatChoiceBody(TypedDict):
    """One completion of a chat."""

    index: Count
    message: AssistantMessage
    logprobs: dict[str, Any] | None
    finish_reason: FinishReason


class ChatCompletion(TypedDict):
    """The answer to a chat."""

    id: str
    object: Literal["chat.completion"]
    created: Count
    model: str
    system_fingerprint: str
    choices: list[ChatChoiceBody]
    usage: OpenaiUsage


class TextChoiceBody(TypedDict):
    """One completion of a prompt."""

    index: Count
    text: str
    logprobs: dict[str, Any] | None
    finish_reason: FinishReason


class TextCompletion(TypedDict):
    """The answer to a completion."""

    id: str
    object: Literal["text_completion"]
    created: Count
    model: str
    system_fingerprint: str
    choices: list[TextChoiceBody]
    usage: OpenaiUsage


class OpenaiChunk(TypedDict):
    """One event of a stream."""

    id: str
    object: Literal["chat.completion.chunk", "text_completion"]
    created: Count
    model: str
    system_fingerprint: str
    choices: list[dict[str, Any]]
    usage: NotRequired[OpenaiUsage | None]


OPENAI_EVENT = NamedSchema(
    "OpenaiEvent",
    {
        "type": "object",
        "description": "One event of a stream: a chunk, an error that broke it off, or [DONE].",
        "required": ["data"],
        "properties": {
            "data": {
                "type": "string",
                "contentMediaType": "application/json",
                "contentSchema": {
                    "oneOf": [reference(kind.__name__) for kind in (OpenaiChunk, OpenaiError)]
                },
            }
        },
    },
    (OpenaiChunk, OpenaiError),
)
"""The schema of each event."""
