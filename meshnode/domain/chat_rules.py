"""The rules of ``/v1/chat/completions`` (decision 0160).

Terms: a *tool* is a function that the client offers; a *call* is the model's wish that the client
call one. *Forced* calls are those that ``tool_choice`` asks for: a JSON Schema makes sure of them.

Invariant: messages that pass have the form that chat templates expect: every content is text, and
the arguments of earlier calls are objects.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from meshnode.domain.errors import InvalidRequest, Unsupported
from meshnode.domain.inference_rules import MAX_COUNT, MAX_PROMPT_BYTES
from meshnode.domain.openai_rules import (
    MAX_CHOICES,
    SHARED,
    Fields,
    Sampling,
    include_usage,
    require_unicode,
    sampling_of,
)

MAX_MESSAGES = 1000
MAX_TOOLS = 128
MAX_NAME_CHARS = 64
MAX_TOP_LOGPROBS = 20
ANY_OBJECT = '{"type":"object"}'

ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
"""Each role with the one that templates know."""
NOT_HERE = frozenset(
    {"audio", "prediction", "reasoning_effort", "verbosity", "web_search_options", "image_url"}
)


class ToolChoice(Enum):
    """What the model may do about tools."""

    NONE = "none"
    AUTO = "auto"
    """Call some, or answer."""
    REQUIRED = "required"
    """Call one of them."""
    NAMED = "named"
    """Call the one that the request names."""


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A validated request."""

    model: str
    messages: tuple[Mapping[str, Any], ...] = field(repr=False)
    sampling: Sampling
    n: int
    stream: bool
    include_usage: bool
    tools: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    tool_choice: ToolChoice = ToolChoice.NONE
    tool_name: str = ""
    """The name of the tool to call, with NAMED."""
    parallel_tool_calls: bool = True
    json_schema: str | None = field(default=None, repr=False)
    """What the whole completion is a value of."""
    schema_field: str = "response_format"
    """The parameter that the schema comes from."""


def chat_request(fields: Mapping[str, object]) -> ChatRequest:
    """Turn decoded fields into a request. Raises InvalidRequest."""
    reader = Fields(fields)
    reader.refuse_unknown(
        SHARED
        | {
            "messages",
            "max_completion_tokens",
            "top_logprobs",
            "response_format",
            "tools",
            "tool_choice",
            "parallel_tool_calls",
        }
    )
    model = reader.text("model")
    messages = _messages(reader.get("messages"))
    most = reader.integer("max_tokens", None, 1, MAX_COUNT)
    most = reader.integer("max_completion_tokens", most, 1, MAX_COUNT)
    stream = reader.flag("stream")
    tools = _tools(reader.get("tools"))
    choice, name = _tool_choice(reader.get("tool_choice"), tools)
    schema, source = _response_schema(reader.get("response_format")), "response_format"
    if choice in (ToolChoice.REQUIRED, ToolChoice.NAMED):
        if schema is not None:
            raise Unsupported("response_format", "is not supported together with a forced call")
        schema, source = _call_schema(tools, name), "tools"
    return ChatRequest(
        model=model,
        messages=messages,
        sampling=sampling_of(
            reader,
            # Without a limit, the context is one.
            max_tokens=most or MAX_COUNT,
            logprobs=_logprobs(reader),
        ),
        n=reader.integer("n", 1, 1, MAX_CHOICES) or 1,
        stream=stream,
        include_usage=include_usage(reader, stream=stream),
        tools=() if choice is ToolChoice.NONE else tools,
        tool_choice=choice,
        tool_name=name,
        parallel_tool_calls=reader.flag("parallel_tool_calls", default=True),
        json_schema=schema,
        schema_field=source,
    )


def _logprobs(reader: Fields) -> int | None:
    top = reader.integer("top_logprobs", None, 0, MAX_TOP_LOGPROBS)
    if reader.flag("logprobs"):
        return top or 0
    if top is not None:
        raise InvalidRequest("top_logprobs", "needs logprobs: true")
    return None


# Messages


def _messages(value: object) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(value, list) or not value:
        raise InvalidRequest("messages", "is required, and must be an array of messages")
    if len(value) > MAX_MESSAGES:
        raise InvalidRequest("messages", f"must be at most {MAX_MESSAGES}")
    messages = tuple(_message(entry, f"messages[{index}]") for index, entry in enumerate(value))
    if sum(len(message["content"]) for message in messages) > MAX_PROMPT_BYTES:
        raise InvalidRequest("messages", f"must have at most {MAX_PROMPT_BYTES} characters")
    return messages


def _message(value: object, name: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidRequest(name, "must be an object")
    reader = Fields(value, name + ".")
    reader.refuse_unknown(
        {"role", "content", "name", "tool_calls", "tool_call_id", "refusal", "annotations"}
    )
    role = ROLES.get(str(value.get("role")))
    if role is None:
        raise InvalidRequest(f"{name}.role", f"must be one of {', '.join(ROLES)}")
    message: dict[str, Any] = {"role": role, "content": _content(value.get("content"), name)}
    if value.get("name") is not None:
        message["name"] = reader.text("name")
    calls = value.get("tool_calls")
    if calls:
        if role != "assistant" or not isinstance(calls, list) or len(calls) > MAX_TOOLS:
            reason = f"must be an array of at most {MAX_TOOLS} calls, of an assistant"
            raise InvalidRequest(f"{name}.tool_calls", reason)
        message["tool_calls"] = [
            _earlier_call(call, f"{name}.tool_calls[{index}]") for index, call in enumerate(calls)
        ]
    elif value.get("content") is None:
        raise InvalidRequest(f"{name}.content", "is required")
    if role == "tool":
        message["tool_call_id"] = reader.text("tool_call_id")
    return message


def _content(value: object, name: str) -> str:
    """A message's text; several parts of text are joined by line breaks."""
    if value is None:
        return ""
    if isinstance(value, list):
        return "\n".join(_part(part, f"{name}.content[{i}]") for i, part in enumerate(value))
    if not isinstance(value, str):
        raise InvalidRequest(f"{name}.content", "must be a string or an array of text parts")
    require_unicode(f"{name}.content", value)
    return value


def _part(value: object, name: str) -> str:
    if not isinstance(value, Mapping):
        raise InvalidRequest(name, "must be an object")
    if value.get("type") != "text":
        raise Unsupported(f"{name}.type", "must be 'text': others are not supported by this node")
    text = value.get("text")
    if not isinstance(text, str):
        raise InvalidRequest(f"{name}.text", "must be a string")
    require_unicode(f"{name}.text", text)
    return text


def _earlier_call(value: object, name: str) -> dict[str, Any]:
    """A call that the assistant made before, with its arguments as an object."""
    called = value.get("function") if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping) or not isinstance(called, Mapping):
        raise InvalidRequest(name, "must be an object with a function")
    inner = Fields(called, f"{name}.function.")
    function = inner.text("name", MAX_NAME_CHARS)
    text = called.get("arguments", "")
    try:
        arguments = json.loads(text) if isinstance(text, str) and text.strip() else {}
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise InvalidRequest(f"{name}.function.arguments", "must be a JSON object in a string")
    call: dict[str, Any] = {
        "type": "function",
        "function": {"name": function, "arguments": arguments},
    }
    if isinstance(value.get("id"), str):
        call["id"] = value["id"]
    return call


# Tools, and the form of the answer


def _tools(value: object) -> tuple[Mapping[str, Any], ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > MAX_TOOLS:
        raise InvalidRequest("tools", f"must be an array of at most {MAX_TOOLS} tools")
    tools = tuple(_tool(entry, f"tools[{index}]") for index, entry in enumerate(value))
    names = [tool["function"]["name"] for tool in tools]
    if len(set(names)) < len(names):
        raise InvalidRequest("tools", "must have different names")
    return tools


def _tool(value: object, name: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidRequest(name, "must be an object")
    function = value.get("function")
    if value.get("type") != "function":
        raise Unsupported(f"{name}.type", "must be 'function': this node knows no other tools")
    if not isinstance(function, Mapping):
        raise InvalidRequest(f"{name}.function", "must be an object")
    inner = Fields(function, f"{name}.function.")
    inner.refuse_unknown({"name", "description", "parameters", "strict"})
    tool: dict[str, Any] = {"name": inner.text("name", MAX_NAME_CHARS)}
    description = function.get("description")
    if description is not None:
        tool["description"] = inner.text("description", MAX_PROMPT_BYTES) if description else ""
    parameters = function.get("parameters")
    if parameters is not None and not isinstance(parameters, Mapping):
        raise InvalidRequest(f"{name}.function.parameters", "must be a JSON Schema")
    tool["parameters"] = parameters or {"type": "object", "properties": {}}
    return {"type": "function", "function": tool}


def _tool_choice(value: object, tools: tuple[Mapping[str, Any], ...]) -> tuple[ToolChoice, str]:
    if value is None:
        return (ToolChoice.AUTO if tools else ToolChoice.NONE), ""
    if value == "none":
        return ToolChoice.NONE, ""
    if not tools:
        raise InvalidRequest("tool_choice", "needs tools")
    if value in ("auto", "required"):
        return ToolChoice(value), ""
    if isinstance(value, Mapping):
        function = value.get("function")
        name = function.get("name") if isinstance(function, Mapping) else None
        if value.get("type") == "function" and name in [t["function"]["name"] for t in tools]:
            return ToolChoice.NAMED, str(name)
        raise InvalidRequest("tool_choice", "must name a function of tools")
    raise InvalidRequest("tool_choice", "must be none, auto, required, or a function of tools")


def _call_schema(tools: tuple[Mapping[str, Any], ...], name: str) -> str:
    """The schema of a forced call: of its arguments if the tool is named, else of the whole."""
    functions = [tool["function"] for tool in tools]
    if name:
        [named] = [function for function in functions if function["name"] == name]
        return json.dumps(named["parameters"])
    calls = [
        {
            "type": "object",
            "properties": {"name": {"const": each["name"]}, "arguments": each["parameters"]},
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for each in functions
    ]
    return json.dumps({"anyOf": calls})


def _response_schema(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise InvalidRequest("response_format", "must be an object")
    kind = value.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return ANY_OBJECT
    if kind != "json_schema":
        raise Unsupported("response_format.type", "must be text, json_object or json_schema")
    outer = value.get("json_schema")
    schema = outer.get("schema") if isinstance(outer, Mapping) else None
    if not isinstance(schema, Mapping):
        raise InvalidRequest("response_format.json_schema.schema", "must be a JSON Schema")
    return json.dumps(schema)
