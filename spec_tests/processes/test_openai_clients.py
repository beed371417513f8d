"""OpenAI's interface, judged by clients that are not ours: decision 0160, ``nox -s clients``.

The Python package is part of the tests' environment; those for LangChain and for Node.js are
brought by the session.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spec_tests.processes.nodes import TOKEN, Node, running_node
from spec_tests.processes.openai_node import MODEL, UNUSUAL, make_chat_model

openai = pytest.importorskip("openai", reason="the package openai is not installed")

pytestmark = [pytest.mark.process, pytest.mark.slow]

NODE_SCRIPT = Path(__file__).with_name("openai_client.cjs")
NPM_FOLDER = "MESHNODE_TEST_NPM"
"""The variable with the folder in which npm has installed the package openai."""
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"text": {"enum": [UNUSUAL]}, "number": {"type": "integer", "maximum": 99}},
    "required": ["text", "number"],
    "additionalProperties": False,
}
FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Paris"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
CLOCK: Any = {"type": "function", "function": {"name": "clock"}}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("openai")
    with running_node(folder / "data", "--model", str(make_chat_model(folder))) as node:
        yield node


@pytest.fixture(scope="module")
def client(node: Node) -> Iterator[Any]:
    address = f"http://127.0.0.1:{node.port}/v1"
    with openai.OpenAI(base_url=address, api_key=TOKEN, max_retries=0) as client:
        yield client


def test_models(client: Any) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).owned_by == "meshnode"
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("gpt-4")
    assert caught.value.code == "model_not_found"


def test_a_chat_and_its_stream_are_the_same(client: Any) -> None:
    wish: dict[str, Any] = {"model": MODEL, "messages": QUESTION, "temperature": 0}
    whole = client.chat.completions.create(**wish)
    [choice] = whole.choices
    assert choice.message.content.strip() == "The capital of France is Paris."
    assert choice.finish_reason == "stop"
    assert "<|" not in choice.message.content
    options = {"include_usage": True}
    chunks = list(client.chat.completions.create(**wish, stream=True, stream_options=options))
    *parts, last = chunks
    assert {chunk.id for chunk in chunks} == {last.id}
    assert last.choices == []
    assert last.usage == whole.usage
    assert all(chunk.usage is None for chunk in parts)
    assert parts[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in parts)
    assert text == choice.message.content
    reasons = [chunk.choices[0].finish_reason for chunk in parts]
    assert reasons == [None] * (len(reasons) - 1) + ["stop"]
    plain = list(client.chat.completions.create(**wish, stream=True))
    assert all(chunk.choices and chunk.usage is None for chunk in plain)


def test_the_stream_on_the_wire(client: Any) -> None:
    """What clients other than this one broke on: media type, ``[DONE]``, half characters."""
    with client.chat.completions.with_streaming_response.create(
        model=MODEL, messages=QUESTION, response_format=FORMAT, stream=True, temperature=0
    ) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        body = b"".join(response.iter_bytes())
    events = body.decode().removesuffix("\n\n").split("\n\n")
    assert events.pop() == "data: [DONE]"
    deltas = [json.loads(event.removeprefix("data: "))["choices"][0]["delta"] for event in events]
    texts = [delta["content"] for delta in deltas if delta.get("content")]
    assert json.loads("".join(texts))["text"] == UNUSUAL
    assert len(texts) > len(UNUSUAL) // 2
    assert "\ufffd" not in "".join(texts)


def test_choices_seeds_and_logprobs(client: Any) -> None:
    wish: dict[str, Any] = {"model": MODEL, "messages": QUESTION, "max_tokens": 6, "n": 3}
    one = client.chat.completions.create(**wish, seed=7, logprobs=True, top_logprobs=2)
    two = client.chat.completions.create(**wish, seed=7)
    texts = [choice.message.content for choice in one.choices]
    assert texts == [choice.message.content for choice in two.choices]
    assert [choice.index for choice in one.choices] == [0, 1, 2]
    assert one.usage.completion_tokens <= 18
    for choice in one.choices:
        spelled = b"".join(bytes(entry.bytes) for entry in choice.logprobs.content)
        assert spelled.decode() == choice.message.content
        assert all(len(entry.top_logprobs) == 2 for entry in choice.logprobs.content)
        assert all(entry.logprob <= 0 for entry in choice.logprobs.content)
    streamed: dict[int, str] = {}
    for chunk in client.chat.completions.create(**wish, seed=7, stream=True):
        [choice] = chunk.choices
        streamed[choice.index] = streamed.get(choice.index, "") + (choice.delta.content or "")
    assert [streamed[index] for index in range(3)] == texts


def test_completions(client: Any) -> None:
    wish: dict[str, Any] = {"model": MODEL, "temperature": 0, "max_tokens": 8}
    answer = client.completions.create(prompt=["Once upon a time", "The sun"], logprobs=1, **wish)
    assert answer.choices[1].text == " rises in the east and sets in the"
    assert answer.choices[1].finish_reason == "length"
    assert "".join(answer.choices[0].logprobs.tokens) == answer.choices[0].text
    chunks = client.completions.create(prompt="The sun", stream=True, stop=" sets", **wish)
    text = "".join(chunk.choices[0].text for chunk in chunks)
    assert text == " rises in the east and"


def test_a_json_schema_is_kept_to(client: Any) -> None:
    for seed in range(3):
        answer = client.chat.completions.create(
            model=MODEL, messages=QUESTION, response_format=FORMAT, seed=seed
        )
        value = json.loads(answer.choices[0].message.content)
        assert value["text"] == UNUSUAL
        assert isinstance(value["number"], int)
        assert answer.choices[0].finish_reason == "stop"


def test_tools(client: Any) -> None:
    wish: dict[str, Any] = {"model": MODEL, "messages": QUESTION, "tools": [WEATHER, CLOCK]}
    named: Any = {"type": "function", "function": {"name": "weather"}}
    answer = client.chat.completions.create(**wish, tool_choice=named)
    [call] = answer.choices[0].message.tool_calls
    assert (call.function.name, call.function.arguments) == ("weather", '{"city": "Paris"}')
    assert answer.choices[0].message.content is None
    chunks = list(client.chat.completions.create(**wish, tool_choice=named, stream=True))
    calls = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or []]
    assert {call.index for call in calls} == {0}
    assert calls[0].id
    assert calls[0].function.name == "weather"
    assert "".join(call.function.arguments for call in calls) == '{"city": "Paris"}'
    required = client.chat.completions.create(
        **{**wish, "tools": [WEATHER]}, tool_choice="required"
    )
    assert required.choices[0].finish_reason == "tool_calls"
    [call] = required.choices[0].message.tool_calls
    assert json.loads(call.function.arguments) == {"city": "Paris"}
    # The conversation goes on with the call and its outcome.
    said = required.choices[0].message.model_dump(exclude_none=True)
    outcome = {"role": "tool", "tool_call_id": call.id, "content": "It is sunny."}
    more = client.chat.completions.create(
        model=MODEL, messages=[*QUESTION, said, outcome], max_tokens=5, temperature=0
    )
    assert more.choices[0].message.content


def test_failures_are_the_clients_exceptions(client: Any, node: Node) -> None:
    wish: dict[str, Any] = {"model": MODEL, "messages": QUESTION}
    for fault, parameter, code in (
        ({"logit_bias": {"5": 1}}, "logit_bias", "unsupported_parameter"),
        ({"frequency_penalty": 3}, "frequency_penalty", None),
        ({"messages": [{"role": "user", "content": "word " * 2000}]}, "messages",
         "context_length_exceeded"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema":
         {"type": "nonsense"}}}}, "response_format", None),
    ):  # fmt: skip
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(**{**wish, **fault})
        assert caught.value.param == parameter
        assert caught.value.code == code
        assert caught.value.type == "invalid_request_error"
    stranger = client.with_options(api_key="nobody")
    with pytest.raises(openai.AuthenticationError) as refused:
        stranger.models.list()
    assert refused.value.code == "invalid_api_key"


def test_a_client_that_leaves_stops_its_generation(client: Any, node: Node) -> None:
    generated = node.ask("GET", "/api/v1/metrics").json["inference"]["tokens_generated"]
    stream = client.completions.create(
        model=MODEL, prompt="Once upon a time", max_tokens=400, stream=True, logprobs=0
    )
    next(iter(stream))
    stream.close()
    answer = client.completions.create(model=MODEL, prompt="The sun", max_tokens=2, temperature=0)
    assert answer.choices[0].text == " rises in"
    after = node.ask("GET", "/api/v1/metrics").json["inference"]["tokens_generated"]
    assert after - generated < 400


def test_langchain(node: Node) -> None:
    langchain = pytest.importorskip("langchain_openai", reason="langchain-openai is not installed")
    model = langchain.ChatOpenAI(
        base_url=f"http://127.0.0.1:{node.port}/v1",
        api_key=TOKEN,
        model=MODEL,
        temperature=0,
        max_retries=0,
    )
    answer = model.invoke("What is the capital of France?")
    assert "Paris" in answer.content
    assert answer.usage_metadata["output_tokens"] > 0
    chunks = list(model.stream("What is the capital of France?", stream_usage=True))
    assert "".join(chunk.content for chunk in chunks) == answer.content
    assert any(chunk.usage_metadata for chunk in chunks)
    structured = model.with_structured_output(
        {"title": "answer", "description": "An answer", **SCHEMA}, method="json_schema"
    )
    assert structured.invoke("Answer")["text"] == UNUSUAL
    calling = model.bind_tools([WEATHER], tool_choice="weather")
    [call] = calling.invoke("How is the weather in Paris?").tool_calls
    assert (call["name"], call["args"]) == ("weather", {"city": "Paris"})


def test_nodejs(node: Node) -> None:
    program, folder = shutil.which("node"), os.environ.get(NPM_FOLDER, "")
    if program is None or not (Path(folder) / "node_modules" / "openai").exists():
        pytest.skip(f"there is no node, or {NPM_FOLDER} names no folder with its package openai")
    wish = {"model": MODEL, "schema": SCHEMA, "tool": WEATHER, "unusual": UNUSUAL}
    outcome = subprocess.run(
        [program, str(NODE_SCRIPT), f"http://127.0.0.1:{node.port}/v1", TOKEN, json.dumps(wish)],
        env={**os.environ, "NODE_PATH": str(Path(folder) / "node_modules")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stdout.split() == ["models", "chat", "stream", "schema", "tools", "errors"]
