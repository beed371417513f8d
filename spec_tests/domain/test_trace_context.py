"""Trace contexts from outside: W3C's form and nothing else (decision 0200)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshnode.domain.trace_context import MAX_STATE, TraceContext, read_context, read_state

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def parent(text: str) -> TraceContext | None:
    return read_context({"traceparent": text})


def test_a_context_is_read_and_passed_on() -> None:
    headers = {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "vendor=1 , other=a b,"}
    found = read_context(headers)
    assert found == TraceContext(int(TRACE, 16), int(SPAN, 16), True, "vendor=1,other=a b")
    assert found.headers() == {**headers, "tracestate": "vendor=1,other=a b"}


def test_flags_and_later_versions_are_read_as_the_recommendation_says() -> None:
    for text, sampled in (
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"00-{TRACE}-{SPAN}-02", False),
        (f"00-{TRACE}-{SPAN}-03", True),
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-will-be-like", True),
    ):
        found = parent(text)
        assert found is not None
        assert found.sampled is sampled
        assert found.headers()["traceparent"] == f"00-{TRACE}-{SPAN}-0{int(sampled)}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"ff-{TRACE}-{SPAN}-01",
        f" 00-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\n",
        f"cc-{TRACE}-{SPAN}-01-{'x' * 100}",
    ],
)
def test_what_is_malformed_is_no_context(text: str) -> None:
    assert parent(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "a=1,a=2",
        "a=b=c",
        "A=1",
        "a",
        "a=b\x00c",
        "a=" + "b" * 257,
        ",".join(f"a{n}=1" for n in range(33)),
    ],
)
def test_a_malformed_state_is_dropped_and_the_context_kept(text: str) -> None:
    assert read_state(text) == ""
    headers = {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": text}
    assert read_context(headers) == TraceContext(int(TRACE, 16), int(SPAN, 16), True)


@settings(max_examples=50)
@given(st.text(max_size=70), st.text(max_size=70))
def test_any_text_is_bounded(context: str, state: str) -> None:
    found = read_context({"traceparent": context, "tracestate": state})
    assert found is None or len(found.state) <= MAX_STATE


@given(st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.booleans())
def test_what_is_written_is_read_again(trace: int, span: int, sampled: bool) -> None:
    context = TraceContext(trace, span, sampled)
    assert read_context(context.headers()) == context
