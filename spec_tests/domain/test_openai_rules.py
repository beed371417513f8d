"""What requests in OpenAI's form may ask for: decision 0160."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.chat_rules import ToolChoice, chat_request
from meshnode.domain.errors import InvalidRequest, Unsupported
from meshnode.domain.openai_rules import completion_request

USER = {"role": "user", "content": "Hi"}
CHAT: dict[str, Any] = {"model": "m", "messages": [USER]}
TEXT: dict[str, Any] = {"model": "m", "prompt": "Hi"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def test_defaults() -> None:
    chat = chat_request(CHAT)
    assert (chat.n, chat.stream, chat.include_usage, chat.tools) == (1, False, False, ())
    assert chat.tool_choice is ToolChoice.NONE
    [one] = completion_request(TEXT).requests
    assert (one.max_tokens, one.temperature, one.top_p, one.top_k) == (16, 1.0, 1.0, 0)
    assert one.logprobs is None
    nulls = dict.fromkeys(("n", "stop", "seed", "stream_options", "logit_bias", "temperature"))
    assert completion_request({**TEXT, **nulls}) == completion_request(TEXT)


def test_what_asks_for_nothing_is_taken() -> None:
    idle = {"user": "u", "store": False, "logit_bias": {}, "echo": False, "best_of": 1}
    assert completion_request({**TEXT, **idle}) == completion_request(TEXT)
    parts = {"role": "developer", "content": [{"type": "text", "text": t} for t in ("a", "b")]}
    assert chat_request({**CHAT, "messages": [parts]}).messages[0] == {
        "role": "system",
        "content": "a\nb",
    }


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"logit_bias": {"1": 1}}, "logit_bias"),
        ({"echo": True}, "echo"),
        ({"best_of": 2}, "best_of"),
        ({"best_of": True}, "best_of"),
        ({"prompt": [1, 2]}, "prompt"),
        ({"invented": 1}, "invented"),
        ({"a\nb": 1}, "a?b"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(Unsupported) as refused:
        completion_request({**TEXT, **changes})
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"model": ""}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": ""}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "messages[0].content"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
        ({"messages": [{**USER, "tool_calls": [{}]}]}, "messages[0].tool_calls"),
        ({"n": 9}, "n"),
        ({"n": True}, "n"),
        ({"temperature": 2.1}, "temperature"),
        ({"presence_penalty": -2.1}, "presence_penalty"),
        ({"top_logprobs": 1}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"stop": ["a"] * 17}, "stop"),
        ({"stop": ["a", ""]}, "stop[1]"),
        ({"stream_options": {}}, "stream_options"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"tools": [TOOL, TOOL]}, "tools"),
        ({"tools": [TOOL], "tool_choice": "f"}, "tool_choice"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema"),
        ({"response_format": {"type": "grammar"}}, "response_format.type"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages[0].content[0].type",
        ),
    ],
)
def test_the_first_offending_field_of_a_chat_is_named(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        chat_request({**CHAT, **changes})
    assert refused.value.field == field


def test_earlier_calls_have_their_arguments_as_objects() -> None:
    called = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    said = {"role": "assistant", "content": None, "tool_calls": [called]}
    outcome = {"role": "tool", "tool_call_id": "c", "content": "1"}
    chat = chat_request({**CHAT, "messages": [USER, said, outcome]})
    assert chat.messages[1]["tool_calls"][0]["function"]["arguments"] == {"a": 1}
    called["function"] = {"name": "f", "arguments": "[]"}
    with pytest.raises(InvalidRequest, match="arguments"):
        chat_request({**CHAT, "messages": [USER, said]})


def test_forced_calls_have_a_schema() -> None:
    named = {"type": "function", "function": {"name": "f"}}
    chat = chat_request({**CHAT, "tools": [TOOL], "tool_choice": named})
    assert (chat.tool_choice, chat.tool_name) == (ToolChoice.NAMED, "f")
    assert chat.json_schema == '{"type": "object"}'
    either = chat_request({**CHAT, "tools": [TOOL], "tool_choice": "required"})
    assert '"const": "f"' in (either.json_schema or "")
    assert either.schema_field == "tools"
    assert chat_request({**CHAT, "tools": [TOOL], "tool_choice": "none"}).tools == ()


def test_a_seed_gives_each_choice_its_own_numbers() -> None:
    wish = {**TEXT, "prompt": ["a", "b"], "n": 2, "seed": -1}
    requests = completion_request(wish).requests
    assert [(each.prompt, each.seed) for each in requests] == [
        ("a", 2**63 - 1), ("a", 0), ("b", 2**63 - 1), ("b", 0),
    ]  # fmt: skip


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "type", "function", "name", "text", "tool_calls"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(
    st.dictionaries(
        st.sampled_from(
            ["messages", "prompt", "tools", "tool_choice", "response_format", "stop", "n", "seed",
             "logprobs", "stream", "stream_options", "max_tokens", "top_p"]
        ),
        JSON,
    )
)  # fmt: skip
def test_whatever_is_sent_is_taken_or_refused(fields: dict[str, Any]) -> None:
    for parse, base in ((chat_request, CHAT), (completion_request, TEXT)):
        with suppress(InvalidRequest):
            parse({**base, **fields})
