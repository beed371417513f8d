"""Interface 4.1, POST /inference body: types, ranges, defaults."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.errors import InvalidRequest
from meshnode.domain.generation import GenerationRequest
from meshnode.domain.inference_rules import (
    MAX_COUNT,
    MAX_PROMPT_BYTES,
    MAX_SEED,
    generation_request,
    wants_stream,
)

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
NAMES = ["prompt", "max_tokens", "temperature", "top_p", "top_k", "stop", "seed"]


def refusal(**fields: object) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        generation_request(fields)
    return caught.value


def test_only_the_prompt_is_required_and_the_defaults_are_the_documents() -> None:
    request = generation_request({"prompt": "hello"})
    assert request == GenerationRequest(
        prompt="hello", max_tokens=100, temperature=1.0, top_p=1.0, top_k=50, stop=(), seed=None
    )
    assert wants_stream({"prompt": "hello"}) is False


def test_everything_given_is_taken() -> None:
    fields = {
        "prompt": "é漢\U0001f600\x00",
        "max_tokens": 7,
        "temperature": 0,
        "top_p": 0.5,
        "top_k": 0,
        "stop": ["\n", "END"],
        "seed": 9,
        "stream": True,
        "no such key": {"is": "looked at"},
    }
    request = generation_request(fields)
    assert request == GenerationRequest(
        prompt="é漢\U0001f600\x00",
        max_tokens=7,
        temperature=0.0,
        top_p=0.5,
        top_k=0,
        stop=("\n", "END"),
        seed=9,
    )
    assert type(request.temperature) is float
    assert wants_stream(fields) is True


@pytest.mark.parametrize("name", [*NAMES[1:], "stream"])
def test_null_is_not_a_way_to_ask_for_the_default(name: str) -> None:
    rule = wants_stream if name == "stream" else generation_request
    with pytest.raises(InvalidRequest, match="null") as caught:
        rule({"prompt": "hello", name: None})
    assert caught.value.field == name


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("prompt", [None, 5, True, "", ["a"], {}, "\ud800", "a\udfffb"]),
        ("max_tokens", [0, -1, 1.5, True, "7", [], MAX_COUNT + 1, 10**400, math.inf, math.nan]),
        ("temperature", [-0.1, 2.1, True, "1", [], 10**400, math.inf, -math.inf, math.nan]),
        ("top_p", [-0.1, 1.1, False, "1", {}, 10**400, math.inf, math.nan]),
        ("top_k", [-1, 0.5, True, "5", 10**400, 1e308]),
        ("stop", ["x", 5, {}, True, [""] * 17, ["a"] * 17]),
        ("seed", [-1, 0.5, True, "1", MAX_SEED + 1]),
    ],
)
def test_wrong_types_and_ranges_name_their_field(name: str, bad: list[object]) -> None:
    for value in bad:
        error = refusal(**{"prompt": "hello", name: value})
        assert error.field == name
        assert error.reason


@pytest.mark.parametrize("bad", ["", 5, None, "x" * 257, "\udc00", ["a"]])
def test_a_bad_stop_string_is_named_by_its_place(bad: object) -> None:
    assert refusal(prompt="hello", stop=["fine", bad]).field == "stop[1]"


def test_the_first_fault_in_the_documents_order_is_reported() -> None:
    assert refusal(stop=5, max_tokens=0, prompt=5).field == "prompt"
    assert refusal(stop=5, max_tokens=0, prompt="x").field == "max_tokens"
    assert refusal().reason == "is required"


def test_the_bounds_themselves_are_inside() -> None:
    low = {"max_tokens": 1, "temperature": 0, "top_p": 0, "top_k": 0, "seed": 0, "stop": []}
    high = {
        "max_tokens": MAX_COUNT,
        "temperature": 2,
        "top_p": 1,
        "top_k": MAX_COUNT,
        "seed": MAX_SEED,
        "stop": ["x" * 256] * 16,
    }
    for bounds in (low, high):
        generation_request({"prompt": "hello", **bounds})


def test_an_integral_float_is_an_integer_as_in_json() -> None:
    assert generation_request({"prompt": "x", "max_tokens": 7.0}).max_tokens == 7
    assert type(generation_request({"prompt": "x", "top_k": 1e3}).top_k) is int


def test_the_prompt_is_bounded_in_bytes() -> None:
    generation_request({"prompt": "é" * (MAX_PROMPT_BYTES // 2)})
    assert refusal(prompt="é" * (MAX_PROMPT_BYTES // 2 + 1)).field == "prompt"


@pytest.mark.parametrize("bad", [0, 1, "true", [], {}])
def test_stream_is_a_boolean(bad: object) -> None:
    with pytest.raises(InvalidRequest) as caught:
        wants_stream({"stream": bad})
    assert caught.value.field == "stream"


@given(st.dictionaries(st.sampled_from(NAMES), anything))
def test_any_fields_make_a_valid_request_or_a_short_refusal(fields: dict[str, object]) -> None:
    try:
        request = generation_request(fields)
    except InvalidRequest as error:
        refused = error
    else:
        check_types_and_ranges(request)
        return
    assert refused.field is not None
    assert refused.field.split("[")[0] in NAMES
    assert len(str(refused)) < 100


def check_types_and_ranges(request: GenerationRequest) -> None:
    assert request.prompt.encode()
    assert request.max_tokens >= 1
    assert 0 <= request.temperature <= 2
    assert 0 <= request.top_p <= 1
    assert request.top_k >= 0
    assert all(text.encode() for text in request.stop)
    for value in (request.max_tokens, request.top_k):
        assert type(value) is int
    for number in (request.temperature, request.top_p):
        assert type(number) is float
