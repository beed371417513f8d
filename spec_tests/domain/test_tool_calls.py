"""Calls in generated text: decision 0160."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.tool_calls import CallDelta, ContentDelta, ToolCallParser

NAMES = ("weather", "clock")
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'


def parsed(pieces: list[str], **options: Any) -> tuple[str, list[tuple[str, str]]]:
    """The content of a text, and its calls."""
    parser = ToolCallParser(options.pop("names", NAMES), **options)
    content = ""
    calls: list[tuple[str, str]] = []
    for delta in [d for piece in pieces for d in parser.push(piece)] + parser.finish():
        if isinstance(delta, ContentDelta):
            assert delta.text
            content += delta.text
        elif delta.name:
            assert delta.index == len(calls)
            calls.append((delta.name, delta.arguments))
        else:
            calls[delta.index] = (calls[delta.index][0], calls[delta.index][1] + delta.arguments)
    assert parser.calls == len(calls)
    return content, calls


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        ("Hello <b>", "Hello <b>", []),
        (CALL, "", [("weather", '{"city": "Paris"}')]),
        ("Let me see.\n" + CALL, "Let me see.\n", [("weather", '{"city": "Paris"}')]),
        (CALL + "\n" + CALL, "", [("weather", '{"city": "Paris"}')] * 2),
        ('{"name": "clock", "parameters": {}}', "", [("clock", "{}")]),
        (' {"name": "clock"}', "", [("clock", "{}")]),
        # What is no call of an offered tool is content, to the character.
        ('{"name": "other", "arguments": {}}', '{"name": "other", "arguments": {}}', []),
        ('{"name": ["clock"], "arguments": {}}', '{"name": ["clock"], "arguments": {}}', []),
        ('{"a": 1', '{"a": 1', []),
        ("<tool_call>nonsense</tool_call>!", "<tool_call>nonsense</tool_call>!", []),
        ("<tool_call>{", "<tool_call>{", []),
        ("a <tool_cal", "a <tool_cal", []),
    ],
)
def test_texts(text: str, content: str, calls: list[tuple[str, str]]) -> None:
    assert parsed([text]) == (content, calls)
    assert parsed(list(text)) == (content, calls)


@given(
    st.lists(st.sampled_from(["<tool", "_call>", "</tool_call>", "{", '{"name": "clock"}', "a"]))
)
def test_a_text_is_the_same_however_it_is_split(parts: list[str]) -> None:
    text = "".join(parts)
    assert parsed(parts) == parsed([text]) == parsed(list(text))


def test_content_that_is_certain_is_not_withheld() -> None:
    parser = ToolCallParser(NAMES)
    assert parser.push("Hi <to") == [ContentDelta("Hi ")]
    assert parser.push("p>") == [ContentDelta("<top>")]
    assert ToolCallParser(()).push("{") == [ContentDelta("{")]


def test_forced_calls() -> None:
    text = json.dumps({"name": "clock", "arguments": {}})
    assert parsed(list(text), only_calls=True) == ("", [("clock", "{}")])
    parser = ToolCallParser(NAMES, named="clock")
    assert parser.push('{"a"') == [CallDelta(0, '{"a"', "clock")]
    assert parser.push(": 1}") == [CallDelta(0, ": 1}")]
    assert parser.finish() == []


def test_without_parallel_calls_the_first_one_counts() -> None:
    assert parsed([CALL + CALL], parallel=False)[1] == [("weather", '{"city": "Paris"}')]
